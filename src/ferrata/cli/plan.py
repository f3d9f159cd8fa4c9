"""What a recipe amounts to, in numbers that a person can weigh before starting it."""

from __future__ import annotations

from ferrata.recipe import Recipe, RlSection


def plan(recipe: Recipe) -> list[tuple[str, str]]:
    """Rows of (what, how much) for `--dry-run`. Token counts are upper bounds: most episodes end long before."""
    rows = [("environment", f"{recipe.env.name}, tiers {', '.join(map(str, recipe.env.tiers))}")]
    rows.append(("starts from", recipe.policy.model))
    rows += _sft(recipe) if "sft" in recipe.stages else []
    rows += _rl(recipe) if "rl" in recipe.stages else []
    rows += _ladder(recipe) if "rl" in recipe.stages and recipe.ladder.enabled else []
    return [*rows, ("evaluation", _evaluation(recipe))]


def _sft(recipe: Recipe) -> list[tuple[str, str]]:
    section = recipe.sft
    seen = section.updates * section.batch_size
    return [("SFT", f"{section.updates:,} updates, {seen:,} draws from {section.demonstrations:,} demonstrations")]


def _rl(recipe: Recipe) -> list[tuple[str, str]]:
    section = recipe.rl
    tasks = section.updates * section.tasks_per_update
    episodes = tasks * section.group_size
    most = episodes * (1 + section.redraws)
    steps = _learning_updates(section) * section.epochs * section.minibatches
    return [
        ("RL", f"{section.updates:,} updates, {steps:,} optimizer steps"),
        (
            "RL episodes",
            f"{episodes:,}: {tasks:,} tasks x {section.group_size} attempts{_replaced(section, most)}",
        ),
        ("RL tokens", f"at most {most * recipe.rollout.max_tokens:,}"),
    ]


def _learning_updates(section: RlSection) -> int:
    """Updates in which the policy learns: while PPO's value head warms up, it does not."""
    warmup = section.value.warmup if section.algorithm == "ppo" else 0
    return max(0, section.updates - warmup)


def _replaced(section: RlSection, most: int) -> str:
    return f"; with replaced groups at most {most:,}" if section.redraws else ""


def _ladder(recipe: Recipe) -> list[tuple[str, str]]:
    section, fewest = recipe.ladder, recipe.updates_per_rung
    if len(recipe.env.tiers) == 1:
        return [("ladder", f"no further tier; turn cap {', '.join(map(str, section.turn_caps))}")]
    if section.schedule:
        return [("ladder", f"a further tier at update {', '.join(map(str, section.schedule))}")]
    return [("ladder", f"a further tier after {fewest:,} update{'s' * (fewest > 1)} at the soonest")]


def _evaluation(recipe: Recipe) -> str:
    section = recipe.evaluation
    text = f"{section.tasks:,} unseen tasks after each stage"
    if "rl" in recipe.stages:
        text += f", {section.tasks_small:,} every {section.every:,} RL updates"
    return text
