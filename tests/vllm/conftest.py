"""The base policy under vLLM: one engine for the tests of a file, its weights as shipped before every test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

from ferrata import make_env
from ferrata.models.policy import Policy, load_policy
from ferrata.sampling.protocol import Completion, Sampler
from ferrata.sampling.vllm.sampler import VllmSampler

SLOTS, LENGTH = 6, 400


@pytest.fixture(scope="session")
def base() -> Policy:
    return load_policy("base")


@pytest.fixture(scope="module")
def engine_of_base(base: Policy) -> Iterator[VllmSampler]:
    with VllmSampler(base, SLOTS, LENGTH) as sampler:
        yield sampler


@pytest.fixture
def vllm(base: Policy, engine_of_base: VllmSampler) -> Iterator[VllmSampler]:
    """The engine with nothing open; a test that changes weights finds them put back."""
    before = {name: tensor.clone() for name, tensor in base.model.state_dict().items()}
    yield engine_of_base
    for key in list(engine_of_base._episodes):
        engine_of_base.close(key)
    changed = any((tensor != before[name]).any() for name, tensor in base.model.state_dict().items())
    base.model.load_state_dict(before)
    if changed or not engine_of_base._sound:
        engine_of_base.publish(0)


@pytest.fixture(scope="session")
def openings(base: Policy) -> list[list[int]]:
    """The beginnings of six office tasks."""
    env = make_env("office", tiers=(1, 2))
    tasks = env.tasks("train", 6, seed=4)
    env.close()
    return [base.chat.opening(task.instruction, []) for task in tasks]


@pytest.fixture(scope="session")
def finish() -> Callable[[Sampler, int], dict[int, Completion]]:
    """Take steps until every turn is over."""

    def until_over(sampler: Sampler, turns: int) -> dict[int, Completion]:
        done: dict[int, Completion] = {}
        while len(done) < turns:
            done.update({completion.key: completion for completion in sampler.advance()})
        return done

    return until_over


@pytest.fixture(scope="session")
def play(base: Policy, openings: list[list[int]], finish: Callable[[Sampler, int], dict[int, Completion]]):
    """Episodes of three turns, each with its own texts and budgets; their histories as (id, log-probability)."""

    def episodes(sampler: Sampler, keys: list[int], temperature: Callable[[int], float]):
        streams = {key: random.Random(key) for key in keys}
        histories: dict[int, list[tuple[int, float | None]]] = {key: [] for key in keys}
        for key in keys:
            sampler.open(key, 100 + key, temperature(key))
        for turn in range(3):
            for key in keys:
                ids = openings[key]
                if turn:
                    closed = histories[key][-1][0] == base.chat.end_id
                    ids = base.chat.following(f"found {streams[key].randrange(10**6)}", closed)
                histories[key].extend((token, None) for token in ids)
                sampler.submit(key, ids, streams[key].randint(1, 24))
            for key, done in finish(sampler, len(keys)).items():
                histories[key].extend(zip(done.token_ids, done.logprobs, strict=True))
        for key in keys:
            sampler.close(key)
        return histories

    return episodes


@pytest.fixture(scope="session")
def turn(finish):
    """One sampled turn of an episode of its own: ids and log-probabilities."""

    def sampled(sampler: Sampler, ids: list[int]) -> tuple[list[int], list[float]]:
        sampler.open(0, 5, 1.0)
        sampler.submit(0, ids, 16)
        done = finish(sampler, 1)[0]
        sampler.close(0)
        return done.token_ids, done.logprobs

    return sampled


@pytest.fixture(scope="session")
def shake():
    """Change every weight of a model a little."""

    def add_noise(model: torch.nn.Module) -> None:
        torch.manual_seed(3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)

    return add_noise


@pytest.fixture(scope="session")
def check_logprobs():
    """Compare a turn at temperature 1 with a plain forward pass."""

    def compare(model: torch.nn.Module, read: list[int], tokens: list[int], logprobs: list[float]) -> None:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([[*read, *tokens]])).logits[0]
        expected = logits[len(read) - 1 : -1].log_softmax(-1)
        for row, token, logprob in zip(expected, tokens, logprobs, strict=True):
            assert logprob == pytest.approx(row[token].item(), abs=1e-4)

    return compare
