"""Which drafters: from what the user names to a list of kinds, read from configs alone; and what "auto" takes."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headstart.base.errors import HeadstartError, InvalidOption
from headstart.base.extras import pair
from headstart.drafters import Drafter, Weights, Wraps, capabilities, kinds
from headstart.drafters.building import PREFIX, Kind
from headstart.engine.guarded_drafter import asking
from headstart.loading.advice import Advice
from headstart.loading.known_heads import head_for
from headstart.loading.stack import Stack, as_stack
from headstart.model import loading
from headstart.model.gguf import checkpoint as gguf
from headstart.model.gguf.files import is_gguf
from headstart.types import TreeKind

DrafterName = str | Path
log = logging.getLogger(__name__)

BUNDLED_HEADS = {"medusa": "medusa", "eagle3": "eagle"}
"""Heads that come with the bundled target, and the kind of each."""
KNOWN = "eagle3"
"""The name of a head that comes with headstart for a target which does not."""
SELF_INT4 = "self-int4"
"""The target's own weights, rounded to 4 bits, as its draft model (ML-SpecQD, arXiv 2503.13565)."""
NOTE = "headstart.json"
"""A file beside a target's config that may name the drafter to use: {"drafter": PATH OR HUB ID, OR A LIST}."""

STACK = "stack"
"""The kind of a draft model that has drafters of its own."""
MTP = "mtp"
"""The name of a head that a checkpoint holds beside its model."""

_ALIKE = 0.75
"""How alike a misspelt name is to the right one, by difflib's ratio: "ngrm" and "ngram" are at 0.89."""
_GGUF_HEADS = {"eagle3": "eagle", "dflash": "dflash"}
"""Kinds of heads, by the architecture of a GGUF file."""

_FOR_BUNDLED = ("ngram", loading.BUNDLED)
_FOR_KNOWN = ("ngram", KNOWN)
_WITH_MTP = ("ngram", MTP)
_FOR_OTHERS = ("suffix", "ngram")


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """One drafter that is wanted."""

    name: str
    """As the user gave it."""
    kind: str
    """A key of `headstart.drafters.kinds()`, "own" or "stack"."""
    source: str | Path = ""
    """Where a head's weights are."""
    drafter: Drafter | None = None
    """The drafter itself, where the user has made it."""
    wrapper: str = ""
    """The kind of drafter that is put around it, such as "ahead"; empty where there is none."""
    around: Wraps | None = None
    """How that is done, where the user has said so by an object."""
    inner: tuple[DrafterSpec, ...] = ()
    """Of a stack, what drafts for its model, which `source` names."""

    @property
    def model(self) -> str:
        """The name of the causal LM that it runs; empty where it runs none."""
        return {"draft": self.name, STACK: str(self.source)}.get(self.kind, "")

    @property
    def whole(self) -> Iterator[DrafterSpec]:
        """This drafter, and those inside of it."""
        yield self
        for each in self.inner:
            yield from each.whole

    @property
    def label(self) -> str:
        """The name, with how it drafts."""
        return f"{self.wrapper}:{self.name}" if self.wrapper else self.name


@dataclass(frozen=True, slots=True)
class Choice:
    """The drafters of an engine."""

    drafters: tuple[DrafterSpec, ...]
    """In order of preference; none for plain decoding."""
    reason: str
    """Why these."""
    tree: TreeKind | Literal["auto"] = "auto"
    """The kind of tree that was found to go with them, where the user leaves it open."""
    k: int | None = None
    """The budget that was found to go with them, where the user leaves it open."""

    @property
    def whole(self) -> list[DrafterSpec]:
        """The drafters, and those inside of them."""
        return [found for each in self.drafters for found in each.whole]

    @property
    def models(self) -> list[str]:
        """The names of all draft models."""
        return [each.model for each in self.whole if each.model]


def choose(
    target: DrafterName,
    drafter: DrafterName | Drafter | Stack | Sequence[DrafterName | Drafter | Stack] | None,
    advice: Advice | None = None,
) -> Choice:
    """Resolve the `drafter` of `headstart.load`. A list may end with "auto", which is then replaced by what that finds.

    advice: of `headstart doctor`, where there is any.

    Raises:
        InvalidOption: an empty list, a name twice, or a bundled head with another target.
        ModelNotFound: a path that leads to no model.
    """
    asked = [drafter] if isinstance(drafter, (str, Path)) or not isinstance(drafter, Sequence) else list(drafter)
    if asked[-1:] == ["auto"]:
        found = _automatic(str(target), advice)
        return _preceded(asked[:-1], found, str(target)) if asked[:-1] else found
    if asked in (["none"], [None]):
        return Choice((), "no drafter was asked for")
    return _chosen(asked, str(target), "asked for")


