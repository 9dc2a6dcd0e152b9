"""Quantised checkpoints as their programs would write them, from random codes, and the same weights in floats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

Made = tuple[dict[str, Tensor], Tensor]
"""A matrix's tensors by their names, and its weights [outputs, inputs] in float32."""


def packed(codes: Tensor, bits: int, order: Sequence[int] | None = None) -> Tensor:
    """Codes [rows, n] as int32 words [rows, ceil(n * bits / 32)], one bit field after the other from the lowest."""
    each = 32 // bits
    rows = []
    for row in codes.tolist():
        row += [0] * (-len(row) % each)
        words = []
        for begin in range(0, len(row), each):
            eight = row[begin : begin + each]
            word = sum(eight[place] << (bits * i) for i, place in enumerate(order or range(each)))
            words.append(word - (1 << 32) if word >= 1 << 31 else word)
        rows.append(words)
    return torch.tensor(rows, dtype=torch.int32)


class Matrices:
    """Random matrices in one format. group: -1 for whole outputs."""

    def __init__(self, bits: int = 4, group: int = 32, *, zeros: bool = True, seed: int = 3) -> None:
        self.bits, self.group, self.zeros = bits, group, zeros
        self._random = torch.Generator().manual_seed(seed)

    def _draw(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self._random)

    def _numbers(self, outputs: int, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
        """Unsigned codes [outputs, inputs]; scales and zeros [outputs, groups]."""
        groups = 1 if self.group < 0 else -(-inputs // self.group)
        most = 1 << self.bits
        codes = self._draw(0, most, outputs, inputs)
        scales = (torch.rand(outputs, groups, generator=self._random) + 0.5) * 0.8 / most
        zeros = self._draw(1, most, outputs, groups) if self.zeros else torch.full((outputs, groups), most // 2)
        return codes, scales.half(), zeros

    def dense(self, codes: Tensor, scales: Tensor, zeros: Tensor, of: Tensor) -> Tensor:
        """of: the group of each input."""
        return scales.float()[:, of] * (codes - zeros[:, of]).float()

    def groups(self, inputs: int) -> Tensor:
        return torch.zeros(inputs, dtype=torch.long) if self.group < 0 else torch.arange(inputs) // self.group

    def gptq(self, outputs: int, inputs: int, *, version: int = 1, shuffled: bool = False) -> Made:
        codes, scales, zeros = self._numbers(outputs, inputs)
        of = self.groups(inputs)
        if shuffled:  # the same for layers of one input
            of = of[torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs))]
        stored = zeros - int(version == 1)
        tensors = {
            "qweight": packed(codes, self.bits).t().contiguous(),
            "qzeros": packed(stored.t(), self.bits),
            "scales": scales.t().contiguous(),
            "g_idx": of.to(torch.int32),
        }
        return tensors, self.dense(codes, scales, zeros, of)

    def awq(self, outputs: int, inputs: int) -> Made:
        codes, scales, zeros = self._numbers(outputs, inputs)
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        tensors = {
            "qweight": packed(codes.t(), 4, order),
            "qzeros": packed(zeros.t(), 4, order),
            "scales": scales.t().contiguous(),
        }
        return tensors, self.dense(codes, scales, zeros, self.groups(inputs))

    def compressed(self, outputs: int, inputs: int, *, shuffled: bool = False) -> Made:
        codes, scales, zeros = self._numbers(outputs, inputs)
        of = self.groups(inputs)
        if shuffled:
            of = of[torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs))]
        tensors = {
            "weight_packed": packed(codes, self.bits),
            "weight_scale": scales.bfloat16(),
            "weight_shape": torch.tensor([outputs, inputs]),
        }
        if self.zeros:
            tensors["weight_zero_point"] = packed(zeros.t(), self.bits).t().contiguous()
        if shuffled:
            tensors["weight_g_idx"] = of.to(torch.int32)
        return tensors, self.dense(codes, scales.bfloat16(), zeros, of)

    def channels(self, outputs: int, inputs: int, *, whole: bool = False) -> Made:
        codes = self._draw(-128, 128, outputs, inputs).to(torch.int8)
        scales = (torch.rand(1 if whole else outputs, 1, generator=self._random) + 0.5) * 3e-3
        return {"weight": codes, "weight_scale": scales.reshape(-1) if whole else scales}, scales * codes.float()

    def fp8(self, outputs: int, inputs: int, *, blocks: bool) -> Made:
        numbers = torch.randn(outputs, inputs, generator=self._random).to(torch.float8_e4m3fn)
        shape = (-(-outputs // 128), -(-inputs // 128)) if blocks else (outputs, 1)
        scales = torch.rand(*shape, generator=self._random) * 0.2 + 0.1
        spread = scales.repeat_interleave(128, 0).repeat_interleave(128, 1) if blocks else scales
        dense = numbers.float() * (spread[:outputs, :inputs] if blocks else spread)
        return {"weight": numbers, "weight_scale_inv" if blocks else "weight_scale": scales}, dense


def write(
    folder: Path,
    model: Any,
    make: Any,
    settings: Mapping[str, Any],
    *,
    change: Mapping[str, Tensor | None] | None = None,
    keep: tuple[str, ...] = ("lm_head",),
) -> Any:
    """Write a model whose matrices are what `make(outputs, inputs)` gives, and return it with these weights in floats.

    change: tensors that are put in place of others, or left out. keep: modules that stay floats.
    """
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name not in keep:
            parts, dense = make(module.out_features, module.in_features)
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{kind}": part.contiguous() for kind, part in parts.items()}
            module.weight.data.copy_(dense)
    for name, tensor in (change or {}).items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict() | {"architectures": [type(model).__name__], "quantization_config": dict(settings)}
    (folder / "config.json").write_text(json.dumps(config))
    return model


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic", "fmt": "e4m3"}


def compressed(
    layout: str, weights: Mapping[str, Any], rows: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """The settings of a checkpoint of compressed-tensors."""
    group = {"targets": ["Linear"], "weights": dict(weights), "input_activations": rows, "output_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
        "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None, **more,
    }  # fmt: skip


BY_ROW = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
W8A8 = compressed("int-quantized", {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}, BY_ROW)


def w4a16(group: int = 32, bits: int = 4, *, symmetric: bool = True, actorder: str | None = None) -> dict[str, Any]:
    """The settings of codes with floats for rows."""
    size = {"strategy": "channel", "group_size": None} if group < 0 else {"strategy": "group", "group_size": group}
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "actorder": actorder, **size}
    return compressed("pack-quantized", weights)
