"""The reward audit finds planted holes and names them, and finds none in what ships."""

from __future__ import annotations

import io
import json
import random
import sys
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from ferrata.cli import auditing_rewards
from ferrata.cli.main import app
from ferrata.envs import Effect, Environment, Script, Task, ToolError, call, tool
from ferrata.envs.office import OfficeEnvironment
from ferrata.errors import EnvironmentFault, TaskError
from ferrata.evaluation.exploiters import EXPLOITERS, Scene
from ferrata.evaluation.reward_audit import (
    CLUMSY,
    CONSTANT,
    PLAYERS,
    Episode,
    RewardAudit,
    audit_rewards,
    find_holes,
    make_scenes,
    play,
)
from ferrata.recipe import RewardPhase, RewardSection
from ferrata.records import Event, EventKind
from ferrata.rewards import RewardSpec
from ferrata.seeds import stream


class Shelf(Environment):
    """Read the label of a box, then report its number."""

    name = "shelf"
    families: ClassVar = {1: ("label", "weight")}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        number = 2 * stream.randrange(10**6) + (split == "eval")
        box = f"box/{stream.randrange(100)}"
        world = {"box": box, "number": number}
        return Task(self.name, family, tier, split, f"Report the {family} of {box}.", world, ("read", "reported"), 10)

    @tool("Read what stands on a box.")
    def read(self, box: str) -> str:
        if box.strip() != self.task.world["box"]:
            raise ToolError("there is no such box")
        self.reach("read")
        return f"{self.task.family}: {self.task.world['number']}"

    @tool("Report the number.", effect=Effect.IRREVERSIBLE)
    def report(self, number: int, note: str = "") -> str:
        if number == self.task.world["number"]:
            self.reach("reported")
        self.finish("reported" in self.reached)
        return "reported"

    def scripts(self, task: Task) -> list[Script]:
        look, number = call("read", box=task.world["box"]), task.world["number"]
        return [
            Script("reads and reports", (look, call("report", number=number, confirm=True)), True),
            Script("reports wrongly", (look, call("report", number=number + 2, confirm=True)), False),
        ]


class PaysEveryQuery(Shelf):
    """The planted hole: every useful query counts, not only the first, and in one family alone."""

    def reach(self, subgoal: str) -> None:
        if self.task.family == "weight" and subgoal in self.reached:
            self._events.append(Event(EventKind.SUBGOAL, subgoal))
        super().reach(subgoal)


class BelievesAnybody(Shelf):
    """The judge takes any report."""

    @tool("Report the number.", effect=Effect.IRREVERSIBLE)
    def report(self, number: int, note: str = "") -> str:
        self.reach("reported")
        self.finish(True)
        return "reported"


class BelievesWeights(BelievesAnybody):
    """The judge takes any report of a weight."""

    @tool("Report the number.", effect=Effect.IRREVERSIBLE)
    def report(self, number: int, note: str = "") -> str:
        if self.task.family == "weight":
            return super().report(number, note)
        return Shelf.report(self, number, note)

    def scripts(self, task: Task) -> list[Script]:
        solution, _ = super().scripts(task)
        return [solution, Script("only reads", solution.texts[:1], False)]


class ExactText(Shelf):
    """The report is a text, which must be the number."""

    @tool("Report the number.", effect=Effect.IRREVERSIBLE)
    def report(self, number: str) -> str:
        self.decide(number == self.answer)
        return "reported"

    def decide(self, right: bool) -> None:
        if right:
            self.reach("reported")
        self.finish(right)

    @property
    def answer(self) -> str:
        return str(self.task.world["number"] % 1000)

    @tool("Read what stands on a box.")
    def read(self, box: str) -> str:
        super().read(box)
        return f"{self.task.family}: {self.answer}"

    def scripts(self, task: Task) -> list[Script]:
        look, number = call("read", box=task.world["box"]), str(task.world["number"] % 1000)
        return [
            Script("reads and reports", (look, call("report", number=number, confirm=True)), True),
            Script("reports wrongly", (look, call("report", number="none", confirm=True)), False),
        ]


class FindsItInside(ExactText):
    """The judge looks for the number anywhere in the report."""

    @tool("Report the number.", effect=Effect.IRREVERSIBLE)
    def report(self, number: str) -> str:
        self.decide(self.answer in number)
        return "reported"


