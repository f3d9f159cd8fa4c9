"""VllmSampler: the sampler protocol over vLLM's engine.

Each turn is one request: all ids of the episode so far go in, sampled ids come out, and nothing is ever turned into
text. The engine runs all waiting turns together, one token a step; a turn joins when it is submitted and leaves when
it is over. What an episode has read stays in the engine's prefix cache, in whole blocks, and is not read again.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from ferrata.errors import SamplerFault, UsageError, boundary
from ferrata.models.policy import Policy
from ferrata.sampling.closing import Closings
from ferrata.sampling.protocol import ActionsOnly, Completion, SamplerClock
from ferrata.sampling.vllm.engine import (
    BLOCK,
    TEMPERATURES,
    Engine,
    block_bytes,
    start_engine,
    stop_engine,
    turn_settings,
    undisturbed,
)
from ferrata.sampling.vllm.weights import send
from ferrata.seeds import derive


@dataclass
class _Episode:
    key: int
    seed: int
    temperature: float
    ids: list[int] = field(default_factory=list)
    """Everything read and written so far."""
    turns: int = 0
    """Turns asked for."""
    request: str | None = None
    """The engine's name of the turn under way."""
    since: float = 0.0
    """When that turn was asked for."""
    tokens: list[int] = field(default_factory=list)
    """What it has so far."""
    logprobs: list[float] = field(default_factory=list)


