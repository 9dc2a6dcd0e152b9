"""`headstart doctor`: will speculation help here, with which drafter and how long drafts?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.progress import TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headstart.base.errors import InvalidOption
from headstart.base.files import write_text
from headstart.base.options import check_number, option
from headstart.commands import loading as cli
from headstart.commands.figures import percent, percentages
from headstart.commands.options import Fields, command
from headstart.commands.prompts import read_file
from headstart.commands.terminal import facts_table, harmless, messages, output, progress_bar
from headstart.loading.options import EngineOptions, TargetOptions
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


@command
def doctor(
    *,
    target: str = cli.TARGET,
    loading: TargetOptions,
    options: Annotated[EngineOptions, Fields.only("draft_tree", "rule", "max_batch_size")],
    drafter: list[str] | None = option(
        None,
        "A drafter to examine, as in 'generate'; with commas, a list of them. N-gram, suffix "
        "and early exit are always examined, and so are the drafters that come with the bundled target.",
        "-d",
        panel=_WHAT,
    ),
    prompts: Path | None = option(
        None,
        "Your prompts: JSONL (Spec-Bench, or 'messages', 'prompt' or 'text' lines), a text, or a directory. "
        "Without it, a dozen beginnings of Python.",
        panel=_WHAT,
    ),
    split: bool = cli.SPLIT,
    scan: Path | None = option(None, "Look for drafters in the models below DIR.", metavar="DIR", panel=_WHAT),
    seconds: float = option(
        60.0, "About how long the examination may take; the best three are measured in as much again.", panel=_WHAT
    ),
    measure: bool = option(
        True,
        "Measure the best three by prediction, end to end, in turn with the target alone. What was not measured is not "
        "kept.",
        "--measure/--no-measure",
        panel=_WHAT,
    ),
    check: bool = option(
        False, "Measure every candidate end to end, not only the best three, in so much more time.", panel=_WHAT
    ),
    keep: bool = option(
        True,
        "Remember what was measured: '--drafter auto' then follows it for this target.",
        "--keep/--no-keep",
        panel=_WHAT,
    ),
    sampling: Annotated[Sampling, Fields.only(*_SAMPLING_FIELDS)] = _SAMPLING,
    as_json: Path | None = option(None, "Write all figures to FILE.", "--json", panel=_OUT),
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
        headstart doctor --target my-model --drafter my-draft --prompts prompts.jsonl --check
        headstart doctor --target my-model --scan ~/models --temperature 0.8 --html answer.html
    """
    check_number("--seconds", seconds, above=0)
    for flag, wanted in (("--markdown", markdown), ("--check", check)):
        if wanted and not measure:
            raise InvalidOption(f"{flag} and --no-measure exclude each other", hint="leave out --no-measure")
    check_number("--max-tokens", sampling.max_tokens, low=2, integer=True)
    items = sample_prompts() if prompts is None else read_file(prompts, split=split)
    cli.check_outputs(as_json, html)
    with progress_bar(messages(), TimeElapsedColumn(), refresh_per_second=2) as bar:
        task = bar.add_task("importing", total=1.0)
        from transformers.utils import logging

        from headstart.measure.doctor.examination import examine
        from headstart.measure.doctor.question import Question, Setup

        logging.disable_progress_bar()
        setup = Setup(target, loading, options)
        given = tuple(drafter or ())
        question = Question(setup, tuple(items), sampling, given, scan, seconds, measure, check, keep)
        examination = examine(
            question, lambda what, share: bar.update(task, description=harmless(what), completed=share)
        )
    if as_json is not None:
        from headstart.measure.doctor.facts import record

        write_text(as_json, json.dumps(record(examination), indent=1, allow_nan=False) + "\n")
    if html is not None:
        from headstart.measure.pages.doctor_page import doctor_page

        doctor_page(examination).write(html)
    if markdown:
        from headstart.measure.doctor.facts import markdown as table

        print(table(examination))
    else:
        _show(examination, output(), own_prompts=prompts is not None)


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


def _table(ranked: list[Ranked], width: int) -> Table:
    measured = any(one.measured is not None for one in ranked)
    wide = width >= _WIDE
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("drafter")
    columns = ["predicted", *(("measured", "error") if measured else ()), "tokens/fwd", "K", "drafts in", "alpha"]
    for name in (*columns, *(("c", "by position") if wide else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for one in ranked:
        expected = one.expected
        cells = [harmless(one.candidate.name), f"{expected.speedup.value:.2f}x"]
        if measured:
            cells += ["-", "-"] if one.measured is None or one.error is None else [
                f"{one.measured.speedup.value:.2f}x", f"{one.error:+.0%}",
            ]  # fmt: skip
        cells += [f"{expected.tokens_per_forward:.2f}", str(expected.k), percent(expected.drafting)]
        member = max(one.best.members.values(), key=lambda each: each.share, default=None)
        found = ["-"] * 3 if member is None else [
            f"{member.alpha:.2f}", f"{member.c:.3f}", percentages(member.acceptance[:4]),
        ]  # fmt: skip
        table.add_row(*(Text(cell) for cell in (*cells, *found[: 3 if wide else 1])))
    return table
