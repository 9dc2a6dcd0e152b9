"""GGUF files as llama.cpp's converter would write them, made with the package `gguf` from transformers' models."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from headstart.model.gguf.splits import SPLITS
from support import gguf_hybrids, gguf_mixtures

Q = gguf.GGMLQuantizationType

TEXTS = (
    "", " ", "  two spaces  ", "def f(x):\n    return x ** 2\t# 1234 + 5\n\n", "it's WE'LL I'd don't",
    "naïve 漢字 🙂 \u200d", "e\u0301 composed", "Ⅷ ²³½ ١٢٣ 12345", "\r\n\r\n \n", "a" * 50, "\x00\x01",
    "<|im_start|>user<|im_end|>", "<eos>x <eos>", "a_b-c.d,e;f:g!h?i", "HTTPServer getURL camelCase",
    " 1 22 333 4444", "“quotes” — dashes…",
)  # fmt: skip
"""Awkward ones, for tokenizers."""


def write(
    path: Path,
    model: Any,
    *,
    kind: Q = Q.F32,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    tokenizer: dict[str, Any] | None = None,
    leave_out: tuple[str, ...] = (),
    blocks: dict[str, tuple[np.ndarray, Q]] | None = None,
    plain: dict[str, Any] | None = None,
    split: int = 0,
) -> Path:
    """Write a model as llama.cpp's converter does. kind: of the matrices. metadata: below the architecture's name,
    instead of the model's own or beside it; plain: the same without that name. split: tensors in a file, if it is to be
    several. blocks: what matrices hold instead, and of which kind; also ones that the converter does not write."""
    config = model.config
    architecture = architecture_of(config)
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=split)
    for key, value in {**_metadata(config), **(metadata or {})}.items():
        if value is not None:
            _add(writer, f"{architecture}.{key}", value)
    for key, value in {**_xielu(model), **(plain or {})}.items():
        if value is not None:
            _add(writer, key, value)
    for key, value in (tokenizer or {}).items():
        if value is not None:
            _add(writer, f"tokenizer.{key}", value)
    written: set[str] = set()
    for name, parameter in _stored(model):
        if ".act_fn." in name:
            continue
        stored = stored_name(config, name)
        for each, values in _changed(config, name, stored, parameter.detach().float().numpy()):
            if each in leave_out:
                continue
            written.add(each)
            if each in (blocks or {}):
                writer.add_tensor(each, blocks[each][0], raw_dtype=blocks[each][1])
            elif values.ndim == 1 or each.endswith(_ALWAYS_FLOATS):
                writer.add_tensor(each, values)
            else:
                writer.add_tensor(each, gguf.quantize(values, kind), raw_dtype=kind)
    for name in (blocks or {}).keys() - written:
        writer.add_tensor(name, blocks[name][0], raw_dtype=blocks[name][1])
    for name, values in {**_extra_tensors(model), **(tensors or {})}.items():
        if name in (tensors or {}) or name not in leave_out:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_matrices(model: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each tensor that may be blocks."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            stored, values = stored_name(model.config, name), parameter.detach().numpy()
            for each, made in _changed(model.config, name, stored, values):
                if not each.endswith(_ALWAYS_FLOATS):
                    yield each, made.shape


def _changed(config: Any, name: str, stored: str, values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """What the converter writes of a parameter."""
    architecture = architecture_of(config)
    if architecture in _NEIGHBOURS and (".attn_q." in stored or ".attn_k." in stored):
        values = _interleaved(values, head_width(config))
    if architecture in _ONE_ADDED and stored.endswith("norm.weight"):
        values = values + 1
    if architecture == "gpt2" and ".h." in name and values.ndim == 2:
        values = values.T.copy()
    if ".query_key_value." in name:
        values = _apart(config, values)
    if (made := gguf_mixtures.changed(config, name, stored, values)) is not None:
        yield from made
    elif config.model_type in gguf_hybrids.ARCHITECTURES:
        yield from gguf_hybrids.changed(config, name, stored, values)
    else:
        yield stored, values


def _apart(config: Any, values: np.ndarray) -> np.ndarray:
    """All queries, then all keys, then all values, of a matrix or bias that has them by group or by head."""
    heads, dim = config.num_attention_heads, head_width(config)
    groups = heads if config.model_type == "gpt_neox" else config.num_kv_heads if config.new_decoder_architecture else 1
    each = values.reshape(groups, heads // groups + 2, dim, *values.shape[1:])
    parts = (each[:, :-2], each[:, -2:-1], each[:, -1:])
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


def _stored(model: Any) -> list[tuple[str, torch.Tensor]]:
    """Parameters, and the buffers that checkpoints hold."""
    kept = model.state_dict().keys()
    return [*model.named_parameters(), *((name, each) for name, each in model.named_buffers() if name in kept)]


_CALLED = {
    "cohere": "command-r", "gpt_bigcode": "starcoder", "gpt_neox": "gptneox", "phi": "phi2",
    "gemma3_text": "gemma3", "gemma4_text": "gemma4", "gemma4_unified_text": "gemma4",
    "hunyuan_v1_dense": "hunyuan-dense", "ministral3": "mistral3", "mistral": "llama",
    "olmo3": "olmo2", **gguf_hybrids.ARCHITECTURES, **gguf_mixtures.ARCHITECTURES,
}  # fmt: skip
_ALWAYS_FLOATS = (
    "attn_q_norm.weight", "attn_k_norm.weight", "exp_probs_b.bias", "exps.bias", "ffn_gate_inp.weight",
    "ffn_gate_inp_shexp.weight",
    "position_embd.weight", "shortconv.conv.weight", "ssm_a", "ssm_conv1d.weight",
    "ssm_conv1d_k.weight", "ssm_conv1d_q.weight", "ssm_conv1d_v.weight", "ssm_d", "ssm_norm.weight",
)  # fmt: skip
_NEIGHBOURS = (
    "arcee", "granite", "granitehybrid", "granitemoe", "llama", "mistral3", "nemotron_h", "nemotron_h_moe", "olmo",
    "smollm3",
)  # fmt: skip
"""Architectures for which llama.cpp's converter interleaves the rows of queries and keys."""
_ONE_ADDED = ("gemma", "gemma2", "gemma3", "nemotron")
"""Architectures for which it adds 1 to the gains of norms."""


