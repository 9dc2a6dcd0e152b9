"""Reading the MTP heads that checkpoints hold beside their model: layers that were trained to guess further tokens.

Row t of such a head is the pair (token x_{t+1}, the target's state of t behind its final norm), each with a norm of its
own, which a matrix joins; a decoder layer of the target's own family and a final norm follow, and the target's output
matrix gives the guess of x_{t+2}. With its own state in place of the target's the same layer guesses on. That is an
EAGLE-1 head but for the two norms, and it runs as one. Some checkpoints hold a layer for each further token. Each of
these is read as a head of its own, and they guess in turn.

`FORMS` says, for each family, how its tensors are called. Sources: DeepSeek-V3 (arXiv:2412.19437), section 2.2; the
names are those of the published checkpoints.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import HeadstartError, UnsupportedModel
from headstart.base.lazy import transformers
from headstart.model.gguf.files import is_gguf, open_gguf
from headstart.model.heads.eagle_config import EAGLE1, HeadConfig
from headstart.model.heads.stored_tensors import (
    HeadCheckpoint,
    Held,
    Table,
    check_tensors,
    layer_tensors,
    names_in,
    read_tensors,
    stack,
)
from headstart.model.loading import load_config
from headstart.model.reading import object_in
from headstart.model.recipes import find_recipe
from headstart.model.recipes.experts import Experts
from headstart.model.recipes.mlp import Mlp
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe
from headstart.model.recipes.stated import ROPE_FIELDS
from headstart.model.stored import layers_after
from headstart.model.wrappers import unwrapped


@dataclass(frozen=True, slots=True)
class Form:
    """How a family's checkpoints hold their heads.

    prefix: before the names of all tensors of one. names: what the parts are called below it; the last ones are the
    prefixes of the decoder layer. unread: of names below the prefix, which are those of other layers, or of copies of
    what the target has. state_first: whether the matrix takes [state | embedding] instead of [embedding | state].
    layer: the head's, made of the target's recipe. In names, {i} is a head's number, {behind} the same counted on from
    the model's layers, and {first} and {second} the numbers of blocks where each head has two.
    """

    prefix: str
    names: Mapping[str, str]
    layer: Callable[[Recipe], Layer]
    unread: str = "(?!)"
    state_first: bool = False

    def named(self, after: int, number: int = 0) -> Callable[[str], str | None]:
        """The name here of a stored tensor of one of the heads, for a target of so many layers; None for one that is
        not read."""
        prefix, names, unread = self._filled(after, number)
        skipped = re.compile(unread)

        def known_as(stored: str) -> str | None:
            name = unwrapped(stored)
            inner = name.removeprefix(prefix)
            if not name.startswith(prefix) or skipped.match(inner):
                return None
            part = next((ours for ours, theirs in names.items() if inner.startswith(theirs)), None)
            return inner if part is None else inner.replace(names[part], part, 1)

        return known_as

    def stored(self, name: str, after: int, number: int = 0) -> str:
        """What checkpoints call a tensor of one of the heads, by the name that `named` gives it."""
        prefix, names, _ = self._filled(after, number)
        ours = next(part for part in names if name.startswith(part))
        return prefix + names[ours] + name.removeprefix(ours)

    def _filled(self, after: int, number: int) -> tuple[str, dict[str, str], str]:
        """`prefix`, `names` and `unread` with the numbers of a head in them."""
        numbers = {"i": number, "behind": after + number, "first": 2 * number, "second": 2 * number + 1}
        names = {ours: theirs.format(**numbers) for ours, theirs in self.names.items()}
        return self.prefix.format(**numbers), names, self.unread.format(**numbers)


def _attends(recipe: Recipe) -> Layer:
    """The target's last layer with full attention on keys of its own."""
    for layer in reversed(recipe.layers):
        mixer = layer.mixer
        if isinstance(mixer, Attention) and mixer.window is None and mixer.keys_of is None:
            return replace(layer, input=None)
    raise UnsupportedModel("the target has no layer with full attention", hint="use another drafter")


def _attends_then_feeds(recipe: Recipe) -> Layer:
    """The same where layers are attention or an MLP alone: one of each, of which checkpoints number both. The MLP is
    experts where the target has any."""
    attends = _attends(recipe)
    fed = sorted((each for each in recipe.layers if each.mixer is None), key=lambda each: each.experts is None)
    if not fed:
        raise UnsupportedModel("the target has no layer that is an MLP alone", hint="use another drafter")
    attention, feeds = attends.attention, fed[0]
    assert attends.attention_in is not None, "layers of these families have a norm"
    assert feeds.mlp_in is not None, "layers of these families have a norm"
    return Layer(
        replace(attention, qkv=tuple(f"0.{name}" for name in attention.qkv), out=f"0.{attention.out}"),
        _below("1.", feeds.mlp) if feeds.experts is None else _experts_below("1.", feeds.experts),
        replace(attends.attention_in, name=f"0.{attends.attention_in.name}"),
        replace(feeds.mlp_in, name=f"1.{feeds.mlp_in.name}"),
    )


