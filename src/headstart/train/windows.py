"""From texts to equal windows, a held-out part, and batches that are a function of the step alone.

A drafter guesses what the target writes, never what a user does. So a text records how many of its tokens are a
prompt, and a window which of its tokens are an answer: guesses of those are measured. Everything is learnt from.

A `Layout` lays guesses of several depths end to end: what a parallel draft LM reads in training. Depth 0 is the text
itself. A row (t, d) of a further depth is a mask token at position t + d, the d-th mask behind token t: it sees the
text up to t and the masks of its own chain before it, and its label is the target's distribution after token t + d.
Deep guesses are trained on fewer rows: each depth keeps a share of the rows of the one before, so that the masks before
a row are always there. Source: PARD (arXiv:2504.18583, sections 3.2 and 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from headstart.base.errors import TrainingFailed


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids, of which the first `asked` are a prompt and the others its answer; a plain text has no prompt."""

    ids: Sequence[int]
    asked: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Text:
        begin, end, _ = part.indices(len(self.ids))
        return Text(self.ids[begin:end], min(max(0, self.asked - begin), end - begin))


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of text: their token ids, int32 [n, length], and which of the tokens are answers, bool [n, length]."""

    ids: Tensor
    answers: Tensor

    @classmethod
    def plain(cls, ids: Tensor) -> Windows:
        """Windows in which every token counts."""
        return cls(ids, torch.ones_like(ids, dtype=torch.bool))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, which: slice | Tensor) -> Windows:
        return Windows(self.ids[which], self.answers[which])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.ids, self.answers, strict=True)

    def in_parts(self, size: int) -> Iterator[Windows]:
        """At most so many windows at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


def split(documents: Sequence[Text], share: float, seed: int, least: int = 0) -> tuple[list[Text], list[Text]]:
    """Documents to learn from, and documents held out. A single document is cut in two.

    least: hold out as many tokens at least, in at most half of the documents. A share of a few texts is less than a
    window otherwise, which would be said after they were written.
    """
    if len(documents) == 1:
        (text,) = documents
        cut = round(len(text) * (1 - share))
        return [text[:cut]], [text[cut:]]
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(seed)).tolist()
    held = max(1, round(share * len(documents)))
    while held < len(documents) // 2 and sum(len(documents[i]) for i in order[:held]) < least:
        held += 1
    return [documents[i] for i in order[held:]], [documents[i] for i in order[:held]]


def pack(documents: Iterable[Text], length: int, *, what: str) -> Windows:
    """Windows of so many tokens. A document fills windows from its start; what is left over shares windows.

    Every window is full, so that there is no padding and no mask. Raises `TrainingFailed` if there is not even one.
    """
    windows: list[list[int]] = []
    rest: list[int] = []
    for text in documents:
        marked = [2 * token + (place >= text.asked) for place, token in enumerate(text.ids)]
        full = len(marked) - len(marked) % length
        windows += [marked[i : i + length] for i in range(0, full, length)]
        rest += marked[full:]
        while len(rest) >= length:
            windows.append(rest[:length])
            rest = rest[length:]
    if not windows:
        problem = f"the {what} text has fewer tokens than one window of {length}"
        raise TrainingFailed(problem, hint="give more text, a larger validation share, or a smaller sequence_length")
    marked_ids = torch.tensor(windows, dtype=torch.int32)
    return Windows(marked_ids >> 1, (marked_ids & 1).bool())


def picks(count: int, step: int, size: int, seed: int) -> Tensor:
    """Which of `count` windows a step reads [size]: each pass over the windows has an order of its own.

    It depends on its arguments alone, so a resumed run sees what the uninterrupted one would have seen.
    """
    picked = []
    for place in range(step * size, (step + 1) * size):
        epoch, index = divmod(place, count)
        picked.append(_order(count, seed, epoch)[index])
    return torch.stack(picked)


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> Tensor:
    """The permutation of one epoch."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))


DEPTHS = 8
"""Guesses in a row that a parallel draft is trained on by default."""


def shares(depths: int, keep: float, floor: float) -> list[float]:
    """The share of the rows that each depth keeps: max(keep^d, floor)."""
    return [max(keep**depth, floor) for depth in range(depths)]


@dataclass(frozen=True, eq=False)
class Layout:
    """The rows of a window."""

    anchors: Tensor
    """Of each row, the token t of the text that its chain follows [R]."""
    depths: Tensor
    """Of each row, its depth [R]; the rows of depth 0 are first, and are the text."""

    @classmethod
    def of(cls, length: int, kept: Sequence[float], chance: torch.Generator | None = None) -> Layout:
        """The rows of a window of so many tokens. kept: the share of the rows of each depth. chance: which of them;
        None for all whose label is in the window, whatever the shares."""
        order = torch.arange(length) if chance is None else torch.randperm(length, generator=chance)
        anchors = []
        for depth, share in enumerate(kept):
            # a prefix of one order: each depth keeps some of the rows of the depth before
            rows = order if depth == 0 or chance is None else order[: max(1, round(share * length))]
            anchors.append(rows[rows + depth < length].sort().values)
        depths = [torch.full_like(rows, depth) for depth, rows in enumerate(anchors)]
        return cls(torch.cat(anchors), torch.cat(depths))

    def __len__(self) -> int:
        return len(self.anchors)

    @cached_property
    def positions(self) -> Tensor:
        """Of each row, its position [R], which is also that of its label among the target's distributions."""
        return self.anchors + self.depths

    def tokens(self, ids: Tensor, mask: int) -> Tensor:
        """What the rows read [n, R], of windows ids [n, T]."""
        return torch.where(self.depths > 0, mask, ids[:, self.anchors])

    def visible(self) -> Tensor:
        """Which rows each row sees, bool [R, R]."""
        text = self.depths == 0
        above = text & (self.anchors <= self.anchors[:, None])
        chain = ~text & (self.anchors == self.anchors[:, None]) & (self.depths <= self.depths[:, None])
        return above | chain

    def mask(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores [1, 1, R, R]."""
        seen = self.visible()
        return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)[None, None]