def architecture_of(config: Any) -> str:
    """The architecture of files of such a model."""
    called = _CALLED.get(config.model_type, config.model_type)
    return "nemotron_h_moe" if called == "nemotron_h" and "moe" in config.layer_types else called


@cache
def _names(architecture: str, layers: int) -> gguf.TensorNameMap:
    numbers = {name: each for each, name in gguf.MODEL_ARCH_NAMES.items()}
    return gguf.get_tensor_name_map(numbers[architecture], layers)


def stored_name(config: Any, parameter: str) -> str:
    """What llama.cpp's converter calls a parameter, by the table of the package `gguf` that it uses."""
    if (stored := gguf_mixtures.stored_name(parameter)) is not None:
        return stored
    parameter = gguf_mixtures.table_name(gguf_hybrids.table_name(config, parameter))
    full = parameter if parameter.endswith((".weight", ".bias")) else f"{parameter}.weight"
    if ".shared_mlp.input_linear." in full:  # which the converter cuts up: see `gguf_hybrids.changed`
        return full.replace("model.layers.", "blk.").replace(".shared_mlp.input_linear.", ".ffn.")
    found = _names(architecture_of(config), config.num_hidden_layers).get_name(full, try_suffixes=(".weight", ".bias"))
    if parameter == "lm_head.weight":  # of which the table says nothing for models that are never converted with one
        found = "output.weight"
    assert found is not None, parameter
    return gguf_hybrids.bare(found)


