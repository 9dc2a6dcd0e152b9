"""`headstart train`: make a drafter for a target. The options are the classes of `headstart.train.options`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from headstart import train as training
from headstart.base.errors import HeadstartError
from headstart.base.lazy import transformers
from headstart.base.words import counted
from headstart.commands.help import Explained, Group
from headstart.commands.loading import without_bars
from headstart.commands.options import command
from headstart.commands.terminal import messages, output
from headstart.train.options import (
    DraftTraining,
    Eagle3Training,
    ExitTraining,
    MedusaTraining,
    MtpTraining,
    Shape,
    Training,
)

if TYPE_CHECKING:
    from rich.console import Console

    from headstart.train import TrainingResult

train = typer.Typer(cls=Group, rich_markup_mode="markdown", help="Train a drafter for a target.", no_args_is_help=True)


@train.command(cls=Explained)
@command(
    "model output minutes steps self-prompts generations layers hidden parallel begin-with batch-size patience "
    "seed device"
)
def draft(options: DraftTraining, shape: Shape) -> None:
    """Distil a small draft model from any target.

    The draft model reads the same text as the target and learns its distribution, which decides how many of its tokens
    are accepted. A run can be stopped at any moment; the same command continues from its last checkpoint.

    **Examples**

        headstart train draft my-model src/ --output my-draft --minutes 60
        headstart train draft my-model prompts.jsonl --output my-draft --steps 5000 --generations 2000
        headstart train draft my-model src/ --output my-pard --minutes 30 --parallel 8 --begin-with my-draft
        headstart demo my-model --drafter my-draft
    """
    _run(training.train_draft, replace(options, shape=shape))


@train.command(cls=Explained)
@command(
    "model output minutes steps self-prompts generations layers format parallel begin-with batch-size patience "
    "seed device"
)
def eagle3(options: Eagle3Training) -> None:
    """Train an EAGLE-3 head: one layer that drafts from the target's own hidden states.

    In training the head reads its own drafts, as it does in use. A run can be stopped at any moment; the same command
    continues from its last checkpoint.

    **Examples**

        headstart train eagle3 my-model src/ --output my-head --minutes 60
        headstart train eagle3 my-chat-model --self-prompts 3000 --output my-head --minutes 120
        headstart demo my-model --drafter my-head
    """
    _run(training.train_eagle3, options)


@train.command(cls=Explained)
@command("model output minutes steps self-prompts generations begin-with batch-size patience seed device")
def mtp(options: MtpTraining) -> None:
    """Train an MTP head: the layer that Qwen3.5 checkpoints hold beside their model.

    If the target's checkpoint holds a head, that head is trained further on its own drafts; otherwise a new one is
    trained. The output is a checkpoint of the target with the head in it. A run can be stopped at any
    moment; the same command continues from its last checkpoint.

    **Examples**

        headstart train mtp my-qwen3.5 src/ --output my-qwen3.5-mtp --minutes 30
        headstart generate my-qwen3.5-mtp "..." --drafter mtp
    """
    _run(training.train_mtp, options)


@train.command(cls=Explained)
@command("model output minutes steps self-prompts generations heads batch-size patience seed device")
def medusa(options: MedusaTraining) -> None:
    """Train Medusa heads: output layers on the target's last hidden state, each for a token one further ahead.

    They draft a tree of tokens without a second model. A run can be stopped at any moment; the same command continues
    from its last checkpoint.

    **Examples**

        headstart train medusa my-model src/ --output my-heads --minutes 60
        headstart train medusa my-model prompts.jsonl --output my-heads --steps 5000 --generations 2000
        headstart demo my-model --drafter my-heads
    """
    _run(training.train_medusa, options)


@train.command("exit", cls=Explained)
@command("model output minutes steps self-prompts generations layers batch-size patience seed device")
def exit_(options: ExitTraining) -> None:
    """Train an early exit: the target's own first layers draft, through a norm and a linear map that are trained.

    An exit is small, trains fast, and needs no keys and values of its own. A run can be stopped at any moment;
    the same command continues from its last checkpoint.

    **Examples**

        headstart train exit my-model src/ --output my-exit --minutes 20
        headstart train exit my-model src/ --output my-exit --steps 500 --layers 8
        headstart demo my-model --drafter my-exit
    """
    _run(training.train_exit, options)


def _run(make: Callable[..., TrainingResult], options: Training) -> None:
    """Train with a progress bar, and report the result and what to do next."""
    from headstart.train.schedule import in_words, sentence

    transformers.first(without_bars)
    try:
        with training.TrainingProgress(messages()) as progress:
            result = make(options, observe=progress)
    except KeyboardInterrupt:
        messages().print("stopped; the same command continues from the last checkpoint")
        raise
    console = output()
    console.print(sentence(result.acceptance), soft_wrap=True)
    console.print(
        f"{result.path}: {counted(result.steps, 'step')}, {counted(result.tokens, 'token')}, {result.seconds:.0f} s"
    )
    if result.stopped:
        console.print(f"stopped early: {result.stopped}; the best weights are kept", soft_wrap=True)
    if result.phases:
        console.print(in_words(result.phases), soft_wrap=True)
    _print_payoff(console, result, options)
    target, drafter = result.used
    console.print(f"next  headstart demo {target} --drafter {drafter}", soft_wrap=True)


def _print_payoff(console: Console, result: TrainingResult, options: Training) -> None:
    """Print the predicted and the measured speedup, and add both to the provenance.

    A drafter that does not load is still a finished one: the reason is printed, and the run has not failed.
    """
    if not result.prompts:
        return
    from headstart.train.output import add_to_record
    from headstart.train.payoff import measure_payoff

    try:
        payoff = measure_payoff(result, device=options.device)
    except HeadstartError as error:
        messages().print(f"the speedup was not measured: {error}", soft_wrap=True)
        return
    add_to_record(result.path, {"speedup": payoff.record()})
    console.print(payoff.sentence(), soft_wrap=True)
