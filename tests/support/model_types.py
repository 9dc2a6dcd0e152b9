"""The model types of transformers that are causal language models or contain one, and what headstart says of each.

The verdict of a type is that of its class's default config, as `load_config` and `recipe_of` give it. A type that is
admitted is also tried: a tiny random model of it is run beside transformers' own forward, as at every load.
"""

from __future__ import annotations

import inspect
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from headstart.base.errors import HeadstartError
from headstart.model.loading import adopt, load_config
from headstart.model.recipes import find_recipe
from headstart.model.runner import ModelRunner
from headstart.model.wrappers import listed

FIXTURE = Path(__file__).parents[1] / "model" / "recipes" / "model_types.json"
REGENERATE = "python tools/model_table.py"

FAMILIES: dict[str, tuple[str, ...]] = {
    "Llama 1 to 3.3, SmolLM 1 and 2, DeepSeek-R1 distillations, Yi, TinyLlama": ("llama",),
    "Llama 4": ("llama4",),
    "Mistral 7B, Nemo, Small 2": ("mistral",),
    "Mistral Small 3, Ministral 3, Devstral, Magistral": ("mistral3", "ministral3"),
    "Mixtral": ("mixtral",),
    "Qwen 2, 2.5": ("qwen2",),
    "Qwen 2 with experts": ("qwen2_moe",),
    "Qwen 3": ("qwen3",),
    "Qwen 3 with experts": ("qwen3_moe",),
    "Qwen 3.5, 3.6, Qwen3-Next": ("qwen3_5", "qwen3_5_moe", "qwen3_next"),
    "Qwen-VL": ("qwen2_vl", "qwen2_5_vl", "qwen3_vl"),
    "Gemma": ("gemma",),
    "Gemma 2": ("gemma2",),
    "Gemma 3": ("gemma3", "gemma3_text"),
    "Gemma 3n": ("gemma3n",),
    "Gemma 4": ("gemma4", "gemma4_text"),
    "Phi-1, 1.5 and 2": ("phi",),
    "Phi-3, 3.5, 4 and 4-mini": ("phi3",),
    "Phi-3.5 with experts": ("phimoe",),
    "Granite 3 and 4, dense": ("granite",),
    "Granite 4 with windows": ("granite_swa",),
    "Granite 4 H": ("granitemoehybrid",),
    "GPT-OSS": ("gpt_oss",),
    "SmolLM3": ("smollm3",),
    "OLMo": ("olmo", "olmo2", "olmo3"),
    "OLMo hybrid": ("olmo_hybrid",),
    "OLMoE": ("olmoe",),
    "EXAONE 4": ("exaone4",),
    "GLM-4": ("glm", "glm4"),
    "GLM-4.5, 4.6, 4.7": ("glm4_moe", "glm4_moe_lite"),
    "DeepSeek V2 and V3": ("deepseek_v2", "deepseek_v3"),
    "DeepSeek V3.2 and V4": ("deepseek_v32", "deepseek_v4"),
    "Kimi Linear": ("kimi_linear",),
    "Hunyuan": ("hunyuan_v1_dense", "hunyuan_v1_moe"),
    "ERNIE 4.5": ("ernie4_5", "ernie4_5_moe"),
    "Seed-OSS": ("seed_oss",),
    "Arcee (AFM 4.5B)": ("arcee",),
    "Apertus": ("apertus",),
    "Command R, R7B, A": ("cohere", "cohere2"),
    "StarCoder 2": ("starcoder2",),
    "Nemotron 4, Minitron": ("nemotron",),
    "Nemotron H and Nano": ("nemotron_h",),
    "LFM2, LFM3": ("lfm2", "lfm2_vl", "lfm3", "lfm3_vl", "lfm2_moe"),
    "MiniCPM 3": ("minicpm3",),
    "MiniMax": ("minimax", "minimax_m2"),
    "Helium": ("helium",),
    "Falcon": ("falcon",),
    "Falcon H1": ("falcon_h1",),
    "Falcon Mamba": ("falcon_mamba",),
    "Mamba, RWKV, Jamba, Bamba": ("mamba", "mamba2", "rwkv", "jamba", "bamba"),
    "Pythia, GPT-NeoX": ("gpt_neox",),
    "GPT-2": ("gpt2",),
    "GPT-J, GPT-Neo": ("gptj", "gpt_neo"),
    "OPT": ("opt",),
    "BLOOM, MPT": ("bloom", "mpt"),
    "StableLM": ("stablelm",),
    "StarCoder": ("gpt_bigcode",),
    "InternVL, LLaVA, SmolVLM": ("internvl", "llava", "smolvlm"),
}
"""By the names that people know: the types of their configs."""

