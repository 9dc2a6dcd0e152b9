"""Drafters that are heads on the target's hidden states: they read new states, draft a block, and keep texts.

What EAGLE, P-EAGLE, DFlash and DSpark have in common is here: a cache of the head's own, filled from the states that
the engine shows; which texts a draft can be made for; what is kept of a text when its request ends. The heads differ by
how they read states and by how they draft.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from headstart.base.options import check_number
from headstart.drafters import Observation, Row
from headstart.drafters.growing.grow import GrowingChain
from headstart.drafters.growing.policy import ChainPolicy, GrowingDrafter, TreePolicy
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.cache import Slots
from headstart.model.runner import ModelRunner
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import NO_DRAFT, Draft

WAITING = 64
"""States that wait until a draft is wanted: reading so many at once costs little more than a few. Those of a long
prompt are read in the step in which the target reads them, so that no later step has many of them to read."""
RESTING = 256
"""The same while tokens come one by one: nobody wants drafts then, and a short text may end before anybody does."""


class BlockHead(Protocol):
    """What is common to the heads."""

    @property
    def token_ids(self) -> Tensor | None:
        """[W]: the tokens that it knows; None where it knows the target's whole vocabulary."""
        ...

    @property
    def weights_in_words(self) -> str:
        """The precision of its weights, for people."""
        ...

    def weights(self) -> Iterable[Tensor]:
        """Its tensors; some may be the target's."""
        ...


class BlockText:
    """What is known of one request's text: the tokens whose states were seen.

    start: the position of the first of them. Where it is not 0 the target had read the text before in an earlier
        request, and it was not kept here; the head then sees only what came since, at positions that begin with 0,
        which costs acceptance at most.
    held: the text before `start`, where the slot holds what was read of it: as if it had been read just now.
    slot: of the head's cache; None until it is used first.
    salt: of its texts in the cache.
    """

    def __init__(self, start: int = 0, held: Sequence[int] = (), slot: int | None = None, salt: Hashable = "") -> None:
        self.start = start - len(held)
        self.slot = slot
        self.salt = salt
        self.tokens = list(held)
        self.closed = False
        self.own_pieces = False
        """Whether it is read in pieces of its own, whatever those of the target are."""
        self.most_waiting = 0
        """States that wait until a draft is wanted, where there are no more."""

    @property
    def known(self) -> int:
        """Tokens whose states were seen."""
        return len(self.tokens)

    def seat(self, cache: Slots) -> int:
        """Its slot of the head's cache, taken at its first use."""
        if self.slot is None:
            self.slot = cache.acquire()
        return self.slot

    def close(self) -> None:
        """No more states are taken; what is known no longer reaches the end of the text."""
        self.closed = True


T = TypeVar("T", bound=BlockText)


