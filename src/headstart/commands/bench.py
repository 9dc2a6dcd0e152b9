"""`headstart bench`: plain and speculative decoding measured in turn; `headstart bench compare`: two results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn

from headstart.base.as_json import picked
from headstart.base.errors import InvalidOption
from headstart.base.options import option
from headstart.base.prompt_sets import PromptItem
from headstart.commands import loading as cli
from headstart.commands.help import Explained, Group
from headstart.commands.options import but, command
from headstart.commands.prompts import read_file
from headstart.commands.terminal import INTERRUPTED, messages, output, progress_bar, say
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.bench.options import BenchSettings
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.measure.bench.result import BenchResult
    from headstart.measure.bench.session import Session

SLOWER = 1
_COLUMNS = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
_OUT = "Output"
_SAMPLING = Sampling(max_tokens=128)


class _Bench(Group):
    default = "run"


bench = typer.Typer(cls=_Bench, rich_markup_mode="markdown")


@bench.command(cls=Explained)
@command(
    "model drafter prompts limit repetitions k-sweep max-tokens temperature num-speculative-tokens batch-size "
    "threads output json html"
)
def run(
    *,
    words: list[str] = cli.words("[MODEL]"),
    target: str = cli.TARGET,
    loading: TargetOptions,
    drafter: list[str] = cli.DRAFTER,
    options: Annotated[EngineOptions, but("max_batch_size")],
    suffix_store: Path | None = cli.SUFFIX_STORE,
    prompts: Path | None = option(
        None,
        'JSONL with "turns" (Spec-Bench), "prompt" or "text", and "category"; a text file; or a directory '
        "of these. The bundled target has prompts of its own.",
        metavar="PATH",
        panel="What to run",
    ),
    split: bool = cli.SPLIT,
    sampling: Annotated[Sampling, but("repetition_penalty", "logprobs", "logprobs_mode")] = _SAMPLING,
    repetition_penalty: float | None = cli.REPETITION_PENALTY,
    settings: BenchSettings,
    json_file: Path | None = option(
        None,
        "Write the result to this JSON file, with every run and where it came from, for 'headstart bench compare'.",
        "--output",
        "-o",
        panel=_OUT,
    ),
    as_json: bool = option(False, "Print the result as JSON instead of the tables.", "--json", panel=_OUT),
    html_file: Path | None = option(None, "Write a page with plots, in one file.", "--html", panel=_OUT),
) -> None:
    """Measure how much faster speculation is, on your prompts, on this machine.

    Each prompt runs plain and with the drafter, one right after the other, on the same weights; who goes first
    alternates. Speedups come with 95% intervals over the prompts. Ctrl-C ends it early and keeps what was finished.

    **Examples**

        headstart bench
        headstart bench --prompts spec_bench.jsonl --limit 5 --model my-model --drafter my-draft -o result.json
        headstart bench --k-sweep 1,2,3,5,8 --html report.html
        headstart bench compare before.json after.json --fail-below 95
    """
    del words  # none is left
    cli.check_outputs(json_file, html_file)
    items = _items(prompts, target, split=split)
    sampling = replace(sampling, repetition_penalty=cli.penalty_for(target, repetition_penalty))
    settings = replace(settings, sampling=sampling)
    asked = {
        "target": target,
        "drafter": drafter,
        "prompts": prompts and str(prompts),
        **picked(options, "pacing", "rule", k="num_speculative_tokens", tree="draft_tree"),
        **picked(loading, "device", "dtype", "quantize", "max_length"),
        "suffix_store": suffix_store and str(suffix_store),
    }
    if split:
        asked["split"] = True
    options = replace(options, max_batch_size=settings.batch_size)
    with cli.past_outputs(suffix_store, drafter, options, write=False) as options:
        engine = cli.load_engine(messages(), target, drafter, loading, options)
    from headstart.measure.bench.session import Session

    result = _measure(Session(engine, items, settings, asked))
    _report(result, json_file, html_file, as_json=as_json)
    if not result.complete:
        raise typer.Exit(INTERRUPTED)


@bench.command(cls=Explained)
@command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE.json", help="A result of `headstart bench --output`.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER.json", help="Another, of the same prompts.")],
    fail_below: float | None = option(
        None,
        "Exit with 1 if the speedup, overall or in a category, fell beyond noise below this percentage of what it was.",
        metavar="PERCENT",
        panel="Comparison",
    ),
) -> None:
    """Compare two results: what became slower or faster beyond noise, and which settings differ.

    Only prompts that both results have are compared, in pairs. The confidence of 95% is that of all categories
    together.
    """
    if fail_below is not None and not 0 < fail_below <= 100:
        raise InvalidOption(f"--fail-below {fail_below:g} is not a percentage", hint="give 95 to allow 5% slower")
    from headstart.commands.bench_tables import print_comparison
    from headstart.measure.bench import comparison
    from headstart.measure.bench.result import BenchResult

    found = comparison.compare(BenchResult.read(before), BenchResult.read(after))
    if print_comparison(output(), found, fail_below):
        raise typer.Exit(SLOWER)


def _items(path: Path | None, target: str, *, split: bool) -> list[PromptItem]:
    if path is not None:
        return read_file(path, split=split)
    if target != "bundled":
        raise InvalidOption(
            "--prompts is missing: speedup depends on what is written, and only you know that",
            hint="give --prompts FILE: JSONL, a text file, or a directory; only the bundled target has prompts here",
        )
    from headstart.measure.samples import sample_prompts

    return sample_prompts()


def _measure(session: Session) -> BenchResult:
    """Run it under a progress bar. An interrupt ends it; without a finished pair it passes through."""
    # A thread that draws would take time from what is measured
    with progress_bar(messages(), *_COLUMNS, auto_refresh=False) as bar:
        task = bar.add_task("measuring costs", total=session.trials)
        bar.refresh()
        session.on_trial = lambda words: bar.update(task, advance=1, description=words, refresh=True)
        try:
            return session.run()
        except KeyboardInterrupt:
            from headstart.measure.bench.summary import summarise

            if not summarise(session.result):
                raise
            return session.result


def _report(result: BenchResult, json_file: Path | None, html_file: Path | None, *, as_json: bool) -> None:
    from headstart.commands.bench_tables import print_result  # needs NumPy, which --help must not wait for
    from headstart.measure.bench.summary import summarise

    figures = summarise(result)
    if as_json:
        print(json.dumps(result.record([each.record() for each in figures]), indent=1, allow_nan=False))
    else:
        print_result(output(), result, figures)
    if json_file is not None:
        result.write(json_file, [each.record() for each in figures])
        say(messages() if as_json else output(), f"result: {json_file}")
    if html_file is not None:
        from headstart.measure.pages.bench_page import bench_page

        bench_page(result, figures).write(html_file)
        say(messages() if as_json else output(), f"page: {html_file}")