PUBLISHED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "lfm2_vl": {"text_config": {"model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 16}},
}
"""What published checkpoints say where a class's default config describes another kind of model, or none."""

_SIZES: dict[str, int] = {
    "vocab_size": 96, "hidden_size": 64, "n_embd": 64, "d_model": 64, "intermediate_size": 96, "ffn_dim": 96,
    "num_hidden_layers": 4, "n_layer": 4, "n_layers": 4, "num_layers": 4, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "n_positions": 256,
    "max_seq_len": 256, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
    "v_head_dim": 16, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4,
    "num_experts_per_tok": 2, "moe_k": 2, "moe_top_k": 2, "moe_topk": 2, "moe_intermediate_size": 32, "n_group": 1,
    "topk_group": 1, "shared_expert_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32,
    "expert_ffn_hidden_size": 32, "ffn_hidden_size": 96, "zero_expert_num": 0, "sliding_window": 8,
    "global_head_dim": 16, "num_global_key_value_heads": 1, "vocab_size_per_layer_input": 96,
    "hidden_size_per_layer_input": 16, "num_kv_shared_layers": 0, "word_embed_proj_dim": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "query_pre_attn_scalar": 16, "expert_intermediate_size": 32,
    "embedding_size": 64, "attention_head_dim": 16, "kv_channels": 16, "n_shared_experts": 1,
}  # fmt: skip
"""Of tiny models, by the names that configs give them."""
_TINY: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "kimi_linear": {"num_key_value_heads": 4, "linear_num_heads": 2, "linear_head_dim": 16},
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "sliding_window": None,
    },
}
"""What tiny models of these types need besides: layers of every kind."""
_FEWER: tuple[dict[str, Any], ...] = ({}, {"num_key_value_heads": 4}, {"head_dim": None}, {"q_lora_rank": None})
"""Further changes of sizes, tried in turn."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What headstart says of a model type."""

    verdict: Literal["native", "modules", "refused"]
    """"native": headstart's own decoders; "modules": transformers' modules."""
    why: str = ""
    """The reason of a refusal."""
    text: str = ""
    """The type of the text model in it, where it is another."""
    tried: str = ""
    """"exact" where a tiny model gave transformers' logits; else why none was tried. Empty for a refusal by config."""


