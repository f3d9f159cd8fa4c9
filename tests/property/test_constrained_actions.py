"""Whatever a constrained policy wants to say, it says one well-formed action (docs/sampling.md)."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrata.envs.actions import Fault, Malformed, parse
from ferrata.envs.tools import Effect, Tool
from ferrata.models.policy import Policy
from ferrata.rollout.worlds import make_env
from ferrata.sampling.constraining import Constraints
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import ActionsOnly

NAMES = st.sampled_from(["path", "to", "größe", 'a "b"', "n"])
PLAIN = st.one_of(
    st.just({"type": "string"}),
    st.just({"type": "boolean"}),
    st.just({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    st.sampled_from([{"type": "integer"}, {"type": "number"}, {"type": "array", "items": {"type": "integer"}}]),
    st.builds(
        lambda kind, low, span: {"type": kind, "minimum": low, "maximum": low + span},
        st.sampled_from(["integer", "number"]),
        st.integers(-1000, 1000),
        st.integers(0, 500),
    ),
    st.builds(lambda names: {"enum": names}, st.lists(st.sampled_from(["a", "ab", 3, True]), min_size=1, unique=True)),
    st.builds(
        lambda low, span: {"type": "string", "minLength": low, "maxLength": low + span}, *[st.integers(0, 9)] * 2
    ),
)


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with named keys, some of them optional."""
    return st.dictionaries(NAMES, values, max_size=4).flatmap(
        lambda properties: st.builds(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            },
            st.lists(st.sampled_from(sorted(properties)), unique=True) if properties else st.just([]),
        )
    )


def arrays(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda items, least, span: {"type": "array", "items": items, "minItems": least, "maxItems": least + span},
        values,
        st.integers(0, 2),
        st.integers(0, 2),
    )


SCHEMAS = objects(st.recursive(PLAIN, lambda inner: objects(inner) | arrays(inner), max_leaves=5))


def tool(name: str, schema: dict[str, Any]) -> Tool:
    return Tool(name, "Something.", Effect.READ, schema, {"type": "string"})


def say(constraints: Constraints, policy: Policy, stream: torch.Generator, budget: int | None) -> tuple[list[int], int]:
    """One turn of a policy whose logits are noise, and its budget: that of the shortest actions when None."""
    constraints.begin(0, [1], 10**6)
    turn = constraints._turns[0]
    size, most = turn.grammar.vocabulary.size, budget or turn.grammar.reserve
    said: list[int] = []
    while len(said) < most and not (said and said[-1] in policy.chat.stop_ids):
        left = [most - len(said)]
        noise = torch.rand((1, size), generator=stream)
        admitted = constraints.bar(noise, [0], left)
        tokens, logprobs = admitted.argmax(dim=-1).numpy(), np.zeros(1)
        constraints.follow([0], tokens, logprobs, left)
        said.append(int(tokens[0]))
    return said, most


def check(text: str, tools: list[Tool]) -> None:
    found = parse(text, {tool.name: tool for tool in tools})
    # To confirm what cannot be undone is the agent's to decide.
    assert not isinstance(found, Malformed) or found.fault is Fault.UNCONFIRMED, (text, found)
    assert "\ufffd" not in text[text.index("{") :], "a character was cut in its middle"


@settings(max_examples=25, deadline=None)
@given(st.lists(SCHEMAS, min_size=1, max_size=3), st.integers(0, 2**32), st.sampled_from([None, 60, 150]))
def test_noise_becomes_a_well_formed_action_within_its_budget(
    tiny_policy: Policy, schemas: list[dict[str, Any]], seed: int, budget: int | None
) -> None:
    tools = [tool(f"tool_{number}", schema) for number, schema in enumerate(schemas)]
    constraints = Constraints(tiny_policy, "turn")
    constraints.open(0, ActionsOnly(tuple(tools)))
    stream = torch.Generator().manual_seed(seed)
    for _ in range(2):
        said, most = say(constraints, tiny_policy, stream, budget)
        text = tiny_policy.chat.text(said)
        if budget is None or most >= constraints._turns[0].grammar.reserve:
            check(text, tools)
            assert said[-1] in tiny_policy.chat.stop_ids


def tool_sets(name: str, tier: int) -> list[list[Tool]]:
    """What the tasks of a tier offer, each set once."""
    with closing(make_env(name, tier=tier)) as env:
        found = [list(env.tools_for(task)) for task in env.tasks("train", 30)]
    return list({tuple(tool.name for tool in tools): tools for tools in found}.values())


@pytest.mark.parametrize(("name", "tier"), [("office", 1), ("office", 2), ("office", 3), ("support", 1)])
def test_turns_of_a_random_model_are_actions_of_the_tools_of_the_task(
    tiny_policy: Policy, name: str, tier: int
) -> None:
    sets = tool_sets(name, tier)
    chosen = {key: sets[key % len(sets)] for key in range(12)}
    sampler = LocalSampler(tiny_policy, len(chosen), 160)
    for key, tools in chosen.items():
        sampler.open(key, key, 1.0, ActionsOnly(tuple(tools)))
        sampler.submit(key, [1, 2, 3], 150)
    ended = 0
    while ended < len(chosen):
        for done in sampler.advance():
            assert done.stopped
            check(tiny_policy.chat.text(done.token_ids), chosen[done.key])
            ended += 1