class VllmSampler:
    """Samples with vLLM in this process. Fulfils `protocol.Sampler`; close it with `shutdown`, or use it in a `with`.

    One at a time in a process: vLLM keeps parts of its state there.

    An episode's draws depend on its seed, its turn and its own logits. Those are computed by kernels whose rounding
    depends on the size of the batch, so its neighbours can still change a token where two are nearly equally good.

    Args:
        policy: the learner's; its weights are sent now, and again by each `publish`.
        slots: episodes at once.
        max_length: tokens of one episode in all; the model's own context bounds it as well.
        stop: what ends a turn before its budget does, as in `LocalSampler`.
        dtype: what the engine computes in, float32 or bfloat16.
        eager: False compiles the model at the start (a minute), for longer runs.
        turn_seconds: the longest that a turn may take. Looked at after every step of the engine: a step that itself
            never returns is not noticed here.

    Raises:
        PolicyError: vLLM is not installed, or cannot run this model, or the policy's tokenizer cannot say where a JSON
            object ends.
        SamplerFault: the weights did not arrive in the engine.
    """

    def __init__(
        self,
        policy: Policy,
        slots: int,
        max_length: int,
        stop: Literal["turn", "json"] = "turn",
        *,
        dtype: torch.dtype = torch.float32,
        eager: bool = True,
        turn_seconds: float = 600.0,
    ) -> None:
        self.max_length = min(max_length, policy.context)
        self.version = 0
        self.clock = SamplerClock()
        self.prefilled = 0
        """Tokens that the engine has read in all, those read again included."""
        self._model, self._dtype, self._slots = policy.model, dtype, slots
        self._stops = sorted(policy.chat.stop_ids)
        self._closings = Closings(policy.tokenizer) if stop == "json" else None
        self._turn_seconds = turn_seconds
        self._episodes: dict[int, _Episode] = {}
        self._waiting: dict[str, _Episode] = {}
        self._unread = 0
        self._sound = True
        self._engine: Engine = self._start(eager)
        self.checksum = send(self._engine, self._model, dtype)
        """Joint checksum of the weights that sample, as read back from the engine."""

    def _start(self, eager: bool) -> Engine:
        """An engine made from the model's configuration alone, with room for all slots at full length."""
        blocks = self._slots * (math.ceil(self.max_length / BLOCK) + 1) + 1
        with tempfile.TemporaryDirectory(prefix="ferrata-vllm-") as folder:
            self._model.config.save_pretrained(folder)
            return start_engine(
                Path(folder),
                slots=self._slots,
                max_length=self.max_length,
                dtype=self._dtype,
                cache_bytes=blocks * block_bytes(self._model.config, self._dtype),
                eager=eager,
            )

    def __enter__(self) -> VllmSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Release the engine; open episodes are forgotten."""
        self._episodes.clear()
        self._waiting.clear()
        self._sound = False
        stop_engine(self._engine)

    @property
    def free(self) -> int:
        """Episodes that can be opened now."""
        return self._slots - len(self._episodes)

    def open(self, key: int, seed: int, temperature: float, only: ActionsOnly | None = None) -> None:
        """Begin an episode. `seed` decides all its draws; temperature 0.0 is greedy; `only` is refused.

        Raises:
            UsageError: vLLM does not sample at this temperature, or the episode should be constrained.
            SamplerFault: the engine does not hold the published weights.
        """
        assert self.free > 0, "no slot is free"
        assert key not in self._episodes, f"episode {key} is open already"
        refuse_episode(temperature, only)
        if not self._sound:
            raise SamplerFault("This vLLM engine does not hold the published weights: nothing may be sampled with it.")
        self._episodes[key] = _Episode(key, seed, temperature)

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        """Append new ids to the episode and ask for its next turn of at most `max_new_tokens` tokens.

        Without new ids the last turn goes on.
        """
        episode = self._episodes[key]
        assert episode.request is None, f"episode {key} is still in a turn"
        assert min(len(ids) + len(episode.ids), max_new_tokens) > 0, "a turn needs something to read and room to answer"
        total = len(episode.ids) + len(ids) + max_new_tokens
        assert total <= self.max_length, f"{total} tokens do not fit in {self.max_length}"
        self._unread += len(ids)
        episode.ids.extend(ids)
        episode.request, episode.since = f"{key}-{episode.turns}", time.monotonic()
        episode.tokens, episode.logprobs = [], []
        if self._closings is not None and ids:
            self._closings.begin(key)
        settings = turn_settings(
            seed=derive(episode.seed, "turn", episode.turns),
            temperature=episode.temperature,
            budget=max_new_tokens,
            stop_ids=self._stops,
            stepwise=self._closings is not None,
        )
        episode.turns += 1
        self._waiting[episode.request] = episode
        with boundary(SamplerFault, "handing a turn to vLLM"):
            self._engine.add_request(episode.request, {"prompt_token_ids": list(episode.ids)}, settings)

    def advance(self) -> list[Completion]:
        """Take one step for all episodes that wait for a turn; return the turns that it finished.

        Raises:
            SamplerFault: the engine failed, gave up a turn, or has not finished one in `turn_seconds`.
        """
        if not self._waiting:
            return []
        began = time.perf_counter()
        with undisturbed(), boundary(SamplerFault, "sampling with vLLM"):
            outputs = self._engine.step()
        self._count(time.perf_counter() - began)
        turns = [self._take(output) for output in outputs if output.request_id in self._waiting]
        self._check_patience()
        return [completion for completion in turns if completion is not None]

    def close(self, key: int) -> None:
        """Forget the episode, also in the middle of a turn."""
        episode = self._episodes.pop(key)
        if self._closings is not None:
            self._closings.forget(key)
        if episode.request is not None:
            del self._waiting[episode.request]
            self._engine.abort_request([episode.request])

    def publish(self, version: int) -> None:
        """The weights have changed: send them, prove that they arrived, forget what was read with the old ones.

        Raises:
            SamplerFault: they did not arrive. The sampler opens no episode any more.
        """
        assert not self._episodes, "publish() while episodes are open"
        self._sound = False
        self.checksum = send(self._engine, self._model, self._dtype)
        if not self._engine.reset_prefix_cache():
            raise SamplerFault("vLLM did not forget what it had read with the old weights.")
        self._sound, self.version = True, version

    # One turn ---------------------------------------------------------------------------------------------------

    def _take(self, output: Any) -> Completion | None:
        """Write down what a turn has got; return it when it is over."""
        episode, result = self._waiting[output.request_id], output.outputs[0]
        tokens = list(result.token_ids)
        given_up = output.finished and result.finish_reason not in ("stop", "length")
        if given_up or list(result.logprobs.token_ids) != tokens:
            raise SamplerFault(f"vLLM gave up turn {output.request_id}: {result.finish_reason}.")
        closed = self._closed(episode.key, tokens)
        episode.tokens += tokens[:closed]
        episode.logprobs += list(result.logprobs.logprobs)[:closed]
        if closed is None and not output.finished:
            return None
        if not output.finished:
            self._engine.abort_request([output.request_id])
        self.prefilled += len(output.prompt_token_ids) - (output.num_cached_tokens or 0)
        del self._waiting[output.request_id]
        episode.request = None
        episode.ids.extend(episode.tokens)
        stopped = closed is not None or result.finish_reason == "stop"
        return Completion(episode.key, episode.tokens, episode.logprobs, stopped)

    def _closed(self, key: int, tokens: Sequence[int]) -> int | None:
        """How many of the new tokens a turn keeps because its action is complete with the last of them, else None."""
        if self._closings is None:
            return None
        return next((place for place, token in enumerate(tokens, 1) if self._closings.closes(key, token)), None)

    def _count(self, seconds: float) -> None:
        """Split a step's time by its tokens: those handed over since the last step, and one for each other turn."""
        share = self._unread / (self._unread + len(self._waiting))
        self._unread = 0
        self.clock = SamplerClock(self.clock.prefill + share * seconds, self.clock.decode + (1.0 - share) * seconds)

    def _check_patience(self) -> None:
        late = [
            name for name, episode in self._waiting.items() if time.monotonic() - episode.since > self._turn_seconds
        ]
        if late:
            raise SamplerFault(f"vLLM has not finished turn {late[0]} within {self._turn_seconds:g} seconds.")


def refuse_episode(temperature: float, only: ActionsOnly | None) -> None:
    """Raise UsageError for an episode that vLLM does not sample."""
    if only is not None:
        raise UsageError("Constrained decoding works with rollout.sampler = 'local' alone, not with vLLM.")
    lowest, highest = TEMPERATURES
    if temperature != 0.0 and not lowest <= temperature <= highest:
        raise UsageError(f"vLLM cannot sample at temperature {temperature}: use 0.0, or {lowest} to {highest}.")
