"""Who could draft: what needs no weights, what the user names, what lies in a directory; and in whose tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headstart.base.errors import HeadstartError, InvalidOption
from headstart.drafters.building import PREFIX
from headstart.loading.checkpoint import Checkpoint, check_sizes
from headstart.loading.choice import BUNDLED_HEADS, KNOWN, MTP, SELF_INT4, head_kind, holds_mtp, weights_of_kind
from headstart.loading.known_heads import head_for
from headstart.loading.load import Target
from headstart.model import loading
from headstart.model.tokens.tokenizers import differences
from headstart.model.tokens.translation import Translation

ALWAYS = ("ngram", "suffix", "early-exit")
FEWER = 0.5
"""A draft model found in a directory has at most this share of the target's weights."""
_DEEP = 6
Origin = Literal["always", "bundled", "given", "found", "usual", "list", "ahead"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Drafters as `headstart.load` takes them, local ones by absolute path; several are a list. origin: why it is
    looked at."""

    drafters: tuple[str, ...]
    origin: Origin

    @property
    def name(self) -> str:
        """Short, for tables."""
        return " + ".join(_short(name) for name in self.drafters)


def candidates(
    target: str, given: Sequence[str], found: Sequence[str] = (), *, own_copy: bool = False, usual: Sequence[str] = ()
) -> list[Candidate]:
    """Each once: what the user named (with commas: a list), what was found, what came with the target, what is always
    looked at; what "auto" takes without an answer (usual); and last, because it takes longest to be made, the target's
    own copy on 4 bits, where that may pay.

    Raises:
        InvalidOption: "auto" or "none" among what was named: neither is a drafter.
    """
    wanted: list[Candidate] = []
    for text in given:
        names = tuple(absolute(name) for name in text.split(",") if name)
        if not names or {"auto", "none"} & set(names):
            raise InvalidOption(
                f"--drafter {text!r} is no drafter to look at",
                hint="name drafters; n-gram, suffix and early exit are looked at anyway, and plain decoding is what "
                "all are compared with",
            )
        wanted.append(Candidate(names, "given"))
    wanted += [Candidate((name,), "found") for name in found]
    if target == loading.BUNDLED:
        wanted += [Candidate((name,), "bundled") for name in (loading.BUNDLED, *BUNDLED_HEADS)]
    elif head_for(target) is not None:
        wanted.append(Candidate((KNOWN,), "bundled"))
    elif holds_mtp(target):
        wanted.append(Candidate((MTP,), "bundled"))
    wanted += [Candidate((name,), "always") for name in ALWAYS]
    wanted += [Candidate(tuple(usual), "usual")] if usual else []
    wanted += [Candidate((SELF_INT4,), "always")] if own_copy else []
    once: dict[tuple[str, ...], Candidate] = {}
    for candidate in wanted:
        once.setdefault(candidate.drafters, candidate)
    return list(once.values())


def absolute(name: str) -> str:
    """A local directory by its absolute path, anything else as it is."""
    if name.startswith(PREFIX):
        return PREFIX + absolute(name.removeprefix(PREFIX))
    path = Path(name).expanduser()
    special = name in (*BUNDLED_HEADS, SELF_INT4, loading.BUNDLED) or weights_of_kind(name) == "none"
    return str(path.resolve()) if path.exists() and not special else name


def _short(name: str) -> str:
    if name.startswith(PREFIX):
        return PREFIX + _short(name.removeprefix(PREFIX))
    return Path(name).name if Path(name).exists() else name


def scan(directory: Path, target: Target) -> tuple[tuple[str, ...], dict[str, str]]:
    """Model directories below this one that could draft for the target: heads, and causal LMs of the target's own
    tokens that are much smaller; and, by path, why others are no candidates.

    Raises:
        InvalidOption: there is no such directory.
    """
    if not directory.is_dir():
        raise InvalidOption(f"--scan {directory}: there is no such directory", hint="name one with models below it")
    fit: list[tuple[int, str]] = []
    passed_over: dict[str, str] = {}
    for folder in _model_folders(directory):
        path = str(folder.resolve())
        if path == str(Path(target.checkpoint.source).resolve()):
            passed_over[path] = "it is the target"
            continue
        try:
            size, reason = _look(folder, target)
        except HeadstartError as error:
            size, reason = 0, error.message
        if reason:
            passed_over[path] = reason
        else:
            fit.append((size, path))
    return tuple(path for _, path in sorted(fit)), passed_over


def _look(folder: Path, target: Target) -> tuple[int, str]:
    """Bytes of a candidate's weights, and why it is none."""
    if head_kind(folder) is not None:
        return 0, ""  # whose head it is shows when it is loaded
    ours, theirs = target.checkpoint, target.draft(folder)
    mine, other = ours.weight_bytes, theirs.weight_bytes
    if other > FEWER * mine:
        return other, f"it has {other / mine:.0%} of the target's weights, and a draft should have far fewer"
    if ours.tokenizer is not None and theirs.tokenizer is not None:
        found = differences(ours.tokenizer, theirs.tokenizer)
        if found:
            return other, f"another tokenizer ({found[0]}); name it with --drafter to have its drafts translated"
    return other, ""


def _model_folders(top: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(top):
        here = Path(folder)
        deep = len(here.relative_to(top).parts) >= _DEEP
        below[:] = [] if deep else sorted(name for name in below if not name.startswith("."))
        if "config.json" in files:
            yield here


How = Literal["none", "own", "same", "sizes", "ids", "intersection", "text"]


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How a draft's tokens relate to the target's.

    how: "none" (no tokens of its own), "own" (a head drafts the target's), "same", "sizes" (no tokenizer to compare, as
    many tokens), or the method by which drafts are translated (`Translation.method`).
    words: the same in words.
    differences: between the tokenizers, in words.
    """

    how: How
    words: str
    differences: tuple[str, ...] = ()


def compare(ours: Checkpoint, theirs: Checkpoint) -> Compatibility:
    """Compare tokenizers, not sizes of vocabularies: those may differ by padding.

    Raises:
        IncompatibleTokenizer: drafts cannot even be translated; the message names what differs.
    """
    check_sizes(ours, theirs)
    if ours.tokenizer is None or theirs.tokenizer is None:
        return Compatibility("sizes", f"no tokenizer to compare; both models know {ours.vocab_size} tokens")
    found = differences(ours.tokenizer, theirs.tokenizer)
    if not found:
        padding = ours.vocab_size != theirs.vocab_size
        sizes = f" ({ours.vocab_size} and {theirs.vocab_size} entries differ by padding only)" if padding else ""
        return Compatibility("same", f"the target's own tokenizer{sizes}")
    translation = Translation.between(
        ours.tokenizer,
        theirs.tokenizer,
        target_vocab=ours.vocab_size,
        draft_vocab=theirs.vocab_size,
        name=f"draft {theirs.label}",
    )
    return Compatibility(translation.method, f"another tokenizer; {translation}", found)
