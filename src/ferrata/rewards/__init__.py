"""Rewards: from the events of a step to named components.

spec          RewardSpec: events -> components, by training phase; the check that the outcome dominates
rescoring     rescore: a stored trajectory under another spec
judges        Judge, Verdict: who says whether a task is done, when it is not the environment
model_judge   ModelJudge: a language model behind an OpenAI-compatible endpoint
"""

from ferrata.rewards.spec import RewardSpec

__all__ = ["RewardSpec"]
