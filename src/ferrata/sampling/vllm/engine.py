"""vLLM's engine inside this process: no other process to wait for, and the learner's tensors within reach.

    start_engine     an engine without weights; `weights.send` brings them
    stop_engine      release it, so that another can be started
    turn_settings    what one turn is sampled with
    undisturbed      keep the process's random streams and threads as they are

vLLM sets process-wide state as it starts and as it runs: random seeds, the number of threads, even the function that
sets that number. A learner lives in the same process, so all of it is put back.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from ferrata.errors import PolicyError, boundary

BLOCK = 32
"""Tokens of one block of the key-value store: the smallest that vLLM's attention on CPUs accepts. What an episode has
read is kept in whole blocks, so this bounds what a turn reads again."""

TEMPERATURES = (0.01, 2.0)
"""Lowest and highest temperature, beside 0.0, that vLLM samples at. It would raise a lower one without a fault."""

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
"""One process; its threads not bound to cores, which others use as well; nothing reported to anybody; quiet."""


class Engine(Protocol):
    """The part of vLLM's engine that sampling uses."""

    def add_request(self, request_id: str, prompt: Mapping[str, Any], params: Any) -> str:
        """Queue a turn."""

    def abort_request(self, request_ids: list[str]) -> None:
        """Take turns out, wherever they stand."""

    def step(self) -> Sequence[Any]:
        """Compute one token of every turn that has room; the finished turns."""

    def reset_prefix_cache(self) -> bool:
        """Forget all keys and values; False when some are in use."""

    def collective_rpc(self, method: str | Callable[[Any], Any], **arguments: Any) -> list[Any]:
        """Call a method of every worker, or a function on it; here there is one worker."""


def refuse_without_vllm() -> None:
    """Raise PolicyError where vLLM is not installed."""
    if find_spec("vllm") is None:
        raise PolicyError("vLLM is not installed here. docs/vllm.md says how to install it in its own environment.")


def start_engine(
    folder: Path, *, slots: int, max_length: int, dtype: torch.dtype, cache_bytes: int, eager: bool
) -> Engine:
    """Start an engine for the model that `folder`'s config.json describes, with arbitrary weights.

    Args:
        folder: holds config.json; no weights and no tokenizer are read.
        slots: turns at once.
        max_length: tokens of one episode in all.
        dtype: of weights, keys and values.
        cache_bytes: size of the key-value store.
        eager: run the model as it is written; False compiles it first, which takes a minute.

    Raises:
        PolicyError: vLLM is not installed, or cannot run this model here.
    """
    refuse_without_vllm()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with undisturbed(), warnings.catch_warnings(), boundary(PolicyError, "starting vLLM"):
        warnings.simplefilter("ignore")  # those of vLLM's own imports say nothing to who uses it
        from vllm import EngineArgs, LLMEngine

        arguments = EngineArgs(
            model=str(folder),
            dtype=str(dtype).removeprefix("torch."),
            max_model_len=max_length,
            max_num_seqs=slots,
            block_size=BLOCK,
            kv_cache_memory_bytes=cache_bytes,
            enable_prefix_caching=True,
            logprobs_mode="processed_logprobs",
            load_format="dummy",
            skip_tokenizer_init=True,
            generation_config="vllm",
            enforce_eager=eager,
            disable_log_stats=True,
        )
        engine: Engine = LLMEngine.from_engine_args(arguments)
        return engine


def stop_engine(engine: Engine) -> None:
    """Release the engine and vLLM's process-wide state."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    with undisturbed():
        engine.engine_core.shutdown()  # type: ignore[attr-defined]
        cleanup_dist_env_and_memory()


def turn_settings(*, seed: int, temperature: float, budget: int, stop_ids: Sequence[int], stepwise: bool) -> Any:
    """Sampling parameters of one turn: the whole distribution at this temperature, cut nowhere.

    Only `stop_ids` and the budget end the turn. The log-probability of each sampled id comes with it, under the
    distribution it was drawn from; at temperature 0.0 that is temperature 1, as in `sampling.draw`. A turn comes whole,
    or `stepwise`, each step with its new tokens.
    """
    from vllm.sampling_params import RequestOutputKind

    from vllm import SamplingParams

    return SamplingParams(
        seed=seed,
        temperature=temperature,
        max_tokens=budget,
        stop_token_ids=list(stop_ids),
        ignore_eos=True,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA if stepwise else RequestOutputKind.FINAL_ONLY,
    )


def block_bytes(config: Any, dtype: torch.dtype) -> int:
    """Size of one block of the key-value store, all layers of a transformers configuration together."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(2 * text.num_hidden_layers * heads * head_dim * BLOCK * dtype.itemsize)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put the random streams and the thread settings of this process back at the end."""
    streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads = set_threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        torch.set_rng_state(streams[2])
