"""Pacing without models: made-up guesses and made-up costs, so that the best possible pacing is known.

A guess at position t of a row's text is right with probability alpha(t), one after the other. A step costs a forward
of its rows and the drafts of all rows, times the machine's noise. The pacing under test is the shipped code: it is
asked and told exactly as the engine asks and tells it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pacing_stepwise import StepwisePacing

from headstart.pacing import FixedPacing, Pacing, Plan, Row
from headstart.pacing.controller import AdaptivePacing
from headstart.pacing.source import Source
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.theory.costs import DraftCost, StepCosts
from headstart.theory.mixture import DENSE, RHO, Routing
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step

LIMIT = 12
STRETCH = 100
READ = 1 / 50
"""Reading a token of context, in drafted tokens."""
NOISE = 0.15
_SCALE = 0.01  # seconds of a plain step
_LAW = SamplingState(Sampling(), (), 9, frozenset())
_SPECULATION = Speculation(True, "simulated")


@dataclass(frozen=True)
class World:
    """Costs in target steps. row: share by which each further row of a forward costs more, up to `flat` rows;
    beyond it each costs `steep`. start, token: of a draft; growth: of a draft, by further request. routing, share: of a
    mixture of experts, how its texts choose, and the share of a plain step that reads experts. counted: whether the
    engine tells how many experts a forward met."""

    name: str
    batch: int
    token: float
    start: float = 0.0
    row: float = 0.01
    flat: int = 16
    steep: float = 0.06
    growth: float = 0.1
    routing: Routing = DENSE
    share: float = 0.0
    counted: bool = True

    def forward(self, rows: int, batch: int | None = None) -> float:
        """rows: of all requests, each of which has a text of its own; of `batch` of them in place of the world's."""
        read = self.met(rows, batch) / self.routing.chosen
        return (
            1 + self.row * (min(rows, self.flat) - 1) + self.steep * max(0, rows - self.flat) + self.share * (read - 1)
        )

    def met(self, rows: int, batch: int | None = None) -> float:
        """Experts of a layer."""
        requests = self.batch if batch is None else batch
        return self.routing.union(requests + (rows - requests) * self.routing.further)

    @property
    def plain(self) -> float:
        return self.forward(self.batch)

    def draft(self, lengths: Sequence[int]) -> float:
        """Drafts of all rows together: rows that want fewer leave earlier."""
        if not any(lengths):
            return 0.0
        live = [sum(k > depth for k in lengths) for depth in range(max(lengths))]
        return self.start + sum(self.token * (1 + self.growth * (requests - 1)) for requests in live)

    def costs(self) -> StepCosts:
        """What measuring would find: made-up rows meet experts of their own."""
        numbers = (1, 2, 4, 8, 16, 32, 64) if self.routing.dense else (1, 2, 3, 4, 6, 8, 16, 32, 64)
        rows = tuple((n, _SCALE * self.forward(n, n)) for n in numbers)
        cost = DraftCost(_SCALE * self.start, _SCALE * self.token, _SCALE * self.token * READ, self.growth)
        found = StepCosts(rows, 0.0, {"simulated": cost}, routing=replace(self.routing, rho=RHO))
        return found if self.counted else found.of_texts()


Process = Callable[[np.random.Generator, int], NDArray[Any]]


def stationary(alpha: float) -> Process:
    return lambda _, tokens: np.full(tokens, alpha)


