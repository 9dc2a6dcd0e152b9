"""Rows are values: copied with another budget, compared and pickled like any."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from support.rows import a_row

from headstart.types import Budget


def test_a_row_with_another_budget_is_the_same_in_all_else() -> None:
    row = a_row(3, 10, 5)
    budget = Budget(2, "because", {"x": 2})
    assert row.with_budget(budget) == replace(row, budget=budget)
    assert row.budget == Budget(), "the first one is left as it was"
    assert pickle.loads(pickle.dumps(row.with_budget(budget))).budget == budget
    with pytest.raises(FrozenInstanceError):
        row.with_budget(budget).budget = Budget()  # type: ignore[misc]
