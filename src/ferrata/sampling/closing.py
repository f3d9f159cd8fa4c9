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

from ferrata.envs.actions import goes_on
from ferrata.errors import PolicyError

KEY = "action"
"""The key that makes an object an action."""


class ObjectScanner:
    """Reads text piece by piece and notices the end of the JSON object that names an action.

    What stands before it may hold braces and quotes of any kind, and objects without the key. An object inside another
    one is part of it: an argument that is called like the key ends nothing.
    """

    def __init__(self, key: str = KEY) -> None:
        self._key = key
        self._text = ""
        self._starts: list[int] = []
        """Where objects may begin that are not closed yet, ascending."""

    def read(self, piece: str) -> bool:
        """True when an object with the key is closed within this piece; what stands behind it is not read."""
        return any(self._closes(character) for character in piece)

    def _closes(self, character: str) -> bool:
        if character == "{":
            self._starts.append(len(self._text))
        self._text += character
        return character == "}" and self._ended()

    def _ended(self) -> bool:
        """True when the outermost object that this brace closes is JSON and has the key."""
        while self._starts:
            try:
                value = json.loads(self._text[self._starts[0] :])
            except (ValueError, RecursionError) as error:
                if goes_on(error, len(self._text) - self._starts[0]):
                    return False
                del self._starts[0]
            else:
                self._starts.clear()
                return self._key in value
        return False


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
