"""Forwards on row kernels that were compiled with sanitizers: run as a program, in a process that has them preloaded.

    LD_PRELOAD="libasan.so libubsan.so" python sanitized.py SOURCES BUILD

SOURCES holds the kernels' sources, BUILD takes the library. Any fault ends the process with a report.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers as tf

from headstart.model import native
from headstart.model.loading import adopt
from headstart.model.native import build
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

CAPACITY = 30  # not whole tiles
TREE = Draft((11, 12, 13, 14, 15), (-1, -1, 0, 0, 2))


def runner_of(dtype: torch.dtype, quantize: str | None, window: int | None) -> ModelRunner:
    """A Mistral of two layers with grouped heads, and widths that no kernel likes."""
    config = tf.MistralConfig(
        vocab_size=37, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=CAPACITY, sliding_window=window,
    )  # fmt: skip
    model = tf.AutoModelForCausalLM.from_config(config).to(dtype)
    return ModelRunner(adopt(model), decoder="fused", quantize=quantize)


def hybrid_of(kind: str) -> ModelRunner:
    """A model of two layers, the first recurrent, whose heads are no whole vector."""
    base = {
        "vocab_size": 37, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 1, "max_position_embeddings": CAPACITY,
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 1e4}
    configs = {
        "lfm2": lambda: tf.Lfm2Config(
            **base, layer_types=["conv", "full_attention"], block_multiple_of=16, conv_bias=True, rope_parameters=rope
        ),
        "qwen3_5": lambda: tf.Qwen3_5TextConfig(
            **base, head_dim=16, layer_types=["linear_attention", "full_attention"], linear_key_head_dim=16,
            linear_value_head_dim=16, linear_num_key_heads=1, linear_num_value_heads=3,
            rope_parameters={**rope, "mrope_section": [4, 2, 2], "mrope_interleaved": True},
        ),
        "granite": lambda: tf.GraniteMoeHybridConfig(
            **base, layer_types=["linear_attention", "full_attention"], num_local_experts=0,
            shared_intermediate_size=80, mamba_n_heads=3, mamba_d_head=32, mamba_d_state=16, mamba_n_groups=1,
        ),
    }  # fmt: skip
    return ModelRunner(adopt(tf.AutoModelForCausalLM.from_config(configs[kind]())), decoder="fused")


def run(runner: ModelRunner) -> None:
    """Chains, trees and prompts beside each other; early exits and taps; and the last slot full to its last token."""
    cache = runner.new_cache(3)
    prompts = {cache.acquire(): tuple(range(n)) for n in (13, 1, CAPACITY - 6)}
    runner.forward([Segment(slot, prompt, judged=0) for slot, prompt in prompts.items()], cache, taps=(0, 2))
    for slot, prompt in prompts.items():
        cache.keep(slot, len(prompt))
    full = Segment(2, (5,), TREE, judged=6)
    runner.forward([Segment(0, (5,), Draft.chain(tuple(range(9))), judged=10), Segment(1, (5,), TREE), full], cache)
    runner.forward([full], cache, layers=1)
    for slot in (1, 2):
        cache.keep(slot, 1, (0, 2, 4))
    runner.forward([Segment(2, (3, 4), judged=2)], cache)


def main(sources: Path, directory: Path) -> None:
    flags = ("-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    build.STRICT = ("-O1", *build.STRICT[1:], *flags)
    build.SOURCES = tuple(sources / source.name for source in build.SOURCES)
    build.cache_directory = lambda _: directory
    assert native.available(), native.reason()
    torch.set_num_threads(2)
    for dtype in (torch.float32, torch.bfloat16):
        for window in (None, 7):
            run(runner_of(dtype, None, window))
    for kind in ("lfm2", "qwen3_5", "granite"):
        run(hybrid_of(kind))
    if native.kernels().supported(native.INT8):
        run(runner_of(torch.float32, "int8", None))
    if native.kernels().supported(native.GROUPED4):
        run(runner_of(torch.bfloat16, "int4", None))
    print("ran to the end")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