def _automatic(target: str, advice: Advice | None) -> Choice:
    if target == loading.BUNDLED:
        return _chosen(_FOR_BUNDLED, target, "comes with the bundled target")
    path = Path(target).expanduser()
    note = (path.parent if path.is_file() else path) / NOTE
    if note.is_file():
        return _chosen(_recommended(note), target, f"recommended in {note}")
    if advice is not None and not advice.missing:
        drafters = _chosen(advice.drafters, target, advice.reason).drafters if advice.drafters else ()
        return Choice(drafters, advice.reason, advice.tree, advice.k)
    if head_for(target) is not None:
        return _chosen(_FOR_KNOWN, target, "a head for this model comes with headstart")
    if holds_mtp(target):
        return _chosen(_WITH_MTP, target, "the checkpoint holds an MTP head")
    nothing = f"no drafter is recommended for this target ({NOTE} beside its config names one)"
    return _chosen(_FOR_OTHERS, target, nothing if advice is None else advice.reason)


def _preceded(asked: Sequence[Any], found: Choice, target: str) -> Choice:
    """What "auto" found, behind the drafters that were named."""
    named = _chosen(asked, target, "").drafters
    names = {each.name for each in named}
    return replace(found, drafters=(*named, *(each for each in found.drafters if each.name not in names)))


def _chosen(asked: Sequence[Any], target: str, reason: str) -> Choice:
    wanted = [_wanted(each, target) for each in asked]
    names = [each.name for each in wanted]
    if len(set(names)) != len(names) or not names:
        raise InvalidOption(f"drafter={names} is empty or names one twice", hint="name each drafter once")
    return Choice(tuple(wanted), reason)


