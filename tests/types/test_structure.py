"""What a request's text must be, as a value."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from headstart.base.errors import InvalidOption
from headstart.types import Drafting, Sampling, Structure


def test_a_structure_is_a_value_whose_fields_go_together() -> None:
    schema = Structure.schema({"type": "object"}, after=[7], thinking=3)
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert {schema: 1}[Structure("schema", '{"type": "object"}', after=(7,), thinking=3)] == 1
    assert Structure.choice(["yes", "no"]).text == '["yes", "no"]'
    wrong: list[Callable[[], Any]] = [
        lambda: Structure("json", "{}"), lambda: Structure("regex"), lambda: Structure.choice("yes"),
        lambda: Structure.choice([""]), lambda: Structure.schema({"a": {1, 2}}), lambda: Structure("json", thinking=3),
        lambda: Structure("text", after=(7,)), lambda: Structure("lark", "start: /a/", after=(-1,)),
        lambda: Structure("ebnf", "x"), lambda: Sampling(structure="json"),  # type: ignore[arg-type]
        lambda: Structure("json", after=3), lambda: Structure.choice(3),  # type: ignore[arg-type]
        lambda: Sampling(shown_special_tokens=3),  # type: ignore[arg-type]
        lambda: Drafting(prediction=3), lambda: Drafting(texts=[3]), lambda: Drafting(sources=3),  # type: ignore[arg-type]
        lambda: Sampling(structure=schema, min_tokens=1), lambda: Sampling(structure=schema, ignore_eos=True),
    ]  # fmt: skip
    for make in wrong:
        with pytest.raises(InvalidOption):
            make()
    assert Sampling(structure=Structure("text", after=(7,), thinking=3), ignore_eos=True).ignore_eos
