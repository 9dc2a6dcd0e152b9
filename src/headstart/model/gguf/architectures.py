"""What each architecture of GGUF files is: a config of transformers, and what its files do otherwise than others.

Keys and the names of tensors from gguf-py (gguf/constants.py of ggml-org/llama.cpp); what files do not state from
src/llama-model.cpp and src/models/ there, and how tensors are changed from its convert_hf_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headstart.base.lazy import transformers
from headstart.model.gguf import gemma, hybrids, layer_norms, mixtures
from headstart.model.gguf.description import (
    FREQUENCIES,
    LOCAL_BASE,
    PATTERN,
    SCALE_BY_PLACE,
    SHARED_INNER,
    Description,
    Part,
)
from headstart.model.gguf.metadata import Metadata


@dataclass(frozen=True)
class Architecture:
    """How the files of an architecture are read."""

    config: Callable[[Description], Any]
    """From what a file states to a config of transformers."""
    keys: frozenset[str] = frozenset()
    """The keys below its name that others do not have."""
    neighbours: bool = False
    """Whether the rows of queries and keys that turn together lie beside each other, where transformers has them half a
    head apart."""
    part: bool = False
    """Whether a part of each head may turn."""
    frequencies: bool = False
    """Whether its files may hold `rope_freqs.weight`, what each frequency of the rotation is divided by."""
    layered: bool = False
    """Whether layers may be of two sizes: `head_dim` of the config is that of the layers with a window, of which the
    first is one."""
    tensors: frozenset[str] = frozenset()
    """Tensors that are no parameters, and are read for the config."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What it calls tensors that others call otherwise, by what others call them or by a norm's module: see `names`."""
    bare: frozenset[str] = frozenset()
    """Norms whose tensors have no ending, by what others call them."""
    halves: bool = False
    """Whether gate and up are two tensors, where transformers has one matrix."""
    transposed: bool = False
    """Whether transformers has the matrices of its layers by inputs (Conv1D), where files have them by outputs."""
    parts: Callable[[Metadata, int], tuple[Part, ...]] | None = None
    """What each layer is, by what a file states, for so many layers; None: all have attention."""
    experts: bool = False
    """Whether its models may have experts."""
    latent: bool = False
    """Whether attention is latent: files state the widths of its heads under keys of their own where they hold the
    matrices that make keys and values apart."""
    by_key_head: bool = False
    """Whether value heads of the delta rule come by key head, and what their strengths and decays are made with is one
    tensor, by key head, too."""
    drafting: frozenset[str] = frozenset()
    """Tensors of the heads that may follow the layers, which draft: see `drafting`."""


_FULL = "full_attention"
_LAYERS_OF_EXAONE_32B = 64


def llama(described: Description) -> Any:
    """Also Mistral, whose files are of architecture llama and state a window, and Mixtral, with experts."""
    if described.mixture is not None:
        return mixtures.mixtral(described)
    window = described.window()
    if window is not None:
        return transformers.MistralConfig(**described.rms(), sliding_window=window)
    return transformers.LlamaConfig(
        **described.rms(),
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has("ffn_gate.bias"),
    )


def qwen2(described: Description) -> Any:
    return transformers.Qwen2Config(**described.windowless(), use_sliding_window=False)


def qwen3(described: Description) -> Any:
    bias = described.has("attn_q.bias")
    return transformers.Qwen3Config(**described.windowless(), use_sliding_window=False, attention_bias=bias)


def apertus(described: Description) -> Any:
    """The numbers of its activation stand in the metadata, one for each layer: see `weights`."""
    return transformers.ApertusConfig(**described.windowless(), attention_bias=described.has("attn_q.bias"))


def arcee(described: Description) -> Any:
    return transformers.ArceeConfig(
        **described.windowless(),
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has("ffn_up.bias"),
    )


def cohere2(described: Description) -> Any:
    """Every fourth layer has no window; layers without one have no positions."""
    described.one_base()
    return transformers.Cohere2Config(
        **described.centred("layer_norm_eps"),
        logit_scale=described.stated.number("logit_scale"),
        sliding_window=described.stated.count("attention.sliding_window"),
        layer_types=described.kinds(4),
    )


def ernie(described: Description) -> Any:
    return transformers.Ernie4_5Config(**described.windowless(), use_bias=described.has("attn_q.bias"))


def exaone4(described: Description) -> Any:
    """Only the largest, of 64 layers, has windows, and its older files do not say so."""
    window = described.window() or (4096 if described.layers == _LAYERS_OF_EXAONE_32B else None)
    described.one_base()
    kinds = described.kinds(4) if window else [_FULL] * described.layers
    return transformers.Exaone4Config(**described.rms(), sliding_window=window, layer_types=kinds)


def glm4(described: Description) -> Any:
    return transformers.Glm4Config(**described.windowless(), attention_bias=described.has("attn_q.bias"))


def granite(described: Description) -> Any:
    if not described.stated.flag("rope.scaling.finetuned", True):
        raise described.file.not_run("granite.rope.scaling.finetuned is false: it has no positions")
    return transformers.GraniteConfig(
        **described.windowless(),
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has("ffn_gate.bias"),
        **described.multipliers(),
    )


