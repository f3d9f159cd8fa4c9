"""Chat templates of the kinds in use: what was read and said stays as it is, whatever the template would rewrite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from transformers import PreTrainedTokenizerFast

from ferrata.models.chat import Chat, template_chat
from ferrata.models.tokenizer import build_tokenizer

CONTROL = [
    "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>",
    "<start_of_turn>", "<end_of_turn>", "<bos>", "[INST]", "[/INST]", "</s>", "<s>", "<think>", "</think>",
]  # fmt: skip

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}" + CHATML
)
FORGETS_THINKING = (
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set text = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in text and loop.index0 < ns.last %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + text + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OPENS_THINKING = FORGETS_THINKING.replace("'<|im_start|>assistant\n'", "'<|im_start|>assistant\n<think>\n'")
HEADERS = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
INSTRUCTIONS = (
    "{{ '<s>' }}{% set ns = namespace(system='') %}{% if messages[0].role == 'system' %}"
    "{% set ns.system = messages[0].content + '\n\n' %}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}"
    "{% if loop.last %}{{ '[INST] ' + ns.system + m.content + '[/INST]' }}"
    "{% else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}"
    "{% elif m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{{ '<bos>' }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
TEMPLATES = {
    "chatml": (CHATML, "<|im_end|>", "<|im_start|>assistant\n"),
    "default system": (DEFAULT_SYSTEM, "<|im_end|>", "<|im_start|>assistant\n"),
    "forgets thinking": (FORGETS_THINKING, "<|im_end|>", "<|im_start|>assistant\n"),
    "opens thinking": (OPENS_THINKING, "<|im_end|>", "<|im_start|>assistant\n<think>\n"),
    "headers": (HEADERS, "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "instructions": (INSTRUCTIONS, "</s>", "[/INST]"),
    "no system": (NO_SYSTEM, "<end_of_turn>", "<start_of_turn>model\n"),
}


@pytest.fixture(scope="module")
def plain() -> PreTrainedTokenizerFast:
    made = build_tokenizer(["word"], ["ka", "lo"])
    made.add_special_tokens({"additional_special_tokens": CONTROL})
    return made


@pytest.fixture(params=TEMPLATES)
def kind(request: pytest.FixtureRequest, plain: PreTrainedTokenizerFast) -> Iterator[tuple[Chat, str, str]]:
    """The chat of a template, the text of its end token, and that of the hand-over to the agent."""
    template, end, act = TEMPLATES[request.param]
    plain.chat_template = template
    yield template_chat(plain), end, act
    plain.chat_template = None


def said(tokenizer: PreTrainedTokenizerFast, text: str, end: str) -> list[int]:
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.convert_tokens_to_ids(end)]


def test_a_conversation_is_appended_and_each_segment_is_the_templates(
    kind: tuple[Chat, str, str], plain: PreTrainedTokenizerFast
) -> None:
    chat, end, act = kind
    assert plain.convert_ids_to_tokens(chat.end_id) == end
    ids = chat.opening("word one", [])
    assert plain.decode(ids).endswith(act)
    for number in range(3):
        before = list(ids)
        ids += said(plain, f"ka {number}", end) + chat.following(f"lo {number}", closed=True)
        assert ids[: len(before)] == before
        assert plain.decode(ids).endswith(act)
    text = plain.decode(ids)
    places = [text.index(part) for part in ("word one", "ka 0", "lo 0", "ka 1", "lo 1", "ka 2", "lo 2")]
    assert places == sorted(places)
    between = [text[text.index(f"ka {n}") + 4 : text.index(f"lo {n}")] for n in range(3)]
    assert len(set(between)) == 1
    assert between[0].startswith(end)


@pytest.mark.parametrize("name", ["chatml", "default system", "forgets thinking", "headers", "no system"])
def test_without_thinking_the_whole_is_what_the_template_renders(name: str, plain: PreTrainedTokenizerFast) -> None:
    plain.chat_template, end, _ = TEMPLATES[name]
    chat = template_chat(plain)
    opening = chat.opening("word one", [])
    mine = [*opening, *said(plain, "ka", end), *chat.following("lo", closed=True)]
    shown = plain.decode(opening).split("word one")[0]
    listing = shown[shown.index("You finish") : shown.index("These are the tools:\n") + len("These are the tools:\n")]
    rest = [
        {"role": "user", "content": "word one"},
        {"role": "assistant", "content": "ka"},
        {"role": "user", "content": "lo"},
    ]
    if name == "no system":
        messages = [{"role": "user", "content": f"{listing}\n\nword one"}, *rest[1:]]
    else:
        messages = [{"role": "system", "content": listing}, *rest]
    rendered = plain.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    # Some templates trim what they are given, which is no matter for ids that are read once.
    assert plain.decode(mine).replace("tools:\n", "tools:") == str(rendered).replace("tools:\n", "tools:")
    plain.chat_template = None


def test_fault_9_thinking_that_a_template_would_drop_stays_read(plain: PreTrainedTokenizerFast) -> None:
    plain.chat_template = FORGETS_THINKING
    chat = template_chat(plain)
    turn = said(plain, "<think>lo lo</think>\nka", "<|im_end|>")
    ids = [*chat.opening("word", []), *turn, *chat.following("lo", closed=True)]
    messages = [
        {"role": "user", "content": "word"},
        {"role": "assistant", "content": "<think>lo lo</think>\nka"},
        {"role": "user", "content": "lo"},
    ]
    rendered = str(plain.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    assert "lo lo" not in rendered  # the template rewrites what was said
    assert "<think>lo lo</think>\nka<|im_end|>" in plain.decode(ids)
    assert plain.decode(ids).endswith(rendered[rendered.index("ka<|im_end|>") :])
    plain.chat_template = None


@pytest.mark.parametrize("most", [12, 20, 33])
def test_a_long_observation_is_cut_in_tokens_with_a_note(plain: PreTrainedTokenizerFast, most: int) -> None:
    plain.chat_template = CHATML
    chat = template_chat(plain)
    around = len(chat.following("", closed=True))
    whole = "é€" * 40
    count = len(chat.following(whole, closed=True)) - around
    ids = chat.following(whole, True, most)
    text = plain.decode(ids)
    assert f"[cut: {count} tokens, too long]" in text
    assert "�" not in text
    assert len(ids) - around <= max(
        most, len(chat.following(f"\n[cut: {count} tokens, too long]", closed=True)) - around
    )
    assert chat.following("word", True, most) == chat.following("word", closed=True)
    plain.chat_template = None
