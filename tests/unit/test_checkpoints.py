"""A checkpoint is whole or ignored (invariant 10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrata.errors import CheckpointError
from ferrata.runs import Checkpoints, broken, seal


def writer(text: str):
    def write(folder: Path) -> None:
        (folder / "weights").mkdir()
        (folder / "weights" / "model.bin").write_text(text)
        (folder / "optimizer.bin").write_text(text * 2)

    return write


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", keep=3)


def test_what_was_saved_is_loaded(checkpoints: Checkpoints) -> None:
    path = checkpoints.save("rl-40", writer("w"), {"step": 40, "stream": [3, [1, 2], None]})
    latest = checkpoints.latest()
    assert latest is not None
    assert (latest.path, latest.name, latest.state) == (path, "rl-40", {"step": 40, "stream": [3, [1, 2], None]})
    assert (latest.path / "weights" / "model.bin").read_text() == "w"


def test_the_newest_is_found_by_number_not_by_name(checkpoints: Checkpoints) -> None:
    for name in ("sft-300", "rl-9", "rl-10"):
        checkpoints.save(name, writer(name), {})
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.name == "rl-10"


def test_none_yet(checkpoints: Checkpoints) -> None:
    assert checkpoints.latest() is None


def test_only_the_newest_are_kept(checkpoints: Checkpoints) -> None:
    for step in range(5):
        checkpoints.save(f"rl-{step}", writer("w"), {})
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["000003-rl-2", "000004-rl-3", "000005-rl-4"]


def damage_by_one_byte(path: Path) -> None:
    (path / "weights" / "model.bin").write_text("x")


def damage_by_cutting(path: Path) -> None:
    (path / "optimizer.bin").write_text("")


def damage_by_removing(path: Path) -> None:
    (path / "optimizer.bin").unlink()


def damage_by_adding(path: Path) -> None:
    (path / "extra").write_text("")


def damage_state(path: Path) -> None:
    (path / "state.json").write_text('{"step": 3}')


def damage_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("{")


def empty_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("[]")


def remove_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damage_by_one_byte,
        damage_by_cutting,
        damage_by_removing,
        damage_by_adding,
        damage_state,
        damage_manifest,
        empty_manifest,
        remove_manifest,
    ],
)
def test_a_damaged_checkpoint_is_ignored_with_a_note(checkpoints: Checkpoints, damage) -> None:
    checkpoints.save("rl-1", writer("w"), {"step": 1})
    damage(checkpoints.save("rl-2", writer("w"), {"step": 2}))
    notes: list[str] = []
    latest = checkpoints.latest(notes.append)
    assert latest is not None
    assert latest.name == "rl-1"
    assert len(notes) == 1
    assert notes[0].startswith("Checkpoint 000002-rl-2 is ignored: ")


def test_numbers_go_on_after_a_damaged_one(checkpoints: Checkpoints) -> None:
    remove_manifest(checkpoints.save("rl-1", writer("w"), {}))
    assert checkpoints.save("rl-1", writer("w"), {}).name == "000002-rl-1"


def test_where_checkpoints_are_and_none_is_whole_nothing_is_begun_anew(checkpoints: Checkpoints) -> None:
    checkpoints.refuse_loss()
    first, second = (checkpoints.save(f"rl-{step}", writer("w"), {"step": step}) for step in (1, 2))
    (first / "w").write_bytes(b"other")
    checkpoints.refuse_loss()
    (second / "more").write_text("")
    with pytest.raises(CheckpointError, match=r"000002-rl-2: more was altered or torn; 000001-rl-1: w was altered"):
        checkpoints.refuse_loss()


def test_a_sealed_folder_is_known_to_be_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")
    assert broken(tmp_path) == "it was not finished"
    seal(tmp_path)
    assert broken(tmp_path) is None
    (tmp_path / "weights").write_bytes(b"abd")
    assert broken(tmp_path) == "weights was altered or torn"
