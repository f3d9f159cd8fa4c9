"""`ferrata train` and the one-file example are the same algorithm: their losses agree.

One update of four minibatches: from the second on, the policy is neither the one that sampled nor the reference. A
second update would be sampled from weights that differ in their last bits, where one token may fall the other way.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

from ferrata import load_recipe, make_env
from ferrata.models.policy import load_policy
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import graceful_interrupts
from ferrata.runs.view import SilentView
from ferrata.training import pipeline

EXAMPLE = Path(__file__).parents[2] / "examples" / "minimal_grpo.py"


@pytest.mark.slow
def test_the_losses_of_the_product_are_those_of_the_example(tmp_path: Path) -> None:
    recipe = load_recipe(
        "office-smoke",
        [
            # Weights that agree to 3e-7 draw the same tokens, but for a draw that stands on the edge. With seed 0 one
            # of the 16 episodes holds such a draw; with this seed none does.
            "seed=1",
            "evaluation.every=100",
            "rl.updates=1",
            "rl.minibatches=4",
            "sft.updates=40",
            "rl.tasks_per_update=4",
            "rl.kl=0.05",
        ],
    )
    with RunFolder.create(recipe, tmp_path / "run") as folder, graceful_interrupts() as interrupts:
        pipeline.run(recipe, folder, SilentView(), interrupts)
        product = {name: [value for _, value in folder.store.metrics(name)] for name in ("sft/loss", "rl/loss")}
        trained = folder.store.metrics("rl/trajectories_trained")

    spec = importlib.util.spec_from_file_location("minimal_grpo", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example
    spec.loader.exec_module(example)
    policy = load_policy(recipe.policy.model)
    env = make_env(recipe.env.name, tiers=recipe.env.tiers, rewards=recipe.rewards)
    imitated = example.imitate(recipe, policy, env)
    collector = example.make_collector(recipe, policy)
    reinforced = example.reinforce(recipe, policy, env, collector)
    env.close()
    collector.close()

    assert imitated == pytest.approx(product["sft/loss"], abs=1e-4)
    assert sum(count for _, count in trained) > 0, "nothing was trained: the comparison would be empty"
    assert reinforced == pytest.approx(product["rl/loss"], abs=1e-4)
