"""Drafting with heads in turn: the first guesses the token after x0, the second the one after that, and so on.

Checkpoints whose MTP was trained for several tokens hold a head for each. Row t of head k (counted from 0) is the state
that head k - 1 left of row t, the target's for the first, with the token k + 1 places after; it guesses the one behind
that. So of a text that ends with x0, head k can read k rows fewer than the first one, and the last k of a draft's rows
are those of guesses. A head has a cache of its own, in which rows of known tokens stay; x0's, and those of the draft,
are scratch. Where a draft is longer than there are heads, the last one goes on from its own states.

Sources: DeepSeek-V3 (arXiv:2412.19437), section 2.2; `MtpModel` of transformers computes the same without a tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.drafters.eagle.stepwise import Chain, Growing, Stepwise
from headstart.drafters.eagle.texts import HeadText, Reader
from headstart.model.heads.eagle import Head, HeadOutput
from headstart.model.packed import Segment
from headstart.types import NO_DRAFT, Draft

_Live = Sequence[Chain | Growing]


class LaterText:
    """What one of the later heads has read of a text, and the states that wait for it.

    number: of the head, from 1. row: the first row that it has not kept. states: of the head before, from that row on
    [n, d].
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.row = 0
        self.states = torch.empty(0, 0)
        self.slot: int | None = None

    def take(self, begin: int, states: Tensor) -> None:
        """The head before has left these states, the first of them of row `begin`."""
        waiting = begin - self.row
        if waiting > len(self.states):  # what lies between was read in an earlier request
            self.row, waiting = begin, 0
        self.states = torch.cat((self.states[:waiting], states)) if waiting else states

    def readable(self, known: int) -> int:
        """Rows that can be read and kept, with so many tokens known before x0."""
        return max(0, min(len(self.states), known - 1 - self.number - self.row))

    def pop(self, tokens: Sequence[int], most: int) -> tuple[tuple[int, ...], Tensor]:
        """The next rows to keep, at most so many, of a text of these tokens: the tokens, and the states [n, d]."""
        count = min(self.readable(len(tokens)), most)
        first = self.row + 1 + self.number
        states, self.states = self.states[:count], self.states[count:].clone()
        self.row += count
        return tuple(tokens[first : first + count]), states

    def state_for_x0(self, known: int, like: Tensor) -> Tensor:
        """The state that belongs to x0 [1, d]; of zeros where the text began too late for one."""
        found = self.states[:1] if self.row == known - 1 - self.number else self.states[:0]
        return found if len(found) else torch.zeros_like(like[:1])


class TurnReader(Reader):
    """The first of the heads reading texts, and what it leaves of them handed on to the later ones."""

    def __init__(self, head: Head, later: Sequence[Head], slots: int, chunk: int) -> None:
        super().__init__(head, slots, chunk)
        self.later = [Reader(each, slots, chunk) for each in later]

    def read(self, texts: Sequence[HeadText]) -> HeadOutput:
        begins = [text.read for text in texts]
        output = super().read(texts)
        assert output.rows is not None, "they were asked for"
        counts = [text.read - begin for text, begin in zip(texts, begins, strict=True)]
        for text, begin, states in zip(texts, begins, torch.split(output.rows, counts), strict=True):
            if not text.later:
                text.later = [LaterText(number) for number in range(1, len(self.later) + 1)]
            text.later[0].take(begin, states)
            for later in text.later:
                while later.readable(text.known) > text.most_waiting:
                    self.turn(later.number, [text], [NO_DRAFT], [states[:0]], [0])
        return output

    def run(self, segments: Sequence[Segment], given: Tensor, *, own: bool) -> HeadOutput:
        return self.head.run(self.packed(segments), given, own=own, every=True)

    def turn(
        self,
        number: int,
        texts: Sequence[HeadText],
        drafts: Sequence[Draft],
        states: Sequence[Tensor],
        judged: Sequence[int],
    ) -> tuple[HeadOutput, list[Tensor]]:
        """Read with a later head what can be kept of each text, and behind it a draft that begins with x0, whose rows
        have these states [n, d], but for x0's own; the last `judged` of them have logits.

        Returns its output, and what it left of each draft's rows.
        """
        reader, segments, given, begins = self.later[number - 1], list[Segment](), list[Tensor](), list[int]()
        for text, draft, above, last in zip(texts, drafts, states, judged, strict=True):
            later = text.later[number - 1]
            if later.slot is None:
                later.slot = reader.cache.acquire()
            begins.append(later.row)
            tokens, known = later.pop(text.tokens, self.chunk)
            segments.append(Segment(later.slot, tokens, draft, judged=last))
            given += [known, later.state_for_x0(text.known, above), above] if len(draft) else [known]
        output = reader.head.run(reader.packed(segments), torch.cat(given), own=False, every=True)
        assert output.rows is not None, "they were asked for"
        left = []
        for text, begin, segment, rows in zip(
            texts, begins, segments, torch.split(output.rows, [len(each) for each in segments]), strict=True
        ):
            kept = len(segment.causal)
            reader.cache.keep(segment.slot, kept)
            if number < len(self.later) and kept:
                text.later[number].take(begin, rows[:kept])
            left.append(rows[kept:])
        return output, left

    def release(self, text: HeadText) -> None:
        """Give the later heads' slots of a text back."""
        for reader, later in zip(self.later, text.later, strict=False):
            if later.slot is not None:
                reader.cache.release(later.slot)
                later.slot = None


class InTurn(Stepwise):
    """Chains and trees of which level k is a forward of head k, or of the last one."""

    _reader: TurnReader

    def _next(self, live: Sequence[Chain]) -> Tensor:
        return self._level(live)

    def _level(self, live: _Live) -> Tensor:
        level, heads = len(live[0].logits), len(self._reader.later)
        if not level:  # all of them begin together
            return self._begin(live)
        drafts = [_with_x0(each) for each in live]
        counts = [len(each.fresh) for each in live]
        if level > heads:
            return self._last_goes_on(live, drafts, counts)
        above = [each.left[list(draft.parents[1:])] for each, draft in zip(live, drafts, strict=True)]
        output, left = self._reader.turn(level, [each.memory for each in live], drafts, above, counts)
        for each, states in zip(live, left, strict=True):
            each.left = states
        return self._take(live, output, counts)

    def _begin(self, live: _Live) -> Tensor:
        logits = super()._begin(live)
        for each in live:
            each.left = each.states
        return logits

    def _last_goes_on(self, live: _Live, drafts: Sequence[Draft], counts: Sequence[int]) -> Tensor:
        reader, segments = self._reader.later[-1], []
        for each, draft, fresh in zip(live, drafts, counts, strict=True):
            slot = each.memory.later[-1].slot
            segments.append(Segment(slot, (), draft, judged=fresh, held=len(draft) - fresh))
        given = torch.cat([each.states_above() for each in live])
        return self._take(live, reader.run(segments, given, own=True), counts)


def _with_x0(each: Chain | Growing) -> Draft:
    """What has been drafted so far, below a node for x0."""
    parents = (-1, *(parent + 1 for parent in each.parents))
    return Draft((each.row.tokens[-1], *each.tokens), parents)
