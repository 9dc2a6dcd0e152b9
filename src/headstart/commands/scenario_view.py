"""The scenarios of `headstart simulate --scenarios` on a terminal: what was simulated beside what theory says."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstart.commands.simulate_view import cell, section, tight_table
from headstart.errors import InvalidOption
from headstart.simulate import ScenarioResult, scenarios


def named(name: str) -> str:
    """The scenario of this name, or the only one whose name contains it.

    Raises:
        InvalidOption: there is none, or there are several.
    """
    known = list(scenarios())
    found = [one for one in known if name.lower() in one.lower()]
    exact = [one for one in found if one.lower() == name.lower()]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise InvalidOption(f"there is no scenario {name!r}", hint=f"the scenarios are: {', '.join(known)}")
    raise InvalidOption(f"{name!r} is part of several scenarios", hint=f"which of {', '.join(found)}?")


def view(console: Console, results: Sequence[ScenarioResult]) -> None:
    """One scenario in detail, several as a table and a line each."""
    section(console, "Simulated, and by formula", _table(results))
    for result in results:
        console.print()
        console.print(Text(result.scenario.name, style="bold"))
        console.print(result.scenario.story)
        console.print(f"{result.verdict[:1].upper()}{result.verdict[1:]}.")
        if result.alternatives:
            others = ", ".join(f"{name} {one.value:.2f}" for name, one in result.alternatives.items())
            console.print(f"With other rules for K: {others}.")
        if len(results) == 1:
            shares = " ".join(f"{one.value:.2f}" for one in result.acceptance)
            error = result.speedup.standard_error
            console.print(f"{result.rounds:,} rounds, standard error {error:.3f}; acceptance by position {shares}.")


def _table(results: Sequence[ScenarioResult]) -> Table:
    table = tight_table("scenario", "alpha", "K", "c", "simulated", "formula", "best K")
    table.columns[0].justify = "left"
    for result in results:
        facts = result.scenario.parameters()
        alpha = facts["alpha"]
        table.add_row(
            result.scenario.name,
            "/".join(f"{a:g}" for a in alpha) if isinstance(alpha, tuple) else f"{alpha:g}",
            str(facts["k"]),
            f"{facts['c']:g}",
            cell(result.speedup.value),
            "" if result.predicted is None else f"{result.predicted:.2f}",
            "" if result.best_k is None else str(result.best_k),
        )
    return table
