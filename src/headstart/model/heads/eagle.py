"""The forward of an EAGLE head: one decoder layer whose rows are pairs of a token and a hidden state.

Row t of a request is (token x_{t+1}, the target's states h_t) at position t, and predicts x_{t+2}. Where the target
has not been yet, the head's own state of the row before stands in for h_t: that is how it drafts on. Rows lie in slots
of a cache like a model's, and forwards take the same `Packed` batches of trees.

`TensorHead` computes it with tensor operations on any device. `eagle_fused.FusedHead` does with the row kernels of a
CPU, several times faster for few rows; this one is its twin. `make_head` chooses.

Sources: EAGLE (arXiv:2401.15077), EAGLE-3 (2503.01840).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders.attention import Scores, attend_packed
from headstart.model.decoders.linears import float_layer, joined
from headstart.model.decoders.llama import rms, rotate, rotation, signed
from headstart.model.heads.eagle_checkpoint import EAGLE1, HeadCheckpoint
from headstart.model.memory import bytes_of
from headstart.model.packed import Packed, Segment


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """What a head computes of the judged rows."""

    logits: Tensor
    """[R, draft V]."""
    states: Tensor
    """[R, d]: its own states, to draft on from."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """A checkpoint complete with what it borrows of its target. embedding: [V, d]; head: [draft V, d]. All tensors are
    on one device and of one dtype."""

    checkpoint: HeadCheckpoint
    tensors: Mapping[str, Tensor]
    embedding: Tensor
    head: Tensor

    def linear(self, *names: str) -> nn.Linear:
        """The linear layer of that name, or several of the same input as one."""
        return joined([linear_of(self.tensors[f"{n}.weight"], self.tensors.get(f"{n}.bias")) for n in names])

    def gain(self, name: str) -> Tensor | None:
        return self.tensors.get(f"{name}.weight")

    def rotary(self) -> LlamaRotaryEmbedding:
        """The module of transformers that makes its rotation."""
        return LlamaRotaryEmbedding(config=self.checkpoint.config.rope)


def complete(
    checkpoint: HeadCheckpoint, *, embedding: Tensor, head: Tensor, dtype: torch.dtype, device: torch.device
) -> HeadWeights:
    """The weights as they are run. embedding, head: the target's, which stand in where the checkpoint has none."""
    own = checkpoint.tensors
    tensors = {name: tensor.to(device, dtype) for name, tensor in own.items() if name not in ("d2t", "t2d")}
    return HeadWeights(
        checkpoint,
        tensors,
        tensors.get("embed_tokens.weight", embedding).to(device, dtype).contiguous(),
        tensors.get("lm_head.weight", head).to(device, dtype),
    )


class Head(ABC):
    """A head that can be stepped. It holds no state of any request: caches are passed in.

    length: positions it can be run at, drafts included. token_ids: [draft V], the target's; None if they are the same.
    """

    def __init__(self, weights: HeadWeights, length: int) -> None:
        self.config = weights.checkpoint.config
        self.length = length
        self.dtype, self.device = weights.head.dtype, weights.head.device
        ids = weights.checkpoint.token_ids
        self.token_ids = None if ids is None else ids.to(self.device)
        tensors, config = weights.tensors, self.config
        self.shapes = {0: LayerShape(config.kv_heads, config.dim, config.dim)}
        self._fused_gains = (
            [tensors[f"fc_norm.{i}.weight"] for i in range(len(config.layer_ids))] if config.fc_norm else []
        )
        self._fused_gain = tensors["input_norm.weight"] if config.norm_before_fc else None

    @abstractmethod
    def new_cache(self, slots: int) -> Slots:
        """An empty cache of this head's shape, for `length` rows a slot."""

    @abstractmethod
    def run(self, packed: Packed, given: Tensor, *, own: bool) -> HeadOutput:
        """One forward over a packed batch, whose tokens are those after the states.

        given: [M, ...] a state for each row. The target's [M, layers read * target d], or with `own` those that this
        head left [M, d].
        """

    def weights(self) -> Iterable[Tensor]:
        """All tensors it holds; some may be the target's, or share their memory."""
        own = (self.token_ids, self._fused_gain, *self._fused_gains)
        return [tensor for tensor in own if tensor is not None]

    def memory(self) -> int:
        """Bytes of its weights, as they lie in memory, with what it borrows of the target."""
        return bytes_of(self.weights())

    def read(self, tokens: Sequence[int], states: Tensor) -> HeadOutput:
        """What the head computes of one text, from scratch: all its rows at once, for tests and for measuring.

        tokens: those after each of the target's states [n, layers read * target d].
        """
        slots = self.new_cache(1)
        segment = Segment(slots.acquire(), tuple(tokens), judged=len(tokens))
        return self.run(Packed([segment], slots, self.dtype, self.device), states, own=False)

    def _features(self, given: Tensor) -> Tensor:
        """The target's states as the fusing layer takes them: normed where this head has norms for them."""
        if self._fused_gains:
            parts = given.chunk(len(self._fused_gains), -1)
            given = torch.cat([rms(x, g, self.config.eps) for x, g in zip(parts, self._fused_gains, strict=True)], -1)
        return given if self._fused_gain is None else rms(given, self._fused_gain, self.config.eps)


