"""Write a model with random weights and the shape of a real one: a folder, a GGUF file, or both.

    pip install gguf
    python tools/random_model.py llama-3.2-1b --folder DIR
    python tools/random_model.py gemma-3-1b --gguf FILE.gguf --type Q4_0
    python tools/random_model.py qwen3-0.6b --folder DIR --layers 4 --vocabulary 32000     # shallower, and fewer tokens
    python tools/random_model.py gemma-4-e2b --folder DIR --tiny      # every kind of layer, a few megabytes
    python tools/random_model.py qwen3.5-0.8b --folder DIR --mtp      # with the MTP head beside the model

How fast a model runs does not depend on what its weights say, so a random model is as fast as the real one: see
benchmarks/shapes.py. Only the shapes are those of the published models. The weights are drawn from N(0, 0.02), norms
multiply by 1, the long factors of Phi's rotation are a plain geometric series, and the tokenizer is one of single
bytes, padded to the size of the vocabulary: what such a model writes is noise.

Tensors are drawn and written a few rows at a time, so the memory that this takes does not grow with the model. A GGUF
file has one type for all matrices (llama.cpp's `--pure`), but for those whose rows are no multiple of a block, which
have the type that llama.cpp falls back to; Q4_K_M is the mix that llama.cpp writes under that name. Types that the
package `gguf` cannot round to (the K and IQ types) are blocks of random codes, with scales that give them the spread of
the other types.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import gguf
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast

from headstart.model.coded import model_class, without_memory

Q = gguf.GGMLQuantizationType

SPREAD = 0.02
AT_ONCE = 1 << 22
"""Numbers that are drawn and written at a time."""

END = "<|end|>"
MERGE = ("Ġ", "Ġ")
"""The one merge of the tokenizer: llama.cpp does not read a vocabulary without any."""

CHAT = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""The chat template, so that a random model can be chatted with and served as one that was trained to chat."""

SMALLEST_VOCABULARY = 258
"""All bytes, what the merge makes, and the end of a text."""


def _default(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _kinds(layers: int, period: int) -> list[str]:
    """Every period-th layer attends to everything, the others to a window."""
    return ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)]


def _qwen3_5(
    hidden: int, intermediate: int, layers: int = 24, heads: int = 8, kv_heads: int = 2, value_heads: int = 16
) -> dict[str, Any]:
    return {
        "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 256,
        "linear_num_key_heads": 16, "linear_num_value_heads": value_heads, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "layer_types": ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)],
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
    }  # fmt: skip


_GRANITE_H: dict[str, Any] = {
    "model_type": "granitemoehybrid", "vocab_size": 100352, "num_local_experts": 0, "num_experts_per_tok": 0,
    "num_attention_heads": 12, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
    "position_embedding_type": "nope", "embedding_multiplier": 12.0, "mamba_n_heads": 48, "mamba_d_state": 128,
    "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "rope_parameters": _default(1e4),
}  # fmt: skip

_LFM2: dict[str, Any] = {
    "num_hidden_layers": 16, "num_key_value_heads": 8, "conv_L_cache": 3, "max_position_embeddings": 128000,
    "norm_eps": 1e-5, "tie_word_embeddings": True, "block_auto_adjust_ff_dim": True, "block_multiple_of": 256,
    "block_ffn_dim_multiplier": 1.0, "rope_parameters": _default(1e6),
    "layer_types": ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)],
}  # fmt: skip

SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": {
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        },
    },
    "qwen3-0.6b": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "rope_parameters": _default(1e6),
    },
    "qwen3-1.7b": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "rope_parameters": _default(1e6),
    },
    "gemma-3-1b": {
        "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256, "sliding_window": 512, "layer_types": _kinds(26, 6),
        "rope_parameters": {"sliding_attention": _default(1e4), "full_attention": _default(1e6)},
    },
    "gemma-4-e2b": {
        "model_type": "gemma4_text", "vocab_size": 262144, "vocab_size_per_layer_input": 262144, "hidden_size": 1536,
        "intermediate_size": 6144, "hidden_size_per_layer_input": 256, "use_double_wide_mlp": True,
        "num_hidden_layers": 35, "num_kv_shared_layers": 20, "num_attention_heads": 8, "num_key_value_heads": 1,
        "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True, "sliding_window": 512, "layer_types": _kinds(35, 5),
        "final_logit_softcapping": 30.0,
        "rope_parameters": {
            "sliding_attention": _default(1e4),
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        },
    },
    "phi-4-mini": {
        "model_type": "phi3", "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True, "sliding_window": 262144,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 4096, "short_factor": [1.0] * 48,
            "long_factor": [round(min(48.0, 48 ** (i / 32)), 4) for i in range(48)],
        },
    },
    "lfm2-350m": {
        "model_type": "lfm2", "vocab_size": 65536, "hidden_size": 1024, "intermediate_size": 6656,
        "num_attention_heads": 16, **_LFM2,
    },
    "lfm2-1.2b": {
        "model_type": "lfm2", "vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 12288,
        "num_attention_heads": 32, **_LFM2,
    },
    "qwen3.5-0.8b": _qwen3_5(1024, 3584),
    "qwen3.5-2b": _qwen3_5(2048, 6144),
    "qwen3.5-4b": _qwen3_5(2560, 9216, layers=32, heads=16, kv_heads=4, value_heads=32),
    "falcon-h1-0.5b": {  # its muP factors are no shape: those that are 1 by default stand for all
        "model_type": "falcon_h1", "vocab_size": 32784, "hidden_size": 1024, "intermediate_size": 2048,
        "num_hidden_layers": 36, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
        "mamba_d_conv": 4, "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
        "rope_parameters": _default(1e11),
    },
    "granite-4-h-350m": {
        **_GRANITE_H, "hidden_size": 768, "intermediate_size": 2048, "shared_intermediate_size": 2048,
        "num_hidden_layers": 32, "max_position_embeddings": 32768, "attention_multiplier": 0.015625,
        "logits_scaling": 3.0, "residual_multiplier": 0.246, "mamba_d_head": 32,
        "layer_types": ["full_attention" if i in (10, 13, 17, 27) else "linear_attention" for i in range(32)],
    },
    "granite-4-h-1b": {
        **_GRANITE_H, "hidden_size": 1536, "intermediate_size": 4096, "shared_intermediate_size": 4096,
        "num_hidden_layers": 40, "max_position_embeddings": 131072, "attention_multiplier": 0.0078125,
        "logits_scaling": 6.0, "residual_multiplier": 0.22, "mamba_d_head": 64,
        "layer_types": ["full_attention" if i in (5, 15, 25, 35) else "linear_attention" for i in range(40)],
    },
    "smollm3-3b": {
        "model_type": "smollm3", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
        "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4, "no_rope_layer_interval": 4,
        "max_position_embeddings": 65536, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "rope_parameters": _default(5e6),
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
        "rope_parameters": _default(1e6),
    },
    "qwen3.6-35b-a3b": {
        **{key: value for key, value in _qwen3_5(2048, 0, 40, 16, 2, 32).items() if key != "intermediate_size"},
        "model_type": "qwen3_5_moe_text", "tie_word_embeddings": False, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    },
    "lfm2-8b-a1b": {
        "model_type": "lfm2_moe", "vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168,
        "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 8, "conv_L_cache": 3,
        "max_position_embeddings": 128000, "norm_eps": 1e-5, "tie_word_embeddings": True, "num_experts": 32,
        "num_experts_per_tok": 4, "moe_intermediate_size": 1792, "num_dense_layers": 2, "use_expert_bias": True,
        "norm_topk_prob": True, "routed_scaling_factor": 1.0, "rope_parameters": _default(1e6),
        "layer_types": ["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)],
    },
    "granite-4-tiny": {
        **_GRANITE_H, "hidden_size": 1536, "intermediate_size": 512, "shared_intermediate_size": 1024,
        "num_hidden_layers": 40, "max_position_embeddings": 131072, "attention_multiplier": 0.0078125,
        "logits_scaling": 6.0, "residual_multiplier": 0.22, "mamba_d_head": 64, "num_local_experts": 64,
        "num_experts_per_tok": 6,
        "layer_types": ["full_attention" if i in (5, 15, 25, 35) else "linear_attention" for i in range(40)],
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": 128,
        "num_local_experts": 32, "num_experts_per_tok": 4, "layer_types": ["sliding_attention", "full_attention"] * 12,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 4096,
        },
    },
}  # fmt: skip
"""By name: what the published config.json of each says of its shape."""

TINY: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "global_head_dim": 128, "hidden_size_per_layer_input": 32, "query_pre_attn_scalar": 64, "sliding_window": 32,
    "shared_intermediate_size": 512, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64,
    "linear_value_head_dim": 64, "mamba_n_heads": 16, "mamba_d_head": 32, "mamba_d_state": 32,
    "mamba_d_ssm": 512, "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256,
}  # fmt: skip
"""Other numbers for a tiny model, of those that a shape has. Rows hold whole blocks of 256."""

