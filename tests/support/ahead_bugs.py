"""Wrong ways to draft ahead, each planted into the right one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headstart.drafters import Row
from headstart.drafters.foreseeing.growing import GrowingForesight
from headstart.drafters.growing.own_model import DraftedText
from headstart.rule.noise import Noise, Purpose

Plant = Callable[[pytest.MonkeyPatch], None]


def _branches_begin(patch: pytest.MonkeyPatch, changed: Callable[[Row, Row], Row]) -> None:
    """Branches are drafted for a changed row. changed: from the row of the round that is judged, and of the branch."""
    begin = GrowingForesight._begin

    def wrong(self: Any, request: Any, node: int, token: int) -> None:
        drafter, begun = self._drafter, self._drafter.begun
        drafter.begun = lambda row: begun(changed(request.row, row))
        try:
            begin(self, request, node, token)
        finally:
            del drafter.begun

    patch.setattr(GrowingForesight, "_begin", wrong)


@dataclass(frozen=True, slots=True)
class _OldLane(Noise):
    """The noise of a request, but for drafts with the lane of an older round."""

    noise: Any = None
    start: int = 0

    def draw(self, distribution: Any, position: int, purpose: Purpose, lane: int = 0) -> int:
        return int(self.noise.draw(distribution, position, purpose, self._lane(purpose, lane)))

    def exponentials(self, position: int, purpose: Purpose, lane: int, size: int, tokens: Any = None) -> Any:
        return self.noise.exponentials(position, purpose, self._lane(purpose, lane), size, tokens)

    def _lane(self, purpose: Purpose, lane: int) -> int:
        return self.start if purpose is Purpose.DRAFT else lane


def old_lane(patch: pytest.MonkeyPatch) -> None:
    """Prepared drafts are drawn with the noise of the round that is being judged."""
    _branches_begin(patch, lambda old, row: replace(row, noise=_OldLane(0, row.noise, len(old.tokens))))


def stale_distribution(patch: pytest.MonkeyPatch) -> None:
    """The distribution of a branch does not count the tokens of its outcome for penalties."""
    _branches_begin(patch, lambda old, row: replace(row, sampling_state=old.sampling_state))


def wrong_nodes(patch: pytest.MonkeyPatch) -> None:
    """Of an adopted branch the keys and values of its neighbours are kept."""
    adopt = DraftedText.adopt

    def wrong(self: DraftedText, tokens: Any, nodes: Sequence[int], tree: Any, cache: Any) -> None:
        adopt(self, tokens, [max(0, node - 1) for node in nodes], tree, cache)

    patch.setattr(DraftedText, "adopt", wrong)


def partial_where_promised(patch: pytest.MonkeyPatch) -> None:
    """Requests whose text a seed promises are served drafts whose length a clock chose."""
    take = GrowingForesight.take

    def wrong(self: GrowingForesight, rows: Sequence[Row], *, partial: bool) -> Any:
        return take(self, [replace(row, reproducible=False) for row in rows], partial=partial)

    patch.setattr(GrowingForesight, "take", wrong)
