"""The Markov head of DSpark: it corrects the guesses of one forward by the tokens drafted before them.

The logits of the token after p gain W2 e, where e is of low rank r:

    vanilla    e = W1[p]
    gated      e = sigmoid(G [h; W1[p]] + b) * W1[p]
    rnn        e = tanh(o), with [g; c; o] = J [s; W1[p]; h] + b and s' = sigmoid(g) s + (1 - sigmoid(g)) tanh(c)

with h the state from which the place's logits were made, and s the recurrent state, 0 at first. It is computed for the
likeliest candidates of each place, since W2 over a whole vocabulary would be read once more for every token.

Source: DSpark (arXiv:2607.05147).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from headstart.model.heads.dflash_config import MarkovKind
from headstart.model.heads.shortlists import Shortlists, candidates

TOP = 128
"""Candidates of a place."""


class MarkovHead:
    """The matrices, ready to run.

    Args:
        kind: which of the formulas.
        predecessors: W1 [V, r], by the target's ids.
        successors: W2 [draft V, r], by the indices of the logits.
        mixing: G [r, d + r] or J [3r, 2r + d], and its bias; None for a vanilla head.
    """

    def __init__(
        self, kind: MarkovKind, predecessors: Tensor, successors: Tensor, mixing: tuple[Tensor, Tensor] | None = None
    ) -> None:
        self._kind = kind
        self._predecessors, self._successors = predecessors.cpu(), successors
        self._mixing = None if mixing is None else (mixing[0].float().cpu(), mixing[1].float().cpu())

    @classmethod
    def of(cls, kind: MarkovKind, tensors: Mapping[str, Tensor]) -> MarkovHead:
        """From a checkpoint's tensors."""
        mixing = None
        if (name := MIXING.get(kind)) is not None:
            mixing = tensors[f"markov_head.{name}.weight"], tensors[f"markov_head.{name}.bias"]
        return cls(kind, tensors["markov_head.markov_w1.weight"], tensors["markov_head.markov_w2.weight"], mixing)

    def shortlists(self, logits: Tensor, states: Tensor) -> Shortlists:
        """The candidates of each place. logits: [K, draft V]; states: [K, d], those that the logits were made from."""
        places, likeliest = candidates(logits, TOP)
        weights = self._successors[places.to(self._successors.device)].float().cpu()
        kinds = {"vanilla": _Vanilla, "gated": _Gated, "rnn": _Recurrent}
        return kinds[self._kind](places, likeliest, weights, self._predecessors, states.float().cpu(), self._mixing)

    def weights(self) -> tuple[Tensor, ...]:
        """Its tensors."""
        return self._predecessors, self._successors, *(self._mixing or ())


MIXING: Mapping[MarkovKind, str] = {"gated": "gate_proj", "rnn": "joint_proj"}
"""How the mixing matrix of a kind is called in checkpoints."""


@dataclass(frozen=True, slots=True, eq=False)
class _Vanilla(Shortlists):
    """weights: [K, S, r], W2 of the candidates. predecessors: W1. states: [K, d]. mixing: the matrix and its bias."""

    weights: Tensor
    predecessors: Tensor
    states: Tensor
    mixing: tuple[Tensor, Tensor] | None

    def scores(self, place: int, paths: Sequence[tuple[int, ...]]) -> Tensor:
        return self.logits[place] + self._latent(place, paths) @ self.weights[place].T

    def _latent(self, place: int, paths: Sequence[tuple[int, ...]]) -> Tensor:  # noqa: ARG002 -- others need the place
        """e [R, r]."""
        return self._embedded([path[-1] for path in paths])

    def _embedded(self, tokens: Sequence[int]) -> Tensor:
        return self.predecessors[torch.tensor(tokens)].float()

    def _mixed(self, *parts: Tensor) -> Tensor:
        assert self.mixing is not None, "only called where there is one"
        matrix, bias = self.mixing
        return torch.cat(parts, -1) @ matrix.T + bias


@dataclass(frozen=True, slots=True, eq=False)
class _Gated(_Vanilla):
    def _latent(self, place: int, paths: Sequence[tuple[int, ...]]) -> Tensor:
        before = self._embedded([path[-1] for path in paths])
        return self._mixed(self.states[place].expand(len(paths), -1), before).sigmoid() * before


@dataclass(frozen=True, slots=True, eq=False)
class _Recurrent(_Vanilla):
    """memory: the recurrent state and e after each path."""

    by_pairs: ClassVar[bool] = False

    memory: dict[tuple[int, ...], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def _latent(self, place: int, paths: Sequence[tuple[int, ...]]) -> Tensor:  # noqa: ARG002 -- a path is as long
        return torch.stack([self._after(path)[1] for path in paths])

    def _after(self, path: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        if path not in self.memory:
            before = self._embedded([path[-1]])[0]
            state = self._after(path[:-1])[0] if len(path) > 1 else torch.zeros_like(before)
            gate, candidate, output = self._mixed(state, before, self.states[len(path) - 1]).chunk(3)
            kept = gate.sigmoid()
            self.memory[path] = kept * state + (1 - kept) * candidate.tanh(), output.tanh()
        return self.memory[path]
