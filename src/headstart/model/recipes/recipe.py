"""What a decoder computes, as plain data: what each of its layers is, and which modules hold its weights.

A recipe is made from a config (see `recipes.recipe_of`) and is all that the decoders know of a model: `fused` hands it
to the row kernels, `lean` runs it in tensor operations. Equal layers are one object. Names are those of transformers'
modules, below a layer or, where it says so, below the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headstart.model.recipes.experts import Experts
from headstart.model.recipes.mixers import Recurrent
from headstart.model.recipes.mlp import Activation, Mlp
from headstart.model.recipes.norms import Norm

__all__ = [
    "Activation", "Attention", "Experts", "Layer", "LayerInput", "Mlp", "Norm", "Recipe", "Rope", "TokenInputs",
    "windows_of",
]  # fmt: skip


@dataclass(frozen=True)
class Rope:
    """How queries and keys turn with their position. Its angles come from the rotary module of transformers."""

    rotary: int
    """Numbers of a head that turn, the first ones."""
    table: str | None = None
    """What the rotary module calls these angles (`layer_type`), where it has several."""
    pairs: bool = False
    """Whether neighbouring numbers turn together; otherwise each does with the one half of `rotary` further on."""
    table_pairs: bool = False
    """Whether the rotary module gives each angle twice in a row; otherwise all of them twice."""
    table_once: bool = False
    """Whether the rotary module gives each angle once (GPT-OSS)."""
    module: str | None = None
    """The rotary module below the model, where there are several; None for the recipe's."""


@dataclass(frozen=True)
class Attention:
    """Softmax attention over keys and values."""

    heads: int
    kv_heads: int
    dim: int
    scaling: float
    rope: Rope | None
    """None: without positions (NoPE)."""
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    """The modules whose outputs side by side are queries, keys and values."""
    out: str = "self_attn.o_proj"
    order: Literal["parts", "heads", "groups"] = "parts"
    """How the outputs of `qkv` lie: all queries, all keys, all values; or query, key and value of each head; or the
    queries, the key and the value of each group that shares a key."""
    window: int | None = None
    """How many tokens back a row sees, itself included."""
    softcap: float | None = None
    sinks: str | None = None
    """The parameter [heads] with a score for each head that has no value (GPT-OSS)."""
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    v_norm: Norm | None = None
    norm_over: Literal["head", "each", "all"] = "head"
    """Whether `q_norm` and `k_norm` are of each head, of each head by a gain of its own, or of all heads together."""
    norm_after_rope: bool = False
    value_is_key: bool = False
    """Whether values are the keys as they are before norm and rotation (Gemma 4); then `qkv` has no values."""
    keys_of: int | None = None
    """The layer whose keys and values are attended to (Gemma 4); then `qkv` has queries alone. None: its own."""
    query_beta: float = 0.0
    """Queries are multiplied by 1 + beta * ln(1 + floor(position / origin)) (Ministral 3)."""
    query_origin: int = 1
    gated: bool = False
    """Whether each head's queries are followed by as many numbers of a gate, whose sigmoid its output is multiplied by
    (Qwen3.5)."""
    gate_by_head: bool = False
    """Whether `qkv` ends with a gate of one number for each head instead (LFM3), with `gated`."""
    factor: float = 1.0
    """Of what it adds to the stream (Falcon-H1)."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """`qkv`: the linear layers that read its input."""
        return self.qkv

    @property
    def outputs(self) -> int:
        """Of the linear layers in `qkv`, together."""
        kinds = 0 if self.keys_of is not None else 1 if self.value_is_key else 2
        queries, by_head = self.heads, self.heads if self.gate_by_head else 0
        if self.gated and not by_head:
            queries *= 2
        return self.dim * (queries + kinds * self.kv_heads) + by_head

    @property
    def inner(self) -> dict[str, int]:
        """Linear layers between `qkv` and `out`, and how many outputs each has."""
        return {}

    @property
    def gains(self) -> set[int]:
        """How many numbers a gain of `q_norm` or `k_norm` may have."""
        return {count * self.dim for count in ({1} if self.norm_over == "head" else {self.heads, self.kv_heads})}

    @property
    def widths(self) -> set[int]:
        """Of what is computed together."""
        return {self.dim}

    @property
    def widest(self) -> int:
        """Numbers of a head's query or of what it attends to, at most."""
        return self.dim

    @property
    def kept(self) -> tuple[int, int, int]:
        """What is stored of a token: heads, and the numbers of a key and of a value of each; 0 where the first numbers
        of the key are the value."""
        return self.kv_heads, self.dim, self.dim

    @property
    def kept_by_modules(self) -> tuple[int, int, int]:
        """The same where transformers' modules run it."""
        return self.kept


