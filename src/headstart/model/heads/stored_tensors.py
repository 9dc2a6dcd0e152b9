"""The files of a head of any kind: what must be in them as a table, one reader that checks it, and one writer.

A kind of head is a `Form`: how its config is read, and a table of the tensors that such a config means, by name. Only
safetensors is read and written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.gguf.files import is_gguf
from headstart.model.heads.config_fields import HeadSizes, check_target, read_config
from headstart.model.loading import weight_files
from headstart.model.recipes.experts import Experts
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.recipe import Layer

Config = TypeVar("Config", bound=HeadSizes)


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor in a head's files. needed: without it the head cannot be read; else what is borrowed of the target
    stands in for it, or nothing. loose: any shape of as many numbers is taken as this one."""

    shape: tuple[int, ...]
    needed: bool = True
    loose: bool = False


Table = dict[str, Held]
"""All tensors that a head may have, by their names here."""


@dataclass(frozen=True, slots=True)
class Form(Generic[Config]):
    """A kind of head, as it is kept in a directory.

    known_as: the name here of a tensor on disk; None for one that is not used. check: refuses other kinds, by their
    config. config: the shape of the head at this path, from its config and tensors, for a target with this config of
    its text. table: what such a head holds.
    """

    known_as: Callable[[str], str | None]
    check: Callable[[Path, Mapping[str, Any]], None]
    config: Callable[[str, Mapping[str, Any], Mapping[str, Tensor], Any], Config]
    table: Callable[[Config], Table]


