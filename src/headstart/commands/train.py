"""`headstart train`: make a drafter for a target. The options are those of `headstart.training`, one for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headstart.commands import training_options as shared
from headstart.commands.terminal import Traceback, messages, output, reported
from headstart.errors import HeadstartError

if TYPE_CHECKING:
    from rich.console import Console

    from headstart.training import Training, TrainingResult

_SHAPE, _HEAD, _HEADS = "Size of the draft", "The head", "The heads"

train = typer.Typer(help="Train a drafter for a target.", no_args_is_help=True)


@train.command()
def draft(
    data: shared.Data,
    target: shared.Target,
    output_folder: shared.Output,
    steps: shared.Steps = None,
    minutes: shared.Minutes = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            "--hidden", metavar="N", rich_help_panel=_SHAPE, help="Hidden size. Default: from the target's size."
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", metavar="N", rich_help_panel=_SHAPE, help="Layers.")] = None,
    intermediate: Annotated[
        int | None, typer.Option("--intermediate", metavar="N", rich_help_panel=_SHAPE, help="Width of the MLP.")
    ] = None,
    heads: Annotated[
        int | None, typer.Option("--heads", metavar="N", rich_help_panel=_SHAPE, help="Attention heads.")
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option("--kv-heads", metavar="N", rich_help_panel=_SHAPE, help="Key and value heads.")
    ] = None,
    generations: shared.Generations = 0,
    generation_tokens: shared.GenerationTokens = 256,
    generation_temperature: shared.GenerationTemperature = shared.GENERATION_TEMPERATURES,
    sequence_length: shared.SequenceLength = 512,
    validation: shared.Validation = 0.02,
    validation_windows: shared.ValidationWindows = 64,
    tv_weight: shared.TvWeight = 0.0,
    init: shared.Init = "target",
    batch_size: shared.BatchSize = 8,
    micro_batch: shared.MicroBatch = None,
    matrix_rate: shared.MatrixRate = 0.02,
    other_rate: shared.OtherRate = 3e-3,
    evaluate_every: shared.EvaluateEvery = 500,
    save_every: shared.SaveEvery = 120.0,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    dtype: shared.Dtype = "auto",
    traceback: Traceback = False,
) -> None:
    """Distil a small draft model from any target.

    The draft reads the same text as the target and learns its law, which is what decides how many guesses are
    accepted. A run can be stopped at any moment; the same command goes on from its last checkpoint.

    **Examples**

        headstart train draft src/ --target my-model --output my-draft --minutes 60
        headstart train draft prompts.jsonl --target my-model --output my-draft --steps 5000 --generations 2000
        headstart demo --target my-model --drafter my-draft
    """
    with reported(traceback):
        from headstart import training

        options = training.DraftTraining(
            target=target,
            output=output_folder,
            data=data,
            shape=training.Shape(
                hidden=hidden, layers=layers, intermediate=intermediate, heads=heads, kv_heads=kv_heads
            ),
            generations=generations,
            generation_tokens=generation_tokens,
            generation_temperatures=generation_temperature,
            tv_weight=tv_weight,
            init=init,
            steps=steps,
            minutes=minutes,
            batch_size=batch_size,
            micro_batch=micro_batch,
            sequence_length=sequence_length,
            matrix_rate=matrix_rate,
            other_rate=other_rate,
            validation=validation,
            validation_windows=validation_windows,
            evaluate_every=evaluate_every,
            save_every=save_every,
            seed=seed,
            device=device,
            dtype=dtype,
        )
        run(training.train_draft, options)


@train.command()
def eagle3(
    data: shared.Data,
    target: shared.Target,
    output_folder: shared.Output,
    steps: shared.Steps = None,
    minutes: shared.Minutes = None,
    ttt_steps: Annotated[
        int,
        typer.Option(
            "--ttt-steps",
            metavar="N",
            rich_help_panel=_HEAD,
            help="Guesses in a row that it learns to make: passes of the training-time test.",
        ),
    ] = 4,
    step_decay: Annotated[
        float,
        typer.Option(
            "--step-decay",
            metavar="X",
            rich_help_panel=_HEAD,
            help="Weight of each pass, times that of the one before.",
        ),
    ] = 0.8,
    draft_vocab_size: Annotated[
        int | None,
        typer.Option(
            "--draft-vocab-size",
            metavar="N",
            rich_help_panel=_HEAD,
            help="Tokens it may propose, the most frequent ones. Default: 32,000, or all if there are fewer.",
        ),
    ] = None,
    layer_id: Annotated[
        list[int] | None,
        typer.Option(
            "--layer-id",
            metavar="N",
            rich_help_panel=_HEAD,
            help="A layer of the target whose input it reads; give three. Default: an early, a middle and a late one.",
        ),
    ] = None,
    begin_with: Annotated[
        Path | None,
        typer.Option(
            "--begin-with", metavar="DIR", rich_help_panel=_HEAD, help="An EAGLE-3 head to go on from, to adapt it say."
        ),
    ] = None,
    norm_before_residual: Annotated[
        bool,
        typer.Option(
            "--norm-before-residual", rich_help_panel=_HEAD, help="The residual goes on normed, as in some heads."
        ),
    ] = False,
    format: Annotated[
        Literal["hf", "speculators", "both"],
        typer.Option(
            "--format",
            rich_help_panel=_HEAD,
            help="How it is written: for headstart and SGLang, for vLLM, or also for vLLM below speculators/.",
        ),
    ] = "hf",
    generations: shared.Generations = 0,
    generation_tokens: shared.GenerationTokens = 256,
    generation_temperature: shared.GenerationTemperature = shared.GENERATION_TEMPERATURES,
    sequence_length: shared.SequenceLength = 512,
    validation: shared.Validation = 0.02,
    validation_windows: shared.ValidationWindows = 64,
    tv_weight: shared.TvWeight = 0.5,
    row_share: Annotated[
        float,
        typer.Option(
            "--row-share",
            metavar="X",
            rich_help_panel=shared.RUN,
            help="Share of positions that the loss is computed on; fewer make steps cheaper.",
        ),
    ] = 1.0,
    cache_hidden: Annotated[
        float,
        typer.Option(
            "--cache-hidden",
            metavar="GB",
            rich_help_panel=shared.RUN,
            help="Disk for the target's hidden states, which are computed anew beyond it.",
        ),
    ] = 0.0,
    init: shared.Init = "target",
    batch_size: shared.BatchSize = 8,
    micro_batch: shared.MicroBatch = None,
    matrix_rate: shared.MatrixRate = 0.02,
    other_rate: shared.OtherRate = 3e-3,
    evaluate_every: shared.EvaluateEvery = 500,
    save_every: shared.SaveEvery = 120.0,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    dtype: shared.Dtype = "auto",
    traceback: Traceback = False,
) -> None:
    """Train an EAGLE-3 head: one layer that guesses from the target's own hidden states.

    It is fed its own guesses while it learns, as it will be in use. A run can be stopped at any moment; the same
    command goes on from its last checkpoint.

    **Examples**

        headstart train eagle3 src/ --target my-model --output my-head --minutes 60
        headstart train eagle3 prompts.jsonl --target my-model --output my-head --steps 5000 --generations 2000
        headstart demo --target my-model --drafter my-head
    """
    with reported(traceback):
        from headstart import training

        options = training.Eagle3Training(
            target=target,
            output=output_folder,
            data=data,
            layer_ids=layer_id,
            ttt_steps=ttt_steps,
            step_decay=step_decay,
            draft_vocab_size=draft_vocab_size,
            row_share=row_share,
            norm_before_residual=norm_before_residual,
            cache_hidden=cache_hidden,
            begin_with=begin_with,
            format=format,
            generations=generations,
            generation_tokens=generation_tokens,
            generation_temperatures=generation_temperature,
            tv_weight=tv_weight,
            init=init,
            steps=steps,
            minutes=minutes,
            batch_size=batch_size,
            micro_batch=micro_batch,
            sequence_length=sequence_length,
            matrix_rate=matrix_rate,
            other_rate=other_rate,
            validation=validation,
            validation_windows=validation_windows,
            evaluate_every=evaluate_every,
            save_every=save_every,
            seed=seed,
            device=device,
            dtype=dtype,
        )
        run(training.train_eagle3, options)


@train.command()
def medusa(
    data: shared.Data,
    target: shared.Target,
    output_folder: shared.Output,
    steps: shared.Steps = None,
    minutes: shared.Minutes = None,
    heads: Annotated[
        int,
        typer.Option("--heads", metavar="N", rich_help_panel=_HEADS, help="How many, each for a token further ahead."),
    ] = 4,
    blocks: Annotated[
        int,
        typer.Option(
            "--blocks", metavar="N", rich_help_panel=_HEADS, help="Residual blocks of a head before its output matrix."
        ),
    ] = 1,
    head_decay: Annotated[
        float,
        typer.Option(
            "--head-decay",
            metavar="X",
            rich_help_panel=_HEADS,
            help="Weight of each head in the loss, times that of the one before.",
        ),
    ] = 0.8,
    generations: shared.Generations = 0,
    generation_tokens: shared.GenerationTokens = 256,
    generation_temperature: shared.GenerationTemperature = shared.GENERATION_TEMPERATURES,
    sequence_length: shared.SequenceLength = 512,
    validation: shared.Validation = 0.02,
    validation_windows: shared.ValidationWindows = 64,
    tv_weight: shared.TvWeight = 0.0,
    init: shared.Init = "target",
    batch_size: shared.BatchSize = 8,
    micro_batch: shared.MicroBatch = None,
    matrix_rate: shared.MatrixRate = 0.02,
    other_rate: shared.OtherRate = 1e-3,
    evaluate_every: shared.EvaluateEvery = 500,
    save_every: shared.SaveEvery = 120.0,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    dtype: shared.Dtype = "auto",
    traceback: Traceback = False,
) -> None:
    """Train Medusa heads: output layers on the target's last hidden state, each for a token further ahead.

    Their guesses make a tree, drafted without a second model. A run can be stopped at any moment; the same command
    goes on from its last checkpoint.

    **Examples**

        headstart train medusa src/ --target my-model --output my-heads --minutes 60
        headstart train medusa prompts.jsonl --target my-model --output my-heads --steps 5000 --generations 2000
        headstart demo --target my-model --drafter my-heads
    """
    with reported(traceback):
        from headstart import training

        options = training.MedusaTraining(
            target=target,
            output=output_folder,
            data=data,
            heads=heads,
            blocks=blocks,
            head_decay=head_decay,
            generations=generations,
            generation_tokens=generation_tokens,
            generation_temperatures=generation_temperature,
            tv_weight=tv_weight,
            init=init,
            steps=steps,
            minutes=minutes,
            batch_size=batch_size,
            micro_batch=micro_batch,
            sequence_length=sequence_length,
            matrix_rate=matrix_rate,
            other_rate=other_rate,
            validation=validation,
            validation_windows=validation_windows,
            evaluate_every=evaluate_every,
            save_every=save_every,
            seed=seed,
            device=device,
            dtype=dtype,
        )
        run(training.train_medusa, options)


def run(make: Callable[..., TrainingResult], options: Training) -> None:
    """Train with a progress bar, and say what came of it and what to do next."""
    from headstart.training import TrainingProgress
    from headstart.training.progress import sentence

    try:
        with TrainingProgress(messages()) as progress:
            result = make(options, observe=progress)
    except KeyboardInterrupt:
        messages().print("stopped; the same command goes on from the last checkpoint")
        raise
    console = output()
    console.print(sentence(result.acceptance), soft_wrap=True)
    console.print(f"{result.path}: {result.steps} steps, {result.tokens} tokens, {result.seconds:.0f} s")
    _print_payoff(console, result, options)
    console.print(f"next  headstart demo --target {options.target} --drafter {result.path}", soft_wrap=True)


def _print_payoff(console: Console, result: TrainingResult, options: Training) -> None:
    """Predicted and measured speedup, also into the provenance. A drafter that does not load is still a finished one:
    why it does not is said, and the run has not failed."""
    if not result.prompts:
        return
    from headstart.training import provenance
    from headstart.training.payoff import measure_payoff

    try:
        payoff = measure_payoff(options.target, result, device=options.device)
    except HeadstartError as error:
        messages().print(f"the speedup was not measured: {error}", soft_wrap=True)
        return
    provenance.add(result.path, {"speedup": payoff.record()})
    console.print(payoff.sentence(), soft_wrap=True)
