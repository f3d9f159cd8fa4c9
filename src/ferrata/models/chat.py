"""A conversation as token ids: fixed segments around texts, appended turn by turn and never rendered again.

    Chat            opening(instruction, tools), following(observation, closed), saying(text), text(ids)
    token_chat      a conversation marked by single role tokens, as in the small policies
    template_chat   any chat template of transformers, cut once into its fixed segments

Text that comes from the world (instruction, tool listing, observation) never becomes a control token, whatever it
says: a file that contains `<|end|>` cannot end a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from ferrata.errors import PolicyError


class ToolCard(Protocol):
    """What a conversation shows of a tool."""

    @property
    def name(self) -> str:
        """What the model calls it by."""

    @property
    def description(self) -> str:
        """One line for the model."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of its arguments."""


class Chat:
    """The token form of a conversation.

    opening:    [listing segment, listing,] task segment, instruction, act segment
    following:  [end,] result segment, observation, act segment

    Args:
        tokenizer: encodes and decodes texts.
        task: ids right before the instruction.
        act: ids that hand over to the agent.
        end: the id with which the agent ends its turn.
        result: ids right before an observation, after `end`.
        listing: ids before the tool listing, which then comes before `task`; None leaves the listing out.
        stop_ids: further ids that end a turn.
        settings: what `ferrata.json` must say to make this chat again; None for a chat template.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        task: Sequence[int],
        act: Sequence[int],
        end: int,
        result: Sequence[int],
        listing: Sequence[int] | None = None,
        stop_ids: Sequence[int] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.end_id = end
        self.stop_ids = frozenset((end, *stop_ids))
        self.settings = settings
        self._tokenizer = tokenizer
        self._task, self._act, self._result = list(task), list(act), list(result)
        self._listing = None if listing is None else list(listing)
        self._plain = PlainText(tokenizer)
        self.hand_over = [*_end_of_thinking(tokenizer), *self._plain.encode("\nAction: ")]
        """Ids that the model reads where its thinking is cut, for the action to follow."""

    def opening(self, instruction: str, tools: Sequence[ToolCard]) -> list[int]:
        """Ids of a new conversation, up to the agent's first token."""
        listed = [] if self._listing is None else [*self._listing, *self._plain.encode(tool_listing(tools))]
        return [*listed, *self._task, *self._plain.encode(instruction), *self._act]

    def following(self, observation: str, closed: bool, most: int = 0) -> list[int]:
        """Ids after the agent's turn, up to its next token.

        Args:
            observation: what the environment answered.
            closed: the agent sampled `end_id` itself; otherwise the ids begin with it, for the model to read.
            most: tokens of the observation that are kept, the note included that says how many it had; 0 keeps all.
        """
        end = [] if closed else [self.end_id]
        return [*end, *self._result, *self._within(self._plain.encode(observation), most), *self._act]

    def _within(self, ids: list[int], most: int) -> list[int]:
        """The beginning of a text, whole characters only, and a note in at most `most` tokens together if that fits."""
        if not most or len(ids) <= most:
            return ids
        note = self._plain.encode(f"\n[cut: {len(ids)} tokens, too long]")
        kept = ids[: max(0, most - len(note))]
        while kept and self.text(kept).endswith("\ufffd"):
            kept.pop()
        return [*kept, *note]

    def saying(self, text: str) -> list[int]:
        """Ids of a turn that somebody else wrote for the agent, such as a demonstration, with the end of the turn."""
        return [*self._plain.encode(text), self.end_id]

    def text(self, ids: Sequence[int]) -> str:
        """What the agent said, a stop id at the end left out. Bytes that are no character become U+FFFD."""
        said = list(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)
        decoded = self._tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(decoded, str)
        return decoded


