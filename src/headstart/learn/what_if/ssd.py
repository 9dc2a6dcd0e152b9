"""Does drafting ahead pay, for these figures or at these placements? The simulator's answer in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from headstart.base.as_json import as_json
from headstart.base.errors import InvalidOption
from headstart.learn.simulate.placements import FORESEEN, Placement, placements
from headstart.learn.simulate.ssd import SsdRun
from headstart.learn.simulate.ssd_inputs import LaneCosts, SsdPlan, account
from headstart.learn.what_if import options
from headstart.learn.what_if.options import Question, SsdQuestion, flag, one_named

_WORTH_IT = 1.03
FAN_OUTS = (1, 2, 3, 4, 6, 8)
_ASKED = ("alpha", "by_position", "k", "c", "verify_cost", "batch")
"""The fields of `Question` that a question about drafting ahead has a part for."""
_COSTS = {
    "sharing": "the verification is slowed down by sharing the machine",
    "wait": "the target waits for drafts that are not ready",
    "hand over": "outcomes and drafts are handed over",
    "draft now": "misses are drafted for while the target waits",
}


@dataclass(frozen=True)
class Prospect:
    """One placement, simulated ahead and in turn with the same acceptance."""

    placement: Placement
    ahead: SsdRun
    in_turn: SsdRun
    unit: str
    """Of all times: ms, or plain steps."""

    @property
    def over_plain(self) -> float:
        return self.ahead.rate.value * self.placement.plain / self.placement.plan.batch

    @property
    def in_turn_over_plain(self) -> float:
        return self.in_turn.rate.value * self.placement.plain / self.placement.plan.batch

    @property
    def over_in_turn(self) -> float:
        return self.ahead.rate.value / self.in_turn.rate.value

    @property
    def by_formula(self) -> float:
        """Over drafting in turn; nan where K differs or somebody waits for nothing: the formula has no such case."""
        if self.placement.in_turn_k not in (None, self.placement.plan.k) or self.placement.plan.drafted == "nothing":
            return float("nan")
        return account(self.placement.plan, self.placement.costs).gain

    @cached_property
    def costs(self) -> dict[str, float]:
        """Of a round, what drafting ahead costs, by reason; in `unit`."""
        return {name: self.ahead.target[name] / self.ahead.rounds for name in _COSTS}

    @property
    def hidden(self) -> float:
        """The drafting that a round in turn waits for."""
        return self.in_turn.target["draft now"] / self.in_turn.rounds

    @property
    def tokens_lost(self) -> float:
        """The share of a round's tokens that shorter or missing drafts lose."""
        return 1 - self.ahead.tokens_per_round / self.in_turn.tokens_per_round

    @property
    def kind(self) -> Literal["good", "bad", "unsure"]:
        if self.over_in_turn >= _WORTH_IT:
            return "good"
        return "bad" if self.over_in_turn < 1 else "unsure"

    @property
    def verdict(self) -> str:
        gain = f"{self.over_in_turn:.2f}x drafting in turn"
        return {"good": f"Draft ahead: {gain}.", "bad": f"Draft in turn: ahead loses, {gain}.",
                "unsure": f"Hardly a gain: {gain}."}[self.kind]  # fmt: skip

    @property
    def reason(self) -> str:
        """The terms of a round, the most expensive named."""
        cost = sum(self.costs.values())
        words = f"It hides {self.number(self.hidden)} of drafting a round and costs {self.number(cost)}"
        dearest = max(self.costs, key=lambda name: self.costs[name])
        if cost > 0:
            words += f", most of it ({self.number(self.costs[dearest])}) because {_COSTS[dearest]}"
        if self.tokens_lost > 0.02:
            words += f"; a round emits {self.tokens_lost:.0%} fewer tokens"
        if self.over_in_turn > 1 and self.in_turn_over_plain < 1 and self.over_plain < 1:
            words += "; and plain decoding is faster than both"
        return f"{words}."

    def number(self, time: float) -> str:
        return f"{time:.2f} {self.unit}"


@dataclass(frozen=True)
class FanOut:
    """What another fan-out would give: the same F after every number of accepted tokens."""

    fan_out: int
    branches: int
    hit_rate: float
    round_time: float
    over_in_turn: float


@dataclass(frozen=True)
class SsdAnswer:
    """prospects: the user's own, or all placements. fan_outs: for a single one."""

    prospects: tuple[Prospect, ...]
    fan_outs: tuple[FanOut, ...] = ()
    own: bool = False


def ask_ssd(question: Question, ahead: SsdQuestion) -> SsdAnswer:
    """Simulate the user's own figures if there are any, one placement if it is named, or all placements.

    Raises:
        InvalidOption: options contradict each other, or a value is out of its range.
    """
    strange = [name for name in question.given if name not in _ASKED]
    if strange:
        raise InvalidOption(f"{flag(strange[0])} has no part in --ssd", hint=f"it takes {', '.join(map(flag, _ASKED))}")
    run_alone = {"placement", "rounds", "seed"}
    own = [name for name in (*question.given, *ahead.given) if name not in run_alone]
    if ahead.placement is not None:
        if own:
            raise InvalidOption(f"{flag(own[0])} has no part in a placement", hint="a placement has its own figures")
        known = {one.name: one for one in placements()}
        return _single(known[one_named(ahead.placement, known, "placement")], ahead, "ms", own=False)
    if not own:
        return SsdAnswer(tuple(_prospect(one, ahead, "ms") for one in placements()))
    scale = ahead.plain_ms or 1.0
    return _single(_own(question, ahead, scale), ahead, "ms" if ahead.plain_ms else "plain steps", own=True)


