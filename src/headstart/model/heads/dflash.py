"""The forward of a DFlash or DSpark head: a block of tokens is guessed at once, and the text is keys and values to it.

Of the text there are no rows: the target's states of a token, fused and normed, become a key and a value of every layer
at that token's position, by the layer's own matrices. So reading the text costs two small products a layer and no
attention. The block follows it: x0, the token still to be judged, and mask tokens at the positions that follow.
Its rows see the text before x0 and, unless a layer is causal, each other; they are scratch.

Every block is fed whole, since rows that see each other say something else in a shorter one than they were trained to.

Tensor operations on any device. Sources: DFlash (arXiv:2602.06036), DSpark (2607.05147).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders.attention import Scores, attend_packed
from headstart.model.decoders.linears import PreparedLinear, float_layer, joined, linear_of
from headstart.model.decoders.operations import rms, rotate, signed
from headstart.model.decoders.parts import rotation
from headstart.model.heads.dflash_config import DFlashConfig
from headstart.model.heads.markov import MarkovHead
from headstart.model.heads.stored_tensors import HeadCheckpoint
from headstart.model.packed import Packed, Segment
from headstart.model.rotation import rotary_of
from headstart.types import Draft


@dataclass(frozen=True, slots=True)
class Block:
    """What is to be guessed after one text.

    slot: of the cache, which holds the text before x0. token: x0. guesses: how many of the tokens after it are wanted;
    the block is fed whole in any case.
    """

    slot: int
    token: int
    guesses: int


class Blocks(Packed):
    """Whole blocks as a packed batch, for layers that are causal or for those whose rows see each other.

    The window of a layer begins so many tokens before the block, for all its rows alike.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        config: DFlashConfig,
        cache: Slots,
        dtype: torch.dtype,
        device: torch.device,
        *,
        causal: bool,
    ) -> None:
        masks = Draft.chain([config.mask_token_id] * (config.block - 1))
        segments = [Segment(block.slot, (block.token,), masks, judged=config.block) for block in blocks]
        super().__init__(segments, cache, dtype, device)
        starts = range(config.block - config.guesses, len(self.token_ids), config.block)
        self.judged_rows = [
            row for block, start in zip(blocks, starts, strict=True) for row in range(start, start + block.guesses)
        ]
        self._causal = causal

    def _build(self, index: int, groups: int, window: int | None) -> Tensor | None:
        start, n = self.starts[index], len(self.segments[index])
        first = 0 if window is None else max(0, start - window)
        if first == 0 and not self._causal:
            return None
        visible = torch.ones(n, start + n, dtype=torch.bool)
        visible[:, :first] = False
        if self._causal:
            visible[:, start:] = visible[:, start:].tril()
        mask = torch.zeros(n, start + n, dtype=self.dtype).masked_fill_(~visible, float("-inf"))
        return mask.repeat(groups, 1)[None, None].to(self.ids.device)


@dataclass(frozen=True, slots=True)
class Guesses:
    """What a head computes of its blocks.

    logits: [R, draft V], of the guesses wanted, in order. states: [R, d], those that they were made from.
    """

    logits: Tensor
    states: Tensor


