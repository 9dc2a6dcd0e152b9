"""What a drafter can do beyond the five members of `Drafter`. A drafter has a capability if it defines the member.

Engine and pacing read the members through the functions here: each has the member's name, says what it means, and
knows the default. A member that raises is not a member that is missing: what it raises comes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import getattr_static
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from headstart.types import NO_DRAFT, Draft

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from headstart.drafters.drafter import Drafter
    from headstart.model.cache import Slots
    from headstart.model.runner import ModelRunner
    from headstart.rule.row import Row

_T = TypeVar("_T")


def _given(drafter: Drafter, member: str, default: _T) -> _T:
    """The member where the drafter defines it, else the default."""
    if getattr_static(drafter, member, None) is None:
        return default
    return cast(_T, getattr(drafter, member))


def _no_weights() -> Iterable[Tensor]:
    return ()


def _no_guess(row: Row, tokens: Sequence[int], most: int) -> Draft:  # noqa: ARG001 -- the default of `beyond`
    return NO_DRAFT


def _nothing(target: ModelRunner, cache: Slots) -> None:  # noqa: ARG001 -- the default of `attach`
    return


def limit(drafter: Drafter) -> int:
    """`limit`: the most nodes that could pay, where guesses cost next to nothing and are always right."""
    return _given(drafter, "limit", drafter.default_budget)


def sizes(drafter: Drafter) -> Sequence[tuple[int, int]]:
    """`sizes`: (nodes, depth) of the trees it can draft, fewest nodes first and not beyond `limit`. A budget of so many
    nodes gives so many levels. Where there are several, siblings must be in order of likelihood: pacing then learns
    what breadth gives from the ranks of accepted nodes. Empty for a drafter of chains, which have any length up to
    `limit`."""
    return _given(drafter, "sizes", ())


def draws(drafter: Drafter) -> bool:
    """`draws`: whether nodes may be drawn from a distribution (`Draft.q`). Point masses leave a seed's text alone,
    whatever their number."""
    return bool(_given(drafter, "draws", True))


def copies(drafter: Drafter) -> bool:
    """`copies`: whether its drafts are copied from text, so that a call costs next to nothing and changes nothing."""
    return bool(_given(drafter, "copies", False))


def beyond(drafter: Drafter, row: Row, tokens: Sequence[int], most: int) -> Draft:
    """`beyond(row, tokens, most)`: a chain of at most so many guesses that follow the row's text and, after it, draft
    tokens that may not come. Only of drafters that copy: they must not take these tokens for text. Without it a
    drafter guesses after the text alone."""
    return _given(drafter, "beyond", _no_guess)(row, tokens, most)


def same_model(drafter: Drafter) -> bool:
    """`same_model`: whether what guesses is the target itself at a lower precision, so that nearly every guess is right
    where the text can be known at all. Pacing believes so before it has seen one."""
    return bool(_given(drafter, "same_model", False))


def reads_unsettled(drafter: Drafter) -> bool:
    """`reads_unsettled`: whether the rows that it is asked for may end with tokens that have not come (see
    `Row.unsettled`). A drafter that reads the text by itself reads them in the forward in which it reads x0, and
    guesses behind them; the next row may have other tokens there."""
    return bool(_given(drafter, "reads_unsettled", False))


def taps(drafter: Drafter) -> tuple[int, ...]:
    """`taps`: the layers of the target whose inputs `Observation.hidden` is to show."""
    return _given(drafter, "taps", ())


def applies(drafter: Drafter, row: Row) -> bool:
    """`applies(row)`: whether it could draft for this request at all. The answer depends on what is the same for all
    rows of a request. Where it could not, the engine does not call it, and pacing does not count on it."""
    member = getattr(drafter, "applies", None)
    return member is None or bool(member(row))


def attach(drafter: Drafter, target: ModelRunner, cache: Slots) -> None:
    """`attach(target, cache)`: take the target that it drafts for, once and before anything else. A drafter may read
    the keys and values of a request's slot, and use what lies beyond its length as scratch between two steps."""
    _given(drafter, "attach", _nothing)(target, cache)


def weights(drafter: Drafter) -> Iterable[Tensor]:
    """`weights()`: the tensors of its weights; some may be the target's."""
    return _given(drafter, "weights", _no_weights)()


def weights_in_words(drafter: Drafter) -> str:
    """`weights_in_words`: what its own weights are, for people: "bfloat16", "4-bit codes". Empty where it has none."""
    return _given(drafter, "weights_in_words", "")


def parts(drafter: Drafter) -> tuple[Drafter, ...]:
    """`parts`: the drafters this one is made of, in the order in which it calls them. Each has a pacing of its own."""
    return _given(drafter, "parts", (drafter,))


def in_turn(drafter: Drafter) -> Drafter:
    """`in_turn`: the drafter that makes the same drafts while the target waits. What drafting costs is measured on
    it."""
    return _given(drafter, "in_turn", drafter)


def may_draft(drafter: Drafter, row: Row) -> bool:
    """Whether a drafter may be called for a request: the request does not leave it out, and it applies."""
    sources = row.drafting.sources
    return (sources is None or drafter.name in sources) and applies(drafter, row)


# -- drafting ahead ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What became of foreseeing one request's round."""

    draft: Draft | None = None
    """The draft that was ready for what came; None for a miss."""
    last: Draft | None = None
    """The draft that was judged in the round; None where nothing was foreseen."""
    node: int | None = None
    """Its node after which nothing was accepted, -1 for x0; None where the text went on in another way."""
    rank: int | None = None
    """The place of the bonus token among the likeliest ones after that node, from 0; None if it was not among them."""
    branches: int = 0
    """Outcomes for which drafts were being made."""


class FanOut(Protocol):
    """Says for how many outcomes drafts are to be made ahead."""

    def fan_outs(self, draft: Draft) -> Sequence[int]:
        """[N + 1]: how many bonus tokens to foresee after x0, and after each node."""
        ...


class Foresight(Protocol):
    """Drafts in the making for what a round may come to."""

    def advance(self) -> bool:
        """Run one forward; returns whether there is more to do."""
        ...

    def take(self, rows: Sequence[Row], *, partial: bool) -> Sequence[Foreseen]:
        """What was foreseen of these rows, the next of their requests. A draft found is the one that the drafter would
        make now, to the token and, where its forward is width-invariant, to the bit of its distributions. Where it has
        been drawn in part, the rest is drawn now; with `partial` it is a shorter draft instead, but never of a
        reproducible row, whose text must not depend on a clock. To be called once, and last."""
        ...

    def forget(self, request: int) -> None:
        """A request has ended."""
        ...


@runtime_checkable
class Wraps(Protocol):
    """A value that says how one drafter is put around another one, such as `headstart.Ahead`."""

    inner: Drafter | str | Path
    """The drafter, or its name."""

    def around(self, inner: Drafter) -> Drafter:
        """The drafter that runs, around this one."""
        ...


@runtime_checkable
class Foresees(Protocol):
    """The capability of drafting ahead."""

    def foresee(self, rows: Sequence[Row], drafts: Sequence[Draft], fan_out: FanOut) -> Foresight:
        """Begin to draft for what the round may come to in which `drafts`, just proposed for `rows`, are judged. The
        drafter is not called for anything else until the foresight has been taken or dropped."""
        ...
