"""What an EAGLE head has read of each text: states of the target that were seen, or wait, and the head's own cache.

Row t of the head is the target's states of token t, with the token after it. A state waits until that token is known.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headstart.drafters.growing.block import BlockText
from headstart.model.heads.eagle import Head, HeadOutput
from headstart.model.packed import Packed, Segment
from headstart.types import NO_DRAFT, Draft

if TYPE_CHECKING:
    from headstart.drafters.eagle.in_turn import LaterText


class Reader:
    """A head with its cache, reading texts.

    chunk: rows that are read at once.
    """

    def __init__(self, head: Head, slots: int, chunk: int) -> None:
        self.head = head
        self.cache = head.new_cache(slots)
        self.chunk = chunk

    def follow(self, text: HeadText, pending: int) -> None:
        """Line a text up for a draft after its pending token, and forget what was drafted after it before."""
        self.cache.rewind(text.seat(self.cache), text.follow(pending))

    def catch_up(self, text: HeadText, left: int) -> None:
        """Read chunks until at most so many rows wait."""
        while text.readable > left:
            self.read([text])

    def read(self, texts: Sequence[HeadText]) -> HeadOutput:
        """Read up to a chunk of each text's rows, and keep them; the output of the last of each."""
        return self.read_on(texts, [NO_DRAFT] * len(texts), None)

    def read_on(self, texts: Sequence[HeadText], behind: Sequence[Draft], states: Tensor | None) -> HeadOutput:
        """The same with scratch behind each text: the rows of a draft, whose states are the first of these
        [n, features]. The output is that of the last row of each text and of the scratch behind it."""
        segments, given = [], list[Tensor]()
        for text, draft in zip(texts, behind, strict=True):
            tokens, read = text.pop(self.chunk)
            segments.append(Segment(text.seat(self.cache), tokens, draft, judged=1 + len(draft)))
            given.append(read)
            if states is not None and len(draft):
                given.append(states[: len(draft)].to(read.dtype))
        output = self.run(segments, given[0] if len(given) == 1 else torch.cat(given), own=False)
        for segment in segments:
            self.cache.keep(segment.slot, len(segment.causal))
        return output

    def run(self, segments: Sequence[Segment], given: Tensor, *, own: bool) -> HeadOutput:
        """One forward of the head; see `Head.run`."""
        return self.head.run(self.packed(segments), given, own=own)

    def packed(self, segments: Sequence[Segment]) -> Packed:
        return Packed(segments, self.cache, self.head.dtype, self.head.device)


class HeadText(BlockText):
    """What is known of one request's text, and what its slot of the head's cache holds.

    Row t of the head is the target's states of token t, with the token after it.

    read: rows in the cache. Those of the other known tokens wait, with the tokens after them as far as these are known.
    """

    def __init__(self, start: int = 0, held: Sequence[int] = (), slot: int | None = None, salt: Hashable = "") -> None:
        super().__init__(start, held, slot, salt)
        self.read = len(held)
        self._states: list[Sequence[Tensor]] = []  # of each layer; joined when they are read, which may be never
        self._after: list[int] = []
        self._last: Tensor | None = None  # the states that were read last
        self.later: list[LaterText] = []  # see `in_turn`

    @property
    def readable(self) -> int:
        """Waiting rows whose next token is known."""
        return len(self._after)

    def learn(self, tokens: Sequence[int], states: Sequence[Tensor]) -> None:
        """The target has read these tokens, and had these states [n, d] of each layer."""
        if self.closed:
            return
        # the first of them follows a state that waits, or one that was read together with it
        self._after += tokens if self.known > self.read else tokens[1:]
        self._states.append(states)
        self.tokens += tokens

    def close(self) -> None:
        super().close()
        self._states.clear()
        self._after.clear()

    def follow(self, pending: int) -> int:
        """Line up for a draft after `pending`, the token after the last state: there is always a row to read. Returns
        how many are in the cache."""
        if not self._states:
            assert self._last is not None, "a row without states has been read"
            self._states.append([self._last[-1:]])
            self.read -= 1
        del self._after[self.known - self.read - 1 :]
        self._after.append(pending)
        return self.read

    def pop(self, count: int) -> tuple[tuple[int, ...], Tensor]:
        """The next rows to read, at most `count`: tokens, and states [n, features]."""
        tokens = tuple(self._after[:count])
        parts = [joined_states(layers) for layers in self._states]
        states = parts[0] if len(parts) == 1 else torch.cat(parts)
        del self._after[:count]
        self._states = []
        if states.shape[0] > len(tokens):
            self._states.append([states[len(tokens) :]])
            states = states[: len(tokens)]
        self._last = states
        self.read += len(tokens)
        return tokens, states


def joined_states(states: Sequence[Tensor]) -> Tensor:
    """The states of the layers read [n, d] each, side by side, as a head takes them."""
    return states[0] if len(states) == 1 else torch.cat(tuple(states), -1)
