"""Everything that can be asked at once, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headstart import theory
from headstart.base.as_json import as_json
from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.learn.what_if.answers import Answer, Maps, Temperatures, answer, maps, temperatures
from headstart.learn.what_if.options import (
    DEFAULT_ALIKE,
    DEFAULT_ALPHA,
    DEFAULT_C,
    DEFAULT_EXPERT_SHARE,
    MOST,
    Question,
    flag,
)
from headstart.theory import BestK, DraftCost, Machine, Model, StepCosts
from headstart.theory.costs import DRAFT
from headstart.theory.mixture import DENSE, Routing

_CURVE, _FAR = 40, 4096
_BENT = (*range(1, 65), *(2**i for i in range(7, 21)))
"""Rows between which the curve of a mixture of experts is taken to be straight."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """draft: a model on the same machine, or c, the same at every batch size. context: cached tokens per request."""

    machine: Machine
    target: Model
    draft: Model | float
    context: float = 0.0

    def costs(self, batch: int) -> StepCosts:
        """Seconds of steps of a whole batch, by rows of each of its requests."""
        check_number("batch", batch, low=1, integer=True)
        machine, target = self.machine, self.target
        read = target.parameters * target.bytes_per_weight + batch * self.context * target.kv_bytes_per_token
        # One straight line up to the rows that take longer to compute than the weights to read, another one beyond
        bend = max(1, int(read / machine.bandwidth * machine.flops / (2 * target.parameters * batch)))
        rows = np.array(sorted({1, bend, bend + 1, bend + 2}) if target.flat else _BENT)
        seconds = theory.forward_seconds(machine, target, rows, batch, self.context)
        if isinstance(self.draft, Model):
            token = theory.forward_seconds(machine, self.draft, 1, batch, self.context)
        else:
            token = self.draft * float(seconds[0])
        drafts = {DRAFT: DraftCost(token=token)}
        return StepCosts(tuple(zip(rows.tolist(), seconds.tolist(), strict=True)), drafts=drafts)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch size. plain, speculative: tokens per second of all its requests together; verify: v(K+1)."""

    batch: int
    plain: float
    c: float
    verify: float
    speedup: float
    speculative: float
    best: BestK


@dataclass(frozen=True, slots=True)
class Batches:
    """free_up_to: the batch size up to which K + 1 rows cost no more than one (infinite: always). pays_up_to: up to
    which every batch gains; `MOST_BATCH` if nothing else was met. curve: sizes from 1 on, for a plot."""

    alpha: float
    k: int
    rows: tuple[BatchRow, ...]
    curve: tuple[BatchRow, ...]
    free_up_to: float
    pays_up_to: int


def batches(deployment: Deployment, alpha: float, k: int, sizes: Sequence[int], most: int) -> Batches:
    """What each of these batch sizes gains by K draft tokens per request and round."""
    machine, target, context = deployment.machine, deployment.target, deployment.context
    pays = theory.paying_batch(machine, target, alpha, k, draft=deployment.draft, context=context)
    far = max(*sizes, min(2 * pays, _FAR), 2)
    steps = sorted({round(size) for size in far ** (np.arange(_CURVE) / (_CURVE - 1))})
    rows, curve = (tuple(_row(deployment, alpha, k, size, most) for size in each) for each in (sizes, steps))
    return Batches(alpha, k, rows, curve, theory.crossover_batch(machine, target, k, context), pays)


def _row(deployment: Deployment, alpha: float, k: int, size: int, most: int) -> BatchRow:
    costs = deployment.costs(size)
    c, v = costs.c(), costs.v
    plain = size / theory.forward_seconds(deployment.machine, deployment.target, 1, size, deployment.context)
    gained = theory.speedup(alpha, k, c, v)
    best = theory.best_k(alpha, c, v, most=most)
    return BatchRow(size, plain, c, v(k + 1), gained, plain * gained, best)


