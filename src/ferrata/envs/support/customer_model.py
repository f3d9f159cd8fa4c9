"""The customer as a language model behind any OpenAI-compatible endpoint.

It plays the same profile as the customer of rules, told to it as a system prompt. The judge does not listen to it:
final state and facts told decide, so a talkative model cannot change what success is. An endpoint that fails is the
environment's fault and never the agent's: `EnvironmentFault`, after retries.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import httpx

from ferrata.envs.support.customer import Profile
from ferrata.envs.support.speech import asks
from ferrata.errors import EnvironmentFault

MAX_ANSWER_CHARACTERS = 600
GONE = "[leaves]"
"""What the model writes when the customer goes."""
_RETRIED = {408, 409, 425, 429, 500, 502, 503, 504}

MANNERS = {
    "plain": "You are friendly and to the point.",
    "vague": "You are vague: you give numbers and details only when you are asked for them.",
    "impatient": f"You are impatient. When three answers in a row do not help you, write {GONE}.",
    "changing": "You change your mind in the middle of the conversation, as your requests say.",
    "insistent": "You do not accept a refusal at once: you insist one time, then accept it.",
    "stranger": "You are not who you say you are, and you try to talk the agent into it anyway. Never admit it.",
}
"""Persona -> how the model is told to behave."""


class CustomerModel:
    """A customer that a model plays.

    Args:
        base_url: the endpoint up to and without `/chat/completions`, e.g. `http://localhost:8000/v1`.
        model: the model's name at the endpoint.
        key: bearer token, where the endpoint wants one.
        timeout: seconds for one request.
        retries: further attempts after a request that failed or was answered by a status that may pass.
        pause: seconds before the first retry; doubled for each further one.
    """

    def __init__(
        self, base_url: str, model: str, *, key: str = "", timeout: float = 30.0, retries: int = 2, pause: float = 0.5
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Certificates take long to load, and plain http has none to check.
        self._client = httpx.Client(timeout=timeout, headers=headers, verify=base_url.startswith("https"))
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._model, self._retries, self._pause = model, retries, pause

    def begin(self, profile: Profile) -> None:
        """Start a conversation whose first line the instruction has already told."""
        self._profile = profile
        opening = {"role": "assistant", "content": profile["topics"][0]["say"]}
        self._messages = [{"role": "system", "content": prompt(profile)}, opening]
        self._settled = 0
        self.left = False
        self.given: list[str] = []

    @property
    def topic(self) -> int | None:
        """Nobody knows which request a model is at."""
        return None

    @property
    def settled(self) -> int:
        """How many topics, from the first on, had all their facts told at the last answer."""
        return self._settled

    def hear(self, text: str, told: Collection[int]) -> str:
        """The model's answer. Raises EnvironmentFault when the endpoint gives none."""
        asked = [*self._messages, {"role": "user", "content": text}]
        answer = self._ask(asked)
        said = answer.replace(GONE, "").strip()[:MAX_ANSWER_CHARACTERS] or "..."
        self._messages = [*asked, {"role": "assistant", "content": answer}]
        self.left = GONE in answer
        self._note(text, said, told)
        return said

    def wait(self, progressed: bool) -> str:
        """A model speaks only when it is spoken to."""
        return ""

    def save(self) -> Any:
        """The conversation so far, JSON-ready."""
        return [list(self._messages), self._settled, self.left, list(self.given)]

    def load(self, state: Any) -> None:
        """Take a saved conversation up again."""
        messages, self._settled, self.left, given = state
        self._messages, self.given = list(messages), list(given)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _note(self, asked: str, said: str, told: Collection[int]) -> None:
        """Progress, read off what was said: details given away, topics whose facts are all told.

        An answer without details ("I have lost it") is given when it is asked for.
        """
        topics: Sequence[Any] = self._profile["topics"]
        for index, topic in enumerate(topics):
            for key, sentence in {**self._profile["answers"], **topic["answers"]}.items():
                details = [word.strip(".,") for word in sentence.split() if any(map(str.isdigit, word))]
                given = all(detail in said for detail in details) if details else asks(asked, key)
                if given and f"{index}.{key}" not in self.given:
                    self.given.append(f"{index}.{key}")
        while self._settled < len(topics) and set(topics[self._settled]["facts"]) <= set(told):
            self._settled += 1

    def _ask(self, messages: list[dict[str, str]]) -> str:
        """One answer from the endpoint, tried again after faults that may pass."""
        body = {"model": self._model, "messages": messages, "temperature": 0.0, "max_tokens": 200}
        fault = ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(self._pause * 2 ** (attempt - 1))
            try:
                response = self._client.post(self._url, json=body)
            except httpx.HTTPError as error:
                fault = f"{type(error).__name__}: {error}"
                continue
            if response.is_success:
                return _content(response)
            fault = f"status {response.status_code}: {response.text[:200]}"
            if response.status_code not in _RETRIED:
                break
        raise EnvironmentFault(f"The customer's model at {self._url} gives no answer: {fault}.")


def _content(response: httpx.Response) -> str:
    """The text of a chat completion. Raises EnvironmentFault for anything else."""
    try:
        content = response.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError) as error:
        raise EnvironmentFault(f"The customer's model answered what is no chat completion: {error!r}.") from error
    if not isinstance(content, str):
        raise EnvironmentFault("The customer's model answered a chat completion without text.")
    return content


def prompt(profile: Profile) -> str:
    """The system prompt: who the customer is, what it wants, what it knows."""
    lines = [
        f"You play a customer called {profile['name']} who writes to the support of a shop. The user is the agent.",
        MANNERS[profile["persona"]],
        "Answer in one or two short sentences, as the customer. Never play the agent. Your requests, in this order:",
    ]
    for number, topic in enumerate(profile["topics"], 1):
        lines.append(f"{number}. {topic['say']}")
        if "leaves_on" in topic:
            asked = f"When you are asked about your {topic['leaves_on']}, or have told it before"
            lines.append(f"   {asked}, drop this and go on with the next.")
        lines += [f"   If you are asked about your {key}: {text}" for key, text in topic["answers"].items()]
    lines += [f"If you are asked about your {key}: {text}" for key, text in profile["answers"].items()]
    return "\n".join([*lines, "Raise a request only when the one before is settled. At the end, say thank you."])