def _below(prefix: str, mlp: Mlp) -> Mlp:
    """The same with its names below another one."""
    return replace(mlp, gate_up=tuple(prefix + name for name in mlp.gate_up), down=prefix + mlp.down)


def _experts_below(prefix: str, experts: Experts) -> Experts:
    """The same of experts that have no biases, and of whose routers only the choice has one."""
    router = experts.router
    choice = None if router.choice_bias is None else prefix + router.choice_bias
    return replace(
        experts,
        router=replace(router, weight=prefix + router.weight, choice_bias=choice),
        gate_up=tuple(prefix + name for name in experts.gate_up),
        down=prefix + experts.down,
        shared=None if experts.shared is None else _below(prefix, experts.shared),
    )


_QWEN = Form(
    prefix="mtp.",
    names={
        "fc.": "fc.",
        "embedding_norm.": "pre_fc_norm_embedding.",
        "hidden_norm.": "pre_fc_norm_hidden.",
        "norm.": "norm.",
        "": "layers.{i}.",
    },
    layer=_attends,
    unread=r"layers\.(?!{i}\.)",
)
_DEEPSEEK = Form(
    prefix="model.layers.{behind}.",
    names={
        "fc.": "eh_proj.",
        "embedding_norm.": "enorm.",
        "hidden_norm.": "hnorm.",
        "norm.": "shared_head.norm.",
        "": "",
    },
    layer=_attends,
    unread=r"(embed_tokens|shared_head\.head)\.",
)
_MIMO = Form(
    prefix="model.mtp_layers.{i}.",
    names={
        "fc.": "input_proj.",
        "embedding_norm.": "token_layernorm.",
        "hidden_norm.": "hidden_layernorm.",
        "norm.": "final_layernorm.",
        "": "",
    },
    layer=_attends,
    state_first=True,
)
_NEMOTRON = Form(
    prefix="mtp.layers.",
    names={
        "fc.": "{first}.eh_proj.",
        "embedding_norm.": "{first}.enorm.",
        "hidden_norm.": "{first}.hnorm.",
        "norm.": "{second}.final_layernorm.",
        "0.": "{first}.",
        "1.": "{second}.",
    },
    layer=_attends_then_feeds,
    unread=r"(?!({first}|{second})\.)\d",
)

FORMS = {
    "deepseek_v3": _DEEPSEEK,
    "glm4": _DEEPSEEK,
    "glm4_moe": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "mimo": _MIMO,
    "nemotron_h": _NEMOTRON,
    "qwen2": _MIMO,  # which MiMo's config is read as
    "qwen3_5_moe_text": _QWEN,
    "qwen3_5_text": _QWEN,
}
"""By the `model_type` of the text."""

EagleCheckpoint = HeadCheckpoint[HeadConfig]


def has_head(source: str | Path) -> bool:
    """Whether a model's directory or GGUF file holds an MTP head that can be run, from its config and the names and
    shapes of its tensors."""
    if not _seems_to_have(Path(source)):
        return False
    try:
        _read(source, load_config(str(source), trust_remote_code=False), None, 0, numbers=False)
    except HeadstartError:
        return False
    return True


def _seems_to_have(path: Path) -> bool:
    """The same from the config and names alone, which is enough for most models: they have no head."""
    if is_gguf(path):
        from headstart.model.gguf import drafting

        return drafting.has_head(open_gguf(path))
    config = object_in(path / "config.json")
    nested = config.get("text_config")
    text = nested if isinstance(nested, dict) else config
    kind, layers = str(text.get("model_type", config.get("model_type"))), text.get("num_hidden_layers", 0)
    form = FORMS.get(kind)
    if form is None or not layers_after(text.get):
        return False
    names = [*filter(None, map(form.named(layers), _stored_in(path)))]
    return "fc.weight" in names


def count(source: str | Path, target: Any) -> int:
    """How many heads are in the directory or the GGUF file of a target with this config of transformers: those that its
    config states, as far as it holds tensors of them."""
    text, path = target.get_text_config(), Path(source)
    form, stated = FORMS.get(text.model_type), layers_after(lambda name: getattr(text, name, None))
    if is_gguf(path):
        from headstart.model.gguf import drafting

        file = open_gguf(path)
        held = (drafting.has_head(file, number) for number in range(stated))
    else:
        stored = [*_stored_in(path)]
        names = (form.named(text.num_hidden_layers, number) for number in range(stated) if form is not None)
        held = (any("layernorm" in name for name in filter(None, map(known_as, stored))) for known_as in names)
    return sum(itertools.takewhile(bool, held))


