"""The contract of an environment: what `ferrata check-env` checks, and a test class for your own tests.

    testing      EnvironmentContract: every check as one test
    suite        the table of checks
    definition   the class: name, families, methods, tools
    tasks        tasks are sound and drawn from their stream, splits are disjoint, the outcome dominates
    proof        scripts, verdicts, subgoals, events, observations
    repetition   the same seed gives the same episode, in another process (`elsewhere`) too
    snapshots    restored or forked, an episode has the same future
    episodes     turn budget, wild texts (`wild` makes them), speed
    subject      the environment under check: its tasks, and its scripts played once
    report       how a check says no; `blame` finds the author's line that raised

`envs.checker` runs all of them.
"""

from ferrata.envs.contract.testing import EnvironmentContract

__all__ = ["EnvironmentContract"]
