"""The list of long tests names tests that are there, and which of their cases are fast is spread over all of them."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from support.rotation import spread

ROOT = Path(__file__).parents[1]
LINES = [
    line for line in (ROOT / "tests" / "long_tests.txt").read_text().splitlines() if line and not line.startswith("#")
]
LISTED = [line.partition(" ")[0] for line in LINES]


@cache
def names(path: str) -> frozenset[str]:
    """Functions of a file, methods of its classes as Class::method."""

    def of(body: list[ast.stmt], before: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                yield before + node.name
            elif isinstance(node, ast.ClassDef):
                yield from of(node.body, f"{before}{node.name}::")

    return frozenset(of(ast.parse((ROOT / path).read_text()).body, ""))


def test_every_name_is_there() -> None:
    assert [each for each in LISTED if each.partition("::")[2] not in names(each.partition("::")[0])] == []


def test_the_list_is_in_order_and_has_nothing_twice() -> None:
    assert sorted(set(LISTED)) == LISTED


def test_of_cases_that_take_turns_one_of_two_to_four_is_fast() -> None:
    assert [line for line in LINES if " " in line and line.split()[1:] not in (["2"], ["3"], ["4"])] == []


def test_what_proves_the_rule_is_not_listed() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "long_tests.py"))
    assert [line for line in LISTED if line.startswith(tool["PROOFS"])] == []


@pytest.mark.parametrize("turns", [2, 3, 4])
def test_fast_cases_have_every_value(turns: int) -> None:
    """Also of an axis that is as long as the turns, or twice as long."""
    axes = {"name": range(12), "rows": range(turns), "type": range(2 * turns)}
    cases = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    fast = spread(cases, turns)
    assert len(fast) == len(cases) // turns
    for name, values in axes.items():
        assert {cases[place][name] for place in fast} == {*values}
    assert spread([{"name": name} for name in range(9)], turns) == {*range(0, 9, turns)}
