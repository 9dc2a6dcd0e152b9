"""What a server that speculates has counted, whatever kind of server it is.

`scrape.read` gives one `Counters` for each engine of a page for Prometheus. The difference of two is a window of time;
their sum is that of several engines or replicas. Every ratio is a property of a window, so that none is a mean of
ratios.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from headstart.base.as_json import first_problem
from headstart.base.errors import InvalidFile
from headstart.fleet.watch.counts import Histogram, fell, since, together

T = TypeVar("T")
SHORT = 0.01
"""Up to this share of the tests of a position may be missing before its conditional acceptance is called unknown."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What one engine has counted since its start; or, as the difference of two, in a window of time.

    Counts that a kind of server does not have are 0, or None where 0 would be a statement. Positions count from 0.
    """

    kind: str
    """headstart, vllm, sglang or llama.cpp."""
    model: str = ""
    """Its name for clients."""
    engine: str = ""
    """The engine's label, where a server has several engines (data parallelism)."""
    generated: int = 0
    """G, generated tokens, the first one of each request included."""
    prompt_tokens: int = 0
    counts_drafts: bool = False
    """Whether the server has the three counters that follow; without them it does not speculate, or does not count."""
    drafts: int = 0
    """D, forwards of a request that verified at least one drafted token."""
    drafted: int = 0
    """N, drafted tokens."""
    accepted: int = 0
    """A, accepted drafted tokens. In vLLM also those behind a stop, which are in no text."""
    accepted_per_position: tuple[int, ...] = ()
    """A_i, drafts whose tokens 0 to i were accepted."""
    drafted_per_position: tuple[int, ...] | None = None
    """Drafts that had a token i, where the server counts them."""
    tested_per_position: tuple[int, ...] | None = None
    """Drafts that had a token i and whose tokens before it were accepted, where the server counts them (headstart)."""
    counted_forwards: int | None = None
    """Forwards that gave tokens, by request, where the server counts them (headstart; SGLang, without prompts)."""
    ended: int | None = None
    """Requests that ended."""
    preemptions: int | None = None
    running: float | None = None
    """Requests that run at this moment."""
    waiting: float | None = None
    kv_usage: float | None = None
    """Share of the KV cache in use at this moment; the greatest one, of several engines."""
    first_token: Histogram | None = None
    """Seconds from a request's arrival to its first token."""
    per_token: Histogram | None = None
    """Seconds per output token after the first, a mean for each request: the honest measure under speculation."""
    started: float | None = None
    """When the server's process was started, in seconds since 1970, where it is on the page."""
    restarts: int = 0
    """In a window: how often counters fell back. What was counted between the last look and a restart is lost."""

    # -- ratios of a window ---------------------------------------------------------------------------------------

    @property
    def forwards(self) -> int:
        """Forwards of a request that gave it tokens: every one counted once, also those without a draft, and the last
        forward of its prompt, which gives the first token. Chunks of a prompt before that give none and are not in.

        headstart counts them. SGLang counts those that verify, to which the first tokens are added. Elsewhere it is
        G - A, since a forward gives its accepted tokens and one more, or D and the first tokens if that is more:
        accepted tokens behind the end of a text are in A and not in G (measured in vLLM 0.32: 12 requests of 96 tokens
        had 288 drafts, but G - A was 277).
        """
        if self.counted_forwards is None:
            return max(self.generated - self.accepted, self.drafts + self.first_tokens)
        return self.counted_forwards + (self.first_tokens if self.kind == "sglang" else 0)

    @property
    def first_tokens(self) -> int:
        """Requests that had their first token, which no draft guesses; 0 where it is not counted."""
        return 0 if self.first_token is None else self.first_token.total

    @property
    def tokens_per_forward(self) -> float | None:
        """Generated tokens per forward of a request, the prompt's last forward counted too; G/(G-A) where no accepted
        token lies behind a stop, see `forwards`. None if nothing was generated, or if counters contradict each other.
        """
        return self.generated / self.forwards if self.generated and self.forwards > 0 else None

    @property
    def tokens_per_forward_low(self) -> float | None:
        """The least that tokens per forward can be: in every request that ended, all tokens of its last draft may be
        accepted ones that are in no text (vLLM)."""
        if self.tokens_per_forward is None:
            return None
        return self.generated / max(self.forwards, self.generated - self.accepted + self._unseen)

    @property
    def _unseen(self) -> int:
        """The most accepted tokens that may be in no text."""
        if self.counted_forwards is not None or not self.drafts:
            return 0
        return (self.ended or 0) * len(self.accepted_per_position)

    @property
    def drafted_share(self) -> float | None:
        """Share of forwards that verified a draft."""
        return self.drafts / self.forwards if self.counts_drafts and self.forwards > 0 else None

    @property
    def tokens_per_draft(self) -> float | None:
        """1 + A/D: vLLM's "mean acceptance length". Forwards without a draft are left out of it, which flatters."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    @property
    def acceptance(self) -> float | None:
        """A/N, of all drafted tokens, those behind a rejected one included."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def missing(self) -> int:
        """Drafted tokens that lack until every draft has the greatest length, K D - N: 0 where K is fixed."""
        return max(0, len(self.accepted_per_position) * self.drafts - self.drafted)

    def tested(self, position: int) -> int | None:
        """In how many drafts a token at this position was put to the test: those before it were accepted.

        Where the server does not count it, it is D for the first position and A_(i-1) for others, as long as drafts
        are long enough: fewer than `SHORT` of them can have ended before. None where that is not known.
        """
        if self.tested_per_position is not None:
            return self.tested_per_position[position] if position < len(self.tested_per_position) else 0
        if position == 0:
            return self.drafts
        before = self.accepted_per_position[position - 1]
        return before if self.missing <= SHORT * before else None

    def acceptance_at(self, position: int) -> float | None:
        """Chance of acceptance at a position given acceptance before it; None where it is not known."""
        tested = self.tested(position)
        return self.accepted_per_position[position] / tested if tested else None

    def share_of_drafts_at(self, position: int) -> float | None:
        """A_i/D. With drafts of different lengths this is no chance of acceptance, but an understatement of one."""
        return self.accepted_per_position[position] / self.drafts if self.drafts else None

    # -- windows and sums -----------------------------------------------------------------------------------------

    def restarted_since(self, before: Counters) -> bool:
        """Whether the counters began again: a counter fell, the process is another, or it serves something else."""
        if (self.kind, self.model, self.engine) != (before.kind, before.model, before.engine):
            return True
        if None not in (self.started, before.started) and self.started != before.started:
            return True
        return any(fell(getattr(self, name), getattr(before, name)) for name in _COUNTED)

    def __sub__(self, before: Counters) -> Counters:
        """The window between an earlier look and this one. Values of the moment are those of this one."""
        if self.restarted_since(before):
            return replace(self, restarts=1)
        changes = {name: since(getattr(self, name), getattr(before, name)) for name in _COUNTED}
        return replace(self, restarts=0, **changes)

    def __add__(self, other: Counters) -> Counters:
        """Both together: two engines, two replicas, or two windows of one."""
        sums = {name: together(getattr(self, name), getattr(other, name)) for name in (*_COUNTED, *_MOMENT)}
        counted = [counters.counted_forwards is not None for counters in (self, other)]
        if any(counted) and (not all(counted) or self.kind != other.kind):
            sums["counted_forwards"] = self.forwards + other.forwards
        for name in _KNOWN_OF_ALL:
            if any(counters.drafts and getattr(counters, name) is None for counters in (self, other)):
                sums[name] = None
        return Counters(
            kind=_common(self.kind, other.kind),
            model=_common(self.model, other.model),
            engine=_common(self.engine, other.engine),
            counts_drafts=self.counts_drafts or other.counts_drafts,
            kv_usage=max((usage for usage in (self.kv_usage, other.kv_usage) if usage is not None), default=None),
            started=self.started if self.started == other.started else None,
            restarts=self.restarts + other.restarts,
            **sums,
        )