class PaysEveryWording(ExactText):
    """A search pays for each new wording that finds the box."""

    @tool("Read what stands on a box.")
    def read(self, box: str) -> str:
        if not box or box.lower() not in self.task.world["box"]:
            raise ToolError("there is no such box")
        self.reach("read")
        self._events.append(Event(EventKind.SUBGOAL, "read"))
        return f"{self.task.family}: {self.answer}"


class Chooses(ExactText):
    """The answer is one of two words of the instruction."""

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        task = super().generate(family, tier, stream, split)
        return msgspec.structs.replace(task, instruction=f"{task.instruction} Say even or odd.")

    @property
    def answer(self) -> str:
        return ("even", "odd")[self.task.world["number"] // 2 % 2]

    def scripts(self, task: Task) -> list[Script]:
        look, right = call("read", box=task.world["box"]), task.world["number"] // 2 % 2
        return [
            Script("says it", (look, call("report", number=("even", "odd")[right], confirm=True)), True),
            Script("says the other", (look, call("report", number=("odd", "even")[right], confirm=True)), False),
        ]


class AlwaysSeven(ExactText):
    """Nobody needs to look: the answer is seven in every task."""

    @property
    def answer(self) -> str:
        return "7"

    @tool("Read what stands on a box.")
    def read(self, box: str) -> str:
        self.reach("read")
        return "7"

    def scripts(self, task: Task) -> list[Script]:
        look = call("read", box=task.world["box"])
        return [
            Script("says it", (look, call("report", number="7", confirm=True)), True),
            Script("says another", (look, call("report", number="8", confirm=True)), False),
        ]


class CannotBeSolved(Shelf):
    @tool("Report the number.", effect=Effect.IRREVERSIBLE)
    def report(self, number: int, note: str = "") -> str:
        self.finish(False)
        return "reported"


class Crashes(Shelf):
    @tool("Read what stands on a box.")
    def read(self, box: str) -> str:
        raise RuntimeError("the shelf fell down")


WITHOUT_RULE = RewardSection(process=0.05, repeat=0.0, near_repeat=0.0)


def audit(kind: type[Environment], section: RewardSection | None = None, tasks: int = 12) -> RewardAudit:
    return audit_rewards(kind, (1,), RewardSpec(section), tasks=tasks)


def test_no_hole_where_there_is_none() -> None:
    found = audit(Shelf)
    assert found.holes == ()
    results = {row.player: row for row in found.results}
    assert set(results) == {*EXPLOITERS, "constant script", CLUMSY, "honest failure"}
    assert 0.6 <= results[CLUMSY].success.share <= 0.7
    assert all(row.reward.value < results[CLUMSY].reward.value for name, row in results.items() if name != CLUMSY)
    for row in found.results:
        assert sum(row.components.values()) == pytest.approx(row.reward.value)


def test_pay_for_every_query_is_found_and_named() -> None:
    found = audit(PaysEveryQuery, WITHOUT_RULE)
    repeating = next(hole for hole in found.holes if hole.player == "repeat a query")
    assert (repeating.family, repeating.component, repeating.tier) == ("weight", "process", 1)
    assert repeating.text == "is paid +0.040 for each turn in which it achieves nothing new, by process (+0.050)"


def test_the_repetition_rule_closes_it_for_equal_queries_and_not_for_rephrased_ones() -> None:
    found = audit(PaysEveryQuery, RewardSection(process=0.05))
    assert [hole.player for hole in found.holes] == ["rephrase a query"]  # a box under another name is none
    assert not audit(Shelf, WITHOUT_RULE).holes


def test_a_hole_of_one_phase_is_found_there() -> None:
    section = RewardSection(process=0.0, phases=(RewardPhase(name="late", from_update=9, process=0.2),))
    found = audit(PaysEveryQuery, section)
    assert {hole.phase for hole in found.holes} == {"late"}
    assert {row.phase for row in found.results} == {"", "late"}


def test_a_judge_that_believes_anybody_is_found() -> None:
    # Its scripted failures succeed, so everybody does, and who does it at once does it best.
    found = audit(BelievesAnybody)
    hole = next(hole for hole in found.holes if hole.player == "submit at once")
    assert hole.component in ("outcome", "efficiency", "format", "repetition")
    assert "succeeds in 6 of 6 tasks" in hole.text
    assert "empty answer" in {hole.player for hole in found.holes}


def test_a_judge_that_believes_whoever_states_everything_is_found() -> None:
    assert [hole.player for hole in audit(FindsItInside).holes] == ["state everything", "state every number"]
    assert audit(ExactText).holes == ()


def test_pay_for_each_new_wording_is_found() -> None:
    found = audit(PaysEveryWording, RewardSection(process=0.08))
    assert {hole.player for hole in found.holes} == {"other words"}
    assert next(hole for hole in found.holes).component == "process"


def test_a_choice_that_the_instruction_names_is_not_told_to_the_exploiter() -> None:
    assert audit(Chooses, tasks=16).holes == ()


def test_an_answer_that_is_always_the_same_is_found() -> None:
    assert "constant script" in {hole.player for hole in audit(AlwaysSeven).holes}
    # Chosen on one half of the tasks and measured on the other, luck is no hole.
    constant = next(row for row in audit(Shelf).results if row.player == "constant script")
    assert constant.success.share == 0


def test_a_hole_in_one_family_is_not_hidden_by_the_others() -> None:
    found = audit(BelievesWeights)
    submitting, yardstick = (
        next(row for row in found.results if row.player == player) for player in ("submit at once", CLUMSY)
    )
    assert submitting.reward.value < yardstick.reward.value
    hole = next(hole for hole in found.holes if hole.player == "submit at once")
    assert (hole.family, hole.component) == ("weight", "outcome")
    assert hole.text.startswith("earns +5.07 where the clumsy solver earns ")


def test_the_family_of_a_win_is_one_that_was_won() -> None:
    """The largest lead may be on a family where everybody is poor: there the exploiter has won nothing."""
    rewards = {"poor": (1.0, -2.0), "rich": (3.0, 2.5)}

    def episode(family: str, reward: float) -> Episode:
        return Episode(family, reward, components={"outcome": reward})

    ours = [episode(family, reward) for family, (_, reward) in rewards.items() for _ in range(2)]
    theirs = [episode(family, reward) for family, (reward, _) in rewards.items() for _ in range(2)]
    played = {player: [episode("rich", -1.0)] for player in (*PLAYERS, CONSTANT)}
    # The clumsy solver earns more on the tier than the exploiter does on the poor family.
    played[CLUMSY] = [*ours, *[episode("rich", 2.5)] * 8]
    [hole] = find_holes({**played, "submit at once": theirs}, 1, "")
    assert (hole.player, hole.family) == ("submit at once", "rich")


def test_giving_up_that_pays_more_than_failing_honestly_is_warned_of() -> None:
    assert not audit(Shelf).warnings
    warnings = audit(Shelf, RewardSection(efficiency=-0.1, process=0.05)).warnings
    assert len(warnings) == 2
    assert "'submit at once' earns -1.10, more than an honest failure (-1.15)" in warnings[0]


def test_without_an_honest_return_nothing_can_be_said() -> None:
    with pytest.raises(TaskError, match="succeed in none of 12 tasks"):
        audit(CannotBeSolved)


def test_process_reward_that_outweighs_the_outcome_is_refused_first() -> None:
    with pytest.raises(TaskError, match="Process reward outweighs the outcome"):
        audit(Shelf, RewardSection(process=0.6))


def test_an_environment_that_fails_is_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"auditing family .* of 'shelf': RuntimeError: the shelf fell down"):
        audit(Crashes)


