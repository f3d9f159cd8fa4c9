"""What scripts and recipes of other people depend on: names of commands, parameters and recipe keys.

A change here breaks them: it belongs in CHANGELOG.md, under Changed or Removed.
"""

from __future__ import annotations

from typing import Any

import typer.main

from ferrata.cli.main import app
from ferrata.recipe_loading import known_keys, shipped_recipes

COMMANDS = {
    "train": ["RECIPE", "KEY=VALUE", "--out", "--resume", "--dry-run"],
    "eval": [
        "RUN_OR_POLICY",
        "--env",
        "--tier",
        "--tasks",
        "--seed",
        "--sampled",
        "--written",
        "--constrained",
        "--json",
    ],
    "replay": ["RUN", "TRAJECTORY"],
    "report": ["RUN"],
    "check-env": ["NAME_OR_CLASS", "--tier", "--tasks", "--fuzz", "--seconds", "--json"],
    "init": ["DIR", "--name"],
    "verify-audit": ["RUN", "--seal"],
    "audit-rewards": ["NAME_OR_CLASS", "--recipe", "--tasks", "--json"],
}
KEYS = {
    "": "name description seed stages",
    "env": "name tiers families tools",
    "env.faults": "timeout missing repeated",
    "policy": "model threads dtype lora_rank lora_alpha lora_targets",
    "rewards": "success failure process efficiency near_repeat repeat format invalid unfinished safety tool_cost "
    "process_limit phases",
    "judge": "kind endpoint model rubric api_key_env timeout retries at_once",
    "rollout": "sampler episodes_at_once max_turns max_tokens_per_turn max_thinking_tokens max_tokens "
    "max_observation_tokens stop temperature max_fault_share max_misfit_share workers step_seconds",
    "sft": "updates demonstrations tiers families batch_size optimizer learning_rate dtype "
    "weight_decay warmup imperfection max_grad_norm",
    "rl": "algorithm view gamma lam step_weight",
    "rl.channels": "apart process outcome process_lam outcome_lam",
    "rl ": "updates tasks_per_update group_size optimizer learning_rate learning_rate_decay dtype weight_decay "
    "epochs minibatches microbatch_tokens clip_low clip_high kl kl_in kl_estimator entropy entropy_target aggregation "
    "ratio importance_limit instructions staleness redraws",
    "rl.value": "learning_rate weight clip warmup",
    " rl": "normalise spread_floor max_grad_norm min_success min_valid",
    "pool": "enabled capacity fresh_rounds per_hash sensible_turns share",
    "ladder": "enabled gate evaluations newest collapse turn_caps cut_share tools schedule",
    "evaluation": "tasks tasks_small every constrained seed",
    "run": "checkpoint_every keep_checkpoints store_groups audit",
}


def test_commands_and_their_parameters_are_these() -> None:
    group: Any = typer.main.get_command(app)
    found = {
        name: [parameter.metavar or parameter.opts[0] for parameter in command.params]
        for name, command in group.commands.items()
    }
    assert found == COMMANDS


def test_recipe_keys_are_these() -> None:
    pinned = [f"{section.strip()}.{key}".lstrip(".") for section, keys in KEYS.items() for key in keys.split()]
    assert list(known_keys()) == pinned


def test_shipped_recipes_are_these() -> None:
    assert sorted(shipped_recipes()) == ["office-ladder", "office-quickstart", "office-smoke"]
