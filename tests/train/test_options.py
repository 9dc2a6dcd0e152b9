"""`DraftTraining` refuses what cannot be, with a hint."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.base.errors import InvalidOption
from headstart.train import DraftTraining, Shape

GOOD: dict[str, Any] = {"target": "t", "output": "o", "data": ("d",), "steps": 10}


@pytest.mark.parametrize(
    "bad",
    [
        {"data": ()},
        {"steps": 0},
        {"steps": None},
        {"minutes": 3.0},
        {"steps": None, "minutes": 0.0},
        {"tv_weight": -0.1},
        {"tv_weight": 1.1},
        {"tv_weight": float("nan")},
        {"batch_size": 0},
        {"micro_batch": 9},
        {"sequence_length": 4},
        {"validation": 0.0},
        {"validation": 0.9},
        {"matrix_rate": 0.0},
        {"generations": -1},
        {"generation_temperatures": ()},
        {"generation_temperatures": (-1.0,)},
        {"init": "warm"},
        {"dtype": "int8"},
        {"seed": -1},
        {"learning_rate": 1e-3},
    ],
)
def test_bad_option_is_refused_with_a_hint(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        DraftTraining(**{**GOOD, **bad})
    assert caught.value.hint


@pytest.mark.parametrize("bad", [{"hidden": 0}, {"hidden": 30, "heads": 4}, {"heads": 4, "kv_heads": 3}, {"depth": 2}])
def test_bad_shape_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Shape(**bad)


def test_one_path_is_a_list_of_one() -> None:
    assert DraftTraining(**{**GOOD, "data": "d"}).data == ("d",)


def test_identity_leaves_out_where_and_how_long() -> None:
    one = DraftTraining(**GOOD)
    assert one.identity() == DraftTraining(**{**GOOD, "output": "p", "steps": None, "minutes": 2.0}).identity()
    assert one.identity() != DraftTraining(**{**GOOD, "tv_weight": 0.5}).identity()
    assert one.identity() != DraftTraining(**{**GOOD, "shape": Shape(layers=2)}).identity()