class BlockDrafter(GrowingDrafter, Generic[T]):
    """A head with a cache of its own.

    Args:
        head: ready to run.
        policy, budget: see `GrowingDrafter`.
        cache: of the head.
        taps: layers of the target that it reads.
        vocab_size: entries of the target's logits.
        max_length: tokens of text and draft together, at most.
    """

    def __init__(
        self,
        head: BlockHead,
        policy: ChainPolicy | TreePolicy,
        budget: int | None,
        *,
        name: str,
        cache: Slots,
        taps: tuple[int, ...],
        vocab_size: int,
        max_length: int,
    ) -> None:
        super().__init__(policy, budget)
        check_number("budget", self.default_budget, low=0, integer=True)
        self.name = name
        self.taps = taps
        self.cache = cache
        self.vocabulary = None if head.token_ids is None else PartialVocabulary(head.token_ids, vocab_size)
        self._block_head = head
        self._max_length = max_length
        self._targets_cache: Slots | None = None
        self._texts: dict[int, T] = {}

    @property
    @abstractmethod
    def _at_once(self) -> int:
        """Rows that one forward reads."""

    @abstractmethod
    def _text(self, start: int, held: Sequence[int] = (), slot: int | None = None, salt: Hashable = "") -> T:
        """A new text; see `BlockText`."""

    @abstractmethod
    def _learn(self, text: T, tokens: Sequence[int], hidden: Mapping[int, Tensor]) -> None:
        """The target has read these tokens, and had these states [n, d] by layer."""

    @abstractmethod
    def _read_all(self, text: T) -> None:
        """Read all states that wait, as far as they can be read."""

    @abstractmethod
    def _drafts(self, rows: Sequence[Row], rooms: Sequence[int], texts: Sequence[T]) -> Sequence[Draft]:
        """A draft for each row, of at most so many nodes, more than 0."""

    def _kept(self, tokens: Sequence[int], salt: str) -> tuple[Sequence[int], Hashable]:
        """How a text of these tokens is found in the cache: by which tokens, and apart from which others."""
        return tokens, salt

    def weights(self) -> Iterable[Tensor]:
        return self._block_head.weights()

    @property
    def weights_in_words(self) -> str:
        return self._block_head.weights_in_words

    def attach(self, target: ModelRunner, cache: Slots) -> None:  # noqa: ARG002 -- the head was made for it
        self._targets_cache = cache

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        rooms = {row.request: room for row in rows if (room := self._room(row)) > 0}
        ready = [row for row in rows if row.request in rooms]
        texts = [self._texts[row.request] for row in ready]
        drafts = dict(zip(rooms, self._drafts(ready, list(rooms.values()), texts) if ready else (), strict=True))
        return [drafts.get(row.request, NO_DRAFT) for row in rows]

    def observe(self, observation: Observation) -> None:
        request, tokens = observation.step.request, observation.tokens
        super().observe(observation)
        if not tokens or any(layer not in observation.hidden for layer in self.taps):
            return
        text = self._texts.get(request)
        if text is None:
            text = self._texts[request] = self._first_seen(observation)
            # What a seed promises is read in pieces of its own: how the target reads prompts depends on other requests
            text.own_pieces = observation.row is not None and observation.row.reproducible
        waiting = self._at_once if text.own_pieces else RESTING if len(tokens) == 1 else WAITING
        text.most_waiting = min(waiting, self._at_once - 1)
        if observation.start != text.start + text.known or text.known + len(tokens) > self._max_length:
            text.close()  # states are missing, or the text is longer than its context
            return
        self._learn(text, tokens, observation.hidden)

    def release(self, request: int) -> None:
        super().release(request)
        text = self._texts.pop(request, None)
        if text is None or text.slot is None:
            return
        kept: Sequence[int] = ()
        try:
            if self._keeps_texts:  # so that what is kept reaches to the end
                self._read_all(text)
        finally:
            if self._keeps_texts and text.tokens and text.start == 0 and not text.closed:
                kept, _ = self._kept(text.tokens, "")
            self.cache.release(text.slot, kept, text.salt)

    @property
    def _keeps_texts(self) -> bool:
        return self._targets_cache is not None and self._targets_cache.keeps_texts

    def _first_seen(self, observation: Observation) -> T:
        """What is known of a request at its first step: nothing, or what was kept of its text, by the target and here,
        up to where this step begins."""
        row, start = observation.row, observation.start
        if row is None or not self._keeps_texts:
            return self._text(start)
        tokens, salt = self._kept(row.tokens, row.sampling.cache_salt)
        slot = self.cache.acquire(tokens, salt)
        held = row.tokens[:start] if self.cache.lengths[slot] >= start else ()
        self.cache.rewind(slot, len(held))
        return self._text(start, held, slot, salt)

    def _room(self, row: Row) -> int:
        """How many nodes the draft may have: none where the latest states of the text are not known."""
        text = self._texts.get(row.request)
        if text is None or text.start + text.known != len(row.tokens) - 1:
            return 0
        return max(0, min(row.budget.nodes, self.limit, self._max_length - text.known - 1))

    def _growing(self, row: Row, room: int) -> GrowingChain | GrowingTree:
        """A draft that is still to grow, of at most so many nodes."""
        if isinstance(self.policy, ChainPolicy):
            return GrowingChain(row, room, vocabulary=self.vocabulary)
        return GrowingTree(row, room, self.policy.plan(row, room), vocabulary=self.vocabulary)