def hunyuan(described: Description) -> Any:
    """Its files state the base of the rotation as it comes out of the "alpha" of the original's config."""
    return transformers.HunYuanDenseV1Config(**described.windowless(), attention_bias=described.has("attn_q.bias"))


def mistral3(described: Description) -> Any:
    """Ministral 3. Queries are scaled by their position from the length on that the rotation was trained for."""
    if described.stated.number(SCALE_BY_PLACE, 0.0) == 0.0:
        return transformers.MistralConfig(**described.rms(), sliding_window=described.window())
    made = described.rms()
    rope = made["rope_parameters"]
    if rope["rope_type"] != "yarn":
        raise described.file.not_run(f"mistral3.{SCALE_BY_PLACE} is stated, and no length to count from")
    rope["llama_4_scaling_beta"] = described.stated.number(SCALE_BY_PLACE)
    return transformers.Ministral3Config(**made, sliding_window=described.window())


def nemotron(described: Description) -> Any:
    if (window := described.window()) is not None:
        raise described.file.not_run(f"nemotron.attention.sliding_window is {window}")
    return transformers.NemotronConfig(
        **described.centred("norm_eps"),
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has("ffn_up.bias"),
    )


def olmo2(described: Description) -> Any:
    """OLMo 3 too, which has windows in three of four layers, whose rotation is not scaled."""
    common, bias = described.rms(), described.has("attn_q.bias")
    if (window := described.window()) is None:
        return transformers.Olmo2Config(**common, attention_bias=bias)
    rope = common.pop("rope_parameters")
    local = {"rope_type": "default", "rope_theta": described.local_base(rope["rope_theta"])}
    return transformers.Olmo3Config(
        **common,
        rope_parameters={"full_attention": rope, "sliding_attention": local},
        attention_bias=bias,
        sliding_window=window,
        layer_types=described.kinds(4),
    )


