"""From a file's metadata to the config of a transformers model; or a refusal that names what is not known here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.gemma import KEYS_OF_GEMMA, gemma_config
from headstart.model.gguf.metadata import CONTROL, Metadata

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3")
"""What `general.architecture` may be. Mistral models are of architecture llama."""

_FLOATS = {"F32": torch.float32, "F16": torch.float16}

_KEYS = {
    "attention.causal", "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.layer_norm_rms_epsilon", "attention.sliding_window", "attention.value_length", "block_count",
    "context_length", "embedding_length", "expert_count", "expert_used_count", "feed_forward_length",
    "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.attn_factor", "rope.scaling.factor",
    "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.scaling.type",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "tensor_data_layout", "vocab_size",
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
    architecture = _architecture(file)
    stated = metadata.below(f"{architecture}.")
    _refuse_unknown(file, architecture)
    heads, hidden = stated.whole("attention.head_count"), stated.whole("embedding_length")
    if not heads or not hidden:
        raise file.damaged(f"{heads} heads of {hidden} numbers")
    dim = stated.whole("attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if stated.whole(key, dim) != dim:
            raise file.not_run(f"{architecture}.{key} is {stated.whole(key)}, and heads are {dim} wide")
    kv_heads, inner = stated.whole("attention.head_count_kv", heads), stated.whole("feed_forward_length")
    layers = _layers(file, stated)
    if heads % (kv_heads or heads + 1):
        raise file.damaged(f"{heads} heads cannot share {kv_heads} heads of keys")
    rows = {"attn_q": heads * dim, "attn_k": kv_heads * dim, "ffn_up": inner}
    vocabulary = _vocabulary(file, stated)
    _check_widths(file, {"token_embd": vocabulary, **{f"blk.0.{name}": rows[name] for name in rows}}, hidden)
    tied = "output.weight" not in file.tensors
    ends = sorted(_end_tokens(metadata))
    common = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": dim,
        "max_position_embeddings": stated.whole("context_length"),
        "rms_norm_eps": stated.positive("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(file, stated),
        "tie_word_embeddings": tied,
        "bos_token_id": metadata.whole("tokenizer.ggml.bos_token_id", None),
        "eos_token_id": ends or None,
        "pad_token_id": None,
        "dtype": _stored(file),
    }
    try:
        return _of(architecture, file, common, stated)
    except StrictDataclassError as error:
        raise file.damaged(f"{error.__cause__ or error}") from error


def _of(architecture: str, file: GgufFile, common: dict[str, Any], stated: Metadata) -> Any:
    if architecture in KEYS_OF_GEMMA:
        return gemma_config(architecture, file, common, stated)
    window = stated.whole("attention.sliding_window", 0) or None
    if architecture == "llama" and window is None:
        return LlamaConfig(
            **common,
            attention_bias="blk.0.attn_q.bias" in file.tensors,
            mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        )
    if architecture == "llama":
        return MistralConfig(**common, sliding_window=window)
    if window is not None:
        raise file.not_run(f"{architecture}.attention.sliding_window is {window}, which does not say in which layers")
    if architecture == "qwen2":
        return Qwen2Config(**common, use_sliding_window=False)
    return Qwen3Config(**common, use_sliding_window=False, attention_bias="blk.0.attn_q.bias" in file.tensors)


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


def _refuse_unknown(file: GgufFile, architecture: str) -> None:
    metadata = file.metadata
    prefix, known = f"{architecture}.", _KEYS | KEYS_OF_GEMMA.get(architecture, frozenset())
    if unknown := sorted(set(metadata.below(prefix)) - known):
        found = metadata.get(prefix + unknown[0])
        raise file.not_run(f"{prefix}{unknown[0]} is {found!r:.60}, which is not known here")
    if experts := metadata.whole(f"{architecture}.expert_count", 0):
        raise file.not_run(f"{architecture}.expert_count is {experts}: mixtures of experts are not read")
    if not metadata.flag(f"{architecture}.attention.causal", True):
        raise file.not_run(f"{architecture}.attention.causal is false: it is no causal language model")
    if (version := metadata.whole("general.quantization_version", 2)) != 2:
        raise file.not_run(f"general.quantization_version is {version}, whose blocks are laid out otherwise")


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
    return claimed


def _check_widths(file: GgufFile, outputs: Mapping[str, int], inputs: int) -> None:
    """Compare the stated widths with the first matrices, before a model of such widths is made."""
    for name, rows in outputs.items():
        tensor = file.tensors.get(f"{name}.weight")
        if tensor is None or tensor.shape != (rows, inputs):
            found = "missing" if tensor is None else f"{list(tensor.shape)}, and {[rows, inputs]} is needed"
            raise file.damaged(f"tensor '{name}.weight' is {found}")


def _rope(file: GgufFile, stated: Metadata) -> dict[str, Any]:
    """The rotation. What `rope_freqs.weight` does to it is no part of a config: see `weights`."""
    base = {"rope_theta": stated.positive("rope.freq_base", 10000.0)}
    kind = stated.text("rope.scaling.type", None)
    factor = stated.number("rope.scaling.factor", 0.0) or stated.number("rope.scale_linear", 0.0)
    if kind is None:
        kind = "linear" if factor else "none"
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return {"rope_type": "default", **base}
    if factor <= 0 or kind not in ("linear", "yarn"):
        raise file.not_run(f"rope.scaling.type is {kind!r} with the factor {factor:g}, which is not known here")
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor, **base}
    if stated.number("rope.scaling.attn_factor", 1.0) != 1.0:
        raise file.not_run(f"rope.scaling.attn_factor is {stated.number('rope.scaling.attn_factor'):g}")
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": stated.whole("rope.scaling.original_context_length"),
        "beta_fast": stated.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": stated.number("rope.scaling.yarn_beta_slow", 1.0),
        **base,
    }


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
