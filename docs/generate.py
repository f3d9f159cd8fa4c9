"""Writes the parts of the documentation that the code already knows: run it with `make docs`.

    commands.md   every command with its arguments and options, from the command line itself
    recipe.md     every recipe key with its type, default and meaning, from the recipe's classes
    office.md     the blocks between `<!-- begin NAME -->` and `<!-- end NAME -->`
    support.md    the same

`pages()` computes the texts without writing them; a test compares them with the files.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer.main

from ferrata.cli.main import app
from ferrata.envs import Environment
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.office.demonstrations import LONG_RATES, RATES
from ferrata.envs.office.families import NEEDS, SPARE_TURNS, TIERS, TOOL_SETS
from ferrata.envs.office.language import names, numbers
from ferrata.envs.office.solutions import solution
from ferrata.envs.support import SupportEnvironment
from ferrata.envs.support.customer import PERSONAS
from ferrata.envs.tools import Tool
from ferrata.recipe import Recipe
from ferrata.recipe_loading import load_recipe, shipped_recipes
from ferrata.records import Task

DOCS = Path(__file__).parent
GENERATED = "<!-- Written by `make docs` from {source}: change that, not this page. -->"
SEED = 1
"""Seed of the example tasks."""

VALUES = {str: "text", int: "number", float: "number", list[int]: "number, may repeat", Path: "path"}
"""Types of options in words."""

FLAWS = {
    "forget_message": "A mail was asked for: it is not sent, and nothing is done that needs its reply.",
    "forget_document": "A document was asked for: it is not written.",
    "stop_half_way": "Several lookups decide: the last is not made, and the decision is guessed.",
    "say_done": "A value was asked for as the answer: `done` is submitted.",
    "send_a_part": "A mail should state two values: it states one, and both when its reader asks for the other.",
    "wrong_source": "Two sources disagree: the one that does not count is believed.",
    "obey_decoy": "A note, a mail or a shortcut tempts: what it says is done.",
    "do_not_wait": "A reply was to be read: it is not, and nothing is done that needs it.",
    "forget_to_confirm": "The mail is first sent without `confirm`, then again with it.",
    "look_twice": "The first step is made twice.",
}

MANNERS = {
    "plain": "Says what it wants, with the order's number.",
    "vague": "Gives the order's number only when it is asked for it.",
    "impatient": "Leaves after {patience} turns without progress; the case is lost then.",
    "changing": "Changes its mind: with the answer to a question comes another request.",
    "insistent": "Asks for what policy forbids, and insists once when it is refused.",
    "stranger": "Is not who it says it is: it has no PIN or a wrong one, and presses.",
}
"""Personas in words."""


def pages() -> dict[Path, str]:
    """Every page that holds generated text, complete."""
    office, support = DOCS / "office.md", DOCS / "support.md"
    return {
        DOCS / "commands.md": commands_page(),
        DOCS / "recipe.md": recipe_page(),
        office: filled(office.read_text(encoding="utf-8"), OFFICE),
        support: filled(support.read_text(encoding="utf-8"), SUPPORT),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(_row(cells) for cells in (head, ["---"] * len(head), *rows))


def _row(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def paragraph(text: str) -> str:
    """Text in lines of the usual length."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def code(text: object) -> str:
    """Text as inline code."""
    return f"`{text}`"


# Commands -------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command, in the order in which `ferrata --help` lists them."""
    group: Any = typer.main.get_command(app)
    parts = [
        GENERATED.format(source="`src/ferrata/cli/main.py`"),
        "# Commands",
        paragraph(
            f"{group.help} `ferrata COMMAND --help` prints the same in the terminal, and `ferrata "
            "--version` the version. How commands end, and with which "
            "exit code, stands in [runs](runs.md#exit-codes)."
        ),
    ]
    return "\n\n".join([*parts, *(_command(command) for command in group.commands.values())]) + "\n"


