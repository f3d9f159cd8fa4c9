"""Tokens a second of vLLM on multi-turn episodes, for a process that has its own environment.

    .venv-vllm/bin/python benchmarks/vllm_sampler.py < episodes.json > measured.json

Reads what to play, prints what was sampled and how long it took; starting the engine and one warm-up turn are timed
apart. In `episodes.json`, everything but `policy` and `episodes` may be left out:

    {"policy": "path/to/folder", "dtype": "float32", "eager": true, "slots": 32, "max_length": 2048, "temperature": 1.0,
     "stop": false,                                    whether stop ids end a turn before its budget
     "episodes": [{"seed": 7, "turns": [{"ids": [1, 2, 3], "budget": 40}]}]}

An episode's turns come one after the other: the next one's ids are handed over when the turn before is over. In
`measured.json`:

    {"seconds": 10.5, "generated": 1280, "prefilled": 5210, "start_seconds": 31.2, "reading": 2.5, "sampling": 7.9,
     "threads": 2, "tokens": [[[5, 6, 7]]], "logprobs": [[[-0.1, -2.0, -0.3]]]}       by episode, turn and token
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from ferrata.models.policy import load_policy
from ferrata.sampling.protocol import Completion, Sampler
from ferrata.sampling.vllm.sampler import VllmSampler


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Play the job's episodes; see the module's text for both forms."""
    policy = load_policy(job["policy"])
    if not job.get("stop", False):
        policy.chat.stop_ids = frozenset()
    began = time.perf_counter()
    slots, length = job.get("slots", 32), job.get("max_length", 2048)
    dtype: torch.dtype = getattr(torch, job.get("dtype", "float32"))
    with VllmSampler(policy, slots, length, dtype=dtype, eager=job.get("eager", True)) as sampler:
        warm_up(sampler)
        started, prefilled, clock = time.perf_counter(), sampler.prefilled, sampler.clock
        played = play(sampler, job["episodes"], job.get("temperature", 1.0))
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "generated": sum(len(turn.token_ids) for episode in played for turn in episode),
            "prefilled": sampler.prefilled - prefilled,
            "start_seconds": started - began,
            "reading": sampler.clock.prefill - clock.prefill,
            "sampling": sampler.clock.decode - clock.decode,
            "threads": torch.get_num_threads(),
            "tokens": [[turn.token_ids for turn in episode] for episode in played],
            "logprobs": [[turn.logprobs for turn in episode] for episode in played],
        }


def warm_up(sampler: Sampler) -> None:
    """One short turn: vLLM compiles a kernel at the first one."""
    sampler.open(0, 0, 1.0)
    sampler.submit(0, [5, 6, 7], 2)
    while not sampler.advance():
        pass
    sampler.close(0)


def play(sampler: Sampler, episodes: list[dict[str, Any]], temperature: float) -> list[list[Completion]]:
    """All turns of all episodes; an episode begins as soon as a slot is free."""
    played: list[list[Completion]] = [[] for _ in episodes]
    waiting = list(range(len(episodes)))

    def ask(key: int) -> None:
        turn = episodes[key]["turns"][len(played[key])]
        sampler.submit(key, turn["ids"], turn["budget"])

    while waiting or any(len(turns) < len(episode["turns"]) for turns, episode in zip(played, episodes, strict=True)):
        while waiting and sampler.free:
            key = waiting.pop(0)
            sampler.open(key, episodes[key]["seed"], temperature)
            ask(key)
        for done in sampler.advance():
            played[done.key].append(done)
            if len(played[done.key]) < len(episodes[done.key]["turns"]):
                ask(done.key)
            else:
                sampler.close(done.key)
    return played


if __name__ == "__main__":
    json.dump(measure(json.load(sys.stdin)), sys.stdout)
