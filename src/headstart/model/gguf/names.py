"""What a file calls the weights of a model: by their roles in its recipe, which transformers names by family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.model.gguf.architectures import ARCHITECTURES, Architecture
from headstart.model.gguf.description import DRAFTING
from headstart.model.gguf.files import GgufFile
from headstart.model.recipes import recipe_of
from headstart.model.recipes.experts import Experts
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.mixers import ChannelRule, DeltaRule, Mamba2, Recurrent, ShortConv
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe

Order = NDArray[np.int64]
Named = dict[str, tuple[str, ...]]
"""Names of tensors, by the module or the parameter that they hold."""


class Names:
    """The names of a file's tensors, by those of the parameters of transformers' model."""

    def __init__(
        self, recipe: Recipe, architecture: Architecture, *, joined: bool = False, apart: bool = False
    ) -> None:
        """joined: whether gate and up of experts are one tensor. apart: whether what makes keys and values of a latent
        are two."""
        self.recipe, self.architecture, self._apart = recipe, architecture, apart
        self._layers = {layer: _of_layer(layer, architecture, joined=joined, apart=apart) for _, layer in recipe.kinds}
        outer = {recipe.embedding: "token_embd", recipe.head: "output"}
        if recipe.places is not None:
            outer[recipe.places] = "position_embd"
        if recipe.final_norm is not None and recipe.final_norm.name is not None:
            outer[recipe.final_norm.name] = architecture.names.get("output_norm", "output_norm")
        if (inputs := recipe.inputs) is not None:
            outer |= {inputs.table: "per_layer_token_embd", inputs.projection: "per_layer_model_proj"}
            if inputs.norm.name is not None:
                outer[inputs.norm.name] = "per_layer_proj_norm"
        self._outer = outer
        self._prefix = f"{recipe.stack}."

    @classmethod
    def of(cls, file: GgufFile, config: Any) -> Names:
        """Those of a file, for the model with this config.

        Raises:
            UnsupportedModel: the config has no recipe.
        """
        recipe, architecture = recipe_of(config), ARCHITECTURES[file.metadata.text("general.architecture")]
        blocks = range(len(recipe.layers))
        return cls(recipe, architecture, joined=joins_experts(file, blocks), apart=splits_latents(file, blocks))

    @property
    def alike(self) -> bool:
        """Whether all layers have the same tensors, of the same shapes."""
        named = list(self._layers.values())
        return not (self.architecture.layered or self.recipe.recurrent) and all(each == named[0] for each in named)

    def tensors(self, parameter: str) -> tuple[str, ...]:
        """What the file calls a parameter: several where it keeps apart what transformers has one below the other, none
        for one that files have no tensor for."""
        index, inner = self._place(parameter)
        module, _, kind = inner.rpartition(".")
        if index is None:
            return (f"{self._outer[module]}.{kind}",)
        layer = self.recipe.layers[index]
        if layer.dense is not None and module == layer.dense.numbers:
            return ()
        names = self._layers[layer]
        found = names[inner] if inner in names else tuple(f"{each}.{kind}" for each in names[module])
        return tuple(f"blk.{index}.{each}" for each in found)

    def shapes(self, parameter: str, shape: Sequence[int]) -> list[tuple[int, ...]]:
        """Of the tensors of a parameter of this shape; see `same_shape`."""
        recurrence, inner = self._recurrence(parameter)
        if isinstance(recurrence, Mamba2) and recurrence.norm and inner == f"{recurrence.norm.name}.weight":
            return [(recurrence.groups, recurrence.width // recurrence.groups)]
        tensors = self.tensors(parameter)
        if (experts := self.experts_of(parameter)) is not None:
            count, *each = shape
            outputs, *inputs = reversed(each) if experts.transposed else each
            return [(count, outputs // len(tensors), *inputs) for _ in tensors]
        if (latent := self.by_head(parameter)) is not None:
            return [(latent.heads, latent.rank, latent.nope), (latent.heads, latent.value_dim, latent.rank)]
        if any(name.endswith(".ssm_ba.weight") for name in tensors):
            return [(2 * shape[0], *shape[1:])]
        if self.transposed(parameter):
            shape = shape[::-1]
        return [(shape[0] // len(tensors), *shape[1:]) for _ in tensors]

    def matrices(self) -> Iterator[tuple[str, str]]:
        """The modules that hold matrices, each with what the file calls its weight, or a part of it."""
        inputs = self.recipe.inputs
        modules = {self.recipe.embedding, self.recipe.head} | (set() if inputs is None else {inputs.table})
        for module in (*modules, *(() if inputs is None else (inputs.projection,)), *self._linears()):
            for stored in self.tensors(f"{module}.weight"):
                yield module, stored

    def of_experts(self) -> Iterator[tuple[Experts, tuple[str, ...]]]:
        """The tensors that hold the matrices of experts, by layer."""
        for index, layer in enumerate(self.recipe.layers):
            if layer.experts is not None:
                for name in (*layer.experts.gate_up, layer.experts.down):
                    yield layer.experts, self.tensors(f"{self._prefix}{index}.{name}")

    def experts_of(self, parameter: str) -> Experts | None:
        """The experts whose weights a parameter holds; None of others."""
        index, inner = self._place(parameter)
        experts = None if index is None else self.recipe.layers[index].experts
        return experts if experts is not None and inner in experts.parameters else None

    def by_head(self, parameter: str) -> Latent | None:
        """The attention whose keys and values are made of latents by this matrix, where the file holds it as two
        tensors: for each head what makes keys, by latents, and what makes values."""
        index, inner = self._place(parameter)
        attention = None if index is None else self.recipe.layers[index].attends
        latent = attention if isinstance(attention, Latent) and self._apart else None
        return latent if latent is not None and inner == f"{latent.kv_b}.weight" else None

    def chooses(self, module: str) -> bool:
        """Whether a choice of experts, or the weight of one, hangs on this matrix, for which rows are not rounded."""
        index, inner = self._place(module)
        experts = None if index is None else self.recipe.layers[index].experts
        return experts is not None and inner in experts.floats

    def together(self, module: str) -> list[str]:
        """The file's names of the matrices that are joined with this one, itself among them."""
        joined = self.recipe.joined_with(module)
        return [stored for each in joined for stored in self.tensors(f"{each}.weight")]

    def added(self, parameter: str) -> float:
        """What files add to a norm's gain: what the model adds to it when it runs."""
        index, inner = self._place(parameter)
        module, _, kind = inner.rpartition(".")
        norms = [self.recipe.final_norm] if index is None else [norm for _, norm in _norms(self.recipe.layers[index])]
        found = [norm.offset for norm in norms if norm is not None and norm.name == module]
        return found[0] if found and kind == "weight" else 0.0

    def rows(self, parameter: str) -> Order | None:
        """Which row of the file each row of a parameter is; None where they lie alike.

        Rows of a head that turn together may lie beside each other, where transformers has them half a head apart. And
        value heads of the delta rule come round by round, one of each key head, where transformers has those of a key
        head together.
        """
        index, inner = self._place(parameter)
        if index is None:
            return None
        layer, module = self.recipe.layers[index], inner.rpartition(".")[0]
        if isinstance(layer.recurs, DeltaRule) and self.architecture.by_key_head:
            return _rows_by_key_head(layer.recurs, module)
        if isinstance(layer.recurs, DeltaRule):
            return _rows_of_heads(layer.recurs, inner, module)
        mixer = layer.attends
        if mixer is None:
            return None
        if module == mixer.qkv[0] and mixer.order != "parts":
            return _rows_of_joined(mixer)
        if not self.architecture.neighbours or len(mixer.qkv) == 1 or (mixer.rope is not None and mixer.rope.pairs):
            return None
        heads = dict(zip(mixer.qkv, (mixer.heads, mixer.kv_heads), strict=False)).get(module, 0)
        return np.arange(heads * mixer.dim).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1) if heads else None

    def transposed(self, parameter: str) -> bool:
        """Whether transformers has a matrix by inputs, where the file has it by outputs."""
        index, inner = self._place(parameter)
        if index is None or not self.architecture.transposed:
            return False
        module, _, kind = inner.rpartition(".")
        return kind == "weight" and module in self.recipe.layers[index].linears

    def columns(self, parameter: str) -> Order | None:
        """Which input of the file each input of a matrix is; None where they lie alike. See `rows`."""
        recurrence, inner = self._recurrence(parameter)
        if (
            not isinstance(recurrence, DeltaRule)
            or inner != f"{recurrence.out}.weight"
            or self.architecture.by_key_head
        ):
            return None
        return _by_key_head(recurrence, recurrence.value_dim)

    def is_decay(self, parameter: str) -> bool:
        """Whether files hold -exp of this parameter."""
        recurrence, inner = self._recurrence(parameter)
        return isinstance(recurrence, DeltaRule | Mamba2) and inner == recurrence.decay

    def unused(self, file: GgufFile) -> set[str]:
        """Tensors that files may hold and no model reads: keys and values of layers that attend to those of another,
        which checkpoints of Gemma 4 have, and heads that draft."""
        layers = len(self.recipe.layers)
        attentions = ((index, layer.attends) for index, layer in enumerate(self.recipe.layers))
        shared = [index for index, each in attentions if each is not None and each.keys_of is not None]
        found = {f"blk.{index}.{name}.weight" for index in shared for name in ("attn_k", "attn_v", "attn_k_norm")}
        architecture = file.metadata.text("general.architecture")
        drafting = range(layers, layers + file.metadata.whole(f"{architecture}.{DRAFTING}", 0))
        endings = ("weight", "bias") if self.architecture.experts else ("weight",)
        return found | {
            f"blk.{index}.{name}.{ending}"
            for index in drafting
            for name in self.architecture.drafting
            for ending in endings
        }

    def may_be_missing(self, parameter: str) -> bool:
        """Whether a file may leave this out, which is zero then: the bias of an attention's output."""
        index, inner = self._place(parameter)
        attention = None if index is None else self.recipe.layers[index].attends
        return attention is not None and inner == f"{attention.out}.bias"

    def _linears(self) -> Iterator[str]:
        for index, layer in enumerate(self.recipe.layers):
            yield from (f"{self._prefix}{index}.{name}" for name in layer.linears)

    def _recurrence(self, parameter: str) -> tuple[Recurrent | None, str]:
        """The recurrence of a parameter's layer, if there is one, and its name below the layer."""
        index, inner = self._place(parameter)
        return None if index is None else self.recipe.layers[index].recurs, inner

    def _place(self, parameter: str) -> tuple[int | None, str]:
        """The number of a layer and a name below it; None and a name below the model outside of layers."""
        if not parameter.startswith(self._prefix):
            return None, parameter
        index, _, inner = parameter.removeprefix(self._prefix).partition(".")
        return int(index), inner