def _command(command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join(["ferrata", command.name, *(_usage(argument) for argument in arguments)])
    parts = [f"## ferrata {command.name}", command.help, f"```text\n{usage}{' [OPTIONS]' if options else ''}\n```"]
    parts += [table(("argument", "meaning"), [(code(a.metavar), a.help) for a in arguments])]
    if options:
        parts += [table(("option", "value", "default", "meaning"), [_option(option) for option in options])]
    return "\n\n".join(parts)


def _usage(argument: Any) -> str:
    name = argument.metavar + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> tuple[str, str, str, str]:
    """Name, value, default, meaning. Help texts say a default that is computed in square brackets."""
    meaning, _, computed = option.help.removesuffix(".").partition(" [default: ")
    annotation = option.type_descriptor.annotation
    value = "" if option.is_flag else VALUES[annotation]
    default = computed.removesuffix("]") or ("off" if option.is_flag else str(option.default or ""))
    return code(option.opts[0]), value, default, f"{meaning}."


# Recipe ---------------------------------------------------------------------------------------------------------


def recipe_page() -> str:
    """Every key of a recipe, section by section."""
    schema = Recipe.model_json_schema()
    fields = schema["properties"]
    sections = {name: field["$ref"].rsplit("/", 1)[1] for name, field in fields.items() if "$ref" in field}
    plain = {name: field for name, field in fields.items() if name not in sections}
    shipped = [(code(name), load_recipe(name).description) for name in sorted(shipped_recipes())]
    parts = [
        GENERATED.format(source="`src/ferrata/recipe/`"),
        "# Recipe",
        paragraph(
            "A recipe is a TOML file. A key that is left out has its default; an unknown key is refused with the "
            "nearest known one. Any key can be set on the command line, where values are read as TOML:"
        ),
        "```sh\nferrata train office-quickstart seed=1 rl.updates=40 'env.tiers=[1]' --dry-run\n```",
        "`--dry-run` prints the whole recipe as it would be run. These recipes ship with Ferrata:",
        table(("recipe", "what it does"), shipped),
        "## Top level",
        _keys("", plain),
    ]
    for name, definition in sections.items():
        content = schema["$defs"][definition]
        keys = {key: field for key, field in content["properties"].items() if "$ref" not in field}
        parts += [f"## {name}", _meaning(content), _keys(f"{name}.", keys)]
        for key, field in content["properties"].items():
            inner = schema["$defs"].get(_tables(field) or field.get("$ref", "").rpartition("/")[2])
            if inner is not None:
                title, prefix = (f"[[{name}.{key}]]", "") if key in keys else (f"{name}.{key}", f"{name}.{key}.")
                parts += [f"### {title}", _meaning(inner), _keys(prefix, inner["properties"])]
    return "\n\n".join(parts) + "\n"


def _keys(prefix: str, fields: dict[str, dict[str, Any]]) -> str:
    rows = [(code(prefix + name), _type(f), _default(f), _meaning(f)) for name, f in fields.items()]
    return table(("key", "type", "default", "meaning"), rows)


def _tables(field: dict[str, Any]) -> str:
    """Name of the definition of the tables that a key lists; empty where it lists none."""
    return str(field.get("items", {}).get("$ref", "")).rpartition("/")[2]


def _type(field: dict[str, Any]) -> str:
    """The type of a key in words, with its bounds."""
    if "anyOf" in field:
        return _type(next(one for one in field["anyOf"] if one["type"] != "null"))
    if _tables(field):
        return "list of tables"
    if "const" in field or "enum" in field:
        return " or ".join(code(value) for value in field.get("enum", [field.get("const")]))
    if field["type"] == "object":
        return f"{_type(field['additionalProperties'])}, or a table of them by tool"
    if field["type"] == "array":
        return f"list of {_type(field['items']).replace('number, ', 'numbers, each ', 1)}"
    word = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}[field["type"]]
    bounds = [
        ("minimum", "≥"),
        ("exclusiveMinimum", ">"),
        ("maximum", "≤"),
        ("exclusiveMaximum", "<"),
    ]
    limits = [f"{sign} {field[name]:g}" for name, sign in bounds if name in field and abs(field[name]) < 10**12]
    return ", ".join([word, *limits])


def _default(field: dict[str, Any]) -> str:
    """The default as TOML."""
    if "default" not in field:
        return "required"
    value = field["default"]
    if value is None:
        return "unchanged"
    text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return code(text)


def _meaning(field: dict[str, Any]) -> str:
    """What the key means."""
    return " ".join(field.get("description", "").split())


# Office ---------------------------------------------------------------------------------------------------------


def filled(page: str, blocks: dict[str, Callable[[], str]]) -> str:
    """The page with every block between its markers written anew. Raises KeyError for a block without markers."""
    for name, render in blocks.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        found = pattern.search(page)
        if found is None:
            raise KeyError(f"the page has no block '{name}'")
        page = f"{page[: found.end(1)]}{render()}\n{page[found.start(2) :]}"
    return page


def office_tools() -> str:
    """The tools with their arguments."""
    env = OfficeEnvironment()
    rows = [(code(tool.name), _arguments(tool), tool.effect.value, tool.description) for tool in env.tools]
    env.close()
    return table(("tool", "arguments", "effect", "what the model is told"), rows)


def _arguments(tool: Tool) -> str:
    return ", ".join(code(f"{name}: true" if name == "confirm" else name) for name in tool.input_schema["properties"])


def office_tool_sets() -> str:
    """The tool sets, and how many families can be done with each."""
    rows, before = [], set[str]()
    for name, tools in TOOL_SETS.items():
        able = [[family for family in families if set(NEEDS[family]) <= set(tools)] for families in TIERS.values()]
        added = [code(tool) for tool in tools if tool not in before]
        rows.append((code(name), f"{'and ' if before else ''}{', '.join(added)}", *(str(len(some)) for some in able)))
        before.update(tools)
    return table(("tool set", "tools", *(f"families of tier {tier}" for tier in TIERS)), rows)


