"""A fused forward of a recipe on a CPU: one call of the row kernels for all layers.

The residual stream and all sums are float32; matrix products take float32, bf16 or int8 rows, and weights of these
kinds or codes of 4 to 8 bits in groups. Every row is computed by itself in a fixed order: a row's logits have the same
bits in any forward, whatever stands beside it. Greedy text with speculation is then the plain text bit for bit.
`LeanDecoder` and transformers' modules are the twins.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from headstart.base.errors import InvalidBatch
from headstart.model import int4, native
from headstart.model.cache import LayerShape, Slots
from headstart.model.decoders import latent, parts
from headstart.model.decoders.batches import TiledBatches
from headstart.model.decoders.grouped import GroupedEmbedding, GroupedLinear, fewest_bits
from headstart.model.decoders.linears import linear_of
from headstart.model.decoders.parts import part
from headstart.model.decoders.tiled import TiledCache
from headstart.model.memory import mapped_checkpoints
from headstart.model.native import structs
from headstart.model.native.weights import NativeWeights, kind_of, takes_codes
from headstart.model.packed import Forward, Packed
from headstart.model.planes import StateShape
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.mixers import ChannelRule, DeltaRule, Recurrent, ShortConv
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe, Rope, windows_of

if TYPE_CHECKING:
    from headstart.model.decoders.fused_experts import Laid
    from headstart.model.mapped import PackedFile
    from headstart.model.native.product_file import ProductFile


_HEAD = "head"
_IN_A_LAYER = "qkv", "out", "beside_out", "gate_up", "down"
"""Products of a layer that may lie in a file."""


def _name(index: int, of: str) -> str:
    return f"{index}.{of}"


class FusedDecoder:
    """Takes the weights out of a transformers model (whose linear layers are gone afterwards) and runs them."""

    name = "fused"
    width_invariant = True
    can_exit = True

    def __init__(self, model: Any, recipe: Recipe, length: int, kind: int, file: ProductFile | None = None) -> None:
        """kind: of the products, see `kind_of`. file: where some are laid out already."""
        self._whole: FusedDecoder | None = None
        self.experts_touched = 0 if recipe.experts else None
        bits = 8 if kind == native.INT8 else fewest_bits(model)
        self.quantize = None if bits is None else f"int{bits}"
        self._dtype, self._recipe, self._length = model.dtype, recipe, length
        self.shapes: Mapping[int, LayerShape] = parts.shapes(recipe)
        self.states: Mapping[int, StateShape] = parts.states(recipe)
        self._weights = weights = NativeWeights(kind, file)
        self._windows = windows_of(recipe.layers)
        owners, angles = part(model, recipe.stack), partial(parts.angles, model, recipe, length=length)
        laid = None
        if file is not None and recipe.experts:
            from headstart.model.mapped import products_of  # most models have no experts

            laid = partial(products_of, file, recipe)
        files = mapped_checkpoints()
        # the head before the layers: the largest matrix, and for a moment in memory twice
        head = weights.named(_HEAD, parts.shape_of(model, [recipe.head]), lambda: part(model, recipe.head))
        embedding = part(model, recipe.embedding)
        tied = isinstance(embedding, GroupedEmbedding) and getattr(model.lm_head, "held", None) is embedding.held
        parts.release_linears(model, [recipe.head], files)
        self._layers = FusedLayers(owners, recipe.layers, weights, length, angles, laid, files).structs
        places = None if recipe.places is None else part(model, recipe.places).weight[recipe.places_from :]
        if places is not None:
            self._length = min(length, len(places))
        if tied and isinstance(embedding, GroupedEmbedding):
            embedding.laid_out = head, weights
        numbers, codes = (None, head) if tied else lookup(embedding, weights)
        self._model = structs.Model(
            layers=self._layers,
            layer_count=len(recipe.layers),
            width=recipe.width,
            embedding=numbers,
            places=None if places is None else weights.pointer(places.float()),
            embedding_norm=norm_struct(model, recipe.embedding_norm, weights),
            final_norm=norm_struct(model, recipe.final_norm, weights),
            head=head,
            table=codes,
            inputs=_token_inputs(model, recipe, weights),
            embedding_factor=parts.embedding_factor(recipe, model.dtype),
            logit_factor=recipe.logit_factor,
            logit_softcap=recipe.logit_softcap or 0.0,
            bf16=model.dtype == torch.bfloat16,
        )
        self._batches = TiledBatches(
            self._windows,
            shapes=self.shapes,
            dtype=model.dtype,
            vocabulary=embedding.num_embeddings,
            positions=self._length,
            states=self.states,
        )
        parts.release_linears(model, [recipe.inputs.projection] if recipe.inputs else [], files)

    @classmethod
    def build(
        cls,
        model: Any,
        shapes: Mapping[int, LayerShape],  # noqa: ARG003
        *,
        length: int,
        quantize: str | None,
        packed: PackedFile | None = None,
    ) -> Self | None:
        recipe = parts.find_recipe_for(model)
        if recipe is None or not_run(recipe):
            return None
        coded = fewest_bits(model) is not None  # its matrices are rounded already
        kind = kind_of(model.dtype, model.device, recipe.widths, None if coded else quantize)
        if coded and not takes_codes(model):
            return None
        if kind is None:
            return None
        return cls(model, recipe, length, kind, None if packed is None else packed.file(model, recipe, kind))

    def new_cache(self, slots: int, capacity: int, dtype: torch.dtype | None = None) -> Slots:
        dtype = self._dtype if dtype is None else dtype
        return TiledCache(
            self.shapes, slots=slots, capacity=capacity, dtype=dtype, computed=self._dtype, states=self.states
        )

    def run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        model = self._model
        if layers is not None:
            model = structs.Model.from_buffer_copy(model)
            model.layer_count = layers
        if not 0 < model.layer_count <= len(self._layers) or (
            taps and not 0 <= min(taps) <= max(taps) <= model.layer_count
        ):
            raise InvalidBatch(
                f"{model.layer_count} layers with taps {taps} of {len(self._layers)}", hint="ask for layers it has"
            )
        rows, states = sum(map(len, packed.segments)), None
        if taps:
            states = torch.empty(len(taps), rows, model.width)  # one tensor for all: a step has little time for more
        batch = self._batches.take(packed, model)
        batch.struct.taps = None
        if states is not None:
            pointers = (ctypes.c_void_p * (model.layer_count + 1))()
            for number, layer in enumerate(taps):
                pointers[layer] = states.data_ptr() + 4 * number * rows * model.width
            batch.struct.taps = ctypes.addressof(pointers)
        logits, touched = self._batches.run(batch, model)
        if self.experts_touched is not None:
            self.experts_touched = touched
        return Forward(logits, {} if states is None else dict(zip(taps, states.to(self._dtype).unbind(), strict=True)))

    def first_layers(self, count: int, gain: Tensor, output: Tensor, quantize: str | None) -> FusedDecoder:
        made = copy.copy(self)  # it shares the layers, and keeps alive what they point to
        made._whole, made._batches = self, self._batches.again()
        rounded = quantize in ("int8", "auto") and native.kernels().supported(native.INT8)
        made._weights = weights = NativeWeights(native.INT8 if rounded else self._weights.kind)
        model = made._model = structs.Model.from_buffer_copy(self._model)
        model.layer_count, model.logit_factor, model.logit_softcap = count, 1.0, 0.0
        model.final_norm = structs.Norm(weights.gain(gain), None, self._model.final_norm.eps, structs.RMS)
        model.head = weights.product(linear_of(output))
        return made

    def weights(self) -> Iterable[Tensor]:
        return self._weights.tensors

    def laid_out(self) -> list[tuple[str, structs.Product]]:
        """The products that a file may hold for the next start, by their names in it."""
        products = ((_name(i, of), getattr(layer, of)) for i, layer in enumerate(self._layers) for of in _IN_A_LAYER)
        return [*((name, each) for name, each in products if each.weights), (_HEAD, self._model.head)]


def _plain(owner: Any, name: str) -> Any:
    return parts.plain(part(owner, name))


def not_run(recipe: Recipe) -> str:
    """What of a recipe the row kernels do not run, whatever its widths are; empty for nothing."""
    if any(mixer.taps > structs.MOST_TAPS for mixer in recipe.recurrent.values()):
        return f"convolutions of more than {structs.MOST_TAPS} inputs"
    return ""


def norm_struct(owner: Any, norm: Norm | None, weights: NativeWeights, gain: Tensor | None = None) -> structs.Norm:
    """A norm as the kernels read it. gain: in place of the one that the module of its name holds."""
    if norm is None:
        return structs.Norm()
    gain = parts.gain_of(owner, norm) if gain is None else gain
    bias = parts.bias_of(owner, norm)
    kind = structs.RMS if norm.kind == "rms" else structs.LAYER
    return structs.Norm(weights.gain(gain), weights.gain(bias), norm.eps, kind)


def lookup(embedding: Any, weights: NativeWeights) -> tuple[int | None, structs.Product]:
    """An embedding as the kernels look tokens up in it: the address of its own numbers, or its codes, which are laid
    out once for all that look up."""
    if isinstance(embedding, GroupedEmbedding):
        if embedding.laid_out is None:
            embedding.laid_out = weights.product(GroupedLinear(embedding.held)), weights
        return None, embedding.laid_out[0]
    return weights.pointer(embedding if isinstance(embedding, Tensor) else embedding.weight), structs.Product()


def _token_inputs(model: Any, recipe: Recipe, weights: NativeWeights) -> structs.TokenInputs:
    inputs = recipe.inputs
    if inputs is None:
        return structs.TokenInputs()
    numbers, codes = lookup(part(model, inputs.table), weights)
    return structs.TokenInputs(
        table=numbers,
        codes=codes,
        projection=weights.product(part(model, inputs.projection)),
        norm=norm_struct(model, inputs.norm, weights),
        width=inputs.width,
        factor=parts.factor(inputs.factor, model.dtype, rounded=inputs.factor_rounded),
        projection_factor=inputs.projection_factor,
        sum_factor=inputs.sum_factor,
    )


class FusedLayers:
    """Layers as the kernels read them; the linear layers that held their weights are gone afterwards.

    owners: what holds the weights of each layer, by the names of its recipe. length: positions. angles: cosine and sine
    [length, rotary / 2] of a rotation. laid: gives the products of a layer's experts where they are laid out already.
    files: where checkpoints are mapped, whose pages are given back as they are copied.
    """

    def __init__(
        self,
        owners: Iterable[Any],
        layers: Sequence[Layer],
        weights: NativeWeights,
        length: int,
        angles: Callable[[Rope], tuple[Tensor, Tensor]],
        laid: Callable[[int], Laid] | None = None,
        files: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._laid = laid
        self._weights, self._length, self._make_angles = weights, length, angles
        self._angles: dict[Rope, tuple[int, int]] = {}
        self._windows = windows_of(layers)
        self.structs = (structs.Layer * len(layers))()
        for index, (owner, layer) in enumerate(zip(owners, layers, strict=True)):
            self.structs[index] = self._layer(owner, layer, index)
            parts.release(owner, layer, files)

    def _angles_of(self, rope: Rope | None) -> tuple[int | None, int | None]:
        if rope is None:
            return None, None
        if rope not in self._angles:
            cos, sin = self._make_angles(rope)
            self._angles[rope] = self._weights.pointer(cos), self._weights.pointer(sin)
        return self._angles[rope]

    def _layer(self, owner: Any, layer: Layer, index: int) -> structs.Layer:
        weights, mlp = self._weights, None if layer.experts else layer.dense
        inputs: list[Callable[[], Any]] = []

        def product(of: str, names: Sequence[str], linear: Callable[[], Any]) -> structs.Product:
            return weights.named(_name(index, of), parts.shape_of(owner, names), linear)

        def norm(of: Norm | None) -> structs.Norm:
            return norm_struct(owner, of, weights)

        made = structs.Layer(
            attention_in=norm(layer.attention_in),
            attention_out=norm(layer.attention_out),
            mlp_in=norm(layer.mlp_in),
            mlp_out=norm(layer.mlp_out),
            mixer_factor=layer.residual_factor * (layer.mixer.factor if layer.mixer else 1.0),
            beside_factor=layer.residual_factor * (layer.beside.factor if layer.beside else 1.0),
            mlp_factor=layer.residual_factor * (layer.feed_forward.factor if layer.feed_forward else 1.0),
            gate_factor=mlp.gate_factor if mlp else 1.0,
            layer_factor=1.0 if layer.factor is None else float(part(owner, layer.factor)),
            parallel=layer.parallel,
        )
        if (attention := layer.attends) is not None:
            self._attend(made, owner, attention, index)
            inputs.append(partial(parts.queries_keys_values, owner, attention))
        if (recurrence := layer.recurs) is not None:
            made.mixer = mixer_struct(owner, recurrence, weights)
            made.mixer_from = 0 if attention is None else attention.outputs
            if isinstance(recurrence, ChannelRule):
                made.mixer_decays, made.mixer_gate = map(weights.product, parts.inner(owner, recurrence))
                made.mixer_decays.results = made.mixer_gate.results = recurrence.width + recurrence.gates
            inputs.append(partial(parts.mixer_inputs, owner, recurrence))
        if inputs:
            names = [name for mixer in layer.mixers for name in mixer.inputs]
            made.qkv = product("qkv", names, lambda: parts.side_by_side([each() for each in inputs]))
        for field, each in zip(("out", "beside_out"), layer.mixers, strict=False):
            setattr(made, field, product(field, [each.out], partial(_plain, owner, each.out)))
        if mlp is not None:
            made.gate_up = product("gate_up", mlp.gate_up, partial(parts.gate_up, owner, mlp))
            made.down = product("down", [mlp.down], partial(_plain, owner, mlp.down))
            made.activation, made.gated = structs.ACTIVATIONS.index(mlp.activation), mlp.gated
            if mlp.numbers is not None:
                made.activation_numbers = weights.pointer(parts.xielu_numbers(part(owner, mlp.numbers)))
        if layer.experts is not None:
            from headstart.model.decoders.fused_experts import experts_struct  # most models have none

            laid = None if self._laid is None else self._laid(index)
            made.experts = experts_struct(owner, layer.experts, weights, norm, laid)
        if layer.input is not None:
            made.input_gate = weights.product(part(owner, layer.input.gate))
            made.input_out = weights.product(part(owner, layer.input.out))
            made.input_norm = norm(layer.input.norm)
        return made

    def _attend(self, made: structs.Layer, owner: Any, attention: Attention, index: int) -> None:
        """Fill in what a layer that attends has."""
        weights = self._weights

        def head_norm(of: Norm | None) -> structs.Norm:
            return norm_struct(owner, of, weights, None if of is None else parts.head_gain(owner, of, attention))

        made.q_norm, made.k_norm = head_norm(attention.q_norm), head_norm(attention.k_norm)
        made.v_norm = norm_struct(owner, attention.v_norm, weights)
        made.heads, made.kv_heads, made.dim = attention.heads, attention.kv_heads, attention.dim
        made.rotary = attention.rope.rotary if attention.rope else 0
        made.keys_of = index if attention.keys_of is None else attention.keys_of
        made.window = self._windows.index(attention.window)
        made.scaling, made.softcap = attention.scaling, attention.softcap or 0.0
        made.norm_over_all = attention.norm_over == "all"
        made.gain_by_head = attention.norm_over == "each"
        made.norm_after_rotation = attention.norm_after_rope
        made.value_is_key = attention.value_is_key
        made.attention_gated = attention.gated
        made.cosine, made.sine = self._angles_of(attention.rope)
        if (factors := parts.query_factors(attention, self._length)) is not None:
            made.query_factors = weights.pointer(factors)
        if isinstance(attention, Latent):
            made.latent = latent_struct(owner, attention, weights)
        if attention.sinks is not None:
            made.sinks = weights.pointer(part(owner, attention.sinks).float())


def latent_struct(owner: Any, of: Latent, weights: NativeWeights) -> structs.Latent:
    """Latent attention as the kernels read it. Its matrices of each head are codes of 8 bits where it has codes."""
    made = structs.Latent(rank=of.rank, nope=of.nope, value_dim=of.value_dim)
    coded = isinstance(part(owner, of.kv_b), GroupedLinear)
    if of.q_rank is not None:
        made.query = weights.product(latent.queries(owner, of))
    for name, matrices in zip(("keys", "values"), latent.keys_values(owner, of), strict=True):
        linears = (GroupedLinear(int4.eight_bits(each)) if coded else linear_of(each) for each in matrices)
        products = weights.products(linears, of.heads)
        for each in products:
            each.results = of.heads * (of.dim if name == "keys" else of.value_dim)
        setattr(made, name, products)
    return made


def mixer_struct(owner: Any, mixer: Recurrent, weights: NativeWeights) -> structs.Mixer:
    """A recurrent layer as the kernels read it, but for its products."""
    taps, bias = parts.convolution(owner, mixer)
    made = structs.Mixer(
        taps=weights.pointer(taps),
        conv_bias=None if bias is None else weights.pointer(bias),
        channels=mixer.channels,
        gates=mixer.gates,
        heads=1,
        groups=1,
        value_dim=mixer.channels,
        kind=structs.SHORT_CONV,
        gate_factor=1.0,
        step_factor=1.0,
    )
    if isinstance(mixer, ShortConv):
        return made
    if isinstance(mixer, DeltaRule):
        made.kind = structs.CHANNEL_RULE if isinstance(mixer, ChannelRule) else structs.DELTA_RULE
        made.groups = mixer.key_heads
        made.key_dim, made.value_dim, made.written = mixer.key_dim, mixer.value_dim, mixer.beta_factor
    else:
        made.kind, made.groups = structs.MAMBA2, mixer.groups
        made.key_dim, made.value_dim = mixer.state, mixer.dim
        made.skip = weights.pointer(parts.of_heads(owner, mixer.skip, mixer.heads))
        made.gate_factor, made.step_factor = mixer.factors[0], mixer.factors[-1]
        made.norm_first = mixer.norm_first
    made.heads = mixer.heads
    made.decay = weights.pointer(-parts.of_heads(owner, mixer.decay, mixer.heads).exp())
    made.step_bias = weights.pointer(parts.of_heads(owner, mixer.bias, mixer.steps))
    if mixer.norm is not None:
        made.norm = structs.Norm(weights.gain(parts.recurrent_gain(owner, mixer)), None, mixer.norm.eps, structs.RMS)
    return made
