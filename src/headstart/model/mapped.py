"""Weights where they lie in a file: laid out for the kernels once, in the cache directory, and mapped afterwards.

A mixture reads few of its experts for a token, and those that it does not read need not be in memory. Other models read
all of their weights, and gain that a start lays out and rounds nothing, and that processes share the memory. What the
file holds are bytes that the kernels would have in memory otherwise, so no text changes by it.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from headstart.base.errors import HeadstartError
from headstart.base.files import alone, cache_file, replacing
from headstart.model.decoders.experts import down_of, gate_up_of
from headstart.model.decoders.parts import part
from headstart.model.memory import MemoryNeed, preflight
from headstart.model.native.product_file import ProductFile, Writer
from headstart.model.native.structs import Product
from headstart.model.native.weights import NativeWeights
from headstart.model.reading import first_line
from headstart.model.recipes import Recipe

KIND = "packed"
"""The folder of these files in the cache directory."""
MOST = 4
"""Files that are kept; those that were not used for longest go."""
_LAYERS = "gate_up", "down"
"""Of an expert."""
_SPARE = 2**30
"""Bytes of the disk that are left free."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class PackedFile:
    """The weights of one model, or its experts, in a file that there is or that can be made."""

    label: str
    """The model, for messages."""
    facts: Mapping[str, Any]
    """All that the file depends on."""
    bytes: int
    """That it takes, within a few hundredths."""
    believed: bool = field(default=False, init=False)
    """Whether a file of an earlier start was taken."""
    suffix: ClassVar[str]
    """Of the files of a kind, of which `MOST` are kept."""
    spares_memory: ClassVar[bool] = False
    """Whether what it holds need not be in memory, all of it."""

    @property
    def path(self) -> Path:
        """Where the file is, or will be.

        Raises:
            RuntimeError: there is no home directory.
        """
        return cache_file(KIND, self.facts).with_suffix(self.suffix)

    def file(self, model: Any, recipe: Recipe, kind: int) -> ProductFile | None:
        """The file, if there is one, for a decoder that is built.

        model: of transformers. kind: of products, see `native.weights.kind_of`.
        """
        raise NotImplementedError

    def keep(self, products: Callable[[], Sequence[tuple[str, Product]]]) -> None:
        """Write what a decoder has laid out, if it is not in a file yet. products: gives it, by the names by which a
        decoder asks for it."""

    def can_be(self) -> bool:
        """Whether there is a file, or there can be one: where it may be written, and has room."""
        with suppress(OSError, RuntimeError):
            return self.path.is_file() or (os.access(self._folder(), os.W_OK) and self._fits())
        return False

    def forget(self) -> None:
        """Remove the file, which is not what it should be."""
        self.believed = False
        with suppress(OSError, RuntimeError):
            self.path.unlink(missing_ok=True)

    def _open(self, check: Callable[[ProductFile], object]) -> ProductFile | None:
        """The file of an earlier start, if there is one and all of it fits the model. check: raises if it does not."""
        if not self.path.is_file():
            return None
        try:
            found = ProductFile(self.path, self.facts)
            check(found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("%s cannot be used (%s), and is made again", self.path, error)
            self.forget()
            return None
        with suppress(OSError):
            os.utime(self.path)
        return found

    def _fits(self) -> bool:
        raise NotImplementedError

    def _folder(self) -> Path:
        """That of the file, or what there is of the way to it."""
        return next(each for each in self.path.parents if each.exists())

    def _has_room(self, more: int = 0) -> bool:
        """Whether the file fits on the disk, beside what others need of it. more: bytes that would be free, too."""
        return shutil.disk_usage(self._folder()).free + more >= self.bytes + _SPARE

    def _others(self) -> list[Path]:
        """The files of this kind of other models, those that were not used for longest first."""
        return sorted(self.path.parent.glob(f"*{self.suffix}"), key=lambda each: each.stat().st_mtime)

    def _tidy(self, *, for_room: bool) -> None:
        """Remove the remains of a process that was stopped while it made this file, and files that were not used for
        longest: those beyond the number that is kept, and as many as are needed for room, if so."""
        for left in self.path.parent.glob(f".{self.path.name}-*"):
            left.unlink(missing_ok=True)
        others = self._others()
        helps = for_room and self._has_room(_bytes(others))  # where it does not, the others are not removed in vain
        for count, each in zip(range(len(others), 0, -1), others, strict=True):
            if count < MOST and (not helps or self._has_room()):
                break
            with suppress(OSError):  # Windows keeps a file that is mapped
                each.unlink()


class MappedWeights(PackedFile):
    """The weights of a model that reads all of them for each token.

    The file is written after the model has passed the probe and that was kept, and read only where the logits are then
    compared with those of the probe bit by bit: of what it holds nothing is believed.
    """

    suffix = ".weights"

    def file(self, model: Any, recipe: Recipe, kind: int) -> ProductFile | None:  # noqa: ARG002
        try:
            found = self._open(lambda _: None)
        except OSError as error:  # of another user, say; what was kept of the model is true all the same
            log.warning("%s: the file of its weights cannot be read (%s)", self.label, first_line(error))
            found = None
        self.believed = found is not None
        return found

    def keep(self, products: Callable[[], Sequence[tuple[str, Product]]]) -> None:
        if not self.can_be() or not (made := products()):
            return
        try:
            with alone(self.path):
                if self.path.is_file():  # another process has made it meanwhile
                    return
                self._tidy(for_room=False)
                words = f"keeping the weights of {self.label} as the kernels read them"
                with replacing(self.path) as part_of, part_of.open("w+b") as file, _bar(words, len(made)) as steps:
                    writer = Writer(file)
                    for name, product in made:
                        writer.add(name, [product])
                        next(steps)
                    writer.finish(self.facts)
        except (OSError, RuntimeError, ValueError) as error:
            log.warning("%s: its weights are not kept in a file (%s)", self.label, first_line(error))

    def _fits(self) -> bool:
        """A start is slower without it, and no more: as much again stays free, and no other model's file goes."""
        return self._has_room(-self.bytes)


class MappedExperts(PackedFile):
    """The experts of a mixture."""

    suffix = ".products"
    spares_memory = True

    def file(self, model: Any, recipe: Recipe, kind: int) -> ProductFile | None:
        """The file, which is made where there is none that can be used; None where that is not possible, and there is
        memory for the experts instead.

        model: its experts are matrices that are read when they are needed.

        Raises:
            NotEnoughMemory: there is neither room on the disk nor in memory.
            DamagedModel: the model's own file is damaged.
        """

        def check(found: ProductFile) -> None:
            for index in _layers(recipe):
                products_of(found, recipe, index)

        try:
            if (found := self._open(check)) is not None:
                self.believed = True
                return found
            with alone(self.path):
                if (found := self._open(check)) is None:  # another process has made it meanwhile, or nobody has
                    self._make(model, recipe, kind)
                    found = ProductFile(self.path, self.facts)
                return found
        except HeadstartError:
            raise
        except (OSError, RuntimeError, ValueError) as error:
            log.warning("%s: its experts are not in a file, but in memory (%s)", self.label, first_line(error))
        preflight([MemoryNeed(f"experts of {self.label}", self.bytes, 0)], torch.device("cpu"))
        return None

    def _make(self, model: Any, recipe: Recipe, kind: int) -> None:
        self._tidy(for_room=True)
        if not self._has_room():
            raise OSError(f"it takes {self.bytes / 2**30:.1f} GiB, and the disk of {self.path.parent} has no room")
        layers, words = list(_layers(recipe)), f"laying out the experts of {self.label}, once"
        with replacing(self.path) as part_of, part_of.open("w+b") as file, _bar(words, 2 * len(layers)) as steps:
            writer = Writer(file)
            for index in layers:
                owner, experts = part(model, recipe.stack)[index], recipe.layers[index].experts
                assert experts is not None, "one of `_layers`"
                for name, linears in zip(_LAYERS, (gate_up_of(owner, experts), down_of(owner, experts)), strict=True):
                    weights = NativeWeights(kind)  # whose memory lasts until it is written
                    writer.add(_name(index, name), weights.products(linears, experts.count))
                    next(steps)
            writer.finish(self.facts)

    def _fits(self) -> bool:
        """Files of other models would go."""
        return self._has_room(_bytes(self._others()))


def products_of(file: ProductFile, recipe: Recipe, index: int) -> tuple[list[Any], list[Any]]:
    """The products of a layer's experts: of gate and up, and of what comes after them.

    Raises:
        ValueError, KeyError, TypeError: the file holds others.
    """
    experts = recipe.layers[index].experts
    assert experts is not None, "a layer that has some"
    named = zip(_LAYERS, experts.shapes(recipe.width), strict=True)
    gate_up, down = (file.products(_name(index, name), experts.count, *shape) for name, shape in named)
    return gate_up, down


def _bytes(files: Iterable[Path]) -> int:
    """What they take on the disk."""
    return sum(each.stat().st_size for each in files)


def _layers(recipe: Recipe) -> Iterator[int]:
    return (index for index, layer in enumerate(recipe.layers) if layer.experts is not None)


def _name(index: int, name: str) -> str:
    return f"{index}.{name}"


@contextmanager
def _bar(words: str, steps: int) -> Iterator[Iterator[int]]:
    """A bar on a terminal's standard error, whose steps are taken one by one."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, redirect_stdout=False
    ) as bar:
        task = bar.add_task(words, total=steps)

        def steps_taken() -> Iterator[int]:
            for number in itertools.count():
                bar.advance(task)
                yield number

        yield steps_taken()