_MOMENT = ("running", "waiting")
_KNOWN_OF_ALL = ("drafted_per_position", "tested_per_position")
_NOT_COUNTED = (*_MOMENT, "kind", "model", "engine", "counts_drafts", "kv_usage", "started", "restarts")
_COUNTED = tuple(field.name for field in fields(Counters) if field.name not in _NOT_COUNTED)


def total(several: Iterable[Counters]) -> Counters | None:
    """The sum over engines or replicas; None of none."""
    counted = list(several)
    return reduce(add, counted) if counted else None


def _common(one: str, other: str) -> str:
    return one if one == other else ""


KEPT_HINT = "give another file, or remove this one: watch then begins anew"
"""What to do about a file of a watch that is damaged."""


def record_of(kept: Any) -> dict[str, Any]:
    """A dataclass that a watch keeps, as JSON takes it: all fields that are not None."""
    found: dict[str, Any] = TypeAdapter(type(kept)).dump_python(kept, mode="json", exclude_none=True)
    return found


def restored(kind: type[T], record: Any) -> T:
    """What `record_of` has written of this dataclass.

    Raises:
        InvalidFile: it has not.
    """
    try:
        return TypeAdapter(kind).validate_python(record)
    except ValidationError as error:
        raise InvalidFile(f"kept {kind.__name__} cannot be read: {first_problem(error)}", hint=KEPT_HINT) from error
