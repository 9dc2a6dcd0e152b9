"""A Llama checkpoint as GGUF, matrices in floats or q8_0, for llama.cpp.

    python to_gguf.py SOURCE OUT.gguf --precision bf16|f16|f32|int8        (in llama.cpp's environment)

Prompts and texts are token ids here, so the vocabulary is only carried along: pieces and merges, and a
pre-tokenizer that llama.cpp knows, not the checkpoint's own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TYPES = {
    "bf16": gguf.GGMLQuantizationType.BF16,
    "f16": gguf.GGMLQuantizationType.F16,
    "f32": gguf.GGMLQuantizationType.F32,
    "int8": gguf.GGMLQuantizationType.Q8_0,
}
FILE_TYPES = {
    "bf16": gguf.LlamaFileType.MOSTLY_BF16,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "f32": gguf.LlamaFileType.ALL_F32,
    "int8": gguf.LlamaFileType.MOSTLY_Q8_0,
}


def weights(source: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor in float32, read from safetensors without torch (numpy has no bf16)."""
    for file in sorted(source.glob("*.safetensors")):
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
        data = np.memmap(file, np.uint8, "r", offset=8 + length)
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                yield name, _float32(data[start:end], entry["dtype"]).reshape(entry["shape"])


def _float32(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":  # the upper half of a float32
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view({"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32)


def renamed(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{LAYER_NAMES[part.removesuffix('.weight')]}.weight"


def interleaved(matrix: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp rotates neighbours where transformers rotates the two halves of a head: the rows change places."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_header(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default" or config.get("rope_scaling"):
        raise SystemExit("only plain rotary embeddings are converted")
    heads = config["num_attention_heads"]
    head_size = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(rope.get("rope_theta") or config.get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def write_vocabulary(writer: gguf.GGUFWriter, source: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = {index: piece for piece, index in tokenizer["model"]["vocab"].items()}
    special = {each["id"]: each["content"] for each in tokenizer["added_tokens"]}
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([special.get(i) or pieces.get(i) or f"[unused {i}]" for i in range(size)])
    kinds = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    writer.add_token_types([kinds[i in special or i not in pieces] for i in range(size)])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    ends = config.get("eos_token_id")
    writer.add_eos_token_id(ends if isinstance(ends, int) else (ends or [0])[0])


def convert(source: Path, out: Path, precision: str) -> None:
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "llama":
        raise SystemExit(f"only Llama checkpoints are converted, not {config['model_type']}")
    writer = gguf.GGUFWriter(out, "llama")
    write_header(writer, config)
    write_vocabulary(writer, source, config)
    writer.add_file_type(FILE_TYPES[precision])
    for name, weight in weights(source):
        if name.endswith("q_proj.weight"):
            weight = interleaved(weight, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            weight = interleaved(weight, config["num_key_value_heads"])
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        kind = TYPES[precision] if weight.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(renamed(name), gguf.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--precision", choices=sorted(TYPES), required=True)
    args = parser.parse_args()
    convert(args.source, args.out, args.precision)
