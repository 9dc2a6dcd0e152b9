"""Made-up bench results, with times and counts that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headstart.measure.bench.result import FAST, PLAIN, BenchResult, PromptRecord, RunRecord, SourceRecord, Trial
from headstart.measure.provenance import Provenance
from headstart.theory import DraftCost, StepCosts

ENGINE = {
    "target": "T",
    "drafter": "D",
    "dtype": "float32",
    "device": "cpu",
    "threads": 1,
    "pacing": "fixed",
    "width_invariant": False,
}
COSTS = StepCosts(((1, 0.01), (2, 0.011), (4, 0.012), (8, 0.016)), drafts={"D": DraftCost(0.001, 0.001)})
K = 3
SHARES = {"plan": 0.05, "draft": 0.1, "verify": 0.6, "sample": 0.1, "commit": 0.05}
"""Of a run's time."""


def run(prompt: int, seconds: float, *, forwards: int = 10, tokens: int = 10, **changes: Any) -> RunRecord:
    """`tokens` in `forwards` chunks at even times, the first after a tenth; those beyond one a forward were guessed."""
    counts = [tokens // forwards + (i < tokens % forwards) for i in range(forwards)]
    accepted = tokens - forwards
    drafted = accepted > 0
    facts: dict[str, Any] = {
        "prompt": prompt,
        "seconds": seconds,
        "arrivals": tuple(seconds * (0.1 + 0.9 * i / max(1, forwards - 1)) for i in range(forwards)),
        "counts": tuple(counts),
        "forwards": forwards,
        "prefills": 0,
        "drafted": K * forwards if drafted else 0,
        "accepted": accepted,
        "tested": (forwards,) if drafted else (),
        "kept": (min(accepted, forwards),) if drafted else (),
        "parts": {part: share * seconds for part, share in SHARES.items()},
        "sources": {"D": SourceRecord(forwards, K * forwards, K * forwards, accepted)} if drafted else {},
        "chains": True,
        "finish_reason": "length",
        "on": True,
        "drafter": "D",
        "reason": "",
    }
    return RunRecord(**{**facts, **changes})


def prompts(categories: Mapping[str, int]) -> tuple[PromptRecord, ...]:
    """So many of each category."""
    return tuple(
        PromptRecord(f"{category} {i}", category, 5, f"{category}{i}")
        for category, n in categories.items()
        for i in range(n)
    )


def result(plain: Sequence[Sequence[float]], fast: Sequence[Sequence[float]], **changes: Any) -> BenchResult:
    """plain[i], fast[i]: seconds of prompt i by repetition; 10 tokens each, 5 forwards where speculative."""
    trials = [
        Trial(arm, unit, repetition, seconds, (run(unit, seconds, forwards=10 if arm == PLAIN else 5),))
        for arm, all_seconds in ((PLAIN, plain), (FAST, fast))
        for unit, each in enumerate(all_seconds)
        for repetition, seconds in enumerate(each)
    ]
    facts: dict[str, Any] = {
        "provenance": Provenance.now().record(),
        "engine": ENGINE,
        "settings": {"target": "T", "max_tokens": 10},
        "prompts": prompts({"code": len(plain)}),
        "units": tuple((index,) for index in range(len(plain))),
        "trials": tuple(trials),
        "compared": True,
        "costs": COSTS,
        "memory": {"target_weights": 2**20, "peak_gpu": None},
        "no_energy": "no counter",
    }
    return BenchResult(**{**facts, **changes})


def noisy(seed: int, *, categories: Mapping[str, int], slower: float = 1.0, noise: float = 0.03) -> BenchResult:
    """Three repetitions of prompts that differ, always the same prompts, with noise of the seed. slower: how many times
    as long the speculative arm takes as it should. Now and then a run takes twice as long, as on any machine."""
    made = prompts(categories)
    fixed = np.random.default_rng(99)
    length, gain = fixed.lognormal(0, 0.4, len(made)), fixed.uniform(1.5, 3, len(made))
    rng = np.random.default_rng(seed)

    def times(seconds: Any) -> list[list[float]]:
        hiccups = 1 + (rng.random((len(made), 3)) < 0.03)
        return (seconds[:, None] * rng.lognormal(0, noise, (len(made), 3)) * hiccups).tolist()  # type: ignore[no-any-return]

    machine = rng.uniform(0.7, 1.4)  # another day, another clock
    return result(times(machine * length), times(machine * slower * length / gain), prompts=made)
