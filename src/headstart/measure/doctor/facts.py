"""An examination in words and as JSON: findings, lines to paste, the table of predictions, every number behind them."""

from __future__ import annotations

import shlex
from typing import Any

from headstart.base.as_json import as_json, picked
from headstart.base.errors import HeadstartError
from headstart.base.options import values_of
from headstart.measure.doctor.ahead import Outlook
from headstart.measure.doctor.candidates import absolute
from headstart.measure.doctor.costs import bandwidth, bound_in_words, costs_record, free_rows
from headstart.measure.doctor.examination import Examination
from headstart.measure.doctor.measuring import Inspected
from headstart.measure.doctor.memory import in_gib
from headstart.measure.doctor.question import Setup
from headstart.measure.doctor.verdict import Ranked
from headstart.pacing.mixtures import Mixture
from headstart.theory import StepCosts

_OPTIONS = ("device", "dtype", "quantize", "rule", "draft_tree", "max_length")
_FLAGS = {"draft_tree": "--tree", "max_length": "--max-model-len"}
_RENAMED = {"target": "described", "prompts_sent": "forms", "tokens_per_prompt": "tokens"}
_FEW = 16
"""Rows up to which the experts of a forward are told."""
UNSTEADY = 2.0
"""Slow plain steps over quick ones from which on timings are not to be trusted."""


def target_facts(examination: Examination) -> dict[str, str]:
    """Names and values about target, memory, costs and tokenizers."""
    costs, memory = examination.costs, examination.memory
    bytes_per_second = bandwidth(costs, examination.read)
    speed = "" if bytes_per_second is None else f", reading weights at {bytes_per_second / 1e9:.1f} GB/s"
    if bytes_per_second is not None and (plain := examination.read_bandwidth) is not None:
        speed += f", {bytes_per_second / plain:.0%} of a plain read"
    tokenizers = {
        f"tokens of {one.candidate.name}": "; ".join((one.compatibility.words, *one.compatibility.differences))
        for one in examination.inspected
        if one.compatibility is not None and one.compatibility.how in ("sizes", "ids", "intersection", "text")
    }
    needs = ", ".join(
        f"{one.candidate.name} {in_gib(one.memory.total)}" for one in examination.inspected if one.memory is not None
    )
    prompts = examination.forms or str(len(examination.question.items))
    batches = dict.fromkeys((1, examination.question.setup.engine_options.max_batch_size))
    return {
        "target": ", ".join(str(examination.described[name]) for name in ("target", "dtype", "device", "decoder")),
        "memory": memory.words,
        **({"drafters need": needs} if needs else {}),
        "one forward": f"{costs.forward(1) * 1e3:.2f} ms{speed}",
        "v(n)": ", ".join(f"{n}: {costs.v(n):.2f}" for n in costs.forwards),
        **({} if examination.mixture is None else {"experts": _experts(examination.mixture, costs)}),
        "nearly free": f"up to {free_rows(costs)} row{'' if free_rows(costs) == 1 else 's'}",
        "bound by": "; ".join(bound_in_words(costs, batch) for batch in batches),
        **tokenizers,
        **({"drafting ahead": words} if (words := ahead_words(examination.ahead)) else {}),
        "prompts": f"{prompts}, up to {examination.tokens} new tokens each",
    }


def _experts(mixture: Mixture, costs: StepCosts) -> str:
    """How many a token meets, and what more rows would cost if reading weights were all."""
    routing = mixture.routing
    read = ", ".join(f"{n}: {mixture.v(n):.2f}" for n in costs.forwards if n <= _FEW)
    return (
        f"{routing.chosen} of {routing.experts} for a token, {mixture.expert_share:.0%} of the weights that it meets; "
        f"v(n) by the experts that rows of a text meet together {read}"
    )


def ahead_words(found: Outlook | None) -> str:
    """What was measured of drafting ahead, in figures; nothing where it was not tried."""
    if found is None or found.account is None:
        return ""
    account = found.account
    ranks = ", ".join(f"{f}: {share:.0%}" for f, share in (found.by_fan_out or {}).items())
    return (
        f"outcomes foreseen by fan-out {ranks}; in verifications: drafting {account.hidden:.2f} in turn and "
        f"{found.ahead:.2f} ahead, {account.sharing:.2f} slower beside it"
    )


def warning(examination: Examination) -> str:
    """What makes the timings doubtful, or nothing."""
    spread = examination.unsteady
    if spread is None or spread < UNSTEADY:
        return ""
    return (
        f"Plain steps took up to {spread:.1f} times as long as others: something else is running on this machine, and "
        "the figures are rough. Ask again when it is quiet."
    )


def not_measured(examination: Examination) -> list[tuple[str, str]]:
    """(candidate, why) of all that could not be, typed reasons first."""
    found = []
    for one in examination.inspected:
        error = one.result
        if isinstance(error, HeadstartError):
            found.append((one.candidate.name, f"{type(error).__name__}: {error.message} ({error.hint})"))
        elif error is None:
            found.append((one.candidate.name, "the time ran out first; --seconds gives more"))
    return found + list(examination.passed_over.items())


def load_line(setup: Setup, best: Ranked | None, *, fixed: bool = False) -> str:
    """`hs.load(...)`; paced by default, or with drafts of the recommended length."""
    drafters = ["none"] if best is None else list(best.candidate.drafters)
    given = [repr(absolute(setup.target)), repr(drafters[0] if len(drafters) == 1 else drafters)]
    given += [f"{name}={value!r}" for name, value in _changed(setup).items()]
    if fixed and best is not None:
        given += [f"num_speculative_tokens={best.best.k}", 'pacing="fixed"']
    return f"hs.load({', '.join(given)})"


