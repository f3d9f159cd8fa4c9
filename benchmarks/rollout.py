"""How fast turns are sampled, with a small model and with a real one, against transformers' own `generate`.

    python benchmarks/rollout.py [--sections tiny smollm2] [--rounds 3] [--episodes 32] [--turns 3] [--dtype float32]
                                 [--vllm-python .venv-vllm/bin/python]

Every section plays the same prompts and budgets by each contender in turn and prints medians and ratios of one run.

    tiny      the base model, 64 episodes at once: Ferrata's sampler, and the same with transformers' forward pass; and
              what the machine's arithmetic and memory alone would need for it
    smollm2   SmolLM2-135M, office episodes of several turns: Ferrata's sampler against `generate`, which reads the
              whole conversation again at every turn, in one padded batch; and against vLLM, where the Python of an
              environment that has it is given (see benchmarks/vllm_sampler.py)

An episode is a script taken from a demonstration: its opening, and after each turn its observation. What is sampled is
not looked at, and a turn is as long as the demonstrated one, so that every contender does the same work.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ferrata import make_env
from ferrata.models.policy import Policy, load_policy, save_policy
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.passes import model_pass
from ferrata.sampling.protocol import Sampler


@dataclass
class Script:
    """What one episode reads, and how long its turns are."""

    reads: list[list[int]]
    """Opening, then the observation before each further turn, as ids."""
    turns: list[int]
    """Tokens of each turn."""

    @property
    def tokens(self) -> int:
        """Tokens of the whole episode."""
        return sum(map(len, self.reads)) + sum(self.turns)


@dataclass
class Result:
    """What one contender did with all scripts."""

    seconds: float
    cpu_seconds: float
    sampled: int
    read: int
    shared: int = 0

    @property
    def rate(self) -> float:
        """Sampled tokens a second of wall time."""
        return self.sampled / self.seconds


def endless(name: str) -> Policy:
    """A policy whose turns end with their budgets alone."""
    policy = load_policy(name)
    policy.chat.stop_ids = frozenset()
    return policy


def office_scripts(policy: Policy, episodes: int, turns: int, group: int) -> list[Script]:
    """Scripts of office tasks, `group` episodes of each task; at most `turns` turns."""
    env = make_env("office", tiers=(1,))
    scripts = []
    for task in env.tasks("train", -(-episodes // group), seed=1):
        texts = env.demonstrate(task, random.Random(1), 0.0)
        reads = [policy.chat.opening(env.reset(task).text, env.tools_for(task))]
        for text in texts[: turns - 1]:
            result = env.step(text)
            if result.terminated or result.truncated:
                break
            reads.append(policy.chat.following(result.observation.text, closed=True))
        lengths = [len(policy.chat.saying(text)) for text in texts[: len(reads)]]
        scripts.extend([Script(reads, lengths)] * group)
    env.close()
    return scripts[:episodes]


def play(sampler: Sampler, scripts: Sequence[Script], at_once: int) -> int:
    """Play every script; return the number of sampled tokens."""
    waiting, turn, sampled = list(enumerate(scripts)), dict[int, int](), 0
    while waiting or turn:
        while waiting and len(turn) < at_once:
            key, script = waiting.pop(0)
            turn[key] = 0
            sampler.open(key, key, 1.0)
            sampler.submit(key, script.reads[0], script.turns[0])
        for done in sampler.advance():
            sampled += len(done.token_ids)
            script, number = scripts[done.key], turn[done.key] + 1
            turn[done.key] = number
            if number < len(script.reads):
                sampler.submit(done.key, script.reads[number], script.turns[number])
            else:
                sampler.close(done.key)
                del turn[done.key]
    return sampled


def by_sampler(policy: Policy, scripts: Sequence[Script], at_once: int, plain: bool = False) -> Result:
    """Ferrata's sampler; `plain` makes it use transformers' forward pass."""
    sampler = LocalSampler(policy, at_once, max(script.tokens for script in scripts) + 1)
    if plain:
        sampler.forward = partial(model_pass, policy.model)
    started, cpu_started = time.perf_counter(), time.process_time()
    sampled = play(sampler, scripts, at_once)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Result(seconds, cpu_seconds, sampled, sampler.counts.read, sampler.counts.shared)


@torch.inference_mode()
def by_generate(policy: Policy, scripts: Sequence[Script], at_once: int) -> Result:
    """`generate` over all conversations in one padded batch, turn after turn."""
    histories: list[list[int]] = [[] for _ in scripts]
    sampled = read = 0
    started, cpu_started = time.perf_counter(), time.process_time()
    for number in range(max(len(script.reads) for script in scripts)):
        rows = [row for row, script in enumerate(scripts) if number < len(script.reads)]
        for begin in range(0, len(rows), at_once):
            batch = rows[begin : begin + at_once]
            for row in batch:
                histories[row].extend(scripts[row].reads[number])
            read += sum(len(histories[row]) for row in batch)
            new = generate(policy, [histories[row] for row in batch], max(scripts[row].turns[number] for row in batch))
            for row, ids in zip(batch, new, strict=True):
                # The batch waits for its longest turn; what is beyond an episode's own is thrown away.
                kept = ids[: scripts[row].turns[number]]
                histories[row].extend(kept)
                sampled += len(kept)
    return Result(time.perf_counter() - started, time.process_time() - cpu_started, sampled, read)


def by_vllm(python: str, policy: Policy, scripts: Sequence[Script], dtype: str) -> Result:
    """The same through vLLM, in a process of its own; starting it is not counted, nor is its processor time."""
    with tempfile.TemporaryDirectory() as folder:
        save_policy(policy, Path(folder) / "policy")
        request = {
            "policy": str(Path(folder) / "policy"),
            "dtype": dtype,
            "slots": len(scripts),
            "max_length": max(script.tokens for script in scripts) + 1,
            "stop": False,
            "episodes": [
                {
                    "seed": seed,
                    "turns": [
                        {"ids": ids, "budget": budget} for ids, budget in zip(script.reads, script.turns, strict=True)
                    ],
                }
                for seed, script in enumerate(scripts)
            ],
        }
        command = [python, str(Path(__file__).with_name("vllm_sampler.py"))]
        answer = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True).stdout
    measured = json.loads(answer[answer.index("{") :])
    return Result(measured["seconds"], float("nan"), measured["generated"], measured["prefilled"])


def generate(policy: Policy, histories: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """`count` sampled ids after each history, padded on the left as transformers asks for."""
    width = max(map(len, histories))
    ids = torch.tensor([[0] * (width - len(history)) + list(history) for history in histories])
    mask = torch.tensor([[0] * (width - len(history)) + [1] * len(history) for history in histories])
    made = policy.model.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=count,
        min_new_tokens=count,
        pad_token_id=0,
    )
    return [row[width:].tolist() for row in made]


def compare(contenders: dict[str, Callable[[], Result]], rounds: int, scripts: Sequence[Script]) -> dict[str, Result]:
    """Run the contenders alternately; print and return the median round of each."""
    results: dict[str, list[Result]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            results[name].append(contender())
    total = sum(script.tokens for script in scripts)
    medians = {}
    for name, found in results.items():
        median = medians[name] = sorted(found, key=lambda result: result.rate)[len(found) // 2]
        cpu = statistics.median(result.sampled / result.cpu_seconds for result in found)
        ratio = (median.read + median.sampled) / total
        print(
            f"  {name:24s} {median.rate:9,.0f} sampled tokens/s ({cpu:,.0f} a CPU second); read {median.read:,}, "
            f"shared {median.shared:,}; read and sampled {ratio:.2f} x the tokens of the episodes"
        )
    return medians


def tiny(arguments: argparse.Namespace) -> None:
    """The base model, 64 episodes at once."""
    policy, at_once = endless("base"), 64
    scripts = office_scripts(policy, 192, 30, group=8)
    print(f"tiny: base model, {len(scripts)} office episodes, {at_once} at once (8,000 tokens/s asked for)")
    contenders = {
        "sampler": partial(by_sampler, policy, scripts, at_once),
        "plain forward pass": partial(by_sampler, policy, scripts, at_once, plain=True),
    }
    medians = compare(contenders, arguments.rounds, scripts)
    print(f"  ratio {medians['sampler'].rate / medians['plain forward pass'].rate:.2f}")
    seconds = bound(policy, scripts, medians["sampler"])
    print(
        f"  arithmetic and memory alone would allow {medians['sampler'].sampled / seconds:,.0f} sampled tokens/s: "
        f"the sampler reaches {seconds / medians['sampler'].seconds:.0%} of that"
    )


def bound(policy: Policy, scripts: Sequence[Script], result: Result) -> float:
    """Seconds that the arithmetic of the matrices and the reading of keys and values alone need on this machine.

    Both rates are measured here and now, with the threads of the run: products of the shape of a step, and the sum of
    an array that is larger than every cache.
    """
    config = policy.model.config.get_text_config()
    matrices = sum(p.numel() for p in policy.model.parameters() if p.ndim == 2)
    operations = 2 * matrices * (result.read + result.sampled)
    stored = 2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    bytes_read = sum(stored * position for script in scripts for position in sampled_positions(script))
    x, matrix = torch.randn(64, config.hidden_size), torch.randn(config.intermediate_size, config.hidden_size)
    large = torch.randn(2**26)
    per_operation = quickest(lambda: torch.nn.functional.linear(x, matrix), 200) / (2 * 64 * matrix.numel())
    per_byte = quickest(large.sum, 5) / large.nbytes
    print(f"  this machine: {1e-9 / per_operation:.0f} GFLOP/s in products of a step, {1e-9 / per_byte:.1f} GB/s read")
    return operations * per_operation + bytes_read * per_byte


def sampled_positions(script: Script) -> list[int]:
    """Places of the sampled tokens in their episode."""
    places, start = [], 0
    for read, count in zip(script.reads, script.turns, strict=True):
        start += len(read)
        places += range(start, start + count)
        start += count
    return places


def quickest(work: Callable[[], object], times: int) -> float:
    """Seconds of the quickest of some calls."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def smollm2(arguments: argparse.Namespace) -> None:
    """SmolLM2-135M against `generate`."""
    policy = endless("smollm2-135m")
    policy.model.to(getattr(torch, arguments.dtype))
    scripts = office_scripts(policy, arguments.episodes, arguments.turns, group=8)
    print(f"smollm2: {arguments.dtype}, {len(scripts)} office episodes at once, up to {arguments.turns} turns each")
    contenders = {
        "sampler": partial(by_sampler, policy, scripts, len(scripts)),
        "transformers.generate": partial(by_generate, policy, scripts, len(scripts)),
    }
    if arguments.vllm_python:
        contenders["vLLM"] = partial(by_vllm, arguments.vllm_python, policy, scripts, arguments.dtype)
    medians = compare(contenders, arguments.rounds, scripts)
    for name, asked in (("transformers.generate", 2.5), ("vLLM", 1.3)):
        if name in medians:
            print(f"  {medians['sampler'].rate / medians[name].rate:.2f} x {name} ({asked} asked for)")


SECTIONS = {"tiny": tiny, "smollm2": smollm2}


def processor() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=32, help="of the section smollm2")
    parser.add_argument("--turns", type=int, default=3, help="of an episode of the section smollm2")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--vllm-python", default="", help="Python of an environment that has vLLM")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{processor()}, {arguments.threads} threads, torch {torch.__version__}, Python {platform.python_version()}")
    for name in arguments.sections:
        SECTIONS[name](arguments)


if __name__ == "__main__":
    main()