def switching(good: float, bad: float) -> Process:
    """Stretches of 100 tokens, one kind after the other; where it begins is drawn."""

    def process(rng: np.random.Generator, tokens: int) -> NDArray[Any]:
        begin = rng.integers(2 * STRETCH)
        return np.where((np.arange(tokens) + begin) // STRETCH % 2 == 0, good, bad)

    return process


def drifting(low: float, high: float) -> Process:
    """A slow wave, with a phase of its own."""

    def process(rng: np.random.Generator, tokens: int) -> NDArray[Any]:
        wave = np.sin(2 * np.pi * (np.arange(tokens) / 400 + rng.random()))
        return low + (high - low) * (wave + 1) / 2

    return process


PROCESSES: dict[str, Process] = {
    **{f"alpha {alpha:g}": stationary(alpha) for alpha in (0.0, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)},
    "switching .95/.05": switching(0.95, 0.05),
    "switching .9/.4": switching(0.9, 0.4),
    "drifting .2 to .95": drifting(0.2, 0.95),
}
WORLDS = (
    World("1B, batch 1", 1, 0.13),
    World("1B, n-gram", 1, 0.0),
    World("small, batch 1", 1, 0.3, row=0.02),
    World("slow draft", 1, 1.1),
    World("batch 4", 4, 0.13),
    World("batch 8", 8, 0.13),
    World("batch 16", 16, 0.13),
)

_LAYERS = 48
_QWEN3, _QWEN36 = Routing(128, 8, layers=_LAYERS), Routing(256, 8, layers=_LAYERS)
_LFM2 = Routing(32, 4, layers=22)
MIXTURES = (
    World("Qwen3-30B, n-gram", 1, 0.0, routing=_QWEN3, share=0.6),
    World("Qwen3-30B, MTP", 1, 0.06, routing=_QWEN3, share=0.6),
    World("Qwen3-30B, MTP, uncounted", 1, 0.06, routing=_QWEN3, share=0.6, counted=False),
    World("Qwen3-30B, MTP, independent", 1, 0.06, routing=replace(_QWEN3, rho=0.0), share=0.6),
    World(
        "Qwen3-30B, MTP, independent, uncounted", 1, 0.06, routing=replace(_QWEN3, rho=0.0), share=0.6, counted=False
    ),
    World("Qwen3-30B, MTP, alike", 1, 0.06, routing=replace(_QWEN3, rho=0.7), share=0.6),
    World("Qwen3.6-35B, MTP", 1, 0.06, routing=_QWEN36, share=0.34),
    World("gpt-oss-20b, EAGLE-3", 1, 0.08, routing=Routing(32, 4, layers=24), share=0.65),
    World("Qwen3-30B, batch 4, MTP", 4, 0.06, routing=_QWEN3, share=0.6),
    World("LFM2-8B, n-gram", 1, 0.0, row=0.03, routing=_LFM2, share=0.62),
    World("LFM2-8B, n-gram, independent", 1, 0.0, row=0.03, routing=replace(_LFM2, rho=0.0), share=0.62),
)
"""Mixtures of experts: how many there are and their share of a token's weights as in these models (counted from their
shapes, all tensors at equal bits); how alike neighbours choose is made up."""
MIXED: dict[str, Process] = {f"alpha {alpha:g}": stationary(alpha) for alpha in (0.3, 0.5, 0.7, 0.85)}


def expected(alpha: float, k: int) -> float:
    """Tokens of a round."""
    return k + 1.0 if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def best_k(world: World, alpha: float, most: int = LIMIT) -> int:
    """The fixed K that is best if every row is like this."""
    b = world.batch
    return max(
        range(most + 1), key=lambda k: b * expected(alpha, k) / (world.forward(b * (1 + k)) + world.draft([k] * b))
    )


class Oracle(Pacing):
    """Knows alpha, and takes the best fixed K of each stretch."""

    name = "oracle"

    def __init__(self, world: World, alphas: Sequence[NDArray[Any]]) -> None:
        self._alphas = [np.round(row, 2) for row in alphas]
        self._best = {a: best_k(world, float(a)) for row in self._alphas for a in np.unique(row)}
        self._fixed = [Budget(k, f"K={k}, fixed") for k in range(LIMIT + 1)]

    def plan(self, rows: Sequence[Row]) -> Plan:
        return Plan([self._fixed[self._best[self._alphas[row.request][len(row.tokens)]]] for row in rows])

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:
        pass

    def release(self, request: int) -> None:
        pass


def speed(
    world: World,
    pacing: Pacing,
    alphas: Sequence[NDArray[Any]],
    tokens: int,
    seed: int,
    *,
    steps_at_most: int | None = None,
) -> float:
    """Tokens per target step's time: those that drafts as long have on average there, so that lucky draws count only
    for what pacing learns from them. Every row runs until all have `tokens`, or for so many steps; what is more is
    counted too."""
    rng = np.random.default_rng(seed)
    position = [0] * world.batch
    made = clock = 0.0
    for _ in itertools.count() if steps_at_most is None else range(steps_at_most):
        if min(position) >= tokens:
            break
        rows = [
            Row(r, (0,) * at, _LAW, Noise(0), room=max(0, len(alphas[r]) - at - LIMIT)) for r, at in enumerate(position)
        ]
        plan = pacing.plan(rows)
        budgets, steps = plan.budgets, []
        lengths = [min(b.nodes, row.room) for b, row in zip(budgets, rows, strict=True)]
        verify = world.forward(world.batch + sum(lengths))
        met = world.met(world.batch + sum(lengths)) * world.routing.layers
        experts = None if world.routing.dense or not world.counted else round(met)
        draft = world.draft(lengths)
        clock += verify + draft
        hiccup = np.exp(NOISE * rng.standard_normal(2))
        seconds = Seconds(draft=_SCALE * draft * hiccup[0], verify=_SCALE * verify * hiccup[1])
        for r, k in enumerate(lengths):
            chances = alphas[r][position[r] : position[r] + k]
            right = rng.random(k) < chances
            accepted = k if right.all() else int(right.argmin())
            step = Step(
                request=r,
                index=0,
                position=position[r],
                draft=Draft((0,) * k, tuple(range(-1, k - 1)), source="simulated") if k else Draft(),
                path=tuple(range(accepted)),
                tokens=(0,) * (accepted + 1),
                logprobs=None,
                rows=1 + k,
                batch=world.batch,
                seconds=seconds,
                finish_reason=None,
                speculation=_SPECULATION,
                budget=budgets[r],
                experts=experts,
            )
            steps.append(step)
            position[r] += accepted + 1
            made += 1 + float(np.cumprod(chances).sum())
        pacing.observe(plan, steps)
    return made / clock


def contenders(world: World, alphas: Sequence[NDArray[Any]]) -> dict[str, Pacing]:
    fixed = {f"K={k}": FixedPacing(k) for k in range(1, LIMIT + 1)}
    ours = AdaptivePacing([Source("simulated", LIMIT)], world.costs(), clock=lambda: 0.0)
    return {**fixed, "stepwise": StepwisePacing(), "adaptive": ours, "oracle": Oracle(world, alphas)}


def simulate(
    worlds: Sequence[World] = WORLDS,
    processes: Mapping[str, Process] = PROCESSES,
    *,
    tokens: int = 1000,
    seeds: int = 2,
    steps: int | None = None,
) -> list[dict[str, Any]]:
    """Speed over plain decoding for every world, process and pacing. steps: of short texts, see `speed`."""
    found = []
    for world in worlds:
        for name, process in processes.items():
            speeds: dict[str, list[float]] = {}
            for seed in range(seeds):
                rng = np.random.default_rng([seed, world.batch])
                alphas = [process(rng, 2 * tokens + 64) for _ in range(world.batch)]
                plain = world.batch / world.plain
                for pacing, made in contenders(world, alphas).items():
                    speeds.setdefault(pacing, []).append(
                        speed(world, made, alphas, tokens, seed, steps_at_most=steps) / plain
                    )
            found.append({"world": world.name, "text": name, **{k: float(np.mean(v)) for k, v in speeds.items()}})
    return found