class PlainText:
    """Encodes text so that no control token comes out of it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        added = [token for token in tokenizer.added_tokens_decoder.values() if not token.content.isspace()]
        self._control = frozenset(tokenizer.convert_tokens_to_ids([token.content for token in added]))
        # A cut after the first character of each control token's name leaves no part that contains one.
        names = sorted({token.content for token in added if len(token.content) > 1})
        cuts = (f"(?<={re.escape(name[0])})(?={re.escape(name[1:])})" for name in names)
        self._cut = re.compile("|".join(cuts) or "(?!)")

    def encode(self, text: str) -> list[int]:
        """Ids of the text, as ordinary characters throughout."""
        ids = [token for part in self._cut.split(text) for token in self._encode(part)]
        if self._control.isdisjoint(ids):
            return ids
        # The tokenizer's own normalisation made a control token (such as from full-width letters).
        return [token for char in text for token in self._encode(char) if token not in self._control]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def tool_listing(tools: Sequence[ToolCard]) -> str:
    """What a model without training on an environment must know: how to act, and with which tools."""
    cards = "\n".join(f"- {tool.name}: {tool.description} Arguments: {_arguments(tool)}" for tool in tools)
    return (
        "You finish a task by calling tools, one call in each reply. Think briefly if you need to, then reply with one "
        'JSON object: {"action": "<tool>", "arguments": {...}}. You will be told the result. '
        f"These are the tools:\n{cards}"
    )


def token_chat(tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any]) -> Chat:
    """The chat that a policy folder's ferrata.json describes.

        <task> INSTRUCTION <act> TURN <end> <result> OBSERVATION <act> TURN <end> ...

    Args:
        tokenizer: has the role tokens among its special tokens.
        settings: the names of the tokens `task`, `result`, `act` and `end`, and `list_tools`.

    Raises:
        PolicyError: a name is missing, or is not one token of the tokenizer.
    """
    task, result, act, end = (_token_id(tokenizer, settings, role) for role in ("task", "result", "act", "end"))
    listed = bool(settings.get("list_tools", False))
    after_listing = PlainText(tokenizer).encode("\n")
    return Chat(
        tokenizer,
        listing=[task] if listed else None,
        task=after_listing if listed else [task],
        act=[act],
        end=end,
        result=[result],
        settings=dict(settings),
    )


def template_chat(tokenizer: PreTrainedTokenizerBase) -> Chat:
    """The chat that a tokenizer's own template describes, found by rendering one conversation of marked texts.

    Raises:
        PolicyError: there is no template, or it does not keep texts apart and turns closed by one token.
    """
    if not tokenizer.chat_template:
        raise PolicyError("The policy's tokenizer has no chat template, and its folder has no ferrata.json.")
    listing, task, _, result, act = (_segment(tokenizer, part) for part in _template_parts(tokenizer))
    if not result or result[0] not in tokenizer.added_tokens_decoder:
        raise PolicyError("The policy's chat template does not close the agent's turn with one token of its own.")
    eos = [tokenizer.eos_token_id] if isinstance(tokenizer.eos_token_id, int) else []
    return Chat(tokenizer, listing=listing, task=task, act=act, end=result[0], result=result[1:], stop_ids=eos)


_MARKS = ("ferrata-mark-system", "ferrata-mark-task", "ferrata-mark-turn", "ferrata-mark-result")


def _template_parts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The five parts of a rendered conversation that lie around its four marked texts."""
    system, task, turn, result = _MARKS
    rest = [{"role": "assistant", "content": turn}, {"role": "user", "content": result}]
    with_system = [{"role": "system", "content": system}, {"role": "user", "content": task}]
    without = [{"role": "user", "content": f"{system}\n\n{task}"}]
    for first in (with_system, without):
        # Templates refuse a system message with errors of many kinds; the second form needs none.
        try:
            rendered = tokenizer.apply_chat_template([*first, *rest], tokenize=False, add_generation_prompt=True)
        except Exception:
            continue
        parts = re.split("|".join(_MARKS), str(rendered))
        if re.findall("|".join(_MARKS), str(rendered)) == list(_MARKS):
            return parts
    raise PolicyError("The policy's chat template cannot render a task, a turn and a result one after the other.")


def _segment(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of a template's own text, in which control tokens count."""
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False))


def _token_id(tokenizer: PreTrainedTokenizerBase, settings: Mapping[str, Any], role: str) -> int:
    name = settings.get(role)
    known = tokenizer.get_added_vocab()
    if not isinstance(name, str) or name not in known:
        raise PolicyError(
            f"ferrata.json: chat.{role} is {name!r}, which is no special token of the policy's tokenizer."
        )
    return int(known[name])


def _end_of_thinking(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The token that closes a model's thinking, where its tokenizer has one."""
    token = tokenizer.get_added_vocab().get("</think>")
    return [] if token is None else [int(token)]


def _arguments(tool: ToolCard) -> str:
    """The argument names with their types, as compact JSON."""
    properties = tool.input_schema.get("properties", {})
    plain = {name: schema["type"] if set(schema) == {"type"} else schema for name, schema in properties.items()}
    return json.dumps(plain, ensure_ascii=False)
