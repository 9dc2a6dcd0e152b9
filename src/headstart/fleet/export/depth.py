"""K, the draft length: by measured acceptance and what steps cost on the machine that will serve.

The formulas are those of `headstart.theory`; here are only where costs come from and which batch sizes are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from headstart import theory
from headstart.base.errors import InvalidFile
from headstart.fleet.export.manifest import CostsRecord, DepthAt, DrafterKind
from headstart.theory import DraftCost, StepCosts
from headstart.theory.costs import DRAFT

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_COSTS = TypeAdapter(StepCosts)
_ASSUMED: Mapping[DrafterKind, float] = {
    "eagle3": 0.1,
    "medusa": 0.02,
    "draft_model": 0.15,
    "ngram": 0.0,
    "suffix": 0.0,
    "dflash": 0.2,
    "dspark": 0.2,
}
"""A drafted token in plain steps, where nothing was measured."""
_ASSUMED_GUESS = 0.02
"""What one guess more adds to the forward of a drafter that guesses all tokens at once, as a share of that forward."""
_ASSUMED_ROW = 0.03
"""What one row more adds to a forward, in plain steps, where nothing was measured."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What steps cost, and where that is known from. source: "file: ..." or "assumption: ..."."""

    steps: StepCosts
    source: str

    @property
    def assumed(self) -> bool:
        return self.source.startswith("assumption")

    def record(self) -> CostsRecord:
        return CostsRecord(self.source, self.steps.c(), {str(n): self.steps.v(n) for n in self.steps.forwards})


@dataclass(frozen=True, slots=True)
class Plan:
    """depth: the K that is written. off_from: see `Manifest`."""

    depth: int
    by_batch: tuple[DepthAt, ...]
    off_from: int | None


def assumed(kind: DrafterKind, *, parallel: bool = False) -> Costs:
    """A drafted token takes a fixed share of a plain step, and a row of a forward more a small one. parallel: the
    drafter guesses all tokens in one forward of that share."""
    c = _ASSUMED[kind]
    if parallel:
        steps = StepCosts.in_plain_steps(0.0, {1: 1.0, 2: 1.0 + _ASSUMED_ROW})
        words = f"drafting costs {c:g} plain steps whatever the length, and checking a token {_ASSUMED_ROW:g}"
        return Costs(replace(steps, drafts={DRAFT: _drafted(c, parallel)}), f"assumption: {words}")
    words = f"drafting a token costs {c:g} plain steps, and checking it {_ASSUMED_ROW:g}"
    return Costs(StepCosts.in_plain_steps(c, {1: 1.0, 2: 1.0 + _ASSUMED_ROW}), f"assumption: {words}")


def _drafted(seconds: float, parallel: bool) -> DraftCost:
    """A token takes these seconds; or, where all are guessed in one forward, that forward does."""
    return DraftCost(start=seconds, token=_ASSUMED_GUESS * seconds) if parallel else DraftCost(token=seconds)


def read_costs(path: Path, kind: DrafterKind, names: Sequence[str], *, parallel: bool = False) -> Costs:
    """Costs that were measured on another machine: what `headstart doctor --output` wrote there, or a profile.

    names: what the drafter may be called there, to find its own cost among those of a file. parallel: the drafter
    guesses all tokens in one forward.

    Raises:
        InvalidFile: it is neither.
    """
    hint = "run `headstart doctor --model ... --drafter ... --output FILE` on the machine that will serve"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidFile(f"cannot read costs from {path}: {error}", hint=hint) from error
    try:
        if isinstance(found, dict) and found.get("headstart_doctor") == 1:
            return Costs(_of_doctor(found, kind, names, parallel), f"file: {path.name}, of headstart doctor")
        costs = _COSTS.validate_python(found["costs"])
        own = next(iter(costs.drafts.values()), _drafted(_ASSUMED[kind] * costs.forward(1), parallel))
        known = next((costs.drafts[name] for name in names if name in costs.drafts), own)
        return Costs(replace(costs, drafts={DRAFT: known}), f"file: {path.name}, a profile of headstart")
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise InvalidFile(f"{path} holds no costs: {error!r}", hint=hint) from error


def plan(acceptance: Sequence[float], costs: Costs, *, longest: int, batch: int, fixed: int | None) -> Plan:
    """The draft length, and by batch size what would be best.

    acceptance: by position, conditional. longest: the most that was measured or that there are heads for. Where costs
    are an assumption only one request at once is looked at: what batches do to costs is then unknown.
    """
    sizes = sorted({*BATCHES, batch}) if not costs.assumed else [1]
    table = tuple(_at(acceptance, costs.steps, size, longest) for size in sizes)
    chosen = next(one for one in table if one.batch == (1 if costs.assumed else batch))
    gains = [one.batch for one in table if one.depth]
    losing = [one.batch for one in table if not gains or one.batch > gains[-1]]
    off_from = losing[0] if losing and not costs.assumed else None
    return Plan(fixed or max(1, chosen.depth), table, off_from)


def _at(acceptance: Sequence[float], costs: StepCosts, batch: int, longest: int) -> DepthAt:
    """The best K where every request drafts as many; a step verifies K + 1 rows of each."""
    ks = np.arange(1, longest + 1)
    if not acceptance:
        return DepthAt(batch, 0, 1.0)
    plain = costs.step(batch, batch)
    c = np.array([costs.draft(DRAFT, int(k), batch) / k / plain for k in ks])
    gains = np.atleast_1d(
        theory.speedup_by_position(acceptance, ks, c, lambda rows: costs.step(batch * int(rows), batch))
    )
    best = int(gains.argmax())
    return DepthAt(batch, int(ks[best]), float(gains[best])) if gains[best] > 1 else DepthAt(batch, 0, 1.0)


def _of_doctor(found: Mapping[str, Any], kind: DrafterKind, names: Sequence[str], parallel: bool) -> StepCosts:
    """From the record of an examination: v(n) and the cost of a request, and what this drafter's drafts cost if it was
    looked at.

    c is the mean over a draft's tokens. Where these are guessed in one forward, c times their number is that forward,
    and a longer draft hardly costs more.
    """
    costs = found["costs"]
    one = float(costs["seconds"])
    rows = tuple(sorted((int(n), one * float(v)) for n, v in costs["v"].items()))
    draft = _drafted(_ASSUMED[kind] * one, parallel)
    for candidate in found["candidates"]:
        if len(candidate["drafters"]) == 1 and candidate["drafters"][0] in names and "best" in candidate:
            best = candidate["best"]
            cs = [float(member["c"]) for member in best["sources"].values()]
            depth = float(best["depth"]) if parallel else 1.0
            if cs:
                whole = max(cs) * one * depth
                draft = _drafted(whole / (1 + _ASSUMED_GUESS * depth) if parallel else whole, parallel)
    return StepCosts(rows, float(costs["request_seconds"]), {DRAFT: draft})
