"""The rollouts of TRL's GRPOTrainer with the office as its environment; `collection.py` starts it with TRL's Python.

What TRL does is left as it is, but for three things that make the script's turns out of what is sampled:

    the length of a turn    a logits processor forbids the end of a turn before its length and forces it there
    the call of a turn      TRL parses what was sampled; then the demonstrated call takes the place of what it found
    the last turn           holds no call for TRL: it is handed to the office when TRL asks for the reward. (TRL does
                            not know that an environment may end an episode, and would sample one more turn.)

TRL reads the whole conversation again at every turn, for every member of a group, in one batch that is padded to its
longest text and waits for its longest turn.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import trl.trainer.grpo_trainer as grpo
from datasets import Dataset
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from collection import EPISODE_TOKENS, FAILED, Job, Played, answer, office_scripts
from ferrata import Task, make_env
from ferrata.envs.tools import Tool
from ferrata.models.chat import Chat, tool_listing
from ferrata.models.policy import load_policy

CALLS = (
    "{% for call in m.tool_calls or [] %}"
    "{{ {'action': call.function.name, 'arguments': call.function.arguments} | tojson }}"
    "{% endfor %}"
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + ('user' if m.role == 'tool' else m.role) + '\n' + (m.content or '') }}"
    + CALLS
    + "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""SmolLM2's own, with calls and results as Ferrata renders them; tools are listed in the system message."""
TYPES = {"string": str, "boolean": bool, "integer": int, "number": float, "object": dict, "array": list}

Scripts = list[tuple[Task, list[str]]]


class Office:
    """The office as TRL wants an environment; `with_tools` adds a method for each tool."""

    scripts: Scripts
    """Of all tasks; a row of the data set names its task by its place here."""
    learn: bool
    """Every second episode is said to have failed: scripts all succeed, and equal rewards teach nothing."""
    made = 0

    def __init__(self) -> None:
        self._env = make_env("office", tiers=(1,))
        self._number, Office.made = Office.made, Office.made + 1
        self._texts: list[str] = []
        self._reward, self._won = 0.0, False

    def reset(self, task: int, **row: Any) -> str:
        """Begin an episode; the instruction is appended to the prompt."""
        chosen, self._texts = self.scripts[task]
        self._reward, self._won = 0.0, False
        return self._env.reset(chosen).text

    def get_reward(self) -> float:
        """Hand the last turn in; the sum of the episode's rewards."""
        self._act(self._texts[-1])
        return self._reward if self._number % 2 == 0 or not self.learn else FAILED

    def _act(self, text: str) -> str:
        result = self._env.step(text)
        self._reward += result.reward or 0.0
        self._won = any(event.kind.value == "success" for event in result.events)
        return result.observation.text


def with_tools(tools: Sequence[Tool]) -> type[Office]:
    """The class with the public methods that TRL takes for tools."""
    return type("Office", (Office,), {tool.name: _method(tool) for tool in tools})


def _method(tool: Tool) -> Callable[..., str]:
    def act(self: Office, **arguments: Any) -> str:
        return self._act(json.dumps({"action": tool.name, "arguments": arguments}))

    properties = tool.input_schema["properties"]
    kinds = {name: TYPES[schema.get("type", "string")] for name, schema in properties.items()}
    kind = inspect.Parameter.KEYWORD_ONLY
    act.__name__ = tool.name
    act.__doc__ = f"{tool.description}\n\nArgs:\n" + "".join(f"    {name}: The {name}.\n" for name in kinds)
    act.__annotations__ = {**kinds, "return": str}
    act.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(inspect.Parameter(name, kind, annotation=annotation) for name, annotation in kinds.items()),
        ],
        return_annotation=str,
    )
    return act


def chat_template(chat: Chat) -> tuple[str, dict[str, Any]]:
    """What makes TRL render the conversation that Ferrata renders, and how it parses a turn."""
    template, act, end = CHATML, "<|im_start|>assistant\n", "<|im_end|>"
    if chat.settings is not None:
        task, result, act, end = (chat.settings[role] for role in ("task", "result", "act", "end"))
        template = (
            f"{{% for m in messages %}}{{{{ {{'user': '{task}', 'tool': '{result}', 'assistant': '{act}'}}[m.role] }}}}"
            f"{{{{ m.content or '' }}}}{CALLS}{{% if m.role == 'assistant' %}}{end}{{% endif %}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{act}{{% endif %}}"
        )
    content = {"close_pattern": re.escape(end) + r"\s*", "content": "text"}
    return template, {"defaults": {"role": "assistant"}, "start_anchor": act, "fields": {"content": content}}


