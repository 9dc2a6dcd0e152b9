"""The repair of vllm#55005: what it computes, when it is applied, and when it keeps its hands off."""

from __future__ import annotations

import dis
import logging
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broken_expansion import fresh

from headstart.fleet import vllm_repair
from headstart.fleet.vllm import PLUGIN, write_plugin
from headstart.fleet.vllm_repair import digest, expand, mend, repair

ROOT = Path(__file__).parents[2]
JUNK = 77
FLOATS, INTEGERS = (torch.float32, torch.float64, torch.bfloat16), (torch.int32, torch.int64)


def expanded(function: Any, values: torch.Tensor, rows: list[int], replace: tuple[int, int] = (0, 0)) -> list[float]:
    """What vLLM does with the function: new memory, here full of junk, that it is to write."""
    output = torch.full((sum(rows),), JUNK, dtype=values.dtype)
    ends = torch.tensor(rows, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    function(output, values, ends, *replace, 128)
    return output.tolist()


def twin(values: list[float], rows: list[int], replace: tuple[int, int]) -> list[float]:
    return [
        replace[1] if value == replace[0] else value for value, n in zip(values, rows, strict=True) for _ in range(n)
    ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_each_request_s_value_stands_in_each_of_its_rows(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(FLOATS + INTEGERS))
    rows = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=9))
    choice = st.sampled_from([0.0, 0.05, 0.7, 1.0, 1.5, 40.0, 50000.0])
    values = torch.tensor([data.draw(choice) for _ in rows]).to(dtype)
    replace = data.draw(st.sampled_from([(0, 0), (0, 1), (40, 2)]))
    assert expanded(expand, values, rows, replace) == twin(values.tolist(), rows, replace)


def test_rows_past_the_last_stay_as_they_are() -> None:
    output = torch.full((5,), float(JUNK))
    expand(output, torch.tensor([0.7, 0.0]), torch.tensor([2, 3]), 0, 1)
    assert output.tolist() == [pytest.approx(0.7), pytest.approx(0.7), 1.0, JUNK, JUNK]


def test_the_stand_in_has_the_fault_and_the_repair_ends_it() -> None:
    kernels = fresh()
    temperatures, rows = torch.tensor([0.7, 0.0, 1.5]), [2, 3, 1]
    taken = kernels._expand_kernel_impl
    assert expanded(taken, temperatures, rows, (0, 1)) == [JUNK] * 6, "the output is never written"
    assert expanded(taken, torch.tensor([5, 10]), [1, 2]) == [5, 10, 10], "except in the one dtype it was made for"
    assert mend(kernels, digest(kernels)) is None
    right = twin(temperatures.tolist(), rows, (0, 1))
    for function in (kernels._expand_kernel_impl, taken, kernels.expand_kernel[(3,)]):
        assert expanded(function, temperatures, rows, (0, 1)) == right, "whoever took hold of it before is served too"


def test_an_unknown_source_is_left_alone() -> None:
    kernels = fresh()
    code = kernels._expand_kernel_impl.__code__
    assert "not the one known to be broken" in str(mend(kernels, vllm_repair.BROKEN))
    assert kernels._expand_kernel_impl.__code__ is code


def test_a_second_call_changes_nothing() -> None:
    kernels = fresh()
    known = digest(kernels)
    assert mend(kernels, known) is None
    assert mend(kernels, known) == ""
    assert expanded(kernels._expand_kernel_impl, torch.tensor([0.3]), [2]) == [pytest.approx(0.3)] * 2


def test_it_runs_as_vllm_s_function_which_has_other_global_names() -> None:
    assert not [line for line in dis.get_instructions(expand) if "GLOBAL" in line.opname]
    assert expand.__code__.co_freevars == ()
    assert expand.__code__.co_varnames[:6] == fresh()._expand_kernel_impl.__code__.co_varnames[:6]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A vLLM of four modules, as far as the plugin looks at it: on a CPU, with the broken kernels."""
    kernels, platform = fresh(), SimpleNamespace(is_cpu=lambda: True)
    for name in ("vllm", "vllm.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.platforms", SimpleNamespace(current_platform=platform))
    monkeypatch.setitem(sys.modules, "vllm.utils.cpu_triton_utils", kernels)
    monkeypatch.setattr(vllm_repair, "BROKEN", digest(kernels))
    return SimpleNamespace(kernels=kernels, platform=platform)


def test_the_plugin_repairs_and_says_so_once(vllm: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    repair()
    repair()
    assert expanded(vllm.kernels._expand_kernel_impl, torch.tensor([0.7]), [2]) == [pytest.approx(0.7)] * 2
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name.startswith("vllm."), "vLLM shows what is logged below its own name, with the process"
    assert "vllm#55005" in record.getMessage()
    assert "VLLM_PLUGINS" in record.getMessage()


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("another source", "not the one known to be broken"),
        ("a GPU", "vLLM does not run on a CPU"),
        ("another layout", "AttributeError"),
        ("no vLLM", "ModuleNotFoundError"),
    ],
)
def test_otherwise_it_does_nothing_and_says_why(
    vllm: SimpleNamespace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, planted: str, said: str
) -> None:
    code = vllm.kernels._expand_kernel_impl.__code__
    if planted == "another source":
        monkeypatch.setattr(vllm_repair, "BROKEN", "0" * 64)
    elif planted == "a GPU":
        vllm.platform.is_cpu = lambda: False
    elif planted == "another layout":
        del vllm.kernels._ensure_int64
    else:
        monkeypatch.setitem(sys.modules, "vllm", None)
        monkeypatch.delitem(sys.modules, "vllm.platforms")
    caplog.set_level(logging.INFO)
    repair()
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert said in record.getMessage()
    assert "vllm#55005" in record.getMessage()
    assert vllm.kernels._expand_kernel_impl.__code__ is code


def test_vllm_finds_it_by_its_entry_point() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, name = declared["vllm.general_plugins"][PLUGIN].split(":")
    assert getattr(import_module(module), name) is repair


def test_an_environment_without_headstart_gets_it_as_a_folder(tmp_path: Path) -> None:
    lines = (
        "from importlib.metadata import entry_points",
        "(plugin,) = entry_points(group='vllm.general_plugins')",
        "plugin.load()()",
        "print(plugin.name)",
    )
    env = {"PYTHONPATH": str(write_plugin(write_plugin(tmp_path / "made")))}  # over an older one, too
    command = [sys.executable, "-S", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{PLUGIN}\n", "")


def test_it_needs_nothing_that_vllm_s_environment_may_lack() -> None:
    lines = (
        "import sys",
        "class Blocked:",
        "    def find_spec(self, name, path=None, target=None):",
        "        if name.split('.')[0] not in sys.stdlib_module_names | {'headstart'}: raise ImportError(name)",
        "sys.meta_path.insert(0, Blocked())",
        "from headstart.fleet.vllm_repair import repair",
        "repair()",  # there is no vLLM: it says so at a level that is not shown, and stops nothing
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
