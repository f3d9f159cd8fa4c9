"""A recipe is loaded as it is meant, or refused in one sentence that says what to write instead."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferrata.errors import RecipeError, UnknownNameError, UsageError
from ferrata.recipe import Recipe
from ferrata.recipe_loading import dump_recipe, flatten, known_keys, load_recipe, shipped_recipes


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_loads_under_its_own_name(name: str) -> None:
    assert load_recipe(name).name == name


def test_overrides_are_applied_in_order_and_read_as_toml() -> None:
    recipe = load_recipe(
        "office-smoke", ["rl.updates=3", "rl.updates=4", "env.tiers=[2]", "rl.kl = 1", "rl.normalise=false"]
    )
    assert (recipe.rl.updates, recipe.env.tiers, recipe.rl.kl, recipe.rl.normalise) == (4, (2,), 1.0, False)


def test_a_value_that_is_no_toml_is_taken_as_text() -> None:
    recipe = load_recipe("office-smoke", ["policy.model=models/my model", "description=a = b"])
    assert recipe.policy.model == "models/my model"
    assert recipe.description == "a = b"


def test_an_override_cannot_smuggle_in_a_second_key() -> None:
    assert load_recipe("office-smoke", ["description=1\nseed = 9"]).seed == 0


def test_a_file_without_a_name_is_called_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "my recipe.toml"
    file.write_text("[rl]\nupdates = 2\n")
    assert load_recipe(str(file)).name == "my-recipe"


def test_dump_reads_back_as_the_same_recipe_and_explains_its_keys(tmp_path: Path) -> None:
    recipe = load_recipe(
        "office-smoke", ['description="quotes \\" back \\\\ tab \\t bell \\u007f é 🙂"', "rl.learning_rate=1e-7"]
    )
    file = tmp_path / "copy.toml"
    file.write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(str(file)) == recipe
    assert "group_size = 4  # Episodes of the same task" in file.read_text(encoding="utf-8")


def dotted(content: dict[str, Any], above: str = "") -> Iterator[str]:
    """The names of all settings, with those of their sections."""
    for key, value in content.items():
        yield from dotted(value, f"{above}{key}.") if value and isinstance(value, dict) else [above + key]


def test_the_dump_holds_every_key() -> None:
    content = tomllib.loads(dump_recipe(load_recipe("office-smoke")))
    assert set(dotted(content)) == set(known_keys())
    assert set(flatten(load_recipe("office-smoke"))) == set(known_keys())


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("rl.update=40", "Unknown key 'rl.update'. Did you mean 'rl.updates'?"),
        ("updates=40", "Unknown key 'updates'. Did you mean 'rl.updates'?"),
        ("rl=3", "'rl' is a section: set a key inside it, for example 'rl.algorithm'."),
        ("rl.updates=many", "Wrong value for 'rl.updates': \"many\"; expected a whole number."),
        ("rl.updates=true", "Wrong value for 'rl.updates': true; expected a whole number."),
        ("rl.updates=0.5", "Wrong value for 'rl.updates': 0.5; expected a whole number."),
        ("rl.updates=-1", "Wrong value for 'rl.updates': -1; expected a number of at least 0."),
        ("rl.normalise=1", "Wrong value for 'rl.normalise': 1; expected true or false."),
        ("rl.kl=nan", "Wrong value for 'rl.kl': nan; expected a finite number."),
        (
            "rl.algorithm=a2c",
            "Wrong value for 'rl.algorithm': \"a2c\"; expected one of 'grpo', 'rloo', 'reinforce++', 'gigpo' or 'ppo'.",
        ),
        ("env.tiers=1", "Wrong value for 'env.tiers': 1; expected a list."),
        ("env.tiers=[]", "Wrong value for 'env.tiers': []; expected a list that is not empty."),
        ("env.tiers=[1, 4]", "Wrong value for 'env.tiers.1': 4; expected a number of at most 3."),
        ("policy.model=1", "Wrong value for 'policy.model': 1; expected a text."),
        ("rl.learning_rate=0", "Wrong value for 'rl.learning_rate': 0; expected a number greater than 0."),
        ("rollout.temperature=0", "Wrong value for 'rollout.temperature': 0; expected a number of at least 0.01."),
        (
            "rollout.temperature=1e-40",
            "Wrong value for 'rollout.temperature': 1e-40; expected a number of at least 0.01.",
        ),
        ("rollout.temperature=1e39", "Wrong value for 'rollout.temperature': 1e+39; expected a number of at most 100."),
        ("rl.updates", "'rl.updates' is not an override: write KEY=VALUE, for example rl.updates=40."),
    ],
)
def test_wrong_overrides_are_refused_in_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("office-smoke", [override])
    assert str(caught.value) == sentence


def test_a_name_with_nothing_near_lists_the_sections() -> None:
    with pytest.raises(RecipeError, match="Known sections: env, evaluation, judge, ladder, policy"):
        load_recipe("office-smoke", ["zzz=1"])


@pytest.mark.parametrize("name", ["../outside", "", ".hidden", "a" * 81, "two words"])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="'name'"):
        load_recipe("office-smoke", [f'name="{name}"'])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[rl]\nupdate = 4\n", "Unknown key 'rl.update'. Did you mean 'rl.updates'?"),
        ("[rll]\n", "Unknown key 'rll'."),
        ("rl = 4\n", "'rl' is a section"),
        ("seed = {}\n", "Wrong value for 'seed'"),
        ("[seed]\nx = 1\n", "Unknown key 'seed.x'. Did you mean 'seed'?"),
        ("[rl\n", "is not valid TOML"),
        ("description = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_wrong_files_are_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(str(file))
    assert sentence in str(caught.value)


def test_an_empty_section_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_text("[rl]\n")
    assert load_recipe(str(file)) == Recipe(name="empty")


def test_unknown_recipes_are_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'office-quickstart'"):
        load_recipe("office-quikstart")
    with pytest.raises(UnknownNameError, match="There is no recipe file"):
        load_recipe(str(tmp_path / "none.toml"))


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.toml").mkdir()
    for name in ("binary.toml", "folder.toml"):
        with pytest.raises(RecipeError, match="cannot be read"):
            load_recipe(str(tmp_path / name))


KEYS = st.sampled_from(sorted(known_keys()))
VALUES = st.one_of(
    st.text(),
    st.sampled_from(
        ["[" * 2000, "0x" + "f" * 5000, "9" * 5000, "nan", "{a={b=1}}", "2024-01-01", "'''", "\ud800", "1e999"]
    ),
    st.integers().map(str),
    st.floats().map(str),
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.builds("{}={}".format, KEYS, VALUES), st.builds("{}.{}=1".format, KEYS, st.text())))
@example("seed=" + "[" * 100_000)
@example("=")
@example("rl.=1")
@example(".=1")
@example("env.tiers=[" + "[1]," * 300 + "]")
def test_no_override_raises_anything_but_a_usage_error(override: str) -> None:
    try:
        outcome = dump_recipe(load_recipe("office-smoke", [override]))
    except UsageError as error:
        outcome = str(error)
    assert outcome.endswith((".", "?", "\n"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ('stages=["sft", "rl", "sft"]', "each stage can be there once"),
        ('stages=["rl", "sft"]', "sft comes before rl"),
        ("ladder.gate=1.0", "ladder.gate.*a number less than 1"),
        ("rl.staleness=true", "rl.staleness.*a whole number"),
        ("evaluation.tasks_small=500", "evaluation.tasks_small = 500 is more than evaluation.tasks = 200"),
    ],
)
def test_values_that_contradict_one_another_are_refused(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe("office-quickstart", [override])


def test_the_policy_of_a_run_is_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "base").mkdir()
    monkeypatch.chdir(tmp_path)
    asked = {"mine": str(tmp_path / "mine"), str(tmp_path / "mine"): str(tmp_path / "mine"), "base": "base"}
    asked |= {"nowhere": "nowhere", "a" * 300: "a" * 300}
    for model, kept in asked.items():
        assert load_recipe("office-smoke", [f"policy.model={model}"]).policy.model == kept


def test_a_recipe_is_called_after_its_file_as_far_as_a_name_can_be(tmp_path: Path) -> None:
    for file, name in (("_draft.toml", "draft"), ("日本.toml", "recipe"), ("my run.toml", "my-run")):
        (tmp_path / file).write_text("seed = 1")
        assert load_recipe(str(tmp_path / file)).name == name


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["ladder.enabled=true"],
            r"ladder.turn_caps goes up to 100, but rollout.max_turns = 4 .*rollout.max_turns=100",
        ),
        (
            ["rl.kl_estimator=k1"],
            r"rl.kl_estimator = 'k1' in the loss has an expected gradient of zero.*rl.kl_in=reward",
        ),
    ],
)
def test_settings_that_would_do_nothing_together_are_refused(overrides: list[str], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        load_recipe("office-smoke", overrides)


@pytest.mark.parametrize("overrides", [["rl.kl_estimator=k1", "rl.kl_in=reward"], ["rl.kl_estimator=k1", "rl.kl=0"]])
def test_and_accepted_where_they_do_something_or_are_not_read(overrides: list[str]) -> None:
    assert load_recipe("office-smoke", overrides).rl.kl_estimator == "k1"
