"""PyTorch's library is read before PyTorch is imported, and the import finds the same PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headstart.__main__ import _runs
from headstart.base import preload

_MAPPED = "'libtorch_cpu.so' in open('/proc/self/maps').read()"


@pytest.mark.skipif(sys.platform != "linux", reason="read ahead on Linux alone")
def test_the_library_is_there_before_pytorch_is_imported() -> None:
    program = (
        "import sys\nfrom headstart.base import preload\n"
        f"preload.begin().join()\nprint({_MAPPED}, 'torch' in sys.modules)\n"
        "import torch\nprint((torch.arange(6.0).reshape(2, 3) @ torch.ones(3)).tolist(), preload.begin())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True False", "[3.0, 12.0] None"]


def test_what_is_not_there_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "libtorch_cpu.so").write_bytes(b"no library")
    preload._read(tmp_path)


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["generate", "x"], True),
        (["chat", "m"], True),
        (["generate", "--help"], False),
        (["chat", "-h"], False),
        (["simulate"], False),
        (["--version"], False),
        ([], False),
    ],
)
def test_only_commands_that_run_a_model_read_it(words: list[str], runs: bool) -> None:
    assert _runs(words) is runs


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


_METAS = """
def metas():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and has(name, "Meta")]
"""


def test_operators_of_tensors_without_memory_come_with_what_needs_them() -> None:
    """The same ones as of a plain import, and not before."""
    plain = run(f"import torch\n{_METAS}\nprint(*metas())").split()
    later = "from headstart.base import preload\npreload.begin()\nimport torch\n" + _METAS
    before, after = run(f"{later}\nprint(*metas())\nimport transformers\nprint(*metas())").splitlines()
    assert len(before.split()) < len(plain)
    assert sorted(after.split()) == sorted(plain)
    assert run(f"{later}\npreload.complete()\nprint(*metas())").split() == plain


def test_what_waits_is_there_when_it_is_used() -> None:
    program = (
        "from headstart.base import preload\npreload.begin()\nimport sys, torch\n"
        "print(*sorted(n for n, m in sys.modules.items() if isinstance(m, preload._Waiting)))\n"
        "print(torch.distributions.Normal(0.0, 1.0).mean.item(), torch.export.export.__name__)\n"
        "import torch.nn.intrinsic.qat\nfrom torch.ao.quantization import QConfig\nfrom torch.masked import *\n"
        "print(*sorted(n for n, m in sys.modules.items() if isinstance(m, preload._Waiting)), masked_tensor.__name__)\n"
        "print(torch.nn.intrinsic.LinearReLU.__module__, torch.compile(torch.nn.Linear(2, 2)).training)"
    )
    waiting, used, left, last = run(program).splitlines()
    assert set(waiting.split()) == preload.LATER
    assert used == "0.0 export"
    assert "torch.ao" not in left.split()
    assert "torch.masked" not in left.split()
    assert left.endswith(" masked_tensor")
    assert last == "torch.ao.nn.intrinsic.modules.fused True"
