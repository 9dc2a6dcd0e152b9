"""The target's distributions over the rows of a step: on a device all at once; on the host as they are asked for, but
for those after x0 of several sampled requests, which are always asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import NonFiniteLogits
from headstart.rule.distribution import SamplingRow, SamplingState, distribution, greedy, on_host
from headstart.types import Draft


@dataclass(frozen=True, slots=True, eq=False)
class Distributions(Sequence[NDArray[np.float32]]):
    """The target's distributions over one request's judged rows: after x0, then after every node of its draft; n in
    all.

    A greedy request needs only the likeliest tokens. A sampled one is a sequence of distributions: the rule looks at
    those it comes to, and on a CPU the others, most of a draft that is soon rejected, are never computed.
    """

    rows: tuple[SamplingRow, ...]
    logits: Tensor
    """[n, V], the target's."""
    tokens: Sequence[int] | None = None
    """For a greedy request, the token of each distribution; -1 where the logits are not finite."""
    p: Tensor | None = None
    """For any other request, the distributions [n, V], where they were computed all at once."""
    _found: dict[int, NDArray[np.float32]] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> NDArray[np.float32]:  # type: ignore[override]  # there are no slices
        """Distribution `index`, [V], on the host.

        Raises:
            NonFiniteLogits: the logits made no distribution there.
            HeadstartError: another reason why there is none, see `SamplingRow.failure`.
        """
        if index not in self._found:
            self._look_out(index)
            at = slice(index, index + 1)
            row = on_host(self.logits[at], self.rows[at]) if self.p is None else self.p[at].cpu().numpy()
            if row[0, 0] != row[0, 0]:  # softmax spreads a NaN over its whole row
                raise no_distribution()
            self._found[index] = row[0]
        return self._found[index]

    def token(self, index: int) -> int:
        """The token of a greedy request's distribution `index`.

        Raises:
            NonFiniteLogits, HeadstartError: there is none, as above.
        """
        assert self.tokens is not None, "only asked of greedy requests"
        self._look_out(index)
        token = self.tokens[index]
        if token < 0:
            raise no_distribution()
        return token

    def _look_out(self, index: int) -> None:
        """Raise the row's own failure, which its logits say nothing of."""
        failure = self.rows[index].failure
        if failure is not None:
            raise failure

    @property
    def dense(self) -> Tensor:
        """All of them, p [n, V]."""
        return distribution(self.logits, self.rows) if self.p is None else self.p

    @property
    def argmax(self) -> tuple[int, ...]:
        """The likeliest token of each distribution."""
        return tuple(self.dense.argmax(-1).tolist()) if self.tokens is None else tuple(self.tokens)


class _Tokens(Sequence[int]):
    """The tokens of a greedy request's distributions, each computed when it is asked for."""

    def __init__(self, rows: tuple[SamplingRow, ...], logits: Tensor) -> None:
        self._rows, self._logits = rows, logits
        self._found: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> int:  # type: ignore[override]  # there are no slices
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index not in self._found:
            at = slice(index, index + 1)
            (self._found[index],) = greedy(self._logits[at], self._rows[at])
        return self._found[index]


def no_distribution() -> NonFiniteLogits:
    """What is raised where logits make no distribution."""
    hint = "check the checkpoint, or use a dtype with more range (float32)"
    return NonFiniteLogits("the target gave NaN or infinite logits", hint=hint)


def sampling_rows(state: SamplingState, draft: Draft) -> tuple[SamplingRow, ...]:
    """The rows at which a draft is judged: x0 with no draft token before it, then each node with those above it, where
    a processor may ask for them."""
    if state.unedited:
        return (SamplingRow(state),) * (len(draft) + 1)
    rows = [SamplingRow(state)]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        rows.append(SamplingRow(state, (*rows[parent + 1].drafted, token)))
    return tuple(rows)


def distributions(requests: Sequence[tuple[SamplingRow, ...]], logits: Tensor) -> list[Distributions]:
    """The distributions of each request's rows; logits [R, V]: theirs, request by request."""
    if not requests:
        return []
    parts = [logits] if len(requests) == 1 else torch.split(logits, [len(rows) for rows in requests])
    found: dict[int, Distributions] = {}
    greedy_ones: list[int] = []
    sampled_ones: list[int] = []
    for k, (rows, part) in enumerate(zip(requests, parts, strict=True)):
        is_greedy = rows[0].state.sampling.greedy
        if logits.device.type == "cpu":
            found[k] = Distributions(rows, part, _Tokens(rows, part) if is_greedy else None)
        else:
            (greedy_ones if is_greedy else sampled_ones).append(k)
    if greedy_ones:
        tokens = iter(greedy(*_together(requests, parts, logits, greedy_ones)))
        for k in greedy_ones:
            found[k] = Distributions(requests[k], parts[k], tokens=tuple(islice(tokens, len(requests[k]))))
    if sampled_ones:
        p = distribution(*_together(requests, parts, logits, sampled_ones))
        shares = torch.split(p, [len(requests[k]) for k in sampled_ones])
        found |= {k: Distributions(requests[k], parts[k], p=p) for k, p in zip(sampled_ones, shares, strict=True)}
    _find_first([each for each in found.values() if each.tokens is None and each.p is None], logits)
    return [found[k] for k in range(len(requests))]


def _find_first(requests: Sequence[Distributions], logits: Tensor) -> None:
    """Compute the distributions after x0 together: the calls take longer than the work of one row. Not where a grammar
    may say that there is none. logits: of the whole step."""
    several = [each for each in requests if not each.rows[0].state.masks]
    if len(several) < 2:
        return
    if len(several) < len(logits):
        logits = torch.cat([each.logits[:1] for each in several])
    p = on_host(logits, [each.rows[0] for each in several])
    for each, row, bad in zip(several, p, np.isnan(p[:, 0]).tolist(), strict=True):
        if not bad:  # who asks for it is told then
            each._found[0] = row


def _together(
    requests: Sequence[tuple[SamplingRow, ...]], parts: Sequence[Tensor], logits: Tensor, chosen: Sequence[int]
) -> tuple[Tensor, list[SamplingRow]]:
    """The logits of the chosen requests, one behind the other, and their rows; nothing is copied where all are."""
    rows = [row for k in chosen for row in requests[k]]
    return logits if len(chosen) == len(requests) else torch.cat([parts[k] for k in chosen]), rows
