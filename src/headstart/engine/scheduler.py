"""Who runs in the next step: first come, first served; long prompts are read in chunks beside running rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headstart.model.prefixes import SHORTEST, common_prefix
from headstart.rule.noise import Purpose
from headstart.rule.row import Row

if TYPE_CHECKING:
    from headstart.engine.chunks import Reading
    from headstart.engine.request import Request
    from headstart.model.cache import Slots


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot of the target's cache, as it is now."""

    tokens: int
    """Tokens whose keys and values it holds, of a running request or kept of an ended one."""
    request: Request | None
    """Who runs there."""


class Scheduler:
    """Waiting and running requests. A request joins when a slot is free and leaves when it ends.

    Args:
        cache: of the target.
        chunks: how many prompt tokens are read in a step, over all requests.
        drafts_matter: whether drafts are drawn, so that under rule "exact" a seed's text depends on them.
        states_matter: whether the drafter looks at hidden states, and so must be shown where a kept text ends.
    """

    def __init__(self, cache: Slots, *, chunks: Reading, drafts_matter: bool, states_matter: bool) -> None:
        self.chunks = chunks
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._cache = cache
        self._drafts_matter = drafts_matter
        self._states_matter = states_matter

    def admit(self) -> None:
        """Give free slots to waiting requests, in order of arrival."""
        while (
            self.waiting
            and not self._being_fetched(self.waiting[0])
            and self._cache.free_slots
            and not self._being_read(self.waiting[0])
        ):
            request = self.waiting.popleft()
            slot = self._cache.acquire(request.tokens if self._shares(request) else (), request.sampling.cache_salt)
            # A slot may hold a beginning of the text already; x0 is always fed, because its logits are needed
            held = self._cache.lengths[slot]
            held = self._cache.rewind(slot, max(0, min(held - self._states_matter, len(request.tokens) - 1)))
            request.admit(slot, held)
            self.running.append(request)

    def _shares(self, request: Request) -> bool:
        """Whether a request may begin with what another has read. Not where its text must be reproducible: what a
        drafter guesses may depend on what it was shown."""
        return self._cache.keeps_texts and not self._reproducible(request)

    def _reproducible(self, request: Request) -> bool:
        """Point masses, and the noise of rule "coupled", give a seed one text whatever the drafts."""
        return self._drafts_matter and request.seeded and request.rule == "exact"

    def _being_fetched(self, request: Request) -> bool:
        """Whether a saved text that begins like this request is being read into a slot, a piece in each step."""
        saved, salt = self._cache.saved_texts, request.sampling.cache_salt
        if saved is None or not self._shares(request):
            return False
        return saved.fetch(request.prompt[:-1], salt, at_once=not self.running)

    def _being_read(self, request: Request) -> bool:
        """Whether a running request is reading what this one begins with. Prompts are read one after the other, so this
        one loses nothing by waiting until it can be copied."""
        if not self._shares(request):
            return False
        salt, wanted = request.sampling.cache_salt, request.prompt[:-1]
        alike = [other for other in self.running if other.sampling.cache_salt == salt and self._shares(other)]
        return any(common_prefix(other.prompt[:-1], wanted) >= self._read(other) + SHORTEST for other in alike)

    def _read(self, request: Request) -> int:
        """Tokens of a running request that are in the cache."""
        assert request.slot is not None, "a running request has a slot"
        return self._cache.lengths[request.slot]

    def remove(self, request: Request) -> None:
        """Take out an ended request and free its slot."""
        if request.slot is None:
            self.waiting.remove(request)
            return
        self.running.remove(request)
        keeps = self._cache.keeps_texts and request.finish_reason != "error"
        self._cache.release(request.slot, request.tokens if keeps else (), request.sampling.cache_salt)
        request.slot = None

    def rows(self) -> list[tuple[Request, Row]]:
        """The rows of the next step, without budgets. Those that decode always run; prompts share the tokens of a step,
        the oldest first."""
        feeds = list(self._feeds())
        reading = self._left_to_drafters(feeds)
        return [(request, self._row(request, feed, reading)) for request, feed in feeds]

    def _left_to_drafters(self, feeds: Sequence[tuple[Request, tuple[int, ...]]]) -> int | None:
        """Tokens that drafters may read beside these; None where it is no matter: nobody waits for them where one
        request alone is continued, or all have only just begun."""
        if all(len(feed) > 1 for _, feed in feeds) or sum(self._reaches_the_end(*each) for each in feeds) < 2:
            return None
        return self.chunks.left_to_drafters(target_reads=any(len(feed) > 1 for _, feed in feeds))

    def _reaches_the_end(self, request: Request, feed: tuple[int, ...]) -> bool:
        return self._read(request) + len(feed) == len(request.tokens)

    def _feeds(self) -> Iterator[tuple[Request, tuple[int, ...]]]:
        waiting = [(request, self._unread(request)) for request in self.running]
        # What a drafter makes of a prompt may depend on its pieces, and these on the clock: not for a seed's text
        free = not any(len(unread) > 1 and self._reproducible(request) for request, unread in waiting)
        first = next((self._read(request) for request, unread in waiting if len(unread) > 1), 0)
        left = self.chunks.tokens(beside=free and any(len(unread) == 1 for _, unread in waiting), at=first)
        for request, unread in waiting:
            if len(unread) > 1:
                if left == 0:
                    continue
                unread = unread[:left]
                left -= len(unread)
            yield request, unread

    def _unread(self, request: Request) -> tuple[int, ...]:
        assert request.slot is not None, "a running request has a slot"
        # a forward that failed may have lost a recurrent state: what the slot has no more is read again
        held = self._cache.rewind(request.slot, self._cache.lengths[request.slot])
        return tuple(request.tokens[held:])

    def _row(self, request: Request, feed: tuple[int, ...], reading: int | None) -> Row:
        assert request.slot is not None, "a running request has a slot"
        judged, reproducible = self._reaches_the_end(request, feed), self._reproducible(request)
        return Row(
            request=request.number,
            tokens=tuple(request.tokens),
            prompt_tokens=len(request.prompt),
            sampling_state=request.sampling_state,
            noise=request.noise,
            # Under rule "coupled" a drafter that draws uses the very noise the target will use
            purpose=Purpose.TOKEN if request.rule == "coupled" else Purpose.DRAFT,
            reproducible=reproducible,
            reading=None if reproducible else reading,  # when it is drafted for must not be a matter of the clock
            slot=request.slot,
            feed=feed,
            judged=judged,
            drafting=request.drafting,
            room=min(request.room, self._cache.most_drafted) if judged else 0,
            left=request.left,
        )

    def requests(self) -> Sequence[Request]:
        return (*self.running, *self.waiting)

    def slots(self) -> Sequence[SlotView]:
        """Every slot. Another thread may ask while a step is made: each number is right then, but two of them may stem
        from different steps."""
        running = {request.slot: request for request in tuple(self.running)}
        return [SlotView(tokens, running.get(slot)) for slot, tokens in enumerate(tuple(self._cache.lengths))]

    def forget_texts(self) -> bool:
        """Empty all slots, so that no later request begins with what they hold. False where one is not free."""
        if self._cache.saved_texts is not None:
            self._cache.saved_texts.abandon()
        if self._cache.free_slots < len(self._cache.lengths):
            return False
        for slot in [self._cache.acquire() for _ in self._cache.lengths]:
            self._cache.release(slot)
        return True