def joins_experts(file: GgufFile, blocks: Iterable[int]) -> bool:
    """Whether gate and up of experts are one tensor in any of these blocks of a file."""
    return any(f"blk.{block}.ffn_gate_up_exps.weight" in file.tensors for block in blocks)


def splits_latents(file: GgufFile, blocks: Iterable[int]) -> bool:
    """Whether what makes keys and values of a latent is two tensors in any of these blocks of a file."""
    return any(f"blk.{block}.attn_k_b.weight" in file.tensors for block in blocks)


def same_shape(found: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether shapes are the same but for axes of one, which files drop or add."""
    return [n for n in found if n != 1] == [n for n in wanted if n != 1]


def _rows_of_joined(attention: Attention) -> Order:
    """Of a matrix that has query, key and value of each head, or of each group that shares a key, together."""
    shared, groups, dim = attention.heads // attention.kv_heads, attention.kv_heads, attention.dim
    queries = np.arange(attention.heads * dim).reshape(groups, shared * dim)
    keys = np.arange(groups * dim).reshape(groups, dim) + queries.size
    return np.concatenate([queries, keys, keys + keys.size], axis=1).reshape(-1)


def _rows_of_heads(mixer: DeltaRule, inner: str, module: str) -> Order | None:
    values = _by_key_head(mixer, mixer.value_dim)
    if values is None:
        return None
    before = mixer.channels - mixer.width  # queries and keys
    if module in (mixer.inputs[0], mixer.conv):
        return np.concatenate([np.arange(before), before + values])
    if module == mixer.inputs[1]:
        return values
    each = (mixer.decay, mixer.bias)
    return _by_key_head(mixer, 1) if inner in each or module in mixer.inputs[2:] else None


def _rows_by_key_head(mixer: DeltaRule, module: str) -> Order | None:
    """Of the tensor that has the strengths and then the decays of each key head's values."""
    if module not in mixer.inputs[2:]:
        return None
    each = np.arange(2 * mixer.heads).reshape(mixer.key_heads, 2, -1)
    return each[:, mixer.inputs.index(module) - 2].reshape(-1)


def _by_key_head(mixer: DeltaRule, width: int) -> Order | None:
    """The order of value heads of this width that puts those of a key head together."""
    rounds = mixer.heads // mixer.key_heads
    if rounds == 1:
        return None
    return np.arange(mixer.heads * width).reshape(rounds, mixer.key_heads, width).swapaxes(0, 1).reshape(-1)


def _norms(layer: Layer) -> Iterator[tuple[str, Norm | None]]:
    attention, recurrence, own = layer.attends, layer.recurs, layer.input
    yield "attn_norm", layer.attention_in
    yield "post_attention_norm", layer.attention_out
    yield "ffn_norm", layer.mlp_in
    yield "post_ffw_norm", layer.mlp_out
    if attention is not None:
        latent = isinstance(attention, Latent)
        yield "attn_q_a_norm" if latent else "attn_q_norm", attention.q_norm
        yield "attn_kv_a_norm" if latent else "attn_k_norm", attention.k_norm
    if isinstance(recurrence, DeltaRule | Mamba2):
        yield "ssm_norm", recurrence.norm
    yield "post_norm", None if own is None else own.norm
    if (experts := layer.experts) is not None:
        yield "pre_ffw_norm_2", experts.input_norm
        yield "post_ffw_norm_2", experts.output_norm
        yield "post_ffw_norm_1", experts.shared_norm


def _of_layer(layer: Layer, architecture: Architecture, *, joined: bool, apart: bool) -> Named:
    """What a file calls the modules of a layer, and its parameters that are in no module."""
    mlp, called = layer.dense, architecture.names
    found: Named = {} if layer.experts is None else _of_experts(layer.experts, joined=joined)
    if mlp is not None:
        ending = "" if layer.experts is None else "_shexp"
        gate, up, down = (called.get(name + ending, name + ending) for name in ("ffn_gate", "ffn_up", "ffn_down"))
        found[mlp.down] = (down,)
        if architecture.halves:
            found[mlp.gate_up[0]] = (gate, up)
        else:
            found |= zip(mlp.gate_up, ((gate,), (up,))[-len(mlp.gate_up) :], strict=True)
    if (own := layer.input) is not None:
        found |= {own.gate: ("inp_gate",), own.out: ("proj",)}
    if layer.factor is not None:
        found[layer.factor] = ("layer_output_scale.weight",)
    for mixer in layer.mixers:
        if isinstance(mixer, Latent):
            found |= _of_latent(mixer, apart=apart)
        else:
            found |= _of_attention(mixer) if isinstance(mixer, Attention) else _of_recurrence(mixer)
        if isinstance(mixer, DeltaRule) and architecture.by_key_head:
            found |= dict.fromkeys(mixer.inputs[2:], ("ssm_ba",))
    for role, norm in _norms(layer):
        if norm is not None and norm.name is not None:
            name = f"{norm.name}.weight" if role in architecture.bare else norm.name
            # a parallel layer may have one norm for both
            found.setdefault(name, (called.get(norm.name, called.get(role, role)),))
    return found


def _of_experts(experts: Experts, *, joined: bool) -> Named:
    """Of the router, and of the experts that not all rows take."""
    router = experts.router
    gate_up = (
        ("ffn_gate_up_exps",) if joined else ("ffn_gate_exps", "ffn_up_exps") if experts.gated else ("ffn_up_exps",)
    )
    weights: dict[str | None, tuple[str, ...]] = {
        experts.gate_up[0]: tuple(f"{name}.weight" for name in gate_up),
        experts.gate_up_bias: tuple(f"{name}.bias" for name in gate_up),
        experts.down: ("ffn_down_exps.weight",),
        experts.down_bias: ("ffn_down_exps.bias",),
        experts.shared_gate: ("ffn_gate_inp_shexp.weight",),
        router.weight: ("ffn_gate_inp.weight",),
        router.bias: ("ffn_gate_inp.bias",),
        router.choice_bias: ("exp_probs_b.bias",),
        router.gain: ("ffn_gate_inp.scale",),
        router.expert_factors: ("ffn_down_exps.scale",),
    }
    return {name: stored for name, stored in weights.items() if name is not None}


def _of_attention(attention: Attention) -> Named:
    apart = ("attn_q", "attn_k", "attn_v")
    joined = len(attention.qkv) == 1 and attention.keys_of is None
    found: Named = {
        module: (name,) for module, name in zip(attention.qkv, ("attn_qkv",) if joined else apart, strict=False)
    }
    found[attention.out] = ("attn_output",)
    if attention.sinks is not None:
        found[attention.sinks] = ("attn_sinks.weight",)
    return found


def _of_latent(latent: Latent, *, apart: bool) -> Named:
    first = "attn_q" if latent.q_rank is None else "attn_q_a"
    found: Named = {module: (name,) for module, name in zip(latent.qkv, (first, "attn_kv_a_mqa"), strict=True)}
    found |= {latent.q_b: ("attn_q_b",), latent.out: ("attn_output",)}
    if apart:
        both = {f"{latent.kv_b}.weight": ("attn_k_b.weight", "attn_v_b.weight")}
        return found | both | {f"{latent.kv_b}.bias": ("attn_kv_b.bias",)}  # which no file has
    return found | {latent.kv_b: ("attn_kv_b",)}


def _of_recurrence(mixer: Recurrent) -> Named:
    if isinstance(mixer, ShortConv):
        names = zip((*mixer.inputs, mixer.conv, mixer.out), ("in_proj", "conv", "out_proj"), strict=True)
        return {module: (f"shortconv.{name}",) for module, name in names}
    if isinstance(mixer, ChannelRule):
        return _of_channels(mixer)
    inputs = ("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha") if isinstance(mixer, DeltaRule) else ("ssm_in",)
    found: Named = {module: (name,) for module, name in zip(mixer.inputs, inputs, strict=True)}
    found |= {mixer.conv: ("ssm_conv1d",), mixer.out: ("ssm_out",)}
    found |= {mixer.decay: ("ssm_a",), mixer.bias: ("ssm_dt.bias",)}
    if isinstance(mixer, Mamba2):
        found[mixer.skip] = ("ssm_d",)
    return found


def _of_channels(mixer: ChannelRule) -> Named:
    inputs = ("attn_q", "attn_k", "attn_v", "ssm_f_a", "ssm_g_a", "ssm_beta")
    found: Named = {module: (name,) for module, name in zip(mixer.inputs, inputs, strict=True)}
    found |= {mixer.decays: ("ssm_f_b",), mixer.gate: ("ssm_g_b",), mixer.out: ("attn_output",)}
    found |= {mixer.conv: ("ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v")}
    return found | {mixer.decay: ("ssm_a",), mixer.bias: ("ssm_dt.bias",)}
