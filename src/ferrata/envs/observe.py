"""Short and private observations: cut long text, summarise long results, mask personal data."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_CHARACTERS = 2000
MAX_ROWS = 5

_MARGIN = 400
"""Characters read beyond the cut, so that no number or address is masked by halves."""
_MAIL = re.compile(r"\b[\w.+-]{1,64}@([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})")
_CARD = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")
_PHONE = re.compile(
    r"""(?<![\w.])(?:
      \+?\d{1,3}(?:[ -]\(?\d{2,5}\)?){2,4}                 # 49 30 123456, 1-555-123-4567
    | \+\d[\d ()./-]{5,20}\d                               # +49 (0)30/1234567, +15551234567
    | \(\d{2,5}\)[ ./-]?\d{2,5}(?:[ ./-]?\d{2,5}){1,3}     # (555) 123-4567
    | \d{3}[.]\d{3}[.]\d{4}                                # 555.123.4567
    | 0\d{1,4}[ /-]\d{5,9}                                 # 030/1234567
    | 0\d(?:[ .-]\d{2}){4}                                 # 06 12 34 56 78
    )(?![\w]|\.\d)""",
    re.VERBOSE,
)
_IDENTITY = re.compile(r"\b\d{3}-\d{2}-\d{4}\b")


def observation_text(text: str, own_domains: Sequence[str] = (), shown: Sequence[str] = ()) -> str:
    """`text` with personal data masked and everything after 2,000 characters replaced by a note.

    Addresses in `own_domains` stay readable: colleagues are not strangers. So do those in `shown`, given in small
    letters. Half a character (a lone surrogate, which JSON can express and an error message may quote) becomes a
    question mark: no tokenizer can read it.
    """
    if len(text) > MAX_CHARACTERS + _MARGIN:
        kept = mask(text[: MAX_CHARACTERS + _MARGIN], own_domains, shown)[: -_MARGIN // 2][:MAX_CHARACTERS]
        text = _with_note(kept, MAX_CHARACTERS, len(text))
    else:
        text = shorten(mask(text, own_domains, shown))
    return text.encode("utf-8", "replace").decode()


def shorten(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Cut `text` to `limit` characters and say what was left out."""
    if len(text) <= limit:
        return text
    return _with_note(text[:limit], limit, len(text))


def _with_note(kept: str, limit: int, length: int) -> str:
    return f"{kept}\n... {length - limit} of {length} characters left out"


def mask(text: str, own_domains: Sequence[str] = (), shown: Sequence[str] = ()) -> str:
    """Replace mail addresses, identity, card and phone numbers by [mail], [id], [card], [phone]."""
    if "@" in text:
        text = _MAIL.sub(
            lambda found: found[0] if found[1] in own_domains or found[0].lower() in shown else "[mail]", text
        )
    if sum(map(str.isdigit, text)) < 7:
        return text
    text = _IDENTITY.sub("[id]", text)
    text = _CARD.sub("[card]", text)
    return _PHONE.sub("[phone]", text)


def rows_text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A query result: one row as `column: value` lines, several as one line each, many as the first few."""
    if not rows:
        return "no rows"
    if len(rows) == 1:
        return "\n".join(f"{column}: {value}" for column, value in zip(columns, rows[0], strict=True))
    lines = [" | ".join(f"{c}: {value}" for c, value in zip(columns, row, strict=True)) for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        lines.append(f"... {len(rows)} rows, the first {MAX_ROWS} shown")
    return "\n".join(lines)