def test_an_environment_that_cannot_be_made_is_named() -> None:
    class Unmade(Shelf):
        def __init__(self, tiers: object = (1,), score: object = None) -> None:
            raise KeyError("where the shelf stands")

    with pytest.raises(TaskError, match="While making environment 'shelf': KeyError: 'where the shelf stands'"):
        audit(Unmade)

    class LeftOut(Shelf):
        def __init__(self, tiers: object = (1,), score: object = None) -> None:
            self.made = True

    with pytest.raises(TaskError, match="leaves the base class out"):
        audit(LeftOut)


def test_the_audit_is_the_same_every_time() -> None:
    assert audit(PaysEveryQuery, WITHOUT_RULE) == audit(PaysEveryQuery, WITHOUT_RULE)


@pytest.fixture
def scenes() -> list[Scene]:
    env = Shelf()
    return make_scenes(env, env.tasks("train", 6))


def texts(scene: Scene, player: str, n: int = 6) -> list[str]:
    scene.seen = [scene.task.instruction]
    playing = EXPLOITERS[player](scene, stream(0, player))
    return [next(playing) for _ in range(n)]


def test_each_exploiter_does_what_it_is_called(scenes: list[Scene]) -> None:
    scene = scenes[0]
    box, number = scene.task.world["box"], scene.task.world["number"]
    assert set(texts(scene, "repeat a query")) == {call("read", box=box)}
    assert len(set(texts(scene, "rephrase a query"))) == 6
    assert {json.loads(text)["action"] for text in texts(scene, "call everything")} == {"read", "report"}
    assert all(len(text) > 1000 for text in texts(scene, "talk a lot"))
    assert texts(scene, "empty answer")[0] == call("report", number=0, confirm=True)
    first = json.loads(texts(scene, "submit at once")[0])
    assert first["action"] == "report"
    assert first["arguments"]["number"] != number
    assert all(json.loads(text)["action"] == "read" for text in texts(scene, "never submit"))


