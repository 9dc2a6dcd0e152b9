"""`parity`: ask a server prompt by prompt, predict its counters with headstart's own engine, and compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headstart.base.errors import InvalidOption
from headstart.base.options import check_number
from headstart.fleet.parity.compare import differences, reasons
from headstart.fleet.parity.counts import Counts
from headstart.fleet.parity.plan import MAX_TOKENS, PROMPTS, Plan
from headstart.fleet.parity.reference import Reference
from headstart.fleet.parity.report import Compared, ParityReport
from headstart.fleet.parity.subject import Server, Subject

LEVEL = 0.99
"""Of all intervals together: one report of correct heads in a hundred fails by bad luck, where numbers are narrow."""

Progress = Callable[[int, int], None]
"""Called with the number of prompts done and of all."""


def parity(
    subject: str | Subject,
    plan: Plan | Reference,
    *,
    prompts: Sequence[str | Sequence[int]] = PROMPTS,
    max_tokens: int = MAX_TOKENS,
    level: float = LEVEL,
    model: str | None = None,
    api_key: str | None = None,
    progress: Progress | None = None,
) -> ParityReport:
    """Compare what a server accepts of its drafts with what headstart's engine accepts of the same drafter's.

    Args:
        subject: the URL of a vLLM engine that serves no one else meanwhile, or any other `Subject`.
        plan: what the server runs, or a `Reference` that has loaded it.
        prompts: texts or token ids, asked one at a time, greedily.
        max_tokens: new tokens for each, never fewer: an end of text is written over.
        level: see `ParityReport`.
        model: the server's name for it; None takes the first that it lists.

    Raises:
        EndpointFailed: see `Server`.
        ContextExceeded, InvalidPrompt: a prompt does not fit.
        InvalidOption: a number out of its range, or no prompts.
    """
    check_number("max_tokens", max_tokens, low=1, integer=True)
    check_number("level", level, above=0, high=0.999999)
    if not prompts:
        raise InvalidOption("there are no prompts", hint="give at least two; without any, headstart has a dozen")
    if isinstance(subject, str):
        with Server(subject, model=model, api_key=api_key) as server:
            return parity(server, plan, prompts=prompts, max_tokens=max_tokens, level=level, progress=progress)
    reference = plan if isinstance(plan, Reference) else Reference(plan)
    compared = []
    for done, prompt in enumerate(prompts):
        if progress is not None:
            progress(done, len(prompts))
        tokens = reference.encode(prompt)
        reference.check_room(len(tokens), max_tokens)
        answered = subject.complete(tokens, max_tokens)
        predicted = reference.predict(tokens, answered.tokens)
        theirs = _completed(answered.counts, predicted.counts, reference.plan)
        compared.append(Compared(len(tokens), predicted, theirs))
    if progress is not None:
        progress(len(prompts), len(prompts))
    found = differences(compared, reference.plan.depth, level)
    wrong, notes = reasons(reference.plan, compared, found, level)
    return ParityReport(
        plan=reference.plan,
        server=subject.name,
        target=reference.name,
        level=level,
        compared=tuple(compared),
        differences=found,
        reasons=tuple(wrong),
        notes=tuple(notes),
    )


def _completed(theirs: Counts, ours: Counts, plan: Plan) -> Counts:
    """The server's counts with what it does not count apart: accepted tokens behind the text's end.

    Where every step but the prompt's drafts, they follow from its own counters: there are 1 + D forwards, which gave
    1 + D + A tokens. N-grams leave steps undrafted, which vLLM does not count; ours stand in for them.

    Servers list as many positions as they may draft; those beyond the depth are left out where nothing is counted.
    """
    found = theirs.accepted_per_position
    while len(found) > plan.depth and not found[-1]:
        found = found[:-1]
    beyond = ours.beyond if plan.kind == "ngram" else 1 + theirs.drafts + theirs.accepted - theirs.generated
    return replace(theirs, accepted_per_position=(*found, *[0] * (plan.depth - len(found))), beyond=beyond)