def flags(setup: Setup, best: Ranked | None, *, fixed: bool = False) -> str:
    """The same for `headstart generate`."""
    words = ["--model", absolute(setup.target)]
    for name in ("none",) if best is None else best.candidate.drafters:
        words += ["--drafter", name]
    for name, value in _changed(setup).items():
        words += [_FLAGS.get(name, f"--{name.replace('_', '-')}"), str(value)]
    if fixed and best is not None:
        words += ["-k", str(best.best.k), "--pacing", "fixed"]
    return shlex.join(words)


def figures(one: Ranked) -> dict[str, Any]:
    """A candidate's row in a table, by column; None for what is not known of it."""
    member = max(one.best.members.values(), key=lambda each: each.share, default=None)
    found = one.measured
    return {
        "drafter": one.candidate.name,
        "drafts of": one.expected.k,
        "drafts in": one.expected.drafting,
        "alpha": member and member.alpha,
        "c": member and member.c,
        "by position": member and member.acceptance,
        "tokens/forward": one.expected.tokens_per_forward,
        "predicted": one.expected.speedup.value,
        "measured": found and found.speedup.value,
        "error": one.error,
        "first token, ms": found and found.first_token * 1e3,
        "without drafter": found and found.first_token_alone * 1e3,
    }


def markdown(examination: Examination) -> str:
    """Predicted against measured, a row per candidate that was measured; with what made it."""
    columns = (
        "drafter", "tokens/forward predicted", "measured", "first token, ms", "without drafter", "speedup predicted",
        "measured", "error",
    )  # fmt: skip
    rows = [
        f"| {one.candidate.name} | {one.expected.tokens_per_forward:.2f} | {found.tokens_per_forward:.2f} | "
        f"{found.first_token * 1e3:.0f} | {found.first_token_alone * 1e3:.0f} | {one.expected.speedup.value:.2f} | "
        f"{found.speedup.times.replace('x', '')} | {one.error:+.0%} |"
        for one in sorted(examination.ranked, key=lambda one: -one.gain)
        if (found := one.measured) is not None
    ]
    head = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    facts = "; ".join(f"{name}: {value}" for name, value in examination.provenance.rows().items())
    return "\n".join([*head, *rows, "", f"{facts}."])


def _changed(setup: Setup) -> dict[str, object]:
    """The options to be named: those that are not as `headstart.load` has them."""
    given, usual = (values_of(each.target_options) | values_of(each.engine_options) for each in (setup, Setup()))
    return {name: given[name] for name in _OPTIONS if given[name] != usual[name]}


def record(examination: Examination) -> dict[str, Any]:
    """{"headstart_doctor": 1, ...}; numbers that are not known are null."""
    question, verdict = examination.question, examination.verdict
    ranked = {one.candidate: one for one in examination.ranked}
    best = verdict.best
    found: dict[str, Any] = {
        "headstart_doctor": 1,
        **picked(examination, "provenance", "seconds", "passed_over", **_RENAMED),
        "prompts": len(question.items),
        "temperature": question.sampling.temperature,
        "memory": examination.memory.record(),
        "costs": {
            **costs_record(examination.costs, examination.read),
            "read_bandwidth": examination.read_bandwidth,
        },
        "mixture": _mixture(examination.mixture, examination.costs),
        "candidates": [_candidate(one, ranked.get(one.candidate)) for one in examination.inspected],
        "ahead": _ahead(examination.ahead),
        "verdict": {
            **picked(verdict, "kind", "headline", "reasons", "batch"),
            "drafters": () if best is None else best.candidate.drafters,
            "k": best and best.best.k,
            "tree": best and best.tree,
            "speedup": best and best.gain,
            "load": load_line(question.setup, best),
            "flags": flags(question.setup, best),
        },
        "advice": None if examination.advice is None else str(examination.advice),
    }
    return as_json(found)  # type: ignore[no-any-return]


def _mixture(mixture: Mixture | None, costs: StepCosts) -> dict[str, Any] | None:
    if mixture is None:
        return None
    routing = mixture.routing
    return picked(mixture, "met", "expert_share") | {
        "experts": routing.experts,
        "experts_per_token": routing.chosen,
        "alike": routing.rho,
        "v": {str(n): mixture.v(n) for n in costs.forwards},
    }


def _ahead(found: Outlook | None) -> dict[str, Any] | None:
    if found is None:
        return None
    account = found.account
    return picked(found, "k", "pays", "most", "gain", "rounds", "hit", "by_fan_out", "sentence") | {
        "drafters": found.candidate.drafters,
        "in_verifications": account
        and picked(account, "waiting", "missing", "gain", in_turn="hidden", slower="sharing") | {"ahead": found.ahead},
    }


def _candidate(inspected: Inspected, ranked: Ranked | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "drafters": inspected.candidate.drafters,
        "origin": inspected.candidate.origin,
        "tokenizer": inspected.compatibility,
        "memory": inspected.memory and inspected.memory.record(),
    }
    if isinstance(inspected.result, HeadstartError):
        found["error"] = inspected.result
    if ranked is None:
        return found
    shown = {"tokens_per_forward": "tokens_per_forward", "by_batch": "batches"}
    found["tree"] = ranked.tree
    found["expected"] = picked(ranked.expected, "speedup", "drafting", **shown)
    found["best"] = picked(ranked.best, "k", "depth", "speedup", speaks="drafting", sources="members", **shown)
    found["by_k"] = [{"k": p.k, "speedup": p.speedup.value} for p in ranked.predictions]
    if ranked.measured is not None:
        found["measured"] = as_json(ranked.measured) | {"error": ranked.error}
    return found
