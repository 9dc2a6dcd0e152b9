"""The forward of an EAGLE head: a decoder of one or a few layers whose rows are pairs of a token and a hidden state.

Row t of a request is (token x_{t+1}, the target's states h_t) at position t, and predicts x_{t+2}. Where the target
has not been yet, the head's own state of the row before stands in for h_t: that is how it drafts on. Rows lie in slots
of a cache like a model's, and forwards take the same `Packed` batches of trees. A parallel head (P-EAGLE) has a state
that stands in for all that is not known, so that masked rows guess on without its own.

`TensorHead` computes it with tensor operations on any device. `eagle_fused.FusedHead` does with the row kernels of a
CPU, several times faster for few rows; this one is its twin. `make_head` chooses.

Sources: EAGLE (arXiv:2401.15077), EAGLE-3 (2503.01840), P-EAGLE (2602.01469).
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
from headstart.model.decoders.linears import float_layer, joined, linear_of
from headstart.model.decoders.operations import rms, rotate, signed
from headstart.model.decoders.parts import rotation
from headstart.model.heads.eagle_checkpoint import EAGLE1, SELECTOR, EagleCheckpoint, layer_name
from headstart.model.heads.eagle_config import HeadConfig
from headstart.model.heads.shortlists import Selector
from headstart.model.memory import bytes_of
from headstart.model.packed import Packed, Segment


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """What a head computes of the judged rows."""

    logits: Tensor
    """[R, draft V]."""
    states: Tensor
    """[R, d]: its own states, to draft on from, or for a selector."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """A checkpoint complete with what it borrows of its target. embedding: [V, d]; head: [draft V, d]. All tensors are
    on one device and of one dtype."""

    checkpoint: EagleCheckpoint
    tensors: Mapping[str, Tensor]
    embedding: Tensor
    head: Tensor

    def linear(self, *names: str) -> nn.Linear:
        """The linear layer of that name, or several of the same input as one."""
        return joined([linear_of(self.tensors[f"{n}.weight"], self.tensors.get(f"{n}.bias")) for n in names])

    def gain(self, name: str) -> Tensor | None:
        return self.tensors.get(f"{name}.weight")

    def selector(self) -> Selector | None:
        """Its selector, if it has one."""
        config = self.checkpoint.config
        if not config.selector_rank:
            return None
        names = ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
        before, after, projection = (self.tensors[f"{SELECTOR}.{name}"] for name in names)
        return Selector(before, after, projection, config.selector_top)

    def rotary(self) -> LlamaRotaryEmbedding:
        """The module of transformers that makes its rotation."""
        return LlamaRotaryEmbedding(config=self.checkpoint.config.rope)


def complete(
    checkpoint: EagleCheckpoint, *, embedding: Tensor, head: Tensor, dtype: torch.dtype, device: torch.device
) -> HeadWeights:
    """The weights as they are run. embedding, head: the target's, which stand in where the checkpoint has none."""
    tensors = checkpoint.own(dtype, device)
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
        self.shapes = {i: LayerShape(config.kv_heads, config.dim, config.dim) for i in range(config.layers)}
        self.selector = weights.selector()
        self._mask = tensors["mask_hidden"].reshape(-1) if config.parallel else None
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
        own = (self.token_ids, self._fused_gain, *self._fused_gains, self._mask)
        selector = () if self.selector is None else self.selector.weights()
        return [*selector, *(tensor for tensor in own if tensor is not None)]

    @property
    def weights_in_words(self) -> str:
        """What the weights are, for people."""
        return str(self.dtype).removeprefix("torch.")

    def mask_states(self, rows: int) -> Tensor:
        """What masked rows are given instead of the target's states [rows, layers read * target d]."""
        assert self._mask is not None, "only a parallel head has masked rows"
        return self._mask.expand(rows, -1)

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
        self._embedding = weights.embedding
        linear = float_layer(self.dtype, self.device)
        self._fuse = linear(weights.linear("fc"))
        self._head = linear(linear_of(weights.head))
        self._before, self._state_gain = weights.gain("input_layernorm"), weights.gain("hidden_norm")
        self._final = weights.gain("norm")
        self._layers = [_Layer(weights, i) for i in range(self.config.layers)]
        self._cos, self._sin = signed(*rotation(weights.rotary(), length), self.dtype, self.device)

    def new_cache(self, slots: int) -> Slots:
        return KVCache(self.shapes, slots=slots, capacity=self.length, dtype=self.dtype, device=self.device)

    def weights(self) -> Iterable[Tensor]:
        yield from (*super().weights(), self._embedding, self._cos, self._sin)
        yield from (gain for gain in (self._before, self._state_gain, self._final) if gain is not None)
        yield from (*self._fuse.weights(), *self._head.weights())
        for layer in self._layers:
            yield from layer.weights()

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
        turn = self._cos[packed.positions[0]], self._sin[packed.positions[0]]
        for i, layer in enumerate(self._layers):
            x = layer(x, layer.normed(x) if i else z, packed, turn)
        x = x[packed.judged]
        normed = x if self._final is None else rms(x, self._final, config.eps)
        return HeadOutput(self._head(normed), normed if config.states_normed else x)


class _Layer:
    """One decoder layer."""

    def __init__(self, weights: HeadWeights, index: int) -> None:
        self._config: HeadConfig = weights.checkpoint.config
        self._index = index
        linear = float_layer(weights.head.dtype, weights.head.device)

        def named(*names: str) -> list[str]:
            return [layer_name(index, name) for name in names]

        self._qkv = linear(weights.linear(*named(*(f"self_attn.{name}_proj" for name in "qkv"))))
        self._out = linear(weights.linear(*named("self_attn.o_proj")))
        self._gate_up = linear(weights.linear(*named("mlp.gate_proj", "mlp.up_proj")))
        self._down = linear(weights.linear(*named("mlp.down_proj")))
        self._before = weights.gain(*named("input_layernorm"))
        self._after = weights.gain(*named("post_attention_layernorm"))
        self._head_gains = [weights.gain(name) for name in named("self_attn.q_norm", "self_attn.k_norm")]
        self._scores = Scores(self._config.dim**-0.5, self._config.window)

    def weights(self) -> Iterable[Tensor]:
        yield from (gain for gain in (self._before, self._after, *self._head_gains) if gain is not None)
        for linear in (self._qkv, self._out, self._gate_up, self._down):
            yield from linear.weights()

    def normed(self, x: Tensor) -> Tensor:
        """What the attention of a layer that is not the first takes of the stream."""
        assert self._before is not None, "checked when it was read"
        return rms(x, self._before, self._config.eps)

    def __call__(self, x: Tensor, z: Tensor, packed: Packed, turn: tuple[Tensor, Tensor]) -> Tensor:
        """x [M, d]: the stream. z [M, ...]: what attention takes. turn: cos and sin of each row."""
        x = self._out.add(self._attend(z, packed, turn), x)
        assert self._after is not None, "checked when it was read"
        gate, up = self._gate_up(rms(x, self._after, self._config.eps)).chunk(2, -1)
        return self._down.add(F.silu(gate) * up, x)

    def _attend(self, z: Tensor, packed: Packed, turn: tuple[Tensor, Tensor]) -> Tensor:
        config = self._config
        q, k, v = (
            self._qkv(z).unflatten(-1, (-1, config.dim)).split((config.heads, config.kv_heads, config.kv_heads), 1)
        )
        turned = []
        for part, gain in zip((q, k), self._head_gains, strict=True):
            normed = part if gain is None else rms(part, gain, config.eps)
            turned.append(rotate(normed, *turn))
        q, k, v = (part.transpose(0, 1)[None] for part in (*turned, v))
        return attend_packed(packed, self._index, q, k, v, self._scores).reshape(len(z), -1)
