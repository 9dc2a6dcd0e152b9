"""`train_medusa`: train Medusa heads for a target (arXiv:2401.10774).

The target reads windows of text once; each head guesses from its last hidden states, and its distribution is pulled
towards the target's at the position that it predicts. The target is frozen, and no head needs another: heads are cheap
to train.

Heads begin as linear forecasts: the target's output matrix times the best linear guess of the state k + 1 places on,
found by least squares. That is far better than the output matrix itself, which predicts the next token, and costs
seconds.

Alignment: the state at t gives the token at t + 1 by the target's own head. Head k (from 0) predicts the token at
t + 2 + k, and its label is the target's distribution of that token, in logits row t + 1 + k, the text in between being
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import UnsupportedModel
from headstart.drafters.growing.ranks import WIDTH, Place, grow
from headstart.model.heads.stored_tensors import write_head
from headstart.train.acceptance import DRAFT_LENGTH, Acceptance, Guessed
from headstart.train.harness import Material, Observer, TrainingResult, train
from headstart.train.hidden import TargetStates, states_of
from headstart.train.objective import head_divergence
from headstart.train.options import MedusaTraining
from headstart.train.student import Student
from headstart.train.windows import Windows

TREES = (16, 32, 63)
"""Nodes of the trees whose accepted length is measured."""
FORECAST_TOKENS = 1 << 16
"""Tokens that the linear forecasts are fitted on, at most."""
_RIDGE = 3e-3  # of the mean square of a state's numbers, so that few tokens do for wide states


def train_medusa(options: MedusaTraining, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train heads and write them to `options.output` as a Medusa checkpoint in safetensors, with its provenance.

    Raises what `headstart.train.harness.train` raises.
    """
    return train(options, lambda material: MedusaStudent(options, material), observe)


class Block(nn.Module):
    """x + silu(A x + b); at first the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class Head(nn.Sequential):
    """Residual blocks, then an output matrix [V, d], which begins as the one that is given."""

    def __init__(self, matrix: Tensor, blocks: int) -> None:
        vocab_size, width = matrix.shape
        output = nn.Linear(width, vocab_size, bias=False)
        with torch.no_grad():
            output.weight.copy_(matrix)
        super().__init__(*(Block(width) for _ in range(blocks)), output)

    @property
    def matrix(self) -> nn.Parameter:
        output = self[len(self) - 1]
        assert isinstance(output, nn.Linear), "made last"
        weight: nn.Parameter = output.weight  # type: ignore[assignment]
        return weight

    def refined(self, states: Tensor) -> Tensor:
        """What the output matrix is multiplied with."""
        for layer in list(self)[:-1]:
            states = layer(states)
        return states


def make_heads(matrices: Sequence[Tensor], blocks: int) -> nn.ModuleList:
    """Heads whose parameters are named as the field's checkpoints name them, from their output matrices [V, d]."""
    return nn.ModuleList(Head(matrix, blocks) for matrix in matrices)


def forecasts(states: Iterable[Tensor], heads: int) -> list[Tensor]:
    """For each head k the matrix A [d, d] that makes A h_t the best guess of h_{t + 1 + k}, by ridge regression over
    the states [T, d] of some windows."""
    square: Tensor | None = None
    for window in states:
        x = window.float()
        if square is None:
            width = x.shape[1]
            square, moved = x.new_zeros(width, width), x.new_zeros(heads, width, width)
        rows = len(x) - heads
        square += x[:rows].T @ x[:rows]
        for k in range(heads):
            moved[k] += x[1 + k : 1 + k + rows].T @ x[:rows]
    assert square is not None, "there is at least one window"
    square.diagonal().add_(_RIDGE * square.diagonal().mean() + torch.finfo(square.dtype).tiny)
    return list(torch.linalg.solve(square, moved.mT).mT)


