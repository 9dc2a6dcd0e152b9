"""Named situations that people meet, simulated and compared with the formulas.

All but the last have a planted acceptance, so theory predicts them exactly and the simulation has to agree. The last
one, text that changes, is what the formulas for one alpha cannot describe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.learn.simulate.costs import Estimate, Run
from headstart.learn.simulate.decoding import speculate
from headstart.learn.simulate.lengths import FixedK, Lengths, OracleK, SimpleK
from headstart.learn.simulate.models import TableModel, changing_pair, planted_pair
from headstart.theory import best_k, break_even_alpha, speedup


@dataclass(frozen=True)
class Scenario:
    """A situation: its question, acceptance, draft length, and costs in plain steps.

    alpha: the chance that a guess is accepted, or (easy, hard) for text that changes between the two.
    k: a number, or a rule that chooses.
    c: the cost of a draft step.
    v: the cost of a verification by its rows; None for one plain step whatever its width.
    """

    name: str
    story: str
    alpha: float | tuple[float, float]
    k: int | Lengths
    c: float
    v: Mapping[int, float] | None = None

    def pair(self, seed: int) -> tuple[TableModel, TableModel]:
        if isinstance(self.alpha, tuple):
            easy, hard = self.alpha
            return changing_pair(easy, hard, seed=seed)
        return planted_pair(self.alpha, seed=seed)

    def parameters(self) -> dict[str, Any]:
        """For tables and JSON."""
        k = self.k if isinstance(self.k, int) else type(self.k).__name__
        v = None if self.v is None else {str(rows): cost for rows, cost in self.v.items()}
        return {"alpha": self.alpha, "k": k, "c": self.c, "v": v}


@dataclass(frozen=True)
class ScenarioResult:
    """A scenario simulated, beside what theory predicts (None where one alpha does not describe it).

    predicted: the speedup by theory.
    best_k: the best draft length by theory.
    best_speedup: the speedup at best_k, by theory.
    break_even: the acceptance at which drafting pays, by theory; nan if none does.
    alternatives: simulated speedups of other rules for K on the same text.
    """

    scenario: Scenario
    rounds: int
    speedup: Estimate
    tokens_per_round: Estimate
    acceptance: tuple[Estimate, ...]
    mean_k: float
    predicted: float | None = None
    best_k: int | None = None
    best_speedup: float | None = None
    break_even: float | None = None
    alternatives: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def pays(self) -> bool | None:
        """Whether the simulated speedup is above 1 by 3 standard errors; None if it is too near to tell."""
        value, error = self.speedup
        return None if abs(value - 1) <= 3 * error else value > 1

    @property
    def agrees(self) -> bool | None:
        """Whether simulation and theory agree within 4 standard errors; None without a prediction."""
        if self.predicted is None:
            return None
        return abs(self.speedup.value - self.predicted) <= 4 * self.speedup.standard_error + 1e-12

    @property
    def verdict(self) -> str:
        """One sentence."""
        gain = {True: "faster", False: "slower", None: "no different"}[self.pays]
        text = f"{self.speedup.value:.2f} times the baseline: {gain}"
        if self.break_even is not None and self.pays is False:
            need = "no acceptance would do" if math.isnan(self.break_even) else f"needs alpha {self.break_even:.2f}"
            text += f" ({need})"
        if self.best_k is not None and self.best_k != self.scenario.k:
            advice = f"K={self.best_k} gives {self.best_speedup:.2f}" if self.best_k else "do not speculate"
            text += f"; best: {advice}"
        return text

    def record(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "name": self.scenario.name,
            "story": self.scenario.story,
            **self.scenario.parameters(),
            "rounds": self.rounds,
            "speedup": list(self.speedup),
            "tokens_per_round": list(self.tokens_per_round),
            "acceptance": [list(one) for one in self.acceptance],
            "mean_k": self.mean_k,
            "predicted": self.predicted,
            "best_k": self.best_k,
            "best_speedup": self.best_speedup,
            "break_even": None if self.break_even is None or math.isnan(self.break_even) else self.break_even,
            "alternatives": {name: list(one) for name, one in self.alternatives.items()},
            "verdict": self.verdict,
        }


SCENARIOS = (
    Scenario("a good draft", "A small model of the same family, trained on the same text.", 0.85, 5, 0.05),
    Scenario(
        "the draft is too expensive",
        "It guesses well, but a step of it takes 0.6 of a step of the target.",
        0.8,
        5,
        0.6,
    ),
    Scenario("the draft is too different", "Another family, or text it was never trained on.", 0.3, 5, 0.1),
    Scenario("the draft is too long", "A fair draft asked for ten tokens at a time.", 0.5, 10, 0.1),
    Scenario(
        "the target is already fast",
        "A small target on a fast machine: launching a draft step costs nearly what a target step does.",
        0.8,
        4,
        0.6,
        {1: 1.0, 5: 1.3},
    ),
    Scenario(
        "a large batch",
        "The machine is busy computing, so rows of a verification cost what rows of other requests would.",
        0.8,
        5,
        0.05,
        {1: 1.0, 2: 1.7, 4: 3.2, 8: 6.2},
    ),
    Scenario("a short context", "1,000 tokens: the draft keeps up.", 0.8, 5, 0.08),
    Scenario("a longer context cools acceptance", "8,000 tokens: beyond what the draft was trained on.", 0.55, 5, 0.12),
    Scenario("a very long context", "32,000 tokens: the draft guesses from what little it can see.", 0.3, 5, 0.16),
    Scenario("text that changes", "Easy and hard stretches of 50 tokens; K follows.", (0.95, 0.2), SimpleK(), 0.1),
)


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name."""
    return {one.name: one for one in SCENARIOS}