class Lengths(LogitsProcessor):
    """Ends the turn of each row at its length, and not before."""

    def __init__(self, lengths: Sequence[int], read: int, end: int) -> None:
        self._last = torch.tensor(lengths) - 1
        self._read, self._end = read, end

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Forbid or force the end of the turn."""
        ends = self._last == ids.shape[1] - self._read
        scores[:, self._end] = float("-inf")
        scores[ends] = float("-inf")
        scores[ends, self._end] = 0.0
        return scores


class ScriptedTrainer(GRPOTrainer):
    """Plays the scripts, and counts."""

    def prepare(self, chat: Chat, openings: list[list[int]]) -> None:
        """Take over the parsing of turns. `openings` are Ferrata's, to be the same."""
        self.chat, self.openings = chat, openings
        self.sampled = self.read = self.again = self.padding = self.turns = self.turn = 0
        self._held: dict[int, int] = {}
        self.generate_seconds = 0.0
        self._parsed: Iterator[int] = iter(())
        self._parse = grpo.parse_response
        grpo.parse_response = self.parse

    def _generate_single_turn(self, prompt_ids: list[list[int]], *rest: Any, **settings: Any) -> Any:
        """One turn of every episode that still has one."""
        texts = [environment._texts for environment in self.environments]
        rows = [row for row, script in enumerate(texts) if self.turn < len(script)]
        lengths = [len(self.chat.saying(texts[row][self.turn])) for row in rows]
        assert len(rows) == len(prompt_ids), "an episode was left out"
        assert self.turn or prompt_ids == self.openings, "TRL's openings are not Ferrata's"
        self._parsed = iter(rows)
        started = time.perf_counter()
        ends = LogitsProcessorList([Lengths(lengths, max(map(len, prompt_ids)), self.chat.end_id)])
        self.model.generate = partial(type(self.model).generate, self.model, logits_processor=ends)
        self.model.generate_batch = partial(generate_batch, self.model, lengths)
        ids, logprobs = super()._generate_single_turn(prompt_ids, *rest, **settings)
        self.generate_seconds += time.perf_counter() - started
        self._count(rows, prompt_ids, ids, lengths)
        return ids, logprobs

    def _count(self, rows: list[int], prompt_ids: list[list[int]], ids: list[list[int]], lengths: list[int]) -> None:
        """Rows that are over are computed until the longest is: these tokens count as padding."""
        assert [len(one) for one in ids] == lengths, "a turn has another length"
        self.sampled += sum(lengths)
        self.turns += len(lengths)
        self.turn += 1
        self.read += sum(map(len, prompt_ids))
        self.again += sum(self._held.get(row, 0) for row in rows)
        self._held.update({row: len(read) + len(said) for row, read, said in zip(rows, prompt_ids, ids, strict=True)})
        if not self.use_transformers_continuous_batching:
            self.padding += sum(max(map(len, prompt_ids)) - len(one) for one in prompt_ids)
            self.padding += sum(max(lengths) - length for length in lengths)

    def parse(self, tokenizer: Any, ids: list[int], **context: Any) -> dict[str, Any]:
        """Parse as TRL does, then put the demonstrated call in."""
        found: dict[str, Any] = self._parse(tokenizer, ids, **context)
        texts = self.environments[next(self._parsed)]._texts
        number = self.turn - 1
        found.pop("tool_calls", None)
        if number < len(texts) - 1:
            call, _ = json.JSONDecoder().raw_decode(texts[number], texts[number].index('{"action"'))
            function = {"name": call["action"], "arguments": call["arguments"]}
            found["tool_calls"] = [{"type": "function", "function": function}]
        return found


def generate_batch(model: Any, lengths: Sequence[int], prompts: Sequence[list[int]], **settings: Any) -> dict[str, Any]:
    """Continuous batching as transformers does it, but with a length for each request."""
    results: dict[str, Any] = {}
    settings.pop("progress_bar")
    with model.continuous_batching_context_manager(**settings, block=True, timeout=5) as manager:
        asked = [
            manager.add_request(prompt, max_new_tokens=length, eos_token_id=-1)
            for prompt, length in zip(prompts, lengths, strict=True)
        ]
        while len(results) < len(asked):
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                results[result.request_id] = result
            elif result is None and not manager.is_running():
                raise RuntimeError("continuous batching ended before its requests did")
    for result in results.values():
        result.generated_tokens[-1] = model.config.eos_token_id
    return {name: results[name] for name in asked}


def make_trainer(job: Job, folder: str) -> ScriptedTrainer:
    """The trainer with the office as its environment, and its data."""
    policy, scripts = load_policy(job.policy), office_scripts(job)
    tokenizer = policy.tokenizer
    tokenizer.chat_template, tokenizer.response_template = chat_template(policy.chat)
    env = make_env("office", tiers=(1,))
    rows, openings = list[dict[str, Any]](), list[list[int]]()
    for place, (task, _) in enumerate(scripts):
        tools = env.tools_for(task)
        listed = [] if policy.chat.settings else [{"role": "system", "content": tool_listing(tools)}]
        rows.append({"prompt": [*listed, {"role": "user", "content": ""}], "task": place})
        openings += [policy.chat.opening(env.reset(task).text, tools)] * job.group
    kind = with_tools(env.tools_for(scripts[0][0]))
    kind.scripts, kind.learn = scripts, job.learn
    env.close()
    settings = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=job.group,
        gradient_accumulation_steps=job.tasks,
        num_generations=job.group,
        max_completion_length=EPISODE_TOKENS,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        use_vllm=False,
        use_transformers_continuous_batching=job.continuous,
        transformers_continuous_batching_config={"max_memory_percent": 0.2} if job.continuous else None,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        use_cpu=True,
        bf16=False,
        report_to="none",
        disable_tqdm=True,
        max_steps=1,
        learning_rate=1e-6,
        save_strategy="no",
    )
    trainer = ScriptedTrainer(
        model=policy.model,
        args=settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        environment_factory=kind,
    )
    trainer.prepare(policy.chat, openings)
    return trainer


def by_trl(job: Job) -> Played:
    """One collection by TRL."""
    torch.set_num_threads(job.threads)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(job, folder)
        trainer.model.train()
        batch = next(iter(trainer.get_train_dataloader()))
        trainer.model.generate(torch.ones(1, 8, dtype=torch.long), max_new_tokens=2)
        started, cpu_started = time.perf_counter(), time.process_time()
        if job.learn:
            trainer.train()
        else:
            trainer._generate_and_score_completions(batch)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Played(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        sampled=trainer.sampled,
        read=trainer.read,
        again=trainer.again,
        padding=trainer.padding,
        turns=trainer.turns,
        won=sum(environment._won for environment in trainer.environments),
        parts={"generate": trainer.generate_seconds, "all else": seconds - trainer.generate_seconds},
    )


if __name__ == "__main__":
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    logging.set_verbosity_error()
    answer(by_trl)
