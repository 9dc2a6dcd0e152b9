"""A tiny random model of each architecture that GGUF files have: every gain and bias random, windows shorter than the
text, rotations scaled from a length below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.model.gguf import checkpoint
from headstart.model.gguf.files import open_gguf
from headstart.model.gguf.packed import types
from headstart.model.loading import adopt
from headstart.model.longrope import fix_rotation
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from support.families import FAMILIES, TOKENS, VOCAB, random_model
from support.gguf_mixtures import MIXTURES
from support.hybrids import FACTORS_OF_FALCON, HYBRIDS

LENGTH = 64
"""Tokens that models are made for."""
IDS = torch.randint(3, VOCAB, (1, TOKENS), generator=torch.Generator().manual_seed(0))


def family(name: str, **changes: Any) -> Callable[[], Any]:
    """A config of the families' tests, with what files cannot say set to what they imply."""

    def made() -> Any:
        given = {key: value for key, value in FAMILIES[name]().to_dict().items() if key not in _NOT_GIVEN}
        return type(FAMILIES[name]())(**{**given, "hidden_size": 64, "intermediate_size": 96, **changes})

    return made


def mixture(name: str, **changes: Any) -> Callable[[], Any]:
    """A config of a mixture of experts with some sizes changed."""

    def made() -> Any:
        config = MIXTURES[name]()
        given = {key: value for key, value in config.to_dict().items() if key not in _NOT_GIVEN}
        return type(config)(**{**given, **changes})

    return made


_NOT_GIVEN = (
    "model_type", "architectures", "transformers_version", "layer_types", "no_rope_layers", "per_layer_config"
)  # fmt: skip
KINDS = ["sliding_attention"] * 3 + ["full_attention"]
_ROPES = {
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16},
    "plain": {"rope_type": "default", "rope_theta": 5e3},
}
_PLAIN_FALCON = {
    "mamba_norm_before_gate": False,
    **{name: 1.0 if isinstance(each, float) else [1.0] * len(each) for name, each in FACTORS_OF_FALCON.items()},
}
"""Files hold the factors in the weights."""

MODELS: dict[str, Callable[[], Any]] = {
    "apertus": family("apertus"),
    "arcee": family("arcee"),
    "cohere2": family("cohere2", layer_types=KINDS, tie_word_embeddings=True),
    "cohere": family("cohere", tie_word_embeddings=True),
    "cohere, qk norm": family("cohere, qk norm", tie_word_embeddings=True),
    "ernie4_5": family("ernie4_5"),
    "exaone4": family("exaone4", layer_types=KINDS),
    "exaone4, no windows": family("exaone4, no windows", layer_types=["full_attention"] * 4),
    "falcon": family("falcon", intermediate_size=None, ffn_hidden_size=96),
    "falcon, groups": family("falcon, groups", intermediate_size=None, ffn_hidden_size=96),
    "falcon, groups, one norm": family(
        "falcon, groups", intermediate_size=None, ffn_hidden_size=96, num_ln_in_parallel_attn=1
    ),
    "gemma": family("gemma", attention_bias=False),
    "gemma2": family("gemma2", query_pre_attn_scalar=16, tie_word_embeddings=True),
    "gemma3": family(
        "gemma3_text", query_pre_attn_scalar=16, num_hidden_layers=6, layer_types=["sliding_attention"] * 5 + KINDS[3:]
    ),
    "gemma4": family("gemma4_text", layer_types=KINDS * 2, global_head_dim=32),
    "gemma4, keys as values": family(
        "gemma4_text, keys as values", layer_types=KINDS, attention_bias=False, global_head_dim=32,
        num_global_key_value_heads=1,
    ),
    "glm4": family("glm4"),
    "granite": family("granite"),
    "hunyuan": family("hunyuan_v1_dense", pad_token_id=None),
    "gpt2": family("gpt2", scale_attn_by_inverse_layer_idx=False, intermediate_size=None, n_inner=96),
    "gpt_bigcode": family("gpt_bigcode", intermediate_size=None, n_inner=96),
    "gpt_neox": family("gpt_neox"),
    "gpt_neox, in turn": family("gpt_neox, in turn"),
    "llama": family("llama"),
    "ministral3": family("ministral3", sliding_window=None),
    "ministral3, mscale": family(
        "ministral3", sliding_window=None,
        rope_parameters={**_ROPES["yarn"], "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.7},
    ),
    "mistral": family("mistral"),
    "nemotron": family("nemotron"),
    "olmo": family("olmo"),
    "olmo2": family("olmo2"),
    "olmo3": family("olmo3", layer_types=KINDS),
    "phi": family("phi"),
    "phi3": family("phi3"),
    "phi3, plain": family("phi3, plain", hidden_act="silu"),
    "qwen2": family("qwen2", use_sliding_window=False, sliding_window=None),
    "qwen3": family("qwen3"),
    "seed_oss": family("seed_oss"),
    "smollm3": family("smollm3", use_sliding_window=False, sliding_window=None),
    "stablelm": family("stablelm"),
    "stablelm, parallel": family("stablelm, parallel", qk_layernorm=False),
    "starcoder2": family("starcoder2", sliding_window=None),
    "falcon_h1": lambda: HYBRIDS["falcon_h1"](**_PLAIN_FALCON),
    "falcon_h1, not normed": lambda: HYBRIDS["falcon_h1"](**_PLAIN_FALCON, mamba_rms_norm=False, attention_bias=True),
    "lfm2": lambda: HYBRIDS["lfm2"](),
    "nemotron_h": lambda: HYBRIDS["nemotron_h"](),
    "qwen3_5": lambda: HYBRIDS["qwen3_5"](attention_bias=True),
    "qwen3_5, as many key heads": lambda: HYBRIDS["qwen3_5"](linear_num_key_heads=4, tie_word_embeddings=True),
    "granite4h": lambda: HYBRIDS["granite4h"](),
    "granite4h, rotated": lambda: HYBRIDS["granite4h"](
        position_embedding_type="rope", mamba_conv_bias=False, mamba_proj_bias=False, attention_bias=True,
        mamba_n_groups=1,
    ),
}  # fmt: skip


def made(config: Any) -> Any:
    """A random model that turns as one of texts of `LENGTH`, always the same."""
    torch.manual_seed(0)  # from which transformers draws what other numbers are added to
    model = random_model(config)
    fix_rotation(model, LENGTH)
    return model


def off(found: Tensor, right: Tensor) -> float:
    """The largest error, relative to the spread."""
    return float((found - right).abs().max() / (right.max() - right.min()))


def run(path: Path, *, packed: bool = True) -> tuple[Tensor, ModelRunner]:
    """The logits of all tokens of `IDS`, in float32. packed: on the file's own blocks, otherwise on floats."""
    load = checkpoint.load_packed if packed else checkpoint.load_model
    model = adopt(load(str(path), checkpoint.load_config(str(path)), torch.float32))
    blocks = tuple(types(open_gguf(path))) if packed else ()
    runner = ModelRunner(model, max_length=LENGTH, blocks=blocks)
    cache = runner.new_cache(1)
    segment = Segment(cache.acquire(), tuple(IDS[0].tolist()), judged=TOKENS)
    return runner.forward([segment], cache).logits.clone(), runner