class DFlashHead:
    """A head ready to run. It holds no state of any request: caches are passed in.

    Args:
        checkpoint: as read.
        embedding: [V, d] and output: [draft V, d], the target's, which stand in where the checkpoint has none.
        dtype, device: of the target.
        length: tokens of text and draft together, at most.

    length: positions it can be run at, whole blocks included. token_ids: [draft V], the target's; None if they are the
    same. markov: what corrects its guesses, if it has such a head.
    """

    def __init__(
        self,
        checkpoint: HeadCheckpoint[DFlashConfig],
        *,
        embedding: Tensor,
        output: Tensor,
        dtype: torch.dtype,
        device: torch.device,
        length: int,
    ) -> None:
        config = self.config = checkpoint.config
        self.length = length + config.block
        self.dtype, self.device = dtype, device
        self.token_ids = None if checkpoint.token_ids is None else checkpoint.token_ids.to(device)
        tensors = checkpoint.own(dtype, device)
        self._embedding = tensors.get("embed_tokens.weight", embedding).to(device, dtype)
        linear = float_layer(dtype, device)
        self._fuse = linear(linear_of(tensors["fc.weight"]))
        self._head = linear(linear_of(tensors.get("lm_head.weight", output).to(device, dtype)))
        self._state_gain, self._final = tensors["hidden_norm.weight"], tensors["norm.weight"]
        self._layers = [_Layer(config, i, tensors, linear) for i in range(config.layers)]
        self._cos, self._sin = signed(*rotation(rotary_of(config.rope), self.length), dtype, device)
        self.markov = MarkovHead.of(config.markov_kind, tensors) if config.markov_rank else None

    def new_cache(self, slots: int) -> KVCache:
        """An empty cache of this head's shape."""
        shape = LayerShape(self.config.kv_heads, self.config.dim, self.config.dim)
        shapes = dict.fromkeys(range(self.config.layers), shape)
        return KVCache(shapes, slots=slots, capacity=self.length, dtype=self.dtype, device=self.device)

    @property
    def weights_in_words(self) -> str:
        """What the weights are, for people."""
        return str(self.dtype).removeprefix("torch.")

    def weights(self) -> Iterable[Tensor]:
        """All tensors it holds; some may be the target's, or share their memory."""
        own = (self.token_ids, self._embedding, self._state_gain, self._final, self._cos, self._sin)
        yield from (tensor for tensor in own if tensor is not None)
        yield from (*self._fuse.weights(), *self._head.weights())
        for layer in self._layers:
            yield from layer.weights()
        if self.markov is not None:
            yield from self.markov.weights()

    @torch.inference_mode()
    def read(self, cache: Slots, texts: Sequence[tuple[int, Tensor]]) -> None:
        """Read on in some texts: keys and values from the target's states [n, layers read * target d] of the tokens
        that follow in each slot, and keep them."""
        assert isinstance(cache, KVCache), "made by `new_cache`"
        given = torch.cat([states for _, states in texts])
        context = rms(self._fuse(given.to(self.dtype)), self._state_gain, self.config.eps)
        spans, begin = [], 0
        for slot, states in texts:
            spans.append((slot, cache.lengths[slot], slice(begin, begin := begin + len(states))))
        positions = torch.cat([torch.arange(at, at + rows.stop - rows.start) for _, at, rows in spans]).to(self.device)
        turn = self._cos[positions], self._sin[positions]
        for i, layer in enumerate(self._layers):
            keys, values = (part.transpose(0, 1) for part in layer.keys_and_values(context, turn))
            for slot, at, rows in spans:
                cache.write(i, slot, at, keys[:, rows], values[:, rows])
        for slot, states in texts:
            cache.keep(slot, len(states))

    @torch.inference_mode()
    def guess(self, cache: Slots, blocks: Sequence[Block]) -> Guesses:
        """One forward over these blocks, behind the texts of their slots."""
        ways = {
            causal: Blocks(blocks, self.config, cache, self.dtype, self.device, causal=causal)
            for causal in set(self.config.causal)
        }
        packed = next(iter(ways.values()))
        x = F.embedding(packed.ids[0], self._embedding)
        turn = self._cos[packed.positions[0]], self._sin[packed.positions[0]]
        for layer, causal in zip(self._layers, self.config.causal, strict=True):
            x = layer(x, ways[causal], turn)
        states = rms(x[packed.judged], self._final, self.config.eps)
        return Guesses(self._head(states), states)


class _Layer:
    """One decoder layer, with Qwen3's norms of queries and keys."""

    def __init__(
        self, config: DFlashConfig, index: int, tensors: dict[str, Tensor], linear: type[PreparedLinear]
    ) -> None:
        self._config, self._index = config, index

        def made(*names: str) -> PreparedLinear:
            stored = [f"layers.{index}.{name}_proj" for name in names]
            return linear(joined([linear_of(tensors[f"{n}.weight"], tensors.get(f"{n}.bias")) for n in stored]))

        def gain(name: str) -> Tensor:
            return tensors[f"layers.{index}.{name}.weight"]

        self._queries = made("self_attn.q")
        self._pairs = made("self_attn.k", "self_attn.v")
        self._out = made("self_attn.o")
        self._gate_up = made("mlp.gate", "mlp.up")
        self._down = made("mlp.down")
        self._before, self._after = gain("input_layernorm"), gain("post_attention_layernorm")
        self._query_gain, self._key_gain = gain("self_attn.q_norm"), gain("self_attn.k_norm")
        self._scores = Scores(config.dim**-0.5, config.windows[index])

    def weights(self) -> Iterable[Tensor]:
        yield from (self._before, self._after, self._query_gain, self._key_gain)
        for linear in (self._queries, self._pairs, self._out, self._gate_up, self._down):
            yield from linear.weights()

    def keys_and_values(self, z: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """[M, kv_heads, dim] each, of rows z [M, d]."""
        keys, values = self._pairs(z).unflatten(-1, (-1, self._config.dim)).chunk(2, 1)
        return rotate(rms(keys, self._key_gain, self._config.eps), *turn), values

    def __call__(self, x: Tensor, packed: Blocks, turn: tuple[Tensor, Tensor]) -> Tensor:
        """x [M, d]: the stream. turn: cos and sin of each row."""
        z = rms(x, self._before, self._config.eps)
        queries = rms(self._queries(z).unflatten(-1, (-1, self._config.dim)), self._query_gain, self._config.eps)
        parts = (rotate(queries, *turn), *self.keys_and_values(z, turn))
        q, k, v = (part.transpose(0, 1)[None] for part in parts)
        attended = attend_packed(packed, self._index, q, (k, v), self._scores).reshape(len(x), -1)
        x = x + self._out(attended)
        gate, up = self._gate_up(rms(x, self._after, self._config.eps)).chunk(2, -1)
        y: Tensor = x + self._down(F.silu(gate) * up)
        return y
