"""A stand-in for vLLM's module of CPU kernels, with the fault of vllm#55005: an adapter that drops its output.

Tests load it afresh, since the repair changes the function itself.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import torch


def fresh() -> ModuleType:
    """This module once more, as nobody has touched it."""
    spec = importlib.util.spec_from_file_location("stand_in_for_cpu_triton_utils", __file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernel(output: Any, values: Any, ends: Any, replace_from: int, replace_to: int) -> None:
    """Stands for the compiled kernel, which knows 64-bit integers alone."""
    assert output.dtype == values.dtype == ends.dtype == torch.int64
    start = 0
    for value, end in zip(values.tolist(), ends.tolist(), strict=True):
        output[start:end] = replace_to if value == replace_from else value
        start = end


def _ensure_int64(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.int64)  # a copy, unless it was int64 already


def _expand_kernel_impl(
    output: Any,
    input_val: Any,
    cu_num_tokens: Any,
    replace_from: Any,
    replace_to: Any,
    MAX_NUM_TOKENS: Any = None,  # noqa: N803 - vLLM's name
) -> None:
    values, ends = _ensure_int64(input_val), _ensure_int64(cu_num_tokens)
    kernel(_ensure_int64(output), values, ends, replace_from, replace_to)


class Wrapped:
    """How older versions of vLLM hold the function: taken at import, called as a kernel with its grid."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, grid: Any) -> Any:
        return self.function


expand_kernel = Wrapped(_expand_kernel_impl)
