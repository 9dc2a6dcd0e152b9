"""What is no fall: other draft lengths, batches and mixes of requests, on the shipped detector, one stream at a time.

Also the shipped pacing, which chooses lengths by content and load, with made-up guesses whose acceptance never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pacing_simulation as paced
from drift_simulation import Tag, World, daily
from numpy.typing import NDArray

from headstart.fleet.watch.drift import Cell, Detector, Level, Settings
from headstart.pacing import Row
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.rule.noise import Noise
from headstart.theory.rounds import PositionCounts
from headstart.types import Draft, Seconds, Step

Stream = Iterator[list[Cell]]
Text = NDArray[np.float64]
HISTORY = 2000  # tokens of a made-up request


@dataclass(frozen=True)
class Found:
    """What the detector said about several streams of one kind."""

    name: str
    streams: int
    windows: int
    """Of each stream, after learning."""
    suspected: int
    """Streams in which it was."""
    proved: int
    muted: float
    """Share of windows in which position 1 was not compared or still learnt."""
    shift: float
    """Position 1 of the last quarter against that of the learnt windows, as a share: what a plain comparison sees."""


def examine(
    name: str, make: Callable[[np.random.Generator], Stream], *, streams: int, windows: int, settings: Settings
) -> Found:
    """Watch several streams of one kind."""
    levels, muted, shifts = [], 0, []
    for seed in range(streams):
        detector = Detector(settings=settings)
        history = []
        for t, cells in enumerate(islice(make(np.random.default_rng(seed)), settings.learning + windows)):
            detector.observe(cells)
            history.append(
                (sum(c.tested for c in cells if c.position == 1), sum(c.accepted for c in cells if c.position == 1))
            )
            if t >= settings.learning:
                keys = {c.key for c in cells if c.position == 1 and c.tested}
                states = {s.state for s in detector.cells if (s.position, s.source, s.tag, s.depth) in keys}
                muted += states != {"watched"}
        levels.append(detector.level)
        first, last = history[: settings.learning], history[-windows // 4 :]
        rates = [sum(a for _, a in part) / max(1, sum(n for n, _ in part)) for part in (first, last)]
        shifts.append(rates[1] / rates[0] - 1)
    proved, suspected = (sum(each >= least for each in levels) for least in (Level.PROVED, Level.SUSPECTED))
    return Found(name, streams, windows, suspected, proved, muted / (streams * windows), float(np.mean(shifts)))


def cells_of(
    world: World, *, known: bool = False, tags: Sequence[str] = ("",)
) -> Callable[[np.random.Generator], Stream]:
    """The windows of a world as cells. known: the draft length is said; tags: names, or one for all."""

    def make(rng: np.random.Generator) -> Stream:
        for t, (tested, accepted) in enumerate(world.windows(rng, 1)):
            counts = np.stack([tested, accepted]).reshape(2, len(world.tags), world.most).astype(int)
            if len(tags) == 1:
                counts = counts.sum(1, keepdims=True)
            yield [
                Cell(i + 1, "", tag, int(n), int(a), world.depth(t) if known else None)
                for tag, n_row, a_row in zip(tags, *counts, strict=True)
                for i, (n, a) in enumerate(zip(n_row, a_row, strict=True))
            ]

    return make


def changing(at: int, before: int, after: int) -> Callable[[int], int]:
    """One draft length until window `at`, another from then on."""
    return lambda t: before if t < at else after


def paced_cells(
    batches: Callable[[int], int], *, per_window: int = 120, fall: Callable[[int], float] = lambda _: 0.0
) -> Callable[[np.random.Generator], Stream]:
    """The shipped adaptive pacing on text that is easy or hard from stretch to stretch; `batches` and `fall` of window
    t: requests that run, and how much acceptance lies under what it was, as a share."""
    world = paced.World("drift", 16, 0.05, growth=0.02, steep=0.03)

    def make(rng: np.random.Generator) -> Stream:
        pacing = AdaptivePacing([Source("simulated", paced.LIMIT)], world.costs(), clock=lambda: 0.0)
        texts: dict[int, tuple[Text, int]] = {}
        born, t = 0, 0
        while True:
            counts, rounds = PositionCounts(), 0
            while rounds < per_window:
                while len(texts) < batches(t):
                    texts[born] = _text(rng), 0
                    born += 1
                for gone in list(texts)[batches(t) :]:
                    pacing.release(gone)
                    del texts[gone]
                rounds += len(texts)
                for depth, accepted in _step(pacing, world, texts, rng, 1 - fall(t)):
                    if depth:
                        counts.add(depth, accepted)
                for r in [r for r, (text, at) in texts.items() if at > len(text) - 2 * paced.LIMIT]:
                    pacing.release(r)
                    del texts[r]
            yield [
                Cell(i + 1, tested=n, accepted=a)
                for i, (n, a) in enumerate(zip(counts.tested, counts.accepted, strict=True))
            ]
            t += 1

    return make


def _text(rng: np.random.Generator) -> Text:
    """The acceptance at each token of a request: it changes between two values, and requests differ."""
    stretches = np.cumsum(rng.random(HISTORY) > 0.9) % 2
    own = np.clip(rng.normal(1, 0.05), 0.8, 1.08)
    return np.where((stretches + rng.integers(2)) % 2 == 0, 0.55, 0.92) * own


def _step(
    pacing: AdaptivePacing,
    world: paced.World,
    texts: dict[int, tuple[Text, int]],
    rng: np.random.Generator,
    share: float,
) -> list[tuple[int, int]]:
    """One engine step: every request's draft length and how much of it was accepted."""
    rows = [Row(r, (0,) * at, paced._LAW, Noise(0), room=paced.LIMIT) for r, (_, at) in texts.items()]
    plan = pacing.plan(rows)
    lengths = [min(budget.nodes, row.room) for budget, row in zip(plan.budgets, rows, strict=True)]
    seconds = Seconds(
        draft=paced._SCALE * world.draft(lengths), verify=paced._SCALE * world.forward(len(rows) + sum(lengths))
    )
    found, steps = [], []
    for row, budget, k in zip(rows, plan.budgets, lengths, strict=True):
        text, at = texts[row.request]
        right = rng.random(k) < share * text[at : at + k]
        accepted = k if right.all() else int(right.argmin())
        steps.append(
            Step(
                request=row.request, index=0, position=at,
                draft=Draft((0,) * k, tuple(range(-1, k - 1)), source="simulated") if k else Draft(),
                path=tuple(range(accepted)), tokens=(0,) * (accepted + 1), logprobs=None, rows=1 + k, batch=len(rows),
                seconds=seconds, finish_reason=None, speculation=paced._SPECULATION, budget=budget,
            )
        )  # fmt: skip
        texts[row.request] = text, at + accepted + 1
        found.append((k, accepted))
    pacing.observe(plan, steps)
    return found


