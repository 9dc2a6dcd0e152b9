"""The kinds of drafters, by name, and what each is built with.

A kind is a module, or any object, that defines

WEIGHTS: what the drafter reads (see `Weights`). One without weights is chosen by the name of its kind.
build(context): the drafter, from a `BuildContext`.
recognises(folder): whether a directory, by its config, holds a drafter of this kind (only where WEIGHTS is "head").

The kinds of the core are listed here. All others are entry points of the group "headstart.drafters", headstart's own as
well as those of other packages. A kind is imported when it is chosen, or when a directory is to be recognised.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from headstart.base.errors import CONTAINED, DrafterFailed, HeadstartError, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

    from headstart.drafters.drafter import Drafter
    from headstart.drafters.growing.grow import Residual
    from headstart.drafters.matching.suffix_store import SuffixStore
    from headstart.drafters.matching.text_index import TextIndex
    from headstart.model.runner import ModelRunner
    from headstart.types import TreeKind

GROUP = "headstart.drafters"
"""The group of entry points that name drafters."""
PREFIX = "ahead:"
"""Before the name of a drafter: that drafter, ahead of the target."""

Weights = Literal["none", "head", "model", "drafter"]
"""What a drafter is made of: nothing, a head of the target that has files of its own, a causal LM, or another
drafter that it is put around."""

CORE = {
    "prediction": "headstart.drafters.prediction",
    "ngram": "headstart.drafters.ngram",
    "suffix": "headstart.drafters.suffix",
    "eagle": "headstart.drafters.eagle",
    "mtp": "headstart.drafters.eagle.mtp",
    "dflash": "headstart.drafters.dflash",
    "gemma4-assistant": "headstart.drafters.gemma4_assistant",
    "draft": "headstart.drafters.draft_model",
}


class Definition(Protocol):
    """What a kind defines. `recognises` is needed only where WEIGHTS is "head"."""

    WEIGHTS: Weights

    def build(self, context: BuildContext) -> Drafter:
        """The drafter."""
        ...

    def recognises(self, folder: Path) -> bool:
        """Whether a directory holds a drafter of this kind."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of drafter by its name, imported or not."""

    name: str
    entries: tuple[EntryPoint, ...]
    """Where it is defined: one place, or the several that claim the same name."""

    def defined_in(self, module: str) -> bool:
        """Whether a module is the file of this kind, or lies in its folder."""
        return any(f"{module}.".startswith(f"{entry.module}.") for entry in self.entries)

    @property
    def definition(self) -> Definition:
        """The kind itself, which is imported here.

        Raises:
            InvalidOption: two packages define a kind of this name, or one takes a name of headstart's own.
            DrafterFailed: it cannot be imported, or does not define what a kind must.
        """
        if len(self.entries) > 1:
            places = " and ".join(entry.value for entry in self.entries)
            raise InvalidOption(
                f"drafter={self.name!r} has several definitions: {places}",
                hint=f"uninstall one of the packages, or rename its entry point in the group {GROUP!r}",
            )
        (entry,) = self.entries
        try:
            found = entry.load()
        except HeadstartError:
            raise
        except CONTAINED as error:
            raise DrafterFailed(
                f"drafter={self.name!r} cannot be imported from {entry.value!r}: {type(error).__name__}: {error}",
                hint="repair or uninstall the package that defines it; the cause of this error has its traceback",
            ) from error
        weights = getattr(found, "WEIGHTS", None)
        missing = [each for each in ("build", "recognises") if not callable(getattr(found, each, None))]
        if weights != "head" and "recognises" in missing:
            missing.remove("recognises")
        if weights not in ("none", "head", "model", "drafter"):
            missing.insert(0, "WEIGHTS")
        if missing:
            raise DrafterFailed(
                f"drafter={self.name!r}: {entry.value!r} does not define {missing[0]}",
                hint="a kind of drafter defines WEIGHTS ('none', 'head', 'model' or 'drafter') and build(context), "
                "and with WEIGHTS = 'head' also recognises(folder)",
            )
        return cast(Definition, found)


def kinds() -> dict[str, Kind]:
    """All kinds of drafters by name: the core's, then those of the installed entry points, in order of their names.
    None of them is imported by this."""
    return dict(_kinds(tuple(sys.path)))


@cache
def _kinds(path: tuple[str, ...]) -> Mapping[str, Kind]:  # noqa: ARG001 -- what is installed depends on it
    found: dict[str, dict[str, EntryPoint]] = {
        name: {module: EntryPoint(name, module, GROUP)} for name, module in CORE.items()
    }
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        found.setdefault(entry.name, {})[entry.value] = entry
    return {name: Kind(name, tuple(entries.values())) for name, entries in found.items()}


def definition_of(kind: str) -> Definition:
    """The definition of a kind that headstart needs by name.

    Raises:
        InvalidOption: it is not installed, or see `Kind.definition`.
        DrafterFailed: see `Kind.definition`.
    """
    found = kinds().get(kind)
    if found is None:
        raise InvalidOption(
            f"no drafter of the kind {kind!r} is installed",
            hint=f"reinstall headstart, or the package that defines it as an entry point of {GROUP!r}",
        )
    return found.definition


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a drafter is built with."""

    target: ModelRunner
    target_source: str
    """The directory or hub id of the target."""
    target_tokenizer: PreTrainedTokenizerBase | None
    sample: Sequence[int]
    """A few tokens to begin a text with."""
    slots: int
    """Requests that run at once."""
    name: str = ""
    """How the user named it."""
    source: str | Path = ""
    """The directory or hub id of its weights; empty where it has none."""
    apart: bool = False
    """Whether it is to run beside the target, so that it may not touch the target's cache."""
    last: bool = True
    """Whether it is the last drafter of a list."""
    budget: int | None = None
    """Nodes of a draft where the user chooses; None is the drafter's own default."""
    tree: TreeKind | None = None
    """The kind of tree that the user chose; None is the drafter's own default."""
    residual: Residual | None = None
    """What drawn tokens are to leave to the target, if anything."""
    quantize: str | None = None
    """For its weights: None, "int8", or "auto" where that is faster."""
    store: SuffixStore | Literal["auto"] | None = None
    """Past outputs that it may look into; "auto" begins a store of its own."""
    index: TextIndex | None = None
    """Texts that it may look into, the same for all requests."""
    draft: ModelRunner | None = None
    """Where WEIGHTS is "model", the model."""
    copy: bool = False
    """Whether that is a copy of the target."""
    draft_tokenizer: PreTrainedTokenizerBase | None = None
    inner: Drafter | None = None
    """Where WEIGHTS is "drafter", the drafter that it is put around."""
    threads: int | None = None
    """Of the cores, how many are its own where it runs beside the target; None lets it choose."""
