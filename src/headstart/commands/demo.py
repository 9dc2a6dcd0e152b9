"""`headstart demo`: the same prompts without and with a drafter, side by side, then the figures."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import TimeElapsedColumn
from rich.text import Text

from headstart.base.errors import InvalidPrompt
from headstart.base.options import option
from headstart.base.words import counted
from headstart.commands import loading as cli
from headstart.commands.options import command, only
from headstart.commands.replay import Comparison, Pair, coloured, legend, measure, pace, replay
from headstart.commands.terminal import INTERRUPTED, note, output, progress_bar
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.engine.engine import Engine

PROMPTS = (
    "class Point:\n"
    "    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n    def __eq__(self, other):",
    'def read_config(path, encoding="utf-8"):\n'
    '    """Read a configuration file and return it as a dictionary."""\n    with open(',
    "class Stack:\n"
    '    """A last-in, first-out container."""\n\n'
    "    def __init__(self, items=()):\n        self._items = list(items)\n\n    def push(self, item):",
    'def main(argv=None):\n    parser = argparse.ArgumentParser(description="Count the words of a file.")',
    "def _check_type(value, expected):\n"
    '    """Raise TypeError unless value has the expected type."""\n    if not isinstance(value, expected):',
)
_WARM_UP_TOKENS = 16
_SHORT_SECONDS = 2.0
_BUDGET_SECONDS = 45.0
_ENGINE = EngineOptions(max_batch_size=1)
_SAMPLING = Sampling(max_tokens=96, seed=0)
_NEXT = (
    'headstart demo --prompt "class Matrix:"',
    'headstart generate "def add(a, b):" --stats',
    "headstart demo MODEL --drafter MODEL     (paths or Hugging Face hub ids)",
)


@command("model drafter prompt max-tokens temperature seed num-speculative-tokens rule dtype threads no-live")
def demo(
    *,
    words: list[str] = cli.words("[MODEL]"),
    prompt: list[str] | None = option(None, "Your own prompt.", "-p", metavar="TEXT", panel="Prompts"),
    target: str = cli.TARGET,
    loading: Annotated[TargetOptions, only("device", "dtype", "cpu_level", "threads")],
    drafter: list[str] = cli.DRAFTER,
    options: Annotated[EngineOptions, only("num_speculative_tokens", "pacing", "rule")] = _ENGINE,
    sampling: Annotated[Sampling, only("max_tokens", "temperature", "seed")] = _SAMPLING,
    repetition_penalty: float | None = cli.REPETITION_PENALTY,
    no_live: bool = option(False, "Print the texts; do not replay the runs.", panel="Output"),
) -> None:
    """Watch a model write faster, with the same text as without speculation.

    Each prompt runs twice on the same weights: plain, and with the drafter; who goes first alternates. Nothing is
    drawn while a run is measured. Both runs are then replayed side by side, and a table sums up at the end.

    **Examples**

        headstart demo
        headstart demo --prompt "def fibonacci(n):" --max-tokens 200
        headstart demo Qwen/Qwen2.5-Coder-1.5B --drafter Qwen/Qwen2.5-Coder-0.5B --dtype float32
    """
    del words  # none is left
    prompts = prompt or PROMPTS
    if not all(prompts):
        raise InvalidPrompt("a --prompt is empty", hint="a prompt needs at least one character")
    if target == "bundled" and loading.dtype == "auto" and not _has_row_kernels():
        loading = replace(loading, dtype="float32")  # without row kernels bf16 texts part at near-ties now and then
    sampling = replace(sampling, repetition_penalty=cli.penalty_for(target, repetition_penalty))
    console = output()
    start = time.perf_counter()
    console.print("Each prompt is written twice: by the model alone, then with a drafter's guesses.", soft_wrap=True)
    with _waiting(console, "loading the model", shown=target == "bundled"):
        engine = cli.load_engine(console, target, drafter, loading, options)
    live = console.is_terminal and not console.is_dumb_terminal and not no_live
    _introduce(engine, sampling, console)
    # One's own prompts are all run; the built-in ones only show, and a slow machine need not show them all.
    until = math.inf if prompt else start + _BUDGET_SECONDS
    pairs: list[Pair] = []

    def conclude() -> None:
        facts = engine.describe()
        comparison = Comparison(
            pairs, sampling.greedy, options.rule != "exact", facts["dtype"], width_invariant=facts["width_invariant"]
        )
        _conclude(comparison, console)

    try:
        for pair in _run(engine, prompts, sampling, live, until, console):
            pairs.append(pair)
        if len(pairs) < len(prompts):
            console.print(f"\nno more prompts were begun after {_BUDGET_SECONDS:.0f} s: this takes long here")
        conclude()
    except KeyboardInterrupt:
        if pairs:
            console.print(f"\nstopped: the figures are of {len(pairs)} of {counted(len(prompts), 'prompt')}")
            conclude()
        else:
            console.print("\nstopped before a prompt was measured both ways, so there are no figures")
        raise typer.Exit(INTERRUPTED) from None


def _has_row_kernels() -> bool:
    from headstart.model import native  # needs torch, which --help must not wait for

    return native.available()


def _introduce(engine: Engine, sampling: Sampling, console: Console) -> None:
    facts = engine.describe()
    distribution = "greedy" if sampling.greedy else f"temperature {sampling.temperature:g}, seed {sampling.seed}"
    console.print(
        Text.assemble(("headstart demo", "bold"), f" · target {facts['target']} · drafter {facts['drafter']}")
    )
    if sampling.repetition_penalty != 1:
        distribution += f", repetition penalty {sampling.repetition_penalty:g}"
    console.print(
        f"{facts['dtype']} on {facts['device']} with {facts['threads']} threads · {distribution} · "
        f"one prompt at a time, "
        f"up to {counted(sampling.max_tokens, 'token')}",
        style="dim",
    )
    if console.is_terminal:
        console.print(legend())


def _run(
    engine: Engine, prompts: Sequence[str], sampling: Sampling, live: bool, until: float, console: Console
) -> Iterator[Pair]:
    """Measure each prompt both ways, hand the pair over, then show it; begin no prompt after `until`.

    The first prompt decides the pace of the replays and whether runs are short enough to be made twice.
    """
    plain = engine.plain()
    with _waiting(console, "warming up"):  # the first call pays for allocations that no later one makes
        for each in (plain, engine):
            each.generate(prompts[0], replace(sampling, max_tokens=min(_WARM_UP_TOKENS, sampling.max_tokens)))
    first: Pair | None = None
    for number, prompt in enumerate(prompts, start=1):
        if first is not None and time.perf_counter() > until:
            break
        name = f"prompt {number} of {len(prompts)}"
        twice = first is None or first.twice
        console.print()
        with note(console, f"{name}: measuring; nothing is drawn meanwhile …"):
            pair = _measure_both(plain, engine, prompt, sampling, plain_first=number % 2 == 1, twice=twice)
        first = first or pair
        yield pair
        if live:
            longest = max(pair.plain, pair.fast, key=lambda run: run.seconds)
            replay((pair.plain, pair.fast), pace(first.plain, longest), name, console)
        else:
            console.print(name, style="bold")
            console.print(coloured(pair.fast, pair.fast.seconds), soft_wrap=True)
        console.print(_in_a_line(pair))


@contextmanager
def _waiting(console: Console, words: str, *, shown: bool = True) -> Iterator[None]:
    """Say on a terminal what is done, with its seconds, while nothing is measured."""
    with progress_bar(console, TimeElapsedColumn(), disable=not (console.is_terminal and shown)) as bar:
        bar.add_task(words, total=None)
        yield


def _measure_both(
    plain: Engine, fast: Engine, prompt: str, sampling: Sampling, *, plain_first: bool, twice: bool
) -> Pair:
    """Run A, B and, if both are short and `twice` is wanted, B, A: the faster of each counts.

    Whoever comes second may find a warmer machine or a throttled one, and something else may cut in: a short run
    is easily spoilt.
    """
    contestants = [("plain", plain), ("headstart", fast)]
    order = contestants if plain_first else contestants[::-1]
    runs = [measure(name, engine, prompt, sampling) for name, engine in order]
    twice = twice and sum(run.seconds for run in runs) < _SHORT_SECONDS
    if twice:
        runs += [measure(name, engine, prompt, sampling) for name, engine in order[::-1]]
    slow_run, fast_run = (
        min((run for run in runs if run.name == name), key=lambda run: run.seconds) for name, _ in contestants
    )
    return Pair(slow_run, fast_run, twice=twice)


def _in_a_line(pair: Pair) -> Text:
    same = pair.differs_at is None
    return Text.assemble(
        f"plain {pair.plain.tokens_per_second:.0f} tokens/s · headstart {pair.fast.tokens_per_second:.0f} tokens/s · ",
        (f"{pair.speedup:.2f}x", "bold"),
        " · ",
        ("same text", "green") if same else (f"texts differ from token {(pair.differs_at or 0) + 1} on", "yellow"),
    )


def _conclude(comparison: Comparison, console: Console) -> None:
    console.print(comparison.table())
    for remark in comparison.remarks():
        console.print(remark)
    console.print()
    for head, line in zip(("next", "", ""), _NEXT, strict=True):
        console.print(Text.assemble((f"{head:5}", "bold"), line), soft_wrap=True)