def phi3(described: Description) -> Any:
    """llama.cpp runs it without its window; here it has it, as the original."""
    made, length = described.rms(), described.common["max_position_embeddings"]
    made["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
    original = described.stated.whole("rope.scaling.original_context_length", length)
    return transformers.Phi3Config(**made, original_max_position_embeddings=original, sliding_window=described.window())


def seed_oss(described: Description) -> Any:
    return transformers.SeedOssConfig(
        **described.windowless(),
        attention_bias=described.has("attn_q.bias"),
        attention_out_bias=described.has("attn_output.bias"),
        mlp_bias=described.has("ffn_gate.bias"),
    )


def smollm3(described: Description) -> Any:
    """Every fourth layer has no positions."""
    return transformers.SmolLM3Config(
        **described.windowless(),
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has("ffn_gate.bias"),
        no_rope_layer_interval=4,
    )


def starcoder2(described: Description) -> Any:
    """llama.cpp's converter does not write the window of the original, so files have none."""
    return transformers.Starcoder2Config(
        **described.centred("norm_epsilon"),
        use_bias=described.has("attn_q.bias"),
        sliding_window=described.window(),
    )


_AFTER_ATTENTION = {"ffn_norm": "post_attention_norm"}
_SCALES = frozenset({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"})

ARCHITECTURES = {
    "apertus": Architecture(apertus, frequencies=True),
    "arcee": Architecture(arcee, neighbours=True, frequencies=True),
    "cohere2": Architecture(cohere2, frozenset({"logit_scale", LOCAL_BASE, PATTERN})),
    "command-r": Architecture(layer_norms.command_r, frozenset({"logit_scale"})),
    "deepseek2": Architecture(
        mixtures.deepseek2,
        mixtures.KEYS_OF_DEEPSEEK2,
        part=True,
        experts=True,
        latent=True,
        drafting=mixtures.DRAFTING_OF_DEEPSEEK2,
    ),
    "ernie4_5": Architecture(ernie),
    "ernie4_5-moe": Architecture(mixtures.ernie_moe, mixtures.KEYS_OF_ERNIE, experts=True),
    "exaone4": Architecture(exaone4, frozenset({LOCAL_BASE, PATTERN}), frequencies=True),
    "falcon": Architecture(layer_norms.falcon, names=layer_norms.FALCON),
    "falcon-h1": Architecture(hybrids.falcon_h1, hybrids.SIZES, bare=frozenset({"ffn_norm"})),
    "gemma": Architecture(gemma.gemma),
    "gemma2": Architecture(gemma.gemma2, frozenset({"attn_logit_softcapping", "final_logit_softcapping", PATTERN})),
    "gemma3": Architecture(gemma.gemma3, frozenset({"final_logit_softcapping", LOCAL_BASE, PATTERN})),
    "gemma4": Architecture(
        gemma.gemma4,
        gemma.KEYS_OF_4,
        layered=True,
        tensors=frozenset({FREQUENCIES}),
        names={"ffn_gate_shexp": "ffn_gate", "ffn_up_shexp": "ffn_up", "ffn_down_shexp": "ffn_down"},
        experts=True,
    ),
    "glm4": Architecture(glm4, part=True),
    "glm4moe": Architecture(
        mixtures.glm4_moe,
        mixtures.KEYS_OF_GLM,
        part=True,
        names=_AFTER_ATTENTION,
        experts=True,
        drafting=mixtures.DRAFTING_OF_GLM,
    ),
    "gpt-oss": Architecture(mixtures.gpt_oss, mixtures.KEYS_OF_GPT_OSS, names=_AFTER_ATTENTION, experts=True),
    "gpt2": Architecture(layer_norms.gpt2, transposed=True),
    "gptneox": Architecture(layer_norms.gptneox, frozenset({layer_norms.PARALLEL}), part=True),
    "granite": Architecture(granite, _SCALES, neighbours=True),
    "granitehybrid": Architecture(
        hybrids.granite,
        _SCALES | hybrids.KEYS_OF_GRANITE,
        neighbours=True,
        halves=True,
        parts=hybrids.without_keys,
        experts=True,
    ),
    "granitemoe": Architecture(
        mixtures.granite_moe, _SCALES | {SHARED_INNER}, neighbours=True, halves=True, experts=True
    ),
    "hunyuan-dense": Architecture(hunyuan),
    "kimi-linear": Architecture(
        mixtures.kimi_linear,
        mixtures.KEYS_OF_KIMI,
        part=True,
        parts=hybrids.without_keys,
        experts=True,
        latent=True,
    ),
    "lfm2": Architecture(
        hybrids.lfm2,
        hybrids.KEYS_OF_LFM2,
        names={"output_norm": "token_embd_norm"},
        parts=hybrids.without_keys,
    ),
    "lfm2moe": Architecture(
        mixtures.lfm2_moe,
        mixtures.KEYS_OF_LFM2_MOE,
        names={"output_norm": "token_embd_norm"},
        parts=hybrids.without_keys,
        experts=True,
    ),
    "llama": Architecture(llama, neighbours=True, frequencies=True, experts=True),
    "mistral3": Architecture(mistral3, frozenset({SCALE_BY_PLACE}), neighbours=True, frequencies=True),
    "mistral4": Architecture(mixtures.mistral4, mixtures.KEYS_OF_MISTRAL4, part=True, experts=True, latent=True),
    "nemotron": Architecture(nemotron, part=True),
    "nemotron_h": Architecture(
        hybrids.nemotron_h,
        hybrids.SIZES,
        neighbours=True,
        names={"ffn_norm": "attn_norm"},
        parts=hybrids.without_keys_or_mlp,
    ),
    "nemotron_h_moe": Architecture(
        mixtures.nemotron_h_moe,
        mixtures.KEYS_OF_NEMOTRON,
        neighbours=True,
        names={"ffn_norm": "attn_norm"},
        parts=hybrids.without_keys_or_mlp,
        experts=True,
        drafting=mixtures.DRAFTING_OF_NEMOTRON,
    ),
    "olmo": Architecture(layer_norms.olmo, frozenset({layer_norms.CLAMP}), neighbours=True),
    "olmo2": Architecture(olmo2, frozenset({LOCAL_BASE, PATTERN})),
    "olmoe": Architecture(mixtures.olmoe, experts=True),
    "phi2": Architecture(layer_norms.phi2, part=True),
    "phi3": Architecture(phi3, part=True),
    "qwen2": Architecture(qwen2, frequencies=True),
    "qwen2moe": Architecture(mixtures.qwen2_moe, mixtures.KEYS_WITH_SHARED, experts=True),
    "qwen3": Architecture(qwen3, frequencies=True),
    "qwen35": Architecture(
        hybrids.qwen35,
        hybrids.KEYS_OF_QWEN35,
        part=True,
        names=_AFTER_ATTENTION,
        parts=hybrids.by_period,
        drafting=hybrids.DRAFTING_OF_QWEN35,
    ),
    "qwen35moe": Architecture(
        mixtures.qwen35_moe,
        mixtures.KEYS_OF_QWEN35_MOE,
        part=True,
        names=_AFTER_ATTENTION,
        parts=hybrids.by_period,
        experts=True,
        drafting=mixtures.DRAFTING_OF_QWEN,
    ),
    "qwen3moe": Architecture(mixtures.qwen3_moe, mixtures.KEYS, experts=True),
    "qwen3next": Architecture(
        mixtures.qwen35_moe,
        mixtures.KEYS_OF_QWEN3_NEXT,
        part=True,
        names=_AFTER_ATTENTION,
        parts=hybrids.by_period,
        experts=True,
        by_key_head=True,
        drafting=mixtures.DRAFTING_OF_QWEN,
    ),
    "seed_oss": Architecture(seed_oss, names=_AFTER_ATTENTION),
    "smollm3": Architecture(smollm3, neighbours=True),
    "stablelm": Architecture(layer_norms.stablelm, frozenset({layer_norms.PARALLEL}), part=True),
    "starcoder": Architecture(layer_norms.starcoder),
    "starcoder2": Architecture(starcoder2),
}
"""By `general.architecture`. Mistral models are of architecture llama, OLMo 3 of olmo2."""
