"""Which families of tasks are drawn, and with which tools: chosen by a recipe, stage by stage (SPEC ENV-10).

select(...)    the (tier, family) pairs that are left, or one sentence that says why none is
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ferrata.errors import UnknownNameError, UsageError

Pair = tuple[int, str]
"""(tier, family)"""


def select(
    env: str,
    offered: Mapping[int, Sequence[str]],
    tiers: Sequence[int],
    families: Sequence[str] = (),
    tools: Collection[str] = (),
    needs: Mapping[str, Collection[str]] | None = None,
) -> list[Pair]:
    """The pairs of these tiers that are among `families` and can be done with `tools`, in the order of `offered`.

    Args:
        env: name of the environment, for the message.
        offered: tier -> all of its families.
        tiers: which of them.
        families: the names to keep; all when empty. Names of other tiers are no mistake.
        tools: the tools that there are; any when empty.
        needs: family -> the tools without which it cannot be done.

    Raises:
        UnknownNameError: no tier offers a family of this name.
        UsageError: nothing is left.
    """
    known = {family for names in offered.values() for family in names}
    for family in families:
        if family not in known:
            raise UnknownNameError.of(f"family of environment '{env}'", family, known)
    named = [(tier, name) for tier in tiers for name in offered[tier] if not families or name in families]
    able = [(tier, name) for tier, name in named if not tools or set((needs or {}).get(name, ())) <= set(tools)]
    if named and not able:
        raise UsageError(f"No such family of '{env}' in tiers {list(tiers)} can be done with {', '.join(tools)} alone.")
    if not named:
        raise UsageError(f"No family of '{env}' in tiers {list(tiers)} is among {list(families)}.")
    return able