def run_scenario(
    scenario: Scenario | str, *, rounds: int = 200, streams: int = 500, rule: str = "chain", seed: int = 0
) -> ScenarioResult:
    """Simulate a scenario (rounds * streams rounds in all) and put theory beside it.

    Raises:
        InvalidOption: no scenario has that name, or a number is out of range.
    """
    chosen = _named(scenario) if isinstance(scenario, str) else scenario
    target, draft = chosen.pair(seed)

    def run(k: int | Lengths) -> Run:
        return speculate(target, draft, k=k, rule=rule, rounds=rounds, streams=streams, seed=seed)

    done = run(chosen.k)
    result = ScenarioResult(
        scenario=chosen,
        rounds=int(done.lengths.sum()),
        speedup=done.speedup(chosen.c, chosen.v),
        tokens_per_round=done.tokens_per_round,
        acceptance=done.acceptance,
        mean_k=done.mean_k,
    )
    if isinstance(chosen.alpha, tuple):  # one alpha does not describe it
        rules: dict[str, Lengths] = {f"K={k}": FixedK(k) for k in (2, 4, 8)}
        rules["oracle"] = OracleK(chosen.c, chosen.v)
        others = {name: run(k).speedup(chosen.c, chosen.v) for name, k in rules.items()}
        return replace(result, alternatives=others)
    if rule == "point-mass":  # what it accepts is not alpha: it drafts the likeliest token, not a drawn one
        return result
    best = best_k(chosen.alpha, chosen.c, chosen.v)
    fixed = chosen.k if isinstance(chosen.k, int) else None
    return replace(
        result,
        predicted=None if fixed is None else float(speedup(chosen.alpha, fixed, chosen.c, chosen.v)),
        best_k=best.k,
        best_speedup=best.speedup,
        break_even=None if fixed is None else float(break_even_alpha(fixed, chosen.c, chosen.v)),
    )


def _named(name: str) -> Scenario:
    known = scenarios()
    if name not in known:
        raise InvalidOption(f"there is no scenario {name!r}", hint=f"the scenarios are: {', '.join(known)}")
    return known[name]