@dataclass(frozen=True, slots=True, eq=False)
class HeadCheckpoint(Generic[Config]):
    """A head as read, and checked against its target.

    tensors: by the names of its form's table. token_ids: int64 [draft V], the target's id of each draft token; None
    where the vocabularies are one.
    """

    config: Config
    tensors: Mapping[str, Tensor]
    token_ids: Tensor | None

    def own(self, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        """The tensors that a forward multiplies with, without those that map the vocabularies, in this dtype; a bias of
        the choice of experts is in float32."""
        return {
            name: tensor.to(device, torch.float32 if name.endswith(_WIDE) else dtype)
            for name, tensor in self.tensors.items()
            if name not in ("d2t", "t2d")
        }


_IGNORED = ("rotary_emb.inv_freq",)
_UNROUNDED = ("fc.weight", "embed_tokens.weight", "hidden_projection.weight")
SCALE = "_scale"
"""What follows the name of a matrix on int8 in that of its scales."""
_WIDE = "e_score_correction_bias"
"""What a choice of experts hangs on: scores differ by less than bfloat16 tells apart."""


def read_head(folder: str | Path, target: Any, form: Form[Config]) -> HeadCheckpoint[Config]:
    """The head in a directory or a GGUF file, for the target with this config of transformers.

    Raises:
        ModelNotFound: no config, or no weights.
        DamagedModel: a GGUF file that contradicts itself.
        PickleCheckpoint: weights as a pickle only.
        UnsupportedModel: another kind of drafter, damaged, or made for another target; the message names the field.
    """
    path, text = Path(folder), target.get_text_config()
    if is_gguf(path):
        from headstart.model.heads.gguf_heads import stored  # few heads are kept so

        raw, tensors = stored(path)
        form.check(path, raw)
    else:
        raw = read_config(path)
        form.check(path, raw)
        tensors = read_tensors(path, form.known_as)
    config = form.config(str(path), raw, tensors, text)
    check_target(config, text)
    token_ids = _token_ids(config, tensors)
    return HeadCheckpoint(config, check_tensors(config.name, form.table(config), tensors), token_ids)


def write_head(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], *, weights: str = "model.safetensors"
) -> int:
    """Write the weights and the config of a head; returns the bytes of its tensors."""
    written = write_tensors(folder / weights, tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return written


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write floats in bfloat16, whole numbers and flags as they are; returns the bytes of all."""
    stored = {}
    for name, tensor in tensors.items():
        kind = torch.bfloat16 if tensor.is_floating_point() else tensor.dtype
        stored[name] = tensor.detach().to("cpu", kind).contiguous()
    save_file(stored, file, {"format": "pt"})
    return sum(tensor.numel() * tensor.element_size() for tensor in stored.values())


def decoder_layer(sizes: HeadSizes, into: int, *, biases: tuple[str, ...], head_norms: bool) -> Table:
    """The tensors of a decoder layer, but for the norm before its attention, which takes `into` numbers of a row.

    biases: the modules that may have some. head_norms: whether queries and keys must be normed; else they may be.
    """
    d, inner = sizes.width, sizes.intermediate
    queries, keys = sizes.heads * sizes.dim, sizes.kv_heads * sizes.dim
    attention = {"q_proj": (queries, into), "k_proj": (keys, into), "v_proj": (keys, into), "o_proj": (d, queries)}
    mlp = {"gate_proj": (inner, d), "up_proj": (inner, d), "down_proj": (d, inner)}
    table = {"post_attention_layernorm.weight": Held((d,))}
    table |= {f"self_attn.{name}.weight": Held((sizes.dim,), head_norms) for name in ("q_norm", "k_norm")}
    for module, matrices in {"self_attn": attention, "mlp": mlp}.items():
        table |= {f"{module}.{name}.weight": Held(shape) for name, shape in matrices.items()}
        if module in biases:
            table |= {f"{module}.{name}.bias": Held(shape[:1], needed=False) for name, shape in matrices.items()}
    return table


def layer_tensors(layer: Layer, width: int) -> Table:
    """The tensors of a layer with attention by its recipe, in a stream of this width."""
    d, attention, mlp = width, layer.attention, layer.dense
    queries, keys = attention.heads * attention.dim, attention.kv_heads * attention.dim
    outputs = [queries * (2 if attention.gated else 1), keys, keys][: len(attention.qkv)]
    inner: dict[str, tuple[int, int]] = {}
    q_size = k_size = attention.dim
    if isinstance(attention, Latent):
        queries, outputs = attention.heads * attention.value_dim, [attention.outputs - attention.dim, attention.dim]
        into = {attention.kv_b: attention.rank, attention.q_b: attention.q_rank or 0}
        inner = {name: (rows, into[name]) for name, rows in attention.inner.items()}
        q_size, k_size = into[attention.q_b], attention.rank
    matrices = inner | dict(zip(attention.qkv, ((rows, d) for rows in outputs), strict=True))
    matrices |= {attention.out: (d, queries)}
    if mlp is not None:
        both = mlp.width * (2 if mlp.gated and len(mlp.gate_up) == 1 else 1)
        matrices |= {mlp.down: (d, mlp.width)} | dict.fromkeys(mlp.gate_up, (both, d))
    table: Table = {} if layer.experts is None else expert_tensors(layer.experts, d)
    for name, shape in matrices.items():
        table |= {f"{name}.weight": Held(shape), f"{name}.bias": Held(shape[:1], needed=False)}
    for norm, size in (
        (layer.attention_in, d), (layer.mlp_in, d), (layer.attention_out, d), (layer.mlp_out, d),
        (attention.q_norm, q_size), (attention.k_norm, k_size),
    ):  # fmt: skip
        if norm is not None and norm.name is not None:
            table[f"{norm.name}.weight"] = Held((size,))
    return table if layer.factor is None else table | {layer.factor: Held((1,))}


def expert_tensors(experts: Experts, width: int) -> Table:
    """The parameters of a plain mixture of experts, those of all its experts together, in a stream of this width.

    Raises:
        UnsupportedModel: it has more than a head's files are known to hold.
    """
    count, router = experts.count, experts.router
    others = (router.bias, router.gain, router.norm, router.expert_factors, experts.gate_up_bias, experts.down_bias)
    norms = (experts.input_norm, experts.output_norm, experts.shared_norm)
    if experts.transposed or any(each is not None for each in (*others, *norms)):
        raise UnsupportedModel("its experts are of a kind that no known head has", hint="use another drafter")
    both = experts.width * (2 if experts.gated and len(experts.gate_up) == 1 else 1)
    table = {name: Held((count, both, width)) for name in experts.gate_up}
    table |= {experts.down: Held((count, width, experts.width)), router.weight: Held((count, width))}
    if experts.shared_gate is not None:
        table[experts.shared_gate] = Held((1, width))
    return table if router.choice_bias is None else table | {router.choice_bias: Held((count,))}


def stack(tensors: dict[str, Tensor], experts: Experts) -> None:
    """Put those of each expert, as published checkpoints hold them, together as transformers has them: one after the
    other, so that there are never two of all. What is not there for all experts stays as it is, and is missing then."""
    folder = experts.down.rpartition(".")[0]
    gate_up = ("gate_proj", "up_proj") if experts.gated else ("up_proj",)
    for name, parts in ((experts.gate_up[0], gate_up), (experts.down, ("down_proj",))):
        each = [[f"{folder}.{number}.{part}.weight" for part in parts] for number in range(experts.count)]
        if name in tensors or not all(one in tensors for names in each for one in names):
            continue
        shapes = [tuple(tensors[one].shape) for one in each[0]]
        alike = all([tuple(tensors[one].shape) for one in names] == shapes for names in each)
        if not alike or any(len(shape) != 2 or shape[1] != shapes[0][1] for shape in shapes):
            continue
        rows, inputs = sum(shape[0] for shape in shapes), shapes[0][1]
        made = tensors[each[0][0]].new_empty(experts.count, rows, inputs)
        for number, names in enumerate(each):
            begin = 0
            for one in names:
                matrix = tensors.pop(one)
                made[number, begin : begin + len(matrix)] = matrix
                begin += len(matrix)
        tensors[name] = made


def vocabulary_tensors(sizes: HeadSizes) -> Table:
    """The embedding and the output matrix, for which the target's own stand in where they fit, and the maps from one
    vocabulary to the other."""
    d, tokens, drafted = sizes.width, sizes.vocab_size, sizes.draft_vocab_size
    fits = d == sizes.target_width
    return {
        "embed_tokens.weight": Held((tokens, d), needed=not fits),
        "lm_head.weight": Held((drafted, d), needed=not (fits and drafted == tokens)),
        "d2t": Held((drafted,), needed=False),
        "t2d": Held((tokens,), needed=False),
    }


def read_tensors(
    path: Path,
    known_as: Callable[[str], str | None],
    convert: str = "safetensors.torch.save_file writes safetensors",
    *,
    numbers: bool = True,
) -> dict[str, Tensor]:
    """The tensors of a directory. known_as: the name here of one on disk; None for one that is not read. convert: what
    to do about a pickle. numbers: else tensors of their shapes on the device "meta"."""
    tensors: dict[str, Tensor] = {}
    for file in weight_files(path, convert=convert):
        try:
            with safe_open(file, framework="pt") as stored:
                names = [(name, known_as(name)) for name in stored.keys()]  # noqa: SIM118 -- not a mapping
                for name, known in names:
                    if known is not None:
                        shape = () if numbers else stored.get_slice(name).get_shape()
                        tensors[known] = stored.get_tensor(name) if numbers else torch.empty(shape, device="meta")
        except Exception as error:
            raise UnsupportedModel(f"{file} cannot be read: {error}", hint="copy the checkpoint again") from error
    return in_numbers(path, {name: tensor for name, tensor in tensors.items() if not name.endswith(_IGNORED)})


def rounded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors with matrices on int8 and a float32 scale for each of their outputs, in half the room. Those
    that are so already stay as they are.

    `fc` stays as it is: what it joins is of different sizes, and the small would be lost beside the large. The row
    kernels round the others so in any case.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.int8 or tensor.ndim != 2 or not name.endswith(".weight") or name.endswith(_UNROUNDED):
            found[name] = tensor
            continue
        numbers = tensor.float()
        scale = numbers.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
        found[name] = (numbers / scale).round().to(torch.int8)
        found[f"{name}{SCALE}"] = scale
    return found


def in_numbers(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Codes times their scales, in float32, of what `rounded` made; what is stored in numbers stays as it is.

    Raises:
        UnsupportedModel: a matrix on int8 has no scales, or others than one for each output.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(SCALE):
            continue
        if tensor.dtype != torch.int8:
            found[name] = tensor
            continue
        scale = tensors.get(f"{name}{SCALE}")
        if scale is None or scale.shape != (len(tensor), 1) or not scale.is_floating_point():
            shape = "no scales" if scale is None else f"scales {list(scale.shape)} of {scale.dtype}"
            raise UnsupportedModel(
                f"{path}: {name} is on int8 and has {shape}",
                hint=f"{name}{SCALE} should have a float for each of its {len(tensor)} outputs; copy it again",
            )
        found[name] = tensor.float() * scale.float()
    return found


def names_in(file: Path) -> Iterable[str]:
    with safe_open(file, framework="pt") as stored:
        return list(stored.keys())


def _token_ids(config: HeadSizes, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The target's id of each draft token, from the offsets `d2t`; checked against `t2d`."""
    offsets, marked = tensors.get("d2t"), tensors.get("t2d")
    if offsets is None:
        if config.draft_vocab_size != config.vocab_size:
            raise _missing(config.name, ["d2t"])
        return None
    if offsets.shape != (config.draft_vocab_size,):
        raise UnsupportedModel(
            f"{config.name}: d2t has {list(offsets.shape)} numbers for draft_vocab_size={config.draft_vocab_size}",
            hint="copy the checkpoint again",
        )
    ids = torch.arange(config.draft_vocab_size) + offsets.long()
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.vocab_size or len(set(ids.tolist())) != len(ids):
        what = "the same token twice" if low >= 0 and high < config.vocab_size else f"tokens from {low} to {high}"
        raise UnsupportedModel(
            f"{config.name}: d2t leads to {what}, in a vocabulary of {config.vocab_size}",
            hint="d2t holds offsets: the target's id is the draft's plus d2t; write it again",
        )
    if marked is not None and not torch.equal(marked.bool().nonzero()[:, 0], ids.sort().values):
        raise UnsupportedModel(
            f"{config.name}: t2d does not mark the tokens that d2t leads to", hint="one of the two is of another head"
        )
    return ids


def check_tensors(name: str, table: Table, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor there and of its shape, and none that would be left unused. name: of the head."""
    missing = [key for key, held in table.items() if held.needed and key not in tensors]
    if missing:
        raise _missing(name, missing)
    unknown = sorted(set(tensors) - set(table))
    if unknown:
        raise UnsupportedModel(
            f"{name} holds tensors that no known head has: {', '.join(unknown)}",
            hint="it is another kind of drafter, or of a newer form",
        )
    found = {}
    for key, tensor in tensors.items():
        shape = table[key].shape
        if tuple(tensor.shape) != shape and not (table[key].loose and tensor.numel() == math.prod(shape)):
            raise UnsupportedModel(
                f"{name}: {key} has the shape {list(tensor.shape)} where its config means {list(shape)}",
                hint="config and weights are of different heads; copy the checkpoint again",
            )
        found[key] = tensor.reshape(shape)
    return found


def _missing(name: str, names: Sequence[str]) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name} lacks {'tensors' if len(names) > 1 else 'the tensor'} {', '.join(names)}",
        hint="the checkpoint is incomplete, or another kind of head; copy it again",
    )
