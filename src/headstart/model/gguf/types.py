"""What a GGUF file begins with, and the types of its tensors: how many numbers a block holds, in how many bytes."""

from __future__ import annotations

from dataclasses import dataclass

MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A way to store numbers."""

    name: str
    inputs: int
    """Numbers in a block."""
    size: int
    """Bytes of a block."""
    bits: int = 0
    """Of a code; 0 where numbers are floats."""
    memory: float = 0.0
    """Bits of a weight in the kernels: a code, and its part of the scales and minimums."""


# Sizes from ggml-common.h of ggml-org/llama.cpp, by the numbers that files hold
TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18, 4, 4.5),
    3: TensorType("Q4_1", 32, 20, 4, 5.0),
    6: TensorType("Q5_0", 32, 22, 5, 5.5),
    7: TensorType("Q5_1", 32, 24, 5, 6.0),
    8: TensorType("Q8_0", 32, 34, 8, 8.5),
    10: TensorType("Q2_K", 256, 84, 2, 3.125),
    11: TensorType("Q3_K", 256, 110, 3, 3.625),
    12: TensorType("Q4_K", 256, 144, 4, 4.625),
    13: TensorType("Q5_K", 256, 176, 5, 5.625),
    14: TensorType("Q6_K", 256, 210, 6, 6.625),
    20: TensorType("IQ4_NL", 32, 18, 4, 4.5),
    23: TensorType("IQ4_XS", 256, 136, 4, 4.375),
    27: TensorType("I64", 1, 8),
    30: TensorType("BF16", 1, 2),
    39: TensorType("MXFP4", 32, 17, 4, 4.25),
}
"""Types that can be read."""

OTHERS = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    21: "IQ3_S", 22: "IQ2_S", 24: "I8", 25: "I16", 26: "I32", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}  # fmt: skip
"""Types that cannot be read, by name."""
