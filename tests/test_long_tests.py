"""The list of long tests names tests that are there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTED = [
    line for line in (ROOT / "tests" / "long_tests.txt").read_text().splitlines() if line and not line.startswith("#")
]


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
