"""The target's last step by itself: from the last hidden state to the logits of all tokens, or of a few of them.

A cache of states then needs no logits: a few rows of the output matrix make those that a loss asks for, and the
log-sum-exp over all tokens, kept beside the state, makes probabilities of them: a distribution over a draft vocabulary
is exp(W h - log_z), with W the rows of the matrix that belong to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import UnsupportedModel

CHUNK_ELEMENTS = 1 << 23  # logits held at once
CACHED_ROWS = 16  # of them, what is worked on at a time

Shape = Callable[[Tensor], Tensor]


class OutputMatrix:
    """weight [V, d], bias [V] or None, and what is done to every logit by itself after them."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, shape: Shape = lambda logits: logits) -> None:
        self._weight, self._bias, self._shape = weight, bias, shape

    @classmethod
    @torch.no_grad()
    def of(cls, target: Any) -> OutputMatrix:
        """That of a model of transformers, compared with the model's own logits on a few tokens.

        Raises:
            UnsupportedModel: its logits are more than the matrix and a known function of each logit.
        """
        layer = target.get_output_embeddings()
        if layer is not None:
            weight, bias = layer.weight.detach(), getattr(layer, "bias", None)
            ids = torch.arange(min(8, len(weight)), device=weight.device)[None]
            out = target(ids, output_hidden_states=True, use_cache=False)
            for shape in _shapes(target.config.get_text_config()):
                made = cls(weight, bias if bias is None else bias.detach(), shape)
                if torch.allclose(made(out.hidden_states[-1]), out.logits, atol=1e-3, rtol=1e-3):
                    return made
        problem = f"{target.config.model_type} does more to its logits than its output matrix"
        raise UnsupportedModel(problem, hint="train a draft model instead: it needs no states of the target")

    def __len__(self) -> int:
        return len(self._weight)

    def only(self, tokens: Tensor) -> OutputMatrix:
        """That of these tokens [k] alone."""
        bias = None if self._bias is None else self._bias[tokens]
        return OutputMatrix(self._weight[tokens], bias, self._shape)

    def __call__(self, last: Tensor) -> Tensor:
        """Logits [..., V] of last states [..., d], in the matrix's type."""
        return self._shape(F.linear(last.to(self._weight.dtype), self._weight, self._bias))

    @torch.no_grad()
    def log_z(self, last: Tensor) -> Tensor:
        """The log-sum-exp of the logits, float32 [...], of states [..., d]."""
        rows = last.flatten(0, -2)
        size = max(1, CHUNK_ELEMENTS // len(self))
        found = []
        for part in torch.split(rows, size):
            logits = self(part).float()
            # `logsumexp` takes ten times as long on a processor; the log-softmax of one token gives the same number
            found += [rows[:, 0] - rows.log_softmax(-1)[:, 0] for rows in torch.split(logits, CACHED_ROWS)]
        return torch.cat(found).view(last.shape[:-1])


def _shapes(config: Any) -> list[Shape]:
    """What models of this config may do to each logit: nothing, or what its fields name."""
    found: list[Shape] = [lambda logits: logits]
    if divisor := getattr(config, "logits_scaling", None):  # Granite
        found.append(lambda logits: logits / divisor)
    if factor := getattr(config, "logit_scale", None):  # Cohere
        found.append(lambda logits: logits * factor)
    if bound := getattr(config, "final_logit_softcapping", None):  # Gemma
        found.append(lambda logits: (logits / bound).tanh() * bound)
    return found


@dataclass(frozen=True, slots=True)
class StateDistributions:
    """The target's distributions on some windows, over the draft vocabulary: last [B, T, d], log_z [B, T], and what
    makes logits [..., draft V] of states."""

    last: Tensor
    log_z: Tensor
    output: Callable[[Tensor], Tensor]

    def log_p(self, window: int, rows: Tensor) -> Tensor:
        """True log-probabilities [rows, draft V] after these positions of a window; they need not add up to one."""
        return self.output(self.last[window, rows]).float().sub_(self.log_z[window, rows, None])
