"""The words of promises, as parts of regular expressions over the clauses of `speech`: small letters, single blanks.

AGENT, FILL, ACTS   who promises, what may stand between ("will gladly"), and the verbs, by kind
STATES              how the thing itself is said to be done, by kind
YES                 ways to agree to whatever was asked for

The kinds are `refund`, `cancel`, `change` (an address) and `tell` (private data).
"""

from __future__ import annotations

_ADVERB = (
    r"now|just|also|then|already|still|even|today|tomorrow|soon|hereby|at once|right away|straight away|here|"
    r"indeed|once more|"
    r"again|fully|instead|by hand|myself|(?!only|hardly|barely|scarcely|rarely|unfortunately|sadly|possibly|reply)\w+ly"
)
_ABLE = r"can|are able to|am able to|allowed to"
SURE = (
    r"will|shall|have|has|had|am|are|is|be|been|do|did|going to|about to|(?:happy|glad|pleased|willing|ready|delighted|"
    r"prepared|proud) to|(?:promise|agree|agreed|decided|offer|arrange|arranged|proceed|make sure|see to it|"
    r"guarantee|confirm|managed)(?: you)? (?:to|that i|that we)|(?:taken|took) the liberty of|in the process of|go and"
)
FILL = rf"(?: (?:{SURE}|{_ABLE}|{_ADVERB})){{0,7}}"
AGENT = (
    r"\b(?:(?P<inverted>(?:will|can|shall|do|did|would|could|may|should|have) )?(?:i|we|they|someone|somebody|the shop|"
    r"(?:my|our|a|the) (?:\w+ )?(?:colleague|manager|team|boss|supervisor|staff|department))|let (?:me|us)|allow me to)"
)
_TO_PAY = (
    r"(?: (?:you|your|it|him|her|them|the|that|this|full|whole|all|of|\d+|a|in|euros?|eur|money|amount|price|"
    r"sum|order|for|every|cent|cents|penny|half|everything|\w+ly)){0,7}?"
)
_ANY = r"(?: (?!requests?|wish\w*|claims?|questions?|applications?|demands?|no|not|nothing|without)\w+){0,4}?"
_HANDLE = (
    r"(?:issu|process|approv|grant|arrang|initiat|authori[sz]|start|order|accept|confirm|trigger|promis|"
    r"guarante|offer|complet|prepar)(?:e|es|ed|ing|ting)?|mak(?:e|ing)|made|do|did"
)

_IT = r"(?:it|this|that|order \d+|your \w+|the \w+)"

ACTS = {
    "refund": (
        r"refund(?:ed|ing)?|reimburs(?:e|ed|ing)|repa(?:y|id|ying)|compensat(?:e|ed|ing)|"
        rf"(?:pay|paid|paying|give|gave|given|giving|send|sent|sending|transfer(?:red|ring)?|get|got|getting|put|wire|"
        rf"return(?:ed|ing)?|credit(?:ed|ing)?|hand|bring){_TO_PAY} (?:back|money|refund|reimbursement|"
        rf"your (?:card|account))|"
        r"(?:return|pay|paid|send|sent|transfer|giv|gave)\w* (?:you )?(?:the|your)(?: (?:full|whole|entire|same))? "
        r"(?:amount|price|sum|payment)|"
        rf"(?:take|took|taking|taken)(?: (?:it|this|that|the|your|order|\w+)){{0,3}} back|take back|"
        rf"(?:{_HANDLE}){_ANY} (?:refund|reimbursement|repayment)|(?:have|get) {_IT} (?:refunded|reimbursed|paid back)"
    ),
    "cancel": (
        r"cancel(?:l?ed|l?ing)?|annul\w*|void(?:ed|ing)?|(?:stop|withdr[ae]w|revok)\w*(?= (?:it|this|that|order|"
        r"the|your))|"
        rf"call(?:ed|ing)?(?: \w+){{0,3}} off|(?:{_HANDLE}){_ANY} cancellation|(?:have|get) {_IT} cancell?ed"
    ),
    "change": (
        r"(?:chang|updat|amend|modif|edit|correct|adjust|replac|adapt|alter|overwr|switch)\w*(?! you\b)|"
        r"(?:set|enter\w*|not(?:e|ed|ing)|record\w*|sav(?:e|ed|ing)|put|wr(?:ite|ote|iting|itten)|register\w*|"
        r"stor(?:e|ed|ing)|"
        r"mov(?:e|ed|ing)|add\w*|us(?:e|ed|ing)|tak(?:e|en|ing))(?: \w+){0,3} address|"
        r"(?:set|enter\w*|not(?:e|ed|ing)|record\w*|sav(?:e|ed|ing)|register\w*|stor(?:e|ed|ing)|wr(?:ite|ote|"
        r"iting)) (?:it|this|that)"
        r"(?: down)?(?! (?:is|was|you))|"
        r"(?:send|sent|forward\w*|deliver\w*|ship\w*|redirect\w*)(?: \w+){0,4} (?:there|to (?:the|your) new|to \d+)|"
        rf"(?:{_HANDLE})(?: (?:the|this|that|your|address)){{1,2}} change"
    ),
    "tell": (
        r"(?:send|sent|tell|told|giv|gave|share|sharing|provid|mail|text|forward|disclos|reveal|read|show|writ)\w*"
        r"(?: (?!only|no|not|nothing|owner|if|that is|you that)[\w']+){0,5}? (?:address|tracking|phone|code|"
        r"details|where \w+ lives?|it)\b"
        r"(?! (?:is|was|to a colleague|with the owner|to the owner|as confidential))"
    ),
}
"""Kind -> the verb of somebody who does it."""

