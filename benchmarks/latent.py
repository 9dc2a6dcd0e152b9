"""Latent attention of GLM-4.7-Flash's shape, a few layers of it with random weights: bytes of cache for a token, and
the time of a layer for some rows after some context, by the row kernels and by transformers' modules in turn.

    python benchmarks/latent.py [--layers 4] [--context 16,4096] [--rows 1,8,512]

The modules make keys and values of all heads from each latent and keep those; what is attended by the row kernels is
the latents themselves. The MLP is next to nothing, so that attention and its matrices are what is measured.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers as tf
from provenance import Provenance, results_file

from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner

DECODERS = ("fused", "modules")
LENGTH = 8192


def model_of(layers: int) -> Any:
    """In bfloat16."""
    torch.manual_seed(0)
    config = tf.DeepseekV3Config(
        vocab_size=256, hidden_size=2048, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=20,
        num_key_value_heads=20, kv_lora_rank=512, q_lora_rank=768, qk_rope_head_dim=64, qk_nope_head_dim=192,
        v_head_dim=256, first_k_dense_replace=layers, max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    return tf.DeepseekV3ForCausalLM(config).bfloat16().eval()


def seconds(runner: ModelRunner, cache: Any, slot: int, context: int, rows: int) -> float:
    """Of one forward."""
    cache.pretend(slot, context)
    segment = Segment(slot, tuple(3 + number % 200 for number in range(rows)))
    begin = time.perf_counter()
    runner.forward([segment], cache)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", default="16,4096")
    parser.add_argument("--rows", default="1,8,512")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args()
    provenance = Provenance.now("torch", "transformers")
    made = {}
    for name in DECODERS:
        runner = ModelRunner(adopt(model_of(asked.layers)), max_length=LENGTH, decoder=name)  # type: ignore[arg-type]
        cache = runner.new_cache(1)
        for store in (*cache.keys.values(), *cache.values.values()):
            store.normal_(0, 0.02)
        made[name] = runner, cache, cache.acquire()
    tokens = LENGTH * asked.layers
    found: dict[str, Any] = {
        "bytes_by_token_and_layer": {name: each[1].memory() / tokens for name, each in made.items()}
    }
    print(found)
    for context in map(int, asked.context.split(",")):
        for rows in map(int, asked.rows.split(",")):
            times: dict[str, list[float]] = {name: [] for name in DECODERS}
            for _ in range(asked.repetitions + 1):
                for name, each in made.items():
                    times[name].append(seconds(*each, context, rows))
            of = {name: 1e3 * median(each[1:]) / asked.layers for name, each in times.items()}
            found[f"milliseconds_by_layer, {rows} rows after {context} tokens"] = of
            print(f"{rows} rows after {context} tokens:", ", ".join(f"{name} {ms:.3f} ms" for name, ms in of.items()))
    file = results_file(asked.results, "latent")
    file.write_text(json.dumps({"provenance": asdict(provenance), **found}, indent=2) + "\n", encoding="utf-8")
    print("\n".join(provenance.lines()))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