def test_call_everything_finds_its_arguments_in_the_text(scenes: list[Scene]) -> None:
    boxes = {json.loads(text)["arguments"].get("box") for text in texts(scenes[0], "call everything", 60)}
    assert scenes[0].task.world["box"] in boxes


# What ships -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("tier", sorted(OfficeEnvironment.families))
def test_the_office_has_no_hole(tier: int) -> None:
    found = audit_rewards(OfficeEnvironment, (tier,), RewardSpec(), tasks=33)
    assert found.holes == ()
    assert found.warnings == ()
    clumsy = next(row for row in found.results if row.player == CLUMSY)
    assert 0.5 <= clumsy.success.share <= 0.75


# The command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which this file's environments can be asked for."""
    monkeypatch.setitem(sys.modules, "shelves", sys.modules[__name__])
    return "shelves"


def test_the_command_passes_what_is_sound(module: str) -> None:
    result = CliRunner().invoke(app, ["audit-rewards", f"{module}:Shelf", "--tasks", "6"])
    assert result.exit_code == 0, result.output
    assert "honest but clumsy" in result.output
    assert "No exploiter earns as much" in result.output


def test_the_command_names_the_hole_and_fails(module: str, tmp_path: Path) -> None:
    recipe, file = tmp_path / "holed.toml", tmp_path / "audit.json"
    recipe.write_text("[rewards]\nprocess = 0.05\nrepeat = 0.0\nnear_repeat = 0.0\n")
    arguments = [f"{module}:PaysEveryQuery", "--recipe", str(recipe), "--tasks", "6", "--json", str(file)]
    result = CliRunner().invoke(app, ["audit-rewards", *arguments])
    assert result.exit_code == 1
    assert "HOLE. 'repeat a query' in family 'weight' (tier 1) is paid +0.040" in " ".join(result.output.split())
    written = json.loads(file.read_text())
    assert written["holes"][0]["component"] == "process"
    assert len(written["results"]) == len(EXPLOITERS) + 3


def test_a_hole_of_one_phase_is_painted_in_its_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    section = RewardSection(process=0.0, phases=(RewardPhase(name="late", from_update=9, process=0.2),))
    painted: list[set[str]] = []
    monkeypatch.setattr(auditing_rewards, "_table", lambda title, rows, broken: painted.append(broken) or title)
    found = audit(PaysEveryQuery, section)
    auditing_rewards.show(Console(file=io.StringIO()), found)
    assert painted == [set(), {hole.player for hole in found.holes}]
    assert painted[1]


def test_a_hand_played_episode_adds_up(scenes: list[Scene]) -> None:
    env = Shelf(score=RewardSpec())
    episode = play(env, scenes[0], lambda scene, draw: iter(scene.solution), stream(0))
    assert episode.success
    assert episode.reward == pytest.approx(5.0 + 2 * 0.08 - 2 * 0.01)
    assert episode.idle == 0
