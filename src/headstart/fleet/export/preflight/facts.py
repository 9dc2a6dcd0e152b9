"""What the rules look at and what they find: facts of a target, a drafter and an engine; refusals and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.fleet.export.manifest import DrafterKind, EngineName


@dataclass(frozen=True, slots=True)
class Head:
    """The facts of a head's config and weights. Sizes are those it was made for.

    layer_ids: inputs, in the order of the config. count: of Medusa heads. third: EAGLE-3, not EAGLE-1 or -2. layers: of
    an EAGLE head's decoder. parallel: P-EAGLE, which guesses all tokens in one forward. width: of its own stream; 0 for
    that of the target. norms: settings that norm the states it reads. selector: whether it has one.
    """

    hidden_size: int
    vocab_size: int
    layer_ids: tuple[int, ...] = ()
    norm_before_residual: bool = False
    third: bool = True
    count: int = 0
    layers: int = 1
    parallel: bool = False
    width: int = 0
    norms: tuple[str, ...] = ()
    selector: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All that rules look at.

    architectures, hidden_size, vocab_size, layers, context: the target's. target_at, drafter_at: where the engine will
    find them. draft_vocab, draft_context, draft_parallel: a draft model's; parallel is one with a mask token, which
    guesses all tokens in one forward (PARD). differences: between the tokenizers of target and draft model. settings:
    other options of the engine. processors: entry points of its environment that load custom logits processors. cpu:
    whether it will run on processors.
    """

    engine: EngineName
    kind: DrafterKind
    architectures: tuple[str, ...]
    hidden_size: int
    vocab_size: int
    layers: int
    target_at: str
    drafter_at: str | None = None
    context: int = 0
    head: Head | None = None
    draft_vocab: int | None = None
    draft_context: int | None = None
    draft_parallel: bool = False
    differences: tuple[str, ...] = ()
    depth: int | None = None
    temperature: float = 0.0
    dynamic: bool = False
    costs_known: bool = False
    cpu: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    processors: tuple[str, ...] = ()

    @property
    def parallel(self) -> bool:
        """Whether the drafter guesses all tokens in one forward."""
        return self.draft_parallel or (self.head is not None and self.head.parallel)


@dataclass(frozen=True, slots=True)
class Finding:
    """kind: "refused", or "warning" of what will be served all the same."""

    kind: Literal["refused", "warning"]
    message: str
    hint: str


Rule = Callable[[Case], Iterator[Finding]]


def refused(message: str, hint: str) -> Finding:
    """What must not be served."""
    return Finding("refused", message, hint)


def warning(message: str, hint: str) -> Finding:
    """What is served, and may surprise."""
    return Finding("warning", message, hint)
