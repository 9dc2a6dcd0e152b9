"""Rows are values: copied with another budget, compared and pickled like any."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from support.rows import a_row

from headstart.rule.noise import Purpose
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import Budget


def test_a_row_with_another_budget_is_the_same_in_all_else() -> None:
    row = a_row(3, 10, 5)
    budget = Budget(2, "because", {"x": 2})
    assert row.with_budget(budget) == replace(row, budget=budget)
    assert row.budget == Budget(), "the first one is left as it was"
    assert pickle.loads(pickle.dumps(row.with_budget(budget))).budget == budget
    with pytest.raises(FrozenInstanceError):
        row.with_budget(budget).budget = Budget()  # type: ignore[misc]


@pytest.mark.parametrize("size", [3, 700])
def test_columns_of_nan_are_drawn_as_if_the_whole_vocabulary_ran(size: int) -> None:
    row = replace(a_row(3, 10, 5), purpose=Purpose.TOKEN)
    part = PartialVocabulary(torch.arange(size) + 100, 900)
    q = np.full(size, np.nan, np.float32)
    assert row.draw(q, 0, part) == row.noise.draw(part.spread(q, 0), len(row.tokens), Purpose.TOKEN)
