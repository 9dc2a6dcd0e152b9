"""The forward of Gemma 4's assistant: layers that draft on the target's own keys and values, with none of their own.

A row is a token and a state [target d]: the embedding of the token, as the target scales it, and beside it the
target's state of the token before, behind its final norm. `pre_projection` joins the two, a few layers and a norm
follow, and the output matrix makes logits of the result. `post_projection` makes a state of it that stands in for the
target's in the next step. All rows of a round turn by the position of the last token of the text and see the same keys,
those of the text before it: what was drafted is known by the state alone. So rows of one round need not see each other,
and a tree costs no more than a chain.

With ordered embeddings the output matrix is read in part: centroids choose blocks of tokens, and all other tokens have
probability 0.

Source: transformers 5.23, `Gemma4AssistantForCausalLM` and `SinglePositionMultiTokenCandidateGenerator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.lazy import transformers
from headstart.model.cache import Slots
from headstart.model.decoders.lean import TensorLayer, TensorNorm
from headstart.model.decoders.linears import float_layer, linear_of
from headstart.model.decoders.operations import signed
from headstart.model.decoders.parts import angles, owner_of, tree
from headstart.model.heads.eagle import HeadOutput
from headstart.model.heads.gemma4_assistant_checkpoint import AssistantCheckpoint
from headstart.model.packed import Packed, Segment
from headstart.model.recipes.recipe import Rope


class TextSeen:
    """The keys and values of the target's cache, as the rows of one round see them. They are read once a round."""

    def __init__(self, cache: Slots, dtype: torch.dtype) -> None:
        self.cache, self._dtype = cache, dtype
        self._read: dict[tuple[int, int, int | None], tuple[Tensor, Tensor]] = {}

    def stored(self, layer: int, slot: int, window: int | None) -> tuple[Tensor, Tensor]:
        """[1, heads, n, dim] of a slot's text. With a window, of its last tokens: those at most `window` before the
        last one, as transformers counts here, which is two more than the target's own row would see of them."""
        key = layer, slot, window
        if key not in self._read:
            found = self.cache.read(layer, slot, self.cache.lengths[slot])
            first = 0 if window is None else max(0, self.cache.lengths[slot] - window - 1)
            keys, values = (part[:, :, first:].to(self._dtype) for part in found)
            self._read[key] = keys, values
        return self._read[key]


class _Rows(Packed):
    """Rows without keys of their own: each is a segment, and sees all that `TextSeen` has of its slot."""

    def __init__(self, segments: Sequence[Segment], seen: TextSeen, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(segments, seen.cache, dtype, device)
        self._seen = seen

    def stored(self, index: int, layer: int, window: int | None) -> tuple[Tensor, Tensor]:
        return self._seen.stored(layer, self.segments[index].slot, window)

    def mask(self, index: int, groups: int, window: int | None) -> None:  # noqa: ARG002 -- nothing is hidden
        return None


class AssistantHead:
    """An assistant that can be stepped. It holds no state of any request.

    embedding: the target's [V, target d]; factor: what its rows are multiplied by. length: positions it can be run at.
    """

    def __init__(self, checkpoint: AssistantCheckpoint, embedding: Tensor, factor: float, length: int) -> None:
        self.dtype, self.device = embedding.dtype, embedding.device
        self.recipe = recipe = checkpoint.recipe
        held = {
            name: tensor.to(self.device, self.dtype) if tensor.is_floating_point() else tensor.to(self.device)
            for name, tensor in checkpoint.tensors.items()
        }
        linear = float_layer(self.dtype, self.device)
        self._embedding, self._factor = embedding, factor
        self._before = linear(linear_of(held["pre_projection.weight"]))
        self._after = linear(linear_of(held["post_projection.weight"]))
        rotary = transformers.models.gemma4.modeling_gemma4.Gemma4TextRotaryEmbedding(checkpoint.text).to(self.device)
        model = tree({"model.norm.weight": held["model.norm.weight"], "model.rotary_emb": rotary})
        self._norm = TensorNorm(model, recipe.final_norm, self.dtype)
        self._layers = []
        for index, layer in enumerate(recipe.layers):
            owner = owner_of(layer, lambda name, at=f"model.layers.{index}.": held.get(at + name))  # type: ignore[misc]
            self._layers.append(TensorLayer(owner, layer, index, linear, self.dtype))
        self._head = _Blocks(held, checkpoint.top) if checkpoint.top else linear(linear_of(held["lm_head.weight"]))
        self._turns: dict[Rope, tuple[Tensor, Tensor]] = {}
        for rope in {attention.rope for attention in recipe.attentions if attention.rope is not None}:
            tables = angles(model, recipe, rope, length, self.device)
            self._turns[rope] = signed(*tables, self.dtype, self.device)

    @torch.inference_mode()
    def run(self, rows: Sequence[tuple[int, int]], states: Tensor, seen: TextSeen) -> HeadOutput:
        """One step. rows: slot of the target's cache, which holds the text before the last token, and token. states
        [M, target d]: the target's of the token before it, or of draft tokens what this left of the one before."""
        packed = _Rows([Segment(slot, (token,)) for slot, token in rows], seen, self.dtype, self.device)
        embedded = F.embedding(packed.ids[0], self._embedding) * self._factor
        x = self._before(torch.cat((embedded, states.to(self.dtype)), -1))
        positions = packed.positions[0]
        turns = {rope: (cos[positions], sin[positions]) for rope, (cos, sin) in self._turns.items()}
        for layer in self._layers:
            x = layer.run(x, turns, packed)
        x = self._norm(x)
        return HeadOutput(self._head(x), self._after(x))

    def weights(self) -> Iterable[Tensor]:
        """All tensors it holds; the embedding is the target's."""
        yield self._embedding
        for part in (self._before, self._after, self._norm, self._head, *self._layers):
            yield from part.weights()
        for turn in self._turns.values():
            yield from turn

    @property
    def weights_in_words(self) -> str:
        """What the weights are, for people."""
        return str(self.dtype).removeprefix("torch.")


class _Blocks:
    """An output matrix in blocks of tokens, each known by a centroid, of which the `top` likeliest are read."""

    def __init__(self, held: dict[str, Tensor], top: int) -> None:
        self._centroids = held["masked_embedding.centroids.weight"]
        count = len(self._centroids)
        order, output = held["masked_embedding.token_ordering"].long(), held["lm_head.weight"]
        self._tokens = order.view(count, -1)
        self._blocks = output[order].view(count, -1, output.shape[-1])
        self._top = top

    def __call__(self, x: Tensor) -> Tensor:
        """x [M, d]; returns [M, V], with -inf for tokens that were not looked at."""
        chosen = F.linear(x, self._centroids).topk(self._top).indices
        logits = torch.einsum("mbtd,md->mbt", self._blocks[chosen], x).flatten(1)
        whole = x.new_full((len(x), self._tokens.numel()), float("-inf"))
        return whole.scatter_(1, self._tokens[chosen].flatten(1), logits)

    def weights(self) -> Iterable[Tensor]:
        return (self._centroids, self._tokens, self._blocks)
