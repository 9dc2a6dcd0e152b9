"""Teams of threads: pieces that are done once and in order, whoever is late, and the same bits on any threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.sanitized import hybrid_of, runner_of
from transformers import AutoModelForCausalLM

from headstart.base.compiling import Unavailable, find_compiler
from headstart.model import native
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.model.threads import use_threads
from headstart.types import Draft

SOURCES = native.MAIN.parent
PROGRAM = Path(__file__).parents[2] / "support" / "team.cpp"
PLANTS = {
    "nothing": ("", ""),
    "a member that does not wait for the others": ("        wait();\n", ""),
    "a late member that takes what it has missed": ("later ? 0 : int64_t(word & PART)", "int64_t(word & PART)"),
}


def ran(tmp_path: Path, *flags: str, plant: str = "nothing") -> subprocess.CompletedProcess[str]:
    """The program of `PROGRAM`, compiled with these flags, and run."""
    for name in ("team.h", "threads.h"):
        shutil.copy(SOURCES / name, tmp_path)
    good, bad = PLANTS[plant]
    if good:
        text = (tmp_path / "team.h").read_text()
        assert text.count(good) == 1
        (tmp_path / "team.h").write_text(text.replace(good, bad))
    try:
        compiler = find_compiler()
    except Unavailable as reason:
        pytest.skip(str(reason))
    command = [compiler, "-std=c++17", "-O1", "-pthread", *flags, f"-I{tmp_path}", str(PROGRAM), "-o"]
    made = subprocess.run([*command, str(tmp_path / "program")], capture_output=True, text=True, check=False)
    if made.returncode and "-fsanitize" in " ".join(flags):
        pytest.skip(f"the compiler has no thread sanitizer: {made.stderr[-200:]}")
    assert made.returncode == 0, made.stderr
    return subprocess.run([str(tmp_path / "program")], capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.parametrize("plant", PLANTS)
def test_every_piece_is_done_once_and_after_the_phase_before(plant: str, tmp_path: Path) -> None:
    done = ran(tmp_path, plant=plant)
    if plant == "nothing":
        assert done.returncode == 0, done.stdout
        assert "ran to the end" in done.stdout
    else:
        assert done.returncode != 0


@pytest.mark.slow
def test_teams_under_the_thread_sanitizer(tmp_path: Path) -> None:
    done = ran(tmp_path, "-g", "-fsanitize=thread")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ran to the end" in done.stdout


@pytest.fixture(params=["PyTorch's threads", "our own"])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where a team's threads come from."""
    if not native.available():
        pytest.skip(f"no row kernels: {native.reason()}")
    if request.param == "our own":
        native.kernels().use_runtime(None)
    elif native._openmp() is None:
        pytest.skip("this PyTorch brings no GNU OpenMP runtime")
    yield
    use_threads(None)
    native.kernels().use_runtime(native._openmp())


def logits(runner: ModelRunner, threads: int) -> torch.Tensor:
    """Of a prompt, a tree and a single row beside each other, then of one row alone."""
    use_threads(threads)
    cache = runner.new_cache(3)
    slots = [cache.acquire() for _ in range(3)]
    prompt = tuple(range(3, 20))
    both = runner.forward([Segment(slot, prompt, judged=1) for slot in slots], cache).logits
    for slot in slots:
        cache.keep(slot, len(prompt))
    tree = Draft((11, 12, 13, 14, 15), (-1, -1, 0, 0, 2))
    more = runner.forward([Segment(slots[0], (5,), tree), Segment(slots[1], (6,))], cache).logits
    alone = runner.forward([Segment(slots[2], (7,))], cache).logits
    return torch.cat([*both, *more, *alone])


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("kind", ["bfloat16", "int8", "int4", "lfm2", "qwen3_5", "granite"])
def test_the_same_bits_on_any_number_of_threads(kind: str) -> None:
    quantize = kind if kind.startswith("int") else None
    runner = runner_of(torch.bfloat16, quantize, None) if quantize or kind == "bfloat16" else hybrid_of(kind)
    want = logits(runner, 1)
    for threads in (2, 3, 5, 2):
        assert torch.equal(logits(runner, threads), want), threads


@pytest.mark.usefixtures("_threads")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_the_child_of_a_fork_runs_forwards_on_threads_of_its_own(tiny: Callable[..., str]) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32)
    runner = ModelRunner(adopt(model), decoder="fused")
    want = logits(runner, 2)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)
        os._exit(0 if torch.equal(logits(runner, 2), want) else 1)
    assert os.waitpid(child, 0)[1] == 0