TINY_LAYERS, TINY_VOCABULARY = 6, 512

ARCHITECTURES = {
    "falcon_h1": "falcon-h1", "gemma3_text": "gemma3", "gemma4_text": "gemma4", "granitemoehybrid": "granitehybrid",
    "glm4_moe": "glm4moe", "gpt_oss": "gpt-oss", "granitemoeshared": "granitemoe", "lfm2_moe": "lfm2moe",
    "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_5_moe_text": "qwen35moe", "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe",
}  # fmt: skip
"""What GGUF files call a `model_type`, where it is not the same."""


def config_of(name: str, *, layers: int | None = None, vocabulary: int | None = None, tiny: bool = False) -> Any:
    """The config of transformers of one of the `SHAPES`.

    layers: instead of all. vocabulary: tokens instead of the model's own, at least `SMALLEST_VOCABULARY`. tiny: a model
    of a few megabytes with layers of the same kinds.
    """
    shape = dict(SHAPES[name])
    if tiny:
        shape |= {key: value for key, value in TINY.items() if shape.get(key)}
        layers, vocabulary = layers or TINY_LAYERS, vocabulary or TINY_VOCABULARY
        if "short_factor" in (rope := dict(shape["rope_parameters"])):
            turned = int(shape["hidden_size"] // shape["num_attention_heads"] * rope["partial_rotary_factor"]) // 2
            cut = {key: rope[key][:turned] for key in ("short_factor", "long_factor")}
            shape["rope_parameters"] = {**rope, **cut}
    if layers is not None:
        shape |= _cut(shape, layers)
    if vocabulary is not None:
        sizes = ("vocab_size", "vocab_size_per_layer_input")
        shape |= {key: vocabulary for key in sizes if key in shape}
    config = AutoConfig.for_model(**shape, bos_token_id=None, eos_token_id=SMALLEST_VOCABULARY - 1, pad_token_id=None)
    config.architectures = [model_class(config).__name__]
    return config


def _cut(shape: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The fields of a model of fewer layers, or more: kinds of layers repeat, and the same share of them attends to
    the keys of others, as long as there is a layer of each kind that has its own."""
    found: dict[str, Any] = {"num_hidden_layers": layers}
    if (kinds := shape.get("layer_types")) is not None and "sliding_attention" not in kinds:
        found["layer_types"] = [kinds[i % len(kinds)] for i in range(layers)]
        if "full_attention" not in found["layer_types"]:
            found["layer_types"][-1] = "full_attention"
    elif kinds is not None:
        period = kinds.index("full_attention") + 1
        found["layer_types"] = _kinds(layers, period)
        if "num_kv_shared_layers" in shape:
            own = round(layers * (1 - shape["num_kv_shared_layers"] / len(kinds)) / period) * period
            found["num_kv_shared_layers"] = max(0, layers - max(own, period))
            found["layer_types"][-1] = "full_attention"  # as transformers wants it
    return found


def tensors_of(config: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint of this model holds; tied ones once."""
    model = without_memory(config)
    kept = model.state_dict().keys()
    both = (*model.named_parameters(), *((name, each) for name, each in model.named_buffers() if name in kept))
    return {name: tuple(each.shape) for name, each in both}


def mtp_tensors_of(config: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the MTP head that the checkpoints of this family hold: a layer with attention,
    the matrix before it, and its norms."""
    width = config.hidden_size
    found: dict[str, tuple[int, ...]] = {"mtp.fc.weight": (width, 2 * width)}
    found |= {f"mtp.{name}.weight": (width,) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
    own = f"model.layers.{config.layer_types.index('full_attention')}."
    return found | {
        name.replace(own, "mtp.layers.0.", 1): shape
        for name, shape in tensors_of(config).items()
        if name.startswith(own)
    }


@dataclass
class Numbers:
    """Draws tensors, some rows at a time."""

    generator: torch.Generator
    gain: float
    """What norms' weights, and other tensors that multiply, are."""

    @classmethod
    def of(cls, config: Any, seed: int) -> Numbers:
        """As a checkpoint of transformers stores them: norms of Gemma 3 and Qwen3.5 multiply by 1 + weight."""
        added = config.model_type in ("gemma3_text", "qwen3_5_text", "qwen3_5_moe_text")
        return cls(torch.Generator().manual_seed(seed), 0.0 if added else 1.0)

    def rows(self, name: str, shape: Sequence[int]) -> Iterator[Tensor]:
        """Slices along the first axis, float32."""
        if name.endswith(FLOATS) or (len(shape) < 2 and not name.endswith(".bias")):
            stored = {"linear_attn.norm.weight": 1.0, "ssm_a": -1.0}  # files hold -exp of a decay
            gain = next((each for end, each in stored.items() if name.endswith(end)), self.gain)
            yield torch.full(tuple(shape), gain)
            return
        for count in _pieces(shape):
            yield torch.empty(count, *shape[1:]).normal_(0, SPREAD, generator=self.generator)


def _pieces(shape: Sequence[int]) -> Iterator[int]:
    step = max(1, AT_ONCE // math.prod(shape[1:]))
    for first in range(0, shape[0], step):
        yield min(step, shape[0] - first)


def write_folder(
    folder: Path, config: Any, *, dtype: torch.dtype = torch.bfloat16, seed: int = 0, progress: Progress | None = None
) -> None:
    """A checkpoint as transformers reads it, with a tokenizer. The folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    config.dtype = dtype
    config.save_pretrained(folder)
    GenerationConfig(eos_token_id=config.eos_token_id).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    named = tensors_of(config)
    if getattr(config, "mtp_num_hidden_layers", 0):
        named |= mtp_tensors_of(config)
    header, total = safetensors_header(named, dtype)
    task = None if progress is None else progress.add_task(folder.name, total=total)
    numbers = Numbers.of(config, seed)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(header)
        for name, shape in named.items():
            for rows in numbers.rows(name, shape):
                data = rows.to(dtype).reshape(-1).view(torch.uint8).numpy()
                data.tofile(file)
                if progress is not None and task is not None:
                    progress.advance(task, data.nbytes)


def safetensors_header(named: Mapping[str, Sequence[int]], dtype: torch.dtype) -> tuple[bytes, int]:
    """What a safetensors file with these tensors in this order begins with, and the bytes that follow it."""
    kind = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}[dtype]
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in named.items():
        end = at + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, at


def _tokenizer() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = [*alphabet, "".join(MERGE)]
    backend = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, [MERGE]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, chat_template=CHAT)


def write_gguf(
    path: Path, config: Any, kind: str, *, seed: int = 0, progress: Progress | None = None
) -> dict[str, int]:
    """A GGUF file as llama.cpp's converter would write it, its matrices of type `kind`, or mixed. Returns how many
    weights are of each type."""
    architecture = ARCHITECTURES.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in ((key, value) for key, value in _metadata(config).items() if value is not None):
        _add(writer, f"{architecture}.{key}", value)
    _add_tokenizer(writer, config.vocab_size)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    number = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    mixed = kind == MIX
    plan: list[tuple[str, tuple[int, ...], Q]] = []
    for name, shape in tensors_of(config).items():
        if experts := list(_experts_stored(config, name, shape)):
            for each, own in experts:
                type_ = mixed_type(each, config.num_hidden_layers, config.tie_word_embeddings) if mixed else Q[kind]
                plan.append((each, own, Q.F32 if each.endswith(ROUTERS) else fitting(type_, own)))
            continue
        full = name.replace(".dt_bias", ".dt_proj.bias")
        full = full if full.endswith((".weight", ".bias")) else f"{full}.weight"
        stored = names.get_name(full, try_suffixes=(".weight", ".bias"))
        if stored is None and ".input_linear." not in name:
            raise SystemExit(f"the package gguf has no name for {name} of architecture {architecture}")
        for each, own in _as_stored(config, name, stored or "", shape):
            type_ = mixed_type(each, config.num_hidden_layers, config.tie_word_embeddings) if mixed else Q[kind]
            floats = each.endswith((*FLOATS, *CONVOLUTIONS, *ROUTERS))
            plan.append((each, own, Q.F32 if floats else fitting(type_, own)))
    extra = _factors(config)
    counts: dict[str, int] = {}
    for stored, shape, each in plan:
        writer.add_tensor_info(stored, shape, np.dtype(np.float32), _size(shape, each), raw_dtype=each)
        counts[each.name] = counts.get(each.name, 0) + math.prod(shape)
    for stored, values in extra.items():
        writer.add_tensor_info(stored, values.shape, values.dtype, values.nbytes, raw_dtype=Q.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    file = writer.fout[0]
    writer.write_padding(file, file.tell())
    total = sum(_size(shape, each) for _, shape, each in plan)
    task = None if progress is None else progress.add_task(path.name, total=total)
    numbers = Numbers(torch.Generator().manual_seed(seed), 1.0)  # files hold what norms multiply by
    for stored, shape, each in plan:
        for data in _encoded(numbers, stored, shape, each):
            _append(file, data)
            if progress is not None and task is not None:
                progress.advance(task, data.nbytes)
        writer.write_padding(file, _size(shape, each))
    for values in extra.values():
        _append(file, values)
        writer.write_padding(file, values.nbytes)
    writer.close()
    return counts


FLOATS = ("ssm_a", "ssm_d", "ssm_norm.weight")
CONVOLUTIONS = ("shortconv.conv.weight", "ssm_conv1d.weight")
ROUTERS = ("exps.bias", "exps.scale", "ffn_gate_inp.scale", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")
"""Tensors that are floats in every file; the first are drawn as norms are."""


def _experts_stored(config: Any, name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The same of a parameter of experts, or of what chooses them, whose names the package's table does not have."""
    if not name.startswith("model.layers."):
        return
    _, _, layer, inner = name.split(".", 3)
    block, last = f"blk.{layer}", inner.rpartition(".")[2]
    scales = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}
    if inner in scales:
        yield f"{block}.{scales[inner]}", shape
    elif last in ("e_score_correction_bias", "expert_bias"):
        yield f"{block}.exp_probs_b.bias", (math.prod(shape),)
    elif inner == "block_sparse_moe.router.weight":
        yield f"{block}.ffn_gate_inp.weight", shape
    elif inner.startswith("shared_mlp.") and config.num_local_experts:
        halves = ("ffn_gate_shexp", "ffn_up_shexp") if "input_linear" in inner else ("ffn_down_shexp",)
        yield from ((f"{block}.{each}.weight", (shape[0] // len(halves), shape[1])) for each in halves)
    elif "experts." in inner and "shared_experts." not in inner:
        ending = "bias" if last.endswith("_bias") else "weight"
        count, outputs, *inputs = (shape[0], *reversed(shape[1:])) if config.model_type == "gpt_oss" else shape
        if last.startswith("down"):
            yield f"{block}.ffn_down_exps.{ending}", (count, outputs, *inputs)
        elif config.model_type == "gemma4_text":
            yield f"{block}.ffn_gate_up_exps.{ending}", (count, outputs, *inputs)
        else:
            yield from ((f"{block}.{each}_exps.{ending}", (count, outputs // 2, *inputs)) for each in GATE_UP)


GATE_UP = ("ffn_gate", "ffn_up")


def _as_stored(config: Any, name: str, stored: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of what the converter makes of a parameter."""
    block = f"blk.{name.split('.')[2]}" if name.startswith("model.layers.") else ""
    granite = config.model_type == "granitemoehybrid"
    if ".input_linear." in name:
        yield from ((f"{block}.{each}.weight", (shape[0] // 2, shape[1])) for each in ("ffn_gate", "ffn_up"))
    elif ".output_linear." in name:
        yield f"{block}.ffn_down.weight", shape
    elif len(shape) == 3:
        yield stored, (shape[0], shape[2])
    elif stored.endswith((".ssm_a.weight", ".ssm_d.weight")):
        yield stored.removesuffix(".weight"), (*shape, 1) if granite else shape
    elif granite and stored.endswith(".ssm_norm.weight"):
        yield stored, (config.mamba_n_groups, shape[0] // config.mamba_n_groups)
    else:
        yield stored, shape


def _append(file: BinaryIO, data: np.ndarray) -> None:
    file.write(memoryview(np.ascontiguousarray(data)).cast("B"))


def _size(shape: Sequence[int], kind: Q) -> int:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    return math.prod(shape) // block * size


FALLBACK = {
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL",
}  # fmt: skip
"""What llama.cpp takes instead where a row is no multiple of 256 numbers."""

SCALES: dict[str, tuple[int, int | None]] = {
    "Q2_K": (80, 82), "Q3_K": (108, None), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208, None), "IQ4_NL": (0, None),
    "IQ4_XS": (0, None),
}  # fmt: skip
"""Types that the package `gguf` cannot round to: the byte of a block where the float16 scale of its codes stands, and
that of its minimums, if there are any."""

DRAWN = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
"""Types that the package `gguf` rounds to."""


MIX = "Q4_K_M"


def mixed_type(stored: str, layers: int, tied: bool) -> Q:
    """The type of a matrix in a file of Q4_K_M, as llama.cpp's `llama_tensor_get_type` has it: more bits for the head,
    and for the values and the last product of half of the layers."""
    if stored == ("token_embd.weight" if tied else "output.weight"):
        return Q.Q6_K
    if stored.endswith("attn_qkv.weight"):
        return Q.Q5_K
    if stored.endswith(("attn_v.weight", "ffn_down.weight", "ffn_down_exps.weight")):
        layer, edge = int(stored.split(".")[1]), layers // 8
        if layer < edge or layer >= 7 * layers // 8 or (layer - edge) % 3 == 2:
            return Q.Q6_K
    return Q.Q4_K


def fitting(kind: Q, shape: Sequence[int]) -> Q:
    """The type of a tensor in a file of that type."""
    if len(shape) < 2:
        return Q.F32
    if shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0:
        return kind
    other = Q[FALLBACK.get(kind.name, "F16")]
    return other if shape[-1] % gguf.GGML_QUANT_SIZES[other][0] == 0 else Q.F16


def _encoded(numbers: Numbers, name: str, shape: Sequence[int], kind: Q) -> Iterator[np.ndarray]:
    if kind.name in SCALES:
        scale, minimum = block_scales(kind)
        for rows in _pieces(shape):
            count = rows * math.prod(shape[1:]) // gguf.GGML_QUANT_SIZES[kind][0]
            yield random_blocks(kind, count, numbers, scale, minimum)
        return
    for rows in numbers.rows(name, shape):
        yield gguf.quantize(rows.numpy().reshape(-1, shape[-1] if shape else 1), kind)


def random_blocks(kind: Q, count: int, numbers: Numbers, scale: float, minimum: float) -> np.ndarray:
    """Blocks of random bytes [count, bytes of a block], with this float16 scale and this scale of the minimums."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = torch.empty(count, size, dtype=torch.uint8).random_(0, 256, generator=numbers.generator).numpy()
    for place, value in zip(SCALES[kind.name], (scale, minimum), strict=True):
        if place is not None:
            blocks[:, place : place + 2] = np.float16(value).reshape(1).view(np.uint8)
    return blocks


def block_scales(kind: Q) -> tuple[float, float]:
    """The scale, and that of the minimums, that give random codes the spread of the other types and, where there are
    minimums, the mean 0. The tables of the IQ types have a mean that is a little below 0."""

    def weights(scale: float, minimum: float) -> np.ndarray:
        numbers = Numbers(torch.Generator().manual_seed(0), 1.0)
        return gguf.dequantize(random_blocks(kind, 1024, numbers, scale, minimum), kind)

    ratio = 0.0
    if SCALES[kind.name][1] is not None:
        ratio = -float(weights(1.0, 0.0).mean() / weights(0.0, 1.0).mean())
    scale = SPREAD / float(weights(1.0, ratio).std())
    return scale, ratio * scale


def _metadata(config: Any) -> dict[str, Any]:
    """What a file states below the name of its architecture."""
    rope = config.rope_parameters
    full = rope.get("full_attention", rope)
    dim, widest = min(dims := _head_widths(config)), max(dims)
    found = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", None),
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.layer_norm_rms_epsilon": float(getattr(config, "rms_norm_eps", None) or config.norm_eps),
        "rope.freq_base": float(full["rope_theta"]),
        "rope.dimension_count": dim,
        "vocab_size": config.vocab_size,
    }
    found |= _of_mixtures(config) | _of_hybrids(config)
    if config.model_type in ("gemma3_text", "gemma4_text", "phi3"):
        found["attention.sliding_window"] = config.sliding_window
    if config.model_type in ("gemma3_text", "gemma4_text"):
        found["rope.freq_base_swa"] = float(rope["sliding_attention"]["rope_theta"])
    if config.model_type == "phi3":
        original = rope["original_max_position_embeddings"]
        stretch = config.max_position_embeddings / original
        found |= {
            "rope.dimension_count": int(dim * rope["partial_rotary_factor"]),
            "rope.scaling.original_context_length": original,
            "rope.scaling.attn_factor": math.sqrt(1 + math.log(stretch) / math.log(original)),
        }
    if config.model_type == "gemma4_text":
        own, wide = config.num_hidden_layers - config.num_kv_shared_layers, 1 + config.use_double_wide_mlp
        inner = config.intermediate_size
        found |= {
            "feed_forward_length": [inner * (1 if i < own else wide) for i in range(config.num_hidden_layers)],
            "attention.key_length": widest,
            "attention.value_length": widest,
            "attention.key_length_swa": dim,
            "attention.value_length_swa": dim,
            "attention.shared_kv_layers": config.num_kv_shared_layers,
            "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types],
            "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
            "rope.dimension_count": widest,
            "rope.dimension_count_swa": dim,
            "final_logit_softcapping": float(config.final_logit_softcapping),
        }
    return found


_COUNTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "top_k_experts", "moe_k")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size")


def _of_mixtures(config: Any) -> dict[str, Any]:
    """What files of models with experts state beside it."""
    kind, count = config.model_type, next((n for name in _COUNTS if (n := getattr(config, name, None))), None)
    if not count:
        return {}
    found = {
        "expert_count": count,
        "expert_used_count": next(n for name in _CHOSEN if (n := getattr(config, name, None))),
        "expert_feed_forward_length": getattr(config, "moe_intermediate_size", None),
        "expert_shared_feed_forward_length": next(
            (n for name in _SHARED_WIDTH if (n := getattr(config, name, 0))), None
        ),
    }
    if kind == "gpt_oss":
        rope = config.rope_parameters
        found |= {
            "expert_feed_forward_length": config.intermediate_size,
            "attention.sliding_window": config.sliding_window,
        }
        if rope["rope_type"] == "yarn":
            found |= {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": float(rope["factor"]),
                "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
            }
    if kind == "lfm2_moe":
        found |= {"expert_gating_func": SIGMOID, "leading_dense_block_count": config.num_dense_layers}
    if kind == "glm4_moe":
        found |= {
            "expert_gating_func": SIGMOID,
            "expert_group_count": config.n_group,
            "expert_group_used_count": config.topk_group,
            "expert_shared_count": config.n_shared_experts,
            "expert_weights_norm": config.norm_topk_prob,
            "expert_weights_scale": float(config.routed_scaling_factor),
            "leading_dense_block_count": config.first_k_dense_replace,
            "rope.dimension_count": int(config.head_dim * config.rope_parameters["partial_rotary_factor"]),
        }
    if kind in ("granitemoe", "granitemoeshared"):
        found |= _factors_of_granite(config)
    return found


SIGMOID = int(gguf.ExpertGatingFuncType.SIGMOID)


def _factors_of_granite(config: Any) -> dict[str, Any]:
    return {
        "attention.scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "logit_scale": config.logits_scaling,
        "residual_scale": config.residual_multiplier,
    }


def _of_hybrids(config: Any) -> dict[str, Any]:
    """What files of models with recurrent layers state otherwise, or beside it."""
    kind = config.model_type
    if kind == "falcon_h1":
        return _sizes(
            config.mamba_d_conv, config.mamba_n_groups, config.mamba_d_ssm, config.mamba_d_state, config.mamba_n_heads
        )
    if kind not in ("granitemoehybrid", "lfm2", "lfm2_moe", "qwen3_5_moe_text", "qwen3_5_text"):
        return {}
    kv_heads = [config.num_key_value_heads if each == "full_attention" else 0 for each in config.layer_types]
    if kind == "lfm2_moe":
        return {"attention.head_count_kv": kv_heads, "shortconv.l_cache": config.conv_L_cache}
    if kind == "lfm2":
        width = int(config.block_ffn_dim_multiplier * int(2 * config.intermediate_size / 3))
        return {
            "attention.head_count_kv": kv_heads,
            "feed_forward_length": -(-width // config.block_multiple_of) * config.block_multiple_of,
            "shortconv.l_cache": config.conv_L_cache,
        }
    if kind == "granitemoehybrid":
        return {
            "attention.head_count_kv": kv_heads,
            "context_length": 2**20,  # without positions there is no limit
            "expert_count": config.num_local_experts,
            "expert_used_count": config.num_experts_per_tok,
            "expert_shared_feed_forward_length": config.shared_intermediate_size,
            **_factors_of_granite(config),
            "rope.scaling.finetuned": False,
            **_sizes(
                config.mamba_d_conv, config.mamba_n_groups, config.mamba_n_heads * config.mamba_d_head,
                config.mamba_d_state, config.mamba_n_heads,
            ),
        }  # fmt: skip
    heads, rope = config.linear_num_value_heads, config.rope_parameters
    return {
        "attention.recurrent_layers": [each == "linear_attention" for each in config.layer_types],
        "full_attention_interval": 4,
        "rope.dimension_count": int(config.head_dim * rope["partial_rotary_factor"]),
        "rope.dimension_sections": [*rope["mrope_section"], 0],
        **_sizes(
            config.linear_conv_kernel_dim, config.linear_num_key_heads, heads * config.linear_value_head_dim,
            config.linear_key_head_dim, heads,
        ),
    }  # fmt: skip


def _sizes(taps: int, groups: int, inner: int, state: int, heads: int) -> dict[str, int]:
    return {
        "ssm.conv_kernel": taps, "ssm.group_count": groups, "ssm.inner_size": inner, "ssm.state_size": state,
        "ssm.time_step_rank": heads,
    }  # fmt: skip


def _head_widths(config: Any) -> list[int]:
    """Of each layer."""
    if config.model_type == "gemma4_text":
        return [int(config.per_layer_config[i].head_dim) for i in range(config.num_hidden_layers)]
    return [getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads]


def _factors(config: Any) -> dict[str, np.ndarray]:
    """What files say of the rotation in tensors: by what each frequency is divided."""
    rope = config.rope_parameters
    if config.model_type == "phi3":
        names = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}
        return {stored: np.float32(rope[name]) for name, stored in names.items()}
    if config.model_type == "gemma4_text":
        half = max(_head_widths(config)) // 2
        turned = int(half * rope["full_attention"]["partial_rotary_factor"])
        return {"rope_freqs.weight": np.float32([1.0] * turned + [1e30] * (half - turned))}
    if rope.get("rope_type") == "llama3":
        wave = 2 * math.pi * rope["rope_theta"] ** (np.arange(0, config.head_dim, 2) / config.head_dim)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] / wave
        part = np.clip((turns - low) / (high - low), 0, 1)  # 1: frequencies that stay as they are
        return {"rope_freqs.weight": np.float32(1 / ((1 - part) / rope["factor"] + part))}
    return {}


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    tokenizer = _tokenizer()
    pieces = tokenizer.convert_ids_to_tokens(list(range(SMALLEST_VOCABULARY)))
    padding = [f"[PAD{i}]" for i in range(SMALLEST_VOCABULARY, vocabulary)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*pieces, *padding])
    kinds = gguf.TokenType
    ordinary = [kinds.NORMAL] * (SMALLEST_VOCABULARY - 1)
    writer.add_token_types([*ordinary, kinds.CONTROL, *[kinds.UNUSED] * len(padding)])
    writer.add_token_merges([" ".join(MERGE)])
    writer.add_eos_token_id(SMALLEST_VOCABULARY - 1)
    writer.add_chat_template(CHAT)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("--folder", type=Path, help="write a checkpoint of transformers here; it must hold none yet")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16", help="(%(default)s)")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="write a GGUF file; it must not exist yet")
    parser.add_argument(
        "--type", choices=[*DRAWN, *SCALES, MIX], default="Q4_0", help="of the file's matrices (%(default)s)"
    )
    parser.add_argument("--layers", type=int, help="instead of the model's own number")
    parser.add_argument("--vocabulary", type=int, help=f"tokens, at least {SMALLEST_VOCABULARY}")
    parser.add_argument("--mtp", action="store_true", help="write an MTP head into the folder, too (Qwen3.5)")
    parser.add_argument("--tiny", action="store_true", help="a few megabytes with layers of the same kinds")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    args = parser.parse_args(argv)
    if args.folder is None and args.gguf is None:
        parser.error("say where to: --folder, --gguf, or both")
    if (args.folder is not None and (args.folder / "config.json").exists()) or (args.gguf and args.gguf.exists()):
        parser.error("there is a model already")
    for option, least in (("layers", 1), ("vocabulary", SMALLEST_VOCABULARY)):
        if getattr(args, option) is not None and getattr(args, option) < least:
            parser.error(f"--{option} must be at least {least}")
    config = config_of(args.shape, layers=args.layers, vocabulary=args.vocabulary, tiny=args.tiny)
    if args.mtp:
        if config.model_type != "qwen3_5_text" or args.folder is None:
            parser.error("--mtp is for folders of Qwen3.5")
        config.mtp_num_hidden_layers = 1
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress:
        if args.folder is not None:
            write_folder(args.folder, config, dtype=getattr(torch, args.dtype), seed=args.seed, progress=progress)
            console.print(
                f"{args.folder}: {_millions(tensors_of(config))} weights in {args.dtype}",
                highlight=False,
                soft_wrap=True,
            )
        if args.gguf is not None:
            args.gguf.parent.mkdir(parents=True, exist_ok=True)
            counts = write_gguf(args.gguf, config, args.type, seed=args.seed, progress=progress)
            kinds = ", ".join(f"{count / 1e6:.1f} million {kind}" for kind, count in counts.items())
            console.print(f"{args.gguf}: {kinds}", highlight=False, soft_wrap=True)


def _millions(named: Mapping[str, Sequence[int]]) -> str:
    return f"{sum(map(math.prod, named.values())) / 1e6:.1f} million"


if __name__ == "__main__":
    main()
