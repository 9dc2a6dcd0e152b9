"""The kernels of AArch64, cross-compiled and run by QEMU: they pass the tests of this machine's kernels.

The tests themselves run here, and so do PyTorch and the twins they compare with (`support.emulated`). Compiling takes
half a minute for each level, once.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support import emulated

from headstart.model import native
from headstart.model.native.weights import NativeWeights

ROOT = Path(__file__).parents[3]
TESTS = ("native/test_grouped.py", "native/test_rounding.py", "decoders/test_fused.py", "decoders/test_recurrent.py")
WIDTHS = (1, 2, 3, 7, 13, 40)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(emulated.lacking() is not None, reason=emulated.lacking() or ""),
    pytest.mark.skipif(not native.available(), reason="nothing to compare with"),
]


@pytest.mark.parametrize("level", emulated.LEVELS)
def test_the_kernels_pass_the_tests_of_this_machines(level: str) -> None:
    files = [str(ROOT / "tests" / "model" / name) for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.emulated", "-m", "not slow", *files]
    environment = {**os.environ, emulated.VARIABLE: level, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def results(kernels: native.Kernels, kind: int, linear: torch.nn.Linear, x: torch.Tensor) -> NDArray[np.float32]:
    product = NativeWeights(kind).product(linear)
    y = np.full((len(x), linear.out_features), np.nan, np.float32)
    kernels.multiply(product, x.data_ptr(), len(x), y.ctypes.data, 1)
    return y


@pytest.mark.parametrize("kind", ["FLOAT32", "BF16_WIDE", "INT8"])
@pytest.mark.parametrize("level", emulated.LEVELS)
def test_products_have_the_bits_of_this_machines(level: str, kind: str) -> None:
    """For any number of rows: whole sums have no order, and sums of floats are one chain of fused multiply-adds."""
    here, there, number = native.kernels(), emulated.kernels(level), getattr(native, kind)
    if not here.supported(number):
        pytest.skip(f"this processor has no products of the kind {kind}")
    torch.manual_seed(5)
    x = torch.randn(max(WIDTHS), 208)
    for bias in (False, True):
        linear = torch.nn.Linear(208, 97, bias=bias)
        own = results(here, number, linear, x)
        for count in WIDTHS:
            assert np.array_equal(results(there, number, linear, x[:count].contiguous()), own[:count]), (bias, count)


def test_an_address_that_is_no_memory_ends_the_emulator_and_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    level = next(iter(emulated.LEVELS))
    library = emulated.Emulated(emulated.program(emulated.LEVELS[level]), emulated.PROCESSORS[level])
    activate = library.headstart_activate
    activate.argtypes, activate.restype = (ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64), None
    with pytest.raises(RuntimeError, match="ended with status 4"):
        activate(0, 1 << 40, 0, 1 << 40, 16)
    library.close()
    assert "no memory of the program" in capfd.readouterr().err
