"""FP8: floats of eight bits (e4m3) with a scale for a tensor, for each output, or for blocks of both.

They run nowhere here as they are; `quantize="none"` makes floats of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.grouped import GroupedWeights
from headstart.model.quantised.layout import ALL, FLOATS, Outputs, Part, Shape

BLOCK = 128


@dataclass(frozen=True)
class Fp8:
    """Of "fp8" (scales in blocks of 128 x 128, DeepSeek's and Qwen's way) and compressed-tensors' "float-quantized"."""

    name: str
    mark, kind, by_output, bits = "weight", None, False, 8
    bits_of_a_weight = 8.0

    def parts(self, shape: Shape) -> dict[str, Part]:
        outputs, inputs = shape
        blocks = (-(-outputs // BLOCK), -(-inputs // BLOCK))
        return {
            "weight": Part((shape,), ("F8_E4M3",)),
            "weight_scale_inv": Part((blocks,), FLOATS, needed=False),
            "weight_scale": Part(((outputs, 1), (outputs,), (1,), ()), FLOATS, needed=False),
            "input_scale": Part(((1,), ()), FLOATS, needed=False),
        }

    def codes(self, of: Outputs) -> GroupedWeights:
        raise UnsupportedModel(
            f"{self.name} does not run on the codes of {of.module}", hint="load it with quantize='none'"
        )

    def numbers(self, of: Outputs) -> Tensor:
        found = of.floats("weight", of.rows, ALL)
        if of.has("weight_scale_inv"):
            blocks = of.floats("weight_scale_inv")[torch.arange(of.first, of.end) // BLOCK]
            return found * blocks.repeat_interleave(BLOCK, 1)[:, : of.shape[1]]
        if not of.has("weight_scale"):
            raise of.tensors.damaged(f"{of.module} has no scale")
        return found * of.floats("weight_scale").reshape(-1).expand(of.shape[0])[of.rows, None]
