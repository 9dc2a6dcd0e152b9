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
