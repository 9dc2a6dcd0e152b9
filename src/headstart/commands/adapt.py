"""`headstart adapt`: train the deployed drafter further on served traffic; deploy it only if it is proved better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeElapsedColumn
from rich.text import Text

from headstart.base.errors import InvalidOption
from headstart.base.options import option, values_of
from headstart.base.words import counted
from headstart.commands import loading as cli
from headstart.commands.options import command
from headstart.commands.terminal import harmless, messages, note, output, progress_bar, stages, table_of
from headstart.fleet.adapt.options import GateOptions, Learning
from headstart.loading.options import TargetOptions

if TYPE_CHECKING:
    from headstart.fleet.adapt.gate import Gain, Pair
    from headstart.fleet.adapt.run import Adapted, Material
    from headstart.loading.load import Target
    from headstart.theory.statistics import Interval
    from headstart.train.harness import TrainingResult

_OUT = "Output"
REFUSED = 1
"""Exit code where the gate refuses."""


@command("model drafter output minutes steps gate-only forget fleet held-out temperature confidence batch-size device")
def adapt(
    *,
    words: list[str] = cli.words(
        "[MODEL] TRAFFIC",
        "The model, as --model takes it, and what was served: the file of 'headstart serve --traffic', or JSON Lines "
        "of prompts and outputs.",
        least=1,
        most=1,
    ),
    target: str = cli.TARGET,
    drafter: str | None = option(
        None,
        "The drafter that is deployed: the path or hub id of an EAGLE-3 head or of a draft model; with the "
        "bundled target also 'eagle3' and 'bundled'.",
        "--drafter",
        "-d",
        "--draft-model",
        metavar="DRAFTER",
        panel="Speculation",
    ),
    out: Path | None = option(
        None,
        "Folder of the new drafter and the report. The same command again resumes the training.",
        "--output",
        "-o",
        metavar="DIR",
        panel=_OUT,
    ),
    gate_only: str | None = option(
        None, "Train nothing: judge this drafter against the deployed one.", metavar="NEW", panel="Gate"
    ),
    forget: str | None = option(
        None,
        "Remove everything of a user from TRAFFIC, and do nothing else. The server must not be writing it.",
        metavar="USER",
        panel=_OUT,
    ),
    fleet: Path | None = option(
        None,
        "The export that 'headstart launch' runs: a drafter that passes is exported and handed to it. It replaces "
        "one replica, compares it with the others, and goes on or back.",
        metavar="DIR",
        panel=_OUT,
    ),
    gate: GateOptions,
    learning: Learning,
    loading: TargetOptions,
) -> None:
    """Train a deployed drafter further on what was served, and say whether to deploy the result.

    Some conversations are held out. The deployed drafter is trained further on the others. Their answers are the
    target's own, so nothing has to be generated. Then both drafters continue the held-out prompts, and the new one
    passes only if its gain in tokens per forward is above 0 with its whole interval.

    Exit codes: 0 the new drafter passed, 1 the gate refused it, 2 bad input.

    **Examples**

        headstart serve my-model --drafter my-head --traffic traffic.jsonl
        headstart adapt my-model traffic.jsonl --drafter my-head --minutes 30 -o adapted
        headstart adapt my-model traffic.jsonl --drafter my-head --gate-only other-head
    """  # fmt: skip
    if not words:
        raise InvalidOption("there is no traffic to learn from", hint="headstart adapt MODEL TRAFFIC")
    traffic = Path(words[0])
    if forget is not None:
        _forget(traffic, forget)
        return
    if drafter is None:
        raise InvalidOption("the deployed drafter is not named", hint="give --drafter")
    if out is None and gate_only is None:
        raise InvalidOption("there is no folder for the new drafter", hint="give --output DIR")
    if fleet is not None and out is None:
        raise InvalidOption("--fleet needs a folder for the new export", hint="give --output DIR")
    with note(messages(), f"reading {traffic} …"):
        from transformers.utils import logging

        from headstart.fleet.adapt.handover import hand_over
        from headstart.fleet.adapt.run import Adapted, material, write_report
        from headstart.loading.load import Target
        from headstart.measure.provenance import Provenance

        logging.disable_progress_bar()
        made = Provenance.now()
        loaded = Target(target, **values_of(loading))
        found = material(traffic, loaded, gate)
    console = output()
    _say_traffic(console, found)
    training = None if gate_only is not None or out is None else _train(loaded, drafter, found, out, learning, gate)
    new = str(gate_only if training is None else training.path)
    gain, pairs = _compare(loaded, drafter, new, found, gate)
    adapted = Adapted(found, drafter, new, training, gain, pairs)
    _say_gain(console, adapted, gate)
    if out is not None:
        report = write_report(out, adapted.record(target, gate, None if training is None else learning, made))
        console.print(f"report    {report}", soft_wrap=True, markup=False)
    if not gain.passed:
        raise typer.Exit(REFUSED)
    if fleet is None or out is None:
        console.print(f"next      headstart export {target} {new} -o DIR", soft_wrap=True, markup=False)
        return
    with stages(messages(), "export") as progress:
        folder = hand_over(fleet, target, new, out / "export", progress)
    console.print(
        f"handed    {folder} to the fleet of {fleet}; 'headstart launch' says how it goes",
        soft_wrap=True,
        markup=False,
    )


def _train(
    target: Target, drafter: str, found: Material, out: Path, learning: Learning, gate: GateOptions
) -> TrainingResult:
    from headstart.fleet.adapt.run import trained
    from headstart.train import TrainingProgress

    try:
        with TrainingProgress(messages()) as progress:
            result = trained(target, drafter, found, out, learning, gate.seed, progress)
    except KeyboardInterrupt:
        messages().print("stopped; the same command continues from the last checkpoint")
        raise
    took = f"{counted(result.steps, 'step')}, {counted(result.tokens, 'token')}, {result.seconds:.0f} s"
    output().print(f"trained   {took}: {result.path}", soft_wrap=True, markup=False)
    return result


def _compare(target: Target, old: str, new: str, found: Material, gate: GateOptions) -> tuple[Gain, tuple[Pair, ...]]:
    from headstart.fleet.adapt.run import compare

    with progress_bar(messages(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("gate: held-out prompts", total=len(found.split.held_out))
        return compare(target, old, new, found.split.held_out, gate, lambda done: bar.update(task, completed=done))


def _forget(traffic: Path, user: str) -> None:
    from headstart.base.traffic import forget

    count = forget(traffic, user)
    output().print(f"{count} exchange{'s' * (count != 1)} removed from {traffic}", soft_wrap=True, markup=False)


# -- what is printed --------------------------------------------------------------------------------------------------


def _say_traffic(console: Console, found: Material) -> None:
    counts = found.counts
    lines = [
        f"traffic   {counted(counts['exchanges'], 'exchange')}, {counted(counts['tokens'], 'token')}",
        f"split     {counts['learnt']} to learn from, {counts['held_out']} held out "
        f"({counted(counts['held_out_conversations'], 'conversation')})",
    ]
    left_out = {
        "repeats": "repeats", "alike": "too like held-out ones to learn from", "too_long": "too long for the context",
    }  # fmt: skip
    words = [f"{counts[name]} {why}" for name, why in left_out.items() if counts[name]]
    if words:
        lines.append(f"left out  {', '.join(words)}")
    if found.traffic.damaged:
        lines.append("          the last line is broken off: its server was killed while it wrote")
    for line in lines:
        console.print(Text(line))


def _say_gain(console: Console, adapted: Adapted, gate: GateOptions) -> None:
    gain = adapted.gain
    how = "each at its own temperature" if gate.temperature is None else f"temperature {gate.temperature:g}"
    console.print(
        Text(f"gate      {counted(gain.prompts, 'prompt')}, K={gate.k}, {how}, intervals of {gain.level:.0%}")
    )
    table = table_of("", "deployed", "new")
    table.add_row("tokens per forward", _range(gain.old), _range(gain.new))
    for i, (old, new) in enumerate(zip(gain.old_by_position, gain.new_by_position, strict=False), start=1):
        table.add_row(f"acceptance at {i}", _range(old), _range(new))
    console.print(table)
    console.print(Text(f"gain      {_range(gain.difference, '+')} tokens per forward, {gain.ratio.times}"))
    style, words = {
        "better": ("bold green", "better: deploy it"),
        "worse": ("bold red", "worse: refused"),
        "no gain proved": ("bold yellow", "no gain proved: refused; the lower end is not above 0"),
    }[gain.verdict]
    console.print(Text(f"verdict   {words}", style=style))
    if not gain.passed and gain.difference.value > 0:
        console.print(Text("          more traffic, or longer training, may prove it", style="dim"))


def _range(found: Interval, sign: str = "") -> str:
    value = format(found.value, f"{sign}.3f")
    return harmless(f"{value} ({found.low:{sign}.3f} to {found.high:{sign}.3f})" if found.known else value)
