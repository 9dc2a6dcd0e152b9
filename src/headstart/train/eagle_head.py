"""An EAGLE-3 head, or one that guesses several tokens in one forward (P-EAGLE), as a plain module for training.

The head reads three of the target's hidden states at position t, g = fc([h_lo; h_mid; h_hi]), and the embedding of the
token after t; decoder layers over both give a state `a` whose norm times `lm_head` is the distribution of the token
after that.

To guess further, an EAGLE-3 head is fed its own `a` in place of g. The training-time test does the same while it learns
(`unroll`): tokens come from the text, states from the head itself. A parallel head is fed rows that know nothing but
their position instead: the embedding of a mask token, and fc(`mask_hidden`). They see the text's rows and the masked
rows before them through attention, so one layer leaves them nearly blind, and two are the least that makes sense.

Parameters are named as the field's checkpoints name them. Sources: EAGLE-3, arXiv:2503.01840; P-EAGLE, 2602.01469.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headstart.train.head_layer import HeadShape, Layer, Past, RMSNorm, rotation
from headstart.train.head_selector import CandidateSelector


class EagleHead(nn.Module):
    """`fc`, decoder layers, a norm, and the matrix of the draft vocabulary."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(3 * shape.hidden, shape.hidden, bias=False)
        self.midlayer = Layer(shape, first=True)
        self.layers = nn.ModuleDict({str(i): Layer(shape, first=False) for i in range(1, shape.layers)})
        self.norm = RMSNorm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocab, bias=False)
        if shape.parallel:
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, 3 * shape.hidden))
            self.mask_row = nn.Parameter(torch.zeros(shape.hidden))
        if shape.selector_rank:
            self.candidate_selector = CandidateSelector(shape)

    def unroll(self, aux: Tensor, embedded: Tensor, steps: int, kept: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The head's states at each pass of the training-time test, or at each depth of a forward with masked rows,
        before the final norm.

        aux [B, T, 3d]: the target's states at positions 0..T-1. embedded [B, E, d]: embeddings of the tokens at 1..E.
        Pass i gives [B, n_i, d]: row t predicts the token at t + 2 + i, and has read the text up to t + 1 + i, or up to
        t + 1 and i masks. Without `kept` a pass has the rows t <= E - 1 - i, at most T; with it those rows [n_i], each
        of which the pass before has too, and E >= T + steps - 1.
        """
        longest, tokens = aux.shape[1], embedded.shape[1]
        cos, sin = rotation(max(tokens, longest) + 1, self.shape, aux.device, aux.dtype)
        pasts: list[Past] = [[] for _ in range(self.shape.layers)]
        state = self._layers(embedded[:, :longest], self.fc(aux), (cos[:longest], sin[:longest]), pasts, None)
        states = [state if kept is None else state[:, kept[0]]]
        rows = torch.arange(longest, device=aux.device)
        for i in range(1, steps):
            inside = rows[: tokens - i] if kept is None else torch.searchsorted(rows, kept[i])
            rows = inside if kept is None else kept[i]
            for past in pasts:
                past[1:] = [(key[:, :, inside], value[:, :, inside]) for key, value in past[1:]]
            token, state = self._fed(embedded, state, rows + i, inside)
            turn = cos[rows + i], sin[rows + i]
            state = self._layers(token, state, turn, pasts, None if kept is None else rows)
            states.append(state)
        return states

    def _fed(self, embedded: Tensor, state: Tensor, places: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """What a later pass reads at these places: embeddings and states [B, n, d], or those of all masks [1, 1, d]."""
        if self.shape.parallel:
            return self.mask_row[None, None], self.fc(self.mask_hidden)
        return embedded[:, places], state[:, inside]

    def stack(self) -> list[Layer]:
        """The layers in their order."""
        return [self.midlayer, *(layer for layer in self.layers.values() if isinstance(layer, Layer))]

    def _layers(
        self, token: Tensor, state: Tensor, turn: tuple[Tensor, Tensor], pasts: list[Past], rows: Tensor | None
    ) -> Tensor:
        for number, (layer, past) in enumerate(zip(self.stack(), pasts, strict=True)):
            state = layer(None if number else token, state, turn, past, rows)
        return state

    def logits(self, states: Tensor) -> Tensor:
        """[..., d] to [..., draft vocabulary]."""
        result: Tensor = self.lm_head(self.norm(states))
        return result
