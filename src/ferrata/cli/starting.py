"""`ferrata init`: a small environment project that works at once, to change step by step into one's own."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
import sys
from importlib import resources
from pathlib import Path
from string import Template

import typer

import ferrata
from ferrata.errors import UsageError
from ferrata.rollout.worlds import ENVIRONMENTS

FILES = {
    "{package}/__init__.py": "package.py.template",
    "{package}/environment.py": "environment.py.template",
    "tests/test_contract.py": "test_contract.py.template",
    "recipe.toml": "recipe.toml.template",
    "pyproject.toml": "pyproject.toml.template",
    "README.md": "README.md.template",
}
"""File of the project -> its template."""
NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
MAX_CHARACTERS = 40
TAKEN = frozenset({"ferrata", "test", "tests"})
USED = frozenset({"Any", *ferrata.__all__, *dir(builtins), *keyword.kwlist})
"""Names that mean something else in the written files: no class can have one."""


def start(folder: Path, name: str | None) -> None:
    """Write the project, and say what to do next. Raises UsageError for a folder in use or a bad name."""
    words = _words(folder, name)
    _refuse_occupied(folder)
    try:
        for path, template in FILES.items():
            target = folder / path.format(**words)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(template, words), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The project cannot be written to {folder}: {error.strerror or error}.") from error
    typer.echo(f"{folder}: an environment with two families of tasks, its tests and a recipe. Next:")
    typer.echo(f"  cd {folder}\n  pip install pytest\n  pytest")
    typer.echo(f"  ferrata check-env {words['package']}.environment:{words['kind']}")
    typer.echo("  ferrata train recipe.toml")


def _words(folder: Path, name: str | None) -> dict[str, str]:
    """What the templates call the environment, its package and its class."""
    wanted = folder.resolve().name.lower() if name is None else name
    if not NAME.fullmatch(wanted) or len(wanted) > MAX_CHARACTERS:
        hint = "" if name is not None else " Choose another with --name."
        raise UsageError(
            f"'{wanted[:MAX_CHARACTERS]}' cannot be the name of an environment: use small letters, digits, and single "
            f"hyphens or underscores between them, a letter first, at most {MAX_CHARACTERS} characters.{hint}"
        )
    package = wanted.replace("-", "_")
    _refuse_taken(package)
    kind = "".join(word.title() for word in package.split("_"))
    return {"name": wanted, "package": package, "kind": f"{kind}World" if kind in USED else kind}


def _refuse_taken(package: str) -> None:
    """Refuse a name under which Python would find something else."""
    if keyword.iskeyword(package) or keyword.issoftkeyword(package):
        raise UsageError(f"'{package}' is a word of Python: choose another name with --name.")
    if package in ENVIRONMENTS:
        raise UsageError(f"'{package}' is a built-in environment: choose another name with --name.")
    if package in TAKEN or package in sys.stdlib_module_names or importlib.util.find_spec(package) is not None:
        raise UsageError(f"There is a Python module called '{package}' already: choose another name with --name.")


def _refuse_occupied(folder: Path) -> None:
    if folder.is_dir():
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty: name a new or an empty folder.")
    elif folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} is not a folder: name a new or an empty folder.")


def _filled(template: str, words: dict[str, str]) -> str:
    text = resources.files("ferrata.cli").joinpath("project", template).read_text(encoding="utf-8")
    return Template(text).substitute(words)
