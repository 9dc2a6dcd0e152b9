"""Loading an engine for a command: the options that name models and files, and what is checked and printed before."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from headstart.base.errors import InvalidOption
from headstart.base.lazy import transformers
from headstart.base.options import option, values_of
from headstart.commands.terminal import note
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.engine.engine import Engine


BUNDLED_PENALTY = 1.07
_SPECULATION = "Speculation"

TARGET = option(
    "bundled",
    "The model that writes: a folder, a .gguf file, a Hugging Face hub id, or 'bundled' (a tiny model that writes "
    "Python). It may also come first, without a flag.",
    "--model",
    "-m",
    "--target",
    metavar="MODEL",
    panel="Model",
)
DRAFTER = option(
    ["auto"],
    "What proposes the next tokens: 'auto', 'none', 'ngram', a small model, or a trained head, by path or hub id. "
    "Words: 'none' (no speculation), 'ngram' and 'suffix' (copies of what came before), 'prediction' (a text that "
    "comes with a request), 'lookahead', 'early-exit', 'self-int4' (the model itself on 4 bits), 'mtp' (the head "
    "inside the model's checkpoint); with the bundled model also 'medusa' and 'eagle3', with SmolLM2-135M-Instruct "
    "'eagle3'. Paths: of a small model (also a .gguf file, or with a mask token as PARD's), of a trained exit, or of "
    "Medusa, EAGLE, P-EAGLE, DFlash or DSpark heads. 'ahead:' before a small model or 'early-exit' drafts while the "
    "model verifies; 'MODEL(DRAFTER, ...)' is a model with drafters of its own, as in 'self-int4(ngram)'. "
    "Of several, in each step the first with a proposal drafts, unless a later one should do better.",
    "--drafter",
    "-d",
    "--draft-model",
    metavar="DRAFTER",
    panel=_SPECULATION,
)
SPLIT = option(
    False,
    "Make a prompt of each part of a text file between blank lines. Without it a file is one prompt.",
    panel="Prompts",
)
SUFFIX_STORE = option(
    None,
    "Past outputs for --drafter suffix: read from FILE if it exists, and written back with the new ones.",
    panel=_SPECULATION,
)
REPETITION_PENALTY = option(
    None,
    f"Above 1, tokens become less likely to come again. Default: {BUNDLED_PENALTY:g} for the bundled target, which is "
    "small and repeats itself; else 1.",
    panel="Sampling",
)


def words(metavar: str, help: str = "The model, as --model takes it.", *, least: int = 0, most: float = 0) -> Any:
    """Words given by position of which the first may name the model; the others are so many at least and at most."""
    return option((), help, metavar=metavar, kind=list[str], positional=True, others=(least, most))


def penalty_for(target: str, asked: float | None) -> float:
    """The repetition penalty that the user named, or this target's default."""
    if asked is not None:
        return asked
    return BUNDLED_PENALTY if target == "bundled" else Sampling().repetition_penalty


def without_bars(library: Any) -> None:
    """No bars of transformers: they count tensors, not bytes, and are gone before they can be read."""
    library.utils.logging.disable_progress_bar()


@contextmanager
def shown_loading(console: Console, target: str) -> Iterator[None]:
    """A note on a terminal while a target is loaded: importing torch alone takes a second.

    Libraries make a million objects while they are imported, and nearly all stay: Python need not look through them for
    garbage. Of what loading itself makes that is done once.
    """
    gc.disable()
    try:
        with note(console, f"loading {target} …"):
            transformers.first(without_bars)
            import_module("headstart.loading.load")
            gc.freeze()
            yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def load_engine(
    console: Console, target: str, drafter: Sequence[str], loading: TargetOptions, options: EngineOptions
) -> Engine:
    """`headstart.load`, with a note meanwhile."""
    with shown_loading(console, target):
        import headstart

        return headstart.load(target, one_or_all(drafter), **values_of(loading), **values_of(options))


def one_or_all(drafter: Sequence[str]) -> str | list[str]:
    """The drafters as `headstart.load` takes them."""
    return drafter[0] if len(drafter) == 1 else list(drafter)


@contextmanager
def past_outputs(
    path: Path | None, drafter: Sequence[str], options: EngineOptions, *, write: bool = True
) -> Iterator[EngineOptions]:
    """The options with the store of past outputs in this file, if one is named, which may have to be made. With
    `write` the store is written back when the block ends, however it ends."""
    if path is None:
        yield options
        return
    if "suffix" not in drafter:
        raise InvalidOption("--suffix-store needs --drafter suffix", hint="no other drafter looks into it")
    from headstart import SuffixStore

    store = SuffixStore.load(path) if path.exists() else SuffixStore()
    try:
        yield replace(options, suffix_store=store)
    finally:
        if write:
            store.save(path)


def check_outputs(results: Path | None, page: Path | None) -> None:
    """Could both be written, and is there what a page needs? Folders that are not there are made.

    Raises:
        InvalidOption: no, and why.
    """
    for path in (results, page):
        if path is None:
            continue
        new = not path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        except OSError as error:
            hint = "name a file in a folder that you may write to"
            raise InvalidOption(f"cannot write {path}: {error.strerror}", hint=hint) from error
        if new:
            path.unlink()


def api_key(name: str | None) -> str | None:
    """A server's key, from the environment variable of this name; None where none is named.

    Raises:
        InvalidOption: there is no such variable, or it is empty.
    """
    if name is not None and not os.environ.get(name):
        raise InvalidOption(f"the environment has no {name}", hint=f"export {name}=...")
    return None if name is None else os.environ[name]
