"""An environment without a hole in its rewards, and others with one each, planted."""

from __future__ import annotations

import random
from typing import ClassVar

import msgspec

from ferrata.envs import Effect, Environment, Script, Task, ToolError, call, tool
from ferrata.evaluation.reward_audit import RewardAudit, audit_rewards
from ferrata.recipe import RewardSection
from ferrata.records import Event, EventKind
from ferrata.rewards import RewardSpec


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
