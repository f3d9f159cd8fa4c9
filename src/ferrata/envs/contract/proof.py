"""Checks on scripts: they can be played, the judge decides them as it must, and their subgoals and events are sound."""

from __future__ import annotations

from collections.abc import Sequence

from ferrata.envs.base import VERDICTS
from ferrata.envs.contract.report import Broken
from ferrata.envs.contract.subject import Episode, Subject, play, succeeded
from ferrata.envs.observe import MAX_CHARACTERS
from ferrata.errors import nearest
from ferrata.records import EventKind, StepResult, Task

NOTE_CHARACTERS = 100
"""Room for the note that says what was left out of a long observation."""


def check_scripts(subject: Subject) -> str:
    """Every task has a success and a failure that fit its turns, and all of them can be played."""
    for task in subject.tasks:
        scripts = subject.scripts(task)
        for wanted, word in ((True, "succeed"), (False, "fail")):
            if not any(script.success == wanted for script in scripts):
                raise Broken(
                    f"Family '{task.family}' of {subject.kind.__name__} has no script that must {word}.",
                    f"Let scripts() return one Script with success={wanted} for every task.",
                )
        for script in scripts:
            if script.success and len(script.texts) > task.max_turns:
                raise Broken(
                    f"Family '{task.family}': the solution '{script.name}' takes {len(script.texts)} turns, but "
                    f"max_turns is {task.max_turns}.",
                    f"Raise max_turns to more than {len(script.texts)}.",
                )
    turns = sum(len(episode.results) for episode in subject.episodes)
    return f"{len(subject.episodes)} scripts of {len(subject.tasks)} tasks played, {turns:,} turns"


def check_proof(subject: Subject) -> str:
    """The judge gives every script the verdict that it must get."""
    for episode in subject.episodes:
        if succeeded(episode.results) != episode.script.success:
            raise _wrong_verdict(episode)
    wanted = sum(episode.script.success for episode in subject.episodes)
    return f"{wanted} successes and {len(subject.episodes) - wanted} failures judged as they must be"


def check_subgoals(subject: Subject) -> str:
    """Every subgoal is reached by the solution, in order, and paid once; no name is unknown."""
    _check_known(subject)
    for episode in subject.episodes:
        _check_paid_once(subject, episode.task, episode.results)
    with subject.fresh() as env:
        for task in subject.one_of_each:
            for script in subject.scripts(task):
                with subject.blaming(f"Family '{task.family}', each action twice,", actions=2 * len(script.texts) + 1):
                    twice = play(env, task, [text for text in script.texts for _ in range(2)])
                _check_paid_once(subject, task, twice)
    solved = [episode for episode in subject.episodes if episode.script.success and succeeded(episode.results)]
    for episode in solved:
        never = [name for name in episode.task.subgoals if name not in episode.reached]
        if never:
            raise Broken(
                f"Family '{episode.task.family}': the solution '{episode.script.name}' never reaches subgoal "
                f"'{never[0]}'.",
                f"Call self.reach('{never[0]}') in the tool that does it, or take it off the task's subgoals.",
            )
    ordered = {e.task.fingerprint for e in solved if e.reached == list(e.task.subgoals)}
    for episode in solved:
        if episode.task.fingerprint not in ordered:
            raise Broken(
                f"Family '{episode.task.family}': no solution reaches the subgoals in their order; "
                f"'{episode.script.name}' reaches {_names(episode.reached)}, declared are "
                f"{_names(episode.task.subgoals)}.",
                "List the subgoals in the order in which the solution reaches them.",
            )
    return f"{sum(len(e.reached) for e in solved)} reached by {len(solved)} solutions, in order"


