"""What recurrent layers compute of a text, as plain data. Each has a causal convolution, and most a state behind it.

All of them are computed in float32 from the outputs of their input layers, which lie side by side in the order that
each class says. The convolution of a channel is the sum of its last `taps` inputs, each with its own weight, and zeros
stand before the text. Names are those of transformers' modules and parameters, below a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from headstart.model.recipes.norms import Norm


@dataclass(frozen=True)
class ShortConv:
    """y = out(c * conv(b * x)), where inputs = [b | c | x] (LFM2). There is no state but the convolution's inputs."""

    channels: int
    taps: int
    inputs: tuple[str, ...] = ("conv.in_proj",)
    conv: str = "conv.conv"
    out: str = "conv.out_proj"

    gates = 0
    numbers = 0
    factor = 1.0

    @property
    def inner(self) -> dict[str, int]:
        """See `DeltaRule.inner`."""
        return {}

    @property
    def outputs(self) -> int:
        """Of the input layers."""
        return 3 * self.channels

    @property
    def width(self) -> int:
        """What goes into `out`."""
        return self.channels

    @property
    def widths(self) -> set[int]:
        """Of what is computed together."""
        return {self.channels}


@dataclass(frozen=True)
class DeltaRule:
    """The gated delta rule (Qwen3.5): inputs = [q k v | z | b | a], of which [q k v] goes through convolution and silu.

    q and k are made to length 1 by head, q is scaled by key_dim ** -0.5; value head h has the key head h // (heads /
    key_heads). With decay g = -exp(A) * softplus(a + bias) and beta = sigmoid(b) * `beta_factor`, for each value head:

        S = exp(g) * S;  S = S + k (beta * (v - S^T k))^T;  o = S^T q        # S [key_dim, value_dim]
        y = out(norm(o) * silu(z))                                            # norm by head

    Source: Gated Delta Networks (arXiv:2412.06464).
    """

    heads: int
    """Value heads."""
    key_heads: int
    key_dim: int
    value_dim: int
    taps: int
    norm: Norm
    """Of each head's output, before the gate."""
    beta_factor: float = 1.0
    """Of beta; 2 lets a state change its sign (OLMo hybrid)."""
    inputs: tuple[str, ...] = (
        "linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.in_proj_b", "linear_attn.in_proj_a",
    )  # fmt: skip
    by_key_head: bool = False
    """Whether the outputs of `inputs` are [q k v z] and [b a] of each key head, in order, instead (Qwen3-Next)."""
    conv: str = "linear_attn.conv1d"
    decay: str = "linear_attn.A_log"
    bias: str = "linear_attn.dt_bias"
    out: str = "linear_attn.out_proj"

    factor = 1.0

    @property
    def inner(self) -> dict[str, int]:
        """Linear layers between `inputs` and the rule, and how many outputs each has."""
        return {}

    @property
    def steps(self) -> int:
        """Numbers of `bias`."""
        return self.heads

    @property
    def channels(self) -> int:
        """Of the convolution: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.heads * self.value_dim

    @property
    def gates(self) -> int:
        """b and a."""
        return 2 * self.heads

    @property
    def numbers(self) -> int:
        return self.heads * self.key_dim * self.value_dim

    @property
    def outputs(self) -> int:
        return self.channels + self.width + self.gates

    @property
    def width(self) -> int:
        return self.heads * self.value_dim

    @property
    def widths(self) -> set[int]:
        return {self.key_dim, self.value_dim}


@dataclass(frozen=True, kw_only=True)
class ChannelRule(DeltaRule):
    """The same with a decay for each channel of the keys (Kimi Linear): inputs = [q k v | f | g | b], a = `decays`(f)
    and z = `gate`(g), where f and g are of low rank.

    With g = -exp(A) * softplus(a + bias), a number for each channel, and a gate that is sigmoid(z):

        S = diag(exp(g)) S;  S = S + k (beta * (v - S^T k))^T;  o = S^T q

    Source: Kimi Linear (arXiv:2510.26692).
    """

    rank: int
    """Numbers of f, and of g."""
    decays: str = "self_attn.forget_gate.f_b_proj"
    gate: str = "self_attn.g_b_proj"

    @property
    def inner(self) -> dict[str, int]:
        return {self.decays: self.steps, self.gate: self.width}

    @property
    def steps(self) -> int:
        return self.heads * self.key_dim

    @property
    def gates(self) -> int:
        """a and b."""
        return self.steps + self.heads

    @property
    def outputs(self) -> int:
        return self.channels + 2 * self.rank + self.heads

    @property
    def widths(self) -> set[int]:
        return {self.key_dim, self.value_dim, self.rank}


@dataclass(frozen=True)
class Mamba2:
    """Mamba-2: inputs = [z | x B C | dt], of which [x B C] goes through convolution and silu.

    With step = softplus(dt + bias) and a = -exp(A), for each head, whose group has B and C:

        S = exp(step * a) * S + (step * x) B^T;  o = S C + D * x              # S [dim, state]
        y = out(norm(o * silu(z)))                                            # norm by group of heads

    Source: Mamba-2 (arXiv:2405.21060).
    """

    heads: int
    dim: int
    state: int
    groups: int
    taps: int
    norm: Norm | None
    """Of each group's gated output; None for none (Falcon-H1)."""
    norm_first: bool = False
    """Whether y is norm(o) * silu(z) instead."""
    factors: tuple[float, float, float, float, float] = (1.0,) * 5
    """Of z, x, B, C and dt, before anything is made of them (Falcon-H1)."""
    factor: float = 1.0
    """Of what it adds to the stream (Falcon-H1)."""
    inputs: tuple[str, ...] = ("mamba.in_proj",)
    conv: str = "mamba.conv1d"
    decay: str = "mamba.A_log"
    bias: str = "mamba.dt_bias"
    skip: str = "mamba.D"
    out: str = "mamba.out_proj"

    @property
    def inner(self) -> dict[str, int]:
        """See `DeltaRule.inner`."""
        return {}

    @property
    def steps(self) -> int:
        """Numbers of `bias`."""
        return self.heads

    @property
    def channels(self) -> int:
        return self.width + 2 * self.groups * self.state

    @property
    def gates(self) -> int:
        """dt."""
        return self.heads

    @property
    def numbers(self) -> int:
        return self.heads * self.dim * self.state

    @property
    def outputs(self) -> int:
        return self.width + self.channels + self.gates

    @property
    def width(self) -> int:
        return self.heads * self.dim

    @property
    def widths(self) -> set[int]:
        return {self.dim, self.state}


Recurrent = ShortConv | DeltaRule | Mamba2
"""A layer of these keeps a state of each text: `gates` and `numbers` of it, see `StateShape`."""