def _recommended(note: Path) -> list[str]:
    try:
        named: Any = json.loads(note.read_text(encoding="utf-8"))["drafter"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidOption(
            f"{note} does not name a drafter", hint='it should read {"drafter": "PATH OR HUB ID"}, or a list of them'
        ) from error
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidOption(f"{note}: drafter={named!r} names nothing", hint="give a path, a hub id, or a list of them")
    beside = [note.parent / name for name in names]  # a path is relative to the folder of the note
    return [str(path) if path.exists() else name for path, name in zip(beside, names, strict=True)]


def _wanted(asked: Any, target: str) -> DrafterSpec:
    if not isinstance(asked, (str, Path)):
        if isinstance(asked, Wraps):
            return replace(_inner(asked.inner, target), wrapper=PREFIX[:-1], around=asked)
        if isinstance(asked, Stack):
            return _stacked(asked, target)
        return _own(asked)
    name = str(asked)
    wrapper, colon, inner = name.partition(":")
    if colon and weights_of_kind(wrapper) == "drafter":
        return replace(_inner(inner, target), wrapper=wrapper)
    stack = as_stack(name)
    if stack is not None:
        return _stacked(stack, target)
    if name in ("auto", "none"):
        raise InvalidOption(
            f"{name!r} cannot be there in a list of drafters",
            hint="name each drafter of the list; 'auto' may be its last",
        )
    if weights_of_kind(name) == "none":
        return DrafterSpec(name, name)
    if name in (SELF_INT4, loading.BUNDLED):
        return DrafterSpec(name, "draft")
    if name in BUNDLED_HEADS:
        folder = _with_headstart(name, target)
        if folder is None:
            raise InvalidOption(
                f"drafter={name!r} means a head that comes with headstart, and there is none for {target}",
                hint=f"train one (headstart train {name}) and give its directory",
            )
        return DrafterSpec(name, BUNDLED_HEADS[name], folder)
    _check_spelling(name)
    source = loading.resolve(name, "draft")
    if is_gguf(source):
        return DrafterSpec(name, _GGUF_HEADS.get(gguf.architecture(source), "draft"), source)
    folder_ = loading.config_folder(source)
    kind = None if folder_ is None else head_kind(folder_)
    return DrafterSpec(name, "draft") if kind is None else DrafterSpec(name, kind, loading.fetch(source))


def _check_spelling(name: str) -> None:
    """Refuse a word that is almost a drafter's name, and no file: else a hub would be asked for a model of that name.

    Raises:
        InvalidOption: it is misspelt.
    """
    if "/" in name or Path(name).exists():
        return
    words = ("auto", "none", SELF_INT4, loading.BUNDLED, *BUNDLED_HEADS)
    alike = difflib.get_close_matches(name, (*words, *kinds()), cutoff=_ALIKE)
    close = [each for each in alike if each in words or weights_of_kind(each) == "none"]
    if close:
        raise InvalidOption(
            f"drafter={name!r} is no drafter, and no file or directory",
            hint=f"did you mean {close[0]!r}? A model is named by its path or hub id",
        )


def _stacked(asked: Stack, target: str) -> DrafterSpec:
    """A draft model with drafters of its own.

    Raises:
        InvalidOption: what is to have drafters is no model, or one of them drafts ahead.
    """
    model = _wanted(asked.model, target)
    if model.kind != "draft" or model.wrapper:
        raise InvalidOption(
            f"drafter={asked.label!r}: {asked.model} is no model that can have a drafter of its own",
            hint='a stack begins with "self-int4", or with the path or hub id of a causal LM',
        )
    if asked.model == loading.BUNDLED:
        target = str(loading.resolve(loading.BUNDLED, "draft"))
    elif asked.model != SELF_INT4:
        target = str(asked.model)
    inner = choose(target, asked.drafters).drafters
    if any(each.wrapper for each in inner):
        raise InvalidOption(
            f"drafter={asked.label!r}: inside of a stack nothing drafts ahead",
            hint=f"leave {PREFIX!r} out",
        )
    return DrafterSpec(asked.label, STACK, asked.model, inner=inner)


def holds_mtp(target: str) -> bool:
    """Whether the target's own checkpoint holds an MTP head that can be run."""
    from headstart.model.heads.mtp_checkpoint import has_head  # few targets have one

    where = Path(target) if is_gguf(target) else loading.config_folder(target)
    return where is not None and has_head(where)


def _with_headstart(name: str, target: str) -> Path | None:
    """Where the head of this name lies, if one comes with headstart for the target."""
    if target == loading.BUNDLED:
        return pair(name)
    return head_for(target) if name == KNOWN else None


def _inner(asked: Any, target: str) -> DrafterSpec:
    """The drafter that another one is put around."""
    found = _wanted(asked, target)
    if found.wrapper:
        already = "drafts ahead already" if found.wrapper == PREFIX[:-1] else "is put around another drafter already"
        raise InvalidOption(f"{asked} {already}", hint=f"say '{found.wrapper}:' once")
    return found


def weights_of_kind(name: str) -> Weights | None:
    """What a kind of drafter is made of; None where there is no kind of this name. The kind is imported.

    Raises:
        InvalidOption, DrafterFailed: it cannot be used, see `Kind.definition`.
    """
    kind = kinds().get(name)
    return None if kind is None else kind.definition.WEIGHTS


def head_kind(folder: Path) -> str | None:
    """The kind of head that a directory holds, by its config. Installed kinds come before those of the core, because
    EAGLE's heads have had so many configs that theirs is a guess. A kind that cannot be used is passed over with a
    warning: the drafter in the directory may be of another kind."""
    return next((name for name, kind in reversed(kinds().items()) if _recognises(kind, folder)), None)


def _recognises(kind: Kind, folder: Path) -> bool:
    try:
        definition = kind.definition
    except HeadstartError as error:
        log.warning("%s", error)
        return False
    return definition.WEIGHTS == "head" and definition.recognises(folder)


def _own(drafter: Any) -> DrafterSpec:
    """A drafter of the user's own."""
    asked = ("name", "default_budget", "propose", "observe", "release")
    with asking(drafter):  # a property may raise what `hasattr` lets through
        missing = [each for each in asked if not hasattr(drafter, each)]
        name = "" if missing else str(drafter.name)
        if not missing and not isinstance(drafter, type):
            for read in (capabilities.parts, capabilities.taps, capabilities.draws, capabilities.copies):
                read(drafter)
    if missing or isinstance(drafter, type):
        raise InvalidOption(
            f"drafter={drafter!r} is no drafter" + (f": it has no {missing[0]!r}" if missing else ""),
            hint="give a name, a path, a hub id, an object of a subclass of headstart.drafters.Drafter, or a list",
        )
    return DrafterSpec(name, "own", drafter=drafter)