@dataclass(frozen=True)
class LayerInput:
    """An input of the layer's own for each token (Gemma 4): out(gelu(gate x) * input), normed and added."""

    width: int
    gate: str
    out: str
    norm: Norm


@dataclass(frozen=True)
class Layer:
    """One layer: x += mixer(x), x += mlp(x), each with a norm before it, after it, or both."""

    mixer: Attention | Recurrent | None
    """What looks at other tokens; most fields that concern it are called after attention. None for a layer that is an
    MLP alone (Nemotron-H)."""
    feed_forward: Mlp | Experts | None
    """The MLP, or many of them; None for a layer that is a mixer alone (Nemotron-H)."""
    attention_in: Norm | None
    mlp_in: Norm | None
    attention_out: Norm | None = None
    mlp_out: Norm | None = None
    parallel: bool = False
    """Whether attention and MLP read the same stream, and are added together."""
    residual_factor: float = 1.0
    """Of what attention and MLP add."""
    input: LayerInput | None = None
    factor: str | None = None
    """The tensor of one number by which the stream is multiplied after the layer (Gemma 4)."""
    beside: Recurrent | None = None
    """A recurrence that reads what attention, the mixer, reads, and whose output is added with its (Falcon-H1)."""

    @property
    def mixers(self) -> tuple[Attention | Recurrent, ...]:
        """All that look at other tokens: none, one, or attention and the recurrence beside it."""
        return tuple(each for each in (self.mixer, self.beside) if each is not None)

    @property
    def attends(self) -> Attention | None:
        """Its attention, if it has any."""
        return self.mixer if isinstance(self.mixer, Attention) else None

    @property
    def recurs(self) -> Recurrent | None:
        """Its recurrence, if it has any."""
        return self.beside if isinstance(self.mixer, Attention) else self.mixer

    @property
    def attention(self) -> Attention:
        """Its mixer, in families where all are attention."""
        assert isinstance(self.mixer, Attention), "the layer is recurrent"
        return self.mixer

    def attending(self, **changes: Any) -> Layer:
        """The same layer with these fields of its attention changed."""
        return replace(self, mixer=replace(self.attention, **changes))

    @property
    def mlp(self) -> Mlp:
        """Its MLP, in families where all layers have one."""
        assert isinstance(self.feed_forward, Mlp), "the layer is a mixer alone, or has experts"
        return self.feed_forward

    @property
    def experts(self) -> Experts | None:
        """Its experts, if it has any."""
        return self.feed_forward if isinstance(self.feed_forward, Experts) else None

    @property
    def dense(self) -> Mlp | None:
        """The MLP that every row takes, if there is one: its own, or the one beside its experts."""
        return self.feed_forward.shared if isinstance(self.feed_forward, Experts) else self.feed_forward

    @property
    def joined(self) -> list[tuple[str, ...]]:
        """The names of its linear layers that read the same input, by what they read."""
        mixers = tuple(name for mixer in self.mixers for name in mixer.inputs)
        return [names for names in (mixers, () if self.dense is None else self.dense.gate_up) if names]

    @property
    def linears(self) -> list[str]:
        """The names of all its linear layers."""
        out = [mixer.out for mixer in self.mixers]
        inner = [name for mixer in self.mixers for name in mixer.inner]
        down = [] if self.dense is None else [self.dense.down]
        own = [] if self.input is None else [self.input.gate, self.input.out]
        return [*(name for names in self.joined for name in names), *inner, *out, *down, *own]