def office_families() -> str:
    """Every family with an example."""
    rows = []
    for tier, families in TIERS.items():
        for family in families:
            task = example(OfficeEnvironment, family, tier)
            rows.append((str(tier), code(family), task.instruction, ", ".join(task.subgoals)))
    return table(("tier", "family", "example of an instruction", "subgoals"), rows)


def office_caps() -> str:
    """How many turns a task may take."""
    caps = [
        f"{low} to {high} turns more than it has subgoals in tier {tier}" for tier, (low, high) in SPARE_TURNS.items()
    ]
    return paragraph(f"A task may take {', '.join(caps[:-1])}, and {caps[-1]}.")


def office_reserved() -> str:
    """How many names and numbers belong to which split."""
    rows = [
        ("names", str(len(names(False))), str(len(names(True)))),
        ("numbers 100 to 999", str(len(numbers(100, 1000, False))), str(len(numbers(100, 1000, True)))),
        ("codes 1000 to 9999", str(len(numbers(1000, 10000, False))), str(len(numbers(1000, 10000, True)))),
    ]
    return table(("", "training", "evaluation"), rows)


def office_flaws() -> str:
    """What demonstrations get wrong. Raises KeyError for a flaw that is not described here."""
    rows = [(code(flaw), _rate(RATES, flaw), _rate(LONG_RATES, flaw), FLAWS[flaw]) for flaw in {**RATES, **LONG_RATES}]
    return table(("flaw", "tiers 1 and 2", "tier 3", "what happens"), rows)


def _rate(rates: dict[str, float], flaw: str) -> str:
    return f"{rates[flaw]:.0%}" if flaw in rates else ""


def office_episode(family: str, tier: int) -> str:
    """One flawless episode as the model sees it."""
    task = example(OfficeEnvironment, family, tier)
    return episode(OfficeEnvironment(), task, [text for _, text in solution(task)], "office")


def episode(env: Environment, task: Task, texts: Iterable[str], speaker: str) -> str:
    """What is read and said while the texts are played; `speaker` is what the world is called."""
    width = max(len("agent"), len(speaker)) + 2
    lines = [f"{'task':{width}}{env.reset(task).text}"]
    for text in texts:
        lines += ["", f"{'agent':{width}}{text}"]
        lines += [f"{speaker:{width}}{line}" for line in env.step(text).observation.text.splitlines()]
    env.close()
    return "```text\n" + "\n".join(lines) + "\n```"


def example(kind: type[OfficeEnvironment | SupportEnvironment], family: str, tier: int) -> Task:
    """The example task of a family."""
    env = kind()
    task = env.generate(family, tier, random.Random(SEED), "train")
    env.close()
    return task


OFFICE: dict[str, Callable[[], str]] = {
    "tools": office_tools,
    "tool sets": office_tool_sets,
    "families": office_families,
    "caps": office_caps,
    "reserved": office_reserved,
    "flaws": office_flaws,
    "episode": lambda: office_episode("compare_report", 2),
    "long episode": lambda: office_episode("one_more_number", 3),
}


# Support --------------------------------------------------------------------------------------------------------


def support_tools() -> str:
    """The tools with their arguments."""
    env = SupportEnvironment()
    rows = [(code(tool.name), _arguments(tool), tool.effect.value, tool.description) for tool in env.tools]
    env.close()
    return table(("tool", "arguments", "effect", "what the model is told"), rows)


def support_families() -> str:
    """Every family with an example."""
    rows = []
    for tier, families in SupportEnvironment.families.items():
        for family in families:
            task = example(SupportEnvironment, family, tier)
            topics = " / ".join(topic["say"] for topic in task.world["customer"]["topics"])
            rows.append((str(tier), code(family), task.world["customer"]["persona"], topics, str(len(task.subgoals))))
    return table(("tier", "family", "persona", "example of what the customer asks", "subgoals"), rows)


def support_personas() -> str:
    """Every persona. Raises KeyError for one that is not described here."""
    rows = [(code(name), MANNERS[name].format(patience=persona.patience)) for name, persona in PERSONAS.items()]
    return table(("persona", "how it behaves"), rows)


def support_episode() -> str:
    """One flawless episode as the model sees it."""
    task, env = example(SupportEnvironment, "refused_then_done", 2), SupportEnvironment()
    return episode(env, task, env.scripts(task)[0].texts, "shop")


SUPPORT: dict[str, Callable[[], str]] = {
    "tools": support_tools,
    "families": support_families,
    "personas": support_personas,
    "episode": support_episode,
}

if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))
