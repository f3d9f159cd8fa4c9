"""The simulated customer: what it wants, what it says when it is asked, and how it behaves.

Customer       what the environment needs of any customer
Persona        how a customer of rules talks and how long it waits
RuleCustomer   the customer of rules and templates: topic after topic, each settled before the next is raised

A profile is JSON-ready: `name`, `speaker` (empty for a stranger), `persona`, `answers` (key -> sentence) and `topics`.
A topic has `say`, `answers`, `facts` (indexes of what must be told), and may have `insist` (what the customer says
instead of accepting the first time), `back` (what a reply says, and what the customer asks then) or `leaves_on` (the
question at which it changes its mind to the next topic; at once when that was answered in an earlier topic).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ferrata.envs.support.speech import asks, read
from ferrata.envs.support.wordings import states

Profile = Mapping[str, Any]


class Customer(Protocol):
    """Who the agent talks to. `begin` comes before everything else, once an episode."""

    left: bool
    """True once the customer has gone."""
    given: list[str]
    """What it has been asked for and said, as `topic.key` (`0.pin`)."""

    @property
    def topic(self) -> int | None:
        """Index of the topic it is at; None when nobody knows."""

    @property
    def settled(self) -> int:
        """How many topics are settled, the last insistence included."""

    def begin(self, profile: Profile) -> None:
        """Become the customer of this profile."""

    def hear(self, text: str, told: Collection[int]) -> str:
        """Answer a reply; `told` are all facts told so far. EnvironmentFault when no answer can be had."""

    def wait(self, progressed: bool) -> str:
        """One turn has passed: what the customer says of its own accord, or an empty text."""

    def save(self) -> Any:
        """The state, JSON-ready."""

    def load(self, state: Any) -> None:
        """Take a saved state up again, after `begin`."""

    def close(self) -> None:
        """Release what the customer holds."""


@dataclass(frozen=True)
class Persona:
    """How a customer of rules talks."""

    nudge: str
    """Said when a reply neither asks nor settles anything."""
    next: str
    """Said before the next topic."""
    thanks: str
    """Said when everything is settled."""
    patience: int = 0
    """Turns without progress after which the customer leaves; 0 means never."""


PERSONAS = {
    "plain": Persona("Can you help me with that?", "Thank you. One more thing:", "Thank you, that is all."),
    "vague": Persona("I am not sure what you need.", "I see. And then there is this:", "All right then, thanks."),
    "impatient": Persona("That does not help me.", "Fine. Next:", "Finally. Bye.", patience=6),
    "changing": Persona("Hm, and now?", "Good. Now that I think of it:", "Good, that is all for now."),
    "insistent": Persona("That is no answer.", "Well. But then:", "I do not like it, but all right."),
    "stranger": Persona("Just do it, nobody will mind.", "Then something else:", "Never mind, then."),
}


class RuleCustomer:
    """A customer of rules: the same replies give the same conversation, always."""

    def begin(self, profile: Profile) -> None:
        """Start at the first topic, which the instruction has already told."""
        self._profile = profile
        self._persona = PERSONAS[profile["persona"]]
        self._at = 0
        self._insisted = False
        self._waiting = 0
        self.left = False
        self.given: list[str] = []

    @property
    def topic(self) -> int | None:
        """Index of the topic; one past the last when all are settled."""
        return self._at

    @property
    def settled(self) -> int:
        """Topics before the present one are settled."""
        return self._at

    def hear(self, text: str, told: Collection[int]) -> str:
        """What the customer says to a reply."""
        topics = self._profile["topics"]
        if self._at == len(topics):
            return "Goodbye."
        topic = topics[self._at]
        answers = {**self._profile["answers"], **topic["answers"]}
        asked = [key for key in answers if asks(text, key)]
        self.given += [key for key in (f"{self._at}.{key}" for key in asked) if key not in self.given]
        said = [answers[key] for key in asked]
        if topic.get("leaves_on") in asked:
            return " ".join([*said, self._next(topics, changed=True)])
        if topic["facts"] and set(topic["facts"]) <= set(told):
            return " ".join([*said, self._accept(topic, topics)])
        return " ".join(said) or self._ask_back(topic, text)

    def wait(self, progressed: bool) -> str:
        """The impatient warn once, then leave."""
        self._waiting = 0 if progressed else self._waiting + 1
        patience = self._persona.patience
        if not patience or self._at == len(self._profile["topics"]):
            return ""
        if self._waiting >= patience:
            self.left = True
            return "I have waited long enough."
        return "How long will this take?" if self._waiting == patience - 2 else ""

    def save(self) -> Any:
        """The state, JSON-ready."""
        return [self._at, self._insisted, self._waiting, self.left, list(self.given)]

    def load(self, state: Any) -> None:
        """Take a saved state up again."""
        self._at, self._insisted, self._waiting, self.left, given = state
        self.given = list(given)

    def close(self) -> None:
        """A customer of rules holds nothing."""

    def _accept(self, topic: Mapping[str, Any], topics: list[Any]) -> str:
        """Accept what was told, or insist once."""
        if topic.get("insist") and not self._insisted:
            self._insisted = True
            return str(topic["insist"])
        return self._next(topics, changed=False)

    def _ask_back(self, topic: Mapping[str, Any], text: str) -> str:
        """What is still missing in a reply, where the topic says so."""
        reply = read(text)
        return next(
            (question for words, question in topic.get("back", ()) if states(reply, words)), self._persona.nudge
        )

    def _next(self, topics: list[Any], changed: bool) -> str:
        self._at += 1
        self._insisted = False
        if self._at == len(topics):
            return self._persona.thanks
        said = [] if changed else [self._persona.next]
        while self._leaves_at_once(topics[self._at]):
            said.append(str(topics[self._at]["say"]))
            self._at += 1
        return " ".join([*said, str(topics[self._at]["say"])])

    def _leaves_at_once(self, topic: Mapping[str, Any]) -> bool:
        """Nobody asks twice for what holds for the whole conversation, and the change of mind must not wait for it."""
        key = topic.get("leaves_on")
        return key in self._profile["answers"] and any(given.partition(".")[2] == key for given in self.given)