@dataclass(frozen=True)
class TokenInputs:
    """Where the layers' own inputs come from (Gemma 4): `table`[token] * `factor` and a projection of the embedding."""

    width: int
    """Of one layer's input; the table has this many numbers for each layer, side by side."""
    table: str
    factor: float
    projection: str
    projection_factor: float
    norm: Norm
    """Of each layer's part of the projection."""
    sum_factor: float
    factor_rounded: bool = False
    """Whether `factor` is rounded to the dtype of the weights first."""


@dataclass(frozen=True)
class Recipe:
    """A whole decoder. Names are below the model."""

    width: int
    vocabulary: int
    layers: tuple[Layer, ...]
    final_norm: Norm | None
    stack: str = "model.layers"
    """The list of layers."""
    embedding: str = "model.embed_tokens"
    rotary: str | None = "model.rotary_emb"
    head: str = "lm_head"
    embedding_factor: float = 1.0
    """What embeddings are multiplied by."""
    embedding_factor_rounded: bool = False
    """Whether that is rounded to the dtype of the weights first (Gemma)."""
    embedding_norm: Norm | None = None
    places: str | None = None
    """The embedding of positions that is added (GPT-2, OPT)."""
    places_from: int = 0
    """The row of the first position in it."""
    inputs: TokenInputs | None = None
    logit_factor: float = 1.0
    logit_softcap: float | None = None
    ignored: tuple[str, ...] = field(default=(), compare=False)
    """What the config says that changes nothing here, for people."""

    @property
    def kinds(self) -> list[tuple[int, Layer]]:
        """The different layers and how many there are of each, in order of appearance."""
        return [(count, layer) for layer, count in Counter(self.layers).items()]

    @property
    def widths(self) -> set[int]:
        """Of all rows, and of the heads of attention and of states."""
        found = {self.width}
        for _, layer in self.kinds:
            for mixer in layer.mixers:
                found |= mixer.widths
            fed = layer.feed_forward
            found |= fed.widths if isinstance(fed, Experts) else {fed.width} if fed else set()
            found |= {layer.input.width} if layer.input else set()
        return found

    @property
    def stored(self) -> dict[int, Attention]:
        """The layers that store keys and values."""
        found = ((i, layer.attends) for i, layer in enumerate(self.layers))
        return {i: each for i, each in found if each is not None and each.keys_of is None}

    @property
    def recurrent(self) -> dict[int, Recurrent]:
        """The layers that keep a state."""
        return {i: layer.recurs for i, layer in enumerate(self.layers) if layer.recurs is not None}

    @property
    def experts(self) -> list[Experts]:
        """The different mixtures of experts, in order of appearance."""
        return [layer.experts for _, layer in self.kinds if layer.experts is not None]

    @property
    def expert_matrices(self) -> list[tuple[int, int, int]]:
        """How many experts each layer has, and the inputs and outputs of their matrices."""
        of = [layer.experts for layer in self.layers if layer.experts is not None]
        return [(each.count, *shape) for each in of for shape in each.shapes(self.width)]

    @property
    def attentions(self) -> list[Attention]:
        """The different ones, in order of appearance."""
        return [layer.mixer for _, layer in self.kinds if isinstance(layer.mixer, Attention)]

    def joined_with(self, module: str) -> list[str]:
        """The linear layers of the same input as this one of the model, itself among them: decoders join them, so they
        are all codes, or all floats."""
        layer, rest = self._owner(module)
        for names in () if layer is None else layer.joined:
            if rest in names:
                return [f"{module.removesuffix(rest)}{name}" for name in names]
        return [module]

    def chooses(self, module: str) -> bool:
        """Whether a linear layer of the model is a router, which is floats everywhere."""
        layer, rest = self._owner(module)
        return layer is not None and layer.experts is not None and rest in layer.experts.floats

    def _owner(self, module: str) -> tuple[Layer | None, str]:
        """The layer that a module is of, and its name below it."""
        owner, _, rest = module.removeprefix(f"{self.stack}.").partition(".")
        return self.layers[int(owner)] if owner.isdigit() and int(owner) < len(self.layers) else None, rest


def windows_of(layers: Sequence[Layer]) -> list[int | None]:
    """The different sliding windows, None for full attention."""
    mixers = (layer.mixer for layer in layers)
    return sorted({mixer.window for mixer in mixers if isinstance(mixer, Attention)}, key=lambda w: w or 0)
