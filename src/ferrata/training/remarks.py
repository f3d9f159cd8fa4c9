"""What a person should know of a recipe before it runs: what would never come, and what would come to nothing.

remarks    sentences; none where there is nothing to say
"""

from __future__ import annotations

from ferrata.recipe import Recipe
from ferrata.training.rungs import climbs


def remarks(recipe: Recipe) -> list[str]:
    """For a person: tiers and reward phases that this recipe ends before, and settings that work against each other."""
    if "rl" not in recipe.stages or not recipe.rl.updates:
        return []
    return [*_unopened(recipe), *_late_phases(recipe), *_untrained(recipe), *_needless(recipe)]


def _unopened(recipe: Recipe) -> list[str]:
    """Where the last tier could not open before the end."""
    section, tiers, updates = recipe.ladder, len(recipe.env.tiers), recipe.rl.updates
    if not climbs(recipe):
        return []
    if section.schedule:
        never = [due for due in section.schedule if due > updates]
        return [f"The ladder's schedule opens a tier at update {due}, but rl.updates = {updates}." for due in never]
    # The last update is evaluated for the report, not for the ladder; a round ahead is played on the old rung.
    late, each = 1 + recipe.rl.staleness, recipe.updates_per_rung
    reached = max(0, updates - late) // each
    if reached >= tiers - 1:
        return []
    return [
        f"A rung of the ladder takes {each} update{'s' * (each > 1)} at least (evaluation.every x ladder.evaluations), "
        f"so with rl.updates = {updates} it opens {reached + 1} of {tiers} tiers at most: {(tiers - 1) * each + late} "
        "updates are the fewest in which all are played."
    ]


def _late_phases(recipe: Recipe) -> list[str]:
    updates = recipe.rl.updates
    late = [phase for phase in recipe.rewards.phases if phase.from_update > updates]
    return [
        f"Reward phase '{one.name}' begins at update {one.from_update}, but rl.updates = {updates}." for one in late
    ]


def _untrained(recipe: Recipe) -> list[str]:
    """Where RL would end before its policy learns anything."""
    section = recipe.rl
    if section.algorithm != "ppo" or section.updates > section.value.warmup:
        return []
    return [
        f"The policy will not change: in the first rl.value.warmup = {section.value.warmup} updates the value head "
        f"learns alone, and rl.updates = {section.updates}."
    ]


def _needless(recipe: Recipe) -> list[str]:
    """Groups that would be replaced although they teach."""
    section = recipe.rl
    if section.by_group or not section.redraws:
        return []
    return [
        f"rl.algorithm = '{section.algorithm}' learns from every group, also from those that rl.redraws = "
        f"{section.redraws} replaces: leave it at 0."
    ]
