"""A dry run refuses what the run itself would refuse at its start, though it samples nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrata.cli.main import app


@pytest.fixture(autouse=True)
def _without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrata.sampling.vllm.engine.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["rollout.sampler=vllm"], "vLLM is not installed here."),
        (["rollout.episodes_at_once=1000000000"], "lower rollout.episodes_at_once"),
        (["policy.lora_rank=4", 'policy.lora_targets=["q_prj"]'], "Did you mean 'q_proj'?"),
        (
            ["judge.kind=model", "judge.endpoint=http://x", "judge.model=y", "judge.api_key_env=FERRATA_NO_KEY"],
            "judge.api_key_env names FERRATA_NO_KEY, which is not set",
        ),
    ],
)
def test_what_cannot_be_sampled_or_judged_is_refused(tmp_path: Path, overrides: list[str], sentence: str) -> None:
    arguments = ["train", "office-smoke", "--dry-run", *overrides, "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert list(tmp_path.iterdir()) == []


def test_constraints_without_their_package_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    arguments = ["train", "office-smoke", "--dry-run", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*arguments, "evaluation.constrained=true"])
    assert result.exit_code == 2
    assert "needs the package llguidance" in result.output


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["rollout.temperature=2.5"], "vLLM cannot sample at temperature 2.5"),
        (["evaluation.constrained=true"], "works with rollout.sampler = 'local' alone"),
    ],
)
def test_what_vllm_does_not_sample_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], sentence: str
) -> None:
    monkeypatch.setattr("ferrata.sampling.vllm.engine.find_spec", lambda name: object())
    arguments = ["train", "office-smoke", "--dry-run", "rollout.sampler=vllm", *overrides]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert sentence in result.output
