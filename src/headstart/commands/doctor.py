"""`headstart doctor`: will speculation help here, with which drafter and how long drafts?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstart.base.errors import InvalidOption
from headstart.base.files import write_text
from headstart.base.options import check_number, option, values_of
from headstart.base.prompt_sets import PromptItem
from headstart.base.words import counted
from headstart.commands import loading as cli
from headstart.commands.figures import percent, percentages
from headstart.commands.options import command, only
from headstart.commands.prompts import read_file
from headstart.commands.terminal import facts_table, harmless, messages, output, say, stages
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.doctor.options import DoctorOptions
from headstart.measure.samples import sample_prompts
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.measure.doctor.examination import Examination
    from headstart.measure.doctor.verdict import Ranked

_OUT, _WHAT = "Output", "Examination"
_SAMPLING = Sampling(max_tokens=128)
_SAMPLING_FIELDS = (
    "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "ignore_eos",
)  # fmt: skip


@command(
    "model drafter scan prompts split seconds measure-all temperature max-tokens max-batch-size quantize threads "
    "output json html"
)
def doctor(
    *,
    words: list[str] = cli.words("[MODEL]"),
    target: str = cli.TARGET,
    loading: TargetOptions,
    options: Annotated[EngineOptions, only("draft_tree", "rule", "max_batch_size")],
    prompts: Path | None = option(
        None,
        "Your prompts: JSONL (Spec-Bench, or 'messages', 'prompt' or 'text' lines), a text, or a directory. "
        "Without it, a dozen beginnings of Python.",
        metavar="PATH",
        panel=_WHAT,
    ),
    split: bool = cli.SPLIT,
    asked: DoctorOptions,
    sampling: Annotated[Sampling, only(*_SAMPLING_FIELDS)] = _SAMPLING,
    out: Path | None = option(None, "Write all figures to this JSON file.", "--output", "-o", panel=_OUT),
    as_json: bool = option(False, "Print all figures as JSON instead of the summary.", "--json", panel=_OUT),
    html: Path | None = option(None, "Write a page with plots.", panel=_OUT),
    markdown: bool = option(
        False, "Print predicted against measured as a Markdown table instead of the summary.", panel=_OUT
    ),
) -> None:
    """Will speculation help here, with which drafter, and how long should drafts be?

    Measures the target, every candidate drafter, and how many of its tokens are accepted on your prompts; predicts the
    speedup of each; measures the best three end to end; names the one to take, or none, and says why.

    **Examples**

        headstart doctor
        headstart doctor my-model --drafter my-draft --prompts prompts.jsonl --measure-all
        headstart doctor my-model --scan ~/models --temperature 0.8 --html answer.html
    """
    del words  # none is left
    if markdown and as_json:
        raise InvalidOption("--markdown and --json exclude each other", hint="leave one of them out")
    if markdown and not asked.measure:
        raise InvalidOption("--markdown and --no-measure exclude each other", hint="leave out --no-measure")
    check_number("--max-tokens", sampling.max_tokens, low=2, integer=True)
    items = sample_prompts() if prompts is None else read_file(prompts, split=split)
    cli.check_outputs(out, html)
    say(messages(), _duration(asked), "dim")
    examination = _examination(target, loading, options, items, sampling, asked)
    if out is not None or as_json:
        from headstart.measure.doctor.facts import record

        figures = json.dumps(record(examination), indent=1, allow_nan=False) + "\n"
        if out is not None:
            write_text(out, figures)
        if as_json:
            print(figures, end="")
    if html is not None:
        from headstart.measure.pages.doctor_page import doctor_page

        doctor_page(examination).write(html)
    if markdown:
        from headstart.measure.doctor.facts import markdown as table

        print(table(examination))
    elif not as_json:
        _show(examination, output(), own_prompts=prompts is not None)


def _duration(asked: DoctorOptions) -> str:
    """How long it will take, as far as is known before."""
    takes = f"This takes about {counted(asked.seconds, 'second', '.0f')}, after the model is loaded"
    if not asked.measure:
        return f"{takes}."
    after = "then each drafter is measured" if asked.measure_all else "then about as long for the best three"
    return f"{takes}, {after}. --seconds changes it."


def _examination(
    target: str,
    loading: TargetOptions,
    options: EngineOptions,
    items: Sequence[PromptItem],
    sampling: Sampling,
    asked: DoctorOptions,
) -> Examination:
    """The examination, under a progress bar."""
    with _stopped_in_words(), stages(messages(), "importing") as progress:
        from transformers.utils import logging

        from headstart.measure.doctor.examination import examine
        from headstart.measure.doctor.question import Question, Setup

        logging.disable_progress_bar()
        question = Question(Setup(target, loading, options), tuple(items), sampling, **values_of(asked))
        return examine(question, progress)


@contextmanager
def _stopped_in_words() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(messages(), "stopped: there is no verdict yet. --seconds 20 gives a rougher one sooner.")
        raise


# -- the summary ------------------------------------------------------------------------------------------------------


def _show(examination: Examination, console: Console, *, own_prompts: bool) -> None:
    from headstart.measure.doctor.facts import flags, load_line, not_measured, target_facts, warning

    verdict, setup = examination.verdict, examination.question.setup
    console.print(facts_table(target_facts(examination).items()))
    if examination.ranked:
        console.print(_table(sorted(examination.ranked, key=lambda one: -one.gain), console.width))
    for reason in verdict.reasons:
        console.print(Text(f"- {harmless(reason)}"))
    for name, why in not_measured(examination):
        console.print(Text(f"- {harmless(name)}: not measured: {harmless(why)}", style="yellow"))
    style = {"good": "bold green", "unsure": "bold yellow", "bad": "bold red"}[verdict.kind]
    console.print(Text(f"\n{harmless(verdict.headline)}", style=style))
    if verdict.batch:
        console.print(Text(harmless(verdict.batch)))
    if doubts := warning(examination):
        console.print(Text(doubts, style="yellow"))
    if not own_prompts:
        console.print(Text("These were sample prompts; --prompts FILE measures yours, and that is what counts."))
    console.print(Text(f"\n    {harmless(load_line(setup, verdict.best))}"), soft_wrap=True)
    console.print(Text(f"    headstart generate {harmless(flags(setup, verdict.best))}"), soft_wrap=True)
    if examination.advice is not None:
        console.print(Text("\nKept: drafter 'auto' takes this for this target from now on.", style="dim"))


_WIDE = 110
"""Columns of a terminal from which on a table has room for all that it could say."""


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "drafter": ("drafter", harmless),
    "predicted": ("predicted", "{:.2f}x".format),
    "measured": ("measured", "{:.2f}x".format),
    "error": ("error", "{:+.0%}".format),
    "tokens/fwd": ("tokens/forward", "{:.2f}".format),
    "K": ("drafts of", str),
    "drafts in": ("drafts in", percent),
    "alpha": ("alpha", "{:.2f}".format),
    "c": ("c", "{:.3f}".format),
    "by position": ("by position", lambda shares: percentages(shares[:4])),
}
"""Columns of the table: head, the figure's name, how it is written."""


def _table(ranked: list[Ranked], width: int) -> Table:
    from headstart.measure.doctor.facts import figures

    left_out: tuple[str, ...] = () if any(one.measured is not None for one in ranked) else ("measured", "error")
    left_out += () if width >= _WIDE else ("c", "by position")
    columns = {head: column for head, column in _COLUMNS.items() if head not in left_out}
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for head in columns:
        table.add_column(head, justify="left" if head == "drafter" else "right", no_wrap=head != "drafter")
    for found in map(figures, ranked):
        cells = ("-" if found[name] is None else write(found[name]) for name, write in columns.values())
        table.add_row(*map(Text, cells))
    return table
