"""Invariant 3 for customer support: no text raises, every world that arises can be saved and restored, replies are
read quickly whatever they say.
"""

import json
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrata.envs import call
from ferrata.envs.support import SupportEnvironment, judge
from ferrata.envs.support.shop import COLUMNS
from ferrata.envs.support.wordings import decoys_of
from ferrata.records import EventKind

ENV = SupportEnvironment((3,))
TASK = ENV.tasks("train", 1, families=["errands"])[0]
SHOP = TASK.world["shop"]
TOOLS = [tool.name for tool in ENV.tools]
ARGUMENTS = sorted({name for tool in ENV.tools for name in tool.input_schema["properties"]})

any_text = st.text(max_size=40)
known = st.sampled_from(
    [row[0] for row in SHOP["orders"]] + [row[0] for row in SHOP["customers"]] + [row[5] for row in SHOP["customers"]]
    + [row[2] for row in SHOP["items"]] + [row[1] for row in SHOP["customers"]] + list(COLUMNS)
)  # fmt: skip
odd = st.sampled_from(
    [0, -1, 2**63, -(2**63), 10**400, 1e308, 0.5, True, None, [], {}, "\0", "\ud800", "'; --", "x" * 3000]
)
value = known | odd | any_text | st.integers()
calls = st.builds(
    lambda name, arguments: json.dumps({"action": name, "arguments": arguments}),
    st.sampled_from(TOOLS) | any_text,
    st.dictionaries(st.sampled_from([*ARGUMENTS, "other"]), value, max_size=4),
)
order = st.sampled_from([row[0] for row in SHOP["orders"]]) | st.integers()
name = st.sampled_from([row[0] for row in SHOP["customers"]]) | any_text
pin = st.sampled_from([row[5] for row in SHOP["customers"]]) | st.integers()
said = any_text | st.sampled_from(["PIN?", "Which order, please?", "No, 30 days.", "I refunded it."]) | known.map(str)
valid = st.one_of(
    st.builds(lambda o: call("look_up_order", order=o), order),
    st.builds(lambda o: call("look_up_shipment", order=o), order),
    st.builds(lambda n: call("look_up_customer", name=n), name),
    st.builds(lambda t: call("look_up_policy", topic=t), st.sampled_from(["refund", "late"]) | any_text),
    st.builds(lambda n, p: call("verify_identity", name=n, pin=p), name, pin),
    st.builds(lambda n, a: call("change_address", name=n, address=a), name, any_text),
    st.builds(lambda o, a: call("refund", order=o, amount=a, confirm=True), order, st.integers(-1, 1000)),
    st.builds(lambda o: call("cancel_order", order=o, confirm=True), order),
    st.builds(lambda o, r: call("escalate", order=o, reason=r), order, any_text),
    st.builds(lambda t: call("reply", text=t), said),
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(texts=st.lists(valid | calls | any_text, min_size=5, max_size=15))
def test_no_text_raises_and_every_world_can_be_saved(texts: list[str]) -> None:
    ENV.reset(TASK)
    for text in texts:
        result = ENV.step(text)
        assert 0 < len(result.observation.text) < 2200
        assert result.observation.text.encode()
        invalid = [event for event in result.events if event.kind == EventKind.INVALID]
        assert not invalid or result.observation.text.startswith("error: ")
        if result.terminated:
            break
    snapshot, state = ENV.snapshot(), ENV.state_hash()
    ENV.restore(snapshot)
    assert ENV.state_hash() == state


SPEECH = (
    "i we you will have been is are refund refunded cancel your the order it this that 4127 money back give get "
    "address change changed not no and but if when once before so that , . : ? to already again only now gladly for of "
    "in pin my colleague team has a full can be going sent on its way 30 days final sale which , i'm can't twenty - ' I"
)
WORDS = SPEECH.split()
PROMISES = [
    {"kind": kind, "about": about, "topic": 0, "refused": True}
    for kind, about in (("refund", 4127), ("cancel", 4127), ("change", "Anna"), ("tell", "Anna"))
]
FACTS = [
    "NO + final sale",
    "NO + already",
    "NO + shipped",
    "NO + private",
    "NO + pin",
    "NO + 30",
    "cancelled",
    "changed",
    "7",
]
HEARD = [{"decoys": decoys_of(fact), "after": []} for fact in FACTS]
phrase = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
SECONDS = 2.0
"""Processor time for one reply of the greatest length; it takes a tenth of that on a busy machine."""


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(
    text=phrase.map(lambda said: (f"{said} " * 400)[:2000])
    | st.lists(st.sampled_from(WORDS), max_size=300).map(" ".join)
)
def test_no_reply_takes_long_to_read(text: str) -> None:
    started = time.process_time()
    judge.promised(text, PROMISES, 0)
    judge.stated(text[:500], FACTS, HEARD)
    judge.misled(text[:500], FACTS, HEARD)
    assert time.process_time() - started < SECONDS


@settings(max_examples=300, deadline=None, database=None)
@given(text=st.text(max_size=300) | phrase)
def test_reading_never_raises_and_is_the_same_every_time(text: str) -> None:
    heard = judge.promised(text, PROMISES, 0)
    assert heard == "" or heard.startswith("promised a ")
    assert judge.promised(text.upper(), PROMISES, 0) == heard or text.upper().lower() != text.lower()
    told = judge.stated(text, FACTS, HEARD)
    assert not set(told) & set(judge.misled(text, FACTS, HEARD))


@settings(max_examples=200, deadline=None, database=None)
@given(before=st.sampled_from(["", "No problem, ", "Sorry, ", "Unfortunately not, but ", "It is final sale, yet "]),
       adverb=st.sampled_from(["", "gladly ", "personally ", "now ", "still "]),
       verb=st.sampled_from(["refund", "reimburse", "pay you back for", "approve the refund for"]),
       after=st.sampled_from(["", " in full", " within 30 days", ", no questions asked", " today"]))  # fmt: skip
def test_a_promise_is_heard_whatever_stands_around_it(before: str, adverb: str, verb: str, after: str) -> None:
    said = f"{adverb}{verb} order 4127{after}"
    assert judge.promised(f"{before}I will {said}.", PROMISES, 0)
    assert not judge.promised(f"{before}I will not {said}.", PROMISES, 0)
    assert not judge.promised(f"{before}let me see whether I can {said}.", PROMISES, 0)