def random_blocks(rng: np.random.Generator, kind: Q, outputs: int, inputs: int) -> np.ndarray:
    """Of types that the package cannot round to: random codes, and weights about 0.1 large."""
    each, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (outputs, inputs // each, size), dtype=np.uint8)
    halves = {
        Q.Q4_K: (4e-4, 2e-3), Q.Q5_K: (2e-4, 2e-3), Q.Q6_K: (), Q.IQ4_NL: (1.5e-3,), Q.IQ4_XS: (1e-4,),
        Q.Q8_0: (1e-3,), Q.Q2_K: (), Q.Q3_K: (),
    }[kind]  # fmt: skip
    for at, scale in enumerate(halves):
        data[..., 2 * at : 2 * at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    for at, scale in {Q.Q2_K: ((80, 1e-3), (82, 15e-4)), Q.Q3_K: ((108, 5e-4),)}.get(kind, ()):
        data[..., at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    if kind == Q.Q6_K:
        data[..., 208:] = np.frombuffer(np.float16(5e-5).tobytes(), np.uint8)
    return data.reshape(outputs, -1)


def quantised(model: Any, kind: Q) -> Any:
    """A copy of the model whose matrices have the numbers that a file of this kind holds, by the package `gguf`."""
    copy = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32).eval()
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            stored = stored_name(copy.config, name) if parameter.dim() > 1 else ""
            if parameter.dim() == 3 and stored.endswith("_exps.weight"):
                for matrix in parameter.mT if copy.config.model_type == "gpt_oss" else parameter:
                    matrix.copy_(_rounded(matrix, kind))
            elif name.endswith(".kv_b_proj.weight"):
                for part, turned in zip(gguf_mixtures.by_head(copy.config, parameter), (True, False), strict=True):
                    for matrix in part.mT if turned else part:
                        matrix.copy_(_rounded(matrix, kind))
            elif parameter.dim() == 2 and not stored.endswith(_ALWAYS_FLOATS):
                matrix = parameter.T if copy.config.model_type == "gpt2" and ".h." in name else parameter
                matrix.copy_(_rounded(matrix, kind))
    return copy


def _rounded(matrix: torch.Tensor, kind: Q) -> torch.Tensor:
    rows = matrix.detach().contiguous().numpy()
    return torch.from_numpy(gguf.dequantize(gguf.quantize(rows, kind), kind).copy())


def byte_level(tokenizer: Any, pre: str = "gpt-2", **more: Any) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer of transformers."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    vocabulary = tokenizer.get_vocab()
    texts = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = [(3 if added[i].special else 4) if i in added else 1 for i in range(len(texts))]
    named = {"bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id, "padding": tokenizer.pad_token_id}
    return {
        "ggml.model": "gpt2",
        "ggml.pre": pre,
        "ggml.tokens": texts,
        "ggml.token_type": kinds,
        "ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        **{f"ggml.{name}_token_id": token for name, token in named.items() if token is not None},
        **{f"ggml.{key}": value for key, value in more.items() if key != "chat_template"},
        **({"chat_template": more["chat_template"]} if "chat_template" in more else {}),
    }


@cache
def trained(pre: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that cuts text up in this way, with merges learnt from the awkward texts."""
    split = SPLITS[pre]
    backend = Tokenizer(models.BPE(ignore_merges=split.whole_words))
    backend.pre_tokenizer = split.pre_tokenizer()
    texts = [*TEXTS, "the cat sat on the mat, the dog did not; 1999 2024 " * 20, "return self.value  # a value" * 9]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<eos>", "<|im_start|>", "<|im_end|>"],
    )
    backend.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", bos_token="<|im_start|>")


_WITH_WINDOW = ("mistral", "gemma2", "gemma3_text", "phi3", "olmo3", "exaone4", "cohere2")
_WITH_KINDS = ("olmo3", "exaone4")
"""Models whose files say for each layer whether it has a window."""
_STATED = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
}
"""Keys of single architectures, by what configs call them."""


def head_width(config: Any) -> int:
    """Numbers of a head, the smaller number where layers differ."""
    if config.model_type.startswith("gemma4"):
        return min(int(each.head_dim) for each in config.per_layer_config)
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _metadata(config: Any) -> dict[str, Any]:
    """What llama.cpp's converter writes of a config, below the architecture's name."""
    dim, kind = head_width(config), config.model_type
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": 1e4}  # Nemotron-H has no positions
    rope = rope.get("full_attention", rope)
    base, part = float(rope["rope_theta"]), rope.get("partial_rotary_factor") or 1.0
    if rope.get("alpha"):  # Hunyuan: the base that comes out of it
        base *= rope["alpha"] ** (dim / (dim - 2))
    centred = [getattr(config, each, None) for each in _EPS]
    if kind == "olmo":
        centred = [1e-5]
    kinds = getattr(config, "layer_types", None) or []
    windowed = kind in _WITH_WINDOW and config.sliding_window is not None
    if kind.startswith("gemma4"):
        return _gemma4(config, dim, base)
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": _first(config, "intermediate_size", "n_inner", "ffn_hidden_size", default=None),
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": _kv_heads(config),
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.layer_norm_epsilon": next((float(each) for each in centred if each is not None), None),
        "rope.freq_base": base,
        "rope.dimension_count": int(dim * part),
        "vocab_size": config.vocab_size,
        "attention.sliding_window": config.sliding_window if windowed else None,
        "attention.sliding_window_pattern": (
            [each == "sliding_attention" for each in kinds] if windowed and kind in _WITH_KINDS else None
        ),
        "logit_scale": {"granite": "logits_scaling", "cohere": "logit_scale", "cohere2": "logit_scale"}.get(kind)
        and float(config.logits_scaling if kind == "granite" else config.logit_scale),
        **{key: getattr(config, name) for key, name in _STATED.items() if getattr(config, name, None) is not None},
        **_scaling(config, rope),
        **_of_kind(config, rope),
    }


_EPS = ("layer_norm_eps", "norm_epsilon", "norm_eps", "layer_norm_epsilon")


def _first(config: Any, *names: str, **default: Any) -> Any:
    found = (value for name in names if (value := getattr(config, name, None)) is not None)
    return next(found, *default.values())


def _kv_heads(config: Any) -> int:
    if config.model_type == "gpt_bigcode" or (config.model_type == "falcon" and not config.new_decoder_architecture):
        return 1
    return int(_first(config, "num_key_value_heads", "num_kv_heads", "num_attention_heads"))


def _of_kind(config: Any, rope: dict[str, Any]) -> dict[str, Any]:
    """What the converter writes of single kinds of models."""
    kind = config.model_type
    mixture = gguf_mixtures.metadata(config)
    if kind in gguf_hybrids.ARCHITECTURES:
        return {**mixture, **gguf_hybrids.metadata(config)}
    if kind in ("gpt_neox", "stablelm"):
        return {"use_parallel_residual": config.use_parallel_residual}
    if kind == "falcon":
        return {"tensor_data_layout": "jploski"}
    if kind in ("cohere", "cohere2", "nemotron"):
        more = {"attention.layer_norm_rms_epsilon": config.norm_eps} if kind == "nemotron" else {}
        return {"rope.scaling.type": "none", **more}
    if kind == "hunyuan_v1_dense" and rope.get("alpha"):
        longest = 256 * 1024  # which these models are said to be good for, whatever their config says
        return {
            "rope.scaling.type": "none",
            "rope.scaling.factor": 1.0,
            "rope.scaling.original_context_length": longest,
            "context_length": longest,
        }
    if kind in ("olmo3", "gemma3_text"):
        return {"rope.freq_base_swa": float(config.rope_parameters["sliding_attention"]["rope_theta"])}
    if kind == "phi3":
        origin = config.original_max_position_embeddings
        return {
            "attention.sliding_window": config.sliding_window or 0,
            "rope.scaling.original_context_length": rope.get("original_max_position_embeddings", origin),
        }
    return mixture


def _gemma4(config: Any, dim: int, base: float) -> dict[str, Any]:
    layers = list(config.per_layer_config)
    kv_heads, shared = [int(each.num_key_value_heads) for each in layers], config.num_kv_shared_layers
    wide, inner = max(int(each.head_dim) for each in layers), config.intermediate_size
    double = [inner] * (len(layers) - shared) + [2 * inner] * shared
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": double if config.use_double_wide_mlp else inner,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": kv_heads if len(set(kv_heads)) > 1 else kv_heads[0],
        "attention.key_length": wide,
        "attention.value_length": wide,
        "attention.key_length_swa": dim,
        "attention.value_length_swa": dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.sliding_window": config.sliding_window,
        "attention.sliding_window_pattern": [each == "sliding_attention" for each in config.layer_types],
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
        "final_logit_softcapping": config.final_logit_softcapping,
        "rope.freq_base": base,
        "rope.freq_base_swa": float(config.rope_parameters["sliding_attention"]["rope_theta"]),
        "rope.dimension_count": wide,
        "rope.dimension_count_swa": dim,
        "vocab_size": config.vocab_size,
        **(gguf_mixtures.metadata(config) if config.enable_moe_block else {}),
    }


def _scaling(config: Any, rope: dict[str, Any]) -> dict[str, Any]:
    kind = rope.get("rope_type", "default")
    if kind == "longrope":
        origin, longest = rope["original_max_position_embeddings"], config.max_position_embeddings
        more = math.sqrt(1 + math.log(longest / origin) / math.log(origin))
        return {"rope.scaling.original_context_length": origin, "rope.scaling.attn_factor": more}
    if kind == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    if kind != "yarn":
        return {}
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": float(rope["factor"]),
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        "rope.scaling.yarn_attn_factor": rope.get("attention_factor"),
        "rope.scaling.yarn_log_multiplier": rope.get(
            "mscale_all_dim", 0.0 if config.model_type == "ministral3" else None
        ),
        "attention.temperature_scale": rope.get("llama_4_scaling_beta"),
    }


def _extra_tensors(model: Any) -> dict[str, np.ndarray]:
    """Tensors that are no parameters: what frequencies are divided by."""
    rope = getattr(model.config, "rope_parameters", None) or {}
    if model.config.model_type.startswith("gemma4"):
        half = max(int(each.head_dim) for each in model.config.per_layer_config) // 2
        turned = int(half * rope["full_attention"]["partial_rotary_factor"])
        return {"rope_freqs.weight": np.float32([1.0] * turned + [1e30] * (half - turned))}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{each}.weight": np.float32(rope[f"{each}_factor"]) for each in ("long", "short")}
    if rope.get("rope_type") != "llama3":
        return {}
    dim = head_width(model.config)
    plain = rope["rope_theta"] ** (-torch.arange(0, dim, 2) / dim)
    return {"rope_freqs.weight": (plain / model.model.rotary_emb.inv_freq).numpy()}


def _xielu(model: Any) -> dict[str, list[float]]:
    """The numbers of Apertus' activations, which stand in the metadata without the architecture's name."""
    each = (getattr(getattr(layer, "mlp", None), "act_fn", None) for layer in getattr(model.base_model, "layers", ()))
    found = [module for module in each if hasattr(module, "alpha_p")]
    names = ("alpha_p", "alpha_n", "beta", "eps") if found else ()
    return {f"xielu.{name}": [float(getattr(each, name)) for each in found] for name in names}


def _interleaved(values: np.ndarray, dim: int) -> np.ndarray:
    """Rows as architecture llama stores those of queries and keys: neighbours rotate together."""
    heads = len(values) // dim
    return values.reshape(heads, 2, dim // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, np.uint64):
        writer.add_uint64(key, int(value))
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