class TensorHead(Head):
    """The head in tensor operations."""

    def __init__(self, weights: HeadWeights, length: int) -> None:
        super().__init__(weights, length)
        config, tensors = self.config, weights.tensors
        self._embedding = weights.embedding
        linear = float_layer(self.dtype, self.device)
        self._fuse = linear(weights.linear("fc"))
        self._qkv = linear(weights.linear(*(f"self_attn.{name}_proj" for name in "qkv")))
        self._out = linear(weights.linear("self_attn.o_proj"))
        self._gate_up = linear(weights.linear("mlp.gate_proj", "mlp.up_proj"))
        self._down = linear(weights.linear("mlp.down_proj"))
        self._head = linear(linear_of(weights.head))
        self._before, self._state_gain = weights.gain("input_layernorm"), weights.gain("hidden_norm")
        self._after, self._final = tensors["post_attention_layernorm.weight"], weights.gain("norm")
        self._head_gains = [weights.gain(f"self_attn.{name}") for name in ("q_norm", "k_norm")]
        self._scores = Scores(config.dim**-0.5, config.window)
        self._cos, self._sin = signed(*rotation(weights.rotary(), length), self.dtype, self.device)

    def new_cache(self, slots: int) -> Slots:
        return KVCache(self.shapes, slots=slots, capacity=self.length, dtype=self.dtype, device=self.device)

    def weights(self) -> Iterable[Tensor]:
        gains = (self._before, self._state_gain, self._after, self._final, *self._head_gains)
        yield from (*super().weights(), self._embedding, self._cos, self._sin)
        yield from (gain for gain in gains if gain is not None)
        for linear in (self._fuse, self._qkv, self._out, self._gate_up, self._down, self._head):
            yield from linear.weights()

    @torch.inference_mode()
    def run(self, packed: Packed, given: Tensor, *, own: bool) -> HeadOutput:
        config = self.config
        embedded, given = F.embedding(packed.ids[0], self._embedding), given.to(self.dtype)
        if config.version == EAGLE1:
            x = z = self._fuse(torch.cat((embedded, given), -1))
        else:
            x = given if own else self._fuse(self._features(given))
            assert self._before is not None, "checked when it was read"
            assert self._state_gain is not None, "checked when it was read"
            normed = rms(x, self._state_gain, config.eps)
            z = torch.cat((rms(embedded, self._before, config.eps), normed), -1)
            x = normed if config.norm_before_residual else x
        x = self._out.add(self._attend(z, packed), x)
        gate, up = self._gate_up(rms(x, self._after, config.eps)).chunk(2, -1)
        x = self._down.add(F.silu(gate) * up, x)[packed.judged]
        normed = x if self._final is None else rms(x, self._final, config.eps)
        return HeadOutput(self._head(normed), normed if config.norm_output else x)

    def _attend(self, z: Tensor, packed: Packed) -> Tensor:
        config, positions = self.config, packed.positions[0]
        q, k, v = (
            self._qkv(z).unflatten(-1, (-1, config.dim)).split((config.heads, config.kv_heads, config.kv_heads), 1)
        )
        cos, sin = self._cos[positions], self._sin[positions]
        turned = []
        for part, gain in zip((q, k), self._head_gains, strict=True):
            normed = part if gain is None else rms(part, gain, config.eps)
            turned.append(rotate(normed, cos, sin))
        q, k, v = (part.transpose(0, 1)[None] for part in (*turned, v))
        return attend_packed(packed, 0, q, k, v, self._scores).reshape(len(z), -1)


def linear_of(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer of these weights, without copying them."""
    layer = nn.Linear(1, 1, bias=bias is not None, device="meta")
    layer.out_features, layer.in_features = weight.shape
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer
