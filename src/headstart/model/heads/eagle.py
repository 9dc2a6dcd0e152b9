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
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders.attention import any_length
from headstart.model.decoders.grouped import GroupedEmbedding
from headstart.model.decoders.lean import TensorLayer
from headstart.model.decoders.linears import float_layer, joined, linear_of
from headstart.model.decoders.operations import rms, signed
from headstart.model.decoders.parts import owner_of, rotation
from headstart.model.heads.eagle_checkpoint import EAGLE1, SELECTOR, EagleCheckpoint, layer_name
from headstart.model.heads.shortlists import Selector
from headstart.model.memory import bytes_of
from headstart.model.packed import Packed, Segment
from headstart.model.recipes.recipe import Attention, Layer, Mlp, Norm, Rope
from headstart.model.recorded.graphs import Recorder, Rows
from headstart.model.rotation import rotary_of


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """What a head computes of the judged rows."""

    logits: Tensor
    """[R, draft V]."""
    states: Tensor
    """[R, d]: its own states, to draft on from, or for a selector."""
    rows: Tensor | None = None
    """[M, d]: those of all rows, where they were asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """A checkpoint complete with what it borrows of its target. embedding: [V, d], or the target's codes of it; head:
    [draft V, d]. All tensors are on one device and of one dtype."""

    checkpoint: EagleCheckpoint
    tensors: Mapping[str, Tensor]
    embedding: Tensor | GroupedEmbedding
    head: Tensor

    def linear(self, *names: str) -> nn.Linear:
        """The linear layer of that name, or several of the same input as one."""
        return joined([linear_of(self.tensors[f"{n}.weight"], self.tensors.get(f"{n}.bias")) for n in names])

    def gain(self, name: str) -> Tensor | None:
        return self.tensors.get(f"{name}.weight")

    def layer(self, index: int) -> Layer:
        """The recipe of a layer. What comes before its attention, it does not say: see `TensorHead`."""
        config = self.checkpoint.config
        if config.recipe is not None:
            return config.recipe

        def norm(name: str) -> Norm | None:
            return None if self.gain(layer_name(index, name)) is None else Norm(name, config.eps)

        attention = Attention(
            config.heads,
            config.kv_heads,
            config.dim,
            config.dim**-0.5,
            Rope(config.dim),
            window=config.window,
            q_norm=norm("self_attn.q_norm"),
            k_norm=norm("self_attn.k_norm"),
        )
        mlp = Mlp(config.intermediate, "silu")
        return Layer(attention, mlp, norm("input_layernorm"), norm("post_attention_layernorm"))

    def owner(self, index: int) -> Any:
        """What holds the weights of a layer, by the names of its recipe."""
        return owner_of(self.layer(index), lambda name: self.tensors.get(layer_name(index, name)))

    def selector(self) -> Selector | None:
        """Its selector, if it has one."""
        config = self.checkpoint.config
        if not config.selector_rank:
            return None
        names = ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
        before, after, projection = (self.tensors[f"{SELECTOR}.{name}"] for name in names)
        return Selector(before, after, projection, config.selector_top)

    def rotary(self) -> nn.Module:
        """The module that makes its rotation."""
        return rotary_of(self.checkpoint.config.rope)


def complete(
    checkpoint: EagleCheckpoint,
    *,
    embedding: Tensor | GroupedEmbedding,
    head: Tensor,
    dtype: torch.dtype,
    device: torch.device,
) -> HeadWeights:
    """The weights as they are run. embedding, head: the target's, which stand in where the checkpoint has none."""
    tensors = checkpoint.own(dtype, device)
    table = tensors.get("embed_tokens.weight", embedding)
    return HeadWeights(
        checkpoint,
        tensors,
        table.to(device, dtype).contiguous() if isinstance(table, Tensor) else table,
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
        kept = (config.kv_heads, config.dim, config.dim) if config.recipe is None else config.recipe.attention.kept
        self.shapes = {i: LayerShape(*kept) for i in range(config.layers)}
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
    def run(self, packed: Packed, given: Tensor, *, own: bool, every: bool = False) -> HeadOutput:
        """One forward over a packed batch, whose tokens are those after the states.

        given: [M, ...] a state for each row. The target's [M, layers read * target d], or with `own` those that this
        head left [M, d]. every: the states of all rows are wanted, of a head whose states are normed.
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

    def __init__(self, weights: HeadWeights, length: int, *, lender: Head | None = None) -> None:
        super().__init__(weights, length)
        embedding = weights.embedding
        self._embedding = embedding if isinstance(embedding, Tensor) else embedding.weight
        linear = float_layer(self.dtype, self.device)
        self._fuse = linear(weights.linear("fc"))
        self._head: Any = lender._head if isinstance(lender, TensorHead) else linear(linear_of(weights.head))
        self._before, self._state_gain = weights.gain("input_layernorm"), weights.gain("hidden_norm")
        self._embedding_gain = weights.gain("embedding_norm")
        self._final = weights.gain("norm")
        self._layers = [
            TensorLayer(weights.owner(i), weights.layer(i), i, linear, self.dtype) for i in range(self.config.layers)
        ]
        self._rope = weights.layer(0).attention.rope
        self._cos, self._sin = signed(*rotation(weights.rotary(), length), self.dtype, self.device)
        self._recorder = Recorder.on(self.device)

    def new_cache(self, slots: int) -> Slots:
        return KVCache(self.shapes, slots=slots, capacity=self.length, dtype=self.dtype, device=self.device)

    def weights(self) -> Iterable[Tensor]:
        yield from (*super().weights(), self._embedding, self._cos, self._sin)
        gains = (self._before, self._state_gain, self._embedding_gain, self._final)
        yield from (gain for gain in gains if gain is not None)
        yield from (*self._fuse.weights(), *self._head.weights())
        for layer in self._layers:
            yield from layer.weights()

    @torch.inference_mode()
    def run(self, packed: Packed, given: Tensor, *, own: bool, every: bool = False) -> HeadOutput:
        if self._recorder is None:
            return self._run(packed, given, own, every)

        def compute(rows: Packed, given: Tensor | None) -> Rows:
            assert given is not None, "a head is given states"
            found = self._run(rows, given, own, every)
            return Rows((found.logits, found.states), () if found.rows is None else (found.rows,))

        with any_length(self.device):
            found = self._recorder.run(packed, (own, every), compute, given)
        return HeadOutput(*found.judged, *found.every)

    def _run(self, packed: Packed, given: Tensor, own: bool, every: bool) -> HeadOutput:
        config = self.config
        embedded, given = F.embedding(packed.ids[0], self._embedding), given.to(self.dtype)
        z: Tensor | None
        if config.version == EAGLE1:
            x, z = self._joined(embedded, given), None
        else:
            x = given if own else self._fuse(self._features(given))
            assert self._before is not None, "checked when it was read"
            assert self._state_gain is not None, "checked when it was read"
            normed = rms(x, self._state_gain, config.eps)
            z = torch.cat((rms(embedded, self._before, config.eps), normed), -1)
            x = normed if config.norm_before_residual else x
        positions = packed.positions[0]
        turns = {} if self._rope is None else {self._rope: (self._cos[positions], self._sin[positions])}
        for i, layer in enumerate(self._layers):
            x = layer.run(x, turns, packed, z=None if i else z)
        rows = rms(x, self._final, config.eps) if every and self._final is not None else None
        x = x[packed.judged]
        normed = x if self._final is None else rms(x, self._final, config.eps)
        return HeadOutput(self._head(normed), normed if config.states_normed else x, rows)

    def _joined(self, embedded: Tensor, given: Tensor) -> Tensor:
        """The stream of a head whose layer is a plain one: what fuses embeddings [M, d] and states [M, d]."""
        if self._embedding_gain is not None:
            assert self._state_gain is not None, "checked when it was read"
            embedded = rms(embedded, self._embedding_gain, self.config.eps)
            given = rms(given, self._state_gain, self.config.eps)
        pair = (given, embedded) if self.config.state_first else (embedded, given)
        fused: Tensor = self._fuse(torch.cat(pair, -1))
        return fused
