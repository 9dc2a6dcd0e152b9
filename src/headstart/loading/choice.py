"""Which drafters: from what the user asks for to a list of kinds, read from configs alone; and what "auto" takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from headstart.drafters.medusa import is_medusa
from headstart.errors import InvalidOption
from headstart.loading.advice import Advice
from headstart.model import loading
from headstart.model.heads.eagle_checkpoint import is_eagle

Kind = Literal["ngram", "suffix", "early-exit", "lookahead", "medusa", "eagle", "draft"]

WEIGHTLESS: tuple[Kind, ...] = ("ngram", "suffix", "early-exit", "lookahead")
"""Drafters that need no weights, by name."""
BUNDLED_HEADS = ("medusa", "eagle3")
"""Drafters that come with the bundled target, by name."""
NOTE = "headstart.json"
"""A file beside a target's config that may name the drafter to use: {"drafter": PATH OR HUB ID, OR A LIST}."""

_FOR_BUNDLED = ("ngram", loading.BUNDLED)
_FOR_OTHERS = ("suffix", "ngram")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One drafter. name: as the user gave it. source: where a head's weights are."""

    name: str
    kind: Kind
    source: str | Path = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Drafters in order of preference, none for plain decoding; and why these. tree, k: what was found to go with
    them, for options that the user leaves open."""

    drafters: tuple[Wanted, ...]
    reason: str
    tree: str = "auto"
    k: int | None = None


def choose(
    target: str | Path, drafter: str | Path | Sequence[str | Path] | None, advice: Advice | None = None
) -> Choice:
    """Resolve the `drafter` of `headstart.load`. advice: what `headstart doctor` found out, if it did.

    Raises:
        InvalidOption: an empty list, a name twice, or a bundled head with another target.
        ModelNotFound: a path that leads to no model.
    """
    if drafter is None or isinstance(drafter, (str, Path)):
        asked = ["none" if drafter is None else str(drafter)]
    else:
        asked = [str(name) for name in drafter]
    if asked == ["auto"]:
        return _automatic(str(target), advice)
    if asked == ["none"]:
        return Choice((), "no drafter was asked for")
    return _chosen(asked, str(target), "asked for")


def _automatic(target: str, advice: Advice | None) -> Choice:
    if target == loading.BUNDLED:
        return _chosen(_FOR_BUNDLED, target, "comes with the bundled target")
    note = Path(target).expanduser() / NOTE
    if note.is_file():
        return _chosen(_recommended(note), target, f"recommended in {note}")
    if advice is not None and not advice.missing:
        drafters = _chosen(advice.drafters, target, advice.reason).drafters if advice.drafters else ()
        return Choice(drafters, advice.reason, advice.tree, advice.k)
    nothing = f"no drafter is recommended for this target ({NOTE} beside its config names one)"
    return _chosen(_FOR_OTHERS, target, nothing if advice is None else advice.reason)


def _chosen(asked: Sequence[str], target: str, reason: str) -> Choice:
    for name in asked:
        if name in ("auto", "none"):
            raise InvalidOption(f"{name!r} cannot stand in a list of drafters", hint="name each drafter of the list")
    if len(set(asked)) != len(asked) or not asked:
        raise InvalidOption(f"drafter={list(asked)} is empty or names one twice", hint="name each drafter once")
    return Choice(tuple(_wanted(name, target) for name in asked), reason)


def _recommended(note: Path) -> list[str]:
    try:
        named: Any = json.loads(note.read_text())["drafter"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidOption(
            f"{note} does not name a drafter", hint='it should read {"drafter": "PATH OR HUB ID"}, or a list of them'
        ) from error
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidOption(f"{note}: drafter={named!r} names nothing", hint="give a path, a hub id, or a list of them")
    beside = [note.parent / name for name in names]  # a path is meant from where the note stands
    return [str(path) if path.is_dir() else name for path, name in zip(beside, names, strict=True)]


def _wanted(name: str, target: str) -> Wanted:
    for weightless in WEIGHTLESS:
        if name == weightless:
            return Wanted(name, weightless)
    if name in BUNDLED_HEADS:
        if target != loading.BUNDLED:
            raise InvalidOption(
                f"drafter={name!r} means the head of the bundled target, and this is {target}",
                hint=f"train one (headstart train {name}) and give its directory",
            )
        folder = Path(str(resources.files("headstart") / "pair" / name))
        return Wanted(name, "eagle" if name == "eagle3" else "medusa", folder)
    source = loading.resolve(name, "draft")
    known = loading.config_folder(source)
    if known is not None and is_medusa(known):
        return Wanted(name, "medusa", loading.fetch(source))
    if known is not None and is_eagle(known):
        return Wanted(name, "eagle", loading.fetch(source))
    return Wanted(name, "draft")
