"""Tokens that are certain, because a grammar leaves no other: they are drafted beside whatever a drafter guesses.

A grammar often knows what comes next: the name of a property, a quote and a colon, the end of the text. Such a token
has probability 1 and is never refused, and the target must read it in any case, so drafting it costs one row of a
forward that is needed anyway. Runs of them are short and lie *between* tokens that must be guessed. So a draft is made
piecewise: what is certain, a guess, what is certain after it, and so on, as far as there are guesses.

A drafter that reads the text by itself is shown what is certain as if it had come, and guesses behind it.

Which pieces there are depends on the text, on the guesses and on the grammar, never on what the target draws, so the
rule keeps the distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from headstart.drafters import Drafter, Row, capabilities
from headstart.rule.processors import Place
from headstart.types import Draft

SOURCE = "forced"
"""Of a draft in which everything is certain."""
MOST = 64
"""Certain tokens in one draft: a long run must not make the other requests of a batch wait."""


def certain_after(place: Place, most: int) -> list[int]:
    """The tokens that follow for certain, at most so many."""
    found: list[int] = []
    while len(found) < most and (token := place.forced()) is not None:
        found.append(token)
        place = place.after((token,))
    return found


def first_run(row: Row) -> Draft:
    """A draft of what follows for certain, without any guess."""
    tokens = certain_after(row.sampling_state.place, min(MOST, row.room))
    return replace(Draft.chain(tokens), source=SOURCE, forced=tuple(range(len(tokens)))) if tokens else Draft()


def without_asking(row: Row, drafter: Drafter, run: Draft) -> Draft | None:
    """The row's draft where its drafter need not be asked for one: something is certain, and who copies can guess on
    from there, or nothing can be gained by guesses of what is certain. None where it must be asked.

    run: of `first_run`.
    """
    if not len(run):
        return None
    guess = capabilities.beyond(drafter, row, run.tokens, row.budget.nodes)
    if len(guess):
        return _spliced(row, drafter, guess, run.tokens)
    return run if len(run) >= row.budget.nodes else None


def as_if_come(row: Row, run: Draft) -> Row:
    """The row once what is certain has come, for a drafter that `reads_unsettled`."""
    room = row.room - len(run)
    state = row.sampling_state.after(run.tokens)
    tokens = (*row.tokens, *run.tokens)
    budget, unsettled = row.budget.within(room), row.unsettled + len(run)
    return replace(row, tokens=tokens, unsettled=unsettled, sampling_state=state, room=room, budget=budget)


def behind(row: Row, drafter: Drafter, draft: Draft, run: Draft) -> Draft:
    """The draft that a drafter has made for the row of `as_if_come`, behind what is certain."""
    if not len(draft):
        return run
    if draft.q is None and draft.is_chain:
        return _spliced(row, drafter, draft, run.tokens)
    q = draft.q
    if q is not None:
        if (hot := _one_hot(draft, q, run.tokens)) is None:
            return run
        q = torch.cat([hot, q])
    parents = [*range(-1, len(run) - 1), *(len(run) + parent for parent in draft.parents)]
    whole = replace(draft, tokens=(*run.tokens, *draft.tokens), parents=tuple(parents), q=q, expected=None)
    place = row.sampling_state.place
    if not draft.is_chain or not all(_steps(place, whole.tokens)):
        return whole
    return _lengthened(whole, certain_after(place.after(whole.tokens), min(MOST, row.room - len(whole))))


def _steps(place: Place, tokens: Sequence[int]) -> Iterator[bool]:
    """Whether each of these tokens may come where it stands."""
    for token in tokens:
        yield place.allows(token)
        place = place.after((token,))


def with_certain(row: Row, drafter: Drafter, draft: Draft, run: Draft) -> Draft:
    """The draft that a drafter has made for a row, with what is certain before, between and after its guesses.

    run: of `first_run`.
    """
    if draft.q is None and draft.is_chain:
        return _spliced(row, drafter, draft, ()) if len(draft) else run
    if len(run) >= max(draft.depths, default=0):
        return run  # what was guessed is no more than a part of it
    if not draft.is_chain:
        return draft
    place, room = row.sampling_state.place, row.room - len(draft)
    if not all(_steps(place, draft.tokens)):
        return draft  # one was drawn that will be refused there
    return _lengthened(draft, certain_after(place.after(draft.tokens), min(MOST, room)))


def _spliced(row: Row, drafter: Drafter, guess: Draft, before: Sequence[int]) -> Draft:
    """What is certain, and guesses from the chain `guess` or beyond it, in turn. before: tokens that are drafted
    already, after which the guess begins."""
    tokens, forced = list(before), list(range(len(before)))
    place = row.sampling_state.place.after(tokens)
    left, guesses = row.budget.nodes, list(guess.tokens)
    asked_at = len(tokens)
    while len(tokens) < row.room:
        token = place.forced()
        if token is not None and len(forced) < MOST:
            guesses = guesses[1:] if guesses[:1] == [token] else []
            forced.append(len(tokens))
        else:
            if left <= 0:
                break
            if not (guesses and place.allows(guesses[0])) and asked_at < len(tokens):
                asked_at = len(tokens)
                guesses = list(capabilities.beyond(drafter, row, tokens, left).tokens)
            if not (guesses and place.allows(guesses[0])):
                break
            token = guesses.pop(0)
            left -= 1
        tokens.append(token)
        place = place.after((token,))
    only = len(forced) == len(tokens)
    source = SOURCE if only else guess.source
    return replace(guess, tokens=tuple(tokens), parents=tuple(range(-1, len(tokens) - 1)), source=source, expected=None)


def _lengthened(draft: Draft, run: Sequence[int]) -> Draft:
    """A drawn chain with certain tokens at its end: each has a distribution q with nothing else in it."""
    if not run:
        return draft
    assert draft.q is not None, "point masses are spliced"
    if draft.vocabulary is not None:
        known = set(draft.vocabulary.tolist())
        run = run[: next((i for i, token in enumerate(run) if token not in known), len(run))]
    hot = _one_hot(draft, draft.q, run)
    assert hot is not None, "all of them are known"
    tokens = (*draft.tokens, *run)
    return replace(
        draft, tokens=tokens, parents=tuple(range(-1, len(tokens) - 1)), q=torch.cat([draft.q, hot]), expected=None
    )


def _one_hot(draft: Draft, q: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor | None:
    """Rows of q, each with nothing but its token in it; None where the draft's vocabulary lacks one."""
    columns: Sequence[int] = tokens
    if draft.vocabulary is not None:
        known = {token: column for column, token in enumerate(draft.vocabulary.tolist())}
        if any(token not in known for token in tokens):
            return None
        columns = [known[token] for token in tokens]
    hot = torch.zeros(len(tokens), q.shape[1], dtype=q.dtype, device=q.device)
    hot[range(len(tokens)), list(columns)] = 1
    return hot