class MedusaStudent(Student):
    """Heads that learn the target's distributions of the tokens after the next one."""

    kind = "medusa"
    _options: MedusaTraining
    states: TargetStates

    def __init__(self, options: MedusaTraining, material: Material) -> None:
        target = material.target
        output = target.get_output_embeddings()
        if output is None:
            raise UnsupportedModel(
                f"{target.config.model_type} has no output matrix for heads to begin with", hint="train a draft instead"
            )
        super().__init__(options, material)
        self.states = states_of(options, target, (), device=material.device, dtype=material.dtype)
        matrix = output.weight.detach().float()
        self.logits_per_token: int = matrix.shape[0]
        if options.init == "target":
            matrices = [matrix @ forecast for forecast in forecasts(self._sample(material.train.ids), options.heads)]
        else:
            torch.manual_seed(options.seed)
            matrices = [torch.randn(matrix.shape) * matrix.shape[1] ** -0.5 for _ in range(options.heads)]
        self.module = self.heads = make_heads(matrices, options.blocks).to(material.device, material.dtype)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Under names that tell the optimiser which are output matrices."""
        for i, head in enumerate(self._each()):
            for name, parameter in head.named_parameters():
                yield f"{i}.{'lm_head' if parameter is head.matrix else name}", parameter

    def _sample(self, windows: Tensor) -> Iterator[Tensor]:
        """The states [T, d] of windows from all over the text, one by one."""
        count = max(1, FORECAST_TOKENS // windows.shape[1])
        for window in windows[:: max(1, len(windows) // count)][:count]:
            yield self.states.of(window.long()[None].to(self._device)).last[0]

    def _each(self) -> Iterator[Head]:
        for head in self.heads:
            assert isinstance(head, Head), "the list holds heads alone"
            yield head

    def loss(self, learnt: Windows, places: Tensor, step: int) -> Tensor:  # noqa: ARG002 (the protocol's)
        """Weighted mean over heads of the divergence of their distributions from the target's."""
        options = self._options
        states = self.states.of(learnt.ids.long().to(self._device)).last
        logits = self.states.output(states)
        # Logits row r is the label of head k at state r - 1 - k: of every head from r = M on
        theirs = logits[:, options.heads :].flatten(0, 1)
        weights = [options.head_decay**k for k in range(options.heads)]
        total = theirs.new_zeros((), dtype=torch.float32)
        for k, head in enumerate(self._each()):
            begin = options.heads - 1 - k
            mine = head.refined(states[:, begin : begin + logits.shape[1] - options.heads]).flatten(0, 1)
            weight = weights[k] / sum(weights)
            total = total + head_divergence(theirs, mine, head.matrix, weight, options.tv_weight)
        return total

    def measure(self, heldout: Windows) -> Acceptance:
        """Beside the acceptance, what the checkpoint records: how often each rank is right at temperature 0, and how
        long the trees made of that are."""
        self._ranks: list[Tensor] = []
        acceptance = super().measure(heldout)
        self._trees = _trees(torch.cat(self._ranks, dim=1), min(WIDTH, self.logits_per_token))
        return acceptance

    def guessed(self, ids: Tensor) -> Guessed:
        """Chains of each head's best guess from every position of the window.

        The first position is left out, as it is for a draft LM. A guess is a point mass: the chance that it is accepted
        is the target's probability of it. kl and draft_nats are those of the first head.
        """
        states = self.states.of(ids).last[0]
        theirs = self.states.output(states).float()
        ours = [head(states).float() for head in self._each()]
        # Head k at state t against logits row t + 1 + k, for t = 1, 2, ...
        aimed = [(theirs[2 + k :], q[1 : len(q) - 1 - k]) for k, q in enumerate(ours)]
        self._ranks.append(ranks(aimed))
        p, q = aimed[0]
        return Guessed(
            p,
            p.log_softmax(-1),
            q.log_softmax(-1),
            ids[0, 3:],
            lambda t: [_chances(theirs, mine, t) for theirs, mine in aimed[:DRAFT_LENGTH]],
        )

    def write(self, folder: Path) -> None:
        tensors = self.heads.state_dict()
        vocab_size, width = tensors[f"0.{self._options.blocks}.weight"].shape
        config = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "medusa_num_heads": self._options.heads,
            "medusa_num_layers": self._options.blocks,
            "medusa_fc_bias": True,  # without it vLLM drops the blocks' biases, and says nothing
            "base_model_name_or_path": str(self._options.target),
            "hidden_size": width,
            "vocab_size": vocab_size,
            "dtype": "bfloat16",
            "headstart": {"accuracies": self._trees["accuracies"]},
        }
        write_head(folder, tensors, config, weights="medusa_lm_head.safetensors")

    def facts(self) -> dict[str, Any]:
        return {**self._trees, **super().facts()}


def _chances(theirs: Tensor, ours: Tensor, temperature: float) -> Tensor:
    """Chance [T] that the best guess by the logits `ours` [T, V] is accepted by `theirs`."""
    best = ours.argmax(-1)
    if temperature == 0:
        return (theirs.argmax(-1) == best).float()
    return (theirs / temperature).softmax(-1).gather(1, best[:, None])[:, 0]


def ranks(aimed: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Which guess of each head the target's likeliest token is, [heads, T]: 0 for its best, WIDTH for none of them.

    aimed: for each head the target's logits and its own [T, V]; later heads reach less far, and T is that of the last.
    """
    rows = len(aimed[-1][0])
    places = []
    for theirs, ours in aimed:
        width = min(WIDTH, ours.shape[-1])
        hits = ours[:rows].topk(width, dim=-1).indices == theirs[:rows].argmax(-1, keepdim=True)
        places.append(torch.where(hits.any(-1), hits.int().argmax(-1), WIDTH))
    return torch.stack(places).cpu()


def table(found: Tensor, width: int) -> list[list[float]]:
    """Accuracies [heads][width] from `ranks` [heads, T]: of each guess, where every earlier head had the target's token
    among its own."""
    accuracies = []
    open_ = torch.ones(found.shape[1], dtype=torch.bool)
    for row in found:
        counts = torch.bincount(row[open_], minlength=WIDTH + 1)[:width]
        accuracies.append([round(share, 5) for share in (counts / max(1, int(open_.sum()))).tolist()])
        open_ &= row < WIDTH
    return accuracies


def accepted_in_tree(order: Sequence[Place], found: Tensor) -> float:
    """Mean length of the accepted path of the tree `order`, from `ranks` [heads, T]."""
    below = torch.zeros(len(order) + 1, WIDTH + 1, dtype=torch.long)  # [node + 1, rank]: the child + 1, 0 for none
    for node, place in enumerate(order):
        below[place.parent + 1, place.rank] = node + 1
    at = torch.zeros(found.shape[1], dtype=torch.long)
    alive = torch.ones(found.shape[1], dtype=torch.bool)
    length = 0
    for row in found:
        at = below[at, row]
        alive &= at > 0
        length += int(alive.sum())
    return length / max(1, found.shape[1])


def _trees(found: Tensor, width: int) -> dict[str, Any]:
    accuracies = table(found, width)
    order = grow(accuracies, max(TREES))
    lengths = {str(nodes): round(accepted_in_tree(order[:nodes], found), 4) for nodes in TREES}
    return {"accuracies": accuracies, "accepted_in_trees": lengths}
