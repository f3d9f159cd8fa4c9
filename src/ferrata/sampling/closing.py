"""Where a turn can be stopped because its action is complete: behind the JSON object that names it.

    TextOf         the text of one turn, piece by piece, as its tokens are sampled
    ObjectScanner  text pieces -> True once a JSON object with the wanted key is closed
    Closings       one of each for every slot of a sampler

Nothing is encoded again: the ids stay those that were sampled, and only where the turn ends is decided here.
"""

from __future__ import annotations

import json

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from ferrata.errors import PolicyError

KEY = "action"
"""The key that makes an object an action."""


class ObjectScanner:
    """Reads text piece by piece and notices the end of a JSON object.

    Braces inside strings do not count, nor do objects that are not JSON or lack the key: thinking may contain them.
    """

    def __init__(self, key: str = KEY) -> None:
        self._key = key
        self._object: list[str] = []
        self._depth = 0
        self._quoted = self._escaped = False

    def read(self, piece: str) -> bool:
        """True when an object with the key is closed within this piece; what stands behind it is not read."""
        return any(self._closes(character) for character in piece)

    def _closes(self, character: str) -> bool:
        if not self._depth and character != "{":
            return False
        self._object.append(character)
        if self._quoted:
            self._read_quoted(character)
        elif character == '"':
            self._quoted = True
        elif character in "{}":
            self._depth += 1 if character == "{" else -1
        return not self._depth and self._named()

    def _read_quoted(self, character: str) -> None:
        """One character of a string."""
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._quoted = False

    def _named(self) -> bool:
        """True when the object that was closed just now is JSON and has the key."""
        text, self._object = "".join(self._object), []
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return self._key in value


class TextOf:
    """The text of one turn as it grows. A character that is not complete yet waits for its last byte."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=False)

    def add(self, token: int) -> str:
        """What this token adds to the text; empty when that is not known yet, or nothing."""
        try:
            return self._stream.step(self._tokenizer, token) or ""
        except Exception:
            # Some sequences of incomplete characters have no text that grows; what follows them has.
            self._stream = DecodeStream(skip_special_tokens=False)
            return self._stream.step(self._tokenizer, token) or ""


class Closings:
    """Notices, for the turn under way in every slot, that its action is complete.

    Raises:
        PolicyError: the policy's tokenizer cannot decode token by token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise PolicyError("rollout.stop = 'json' needs a policy whose tokenizer is of the fast kind.")
        self._tokenizer = backend
        self._turns: dict[int, tuple[TextOf, ObjectScanner]] = {}

    def begin(self, key: int) -> None:
        """The episode begins a turn."""
        self._turns[key] = (TextOf(self._tokenizer), ObjectScanner())

    def closes(self, key: int, token: int) -> bool:
        """True when the action of the episode's turn is complete with this token."""
        text, scanner = self._turns[key]
        return scanner.read(text.add(token))

    def forget(self, key: int) -> None:
        """The episode is closed."""
        self._turns.pop(key, None)
