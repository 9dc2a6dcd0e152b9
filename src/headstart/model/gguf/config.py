"""From a file's metadata to the config of a transformers model; or a refusal that names what is not known here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.model.gguf.architectures import ARCHITECTURES, Architecture
from headstart.model.gguf.description import (
    DENSE,
    DRAFTING,
    EXPERTS_INNER,
    INNER,
    KV,
    Description,
    Mixture,
    Part,
    by_layer,
)
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.metadata import CONTROL, Metadata

_FLOATS = {"F32": torch.float32, "F16": torch.float16}

_KEYS = {
    "attention.causal", "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.sliding_window",
    "attention.value_length", "block_count", "context_length", "embedding_length", "expert_count", "expert_used_count",
    "feed_forward_length", "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.attn_factor",
    "rope.scaling.factor", "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.scaling.type",
    "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier", "tensor_data_layout", "vocab_size",
}  # fmt: skip
"""The keys below the architecture's name that are understood. Others may change the numbers, so they are refused."""

_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_ENDS = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>",
    "<|return|>", "<|call|>", "<|end_of_turn|>", "<|turn_end|>", "</s>",
}  # fmt: skip
"""How tokens that end a turn or a text are spelled."""


def make_config(file: GgufFile) -> Any:
    """The config of the model that the file holds.

    Raises:
        UnsupportedModel: an architecture or a key that is not known.
        DamagedModel: a value is missing, or of another type.
    """
    metadata = file.metadata
    name = _architecture(file)
    architecture, stated = ARCHITECTURES[name], metadata.below(f"{name}.")
    _refuse_unknown(file, name, architecture)
    heads, hidden = stated.whole("attention.head_count"), stated.whole("embedding_length")
    if not heads or not hidden:
        raise file.damaged(f"{heads} heads of {hidden} numbers")
    layers = _layers(file, stated)
    parts: tuple[Part, ...] = tuple("attention" for _ in range(layers))
    if architecture.parts is not None:
        parts = architecture.parts(stated, layers)
    if "attention" not in parts:
        raise file.not_run("no layer has attention")
    attends = parts.index("attention")
    mixture = _mixture(file, stated, layers)
    local = "_swa" if architecture.layered else ""
    of_heads = "_mla" if "attention.key_length_mla" in stated else local
    dim = stated.whole(f"attention.key_length{of_heads}", hidden // heads)
    if (width := stated.whole(f"attention.value_length{of_heads}", dim)) != dim and not architecture.latent:
        raise file.not_run(f"{name}.attention.value_length{of_heads} is {width}, and heads are {dim} wide")
    rotary = stated.whole(f"rope.dimension_count{local}", dim)
    if rotary != dim and not (architecture.part and rotary % 2 == 0 and 0 < rotary < dim):
        raise file.not_run(f"{name}.rope.dimension_count{local} is {rotary}, and heads are {dim} wide")
    if architecture.latent:
        kv_heads, inner = heads, _inner(stated, mixture)
    elif architecture.layered:
        kv_heads, inner = (stated.wholes(key, layers)[0] for key in (KV, INNER))
    elif architecture.parts is not None:
        each = by_layer(stated, KV, layers, heads)
        kv_heads = each[attends]
        if any(found != kv_heads for found, part in zip(each, parts, strict=True) if part == "attention"):
            raise file.not_run(f"{name}.{KV} is {each}, not one number for all layers with attention")
        widths = by_layer(stated, INNER, layers) if "mlp" in parts else [_inner(stated, mixture)]
        inner = max(widths)
        if set(widths) - {0, inner}:
            raise file.not_run(f"{name}.{INNER} is {widths}, not one number for all MLPs")
    else:
        kv_heads, inner = stated.whole(KV, heads), _inner(stated, mixture)
    if heads % (kv_heads or heads + 1):
        raise file.damaged(f"{heads} heads cannot share {kv_heads} heads of keys")
    vocabulary = _vocabulary(file, stated)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (vocabulary, hidden), f"blk.{attends}.attn_output": (hidden, heads * width)
    }  # fmt: skip
    if mixture is not None:
        feeds = parts.index("mlp") if "mlp" in parts else mixture.dense
        shapes[f"blk.{feeds}.ffn_down_exps"] = mixture.count, hidden, mixture.width
    if mixture is None or mixture.dense:
        feeds = 0 if mixture else parts.index("mlp") if "mlp" in parts else attends
        shapes[f"blk.{feeds}.ffn_down"] = hidden, inner
    _check_widths(file, shapes)
    common = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": dim,
        "max_position_embeddings": stated.whole("context_length"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": metadata.whole("tokenizer.ggml.bos_token_id", None),
        "eos_token_id": sorted(_end_tokens(metadata)) or None,
        "pad_token_id": None,
        "dtype": _stored(file),
    }
    try:
        return architecture.config(Description(file, stated, common, rotary, width, parts, mixture))
    except StrictDataclassError as error:
        raise file.damaged(f"{error.__cause__ or error}") from error


