"""Forwards on row kernels that were compiled with sanitizers: run as a program, in a process that has them preloaded.

    LD_PRELOAD="libasan.so libubsan.so" python sanitized.py SOURCES BUILD

SOURCES holds the kernels' sources, BUILD takes the library. Any fault ends the process with a report.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
import transformers as tf
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from headstart.base import compiling
from headstart.loading import checkpoint
from headstart.loading.load import Target
from headstart.model import mapped, native
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.grouped import GroupedWeights, side_by_side
from headstart.model.loading import adopt
from headstart.model.native.weights import NativeWeights
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft, Sampling
from support import families
from support.gguf_files import Q, write
from support.gguf_mixtures import MIXTURES

CAPACITY = 30  # not whole tiles
TREE = Draft((11, 12, 13, 14, 15), (-1, -1, 0, 0, 2))


def runner_of(
    dtype: torch.dtype,
    quantize: str | None,
    window: int | None,
    cache_dtype: torch.dtype | None = None,
    head_dim: int = 16,
) -> ModelRunner:
    """A Mistral of two layers with grouped heads, and widths that no kernel likes; tiles attend with heads of 32."""
    config = tf.MistralConfig(
        vocab_size=37, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=head_dim, max_position_embeddings=CAPACITY, sliding_window=window,
    )  # fmt: skip
    model = tf.AutoModelForCausalLM.from_config(config).to(dtype)
    return ModelRunner(adopt(model), decoder="fused", quantize=quantize, cache_dtype=cache_dtype)


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


def latent_of(dtype: torch.dtype, quantize: str | None = None) -> ModelRunner:
    """Latent attention of two layers, whose heads are no whole block, and whose queries are wider than its rows."""
    config = tf.DeepseekV3Config(
        vocab_size=37, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, kv_lora_rank=48, q_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=80,
        v_head_dim=96, first_k_dense_replace=2, max_position_embeddings=CAPACITY,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    model = tf.AutoModelForCausalLM.from_config(config).to(dtype)
    return ModelRunner(adopt(model), decoder="fused", quantize=quantize)


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


def family_of(name: str, quantize: str | None) -> ModelRunner:
    """One of the suite's families: with experts, or with delta rules whose decay is one of each channel."""
    model = families.random_model(families.config_of(name))
    return ModelRunner(adopt(model), max_length=CAPACITY, decoder="fused", quantize=quantize)


def experts_in_a_file(directory: Path, name: str, kind: Q) -> None:
    """A mixture whose experts are written into a file of products, and read from it at the second start."""
    source = write(directory / f"{name}.gguf", families.random_model(MIXTURES[name]()), kind=kind)
    for _ in range(2):
        engine = Target(source, max_length=96).engine("none")
        engine.generate([5, 6, 7, 8, 9, 3, 11], Sampling(max_tokens=6, ignore_eos=True))
    assert list(directory.rglob("*.products"))


def several_kinds() -> None:
    """A product whose parts are codes of different kinds, one of which stand for a table's numbers."""
    rng = np.random.default_rng(0)

    def part(outputs: int, bits: int, group: int, table: NDArray[np.int8] | None = None) -> GroupedWeights:
        scales = np.ones((outputs, -(-80 // group)), np.float32)
        codes = rng.integers(0, 1 << bits, (outputs, 80), dtype=np.uint8)
        return GroupedWeights(codes, bits, group, scales, scales * (table is None) * np.float32(0.3), table=table)

    table = np.arange(-128, 128, 17, dtype=np.int8)
    for parts in (
        [part(37, 4, 32, table), part(16, 5, 64)],
        [part(5, 6, 16), part(64, 8, 128), part(37, 4, 32, table)],
    ):
        held, joined = NativeWeights(native.GROUPED4), side_by_side(parts)
        product = held.product(GroupedLinear(joined))
        x, y = rng.standard_normal((40, 80)).astype(np.float32), np.empty((40, joined.shape[0]), np.float32)
        for count in (1, 7, 40):
            native.kernels().multiply(product, x.ctypes.data, count, y.ctypes.data, 2)


def main(sources: Path, directory: Path) -> None:
    # Lines are all that a report needs: to follow variables as well, the compiler takes many times as long.
    flags = ("-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    compiling.STRICT = ("-O1", *compiling.STRICT[1:], *flags)
    native.MAIN = sources / native.MAIN.name
    os.environ["XDG_CACHE_HOME"] = str(directory)
    assert native.available(), native.reason()
    torch.set_num_threads(2)
    for dtype in (torch.float32, torch.bfloat16):
        for window in (None, 7):
            run(runner_of(dtype, None, window))
            run(runner_of(dtype, None, window, torch.int8))
            for cache_dtype in (None, torch.int8):
                run(runner_of(dtype, None, window, cache_dtype, head_dim=32))
    for dtype in (torch.float32, torch.bfloat16):
        run(latent_of(dtype))
    for kind in ("lfm2", "qwen3_5", "granite"):
        run(hybrid_of(kind))
    for name in ("qwen3_moe", "gpt_oss", "kimi_linear"):
        run(family_of(name, None))
    if native.kernels().supported(native.INT8):
        run(runner_of(torch.float32, "int8", None))
    if native.kernels().supported(native.GROUPED4):
        run(runner_of(torch.bfloat16, "int4", None))
        run(latent_of(torch.bfloat16, "int4"))
        for name in ("qwen3_moe", "kimi_linear"):
            run(family_of(name, "int4"))
        several_kinds()
        checkpoint.WORTH_MAPPING, mapped._SPARE = 1, 0
        for name, kind in (("qwen3_moe", Q.Q4_0), ("gpt_oss", Q.MXFP4)):
            experts_in_a_file(directory, name, kind)
    print("ran to the end")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
