"""Constrained decoding: episodes whose turns can only be well-formed actions of their task's tools.

    Constraints   what each constrained episode of a sampler may say next: bars tokens, and follows what is sampled
    ToolGrammar   the grammar of one set of tools, compiled once
    Vocabulary    a policy's tokens as llguidance knows them

Where the rest of a turn is known to be its last, the action is closed in time: thinking ends while an action still
fits, and a token after which the action could no longer be closed is replaced by the next one of its closing.

Shape legend: R rows (episodes that get a token in this step); V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from ferrata.errors import PolicyError, SamplerFault, TaskError, UsageError
from ferrata.models.chat import PlainText, ToolCard
from ferrata.models.policy import Policy
from ferrata.sampling.action_grammar import grammar_of, longest_rest
from ferrata.sampling.protocol import ActionsOnly

if TYPE_CHECKING:
    from llguidance import LLMatcher

MOST_CLOSING_TOKENS = 512
"""A closing with more tokens is not looked for."""

_SLICES = [r'[^"\\\x00-\x1F\x7F{]{1,10}', r'[^"\\\x00-\x1F\x7F{]{1,30}', r'[^"\\\x00-\x1F\x7F{]+']
"""Texts that strings and thinking admit alike: llguidance looks at the tokens that hold nothing else only once."""
_PROBE = '{"action": "a_b", "arguments": {"text": "Grüße, 42 日本\\n"}}'
_CLOSERS = '}]"0{[,:'
"""What is tried, in this order, to end an action soon; within a string only the quote is."""


class Vocabulary:
    """A policy's tokens as llguidance knows them.

    Raises:
        UsageError: llguidance is not installed.
        PolicyError: the tokenizer does not say which bytes its tokens stand for.
    """

    def __init__(self, policy: Policy) -> None:
        guidance = _guidance()
        backend = getattr(policy.tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise PolicyError("Constrained decoding needs a policy whose tokenizer is of the fast kind.")
        self.size = int(policy.model.config.get_text_config().vocab_size)
        stops = sorted(policy.chat.stop_ids)
        try:
            self.tokens = guidance.LLTokenizer(_described(backend), self.size, stops, _SLICES)
        except ValueError as error:
            raise _unusable(policy, str(error)) from error
        self.plain = PlainText(policy.tokenizer)
        if not self.tokens.decode_bytes(self.plain.encode(_PROBE)).endswith(_PROBE.encode()):
            raise _unusable(policy, "a text does not come back as it was")
        added = policy.tokenizer.get_added_vocab()
        self.thinking_ids = [added[name] for name in ("<think>", "</think>") if name in added]
        """Control tokens that may stand in the thinking."""
        self.hand_over = policy.chat.hand_over
        """Ids after which the action has to begin."""
        self.single = self._single()

    def _single(self) -> dict[str, int]:
        """Character -> the token that is this character alone, of those that close an action."""
        bytes_of = {character.encode(): character for character in _CLOSERS}
        found = ((bytes_of.get(self.tokens.decode_bytes([token])), token) for token in range(self.size))
        return {character: token for character, token in found if character is not None}


class ToolGrammar:
    """The grammar of one set of tools, compiled once.

    Raises:
        TaskError: a tool's schema says something that cannot be held to.
    """

    def __init__(self, vocabulary: Vocabulary, tools: Sequence[ToolCard]) -> None:
        self.vocabulary = vocabulary
        self._thinking = self._compile(tools, vocabulary.thinking_ids)
        self._acting = self._compile(tools, None)
        self.reserve = 2 * max(self._least(tool.name) for tool in tools) + 1
        """Tokens that are kept for the action: twice what the longest of the shortest ones takes, and the end."""
        self.watched = max(self.reserve, *(longest_rest(tool.input_schema) + self.reserve // 2 for tool in tools))
        """Tokens before the end of a turn from which on the action is kept to what can still be closed."""

    def begin(self, acting: bool) -> LLMatcher:
        """The state at the beginning of a turn, or of its action."""
        return (self._acting if acting else self._thinking).deep_copy()

    def admitted(self, matcher: LLMatcher) -> np.ndarray:
        """(V,): True for the tokens that may come next.

        Raises:
            SamplerFault: there is none.
        """
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        admitted = bits[: self.vocabulary.size].astype(bool)
        if matcher.is_error() or not admitted.any():
            why = _first_line(matcher.get_error()) or "no token fits"
            raise SamplerFault(f"Constrained decoding cannot go on: {why}.")
        return admitted

    def closing(self, matcher: LLMatcher) -> list[int] | None:
        """Tokens that complete the action soon, not always the fewest; None where that would take too many."""
        probe, path = matcher.deep_copy(), list[int]()
        while not probe.is_accepting():
            if len(path) > MOST_CLOSING_TOKENS:
                return None
            step = probe.compute_ff_tokens() or [self._closer(self.admitted(probe))]
            if not probe.consume_tokens(step):
                return None
            path += step
        return path

    def _closer(self, admitted: np.ndarray) -> int:
        """The token that leads to the end of the action, as far as one token can tell."""
        single = {character: token for character, token in self.vocabulary.single.items() if admitted[token]}
        in_string = "{" in single and "}" in single
        wanted = '"' if in_string else _CLOSERS
        return next((single[character] for character in wanted if character in single), int(admitted.argmax()))

    def _least(self, tool: str) -> int:
        """Tokens of an action of this tool that says as little as it may."""
        probe = self.begin(acting=True)
        begun = probe.try_consume_tokens(self.vocabulary.plain.encode(f'{{"action": "{tool}", "arguments": '))
        closing = self.closing(probe)
        if closing is None:
            raise TaskError(f"The arguments of tool '{tool}' cannot be constrained: their end is not to be found.")
        return begun + len(closing)

    def _compile(self, tools: Sequence[ToolCard], thinking_ids: Sequence[int] | None) -> LLMatcher:
        matcher: LLMatcher = _guidance().LLMatcher(self.vocabulary.tokens, grammar_of(tools, thinking_ids), log_level=0)
        if matcher.is_error():
            raise _unsuitable(self.vocabulary, tools, matcher.get_error())
        return matcher


@dataclass
class _Turn:
    """The turn under way of a constrained episode."""

    grammar: ToolGrammar
    thinking_tokens: int
    matcher: LLMatcher
    acting: bool = False
    """True once the action has begun."""
    last: bool = True
    """True when what is left of the turn is all that there will be: the action has to be closed in it."""
    closing: list[int] | None = None
    """Tokens that complete the action from here, where they were looked for."""


class Constraints:
    """What each constrained episode of a sampler may say next. True while one is open.

    Args:
        policy: the one that samples. Its tokenizer is looked at when the first constrained episode is opened.
        stop: as `rollout.stop`.
    """

    def __init__(self, policy: Policy, stop: Literal["turn", "json"]) -> None:
        self._policy = policy
        self._ending = int(stop == "turn")
        self._vocabulary: Vocabulary | None = None
        self._grammars: dict[str, ToolGrammar] = {}
        self._turns: dict[int, _Turn] = {}

    def __bool__(self) -> bool:
        return bool(self._turns)

    def open(self, key: int, actions: ActionsOnly) -> None:
        """Constrain an episode. Raises as `Vocabulary` and `ToolGrammar` do."""
        grammar = self._grammar(actions.tools)
        self._turns[key] = _Turn(grammar, actions.thinking_tokens, grammar.begin(acting=False))

    def begin(self, key: int, ids: Sequence[int], budget: int) -> None:
        """The episode is handed new ids to read, or none, and goes on for `budget` tokens."""
        turn = self._turns.get(key)
        if turn is None:
            return
        handed_over = list(ids) == turn.grammar.vocabulary.hand_over
        turn.last = handed_over or not ids or budget != turn.thinking_tokens
        turn.closing = None
        if ids:
            turn.matcher, turn.acting = turn.grammar.begin(handed_over), handed_over

    def bar(self, logits_RV: Tensor, keys: Sequence[int], left: Sequence[int]) -> Tensor:
        """The logits with minus infinity at what is not admitted; rows of other episodes stay as they are.

        Args:
            logits_RV: of the next tokens.
            keys: whose they are.
            left: tokens that each may still say in its turn.

        Raises:
            SamplerFault: an episode has nothing that it may say.
        """
        barred_RV = np.zeros(logits_RV.shape, dtype=bool)
        for row, (key, most) in enumerate(zip(keys, left, strict=True)):
            turn = self._turns.get(key)
            if turn is not None:
                self._hurry(turn, most)
                barred_RV[row] = ~turn.grammar.admitted(turn.matcher)
        return logits_RV.masked_fill(torch.from_numpy(barred_RV).to(logits_RV.device), -torch.inf)

    def follow(self, keys: Sequence[int], tokens_R: np.ndarray, logprobs_R: np.ndarray, left: Sequence[int]) -> None:
        """Take note of what was drawn. What would not let its action be closed is replaced, with log-probability 0."""
        for row, (key, most) in enumerate(zip(keys, left, strict=True)):
            turn = self._turns.get(key)
            if turn is not None and not self._accepts(turn, int(tokens_R[row]), most - 1):
                assert turn.closing, "only a known closing is kept to"
                tokens_R[row], logprobs_R[row] = turn.closing[0], 0.0
                turn.matcher.consume_token(turn.closing.pop(0))

    def forget(self, key: int) -> None:
        """The episode is closed."""
        self._turns.pop(key, None)

    def _hurry(self, turn: _Turn, left: int) -> None:
        """Where the end of the turn is near, end the thinking and find out how the action can be closed."""
        grammar = turn.grammar
        if turn.last and not turn.acting and left <= grammar.reserve:
            turn.matcher, turn.acting = grammar.begin(acting=True), True
        if not turn.last or left > (grammar.watched if turn.acting else grammar.reserve):
            turn.closing = None
        elif turn.closing is None:
            turn.closing = grammar.closing(turn.matcher)

    def _accepts(self, turn: _Turn, token: int, left: int) -> bool:
        """Go on with a token; False, and nothing is done, when afterwards the action cannot be closed any more."""
        grammar, complete = turn.grammar, turn.matcher.is_accepting()
        turn.matcher.consume_token(token)
        turn.acting = turn.acting or b"{" in grammar.vocabulary.tokens.decode_bytes([token])
        if turn.closing is None or complete:
            return True
        closing = turn.closing[1:] if token == turn.closing[0] else grammar.closing(turn.matcher)
        fits = closing is not None and len(closing) + self._ending <= left
        was_late = len(turn.closing) + self._ending > left + 1
        if fits or was_late:
            turn.closing = closing
            return True
        turn.matcher.rollback(1)
        return False

    def _grammar(self, tools: Sequence[ToolCard]) -> ToolGrammar:
        name = json.dumps([(tool.name, tool.input_schema) for tool in tools])
        if name not in self._grammars:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._policy)
            self._grammars[name] = ToolGrammar(self._vocabulary, tools)
        return self._grammars[name]


def _guidance() -> Any:
    """The package llguidance, imported when it is first needed."""
    try:
        import llguidance
    except ImportError as error:
        raise UsageError(
            "Constrained decoding needs the package llguidance: pip install 'ferrata[constrained]', or in the "
            "repository pip install -e '.[constrained]'."
        ) from error
    return llguidance


def _described(backend: Tokenizer) -> str:
    """The tokenizer as JSON, in which every control token counts as special: none of them is text."""
    content = json.loads(backend.to_str())
    content |= {"padding": None, "truncation": None}
    for token in content["added_tokens"]:
        token["special"] = not token["content"].isspace()
    return json.dumps(content)


def _unusable(policy: Policy, why: str) -> PolicyError:
    return PolicyError(
        f"Policy '{policy.name}' cannot be constrained: its tokenizer does not say which bytes each token stands for "
        f"({why})."
    )


def _unsuitable(vocabulary: Vocabulary, tools: Sequence[ToolCard], error: str) -> TaskError:
    """Name the tool at fault, where one alone is."""
    matcher = _guidance().LLMatcher
    faulty = [tool for tool in tools if matcher.validate_grammar(grammar_of([tool], None), vocabulary.tokens)]
    names = ", ".join(f"'{tool.name}'" for tool in faulty or tools)
    return TaskError(f"The arguments of tool {names} cannot be constrained: {_first_line(error)}.")


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip(".")