def _architecture(file: GgufFile) -> str:
    kind = file.metadata.text("general.type", "model")
    if kind != "model":
        raise UnsupportedModel(f"{file.label} holds a {kind}, not a model", hint="give the file of the model itself")
    found: str = file.metadata.text("general.architecture")
    if found not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{file.label} is of architecture {found!r}; those that can be read are {', '.join(ARCHITECTURES)}",
            hint="give the original checkpoint, a directory with config.json and *.safetensors, if it is another model",
        )
    return found


def _refuse_unknown(file: GgufFile, name: str, architecture: Architecture) -> None:
    metadata = file.metadata
    prefix = f"{name}."
    if unknown := sorted(set(metadata.below(prefix)) - _KEYS - architecture.keys):
        found = metadata.get(prefix + unknown[0])
        raise file.not_run(f"{prefix}{unknown[0]} is {found!r:.60}, which is not known here")
    experts = metadata.whole(f"{name}.expert_count", 0)
    if experts and not architecture.experts:
        raise file.not_run(f"{name}.expert_count is {experts}, and models of this architecture have no experts")
    if not metadata.flag(f"{name}.attention.causal", True):
        raise file.not_run(f"{name}.attention.causal is false: it is no causal language model")
    if (version := metadata.whole("general.quantization_version", 2)) != 2:
        raise file.not_run(f"general.quantization_version is {version}, whose blocks are laid out otherwise")


def _mixture(file: GgufFile, stated: Metadata, layers: int) -> Mixture | None:
    """The experts that the file states; None where it has none."""
    count = stated.whole("expert_count", 0)
    if not count:
        return None
    chosen, dense = stated.count("expert_used_count"), stated.whole(DENSE, 0)
    if chosen > count or dense >= layers:
        raise file.damaged(f"{chosen} of {count} experts are used, in all but {dense} of {layers} layers")
    width = stated.count(EXPERTS_INNER if EXPERTS_INNER in stated else INNER)
    return Mixture(count, chosen, width, dense)


def _inner(stated: Metadata, mixture: Mixture | None) -> Any:
    """The width of its MLPs, which a file may leave out where all layers have experts."""
    return stated.whole(INNER) if mixture is None or mixture.dense else stated.whole(INNER, mixture.width)


def _vocabulary(file: GgufFile, stated: Metadata) -> int:
    """Rows of the embedding, which is what counts."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise DamagedModel(f"{file.label} has no matrix token_embd.weight", hint="give the file of a whole model")
    rows = embedding.shape[0]
    if stated.whole("vocab_size", rows) != rows:
        raise DamagedModel(
            f"{file.label} claims {stated.whole('vocab_size')} tokens, and its embedding has {rows} rows",
            hint="convert the model again with a current llama.cpp",
        )
    return rows


def _layers(file: GgufFile, stated: Metadata) -> int:
    """The number of layers, which the file must hold: configs and models are made layer by layer."""
    claimed: int = stated.whole("block_count")
    held = len({name.split(".")[1] for name in file.tensors if name.startswith("blk.")})
    if not 0 < claimed <= held:
        raise file.damaged(f"it claims {claimed} layers, and holds tensors of {held}")
    drafting = stated.whole(DRAFTING, 0)
    if drafting >= claimed:
        raise file.damaged(f"{drafting} of its {claimed} layers draft")
    return claimed - int(drafting)


def _check_widths(file: GgufFile, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Compare the stated widths with the first matrices, before a model of such widths is made."""
    for name, shape in shapes.items():
        tensor = file.tensors.get(f"{name}.weight")
        if tensor is None or tensor.shape != shape:
            found = "missing" if tensor is None else f"{list(tensor.shape)}, and {list(shape)} is needed"
            raise file.damaged(f"tensor '{name}.weight' is {found}")


def _stored(file: GgufFile) -> torch.dtype:
    """The dtype that most of the bytes are in; bfloat16 for all types of blocks."""
    sizes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.type.name] += tensor.data.nbytes
    return _FLOATS.get(sizes.most_common(1)[0][0], torch.bfloat16)


def _end_tokens(metadata: Metadata) -> frozenset[int]:
    """Ids of the tokens after which nothing follows: those that are named as such, and control tokens with the
    spelling of an end that the chat template writes."""
    tokens = metadata.texts("tokenizer.ggml.tokens", [])
    kinds = metadata.numbers("tokenizer.ggml.token_type", None)
    named = (metadata.whole(f"tokenizer.ggml.{key}", None) for key in _END_KEYS)
    found = {token for token in named if token is not None and token < max(len(tokens), 1)}
    template = metadata.text("tokenizer.chat_template", "")
    if kinds is not None and template:
        wanted = {end for end in _ENDS if end in template}
        found |= {
            token
            for token, (text, kind) in enumerate(zip(tokens, kinds.tolist(), strict=False))
            if kind == CONTROL and text in wanted
        }
    return frozenset(found)
