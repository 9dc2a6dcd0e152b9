"""An examination's findings about the target, and about who was not measured, in words for terminal and page."""

from __future__ import annotations

from headstart.insight.doctor.costs import bandwidth, bound_in_words, free_rows
from headstart.insight.doctor.examination import Examination
from headstart.insight.doctor.measuring import Failure
from headstart.insight.doctor.memory import in_gib

UNSTEADY = 2.0
"""Slow plain steps over quick ones from which on timings are not to be trusted."""


def target_facts(examination: Examination) -> dict[str, str]:
    """Names and values about target, memory, costs and tokenizers."""
    costs, memory = examination.costs, examination.memory
    bytes_per_second = bandwidth(costs, examination.read)
    speed = "" if bytes_per_second is None else f", reading weights at {bytes_per_second / 1e9:.1f} GB/s"
    tokenizers = {
        f"tokens of {one.candidate.name}": "; ".join((one.compatibility.words, *one.compatibility.differences))
        for one in examination.inspected
        if one.compatibility is not None and one.compatibility.how in ("sizes", "ids", "intersection", "text")
    }
    needs = ", ".join(
        f"{one.candidate.name} {in_gib(one.memory.total)}" for one in examination.inspected if one.memory is not None
    )
    prompts = examination.forms or str(len(examination.question.items))
    batches = dict.fromkeys((1, examination.question.setup.max_batch_size))
    return {
        "target": ", ".join(str(examination.described[name]) for name in ("target", "dtype", "device", "decoder")),
        "memory": memory.words,
        **({"drafters need": needs} if needs else {}),
        "one forward": f"{costs.forward(1) * 1e3:.2f} ms{speed}",
        "v(n)": ", ".join(f"{n}: {costs.v(n):.2f}" for n in costs.forwards),
        "nearly free": f"up to {free_rows(costs)} rows",
        "bound by": "; ".join(bound_in_words(costs, batch) for batch in batches),
        **tokenizers,
        "prompts": f"{prompts}, up to {examination.tokens} new tokens each",
    }


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
        if isinstance(one.result, Failure):
            error = one.result.error
            found.append((one.candidate.name, f"{type(error).__name__}: {error.message} ({error.hint})"))
        elif one.result is None:
            found.append((one.candidate.name, "the time ran out first; --seconds gives more"))
    return found + list(examination.passed_over.items())
