"""Thirty updates of every algorithm, on episodes that never change, give the numbers on file.

Whatever changes a formula, an order of summation aside, changes these numbers. Where that is meant, write them anew and
look at the difference: `python tests/golden/test_thirty_updates.py`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare
from ferrata.recipe import RlSection
from ferrata.records import Group, StopReason, Task, Trajectory, Turn

FILE = Path(__file__).with_name("thirty_updates.json")
UPDATES, VOCABULARY = 30, 61
CLOSE = 1e-4
"""Relative distance that is still the same number. Norms and logits are in single precision, and machines add up in
different orders: with other kernels and threads these numbers differ by 1e-6. Every setting here makes more of a
difference than that."""
COMMON: dict[str, Any] = {"minibatches": 2, "kl": 0.02, "entropy": 0.003, "learning_rate": 0.0003}
SETTINGS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "dr-grpo": {"normalise": False, "aggregation": "constant", "kl": 0.0},
    "dapo": {"clip_high": 0.28, "kl": 0.0, "epochs": 2},
    "gspo": {"ratio": "sequence", "aggregation": "sequence", "clip_low": 0.003, "clip_high": 0.004, "epochs": 2},
    "rloo": {"algorithm": "rloo", "kl_in": "reward", "kl_estimator": "k1"},
    "reinforce++": {"algorithm": "reinforce++", "kl_in": "reward", "kl_estimator": "k1"},
    "gigpo": {"algorithm": "gigpo", "channels": {"apart": True}},
    "ppo": {"algorithm": "ppo", "channels": {"apart": True}, "epochs": 2},
    "muon": {"optimizer": "muon", "entropy_target": 2.0, "weight_decay": 0.01, "learning_rate_decay": 0.5},
}


def model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


def episode(task: Task, opening: list[int], stream: random.Random) -> Trajectory:
    """One to four turns; rewards along the way and at the end are drawn, so groups have spread."""
    turns, ids, mask, logprobs = list[Turn](), [*opening], [False] * len(opening), [0.0] * len(opening)
    for _ in range(stream.randint(1, 4)):
        said = [stream.randrange(4, VOCABULARY) for _ in range(stream.randint(1, 7))]
        seen = [stream.randrange(4, VOCABULARY) for _ in range(stream.randint(0, 5))]
        chance = [-4.1 + 0.1 * stream.random() for _ in said]
        components = {"process": round(stream.random(), 3), "efficiency": -0.01}
        turns.append(Turn("", "", said, chance, None, (), components, f"state {stream.randrange(4)}"))
        ids, mask = [*ids, *said, *seen], [*mask, *[True] * len(said), *[False] * len(seen)]
        logprobs = [*logprobs, *chance, *[0.0] * len(seen)]
    success = stream.random() < 0.5
    turns[-1].components["outcome"] = 5.0 if success else -1.0
    stop = StopReason.COMPLETED if success else StopReason.SUBMITTED
    return Trajectory(task, turns, ids, mask, logprobs, stop, success, sum(turn.reward for turn in turns))


def groups(update: int) -> list[Group]:
    """Three groups, of 2, 4 and 5 members."""
    stream, made = random.Random(f"golden {update}"), list[Group]()
    for number, members in enumerate((2, 4, 5)):
        task = Task("test", "family", 1, "train", f"Do {update}.{number}.", {}, (), 9)
        opening = [stream.randrange(4, VOCABULARY) for _ in range(6)]
        made.append(Group(task, [episode(task, opening, stream) for _ in range(members)]))
    return made


def numbers(name: str) -> dict[str, list[float]]:
    """Every metric of every update, and in the end a number that all weights enter."""
    section = RlSection(**{**COMMON, "updates": UPDATES, **SETTINGS[name]})
    reference = model(1) if section.kl else None
    learner, found = Learner(model(0), section, reference), dict[str, list[float]]()
    for update in range(UPDATES):
        examples, counts = prepare(groups(update), section, learner.score if learner.scores else None)
        for metric, value in {**counts, **learner.update(examples, random.Random(update))}.items():
            found.setdefault(metric, []).append(float(value))
    total = sum(float((weight.detach() ** 2).sum()) for weight in learner.model.parameters())
    return {**found, "squared weights": [total]}


@pytest.mark.parametrize("name", SETTINGS)
def test_thirty_updates_give_the_numbers_on_file(name: str) -> None:
    golden, found = json.loads(FILE.read_text(encoding="utf-8"))[name], numbers(name)
    assert found.keys() == golden.keys()
    for metric, values in golden.items():
        assert found[metric] == pytest.approx(values, rel=CLOSE, abs=2e-6), metric


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: numbers(name) for name in SETTINGS}, indent=0) + "\n", encoding="utf-8")