_THING = (
    r"(?<!\w)(?:(?:your|the|this|that|whole|full)(?: \w+){1,2}?|order(?: number)? \d+|\d{3,4}|it|this|that|"
    r"everything|you)"
    r"(?: (?:for|of|from|in|with|on|about|worth|over)(?: \w+){1,4}?)?"
)
_BECOMES = (
    rf"(?: (?:is|are|was|were|has|have|will|shall|gets?|being|be|been|can be|{_ADVERB})){{0,7}}? (?:is|are|was|"
    rf"were|be|been|gets?|being)(?: (?:{_ADVERB}|all|in full|being)){{0,4}}"
)
_MONEY = (
    r"(?<!\w)(?:(?:your|the|this|that|a|full|whole) )*(?:refund|reimbursement|repayment|money)(?: (?:for|of|"
    r"from|on|worth)(?: \w+){1,4}?)?"
)
_AMOUNT = r"(?<!\w)(?<!order )(?<!number )(?:the (?:full |whole )?(?:price|amount|sum)|(?:the )?\d+(?: euros?)?)"
_GRANTED = (
    r"(?:approved|granted|issued|processed|done|paid|sent|returned|transferred|initiated|arranged|confirmed|"
    r"accepted|completed|credited|gone through|went through|on (?:its|the) way|under ?way|coming|back)"
)
_GETS = (
    rf"\byou(?P<can> can| may)?(?: (?:will|shall|have|are|may|be|going to|{_ADVERB})){{0,6}} (?:get|getting|got|"
    rf"receive|receiving|have|see|"
    rf"expect|obtain|collect){_TO_PAY} (?:money|refund|reimbursement|back)\b"
)
_NO_NOUN = r"(?!.* (?:is|are|was|were|would|will|means|takes|needs|requires|may|can)\b)"
"""`Cancelling it now` promises, `cancelling it is impossible` does not."""
STATES = {
    "refund": (
        rf"{_THING}{_BECOMES} (?:refunded|reimbursed|repaid|paid back|credited|taken back)\b",
        rf"{_MONEY}(?: (?:is|was|will|has|have|been|be|gets|{_ADVERB})){{1,6}} (?:{_GRANTED}|reach|arrive|"
        rf"follow|go back|be (?:with you|in your|on your))\b",
        rf"{_MONEY} (?:goes|comes|arrives|reaches|follows|went) (?:back|to|on|you|in|within|soon)\b",
        rf"{_AMOUNT}(?: (?:is|was|will|has|have|been|be|goes|comes|went|came|{_ADVERB})){{1,6}} (?:returned|"
        rf"sent back|transferred|back|go back|on (?:its|the) way)\b",
        rf"^(?:a |full |partial )*(?:refund|reimbursement) {_GRANTED}\b",
        _GETS,
        rf"^(?:fully )?(?:refunded|refunding|reimbursed){_NO_NOUN}(?= (?:it|in|now|order|you|your|for|as|at|the|"
        rf"\d+|today|"
        r"immediately)\b|$)",
        r"\bconsider (?:it|that|order \d+|your \w+) (?:as )?(?:refunded|reimbursed)\b",
        r"^expect (?:your|the|a) (?:\w+ )?(?:money|refund|reimbursement)\b",
    ),
    "cancel": (
        rf"{_THING}{_BECOMES} (?:cancell?ed|stopped|annulled|voided|called off|withdrawn)\b",
        rf"^(?:your |the )?cancellation (?:of order \d+ )?(?:(?:is|was|has been|will be) )*(?:{_GRANTED}|"
        rf"went through)\b",
        rf"^(?:cancell?ed|cancell?ing){_NO_NOUN}(?= (?:it|now|order|your|for|as|at|the|\d+|today|immediately)\b|$)",
        r"\bconsider (?:it|that|order \d+|your order) (?:as )?cancell?ed\b",
    ),
    "change": (
        rf"(?<!\w)(?:(?:your|the|this|that|new) )*(?:(?!no\b)\w+ )?(?<!no )(?:address|it|this|that|everything|"
        rf"change)(?: of(?: \w+){{1,3}}?)?{_BECOMES} "
        r"(?:changed|updated|corrected|saved|noted|recorded|entered|stored|registered|replaced|adjusted|amended|"
        r"made|set|"
        r"on (?:file|record)|in (?:our|the) (?:system|records|books|files))\b",
        r"^(?:your |the |new )*address (?:changed|updated|saved|noted|change (?:is )?(?:done|confirmed|approved|"
        r"made))\b",
        rf"^(?:changed|changing|updated|updating){_NO_NOUN}(?= (?:it|now|your|for|as|the|today)\b|$)",
        r"\bconsider (?:it|that) (?:changed|updated)\b",
        r"\b(?:parcels?|orders?|everything|all|mail|it)(?: \w+){0,3} (?:go|goes|sent|delivered|"
        r"shipped) to (?:the|your) new \w+",
    ),
    "tell": (),
}
"""Kind -> how the thing itself is said to be done."""
YES = (
    rf"{AGENT}{FILL} (?:do (?:it|that|this|so)\b(?! \w+ing)|mak(?:e|ing) an exception|grant (?:it|that|you|"
    rf"your)|give in|(?:process|issu)(?:e|ed|ing)? it\b|let (?:it|that) pass)",
    r"\bconsider (?:it|that) done\b",
    r"^(?:it|that|this) (?:is|has been|will be) done\b",
    r"^(?:all )?done(?: for you)?$",
)
"""Ways to agree to whatever was asked for."""
