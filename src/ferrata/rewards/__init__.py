"""Rewards: from the events of a step to named components.

spec    RewardSpec: events -> components, and the check that the outcome dominates
"""

from ferrata.rewards.spec import RewardSpec

__all__ = ["RewardSpec"]