def causal_types() -> list[str]:
    """The types that are in transformers' mapping of causal language models."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def wrapping_types() -> dict[str, str]:
    """The types whose configs have the config of a causal language model in them, and its type. Imports all configs."""
    found = {}
    for name in sorted(CONFIG_MAPPING.keys()):
        if name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            continue
        kind = CONFIG_MAPPING[name]
        if not getattr(kind, "sub_configs", None):
            continue
        try:
            text = kind().get_text_config(decoder=True)
        except Exception:  # a config that has no default
            continue
        if type(text) is not kind and type(text) in MODEL_FOR_CAUSAL_LM_MAPPING:
            found[name] = str(text.model_type)
    return found


def all_types() -> list[str]:
    """The types of the table."""
    return sorted({*causal_types(), *wrapping_types(), *(name for names in FAMILIES.values() for name in names)})


def by_config(name: str) -> Verdict:
    """The verdict of a type by its config and the class of its model. Nothing is run."""
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = CONFIG_MAPPING[name](**PUBLISHED.get(name, {}))
            text = str(config.get_text_config(decoder=True).model_type)
            _folder(Path(made), config)
        except Exception as error:
            return Verdict("refused", f"its class has no default config: {_line(error)}")
        text = "" if text == name else text
        try:
            loaded = load_config(made, trust_remote_code=False)
        except HeadstartError as error:
            return Verdict("refused", error.message.replace(f"'{made}'", "the model").replace(made, "the model"), text)
        return Verdict("modules" if find_recipe(loaded) is None else "native", text=text)


def agrees(now: Verdict, before: Verdict) -> bool:
    """Whether a verdict by the config is the recorded one, or what a tiny model then refuted."""
    if before.tried in ("", "exact") or before.verdict != "refused":
        return (now.verdict, now.why, now.text) == (before.verdict, before.why, before.text)
    return now.verdict != "refused"


def _folder(folder: Path, config: Any) -> None:
    """A checkpoint of this config, for which there are tensors enough, though none of its own."""
    config.save_pretrained(folder)
    stated = json.loads((folder / "config.json").read_text())
    stated.setdefault("model_type", config.model_type)
    (folder / "config.json").write_text(json.dumps(stated))
    save_file({f"{i}": torch.zeros(1) for i in range(500)}, folder / "model.safetensors", {"format": "pt"})


def tried(name: str) -> Verdict:
    """The verdict of a type that is admitted, after a tiny random model of it was run."""
    said = by_config(name)
    if said.verdict == "refused" or said.text:
        return said
    error: Exception | None = None
    for config in _tiny(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = _random(config)
            except Exception as caught:  # sizes that do not go together
                error = error or caught
                continue
            try:
                runner = ModelRunner(adopt(model))
            except HeadstartError as refused:
                return Verdict("refused", f"at load: {refused.message.partition(' (')[0]}", tried="refused")
            return Verdict("modules" if runner.decoder == "modules" else "native", said.why, tried="exact")
    return Verdict(said.verdict, tried=f"no tiny model could be made: {_line(error)}")


def tiny_model(name: str) -> Any:
    """A tiny random model of a type that is admitted."""
    error: Exception | None = None
    for config in _tiny(name):
        try:
            return _random(config)
        except Exception as caught:  # sizes that do not go together
            error = error or caught
    raise LookupError(f"no tiny {name}: {_line(error)}") from error


def _tiny(name: str) -> Iterator[Any]:
    """Tiny configs of a type, the likeliest first."""
    kind = CONFIG_MAPPING[name]
    known = {*inspect.signature(kind).parameters, *getattr(kind, "attribute_map", {})}
    for more in _FEWER:
        wanted = _SIZES | more | _TINY.get(name, {})
        sizes = {key: value for key, value in wanted.items() if key in known and value is not None}
        for kept in (sizes, {key: value for key, value in sizes.items() if key != "hidden_size_per_layer_input"}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    config = kind(**kept)
                except Exception:  # this class has its own rules
                    continue
            yield config


def _random(config: Any) -> Any:
    """A random model on which wrong positions, masks and norms show."""
    config = listed(config)
    with torch.device("meta"):
        sizes = [each.numel() for each in AutoModelForCausalLM.from_config(config, dtype=torch.float32).parameters()]
    if sum(sizes) > 20_000_000:
        raise ValueError("it is not tiny, because some of its sizes are not known here")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.05))
        model(torch.arange(5, 12)[None], use_cache=False)
    return model


def _line(error: Exception | None) -> str:
    """The last line says it, where a validator tells whose it is before."""
    return ([line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[-1][:160]


# -- the fixture and the page ----------------------------------------------------------------------------------------


def record(verdicts: Mapping[str, Verdict]) -> str:
    """The fixture: one type a line."""
    lines = [
        f"{json.dumps(name)}: {json.dumps({key: value for key, value in asdict(verdict).items() if value})}"
        for name, verdict in verdicts.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def recorded() -> dict[str, Verdict]:
    return {name: Verdict(**found) for name, found in json.loads(FIXTURE.read_text(encoding="utf-8")).items()}


ABOUT = """# Supported models and limits

headstart runs decoder-only language models with softmax attention, [mixtures of experts](guides/mixtures.md), and
[hybrids](guides/hybrid-models.md), most of whose layers keep a state instead. To ask about your own model, run:

```
headstart info MODEL
```

It reads the config and no weights, and says what would run the model here, or why it is refused
([the guide](guides/info.md)). The tables below follow from the `model_type` in `config.json`.

{meaning}

- **A verdict is about the default config** of a class of transformers. A checkpoint whose config says something that
  headstart does not know, such as an unknown kind of rotation, runs on transformers' modules.
- **Every model is checked when it is loaded**, whatever this page says: its logits are compared with transformers' own on
  a few tokens, and a model that differs is refused.