KINDS = (Tag(0.85, 0.03), Tag(0.55, 0.08))


def scenarios(learning: int) -> dict[str, Callable[[np.random.Generator], Stream]]:
    """By name, streams in which nothing falls (in those that begin with FALL it does)."""
    mixed = replace(World(), tags=KINDS, load=lambda t: (1.0, 1.0) if t < learning else (0.4, 1.6))
    untagged = replace(World(), tags=KINDS)
    up, down = (changing(learning + 12, 4, k) for k in (8, 2))

    def fallen(share: float) -> Callable[[int], float]:
        return lambda t: share * (t >= learning + 12)

    wave = daily(0.97, 1.03)
    return {
        "K fixed, 4 then 8, said": cells_of(World(depth=up, most=8), known=True),
        "K fixed, 4 then 8, not said": cells_of(World(depth=up, most=8)),
        "K fixed, 4 then 2, not said": cells_of(World(depth=down)),
        "two kinds not tagged, K 4 then 8, not said": cells_of(replace(untagged, depth=up, most=8)),
        "two kinds not tagged, K 4 then 8, said": cells_of(replace(untagged, depth=up, most=8), known=True),
        "adaptive K, batch 1": paced_cells(lambda _: 1),
        "adaptive K, batch 2 then 16": paced_cells(lambda t: 2 if t < learning else 16),
        "adaptive K, batch 16 then 2": paced_cells(lambda t: 16 if t < learning else 2),
        "adaptive K, batch 1 to 16 by day": paced_cells(lambda t: round(daily(1, 16)(t))),
        "two kinds, shares change, tagged": cells_of(mixed, tags=("code", "chat")),
        "text by day, 3% up and down": cells_of(World(mood=wave)),
        "FALL: adaptive K, acceptance falls by 10%": paced_cells(lambda _: 1, fall=fallen(0.1)),
        "FALL: adaptive K, acceptance falls by 25%": paced_cells(lambda _: 1, fall=fallen(0.25)),
        "FALL: two kinds, shares change, not tagged": cells_of(mixed),
    }


__all__ = ["Found", "cells_of", "changing", "examine", "paced_cells", "scenarios"]
