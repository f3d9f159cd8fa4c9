"""The typed recipe of a run: what `ferrata train RECIPE` reads, and what a run folder keeps.

    Recipe
      env         which environment and tiers
      policy      which model to start from
      rewards     weights of the reward components, and how they change by phase
      judge       who says whether a task is done: the environment's rules, or a model
      rollout     budgets of an episode, and how many run at once
      sft         supervised stage on scripted demonstrations
      rl          reinforcement-learning stage
      pool        older trajectories that RL trains again
      ladder      from easy tiers to hard ones while RL goes on
      evaluation  how often, on how many unseen tasks
      run         checkpoints, what is stored

`recipe_loading.load_recipe` reads TOML and dotted overrides (`rl.updates=40`).
Nothing here imports torch, so that the command line answers at once.

    base        what all sections share
    playing     env, policy, rewards, judge, rollout
    learning    sft, rl, pool, ladder
    whole       evaluation, run, and the recipe itself
"""

from ferrata.recipe.base import Section, Share
from ferrata.recipe.learning import ChannelSection, LadderSection, PoolSection, RlSection, SftSection, ValueSection
from ferrata.recipe.playing import (
    POLICY_NAMES,
    EnvSection,
    FaultSection,
    JudgeSection,
    PolicySection,
    RewardPhase,
    RewardSection,
    RolloutSection,
)
from ferrata.recipe.whole import EvaluationSection, Recipe, RunSection

__all__ = [
    "POLICY_NAMES",
    "ChannelSection",
    "EnvSection",
    "EvaluationSection",
    "FaultSection",
    "JudgeSection",
    "LadderSection",
    "PolicySection",
    "PoolSection",
    "Recipe",
    "RewardPhase",
    "RewardSection",
    "RlSection",
    "RolloutSection",
    "RunSection",
    "Section",
    "SftSection",
    "Share",
    "ValueSection",
]