def _check_paid_once(subject: Subject, task: Task, results: Sequence[StepResult]) -> None:
    """A subgoal pays the first time it is reached, and only a subgoal of the task does."""
    paid: set[str] = set()
    for event in (event for result in results for event in result.events if event.kind is EventKind.SUBGOAL):
        why = "a second time" if event.name in paid else "which is none of the task's subgoals"
        if event.name in paid or event.name not in task.subgoals:
            raise Broken(
                f"Family '{task.family}': {subject.kind.__name__} pays for subgoal '{event.name}' {why}.",
                "Report subgoals by self.reach(...) alone: it pays the first time.",
            )
        paid.add(event.name)


def check_events(subject: Subject) -> str:
    """An episode that ends by itself has one verdict, at its end; nothing both terminates and truncates."""
    for episode in subject.episodes:
        for result in episode.results:
            fault = event_fault(result)
            if fault:
                raise Broken(f"Family '{episode.task.family}', script '{episode.script.name}' {fault[0]}.", fault[1])
    ended = sum(bool(episode.results) and episode.results[-1].terminated for episode in subject.episodes)
    return f"{ended} of {len(subject.episodes)} scripts end with one verdict, the others with none"


def check_observations(subject: Subject) -> str:
    """The model has something to read after every step, and not too much."""
    longest = 0
    for episode in subject.episodes:
        for result, text in zip(episode.results, episode.script.texts, strict=False):
            fault = observation_fault(result)
            if fault:
                raise Broken(f"{subject.acting(episode.task, text)} {fault[0]}.", fault[1])
            longest = max(longest, len(result.observation.text))
    return f"none empty, the longest has {longest:,} of at most {MAX_CHARACTERS:,} characters"


def event_fault(result: StepResult) -> tuple[str, str] | None:
    """What is wrong with the events of one step, and what to do."""
    verdicts = [event.kind.value for event in result.events if event.kind in VERDICTS]
    if bool(verdicts) != result.terminated:
        seen = "a verdict without an end" if verdicts else "an end without a verdict"
        return f"got {seen}", "End episodes by self.finish(...) or self.forbid(...) alone."
    if result.terminated and result.truncated:
        return "both terminated and was truncated", "Leave the turn budget to the base class."
    return None


def observation_fault(result: StepResult) -> tuple[str, str] | None:
    """What is wrong with what the model reads after one step, and what to do."""
    text = result.observation.text
    if not text.strip():
        return "was answered by nothing", "Let the tool say what it did."
    if len(text) > MAX_CHARACTERS + NOTE_CHARACTERS:
        return f"was answered by {len(text):,} characters", f"Return at most {MAX_CHARACTERS:,} characters."
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "was answered by text that is not valid Unicode", "Decode bytes with errors='replace'."
    return None


def _wrong_verdict(episode: Episode) -> Broken:
    task, script = episode.task, episode.script
    verdict = "failed" if script.success else "succeeded"
    if not script.success:
        advice = "Let the judge look at everything that was asked for before finish(success=True)."
        return Broken(f"Family '{task.family}': the script '{script.name}' must fail, but it {verdict}.", advice)
    missing = [name for name in task.subgoals if name not in episode.reached]
    seen = f"Family '{task.family}': the task's own solution '{script.name}' {verdict}; {_last_words(episode)}"
    if missing:
        seen += f" Subgoal '{missing[0]}' was not reached."
    return Broken(seen, "Mend the script or the judge: one of them is wrong.")


def _last_words(episode: Episode) -> str:
    """The first error that the script ran into, else the last answer."""
    answers = [result.observation.text for result in episode.results]
    turn = next((i for i, answer in enumerate(answers) if answer.startswith("error: ")), len(answers) - 1)
    if turn < 0:
        return "it has no turns."
    return f"turn {turn + 1} of {len(answers)} was answered by {answers[turn][:100]!r}."


def _check_known(subject: Subject) -> None:
    known = {name for task in subject.tasks for name in task.subgoals}
    for episode in subject.episodes:
        for name in episode.asked:
            if name and name not in known:  # reach("") is a way to say that nothing is reached
                raise Broken(
                    f"Family '{episode.task.family}': {subject.kind.__name__} calls reach({name!r}), which no task "
                    "lists as a subgoal.",
                    nearest(str(name), known),
                )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
