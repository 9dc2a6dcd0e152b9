"""`drafter/`: one flat folder that vLLM (both of its runners), SGLang and headstart read alike.

EAGLE-3: vLLM and headstart read `eagle_aux_hidden_state_layer_ids` at the top of the config as the layers whose
*inputs* the head reads; SGLang reads the same field in `eagle_config` as those whose *outputs* it reads, one less.
vLLM's newer runner knows only the top one and otherwise falls back to layers of its own choice, so both are written,
whatever the source had. A head of several layers has `layers.{i}.*`, which vLLM alone reads.

P-EAGLE: engines know the token of masked rows by different names, so all of them are written. vLLM raises on tensors
that it does not know, in whatever file they lie: a selector stays behind.

Medusa: vLLM drops the biases of heads unless `medusa_fc_bias` says that there are any.

Sources: vLLM 0.32 (v1/worker/gpu_model_runner.py, v1/worker/gpu/spec_decode/eagle/eagle3_utils.py,
model_executor/models/medusa.py, transformers_utils/configs/medusa.py), SGLang 0.5.23 (models/llama_eagle3.py).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from headstart.fleet.export.subject import Subject
from headstart.model.heads import eagle_checkpoint
from headstart.model.heads.eagle_checkpoint import SELECTOR, HeadConfig
from headstart.model.heads.eagle_config import MASK_TOKENS
from headstart.model.heads.medusa import HeadWeights, read_heads
from headstart.model.heads.stored_tensors import SCALE, in_numbers, names_in
from headstart.model.loading import fetch

NAME = "drafter"
_HALVES = (torch.bfloat16, torch.float16)
_WEIGHTS = "model.safetensors"
_MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt", "vocab.txt")
_NESTED = ("transformer_layer_config", "speculators_config", "speculators_model_type", "speculators_version")
_LAYER = re.compile(r"^(?:model\.)?(?:midlayer|layers\.0)\.")
_OF_LAYER = ("self_attn.", "mlp.", "input_layernorm.", "hidden_norm.", "post_attention_layernorm.")
_SELECTOR = ("selector_rank", "selector_top_k")
_MEDUSA_COUNT = re.compile(r"num.*(?:heads|layers)|(?:heads|layers).*num")


def write_drafter(folder: Path, subject: Subject) -> tuple[int, ...] | None:
    """Write the drafter's files into a new folder, and return an EAGLE-3 head's layer ids, as inputs.

    Raises:
        UnsupportedModel (PickleCheckpoint), ModelNotFound: what is there cannot be read or is of another target.
    """
    folder.mkdir(parents=True)
    drafter, target = subject.drafter, subject.target
    source = fetch(drafter.source)
    if drafter.kind == "eagle3":
        config = eagle_checkpoint.read(source, target.config).config
        write_json(folder / "config.json", eagle3_config(drafter.raw, config))
        _save(folder, in_numbers(source, dict(_flat_tensors(source, config.layers))), drafter.raw, source)
        return config.layer_ids
    if drafter.kind == "medusa":
        heads = read_heads(source)
        write_json(folder / "config.json", medusa_config(drafter.raw, heads))
        _save(folder, dict(_medusa_tensors(heads)), drafter.raw, source)
        return None
    for pattern in _MODEL_FILES:
        for file in sorted(source.glob(pattern)):
            shutil.copyfile(file, folder / file.name)
    return None


def eagle3_config(raw: Mapping[str, Any], config: HeadConfig) -> dict[str, Any]:
    """The flat form of a head's config, from either form. raw: as it stood; config: what headstart read of it."""
    flat = {**(raw.get("transformer_layer_config") or {}), **raw}
    for name in (*_NESTED, *_SELECTOR, "norm_output"):
        flat.pop(name, None)
    ids = list(config.layer_ids)
    ours = {**(raw.get("headstart") or {}), "layer_ids": ids, "layer_ids_are": "inputs"}
    features = {name: True for name in ("norm_before_fc", "fc_norm") if getattr(config, name)}
    if config.norm_output and not config.parallel:  # masked rows are never given a state of the head's own
        features["norm_output"] = True
    masks = dict.fromkeys(MASK_TOKENS, config.mask_token_id) if config.parallel else {}
    return {
        **flat,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": config.layers,
        "vocab_size": config.vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_width,
        # Where it is missing, vLLM reads True from one form and False from the other: it is always written
        "norm_before_residual": config.norm_before_residual,
        **features,
        **masks,
        "eagle_aux_hidden_state_layer_ids": ids,
        "eagle_config": {
            **(raw.get("eagle_config") or {}),
            "eagle_aux_hidden_state_layer_ids": [i - 1 for i in ids],
            "use_aux_hidden_state": True,
        },
        "headstart": ours,
    }


def medusa_config(raw: Mapping[str, Any], heads: list[HeadWeights]) -> dict[str, Any]:
    """A config with the number of heads that there are, and with what vLLM needs to load their biases.

    vLLM takes every key with "num" and "heads" or "layers" in it for a count of its own, so only these two have one.
    """
    kept = {name: value for name, value in raw.items() if not _MEDUSA_COUNT.search(name)}
    vocab_size, width = heads[0].output.shape
    return {
        **kept,
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": width,
        "vocab_size": vocab_size,
        "medusa_num_heads": len(heads),
        "medusa_num_layers": len(heads[0].blocks),
        "medusa_fc_bias": True,
    }


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _flat_tensors(source: Path, layers: int) -> Iterator[tuple[str, Tensor]]:
    """A head's tensors by the names of the flat form: `midlayer.*` for its one layer, or `layers.{i}.*` of several. Not
    those of a selector."""
    first = "midlayer" if layers == 1 else "layers.0"
    for file in sorted(source.glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            for name in stored.keys():  # noqa: SIM118 (it is no mapping)
                bare = _LAYER.sub("", name).removeprefix("model.")
                if not bare.startswith(SELECTOR):
                    yield (f"{first}.{bare}" if bare.startswith(_OF_LAYER) else bare), stored.get_tensor(name)


def _medusa_tensors(heads: list[HeadWeights]) -> Iterator[tuple[str, Tensor]]:
    for number, head in enumerate(heads):
        for block, (weight, bias) in enumerate(head.blocks):
            yield f"{number}.{block}.linear.weight", weight
            yield f"{number}.{block}.linear.bias", bias
        yield f"{number}.{len(head.blocks)}.weight", head.output


def _save(folder: Path, tensors: Mapping[str, Tensor], raw: Mapping[str, Any], source: Path) -> None:
    """What was on int8, which only headstart reads, has become float32, and takes the dtype that the config names."""
    names = {name for file in source.glob("*.safetensors") for name in names_in(file)}
    named = getattr(torch, str(raw.get("dtype") or raw.get("torch_dtype")), None)
    was_rounded = named in _HALVES and any(name.endswith(SCALE) for name in names)
    kept = {
        name: (tensor.to(named) if was_rounded and tensor.dtype == torch.float32 else tensor).contiguous()
        for name, tensor in tensors.items()
    }
    save_file(kept, folder / _WEIGHTS, metadata={"format": "pt"})
