"""Constrained decoding: which tokens are admitted, what is stored, and that nobody else notices."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ferrata.envs.actions import Fault, Malformed, parse
from ferrata.envs.tools import Effect, Tool
from ferrata.evaluation.evaluate import evaluate
from ferrata.evaluation.results import decode, encode, summarise
from ferrata.models.chat import token_chat
from ferrata.models.policy import Policy, load_policy
from ferrata.models.tokenizer import CHAT, build_tokenizer
from ferrata.recipe import RolloutSection
from ferrata.records import Action
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import EnvironmentSpec
from ferrata.sampling.action_grammar import grammar_of
from ferrata.sampling.constraining import Constraints, ToolGrammar, Vocabulary
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import ActionsOnly, Completion

FORM = {fault.value for fault in Fault} - {Fault.REFUSED, Fault.UNCONFIRMED}


def tool(name: str, properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Tool(name, "Something.", Effect.READ, {**schema, **more}, {"type": "string"})


TEXT = {"type": "string"}
SEND = tool("send", {"to": TEXT, "size": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}, ("to",))
ONLY = ActionsOnly((SEND,))


@pytest.fixture(scope="module")
def vocabulary(tiny_policy: Policy) -> Vocabulary:
    return Vocabulary(tiny_policy)


def accepts(vocabulary: Vocabulary, text: str, *tools: Tool) -> bool:
    """True when the text can be said, and is complete."""
    matcher = ToolGrammar(vocabulary, tools or (SEND,)).begin(acting=False)
    ids = vocabulary.plain.encode(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def turns(sampler: LocalSampler, *keys: int) -> dict[int, Completion]:
    done: dict[int, Completion] = {}
    while len(done) < len(keys):
        done |= {completion.key: completion for completion in sampler.advance()}
    return done


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "send", "arguments": {"to": "x"}}',
        'Now I }know: {"action":"send","arguments":{"to":"Grüße {\\n}","size":-12,"kind":"b"}}',
        '\n{ "action" : "send" , "arguments" : { "to" : "" } }',
    ],
)
def test_actions_are_admitted(vocabulary: Vocabulary, text: str) -> None:
    assert accepts(vocabulary, text)
    assert isinstance(parse(text, {"send": SEND}), Action)


@pytest.mark.parametrize(
    "text",
    [
        "Only thinking.",
        '{"action": "send", "arguments": {}}',
        '{"action": "sent", "arguments": {"to": "x"}}',
        '{"action": "send", "arguments": {"to": 3}}',
        '{"action": "send", "arguments": {"to": "x", "size": 1.5}}',
        '{"action": "send", "arguments": {"to": "x", "size": 99999999999999999999}}',
        '{"action": "send", "arguments": {"to": "x", "kind": "c"}}',
        '{"action": "send", "arguments": {"to": "x", "more": 1}}',
        '{"action": "send", "arguments": {"to": "x", "to": "y"}}',
        '{"action": "send", "arguments": {"to": "\\ud800"}}',
        '{"action": "send", "arguments": {"to": "x"}, "more": 1}',
        '{"a": 1} {"action": "send", "arguments": {"to": "x"}}',
        '{"action": "send", "arguments": {"to": "x"}} {"action": "send", "arguments": {"to": "x"}}',
        '{"action": "send", "arguments": {"to": "x"}} Done.',
    ],
)
def test_anything_else_is_not(vocabulary: Vocabulary, text: str) -> None:
    assert not accepts(vocabulary, text)


def test_where_a_schema_says_nothing_numbers_and_nesting_are_bounded(vocabulary: Vocabulary) -> None:
    free = tool("free", {"x": {}, "y": {"type": "array"}, "z": {"type": "object"}}, additionalProperties=True)
    deep = '{"a": ' * 20 + "1" + "}" * 20
    for said, admitted in [
        ('"x": 1.5', True),
        ('"x": null, "y": [1, "a"], "z": {"k": [true]}, "w": 0', True),
        ('"x": 1e999', False),
        ('"y": [1e999]', False),
        ('"z": {"k": 99999999999999999999}', False),
        (f'"z": {deep}', False),
    ]:
        text = f'{{"action": "free", "arguments": {{{said}}}}}'
        assert accepts(vocabulary, text, free) is admitted, text
        assert isinstance(parse(text, {"free": free}), Action) >= admitted


def test_confirming_is_left_to_the_agent(vocabulary: Vocabulary) -> None:
    final = replace(tool("final", {"confirm": {"type": "boolean"}}), effect=Effect.IRREVERSIBLE)
    assert accepts(vocabulary, '{"action": "final", "arguments": {}}', final)
    assert accepts(vocabulary, '{"action": "final", "arguments": {"confirm": true}}', final)


def test_logprobs_are_those_of_the_masked_distribution(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[torch.Tensor] = []
    bar = Constraints.bar

    def watched(self: Constraints, logits: torch.Tensor, *rest: Any) -> torch.Tensor:
        masked.append(bar(self, logits, *rest))
        admitted = masked[-1].isfinite()
        assert torch.equal(masked[-1][admitted], logits[admitted]), "what is admitted keeps its logits"
        assert not admitted.all()
        return masked[-1]

    monkeypatch.setattr(Constraints, "bar", watched)
    sampler = LocalSampler(tiny_policy, 1, 160)
    sampler.open(0, 3, 0.7, ONLY)
    sampler.submit(0, [1, 2, 3], 140)
    done = turns(sampler, 0)[0]
    said = list(zip(masked, done.token_ids, done.logprobs, strict=True))
    expected = [float((logits[0] / 0.7).log_softmax(-1)[token]) for logits, token, _ in said]
    free = [place for place, (_, _, logprob) in enumerate(said) if logprob != 0.0]
    assert len(free) > 10
    np.testing.assert_allclose([done.logprobs[place] for place in free], [expected[place] for place in free], atol=1e-5)
    greedy = LocalSampler(tiny_policy, 1, 160)
    masked.clear()
    greedy.open(0, 0, 0.0, ONLY)
    greedy.submit(0, [1, 2, 3], 150)
    [token] = {turn.token_ids[0] for turn in turns(greedy, 0).values()}
    assert token == int(masked[0].argmax())


def test_neighbours_do_not_notice(tiny_policy: Policy) -> None:
    def play(constrained: bool) -> dict[int, Completion]:
        sampler = LocalSampler(tiny_policy, 4, 160)
        for key in range(4):
            sampler.open(key, key, 1.0, ONLY if constrained and key == 1 else None)
            sampler.submit(key, [5 + key, 6, 7], 40)
        return turns(sampler, *range(4))

    alone, beside = play(False), play(True)
    assert alone[1] != beside[1]
    for key in (0, 2, 3):
        assert alone[key].token_ids == beside[key].token_ids
        # Turns of other lengths make batches of other sizes, whose rounding differs.
        np.testing.assert_allclose(alone[key].logprobs, beside[key].logprobs, atol=1e-5)


def test_rows_of_other_episodes_keep_their_bits(tiny_policy: Policy, vocabulary: Vocabulary) -> None:
    constraints = Constraints(tiny_policy, "turn")
    constraints.open(7, ONLY)
    logits = torch.randn(3, vocabulary.size)
    tokens, logprobs = np.array([4, 40, 5]), np.array([-1.0, -2.0, -3.0])
    masked = constraints.bar(logits, [6, 7, 8], [1, 10**6, 1])
    constraints.follow([6, 7, 8], tokens, logprobs, [1, 10**6, 1])
    assert torch.equal(masked[[0, 2]], logits[[0, 2]])
    assert masked[1].isinf().any()
    assert tokens.tolist() == [4, 40, 5]
    assert logprobs.tolist() == [-1.0, -2.0, -3.0]


def test_nothing_is_done_while_no_episode_is_constrained(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = LocalSampler(tiny_policy, 2, 160)
    sampler.open(0, 0, 1.0, ONLY)
    sampler.close(0)
    for name in ("bar", "follow"):
        monkeypatch.delattr(Constraints, name)
    sampler.open(1, 0, 1.0)
    sampler.submit(1, [1, 2], 5)
    assert turns(sampler, 1)


def say(constraints: Constraints, vocabulary: Vocabulary, text: str, budget: int = 10**6) -> None:
    for token in vocabulary.plain.encode(text):
        constraints.follow([0], np.array([token]), np.zeros(1), [budget])


def admitted(constraints: Constraints, vocabulary: Vocabulary, left: int = 10**6) -> set[int]:
    logits = constraints.bar(torch.zeros(1, vocabulary.size), [0], [left])
    return set(logits[0].isfinite().nonzero().flatten().tolist())


def test_control_tokens_are_never_part_of_an_action(tiny_policy: Policy, vocabulary: Vocabulary) -> None:
    constraints = Constraints(tiny_policy, "turn")
    constraints.open(0, ONLY)
    control = set(tiny_policy.tokenizer.added_tokens_decoder)
    assert len(control) == 5
    for piece in ["Hm ", '{"action": "se', 'nd", "arguments": {"to": "a', "b", '", "size": 1']:
        say(constraints, vocabulary, piece)
        assert not control & admitted(constraints, vocabulary), piece
    say(constraints, vocabulary, "}}")
    assert admitted(constraints, vocabulary) == set(tiny_policy.chat.stop_ids)


def test_only_bytes_that_complete_a_character_follow_half_of_one(tiny_policy: Policy, vocabulary: Vocabulary) -> None:
    constraints = Constraints(tiny_policy, "turn")
    constraints.open(0, ONLY)
    say(constraints, vocabulary, '{"action": "send", "arguments": {"to": "')
    first, second = vocabulary.plain.encode("é")
    constraints.follow([0], np.array([first]), np.zeros(1), [10**6])
    left = admitted(constraints, vocabulary)
    assert second in left
    assert all(0x80 <= byte < 0xC0 for byte in vocabulary.tokens.decode_bytes(sorted(left)))


def test_a_model_that_marks_its_thinking_may_do_so_before_the_action() -> None:
    marked = build_tokenizer(["word"], ["ka"])
    marks = ["<|task|>", "<|result|>", "<|act|>", "<think>", "</think>"]
    marked.add_special_tokens({"additional_special_tokens": marks})
    marked.add_tokens(["[CALL]"])  # A control token that does not say that it is special.
    begin, end, call = marked.convert_tokens_to_ids(["<think>", "</think>", "[CALL]"])
    model = load_policy("base").model
    policy = Policy("marked", model, marked, token_chat(marked, CHAT))
    vocabulary, constraints = Vocabulary(policy), Constraints(policy, "turn")
    constraints.open(0, ONLY)
    assert {begin, end} <= admitted(constraints, vocabulary)
    constraints.follow([0], np.array([begin]), np.zeros(1), [10**6])
    say(constraints, vocabulary, 'Hm. {"action": "send", "arguments": {"to": "')
    assert not {begin, end, call} & admitted(constraints, vocabulary)


def test_after_the_hand_over_the_action_begins(tiny_policy: Policy, vocabulary: Vocabulary) -> None:
    constraints = Constraints(tiny_policy, "turn")
    constraints.open(0, replace(ONLY, thinking_tokens=20))
    constraints.begin(0, [1, 2], 20)
    say(constraints, vocabulary, "ka" * 20, budget=1)
    constraints.begin(0, tiny_policy.chat.hand_over, 40)
    assert admitted(constraints, vocabulary) == {
        token
        for token in range(vocabulary.size)
        if '{"action":"send"'.startswith(found := vocabulary.tokens.decode_str([token]).replace(" ", "")) and found
    }


def test_what_thinking_has_left_is_no_reason_to_hurry(tiny_policy: Policy, vocabulary: Vocabulary) -> None:
    for thinking_tokens, hurries in [(20, False), (0, True)]:
        constraints = Constraints(tiny_policy, "turn")
        constraints.open(0, replace(ONLY, thinking_tokens=thinking_tokens))
        constraints.begin(0, [1, 2], 20)
        assert (vocabulary.plain.encode("ka")[0] not in admitted(constraints, vocabulary, 5)) is hurries


def test_the_json_object_ends_the_turn_where_the_recipe_says_so(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 1, 160, "json")
    sampler.open(0, 1, 1.0, ONLY)
    sampler.submit(0, [1, 2, 3], 150)
    done = turns(sampler, 0)[0]
    text = tiny_policy.chat.text(done.token_ids)
    assert done.stopped
    assert text.endswith("}")
    assert not set(done.token_ids) & tiny_policy.chat.stop_ids
    assert not isinstance(parse(text, {"send": SEND}), Malformed)


def test_a_turn_after_a_turn_is_constrained_again(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 1, 160)
    sampler.open(0, 2, 1.0, ONLY)
    for _ in range(2):
        sampler.submit(0, [1, 2, 3], 60)
        done = turns(sampler, 0)[0]
        assert not isinstance(parse(tiny_policy.chat.text(done.token_ids), {"send": SEND}), Malformed)


def test_a_set_of_tools_is_compiled_once(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr("ferrata.sampling.constraining.grammar_of", lambda *rest: made.append("") or grammar_of(*rest))
    constraints = Constraints(tiny_policy, "turn")
    for key in range(5):
        constraints.open(key, ONLY)
    assert len(made) == 2, "with and without thinking"
    constraints.open(5, ActionsOnly((SEND, tool("look", {}))))
    assert len(made) == 4


def test_the_base_model_says_no_malformed_action() -> None:
    policy, worlds = load_policy("base"), EnvironmentSpec("office", (1, 2))
    budgets = RolloutSection(episodes_at_once=8, max_turns=3)
    collector = Collector(LocalSampler(policy, 8, 512), worlds, policy.chat, budgets)
    faults: dict[bool, int] = {}
    with closing(worlds()) as env, closing(collector):
        for constrained in (False, True):
            result, episodes = evaluate(collector, env, tasks=8, constrained=constrained)
            found = [event.name for episode in episodes for turn in episode.turns for event in turn.events]
            faults[constrained] = sum(name in FORM for name in found)
            assert result.constrained is constrained
            assert decode(encode(result)) == result
            assert {episode.constrained for episode in episodes} == {constrained}
    assert faults[False] > faults[True] == 0


def test_an_older_result_is_one_without_constraint(make_trajectory: Any) -> None:
    content = encode(summarise([make_trajectory()]))
    del content["constrained"]
    assert not decode(content).constrained


@pytest.mark.parametrize(
    ("schema", "admitted", "barred"),
    [
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, ["0.25", "0.5"], ["0", "-0", "0.0"]),
        ({"exclusiveMinimum": 0, "maximum": 0.5}, ["0.25", '"x"'], ["0"]),
        ({"type": ["number", "integer"], "exclusiveMinimum": 0, "maximum": 0.5}, ["0.25"], ["0"]),
        ({"type": "number", "minimum": -1, "exclusiveMaximum": 0}, ["-0.5"], ["0", "-0"]),
        ({"type": "integer", "minimum": -5, "exclusiveMaximum": 0}, ["-1"], ["0", "-0"]),
        ({"enum": [2**63, 1]}, ["1"], ["9223372036854775808", "9223372036854776000"]),
        ({"enum": ["\ud83d", "x"]}, ['"x"'], []),
        ({"properties": {"b": {"type": "integer"}}}, ['{"b": 1}'], ['{"b": 99999999999999999999}']),
        ({"type": "string", "pattern": "^a{1,2}-\\d?$"}, ['"a-"', '"aa-7"'], ['"a"', '"a-\u0664"']),
        ({"type": "string", "format": "email"}, ['"x"'], []),
        (True, ["[1]"], []),
    ],
)
def test_no_value_is_admitted_that_the_parser_refuses(
    vocabulary: Vocabulary, schema: Any, admitted: list[str], barred: list[str]
) -> None:
    odd = tool("odd", {"x": schema}, ("x",))
    for said in [*admitted, *barred]:
        text = f'{{"action": "odd", "arguments": {{"x": {said}}}}}'
        assert accepts(vocabulary, text, odd) is (said in admitted), text
        assert isinstance(parse(text, {"odd": odd}), Action) >= (said in admitted), text


@pytest.mark.parametrize("schema", [{}, {"type": ["object", "string"]}, {"anyOf": [TEXT, {"type": "object"}]}])
def test_arguments_are_an_object_whatever_else_a_schema_admits(vocabulary: Vocabulary, schema: dict[str, Any]) -> None:
    bare = Tool("bare", "Bare.", Effect.READ, schema, {"type": "string"})
    assert accepts(vocabulary, '{"action": "bare", "arguments": {"a": 1}}', bare)
    for said in ("true", '"x"', "[]"):
        assert not accepts(vocabulary, f'{{"action": "bare", "arguments": {said}}}', bare)


LONG = "y" * 90


@pytest.mark.parametrize(
    "value",
    [{"enum": ["x", LONG]}, {"type": "string", "minLength": 90}, {"type": "string", "pattern": "^[a-y]{90}$"}],
)
def test_what_has_begun_still_ends_within_the_turn(
    tiny_policy: Policy, vocabulary: Vocabulary, value: dict[str, Any]
) -> None:
    """An optional argument is begun when only just enough room is left, or too little."""
    long = tool("long", {"x": value})
    for budget in (60, 80, 100):
        constraints = Constraints(tiny_policy, "turn")
        constraints.open(0, ActionsOnly((long,)))
        constraints.begin(0, [1], budget)
        wanted = vocabulary.plain.encode(f'ka ka ka {{"action": "long", "arguments": {{"x": "{LONG}"}}}}')
        said: list[int] = []
        while len(said) < budget and not (said and said[-1] in tiny_policy.chat.stop_ids):
            logits = torch.zeros(1, vocabulary.size)
            logits[0, wanted[len(said) : len(said) + 1]] = 9.0
            drawn = constraints.bar(logits, [0], [budget - len(said)]).argmax(dim=-1).numpy()
            constraints.follow([0], drawn, np.zeros(1), [budget - len(said)])
            said.append(int(drawn[0]))
        assert said[-1] in tiny_policy.chat.stop_ids, tiny_policy.chat.text(said)
        assert isinstance(parse(tiny_policy.chat.text(said), {"long": long}), Action)