_MACHINE = ("bandwidth", "flops", "parameters")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One answer per acceptance asked about; the rest where it was asked for."""

    costs: StepCosts
    """Of the first batch size."""
    most: int
    """The longest draft considered."""
    answers: tuple[Answer, ...]
    maps: Maps
    batch: int | None = None
    """The first batch size, where there is a machine."""
    batches: tuple[Batches, ...] = ()
    """One for each alpha."""
    temperatures: tuple[Temperatures, ...] = ()
    """One for each alpha."""


def record(found: WhatIf) -> dict[str, Any]:
    """All numbers as JSON takes them."""
    costs = found.costs
    v = {rows: costs.v(rows) for rows in range(1, found.most + 2)}
    lists = {name: getattr(found, name) for name in ("batch", "answers", "maps", "batches", "temperatures")}
    return as_json({"headstart_simulate": 1, "c": costs.c(), "verify_cost": v, **lists})  # type: ignore[no-any-return]


def what_if(
    acceptances: Sequence[Sequence[float]],
    costs: StepCosts | Deployment,
    *,
    k: int | None = None,
    most: int = MOST,
    sizes: Sequence[int] = (),
    heat: Sequence[float] = (),
) -> WhatIf:
    """Ask everything at once.

    Args:
        acceptances: each one alpha, or conditional acceptances by position.
        costs: what a step costs, or a machine and models to get them from, at the first of `sizes` (1 without any).
        k: the draft length; the best one by default.
        most: the longest draft considered.
        sizes: batch sizes to compare; they need a Deployment.
        heat: temperatures to compare, on a toy.

    Raises:
        InvalidOption: nothing asked, a value out of its range, or sizes without a machine.
    """
    if not acceptances:
        raise InvalidOption("no acceptance was given", hint="give at least one alpha")
    if sizes and isinstance(costs, StepCosts):
        raise InvalidOption("batch sizes need a machine", hint="give a Deployment: bandwidth, FLOP/s and models")
    first = sizes[0] if sizes else 1
    here = costs if isinstance(costs, StepCosts) else costs.costs(first)
    answers = tuple(answer(acceptance, k, here, most) for acceptance in acceptances)
    alphas = [(a.alpha, a.k) for a in answers if a.alpha is not None]
    found = WhatIf(here, most, answers, maps(answers[0], [alpha for alpha, _ in alphas], here))
    if isinstance(costs, Deployment):
        compared = tuple(batches(costs, alpha, length, sizes or (1,), most) for alpha, length in alphas)
        found = replace(found, batch=first, batches=compared)
    if heat:
        found = replace(found, temperatures=tuple(temperatures(alpha, heat, here, most) for alpha, _ in alphas))
    return found


def ask(question: Question) -> WhatIf:
    """`what_if`, for a question made of options.

    Raises:
        InvalidOption: options contradict each other or lack their companions; or as `what_if`.
    """
    most = MOST if question.most is None else question.most
    return what_if(
        _acceptances(question),
        _costs(question),
        k=question.k,
        most=most,
        sizes=question.batch,
        heat=question.temperature,
    )


def _acceptances(question: Question) -> list[tuple[float, ...]]:
    if not question.by_position:
        return [(alpha,) for alpha in question.alpha or (DEFAULT_ALPHA,)]
    if question.alpha:
        raise InvalidOption("--alpha and --by-position exclude each other", hint="give one of them")
    if question.temperature or question.batch:
        raise InvalidOption(
            "--temperature and --batch ask about one alpha, not about positions", hint="give --alpha instead"
        )
    return [tuple(question.by_position)]


def _costs(question: Question) -> StepCosts | Deployment:
    c = DEFAULT_C if question.c is None else question.c
    extra = ("draft_parameters", "bytes_per_weight", "kv_bytes_per_token", "context", "batch")
    given = [name for name in (*_MACHINE, *extra) if name in question.given]
    routing, share = _experts(question)
    if not given:
        return StepCosts.in_plain_steps(c, question.verify_cost if routing.dense else _read(routing, share))
    _check_all(_MACHINE, given, "a machine's figures give c and v(n) at each batch size")
    if question.verify_cost is not None:
        raise InvalidOption(
            "--verify-cost and a machine exclude each other", hint="the machine's figures say what more rows cost"
        )
    if question.draft_parameters is not None and question.c is not None:
        raise InvalidOption("--c and --draft-parameters exclude each other", hint="the draft's size gives c")
    return _deployment(question, c, routing, share)


def _check_all(needed: Sequence[str], given: Sequence[str], hint: str) -> None:
    """Raise `InvalidOption` where fields that belong together are given in part."""
    if missing := [flag(name) for name in needed if name not in given]:
        raise InvalidOption(f"{flag(given[0])} needs {' and '.join(missing)} too", hint=hint)


_MIXTURE = ("experts", "experts_per_token", "expert_share", "alike")


def _experts(question: Question) -> tuple[Routing, float]:
    """What rows share of a mixture of experts, and the share of experts in what one reads; of a dense model nothing."""
    given = [name for name in _MIXTURE if name in question.given]
    if not given:
        return DENSE, 0.0
    _check_all(_MIXTURE[:2], given, "a mixture is, for example, --experts 128 --experts-per-token 8")
    assert question.experts is not None, "it is given"
    assert question.experts_per_token is not None, "it is given"
    if question.verify_cost is not None:
        raise InvalidOption(
            "--verify-cost and --experts exclude each other", hint="the experts that rows meet say what more rows cost"
        )
    if question.experts_per_token > question.experts:
        raise InvalidOption(
            f"{question.experts_per_token} of {question.experts} experts cannot be chosen",
            hint="--experts-per-token is at most --experts",
        )
    share = DEFAULT_EXPERT_SHARE if question.expert_share is None else question.expert_share
    alike = DEFAULT_ALIKE if question.alike is None else question.alike
    if alike >= 1:
        raise InvalidOption(f"--alike {alike:g}: all rows would meet the same experts", hint="--alike is below 1")
    return Routing(question.experts, question.experts_per_token, alike), share


def _read(routing: Routing, share: float) -> dict[int, float]:
    """v(n) where reading weights is all that takes time."""
    return dict(zip(_BENT, np.asarray(routing.reading(_BENT, share)).tolist(), strict=True))


def _deployment(question: Question, c: float, routing: Routing, share: float) -> Deployment:
    """A machine and its models, in bytes, FLOP/s and parameters."""
    weight = 2.0 if question.bytes_per_weight is None else question.bytes_per_weight
    small = question.draft_parameters
    return Deployment(
        Machine((question.bandwidth or 0.0) * 1e9, (question.flops or 0.0) * 1e12),
        Model(question.parameters or 0.0, weight, question.kv_bytes_per_token or 0.0, routing, share),
        c if small is None else Model(small, weight),
        question.context or 0.0,
    )
