"""The options that all kinds of training share, each declared once. Names and defaults are those of `Training`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

DATA, RUN = "What it reads", "The run"

Data = Annotated[
    list[Path],
    typer.Argument(metavar="DATA", help='Text files, directories of them, or JSONL with "text", "prompt" or "turns".'),
]
Target = Annotated[
    str, typer.Option("--target", "-t", metavar="MODEL", help="The model to learn from: a path or a hub id.")
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Where the drafter goes; run again to resume.")
]
Steps = Annotated[int | None, typer.Option("--steps", metavar="N", help="Train this many steps: a repeatable run.")]
Minutes = Annotated[
    float | None, typer.Option("--minutes", metavar="X", help="Or train this long: a run with a known end.")
]

Generations = Annotated[
    int,
    typer.Option(
        "--generations",
        metavar="N",
        rich_help_panel=DATA,
        help="Texts the target writes itself, from prompts out of the data: what the drafter will meet.",
    ),
]
GenerationTokens = Annotated[
    int, typer.Option("--generation-tokens", metavar="N", rich_help_panel=DATA, help="Tokens of each such text.")
]
GenerationTemperature = Annotated[
    list[float],
    typer.Option(
        "--generation-temperature",
        metavar="X",
        rich_help_panel=DATA,
        help="Temperatures they are written at, in turn; repeat for more.",
    ),
]
GENERATION_TEMPERATURES = [0.0, 1.0]
SequenceLength = Annotated[
    int, typer.Option("--sequence-length", metavar="N", rich_help_panel=DATA, help="Tokens of a window.")
]
Validation = Annotated[
    float, typer.Option("--validation", metavar="X", rich_help_panel=DATA, help="Share of documents held out.")
]
ValidationWindows = Annotated[
    int, typer.Option("--validation-windows", metavar="N", rich_help_panel=DATA, help="Windows of them to measure on.")
]

TvWeight = Annotated[
    float,
    typer.Option(
        "--tv-weight",
        metavar="X",
        rich_help_panel=RUN,
        help="Weight of the rejection rate in the loss; the rest is the KL divergence.",
    ),
]
Init = Annotated[
    Literal["target", "random"],
    typer.Option(
        "--init",
        rich_help_panel=RUN,
        help="Begin with the target's weights as far as shapes permit, or with noise.",
    ),
]
BatchSize = Annotated[int, typer.Option("--batch-size", metavar="N", rich_help_panel=RUN, help="Windows per step.")]
MicroBatch = Annotated[
    int | None,
    typer.Option("--micro-batch", metavar="N", rich_help_panel=RUN, help="Windows held in memory at once."),
]
MatrixRate = Annotated[
    float, typer.Option("--matrix-rate", metavar="X", rich_help_panel=RUN, help="Peak learning rate of matrices.")
]
OtherRate = Annotated[
    float, typer.Option("--other-rate", metavar="X", rich_help_panel=RUN, help="And of embeddings and norms.")
]
EvaluateEvery = Annotated[
    int, typer.Option("--evaluate-every", metavar="N", rich_help_panel=RUN, help="Steps between measurements.")
]
SaveEvery = Annotated[
    float, typer.Option("--save-every", metavar="X", rich_help_panel=RUN, help="Seconds between checkpoints.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", rich_help_panel=RUN, help="Of data order and first weights.")]
Device = Annotated[str, typer.Option("--device", metavar="NAME", rich_help_panel=RUN, help="'auto', 'cpu' or 'cuda'.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option("--dtype", rich_help_panel=RUN, help="Of what is trained, meanwhile."),
]
