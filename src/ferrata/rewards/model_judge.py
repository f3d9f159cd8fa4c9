"""A language model as the judge, behind any OpenAI-compatible endpoint.

    ModelJudge.judge(task, transcript) -> Verdict

The request is greedy (temperature 0) and its verdict is kept on disk under the request's own hash, so that the same
episode is judged once: again after a restart, and again by whoever measures the same trajectories.

    answer                               what happens
    200 and a well-formed verdict        kept, returned
    200 and anything else                tried again
    429, 5xx, timeout, no connection     tried again after a wait that doubles, or as long as Retry-After says
    any other status                     JudgeFault at once: asking again would not help
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec

from ferrata.errors import JudgeFault
from ferrata.records import Task
from ferrata.rewards.judge_prompt import PROMPT, messages, read_verdict
from ferrata.rewards.judges import Line, Verdict

LONGEST_WAIT = 60.0
"""Seconds; neither back-off nor Retry-After makes a judge wait longer."""
LARGEST_ANSWER = 1_000_000
"""Bytes; a longer answer is no verdict."""


class _PassingFault(Exception):
    """An attempt failed in a way that may pass."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait
        """Seconds that the server asked for; None when it did not say."""


class ModelJudge:
    """Asks a model for verdicts. Thread-safe; `close` it in the end.

    Args:
        endpoint: base address, e.g. `http://127.0.0.1:8000/v1`.
        model: the model's name there.
        rubric: what counts as success beyond the task itself.
        api_key_env: environment variable with the server's key; empty sends none.
        timeout: seconds for one answer, from the first byte sent to the last one read.
        retries: further attempts after one that failed.
        cache: folder that keeps verdicts; None keeps none.
        at_once: most requests at the same time.
        backoff: seconds before the second attempt; doubles with each one.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        rubric: str = "",
        api_key_env: str = "",
        *,
        timeout: float = 60.0,
        retries: int = 4,
        cache: Path | None = None,
        at_once: int = 8,
        backoff: float = 0.5,
    ) -> None:
        self.model, self.rubric, self.at_once = model, rubric, at_once
        self._address = f"{endpoint.rstrip('/')}/chat/completions"
        self._timeout, self._retries, self._backoff, self._cache = timeout, retries, backoff, cache
        key = os.environ.get(api_key_env, "") if api_key_env else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Certificates take long to load, and a plain address has none to check.
        secure = self._address.startswith("https://")
        # A connection of its own for each request is one that its deadline can end.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(timeout=timeout, headers=headers, verify=secure, limits=limits)
        self._slots = threading.BoundedSemaphore(at_once)
        self._closed = threading.Event()

    @property
    def version(self) -> str:
        """Content hash of the model's name, the rubric and the prompt."""
        return _hash(json.dumps([self.model, self.rubric, PROMPT]), 6)

    def judge(self, task: Task, transcript: Sequence[Line]) -> Verdict:
        """The model's verdict, from the cache where the same was asked before. Raises JudgeFault when there is none."""
        request = {
            "model": self.model,
            "temperature": 0,
            "response_format": {"type": "json_object"},
            "messages": messages(task, transcript, self.rubric),
        }
        body = json.dumps(request)
        kept = self._read(body)
        if kept is not None:
            return kept
        with self._slots:
            verdict = self._ask(body.encode())
        self._keep(body, verdict)
        return verdict

    def close(self) -> None:
        """Close the connections; whoever waits between two attempts gets a JudgeFault at once."""
        self._closed.set()
        self._client.close()

    # Asking ---------------------------------------------------------------------------------------------------

    def _ask(self, body: bytes) -> Verdict:
        """Try until there is a verdict or no attempt is left."""
        attempts, wait = self._retries + 1, 0.0
        for attempt in range(attempts):
            if self._closed.wait(wait):
                break
            try:
                return self._attempt(body)
            except _PassingFault as fault:
                last = str(fault)
                wait = min(LONGEST_WAIT, self._backoff * 2**attempt if fault.wait is None else fault.wait)
        else:
            raise JudgeFault(f"The judge at {self._address} gave no verdict in {attempts} attempts; the last: {last}.")
        raise JudgeFault(f"The judge at {self._address} was closed before it gave a verdict.")

    def _attempt(self, body: bytes) -> Verdict:
        try:
            response, content = self._post(body)
        except httpx.HTTPError as error:
            raise _PassingFault(f"{type(error).__name__}: {error}") from error
        status = response.status_code
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise _PassingFault(f"HTTP {status}", _retry_after(response))
        if status != httpx.codes.OK:
            said = content[:200].decode(errors="replace")
            raise JudgeFault(f"The judge at {self._address} refuses the request: HTTP {status}: {said}")
        try:
            return read_verdict(content)
        except ValueError as error:
            raise _PassingFault(f"malformed answer: {error}") from error

    def _post(self, body: bytes) -> tuple[httpx.Response, bytes]:
        """One request. Raises httpx.HTTPError, also for headers or an answer that drip for longer than the timeout."""
        content = bytearray()
        headers = {"Content-Type": "application/json"}
        with (
            _deadline(self._timeout) as trace,
            self._client.stream(
                "POST", self._address, content=body, headers=headers, extensions={"trace": trace}
            ) as response,
        ):
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > LARGEST_ANSWER:
                    raise httpx.DecodingError(f"the answer is longer than {LARGEST_ANSWER} bytes")
        return response, bytes(content)

    # Keeping --------------------------------------------------------------------------------------------------

    def _path(self, body: str) -> Path | None:
        return None if self._cache is None else self._cache / f"{_hash(self._address + body, 16)}.json"

    def _read(self, body: str) -> Verdict | None:
        """The verdict that was kept; None when there is none, or what is there is damaged."""
        path = self._path(body)
        if path is None:
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=Verdict)
        except (OSError, msgspec.DecodeError):
            return None

    def _keep(self, body: str, verdict: Verdict) -> None:
        """Keep a verdict, whole or not at all."""
        path = self._path(body)
        if path is None:
            return
        # A verdict that cannot be kept is still a verdict.
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(verdict))
            os.replace(name, path)


@contextmanager
def _deadline(seconds: float) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """End the connection of one request after a time, whatever it is doing; httpx limits each read alone.

    Gives the request's `trace`, from which the connection is known. Raises httpx.ReadTimeout.
    """
    passed, sockets = threading.Event(), list[socket.socket]()

    def end() -> None:
        passed.set()
        for connection in sockets:
            with suppress(OSError):
                # Not the method of an encrypted socket, which would lose its state under whoever reads from it.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def trace(event: str, found: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            sockets[:] = [found["return_value"].get_extra_info("socket")]
            if passed.is_set():
                end()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield trace
    except httpx.HTTPError as error:
        if passed.is_set():
            raise httpx.ReadTimeout(f"no whole answer in {seconds:g} seconds") from error
        raise
    finally:
        timer.cancel()


def _hash(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait; None when it says nothing that is a number of seconds."""
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isdecimal() else None
