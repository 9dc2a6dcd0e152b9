"""Drafters that do wrong what can be done wrong, by name. None of them may change a text or stop an engine."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.drafters import Drafter, Row
from headstart.types import Draft


class Hostile(Drafter):
    """Proposes what `make` makes of a row and the width of the vocabulary."""

    name = "hostile"
    default_budget = 3
    limit = 3

    def __init__(self, make: Callable[[Row, int], Any]) -> None:
        self._make = make
        self._width = 0

    def attach(self, target: Any, cache: Any) -> None:
        self._width = target.vocab_size

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [self._make(row, self._width) for row in rows]


def drawn(row: Row, width: int) -> tuple[list[int], Tensor]:
    """An honest chain, drawn uniformly, and its q."""
    q = torch.full((row.budget.nodes, width), 1 / width)
    return [row.draw(one.numpy(), depth) for depth, one in enumerate(q)], q


def with_q(change: Callable[[Tensor], Any]) -> Callable[[Row, int], Draft]:
    """An honest chain with another q."""

    def make(row: Row, width: int) -> Draft:
        tokens, q = drawn(row, width)
        return Draft.chain(tokens, change(q))

    return make


def at_drawn(value: float) -> Callable[[Row, int], Draft]:
    """An honest chain whose tokens have this weight, and the others the rest."""

    def make(row: Row, width: int) -> Draft:
        tokens, q = drawn(row, width)
        q[:] = (1 - value) / (width - 1)
        q[range(len(tokens)), tokens] = value
        return Draft.chain(tokens, q)

    return make


def with_vocabulary(vocabulary: Any, columns: int = 4) -> Callable[[Row, int], Draft]:
    """A chain of one token, 1, over a part of the vocabulary."""
    return lambda row, width: Draft((1,), (-1,), torch.full((1, columns), 1 / columns), vocabulary=vocabulary)


def tree(tokens: Any, parents: Any, **more: Any) -> Callable[[Row, int], Draft]:
    return lambda row, width: Draft(tokens, parents, **more)


def forced(**fields: Any) -> Callable[[Row, int], Draft]:
    """A draft of two nodes whose fields were set past its own check."""

    def make(row: Row, width: int) -> Draft:
        draft = Draft.chain([1, 1][: row.budget.nodes])
        for name, value in fields.items():
            object.__setattr__(draft, name, value)
        return draft

    return make


def raising(error: BaseException) -> Callable[[Row, int], Draft]:
    def make(row: Row, width: int) -> Draft:
        raise error

    return make


def endless(row: Row, width: int) -> Draft:
    return endless(row, width)


def slow(row: Row, width: int) -> Draft:
    time.sleep(0.002)
    return Draft.chain([1])


def mutating(row: Row, width: int) -> Draft:
    row.tokens = ()  # type: ignore[misc]
    return Draft()


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


ZERO = torch.zeros(())
REFUSED: dict[str, Callable[[Row, int], Any]] = {
    "raises": raising(ValueError("no")),
    "raises without words": raising(Wordless()),
    "exits": lambda row, width: sys.exit(3),
    "recurses": endless,
    "mutates its row": mutating,
    "None": lambda row, width: None,
    "text": lambda row, width: "a draft",
    "a token below 0": tree((-1,), (-1,)),
    "a token beyond": lambda row, width: Draft.chain([width]),
    "a token of 10**30": tree((10**30,), (-1,)),
    "tokens that are floats": tree((1.0,), (-1,)),
    "tokens that are None": tree((None,), (-1,)),
    "too many nodes": lambda row, width: Draft.chain([1] * (row.budget.nodes + 1)),
    "a huge draft": lambda row, width: Draft.chain([1] * 100_000),
    "a parent behind its child": tree((1, 2), (1, -1)),
    "a parent of -2": tree((1,), (-2,)),
    "a parent between": tree((1,), (-0.5,)),
    "too few parents": tree((1, 2), (-1,)),
    "its own parent, set by force": forced(parents=(0, 1)),
    "more tokens, set by force": forced(tokens=(1,) * 9),
    "a source that is a number": tree((1,), (-1,), source=5),
    "expects words": tree((1,), (-1,), expected="much"),
    "prepared by nobody": tree((1,), (-1,), prepared=5),
    "passed over nothing known": tree((1,), (-1,), passed_over=(5,)),
    "q is negative": with_q(lambda q: -q),
    "q is -1": with_q(lambda q: q.fill_(-1)),
    "q is negative once": with_q(lambda q: q + torch.tensor([-2.0, 2.0] + [0.0] * (q.shape[1] - 2)) / q.shape[1]),
    "q is 0": with_q(lambda q: q * 0),
    "q is 0 at the token": at_drawn(0.0),
    "q is subnormal at the token": at_drawn(1e-42),
    "q sums to V": with_q(lambda q: q.fill_(1)),
    "q sums to a half": with_q(lambda q: q / 2),
    "q sums to 1.01": with_q(lambda q: q * 1.01),
    "q is NaN": with_q(lambda q: q * math.nan),
    "q is inf": with_q(lambda q: q * math.inf),
    "q is inf less inf": with_q(lambda q: q * torch.tensor([math.inf, -math.inf] + [0.0] * (q.shape[1] - 2))),
    "q is on meta": with_q(lambda q: q.to("meta")),
    "q is sparse": with_q(lambda q: q.to_sparse()),
    "q is complex": with_q(lambda q: q.to(torch.complex64)),
    "q is quantised": with_q(lambda q: torch.quantize_per_tensor(q, 0.1, 0, torch.quint8)),
    "q is of NumPy": with_q(lambda q: q.numpy()),
    "q is a list": with_q(lambda q: q.tolist()),
    "q is flat": with_q(lambda q: q.flatten()),
    "q has a row too many": with_q(lambda q: torch.cat([q, q[:1]])),
    "q has a column too few": with_q(lambda q: q[:, 1:]),
    "q is of whole numbers": with_q(lambda q: q.long()),
    "a vocabulary of floats": with_vocabulary(torch.tensor([0.0, 1.0, 2.0, 3.0])),
    "a vocabulary of a list": with_vocabulary([0, 1, 2, 3]),
    "a vocabulary on meta": with_vocabulary(torch.tensor([0, 1, 2, 3]).to("meta")),
    "a vocabulary of two dimensions": with_vocabulary(torch.tensor([[0, 1, 2, 3]])),
    "a vocabulary of nothing": with_vocabulary(torch.tensor([], dtype=torch.int64), 0),
    "a vocabulary without the token": with_vocabulary(torch.tensor([0, 2, 3, 4])),
    "a vocabulary with a token twice": with_vocabulary(torch.tensor([0, 1, 1, 2])),
    "a vocabulary beyond": with_vocabulary(torch.tensor([0, 1, 2, 10**9])),
}
"""Each draft of these is refused, so that the text is the one without speculation, to the token, also where it is
sampled."""

TAKEN: dict[str, Callable[[Row, int], Any]] = {
    "slow": slow,
    "nothing": lambda row, width: Draft(),
    "nothing, with a q": lambda row, width: Draft(q=torch.ones(5, 5)),
    "a token of torch": lambda row, width: Draft.chain([torch.tensor(1)]),  # type: ignore[list-item]
    "siblings alike": lambda row, width: Draft((1,) * row.budget.nodes, (-1,) * row.budget.nodes),
    "lists": lambda row, width: Draft([1], [-1]),  # type: ignore[arg-type]
    "q wants a gradient": with_q(lambda q: q.requires_grad_()),
    "q of one row, spread": with_q(lambda q: q[:1].expand(len(q), -1)),
    "q in bfloat16": with_q(lambda q: q.bfloat16()),
    "q in float16": with_q(lambda q: q.half()),
    "q in float64": with_q(lambda q: q.double()),
    "q sums to 1.004": with_q(lambda q: q * 1.004),
    "q sums to 0.996": with_q(lambda q: q * 0.996),
}
"""These are taken as they were meant; where they were drawn, sampled texts differ, and their distribution does not."""
