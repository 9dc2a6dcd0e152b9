"""Streams of windows of counts, as traffic makes them, and the shipped detector's arithmetic on many of them at once.

Requests differ: each has an acceptance of its own, drawn from a beta distribution, so that its tests are alike. A
request of so many tokens takes tokens / E(acceptance, K) rounds. Shapes: S streams, C cells (tags times positions), W
windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.fleet.watch.drift.evidence import PATIENCE, Bets, Fit
from headstart.theory.rounds import expected_tokens

Window = tuple[NDArray[Any], NDArray[Any]]
"""Tested and accepted [S, C]."""
DAY = 24
"""Windows of a day, where a window is an hour."""


@dataclass(frozen=True)
class Tag:
    """Requests of one kind. correlation: of two tests of one request; 0 makes all tests independent."""

    acceptance: float = 0.8
    correlation: float = 0.05
    requests: float = 20.0
    """In a window."""
    tokens: float = 150.0
    """Of a request, in a window."""


@dataclass(frozen=True)
class World:
    """Traffic, window by window t."""

    tags: tuple[Tag, ...] = (Tag(),)
    depth: Callable[[int], int] = lambda _: 4
    """Draft length; positions behind it are not tested."""
    most: int = 4
    """The longest draft of all."""
    lasting: float = 1.0
    """Windows that a request lasts."""
    shock: float = 0.0
    """Standard deviation of what all requests of a window have in common, as a share of the acceptance."""
    load: Callable[[int], Sequence[float]] = lambda _: (1.0,)
    """By tag, or for all, how many times the requests come."""
    mood: Callable[[int], float] = lambda _: 1.0
    """By how much acceptance is multiplied."""

    def windows(self, rng: np.random.Generator, streams: int) -> Iterator[Window]:
        """Without end."""
        running = [_Running(tag, self, rng, streams) for tag in self.tags]
        t = 0
        while True:
            common = 1 + self.shock * rng.standard_normal((streams, 1))
            factors = np.broadcast_to(self.load(t), len(self.tags))
            parts = [one.window(t, float(f), common) for one, f in zip(running, factors, strict=True)]
            yield np.concatenate([n for n, _ in parts], 1), np.concatenate([a for _, a in parts], 1)
            t += 1


class _Running:
    """The requests of one tag."""

    def __init__(self, tag: Tag, world: World, rng: np.random.Generator, streams: int) -> None:
        self.tag, self.world, self.rng, self.streams = tag, world, rng, streams
        self.drawn = np.zeros((streams, 0))

    def window(self, t: int, factor: float, common: NDArray[Any]) -> Window:
        """[S, K], [S, K]"""
        tag, world, rng = self.tag, self.world, self.rng
        count = max(1, round(tag.requests * factor))
        ended = rng.random((self.streams, min(count, self.drawn.shape[1]))) * world.lasting < 1
        fresh = self._draw(count)
        kept = ended.shape[1]
        fresh[:, :kept] = np.where(ended, fresh[:, :kept], self.drawn[:, :kept])
        self.drawn = fresh
        alpha = np.clip(fresh * common * world.mood(t), 0.001, 0.999)
        depth = world.depth(t)
        rounds = rng.poisson(tag.tokens / np.asarray(expected_tokens(alpha, depth)))
        tested, accepted = np.zeros((self.streams, world.most)), np.zeros((self.streams, world.most))
        for position in range(depth):
            right = rng.binomial(rounds, alpha)
            tested[:, position], accepted[:, position] = rounds.sum(1), right.sum(1)
            rounds = right
        return tested, accepted

    def _draw(self, count: int) -> NDArray[Any]:
        tag = self.tag
        if not tag.correlation:
            return np.full((self.streams, count), tag.acceptance)
        strength = 1 / tag.correlation - 1
        return self.rng.beta(tag.acceptance * strength, (1 - tag.acceptance) * strength, (self.streams, count))


@dataclass(frozen=True)
class Watch:
    """How streams are watched. naive: every test counts as one, and the baseline as exact."""

    learning: int = 24
    drop: float = 0.05
    mean_windows: float = 1000.0
    naive: bool = False
    least_spread: float = 1.0

    def begin(self, source: Iterator[Window]) -> Bets:
        """Learn from the first windows, as long as each stream wants; all are watched from the same window on."""
        learnt = list(islice(source, PATIENCE[-1] * self.learning))
        tested, accepted = (np.stack([window[i] for window in learnt], -1) for i in (0, 1))
        fits = []
        for times in PATIENCE:
            last = times * self.learning
            fits.append(Fit.of(tested[..., :last], accepted[..., :last], self.least_spread))
        settled = [fit.settled(times * self.learning) for fit, times in zip(fits[:-1], PATIENCE, strict=False)]
        fit = _chosen(settled, fits)
        if self.naive:
            one = np.ones_like(fit.whole_spread)
            error = np.zeros_like(fit.error)
            fit = replace(fit, error=error, spread=np.ones_like(fit.spread), whole_spread=one,
                          most=fit.most * np.inf, whole_most=one * np.inf)  # fmt: skip
        return Bets(fit, np.stack([fit.low, fit.low * (1 - self.drop)], 1))

    def step(self, bets: Bets, window: Window) -> NDArray[Any]:
        """[S, 2]: which levels are reached."""
        tested, accepted = window
        active = np.maximum((tested > 0).sum(1), 1)
        bets.bet(tested, accepted, 0.5 / active, 0.5)
        logs = bets.logs
        top = logs.max(-1, keepdims=True)
        total = top[..., 0] + np.log(np.exp(logs - np.maximum(top, -1e9)).sum(-1) + 1e-300)
        return np.asarray(total >= math.log(self.mean_windows))


def _chosen(settled: Sequence[Any], fits: Sequence[Fit]) -> Fit:
    """Of each stream the first fit that was settled, else the last."""
    found = {}
    for field in fields(Fit):
        values = [getattr(fit, field.name) for fit in fits]
        axes = (slice(None), *(None,) * (values[0].ndim - 1))
        found[field.name] = np.select([each[axes] for each in settled], values[:-1], values[-1])
    return Fit(**found)


@dataclass(frozen=True)
class FalseAlarms:
    """Of streams that are watched until their first alarm. windows: until then, of all of them together."""

    streams: int
    windows: int
    suspected: int
    """Streams with an alarm."""
    proved: int
    """Streams in which the upper level was reached, too, with that window."""
    again: int
    """Alarms of all if each is reset and watched on with the same baseline."""
    again_windows: int

    @property
    def mean(self) -> float:
        """Windows to the first alarm, on average; infinite if there was none."""
        return self.windows / self.suspected if self.suspected else math.inf


def false_alarms(world: World, watch: Watch, *, streams: int, windows: int, seed: int = 0) -> FalseAlarms:
    """How soon and how often nothing raises a level."""
    source = world.windows(np.random.default_rng(seed), streams)
    bets = watch.begin(source)
    running, proved, again, exposed = np.ones(streams, bool), 0, 0, 0
    for window in islice(source, windows):
        exposed += int(running.sum())
        reached = watch.step(bets, window)
        proved += int((reached[:, 1] & running).sum())
        again += int(reached[:, 0].sum())
        running &= ~reached[:, 0]
        bets.cell_logs[reached], bets.whole_logs[reached] = -np.inf, -np.inf
    return FalseAlarms(streams, exposed, int((~running).sum()), proved, again, windows * streams)


def delays(
    world: World, watch: Watch, fall: float, *, streams: int, before: int = 30, most: int = 400, seed: int = 0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Windows [S, 2] and tested tokens [S, 2] from a fall to each level, infinite if not within `most` windows."""
    began = PATIENCE[-1] * watch.learning + before
    fallen = replace(world, mood=lambda t: world.mood(t) * (1 - fall * (t >= began)))
    source = fallen.windows(np.random.default_rng(seed), streams)
    bets = watch.begin(source)
    windows, tokens = np.full((streams, 2), np.inf), np.full((streams, 2), np.inf)
    judged = np.zeros(streams)
    for t, window in enumerate(islice(source, before + most), 1 - before):
        reached = watch.step(bets, window)
        if t < 1:  # a false alarm before the fall is begun anew
            bets.cell_logs[reached], bets.whole_logs[reached] = -np.inf, -np.inf
            continue
        judged += window[0].sum(1)
        first = reached & np.isinf(windows)
        windows[first] = t
        tokens[first] = np.broadcast_to(judged[:, None], tokens.shape)[first]
    return windows, tokens


def daily(low: float, high: float) -> Callable[[int], float]:
    """A wave of one day between two values."""
    return lambda t: low + (high - low) * (1 + math.sin(2 * math.pi * t / DAY)) / 2


def mixed(t: int) -> tuple[float, float, float]:
    """Three tags whose shares of the traffic change from one to another, and from window to window."""
    shift = daily(0.1, 1.9)(t)
    return shift, 2.0 - shift, 1.0 if (t // 7) % 2 else 0.2


THREE = (Tag(0.85, 0.03), Tag(0.65, 0.08), Tag(0.5, 0.1))
QUIET: dict[str, World] = {
    "independent tests": World((Tag(correlation=0.0),)),
    "requests differ": World(),
    "requests differ much": World((Tag(correlation=0.2),)),
    "few long requests": World((Tag(requests=4, correlation=0.1),), lasting=5),
    "windows differ": World(shock=0.03),
    "load by day, 1 to 10": World(load=lambda t: (daily(0.2, 2.0)(t),), shock=0.02),
    "load grows tenfold": World(load=lambda t: (0.3,) if t < 100 else (3.0,), shock=0.03),
    "tags change places": World(THREE, load=mixed, lasting=2),
}
"""Nothing happens to acceptance."""
