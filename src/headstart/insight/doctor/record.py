"""An examination as JSON: every number that stands behind the verdict, and what made it."""

from __future__ import annotations

from typing import Any

from headstart.insight.as_json import as_json
from headstart.insight.doctor import costs
from headstart.insight.doctor.examination import Examination
from headstart.insight.doctor.facts import flags, load_line
from headstart.insight.doctor.measuring import Failure, Inspected
from headstart.insight.doctor.verdict import Checked, Ranked

FORMAT = 1


def record(examination: Examination) -> dict[str, Any]:
    """{"headstart_doctor": 1, ...}; numbers that are not known are null."""
    question, verdict = examination.question, examination.verdict
    ranked = {one.candidate: one for one in examination.ranked}
    best = verdict.best
    found: dict[str, Any] = {
        "headstart_doctor": FORMAT,
        "provenance": examination.provenance,
        "target": examination.described,
        "seconds": examination.seconds,
        "prompts": len(question.items),
        "prompts_sent": examination.forms,
        "tokens_per_prompt": examination.tokens,
        "temperature": question.sampling.temperature,
        "memory": examination.memory.record(),
        "costs": costs.record(examination.costs, examination.read),
        "candidates": [_candidate(one, ranked.get(one.candidate)) for one in examination.inspected],
        "passed_over": examination.passed_over,
        "verdict": {
            "kind": verdict.kind,
            "headline": verdict.headline,
            "drafters": () if best is None else best.candidate.drafters,
            "k": None if best is None else best.best.k,
            "tree": None if best is None else best.tree,
            "speedup": None if best is None else best.gain,
            "reasons": verdict.reasons,
            "batch": verdict.batch,
            "load": load_line(question.setup, best),
            "flags": flags(question.setup, best),
        },
        "advice": None if examination.advice is None else str(examination.advice),
    }
    return as_json(found)  # type: ignore[no-any-return]


def _candidate(inspected: Inspected, ranked: Ranked | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "drafters": inspected.candidate.drafters,
        "origin": inspected.candidate.origin,
        "tokenizer": inspected.compatibility,
        "memory": None if inspected.memory is None else inspected.memory.record(),
    }
    if isinstance(inspected.result, Failure):
        found["error"] = inspected.result.error
    if ranked is None:
        return found
    best = ranked.best
    found["tree"] = ranked.tree
    found["best"] = {
        "k": best.k,
        "depth": best.depth,
        "speedup": best.speedup,
        "tokens_per_forward": best.tokens_per_forward,
        "speaks": best.drafting,
        "by_batch": best.batches,
        "sources": best.members,
    }
    found["by_k"] = [{"k": p.k, "speedup": p.speedup.value} for p in ranked.predictions]
    if ranked.checked is not None:
        found["checked"] = _checked(ranked.checked, ranked.error)
    return found


def _checked(checked: Checked, error: float | None) -> dict[str, Any]:
    return {
        "speedup": checked.speedup,
        "error": error,
        "predicted_from_its_acceptance": checked.given,
        "adaptive": checked.adaptive,
        "prompts": checked.prompts,
        "same_prompts": checked.same,
    }
