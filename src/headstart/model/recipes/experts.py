"""A mixture of experts as plain data: how a router chooses a few of many MLPs for each row, and where weights lie.

Names are those of transformers' modules and parameters, below a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headstart.model.recipes.mlp import Activation, Mlp
from headstart.model.recipes.norms import Norm

MOST_GROUPS, MOST_GROUP_BEST = 64, 2
"""Of experts, and of the best of a group by which it is chosen: more than any model has. As in experts.h."""


@dataclass(frozen=True)
class Router:
    """Which experts a row takes, and by what weights they are added.

    Scores of the experts are made from their logits, a product of the row with `weight`. The experts with the largest
    scores are chosen, of equal ones the first.
    """

    chosen: int
    """Experts of each row."""
    score: Literal["softmax", "sigmoid", "chosen"] = "softmax"
    """Of each logit: a softmax of all, a sigmoid, or a softmax of those that are chosen, by the logits themselves."""
    weight: str = "mlp.gate.weight"
    """The parameter [experts, d]."""
    bias: str | None = None
    """The parameter [experts] that is added to logits."""
    choice_bias: str | None = None
    """The parameter [experts] that is added to scores for the choice, and not to weights."""
    groups: int = 1
    """Equal parts of the experts, in order; only those of the `groups_kept` best groups are chosen."""
    groups_kept: int = 1
    group_best: int = 2
    """A group is as good as the sum of so many of its best experts' scores, with the bias of the choice."""
    normalised: bool = False
    """Whether weights are divided by their sum; those of "chosen" are anyway."""
    least_sum: float = 0.0
    """Added to that sum."""
    factor: float = 1.0
    """Of weights."""
    wide: bool = False
    """Whether logits are computed in float32, whatever the dtype of the weights."""
    norm: Norm | None = None
    """Of the stream, for the router alone (Gemma 4). None: it reads what the experts read."""
    gain: str | None = None
    """The parameter [d] that the normed stream is multiplied by, and divided by the root of d (Gemma 4)."""
    expert_factors: str | None = None
    """The parameter [experts] that weights are multiplied by (Gemma 4)."""


@dataclass(frozen=True)
class Experts:
    """Many MLPs, of which each row takes those that its router chooses."""

    count: int
    width: int
    """Of each of them."""
    activation: Activation
    router: Router
    gate_up: tuple[str, ...] = ("mlp.experts.gate_up_proj",)
    """The parameters [experts, outputs, d] whose outputs side by side are gate and up; without a gate that of `up`."""
    down: str = "mlp.experts.down_proj"
    """The parameter [experts, d, width]."""
    gate_up_bias: str | None = None
    """The parameter [experts, outputs]."""
    down_bias: str | None = None
    gated: bool = True
    transposed: bool = False
    """Whether inputs come before outputs in the parameters (GPT-OSS)."""
    interleaved: bool = False
    """Whether gate and up take turns, output by output (GPT-OSS)."""
    limit: float | None = None
    """The largest gate g, and the largest `up` on both sides (GPT-OSS). The layer then has g * sigmoid(alpha * g) *
    (up + 1) in place of activation(g) * up."""
    alpha: float = 1.702
    shared: Mlp | None = None
    """An MLP beside them that every row takes, of the same activation."""
    shared_gate: str | None = None
    """The parameter [1, d] that gives the logit of its weight; None: its weight is 1."""
    input_norm: Norm | None = None
    """Of the stream, for the experts alone (Gemma 4). None: they read what the layer's `mlp_in` makes, as `shared`
    does."""
    output_norm: Norm | None = None
    """Of what the experts add together."""
    shared_norm: Norm | None = None
    """Of what `shared` adds."""
    factor: float = 1.0
    """Of what all of it adds to the stream."""

    @property
    def linears(self) -> tuple[str, ...]:
        """The linear layers of what every row takes."""
        return () if self.shared is None else (*self.shared.gate_up, self.shared.down)

    @property
    def floats(self) -> frozenset[str]:
        """Modules whose matrices are rounded by nobody: a choice must not hang on it."""
        names = (self.router.weight, self.shared_gate)
        return frozenset(name.rpartition(".")[0] for name in names if name is not None)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The weights of the experts themselves."""
        biases = (self.gate_up_bias, self.down_bias)
        return (*self.gate_up, self.down, *(name for name in biases if name is not None))

    @property
    def widths(self) -> set[int]:
        """Of all their rows."""
        return {self.width} | (set() if self.shared is None else {self.shared.width})

    def shapes(self, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Inputs and outputs of an expert's first layer and of its second, in a stream of this width."""
        return (width, self.width * (2 if self.gated else 1)), (self.width, width)