def _single(placement: Placement, ahead: SsdQuestion, unit: str, *, own: bool) -> SsdAnswer:
    found = _prospect(placement, ahead, unit)
    hits = placement.plan.hits
    known = [f for f in FAN_OUTS if isinstance(hits, Sequence) and f <= len(hits) and hits != FORESEEN]
    shown = known if len(known) > 1 else []
    return SsdAnswer((found,), tuple(_fan_out(placement, found, f, ahead) for f in shown), own)


def _prospect(placement: Placement, ahead: SsdQuestion, unit: str) -> Prospect:
    return Prospect(
        placement, placement.ahead(ahead.rounds, ahead.seed), placement.in_turn(ahead.rounds, ahead.seed), unit
    )


def _fan_out(placement: Placement, found: Prospect, fan_out: int, ahead: SsdQuestion) -> FanOut:
    other = replace(placement, plan=replace(placement.plan, fan_out=(fan_out,)))
    run = other.ahead(ahead.rounds, ahead.seed, keep=0)
    branches = fan_out * (placement.plan.k + 1)
    return FanOut(fan_out, branches, run.hit_rate, run.round_time, run.rate.value / found.in_turn.rate.value)


def _own(question: Question, ahead: SsdQuestion, scale: float) -> Placement:
    if question.alpha and question.by_position:
        raise InvalidOption("--alpha and --by-position exclude each other", hint="give one of them")
    if len(question.alpha) > 1 or len(question.batch) > 1:
        many = "alpha" if len(question.alpha) > 1 else "batch"
        raise InvalidOption(f"--ssd takes one {flag(many)}", hint="ask once for each")
    if question.c is not None and ahead.draft_costs is not None:
        raise InvalidOption("--c and --draft-costs exclude each other", hint="--draft-costs gives the cost by rows")
    plan = SsdPlan(
        acceptance=tuple(question.by_position or question.alpha or (options.DEFAULT_ALPHA,)),
        k=options.DEFAULT_K if question.k is None else question.k,
        fan_out=tuple(ahead.fan_out) or (options.DEFAULT_FAN_OUT,),
        hits=tuple(ahead.hits) or options.DEFAULT_HITS,
        hits_full=tuple(ahead.hits_full) or (None if ahead.hits else options.DEFAULT_HITS_FULL),
        batch=question.batch[0] if question.batch else 1,
        late=ahead.late,
        drafted=ahead.drafted,
    )
    c = options.DEFAULT_C if question.c is None else question.c
    slow = ahead.slow or 0.0
    costs = LaneCosts(
        verify=_scaled(question.verify_cost or {1: 1.0}, scale / (question.verify_cost or {1: 1.0}).get(1, 1.0)),
        level=_scaled(ahead.draft_costs or {1: c}, scale),
        hand_over=(ahead.hand_over or 0.0) * scale,
        slow=slow,
        draft_slow=slow if ahead.draft_slow is None else ahead.draft_slow,
        split=ahead.split,
        jitter=ahead.jitter or 0.0,
    )
    return Placement("Your figures", plan, costs, "", "" if ahead.hits else "hit rates of the bundled pair, greedy.")


def _scaled(table: Mapping[int, float], by: float) -> dict[int, float]:
    return {rows: cost * by for rows, cost in table.items()}


def record_ssd(answer: SsdAnswer) -> dict[str, Any]:
    """All numbers as JSON takes them."""
    found = [
        {
            "name": each.placement.name, "known": each.placement.known, "assumed": each.placement.assumed,
            "published": each.placement.published, "unit": each.unit, "plan": each.placement.plan,
            "costs": each.placement.costs, "plain": each.placement.plain, "verdict": each.verdict,
            "reason": each.reason, "over_plain": each.over_plain, "over_in_turn": each.over_in_turn,
            "in_turn_over_plain": each.in_turn_over_plain, "by_formula": each.by_formula,
            "ahead": _run(each.ahead), "in_turn": _run(each.in_turn),
        }
        for each in answer.prospects
    ]  # fmt: skip
    return as_json({"headstart_simulate_ssd": 1, "placements": found, "fan_outs": answer.fan_outs})  # type: ignore[no-any-return]


def _run(run: SsdRun) -> dict[str, Any]:
    return {
        "rounds": run.rounds, "tokens_per_round": run.tokens_per_round, "round_time": run.round_time,
        "hit_rate": run.hit_rate, "whole": run.whole, "target": dict(run.target), "draft": dict(run.draft),
        "idle": dict(run.idle), "rate": run.rate.value, "standard_error": run.rate.standard_error,
        "spans": run.spans,
    }  # fmt: skip