def read(source: str | Path, target: Any, *, token_ids: Tensor | None = None, number: int = 0) -> EagleCheckpoint:
    """A head in the directory or the GGUF file of a target with this config of transformers.

    token_ids: those that it is to guess, rising; None for all. number: which of them, where there are several.

    Raises:
        UnsupportedModel: there is none, its family's heads are not known, its layer is of a kind that is not run, or
            its tensors are not what they should be.
    """
    return _read(source, target, token_ids, number, numbers=True)


def _read(source: str | Path, target: Any, token_ids: Tensor | None, number: int, *, numbers: bool) -> EagleCheckpoint:
    """See `read`. numbers: see `read_tensors`."""
    text, path = target.get_text_config(), Path(source)
    form = FORMS.get(text.model_type)
    if form is None or not layers_after(lambda name: getattr(text, name, None)):
        raise UnsupportedModel(
            f"{path} holds no MTP head that headstart knows",
            hint=f"heads of {', '.join(sorted(FORMS))} are known, whose config states how many layers they have",
        )
    known_as, recipe = form.named(text.num_hidden_layers, number), find_recipe(target)
    if recipe is None:
        why = "is of a model that headstart's own decoders do not run: it cannot draft yet"
        raise UnsupportedModel(f"the MTP layer of {path} {why}", hint="use another drafter")
    layer, final = form.layer(recipe), recipe.final_norm
    assert final is not None, "models with MTP heads have a final norm"
    config = _config(str(path), text, layer, final, form, token_ids)
    table = _table(config, layer)
    if is_gguf(path):
        from headstart.model.gguf import drafting

        tensors = drafting.head_tensors(open_gguf(path), target, layer, table, number, numbers=numbers)
    else:
        tensors = read_tensors(path, known_as, numbers=numbers)
        if layer.experts is not None:
            stack(tensors, layer.experts)
    found = check_tensors(config.name, table, tensors)
    gains = ("embedding_norm.weight", "hidden_norm.weight", "norm.weight")
    found |= {name: found[name].float() + final.offset for name in gains if final.offset}
    if token_ids is not None and _OUTPUT in found:
        found[_OUTPUT] = found[_OUTPUT][token_ids]
    return HeadCheckpoint(config, found, token_ids)


_OUTPUT = "lm_head.weight"


def _stored_in(path: Path) -> Iterable[str]:
    return (name for file in path.glob("*.safetensors") for name in names_in(file))


def _config(name: str, text: Any, layer: Layer, final: Norm, form: Form, token_ids: Tensor | None) -> HeadConfig:
    attention = layer.attention
    stated = getattr(text, "rope_parameters", None) or {}
    fields = ROPE_FIELDS - {"partial_rotary_factor"}  # what turns is all that the rotation is made for
    turning = attention.dim if attention.rope is None else attention.rope.rotary
    rope = transformers.LlamaConfig(
        head_dim=turning,
        max_position_embeddings=text.max_position_embeddings,
        rope_parameters={field: stated[field] for field in fields if stated.get(field) is not None},
    )
    return HeadConfig(
        name=f"{name} (MTP)",
        width=text.hidden_size,
        target_width=text.hidden_size,
        intermediate=layer.mlp.width if layer.experts is None else layer.experts.width,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        dim=attention.dim,
        eps=final.eps,
        vocab_size=text.vocab_size,
        draft_vocab_size=text.vocab_size if token_ids is None else len(token_ids),
        max_length=text.max_position_embeddings,
        layer_ids=(text.num_hidden_layers,),
        rope=rope,
        version=EAGLE1,
        norm_output=True,
        state_first=form.state_first,
        recipe=layer,
    )


def _table(config: HeadConfig, layer: Layer) -> Table:
    """The tensors of a head whose layer is this one. What it lacks at its ends, the target lends it."""
    d, tokens = config.width, config.vocab_size
    table = {"fc.weight": Held((d, 2 * d))}
    table |= {name: Held((tokens, d), needed=False) for name in ("embed_tokens.weight", _OUTPUT)}
    table |= {f"{name}.weight": Held((d,)) for name in ("embedding_norm", "hidden_norm", "norm")}
    return table | layer_tensors(layer, d)


def shortlist(vocab_size: int, most: int, also: set[int]) -> Tensor | None:
    """The tokens that a head is to guess: the first `most`, which tokenizers number by how often they merged them, and
    those of `also`. None for all, where the vocabulary is hardly larger."""
    if vocab_size <= 2 * most:
        return None
    return torch.tensor(sorted({*range(most), *(token for token in also if 0 <= token < vocab_size)}))
