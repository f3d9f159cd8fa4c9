"""The customer as a model, against a real HTTP server on this machine."""

import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ferrata.envs import call
from ferrata.envs.support import SupportEnvironment
from ferrata.envs.support.customer import PERSONAS
from ferrata.envs.support.customer_model import MANNERS, CustomerModel, prompt
from ferrata.errors import EnvironmentFault
from ferrata.records import EventKind, Task


class Endpoint:
    """An OpenAI-compatible server that answers from a list: a text, or a status with a body."""

    def __init__(self) -> None:
        self.answers: list[str | tuple[int, str]] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.delay = threading.Event()
        self.slow = False
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append({"path": self.path, **json.loads(body)})
                endpoint.keys.append(self.headers.get("Authorization"))
                if endpoint.slow:
                    endpoint.delay.wait(5)
                answer = endpoint.answers.pop(0) if endpoint.answers else "All right."
                message = {"choices": [{"message": {"role": "assistant", "content": answer}}]}
                status, text = answer if isinstance(answer, tuple) else (200, json.dumps(message))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self) -> None:
        self.delay.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture
def support(endpoint: Endpoint) -> Iterator[SupportEnvironment]:
    made = SupportEnvironment((1, 2, 3), customer=lambda: CustomerModel(endpoint.url, "tiny", key="k", pause=0.0))
    yield made
    made.close()


def refund(support: SupportEnvironment) -> Task:
    return support.written_tasks()[0]


def test_an_episode_with_a_model_is_judged_by_the_same_rules(endpoint: Endpoint, support: SupportEnvironment) -> None:
    task = refund(support)
    endpoint.answers = ["Great, thank you!"]
    support.reset(task)
    results = [support.step(text) for text in support.scripts(task)[0].texts]
    assert results[2].observation.text == "customer: Great, thank you!"
    assert results[-1].events[-1].kind == EventKind.SUCCESS
    request = endpoint.requests[0]
    assert (request["path"], request["model"], endpoint.keys) == ("/v1/chat/completions", "tiny", ["Bearer k"])
    assert [message["role"] for message in request["messages"]] == ["system", "assistant", "user"]
    assert "Anna Berg" in request["messages"][0]["content"]
    assert request["messages"][2]["content"] == "I refunded 49."


def test_passing_faults_are_tried_again(endpoint: Endpoint, support: SupportEnvironment) -> None:
    endpoint.answers = [(503, "busy"), (429, "slow down"), "Hello."]
    support.reset(refund(support))
    assert support.step(call("reply", text="Good morning.")).observation.text == "customer: Hello."
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("answers", "attempts", "message"),
    [
        ([(503, "busy")] * 3, 3, "status 503: busy"),
        ([(401, "no key")], 1, "status 401"),
        ([(200, "not json")], 1, "no chat completion"),
        ([(200, '{"choices": []}')], 1, "no chat completion"),
        ([(200, '{"choices": [{"message": {"content": null}}]}')], 1, "without text"),
    ],
)
def test_a_failing_endpoint_is_the_environments_fault(
    endpoint: Endpoint, support: SupportEnvironment, answers: list[Any], attempts: int, message: str
) -> None:
    endpoint.answers = list(answers)
    support.reset(refund(support))
    with pytest.raises(EnvironmentFault, match=message):
        support.step(call("reply", text="Good morning."))
    assert len(endpoint.requests) == attempts


def test_silence_is_the_environments_fault(endpoint: Endpoint) -> None:
    endpoint.slow = True
    talk = CustomerModel(endpoint.url, "tiny", timeout=0.05, retries=1, pause=0.0)
    talk.begin({"name": "A", "persona": "plain", "answers": {}, "topics": [{"say": "x", "answers": {}, "facts": []}]})
    with pytest.raises(EnvironmentFault, match="ReadTimeout"):
        talk.hear("Hello?", [])
    talk.close()


def test_a_model_that_leaves_is_gone(endpoint: Endpoint, support: SupportEnvironment) -> None:
    endpoint.answers = ["Enough of this. [leaves]"]
    task = refund(support)
    support.reset(task)
    gone = support.step(call("reply", text="One moment."))
    assert gone.observation.text == "customer: Enough of this.\nthe customer has left."
    assert support.step(call("reply", text="Wait!")).observation.text == "error: the customer has left"
    assert support.step(call("close_case")).events[-1].kind == EventKind.FAILURE


def test_details_given_away_are_noticed_and_the_conversation_can_be_forked(
    endpoint: Endpoint, support: SupportEnvironment
) -> None:
    task = next(task for task in support.tasks("train", 20) if task.family == "vague_refund")
    order = task.world["customer"]["topics"][0]["answers"]["order"].split()[-1]
    endpoint.answers = [f"Oh, that is {order}", "A", "B"]
    support.reset(task)
    asked = support.step(call("reply", text="Which order?"))
    assert [event.name for event in asked.events if event.kind == EventKind.SUBGOAL] == ["asked"]
    copy = support.fork()
    assert copy.state_hash() == support.state_hash()
    assert copy.step(call("reply", text="x")).observation.text == "customer: A"
    assert support.step(call("reply", text="x")).observation.text == "customer: B"
    assert endpoint.requests[1]["messages"] == endpoint.requests[2]["messages"]
    copy.close()


def test_an_answer_without_details_is_given_when_it_is_asked_for(
    endpoint: Endpoint, support: SupportEnvironment
) -> None:
    tasks = [support.generate("stranger_insists", 2, random.Random(seed), "train") for seed in range(9)]
    task = next(
        task for task in tasks if task.world["customer"]["topics"][0]["answers"]["pin"] == "I have lost my PIN."
    )
    support.reset(task)
    endpoint.answers = ["Good morning.", "It is gone."]
    reached = [support.step(call("reply", text=text)).events for text in ("Hello.", "Your PIN, please?")]
    named = [[event.name for event in events if event.kind == EventKind.SUBGOAL] for events in reached]
    assert named == [[], ["asked_1"]]


def test_the_prompt_tells_everything_that_the_customer_knows(support: SupportEnvironment) -> None:
    assert set(MANNERS) == set(PERSONAS)
    profile = support.generate("errands", 3, random.Random(0), "train").world["customer"]
    text = prompt(profile)
    for topic in profile["topics"]:
        assert topic["say"] in text
    assert profile["answers"]["pin"] in text
    assert "or have told it before, drop this and go on" in text
