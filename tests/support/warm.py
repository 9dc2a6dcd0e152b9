"""Commands of headstart in processes that need not import it: each is forked off one that has, and runs the console
script. To import PyTorch takes longer than most of what tests let commands do.

    with begun(["info", "my-model"], folder) as command:
        code, said = command.ended(60)

What they measure to set themselves, they measure for a moment only, as in all tests (tests/conftest.py).
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import headstart
from headstart.commands.cli import COMMANDS

PRELOADED = [
    *(f"headstart.commands.{name}" for name in COMMANDS),
    *("headstart.loading.load", "headstart.model.gguf.config", "headstart.model.gguf.tokenizer"),
    *("headstart.train.eagle3", "headstart.train.payoff"),
    *("headstart.serve.server", "headstart.serve.api.app", "transformers.models.llama.modeling_llama"),
]
_FORKS = get_context("spawn" if sys.platform == "win32" else "forkserver")
_FORKS.set_forkserver_preload(PRELOADED)


@dataclass(frozen=True)
class Command:
    """A command that runs, or ran."""

    process: BaseProcess
    output: Path

    @property
    def runs(self) -> bool:
        return self.process.is_alive()

    def interrupt(self) -> None:
        """As a service manager ends it."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGTERM)

    def ended(self, seconds: float) -> tuple[int | None, str]:
        """Its exit code, none where it still runs after so many seconds, and what it wrote."""
        self.process.join(seconds)
        return self.process.exitcode, self.output.read_text(encoding="utf-8", errors="replace")


@contextmanager
def begun(words: Sequence[str], folder: Path, said: str = "", **environment: str) -> Iterator[Command]:
    """`headstart WORDS` in a folder, with what is said to it as its input. It is killed if it outlasts the block."""
    with TemporaryDirectory() as place:
        files = Path(place) / "input", Path(place) / "output"
        for file, text in zip(files, (said, ""), strict=True):
            file.write_text(text, encoding="utf-8")
        # what it starts in turn runs this source tree too
        environment = {**os.environ, "PYTHONPATH": str(Path(headstart.__file__).parents[1]), **environment}
        process = _FORKS.Process(target=_run, args=(list(words), folder, environment, *files))
        process.start()
        try:
            yield Command(process, files[1])
        finally:
            process.kill()
            process.join()


def _run(words: Sequence[str], folder: Path, environment: Mapping[str, str], said: Path, output: Path) -> None:
    for path, mode, numbers in ((said, os.O_RDONLY, (0,)), (output, os.O_WRONLY, (1, 2))):
        opened = os.open(path, mode)
        for number in numbers:
            os.dup2(opened, number)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115  # multiprocessing has put an empty one there
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    from headstart.commands.cli import main
    from headstart.pacing.measuring import measure
    from headstart.train.payoff import measure_payoff

    measure.__kwdefaults__["seconds"] = 0.05
    measure_payoff.__kwdefaults__["new_tokens"] = 4
    sys.argv = ["headstart", *words]
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # a fork ends without them
