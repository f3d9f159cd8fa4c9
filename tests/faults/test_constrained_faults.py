"""What cannot be constrained is refused in words, before anything is sampled; and so is what may not be trained."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from ferrata.envs import Environment
from ferrata.envs.tools import Effect, Tool
from ferrata.errors import PolicyError, TaskError, UsageError
from ferrata.learning.preparation import prepare
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RlSection, RolloutSection
from ferrata.records import Group, Trajectory
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collector import Collector
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import ActionsOnly
from ferrata.sampling.vllm.sampler import VllmSampler

TOOLS = (Tool("look", "Look.", Effect.READ, {"type": "object", "properties": {}}, {"type": "string"}),)


def opening(policy: Policy, tools: tuple[Tool, ...] = TOOLS) -> LocalSampler:
    sampler = LocalSampler(policy, 2, 100)
    sampler.open(0, 0, 0.0, ActionsOnly(tools))
    return sampler


def test_without_llguidance_it_says_what_to_install(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UsageError, match=r"pip install 'ferrata\[constrained\]'"):
        opening(tiny_policy)


def test_a_refused_episode_leaves_its_slot_free(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = LocalSampler(tiny_policy, 1, 100)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UsageError):
        sampler.open(0, 0, 0.0, ActionsOnly(TOOLS))
    sampler.open(0, 0, 0.0)
    sampler.submit(0, [1, 2], 1)
    assert sampler.advance()


def test_a_tokenizer_of_words_is_refused_in_words(tiny_policy: Policy) -> None:
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")))
    with pytest.raises(PolicyError, match="'tiny' cannot be constrained: its tokenizer does not say which bytes"):
        opening(replace(tiny_policy, tokenizer=words))


def test_a_tokenizer_that_changes_texts_is_refused(
    tiny_policy: Policy, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrata.sampling.constraining.PlainText.encode", lambda self, text: [1, 2, 3])
    with pytest.raises(PolicyError, match="a text does not come back as it was"):
        opening(tiny_policy)


def test_a_tokenizer_of_the_slow_kind_is_refused(tiny_policy: Policy) -> None:
    with pytest.raises(PolicyError, match="fast kind"):
        opening(replace(tiny_policy, tokenizer=object()))


def test_a_schema_that_cannot_be_held_to_is_refused_with_the_name_of_its_tool(tiny_policy: Policy) -> None:
    odd = Tool("odd", "Odd.", Effect.READ, {"type": "object", "unevaluatedProperties": False}, {"type": "string"})
    with pytest.raises(TaskError, match=r"arguments of tool 'odd' cannot be constrained: .*unevaluatedProperties"):
        opening(tiny_policy, (*TOOLS, odd))


def test_vllm_refuses_constrained_episodes() -> None:
    sampler = object.__new__(VllmSampler)
    vars(sampler).update(_slots=1, _episodes={}, _sound=True)
    with pytest.raises(UsageError, match=r"rollout\.sampler = 'local' alone"):
        sampler.open(0, 0, 0.0, ActionsOnly(TOOLS))


@pytest.fixture
def collected(tiny_policy: Policy, errand: type[Environment], script: Any, saying: Any) -> Any:
    def collect(**settings: Any) -> list[Group]:
        budgets = RolloutSection(max_turns=2, max_tokens_per_turn=60)
        sampler = script(lambda key, number: saying("say", word="ka"), slots=4)
        collector = Collector(sampler, lambda: errand(score=RewardSpec(RewardSection())), tiny_policy.chat, budgets)
        [task] = errand().tasks("train", 1)
        groups = collector.collect([(task, 4)], 0, temperature=1.0, **settings).groups
        collector.close()
        return groups

    return collect


def test_training_refuses_what_was_sampled_under_a_constraint(collected: Any) -> None:
    assert prepare(collected(), RlSection())
    with pytest.raises(UsageError, match=r"4 trajectories were sampled under a constraint .* not the policy's"):
        prepare(collected(constrained=True), RlSection())


def test_one_constrained_trajectory_is_enough_to_refuse(collected: Any) -> None:
    [group] = collected()
    one = msgspec.structs.replace(group.trajectories[0], constrained=True)
    with pytest.raises(UsageError, match="1 trajectories"):
        prepare([Group(group.task, [*group.trajectories[1:], one])], RlSection())


def test_the_constraint_is_stored_and_older_episodes_are_without(collected: Any) -> None:
    [group] = collected(constrained=True)
    content = msgspec.to_builtins(group.trajectories[0])
    assert msgspec.convert(content, Trajectory).constrained
    del content["constrained"]
    assert not msgspec.convert(content, Trajectory).constrained


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string", "pattern": "b+"}, "'b\\+' does not bound the text"),
        ({"type": "string", "pattern": "^[a-z]+b$"}, "does not bound the text"),
        ({"type": "string", "pattern": "^a|b$"}, "does not bound the text"),
        ({"type": "object", "patternProperties": {"^x": True}}, "does not name its keys"),
        ({"type": "number", "multipleOf": 0.1}, "'multipleOf' 0.1 is no whole number"),
        ({"enum": [2**63]}, "none of the values of an 'enum'"),
    ],
)
def test_what_might_never_end_or_be_refused_later_is_refused_now(
    tiny_policy: Policy, schema: dict[str, Any], why: str
) -> None:
    arguments = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    odd = Tool("odd", "Odd.", Effect.READ, arguments, {"type": "string"})
    with pytest.raises(TaskError, match=rf"arguments of tool 'odd' cannot be constrained: .*{why}"):
        opening(tiny_policy, (*TOOLS, odd))


def test_arguments_that_are_no_object_are_refused(tiny_policy: Policy) -> None:
    odd = Tool("odd", "Odd.", Effect.READ, {"type": "string"}, {"type": "string"})
    with pytest.raises(TaskError, match="tool 'odd' cannot be constrained: they are of type string"):
        opening(tiny_policy, (odd,))
