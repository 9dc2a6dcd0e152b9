"""The target's laws over the rows of one step: computed for all requests at once, asked for one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headstart.rule.law import LawRow, LawState, greedy, law
from headstart.types import Draft


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """The target's laws over one request's judged rows: after x0, then after every node of its draft; n in all.

    A greedy request needs only the likeliest tokens, any other the dense laws. Whatever else is asked for is computed
    then.
    """

    rows: tuple[LawRow, ...]
    logits: Tensor
    """[n, V], the target's."""
    tokens: tuple[int, ...] | None = None
    """For a greedy request, the token of each law; -1 where the logits are not finite."""
    p: Tensor | None = None
    """For any other request, the laws [n, V]."""

    @property
    def dense(self) -> Tensor:
        """p [n, V]."""
        return law(self.logits, self.rows) if self.p is None else self.p

    @property
    def argmax(self) -> tuple[int, ...]:
        """The likeliest token of each law."""
        return tuple(self.dense.argmax(-1).tolist()) if self.tokens is None else self.tokens

    @property
    def finite(self) -> bool:
        """Whether the logits made a law everywhere."""
        if self.tokens is not None:
            return -1 not in self.tokens
        return not bool(self.dense[:, 0].isnan().any())  # softmax spreads a NaN over its whole row


def law_rows(state: LawState, draft: Draft) -> tuple[LawRow, ...]:
    """The rows at which a draft is judged: x0 with no draft token before it, then each node with those above it."""
    rows = [LawRow(state)]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        rows.append(LawRow(state, (*rows[parent + 1].drafted, token)))
    return tuple(rows)


def laws(requests: Sequence[tuple[LawRow, ...]], logits: Tensor) -> list[Laws]:
    """The laws of each request's rows; logits [R, V]: theirs, request by request."""
    if not requests:
        return []
    parts = torch.split(logits, [len(rows) for rows in requests])
    found: dict[int, Laws] = {}
    for is_greedy in (True, False):
        chosen = [k for k, rows in enumerate(requests) if rows[0].state.sampling.greedy is is_greedy]
        if not chosen:
            continue
        rows = [row for k in chosen for row in requests[k]]
        mine = logits if len(chosen) == len(requests) else torch.cat([parts[k] for k in chosen])
        values: Any = greedy(mine, rows) if is_greedy else law(mine, rows)
        begin = 0
        for k in chosen:
            part = values[begin : begin + len(requests[k])]
            begin += len(requests[k])
            found[k] = Laws(requests[k], parts[k], **({"tokens": tuple(part)} if is_greedy else {"p": part}))
    return [found[k] for k in range(len(requests))]
