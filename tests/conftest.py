"""A policy with random weights, a small world, and a sampler that says what it is told."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ferrata.envs import Effect, Environment, Task, call, tool
from ferrata.errors import JudgeFault
from ferrata.models.chat import token_chat
from ferrata.models.policy import Policy
from ferrata.models.tokenizer import CHAT, build_tokenizer
from ferrata.sampling.protocol import ActionsOnly, Completion, SamplerClock

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Errand(Environment):
    """Say the word, then submit it. Some words break things."""

    name = "errand"
    families: ClassVar = {1: ("say",)}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        word = f"{split}-{stream.randrange(10**6)}"
        return Task(self.name, family, tier, split, f"Submit {word}.", {"word": word}, ("said",), 4)

    def begin(self, task: Task) -> None:
        if task.world.get("broken"):
            raise OSError("the workspace is gone")

    @tool("Say a word.")
    def say(self, word: str) -> str:
        if word == "crash":
            raise RuntimeError("the line is dead")
        if word == "judge":
            raise JudgeFault("The judge does not answer.")
        if word == "curse":
            self.forbid("cursing")
        self.reach("said")
        return f"said {word}"

    @tool("Submit the word.", effect=Effect.WRITE)
    def submit(self, word: str) -> str:
        self.finish(word == self.task.world["word"])
        return "done"


class Script:
    """A sampler that answers turn after turn what `say` decides; fulfils `Sampler`."""

    def __init__(self, say: Callable[[int, int], Sequence[int]], slots: int = 4, max_length: int = 4096) -> None:
        self.say, self.slots, self.max_length, self.version = say, slots, max_length, 3
        self.clock = SamplerClock()
        self.read: dict[int, list[list[int]]] = {}
        self.sampled: dict[int, list[list[int]]] = {}
        self.opened: list[tuple[int, float]] = []
        self.live: dict[int, int] = {}
        self._asked: list[tuple[int, int]] = []

    @property
    def free(self) -> int:
        return self.slots - len(self.live)

    def open(self, key: int, seed: int, temperature: float, only: ActionsOnly | None = None) -> None:
        assert self.free > 0
        self.opened.append((seed, temperature))
        self.live[key] = 0
        self.read[key], self.sampled[key] = [], []

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        self.read[key].append(list(ids))
        self._asked.append((key, max_new_tokens))

    def advance(self) -> list[Completion]:
        # Answers out of order, one at a time, as a busy sampler does.
        key, budget = self._asked.pop()
        ids = list(self.say(key, self.live[key]))
        self.live[key] += 1
        stopped = len(ids) <= budget
        ids = ids[:budget]
        self.sampled[key].append(ids)
        return [Completion(key, ids, [-0.5 - 0.01 * place for place in range(len(ids))], stopped)]

    def close(self, key: int) -> None:
        del self.live[key]

    def publish(self, version: int) -> None:
        assert not self.live
        self.version = version

    def shutdown(self) -> None:
        assert not self.live


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(['{"action": "', '", "arguments": {"'], ["ka", "lo", "mi"], ["error", "said", "Submit"])


@pytest.fixture(scope="session")
def chatml_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a chat template, and control tokens of its own."""
    made = build_tokenizer(["word"], ["ka"])
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "eos_token": "<|im_end|>"})
    made.chat_template = TEMPLATE
    return made


def random_policy(tokenizer: PreTrainedTokenizerFast, key_value_heads: int = 2) -> Policy:
    """Weights so large that the next token is neither certain nor uniform."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(tokenizer) + 5,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=key_value_heads,
        max_position_embeddings=160,
        tie_word_embeddings=True,
        initializer_range=0.3,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return Policy("tiny", LlamaForCausalLM(config).eval(), tokenizer, token_chat(tokenizer, CHAT))


@pytest.fixture(scope="session")
def tiny_policy(tokenizer: PreTrainedTokenizerFast) -> Policy:
    return random_policy(tokenizer)


@pytest.fixture(scope="session")
def policy_with_all_heads(tokenizer: PreTrainedTokenizerFast) -> Policy:
    return random_policy(tokenizer, key_value_heads=4)


@pytest.fixture(scope="session")
def errand() -> type[Errand]:
    return Errand


@pytest.fixture
def script() -> type[Script]:
    return Script


@pytest.fixture
def saying(tokenizer: PreTrainedTokenizerFast) -> Callable[..., list[int]]:
    """Ids of a turn that calls a tool, closed by the end token."""

    def ids(action: str, /, closed: bool = True, **arguments: object) -> list[int]:
        text = call(action, **arguments)
        assert json.loads(text)["action"] == action
        end = [tokenizer.eos_token_id] if closed else []
        return [*tokenizer.encode(text, add_special_tokens=False), *end]

    return ids


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tests run beside one another: two threads each would fight for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
