"""An examination as JSON: every number that stands behind the verdict, and what made it."""

from __future__ import annotations

import math
from typing import Any

from headstart.insight.doctor import costs
from headstart.insight.doctor.examination import Examination
from headstart.insight.doctor.lines import flags, load_line
from headstart.insight.doctor.measuring import Failure, Inspected
from headstart.insight.doctor.prediction import Prediction
from headstart.insight.doctor.verdict import Ranked

FORMAT = 1


def record(examination: Examination) -> dict[str, Any]:
    """{"headstart_doctor": 1, ...}; numbers that are not known are null."""
    question, verdict = examination.question, examination.verdict
    ranked = {one.candidate: one for one in examination.ranked}
    best = verdict.best
    return {
        "headstart_doctor": FORMAT,
        "provenance": examination.provenance.record(),
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
            "drafters": [] if best is None else list(best.candidate.drafters),
            "k": None if best is None else best.best.k,
            "tree": None if best is None else best.tree,
            "speedup": None if best is None else best.gain,
            "reasons": list(verdict.reasons),
            "batch": verdict.batch,
            "load": load_line(question.setup, best),
            "flags": flags(question.setup, best),
        },
        "advice": None if examination.advice is None else str(examination.advice),
    }


def _candidate(inspected: Inspected, ranked: Ranked | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "drafters": list(inspected.candidate.drafters),
        "origin": inspected.candidate.origin,
        "tokenizer": None if inspected.compatibility is None else inspected.compatibility.record(),
        "memory": None if inspected.memory is None else inspected.memory.record(),
    }
    if isinstance(inspected.result, Failure):
        error = inspected.result.error
        found["error"] = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
    if ranked is None:
        return found
    found |= {
        "tree": ranked.tree,
        "best": _prediction(ranked.best),
        "by_k": [{"k": p.k, "speedup": p.speedup.value} for p in ranked.predictions],
    }
    if ranked.checked is not None:
        checked = ranked.checked
        found["checked"] = {
            "speedup": checked.speedup.record(),
            "error": ranked.error,
            "predicted_from_its_acceptance": checked.given,
            "adaptive": None if checked.adaptive is None else checked.adaptive.record(),
            "prompts": checked.prompts,
            "same_prompts": checked.same,
        }
    return found


def _prediction(prediction: Prediction) -> dict[str, Any]:
    return {
        "k": prediction.k,
        "depth": prediction.depth,
        "speedup": prediction.speedup.record(),
        "tokens_per_forward": prediction.tokens_per_forward,
        "speaks": prediction.drafting,
        "by_batch": {str(batch): gain for batch, gain in prediction.batches.items()},
        "sources": {
            name: {
                "share": member.share,
                "alpha": member.alpha,
                "c": member.c,
                "break_even_alpha": None if math.isnan(member.break_even) else member.break_even,
                "acceptance": list(member.acceptance),
                "accepted_of_tested": [list(count) for count in member.counts],
            }
            for name, member in prediction.members.items()
        },
    }
