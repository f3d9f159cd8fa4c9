"""Turns that are given up, engines that fail, and what an engine leaves behind in its process."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ferrata.errors import PolicyError, SamplerFault
from ferrata.sampling.vllm import engine
from ferrata.sampling.vllm.engine import start_engine


def test_closing_in_the_middle_of_a_turn_frees_the_slot_and_disturbs_nobody(vllm, openings, finish) -> None:
    vllm.open(0, 0, 0.0)
    vllm.submit(0, openings[0], 30)
    alone = finish(vllm, 1)[0]
    vllm.close(0)
    for key in range(6):
        vllm.open(key, 0, 0.0)
        vllm.submit(key, openings[key % 2], 30)
    for _ in range(4):
        vllm.advance()
    for key in (1, 2, 3, 4, 5):
        vllm.close(key)
    assert vllm.free == 5
    assert vllm._engine.get_num_unfinished_requests() == 1
    assert finish(vllm, 1)[0].token_ids == alone.token_ids
    vllm.open(1, 0, 0.0)  # its key is free again
    vllm.submit(1, openings[1], 3)
    assert len(finish(vllm, 1)[1].token_ids) == 3


def test_episodes_join_and_leave_a_running_batch(vllm, openings) -> None:
    """Continuous batching: the long turn never waits for the short ones that come and go."""
    vllm.open(0, 0, 1.0)
    vllm.submit(0, [300] * 40, 60)
    steps, short = 0, 0
    while True:
        if vllm.free == 5:
            vllm.open(1 + short, short, 1.0)
            vllm.submit(1 + short, openings[1], 5)
        steps += 1
        keys = [done.key for done in vllm.advance()]
        for key in keys:
            vllm.close(key)
        short += sum(key != 0 for key in keys)
        if 0 in keys:
            break
    assert steps <= 60
    assert short >= 2


def test_nothing_to_do_is_no_step(vllm) -> None:
    assert vllm.advance() == []


def test_the_random_streams_and_threads_of_the_process_stay_as_they_are(vllm, openings, finish) -> None:
    def streams() -> tuple[object, ...]:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = streams()
    threads, setter = torch.get_num_threads(), torch.set_num_threads
    vllm.open(0, 0, 1.0)
    vllm.submit(0, openings[0], 4)
    finish(vllm, 1)
    vllm.close(0)
    vllm.publish(1)
    assert streams() == before
    assert (torch.get_num_threads(), torch.set_num_threads) == (threads, setter)
    assert setter.__name__ == "set_num_threads"  # starting the engine had put another in its place


class Broken:
    """An engine in the place of vLLM's whose next step does what a test wants."""

    def __init__(self, step) -> None:
        self.step = step

    def add_request(self, request_id, prompt, params) -> str:
        return request_id

    def abort_request(self, request_ids) -> None:
        pass


def output(reason: str, tokens: list[int], scored: list[int]) -> SimpleNamespace:
    result = SimpleNamespace(
        token_ids=tokens,
        finish_reason=reason,
        logprobs=SimpleNamespace(token_ids=scored, logprobs=[0.0] * len(scored)),
    )
    return SimpleNamespace(
        request_id="0-0", finished=True, outputs=[result], prompt_token_ids=[1], num_cached_tokens=None
    )


def raising():
    raise RuntimeError("the kernel refused")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (raising, "the kernel refused"),
        (lambda: [output("abort", [5], [5])], "abort"),
        (lambda: [output("length", [5, 6], [5, 7])], "gave up"),
        (list, "has not finished"),
    ],
)
def test_an_engine_that_fails_or_stalls_is_a_fault(vllm, monkeypatch, step, said) -> None:
    monkeypatch.setattr(vllm, "_engine", Broken(step))
    monkeypatch.setattr(vllm, "_turn_seconds", -1.0 if said == "has not finished" else 600.0)
    vllm.open(0, 0, 1.0)
    vllm.submit(0, [300], 4)
    with pytest.raises(SamplerFault, match=said):
        vllm.advance()


def test_a_missing_vllm_is_said_in_one_sentence(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(PolicyError, match="not installed"):
        start_engine(tmp_path, slots=1, max_length=8, dtype=torch.float32, cache_bytes=1, eager=True)
