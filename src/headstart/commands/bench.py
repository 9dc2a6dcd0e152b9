"""`headstart bench`: plain and speculative decoding measured in turn; `headstart bench compare`: two results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headstart.commands import options as cli
from headstart.commands.demo import BUNDLED_PENALTY
from headstart.commands.outputs import check_outputs
from headstart.commands.prompts import read_file
from headstart.commands.terminal import INTERRUPTED, Traceback, messages, output, reported
from headstart.errors import InvalidOption
from headstart.prompt_sets import PromptItem
from headstart.types import Sampling

if TYPE_CHECKING:
    from rich.console import Console

    from headstart.insight.bench import BenchResult
    from headstart.insight.bench.session import Session

_WHAT, _OUT = "What to run", "Output"
SLOWER = 1

bench = typer.Typer()


@bench.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    target: cli.Target = "bundled",
    drafter: cli.Drafter = cli.AUTO,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="PATH",
            rich_help_panel=_WHAT,
            help='JSONL with "turns" (Spec-Bench), "messages", "prompt" or "text", and "category"; a text file; or a '
            "directory of these. The bundled target has prompts of its own.",
        ),
    ] = None,
    split: cli.Split = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", rich_help_panel=_WHAT, help="Prompts of each category at most."),
    ] = None,
    repetitions: Annotated[
        int, typer.Option("--repetitions", metavar="N", rich_help_panel=_WHAT, help="Times that each prompt is run.")
    ] = 3,
    warm_up: Annotated[
        int, typer.Option("--warm-up", metavar="N", rich_help_panel=_WHAT, help="Rounds before the count.")
    ] = 1,
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size",
            metavar="N",
            rich_help_panel=_WHAT,
            help="Prompts of a category that run at once. Speedup is then that of each batch's tokens per second.",
        ),
    ] = 1,
    k_sweep: Annotated[
        str | None,
        typer.Option(
            "--k-sweep",
            metavar="K,K,...",
            rich_help_panel=_WHAT,
            help="Also measure these draft lengths, fixed, on two units of each category: '1,2,3,5,8'.",
        ),
    ] = None,
    k: cli.K = None,
    pacing: cli.Pacing = "adaptive",
    tree: cli.Tree = "auto",
    rule: cli.RuleOption = "exact",
    device: cli.Device = "auto",
    dtype: cli.Dtype = "auto",
    quantize: cli.Quantize = None,
    max_length: cli.MaxLength = None,
    suffix_store: cli.SuffixStoreFile = None,
    trust_remote_code: cli.TrustRemoteCode = False,
    max_tokens: cli.MaxTokens = 128,
    min_tokens: cli.MinTokens = cli.DEFAULT.min_tokens,
    temperature: cli.Temperature = cli.DEFAULT.temperature,
    top_k: cli.TopK = cli.DEFAULT.top_k,
    top_p: cli.TopP = cli.DEFAULT.top_p,
    min_p: cli.MinP = cli.DEFAULT.min_p,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            "--repetition-penalty",
            metavar="X",
            rich_help_panel="Sampling",
            help=f"Default: {BUNDLED_PENALTY:g} for the bundled target, which is small and repeats itself; else 1.",
        ),
    ] = None,
    presence_penalty: cli.PresencePenalty = cli.DEFAULT.presence_penalty,
    frequency_penalty: cli.FrequencyPenalty = cli.DEFAULT.frequency_penalty,
    logit_bias: cli.LogitBias = None,
    seed: cli.Seed = None,
    stop: cli.Stop = None,
    stop_token_id: cli.StopTokenId = None,
    ignore_eos: cli.IgnoreEos = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            "-o",
            metavar="FILE",
            rich_help_panel=_OUT,
            help="The result, with every run and where it came from; for `headstart bench compare`.",
        ),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", rich_help_panel=_OUT, help="A page with plots, in one file."),
    ] = None,
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", rich_help_panel=_OUT, help="Write prompts and texts into the result too.")
    ] = False,
    traceback: Traceback = False,
) -> None:
    """Measure how much faster speculation is, on your prompts, on this machine.

    Each prompt runs plain and with the drafter, one right after the other, on the same weights; who goes first
    alternates. Speedups come with 95% intervals over the prompts. Ctrl-C ends it early and keeps what was finished.

    **Examples**

        headstart bench
        headstart bench --prompts spec_bench.jsonl --limit 5 --target my-model --drafter my-draft -o result.json
        headstart bench --k-sweep 1,2,3,5,8 --html report.html
        headstart bench compare before.json after.json --fail-below 95
    """
    if context.invoked_subcommand is not None:
        return
    with reported(traceback):
        check_outputs(json_file, html_file)
        items = _items(prompts, target, split=split)
        if repetition_penalty is None:
            repetition_penalty = BUNDLED_PENALTY if target == "bundled" else cli.DEFAULT.repetition_penalty
        sampling = Sampling(
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=cli.parse_logit_bias(logit_bias),
            seed=seed,
            stop=stop or (),
            stop_token_ids=stop_token_id or (),
            ignore_eos=ignore_eos,
        )
        from headstart.insight.bench.session import BenchSettings, Session

        settings = BenchSettings(
            sampling=sampling, repetitions=repetitions, warm_up=warm_up, limit=limit, batch_size=batch_size,
            ks=parse_ks(k_sweep), keep_texts=keep_texts,
        )  # fmt: skip
        asked = {
            "target": target, "drafter": drafter, "prompts": None if prompts is None else str(prompts), "k": k,
            "pacing": pacing, "tree": tree, "rule": rule, "device": device, "dtype": dtype, "quantize": quantize,
            "max_length": max_length, "suffix_store": None if suffix_store is None else str(suffix_store),
        }  # fmt: skip
        engine = cli.load_engine(
            messages(), target=target, drafter=drafter, device=device, dtype=dtype, quantize=quantize, rule=rule, k=k,
            pacing=pacing, tree=tree, max_batch_size=batch_size, max_length=max_length,
            trust_remote_code=trust_remote_code, suffix_store=cli.open_store(suffix_store, drafter),
        )  # fmt: skip
        result = _measure(Session(engine, items, settings, asked))
        _report(result, json_file, html_file)
        if not result.complete:
            raise typer.Exit(INTERRUPTED)


@bench.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE.json", help="A result of `headstart bench --json`.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER.json", help="Another, of the same prompts.")],
    fail_below: Annotated[
        float | None,
        typer.Option(
            "--fail-below",
            metavar="PERCENT",
            help="Exit with 1 if the speedup, overall or in a category, is beyond noise below so many percent of what "
            "it was.",
        ),
    ] = None,
    traceback: Traceback = False,
) -> None:
    """Tell what became slower or faster from one result to the next, beyond noise, and what was different.

    Prompts that both have are compared, paired. The 95% holds for all categories together.
    """
    with reported(traceback):
        if fail_below is not None and not 0 < fail_below <= 100:
            raise InvalidOption(f"--fail-below {fail_below:g} is not a percentage", hint="give 95 to allow 5% slower")
        from headstart.commands.bench_tables import print_comparison
        from headstart.insight import bench as results

        found = results.compare(results.BenchResult.read(before), results.BenchResult.read(after))
        failed = print_comparison(output(), found, fail_below)
    if failed:
        raise typer.Exit(SLOWER)


def parse_ks(text: str | None) -> tuple[int, ...]:
    """ "1,2,3" as numbers."""
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidOption(
            f"--k-sweep {text!r} is not a list of whole numbers", hint="for example --k-sweep 1,2,3,5,8"
        ) from None


def _items(path: Path | None, target: str, *, split: bool) -> list[PromptItem]:
    if path is not None:
        return read_file(path, split=split)
    if target != "bundled":
        raise InvalidOption(
            "--prompts is missing: speedup depends on what is written, and only you know that",
            hint="give --prompts FILE: JSONL, a text file, or a directory; only the bundled target has prompts here",
        )
    from headstart.insight.samples import sample_prompts

    return sample_prompts()


def _measure(session: Session) -> BenchResult:
    """Run it under a progress bar. An interrupt ends it; without a finished pair it passes through."""
    with _progress(messages(), session.rounds) as advance:
        session.on_round = advance
        try:
            return session.run()
        except KeyboardInterrupt:
            from headstart.insight.bench import summarise

            if not summarise(session.result):
                raise
            return session.result


@contextmanager
def _progress(console: Console, rounds: int) -> Iterator[Any]:
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal,
        auto_refresh=False,  # a thread that draws would take time from what is measured
        redirect_stdout=False,
    )  # fmt: skip
    with bar:
        task = bar.add_task("measuring costs", total=rounds)

        def advance(words: str) -> None:
            bar.update(task, advance=1, description=words, refresh=True)

        bar.refresh()
        yield advance


def _report(result: BenchResult, json_file: Path | None, html_file: Path | None) -> None:
    from headstart.commands.bench_tables import print_result  # needs NumPy, which --help must not wait for
    from headstart.insight.bench import summarise

    figures = summarise(result)
    print_result(output(), result, figures)
    if json_file is not None:
        result.write(json_file, [each.record() for each in figures])
        output().print(f"result: {json_file}", soft_wrap=True)
    if html_file is not None:
        from headstart.insight.report.bench_page import bench_page

        bench_page(result, figures).write(html_file)
        output().print(f"page: {html_file}", soft_wrap=True)
