"""A ragged batch of trees as one packed row of tokens: what a forward pass is fed, and who sees whom in it.

Tokens of all requests are laid end to end, [1, M]; there is no padding. Each request is a `Segment`: some
committed tokens not yet in the cache (at least the pending token x0), then the draft's nodes. Linear layers see M
rows; attention works segment by segment, each on its own cache slot and mask. A prefill chunk is a segment
without draft, a decode step one with a single committed token: there are no other cases.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from headstart.model.cache import Slots
from headstart.types import NO_DRAFT, Draft


@dataclass(frozen=True, slots=True)
class Segment:
    """One request's rows: `causal` committed tokens, then the nodes of `draft`. The last `judged` rows get logits.

    held: so many of the draft's first nodes are not fed. Their keys and values lie, from earlier forwards, right behind
    the slot's length, node i at length + i, and the nodes that are fed see those of them that are their ancestors. The
    text itself is then in the slot already: `causal` is empty.
    """

    slot: int
    causal: tuple[int, ...]
    draft: Draft = NO_DRAFT
    judged: int = 1
    held: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.held <= len(self.draft):
            raise ValueError(f"{self.held} nodes held of a draft of {len(self.draft)}")
        if self.held and self.causal:
            raise ValueError("nodes can only be held behind a text that is in the slot already")

    def __len__(self) -> int:
        """Rows that are fed."""
        return len(self.causal) + len(self.draft) - self.held


class Packed:
    """The rows of one forward: their token ids, positions and which of them are judged, as lists; and as tensors
    ids [1, M], positions [1, M], judged [R], and the masks. All are made for forwards that want them; the row kernels
    have ways of their own."""

    attends: Callable[..., Tensor] | None = None
    """What attends instead of `attention.attend_packed`, of the same layer, query, keys and values, and scores."""

    def __init__(self, segments: Sequence[Segment], cache: Slots, dtype: torch.dtype, device: torch.device) -> None:
        self.segments = segments
        self.cache = cache
        self.dtype = dtype
        self.starts = [cache.lengths[segment.slot] for segment in segments]
        self._device = device
        self._masks: dict[tuple[int, int, int | None], Tensor | None] = {}

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Each segment's first row, and the one behind its last."""
        ends = list(itertools.accumulate([len(segment) for segment in self.segments], initial=0))
        return list(itertools.pairwise(ends))

    @cached_property
    def token_ids(self) -> list[int]:
        return [
            token for segment in self.segments for token in (*segment.causal, *segment.draft.tokens[segment.held :])
        ]

    @cached_property
    def token_positions(self) -> list[int]:
        positions: list[int] = []
        for segment, start in zip(self.segments, self.starts, strict=True):
            end = start + len(segment.causal)
            positions += range(start, end)
            positions += [end - 1 + depth for depth in segment.draft.depths[segment.held :]]
        return positions

    @cached_property
    def judged_rows(self) -> list[int]:
        judged: list[int] = []
        for segment, (_, end) in zip(self.segments, self.bounds, strict=True):
            judged += range(end - segment.judged, end)
        # prefill chunks alone; one row is kept all the same, so that no layer sees zero
        return judged or [self.bounds[-1][1] - 1]

    @cached_property
    def ids(self) -> Tensor:
        return torch.tensor([self.token_ids], device=self._device)

    @cached_property
    def positions(self) -> Tensor:
        return torch.tensor([self.token_positions], device=self._device)

    @cached_property
    def judged(self) -> Tensor:
        return torch.tensor(self.judged_rows, device=self._device)

    def stored(self, index: int, layer: int, window: int | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002 -- `mask` has it
        """Keys and values [1, heads, start + held + n, dim] for a segment's rows, of a layer that wrote its own."""
        segment, start = self.segments[index], self.starts[index]
        return self.cache.read(layer, segment.slot, start + segment.held + len(segment))

    def mask(self, index: int, groups: int, window: int | None) -> Tensor | None:
        """Additive mask [1, 1, groups * n, start + held + n] of a segment's rows, or None where each sees everything.

        `groups` query heads share a KV head and are folded into rows, so the mask is repeated `groups` times. Row i
        sees the cached tokens, the committed rows up to its own and its ancestors in the draft; with a sliding
        window, of those only positions above its own minus `window`.
        """
        key = (index, groups, window)
        if key not in self._masks:
            self._masks[key] = self._build(index, groups, window)
        return self._masks[key]

    def _build(self, index: int, groups: int, window: int | None) -> Tensor | None:
        segment, start = self.segments[index], self.starts[index]
        causal, held, n = len(segment.causal), segment.held, len(segment)
        end = start + held + n
        if n == 1 and (held == 0 or segment.draft.is_chain) and (window is None or end <= window):
            return None
        visible = torch.ones(n, end, dtype=torch.bool)
        visible[:, start:] = _tree_visible(causal, segment.draft)[held:]
        if window is not None:
            nodes = [start + causal - 1 + depth for depth in segment.draft.depths]
            positions = torch.tensor([*range(start + causal), *nodes])
            visible &= positions[start + held :, None] - positions[None, :] < window
        mask = torch.zeros(n, end, dtype=self.dtype).masked_fill_(~visible, float("-inf"))
        return mask.repeat(groups, 1)[None, None].to(self.ids.device)


def _tree_visible(causal: int, draft: Draft) -> Tensor:
    """[n, n] bool: which rows of its own segment each row sees."""
    n = causal + len(draft)
    visible = torch.ones(n, n, dtype=torch.bool).tril_()
    if draft.is_chain:
        return visible
    visible[causal:, causal:] = False
    for node, parent in enumerate(draft.parents):
        row = causal + node
        if parent >= 0:
            visible[row, causal:] = visible[causal + parent, causal:]
        visible[row, row] = True
    return visible


@dataclass(frozen=True, slots=True)
class Forward:
    """What a forward returns.

    logits: [R, V], the judged rows of all segments in order. hidden[i]: [M, d], all rows' input of layer i, for each
    tapped i (transformers' hidden_states[i]; the last index is the output of the final norm).
    """

    logits: Tensor
    hidden: dict[int, Tensor] = field(default_factory=dict)

    def hidden_of(self, segments: Sequence[Segment]) -> list[dict[int, Tensor]]:
        """The tapped states of each segment's rows."""
        if len(segments) == 1 or not self.hidden:
            return [self.hidden] * len(segments)
        ends = list(itertools.accumulate(len(segment) for segment in segments))
        spans = [slice(end - len(segment), end) for end, segment in zip(ends, segments, strict=True)]
        return [{layer: states[span] for layer, states in self.hidden.items()} for span in spans]
