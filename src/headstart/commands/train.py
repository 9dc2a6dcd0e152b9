"""`headstart train draft`: distil a draft from any target. The options are those of `DraftTraining`, one for one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from headstart.commands.terminal import Traceback, messages, output, reported

_SHAPE, _DATA, _RUN = "Size of the draft", "What it reads", "The run"

train = typer.Typer(help="Train a drafter for a target.", no_args_is_help=True)


@train.callback()
def _root() -> None:
    """Keeps `draft` a command of its own although it is the only one."""


@train.command()
def draft(
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA",
            help='Text files, directories of them, or JSONL with "text", "prompt" or "turns".',
        ),
    ],
    target: Annotated[
        str, typer.Option("--target", "-t", metavar="MODEL", help="The model to learn from: a path or a hub id.")
    ],
    output_folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the draft goes; run again to resume.")
    ],
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="Train this many steps: a repeatable run.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="X", help="Or train this long: a run with a known end.")
    ] = None,
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
    init: Annotated[
        Literal["target", "random"],
        typer.Option(
            "--init",
            rich_help_panel=_SHAPE,
            help="Begin with the target's weights as far as shapes permit, or with noise.",
        ),
    ] = "target",
    generations: Annotated[
        int,
        typer.Option(
            "--generations",
            metavar="N",
            rich_help_panel=_DATA,
            help="Texts the target writes itself, from prompts out of the data: what the draft will meet.",
        ),
    ] = 0,
    generation_tokens: Annotated[
        int, typer.Option("--generation-tokens", metavar="N", rich_help_panel=_DATA, help="Tokens of each such text.")
    ] = 256,
    generation_temperature: Annotated[
        list[float],
        typer.Option(
            "--generation-temperature",
            metavar="X",
            rich_help_panel=_DATA,
            help="Temperatures they are written at, in turn; repeat for more.",
        ),
    ] = [0.0, 1.0],  # noqa: B006 (typer copies it)
    sequence_length: Annotated[
        int, typer.Option("--sequence-length", metavar="N", rich_help_panel=_DATA, help="Tokens of a window.")
    ] = 512,
    validation: Annotated[
        float, typer.Option("--validation", metavar="X", rich_help_panel=_DATA, help="Share of documents held out.")
    ] = 0.02,
    validation_windows: Annotated[
        int,
        typer.Option("--validation-windows", metavar="N", rich_help_panel=_DATA, help="Windows of them to measure on."),
    ] = 64,
    tv_weight: Annotated[
        float,
        typer.Option(
            "--tv-weight",
            metavar="X",
            rich_help_panel=_RUN,
            help="Weight of the rejection rate in the loss; the rest is the KL divergence.",
        ),
    ] = 0.0,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", rich_help_panel=_RUN, help="Windows per step.")
    ] = 8,
    micro_batch: Annotated[
        int | None,
        typer.Option("--micro-batch", metavar="N", rich_help_panel=_RUN, help="Windows held in memory at once."),
    ] = None,
    matrix_rate: Annotated[
        float, typer.Option("--matrix-rate", metavar="X", rich_help_panel=_RUN, help="Peak learning rate of matrices.")
    ] = 0.02,
    other_rate: Annotated[
        float, typer.Option("--other-rate", metavar="X", rich_help_panel=_RUN, help="And of embeddings and norms.")
    ] = 3e-3,
    evaluate_every: Annotated[
        int, typer.Option("--evaluate-every", metavar="N", rich_help_panel=_RUN, help="Steps between measurements.")
    ] = 500,
    save_every: Annotated[
        float, typer.Option("--save-every", metavar="X", rich_help_panel=_RUN, help="Seconds between checkpoints.")
    ] = 120.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", rich_help_panel=_RUN, help="Of data order and init.")] = 0,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", rich_help_panel=_RUN, help="'auto', 'cpu' or 'cuda'.")
    ] = "auto",
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option("--dtype", rich_help_panel=_RUN, help="Of the draft while it trains."),
    ] = "auto",
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
        from headstart.training import DraftTraining, Shape, TrainingProgress, train_draft

        options = DraftTraining(
            target=target,
            output=output_folder,
            data=data,
            shape=Shape(hidden=hidden, layers=layers, intermediate=intermediate, heads=heads, kv_heads=kv_heads),
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
        try:
            with TrainingProgress(messages()) as progress:
                result = train_draft(options, observe=progress)
        except KeyboardInterrupt:
            messages().print("stopped; the same command goes on from the last checkpoint")
            raise
        console = output()
        console.print(f"{result.path}: {result.steps} steps, {result.tokens} tokens, {result.seconds:.0f} s")
        console.print(f"next  headstart demo --target {target} --drafter {result.path}", soft_wrap=True)
