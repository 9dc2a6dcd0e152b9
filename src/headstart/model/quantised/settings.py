"""From the `quantization_config` of a checkpoint to its layout; what would compute something else is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headstart.base.errors import UnsupportedModel
from headstart.model.quantised.formats import BLOCK, Awq, Channels, Fp8, Gptq, Packed
from headstart.model.quantised.layout import Layout
from headstart.model.quantised.mxfp4 import Mxfp4

_OTHERS = {
    "bitsandbytes": "its table of 16 numbers and its outliers are no whole numbers",
    "torchao": "its tensors are objects of that library, in layouts of certain devices",
}
_WAY_OUT = "give the original checkpoint, or a GGUF file of it; quantize='int4' or 'int8' rounds an original here"

_GPTQ = {
    "bits", "group_size", "desc_act", "sym", "checkpoint_format", "format", "quant_method", "static_groups",
    "damp_percent", "damp_auto_increment", "true_sequential", "model_name_or_path", "model_file_base_name", "meta",
    "lm_head", "pack_dtype", "batch_size", "block_name_to_quantize", "module_name_preceding_first_block", "dataset",
    "tokenizer", "use_exllama", "max_input_length", "exllama_config", "cache_block_outputs", "use_cuda_fp16",
    "modules_in_block_to_quantize", "backend", "model_seqlen", "pad_token_id", "version", "is_marlin_format", "mse",
    "act_group_aware", "offload_to_disk", "hessian",
}  # fmt: skip
_AWQ = {
    "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "format", "quant_method", "do_fuse",
    "modules_to_not_convert", "backend", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", "desc_act", "sym",
}  # fmt: skip
_COMPRESSED = {
    "config_groups", "format", "global_compression_ratio", "ignore", "kv_cache_scheme", "quant_method",
    "quantization_status", "sparsity_config", "transform_config", "version",
}  # fmt: skip


def layout_of(config: Any) -> Layout | None:
    """How a model's matrices are stored; None for floats.

    Raises:
        UnsupportedModel: in a way that is not known, or with a setting that is not.
    """
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        settings = settings.to_dict()
    method = str(settings.get("quant_method", settings.get("quant_type", "an unnamed method")))
    readers: dict[str, Callable[[Mapping[str, Any]], Layout]] = {
        "gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "compressed_tensors": _compressed,
        "fp8": _fp8, "mxfp4": _mxfp4,
    }  # fmt: skip
    if method not in readers:
        why = _OTHERS.get(method, "it is not known here")
        raise UnsupportedModel(f"the checkpoint is quantised by {method}, which cannot be run: {why}", hint=_WAY_OUT)
    return readers[method](settings)


def _gptq(settings: Mapping[str, Any]) -> Gptq:
    _check(settings, "GPTQ", _GPTQ)
    version = str(settings.get("checkpoint_format") or settings.get("format") or "gptq")
    if version not in ("gptq", "gptq_v2") or settings.get("is_marlin_format"):
        raise _refused("GPTQ", "checkpoint_format", "marlin" if version in ("gptq", "gptq_v2") else version)
    return Gptq(
        _one_of(settings, "GPTQ", "bits", (4, 8)), _group(settings, "GPTQ", "group_size"), int(version == "gptq")
    )


def _awq(settings: Mapping[str, Any]) -> Awq:
    _check(settings, "AWQ", _AWQ)
    version = str(settings.get("version") or settings.get("format") or "gemm").lower()
    if version != "gemm":
        raise _refused("AWQ", "version", version)
    if settings.get("zero_point") is False:
        raise _refused("AWQ", "zero_point", False)
    bits = _one_of({"bits": settings.get("bits", settings.get("w_bit"))}, "AWQ", "bits", (4,))
    return Awq(bits, _group(settings, "AWQ", "group_size" if "group_size" in settings else "q_group_size"))


def _compressed(settings: Mapping[str, Any]) -> Layout:
    name = "compressed-tensors"
    _check(settings, name, _COMPRESSED)
    for key in ("kv_cache_scheme", "transform_config"):
        if settings.get(key):
            raise _refused(name, key, settings[key])
    sparsity = settings.get("sparsity_config") or {}
    if sparsity.get("format", "dense") != "dense":
        raise _refused(name, "sparsity_config.format", sparsity["format"])
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise _refused(name, "config_groups", "several groups of settings" if groups else groups)
    (group,) = groups.values()
    weights, rows = group.get("weights") or {}, group.get("input_activations")
    layout = str(group.get("format") or settings.get("format"))
    if group.get("output_activations"):
        raise _refused(name, "output_activations", group["output_activations"])
    if layout == "float-quantized":
        return Fp8("compressed-tensors FP8")
    if weights.get("type", "int") != "int" or layout not in ("int-quantized", "pack-quantized"):
        raise _refused(name, "format", layout)
    strategy, symmetric = str(weights.get("strategy")), bool(weights.get("symmetric", True))
    if layout == "int-quantized":
        _one_of(weights, name, "num_bits", (8,))
        by_row = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
        wrong = [key for key, value in by_row.items() if (rows or {}).get(key) != value]
        if wrong:
            raise _refused(name, f"input_activations.{wrong[0]}", (rows or {}).get(wrong[0]))
        if strategy not in ("channel", "tensor") or not symmetric:
            raise _refused(name, "weights.strategy", strategy if symmetric else "with zeros")
        return Channels()
    if rows:
        raise _refused(name, "input_activations", "rounded rows beside packed weights")
    if strategy not in ("group", "channel"):
        raise _refused(name, "weights.strategy", strategy)
    size = _group(weights, name, "group_size") if strategy == "group" else -1
    ordered = str(weights.get("actorder") or "").lower() in ("group", "true")
    return Packed(_one_of(weights, name, "num_bits", (4, 8)), size, zeros=not symmetric, ordered=ordered)


def _fp8(settings: Mapping[str, Any]) -> Fp8:
    block = settings.get("weight_block_size")
    if block not in (None, [BLOCK, BLOCK]):
        raise _refused("FP8", "weight_block_size", block)
    return Fp8("FP8")


def _mxfp4(settings: Mapping[str, Any]) -> Mxfp4:
    _check(settings, "MXFP4", {"modules_to_not_convert", "quant_method"})
    return Mxfp4()


def _check(settings: Mapping[str, Any], name: str, known: set[str]) -> None:
    """Refuse settings that are not known, where they say anything."""
    for key in sorted(settings.keys() - known):
        if settings[key] not in (None, False, 0, "", [], {}):
            raise _refused(name, key, settings[key])


def _group(settings: Mapping[str, Any], name: str, key: str) -> int:
    """Inputs that share a scale, or -1 for all of an output."""
    size = settings.get(key)
    if not isinstance(size, int) or isinstance(size, bool) or (size != -1 and (size <= 0 or size % 16)):
        raise _refused(name, key, size)
    return size


def _one_of(settings: Mapping[str, Any], name: str, key: str, allowed: tuple[int, ...]) -> int:
    value = settings.get(key)
    if value not in allowed or isinstance(value, bool):
        raise _refused(name, key, value)
    return int(value)


def _refused(name: str, key: str, value: object) -> UnsupportedModel:
    shown = str(value)
    return UnsupportedModel(
        f"the checkpoint is {name} with {key}={shown[:60]}, which cannot be run exactly", hint=_WAY_OUT
    )
