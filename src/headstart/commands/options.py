"""The options that commands share, each declared once, and the loading of an engine from them.

Names and defaults are those of `headstart.load` and `Sampling`, which check the values.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from headstart.commands.terminal import note
from headstart.errors import InvalidOption
from headstart.types import Rule, Sampling

if TYPE_CHECKING:
    from headstart.drafters.matching.suffix_store import SuffixStore
    from headstart.engine.engine import Engine

_MODEL, _SAMPLING = "Model", "Sampling"
DEFAULT = Sampling()

Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="MODEL",
        rich_help_panel=_MODEL,
        help="The model that speaks: a path, a Hugging Face hub id, or 'bundled' (a tiny model that writes Python).",
    ),
]
Drafter = Annotated[
    list[str],
    typer.Option(
        "--drafter",
        "-d",
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="Who guesses: 'auto', 'none' (plain decoding), 'ngram', 'suffix', 'early-exit', 'lookahead', the path or "
        "hub id of a small model or of Medusa or EAGLE heads; with the bundled target also 'medusa' and 'eagle3'. "
        "Repeat for more: each step, the first with something to say guesses.",
    ),
]
AUTO = ["auto"]
Split = Annotated[
    bool,
    typer.Option(
        "--split",
        help="Make a prompt of each part of a text file between blank lines. Without it a file is one prompt.",
    ),
]
RuleOption = Annotated[
    Rule,
    typer.Option(
        "--rule",
        rich_help_panel=_MODEL,
        help="'exact' accepts the most; 'coupled' gives a seed the same text with any drafter, or none. "
        "Both keep the target's law.",
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k",
        "-k",
        metavar="N",
        rich_help_panel=_MODEL,
        help="Tokens guessed per step at most. Default: the drafter's own.",
    ),
]
Tree = Annotated[
    Literal["auto", "none", "mixed", "top-k", "sampled"],
    typer.Option(
        "--tree",
        rich_help_panel=_MODEL,
        help="How models and heads guess: 'none' is one chain, 'top-k' a tree of the likeliest, 'sampled' a drawn one, "
        "'mixed' what suits the request.",
    ),
]
Pacing = Annotated[
    Literal["adaptive", "fixed"],
    typer.Option(
        "--pacing",
        rich_help_panel=_MODEL,
        help="'adaptive' guesses as much as should be fastest, step by step, nothing included; "
        "'fixed' always guesses --k tokens.",
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", rich_help_panel=_MODEL, help="'auto', 'cpu', 'cuda' or 'cuda:1'.")
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="'auto', 'bfloat16', 'float16' or 'float32'. In float32 greedy text is the same token for token; "
        "in 16 bits two nearly equal tokens can change places.",
    ),
]
Quantize = Annotated[
    Literal["int8"] | None,
    typer.Option("--quantize", rich_help_panel=_MODEL, help="int8: the target's weights as 8-bit integers (CPU)."),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        metavar="N",
        rich_help_panel=_MODEL,
        help="Room for prompt and new tokens together. Default: the model's context.",
    ),
]
MaxBatchSize = Annotated[
    int, typer.Option("--max-batch-size", metavar="N", rich_help_panel=_MODEL, help="Prompts that run at a time.")
]
SuffixStoreFile = Annotated[
    Path | None,
    typer.Option(
        "--suffix-store",
        metavar="FILE",
        rich_help_panel=_MODEL,
        help="Past outputs for --drafter suffix: read from FILE if it is there, and written back with the new ones.",
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        rich_help_panel=_MODEL,
        help="Allow a model to run Python code from its repository.",
    ),
]

MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", metavar="N", rich_help_panel=_SAMPLING, help="New tokens at most.")
]
MinTokens = Annotated[
    int, typer.Option("--min-tokens", metavar="N", rich_help_panel=_SAMPLING, help="No end of text before this many.")
]
Temperature = Annotated[
    float,
    typer.Option("--temperature", "-T", metavar="X", rich_help_panel=_SAMPLING, help="0 is greedy, 1 the model's law."),
]
TopK = Annotated[
    int,
    typer.Option("--top-k", metavar="N", rich_help_panel=_SAMPLING, help="Keep the N likeliest tokens; 0 keeps all."),
]
TopP = Annotated[
    float,
    typer.Option(
        "--top-p",
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="Keep the likeliest tokens that together reach probability X.",
    ),
]
MinP = Annotated[
    float,
    typer.Option(
        "--min-p",
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="Keep tokens at least X times as likely as the likeliest.",
    ),
]
RepetitionPenalty = Annotated[
    float,
    typer.Option(
        "--repetition-penalty",
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="Above 1 makes tokens of prompt and text less likely to come again.",
    ),
]
PresencePenalty = Annotated[
    float,
    typer.Option(
        "--presence-penalty",
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="Taken from the logit of every token in the text so far.",
    ),
]
FrequencyPenalty = Annotated[
    float,
    typer.Option(
        "--frequency-penalty",
        metavar="X",
        rich_help_panel=_SAMPLING,
        help="The same, times how often the token has come.",
    ),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        metavar="ID=VALUE",
        rich_help_panel=_SAMPLING,
        help="Added to the logit of token ID; repeat for more.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        rich_help_panel=_SAMPLING,
        help="The same seed gives the same text; without one it is drawn anew.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        rich_help_panel=_SAMPLING,
        help=r"End before this text; repeat for more. A newline in bash: --stop $'\n\n'.",
    ),
]
StopTokenId = Annotated[
    list[int] | None,
    typer.Option(
        "--stop-token-id", metavar="ID", rich_help_panel=_SAMPLING, help="End at this token; repeat for more."
    ),
]
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", rich_help_panel=_SAMPLING, help="Go on past the end of the text, to --max-tokens."),
]


def parse_logit_bias(pairs: list[str] | None) -> dict[int, float]:
    """{"ID=VALUE", ...} as Sampling wants it."""
    bias: dict[int, float] = {}
    for pair in pairs or ():
        token, _, value = pair.partition("=")
        try:
            bias[int(token)] = float(value)
        except ValueError:
            raise InvalidOption(
                f"--logit-bias {pair!r} is not ID=VALUE", hint="for example --logit-bias 42=-100 forbids token 42"
            ) from None
    return bias


def load_engine(
    console: Console,
    *,
    target: str,
    drafter: list[str],
    device: str,
    dtype: str,
    quantize: str | None,
    rule: Rule,
    k: int | None,
    pacing: str = "adaptive",
    tree: str = "auto",
    max_batch_size: int = 8,
    max_length: int | None = None,
    trust_remote_code: bool = False,
    suffix_store: SuffixStore | None = None,
) -> Engine:
    """`headstart.load`, with a note on a terminal meanwhile: importing torch alone takes seconds."""
    with note(console, f"loading {target} …"):
        from transformers.utils import logging

        import headstart

        logging.disable_progress_bar()  # it counts tensors, not bytes, and is gone before it can be read
        return headstart.load(
            target,
            drafter[0] if len(drafter) == 1 else drafter,
            device,
            dtype,
            quantize,
            rule,
            num_speculative_tokens=k,
            pacing=pacing,
            draft_tree=tree,
            max_batch_size=max_batch_size,
            max_length=max_length,
            trust_remote_code=trust_remote_code,
            suffix_store="auto" if suffix_store is None else suffix_store,
        )


def open_store(path: Path | None, drafter: list[str]) -> SuffixStore | None:
    """The past outputs in this file; an empty store where there is no file yet."""
    if path is None:
        return None
    if "suffix" not in drafter:
        raise InvalidOption("--suffix-store needs --drafter suffix", hint="no other drafter looks into it")
    from headstart.drafters.matching.suffix_store import SuffixStore

    return SuffixStore.load(path) if path.exists() else SuffixStore()