- **"tried"** in a table means that a tiny random model of the type gave transformers' logits.

This page is made with `{command}`, for transformers {version}.

## Files that can be read

| Files | What runs | Guide |
| --- | --- | --- |
| safetensors in float32, bfloat16, float16 | every type below that is not refused | |
| GPTQ, AWQ, compressed-tensors | native types, on the file's codes | [quantised checkpoints](guides/quantised-models.md) |
| GGUF | the architectures that the guide lists, on the file's blocks | [GGUF](guides/gguf.md#what-can-be-read) |
| pickles (`*.bin`, `*.pt`) | refused: reading one can run code | [convert it](guides/troubleshooting.md#holds-its-weights-only-as-a-pickle) |

## Which drafters a model can use

| Drafter | native | modules |
| --- | --- | --- |
| n-gram, suffix, predicted output, lookahead | yes | yes |
| a draft model, its own type native or modules | yes | yes |
| Medusa, EAGLE, P-EAGLE, DFlash, DSpark heads | yes | yes |
| `mtp`: the head inside the checkpoint | [the models that are listed](guides/drafters-inside-models.md#what-runs) | as listed there |
| `early-exit`, `self-int4` | yes | no |

## Limits

| Limit | Value | How to change it |
| --- | --- | --- |
| Context: prompt and text together | the model's limit, at most 4,096 tokens; `headstart serve` takes what memory allows | `--max-model-len`, `max_length=` |
| Requests at once | 8 | `--max-batch-size`, `max_batch_size=` |
| Nodes of a draft on hybrids | 64 | |
| Images, sound, video | not read. Of a model that could take them the text part runs | |
| LoRA adapters | not loaded. Merge them into the weights first | |
| Encoder-decoder models, embeddings, classifiers | refused | |
| Several GPUs, or a model divided between GPU and processor | not supported | [another engine](guides/when-to-use-which.md) |
| `float16` on a processor | runs on tensor operations, without the row kernels | `--dtype bfloat16` |
"""

MEANING = (
    (
        "**native**",
        "headstart's own decoders: row kernels on a processor, tensor operations elsewhere",
        "all formats of `--quantize`, early exit and `self-int4`; on the row kernels [the same bits]"
        "(concepts/same-bits.md) in any batch and draft",
    ),
    (
        "**modules**",
        "transformers' modules, with headstart's cache and attention",
        "exact, with every drafter that needs no early exit; int8 at most",
    ),
    ("**refused**", "nothing: the model cannot be run exactly, and loading says why", ""),
)


def page(verdicts: Mapping[str, Verdict], version: str) -> str:
    """docs/supported-models.md."""
    found = [each.verdict for each in verdicts.values()]
    counts = ", ".join(f"{found.count(kind)} {kind}" for kind in ("native", "modules", "refused"))
    meaning = "\n".join(_table(("Verdict", "What runs the model", "What follows"), MEANING))
    families = [
        (name, ", ".join(f"`{each}`" for each in types), _said(types, verdicts)) for name, types in FAMILIES.items()
    ]
    types = [
        (f"`{name}`" + (f" (text: `{each.text}`)" if each.text else ""), each.verdict, _remark(each))
        for name, each in verdicts.items()
    ]
    return "\n".join(
        [
            ABOUT.format(command=REGENERATE, version=version, meaning=meaning),
            "## Families\n",
            *_table(("Family", "Model types", "Verdict"), families),
            "\n## All model types\n",
            f"All {len(verdicts)} types of transformers that are causal language models, or hold one beside a tower "
            f"for pictures or sound: {counts}.\n",
            *_table(("Model type", "Verdict", "Remark"), types),
            "",
        ]
    )


def _said(types: Sequence[str], verdicts: Mapping[str, Verdict]) -> str:
    found: dict[str, list[str]] = {}
    for each in types:
        found.setdefault(verdicts[each].verdict, []).append(each)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{verdict}: {', '.join(f'`{each}`' for each in names)}" for verdict, names in found.items())


def _remark(each: Verdict) -> str:
    said = [each.why, "tried" if each.tried == "exact" else "" if each.why else each.tried]
    return "; ".join(part for part in said if part)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("<", "\\<") for cell in line) + " |" for line in lines]
