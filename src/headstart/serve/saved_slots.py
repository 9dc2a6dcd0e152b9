"""The kept texts of a server's slots in a folder, so that conversations go on after a restart where they were.

A thread of its own writes what a free slot has held for a few seconds, sooner what is next to give way, and when the
server stops what is left; the engine does not wait for it. What the files hold is known from their headers at once, and
read when a request begins like one of them, some milliseconds of it in each step. The engine's thread calls `fetch` and
`abandon`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Generator, Hashable, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

import torch

from headstart.base.errors import InvalidFile
from headstart.base.machine import cpu_name
from headstart.model import native
from headstart.model.packed import Segment
from headstart.model.prefixes import SHORTEST, HeldText, common_prefix
from headstart.model.slot_files import SavedTexts, SlotFile, opened, owner_of, path_of, restored, save, text_bytes

if TYPE_CHECKING:
    from headstart.engine.engine import Engine
    from headstart.serve.options import Recording

LEAST = 64
"""Tokens of a text that is worth a file."""
IDLE_SECONDS = 5.0
"""How long a slot has held a text before it is written: an agent's next request usually comes sooner."""
STEP_SECONDS = 0.02
"""For how long a step may read a file while other requests run."""
NEARLY = 7 / 8
"""The share of a text that a file must have for the text not to be written again before the server stops: else every
turn of a long conversation would write all of it."""
_LOOK_SECONDS = 1.0
_PROBE = 48  # tokens
_FILES = "slot-*.safetensors"
NAMED = "slot-named-"
"""How the files begin that clients have named (`named_slots`)."""
log = logging.getLogger(__name__)


class SavedSlots(SavedTexts):
    """The files of one folder.

    Args:
        folder: of the files; it and missing folders are made.
        limit: bytes of all files together; beyond them those go that were of use longest ago.
        engine: whose slots are written and filled. Nothing may run on it yet.
        fingerprint: of its model's files.

    Raises:
        InvalidFile: the folder cannot be made or read.
    """

    def __init__(self, folder: Path, limit: int, engine: Engine, fingerprint: str) -> None:
        self.folder, self.limit, self.cache = folder, limit, engine.cache
        self.identity = identity_of(engine, fingerprint)
        self._files: tuple[SlotFile, ...] = ()
        self._changing, self._writing = threading.Lock(), threading.Lock()
        self._filling: tuple[SlotFile, Generator[None, None, None]] | None = None
        self.others: WeakSet[Generator[None, None, int]] = WeakSet()
        """What else is filling slots; to be abandoned too."""
        self._since: dict[int, tuple[HeldText, float]] = {}  # by slot, what it holds, and since when
        self._done: dict[int, HeldText] = {}
        self._stopped = False
        self._closing = threading.Event()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in folder.glob(f".{_FILES}*"):  # of a process that was killed while it wrote
                left.unlink()
            found = sorted(folder.glob(_FILES))
        except OSError as error:
            raise InvalidFile(f"cannot keep slots in {folder}: {error}", hint="name a folder of your own") from error
        for path in found:
            try:
                self._files += (opened(path, self.cache, self.identity),)
            except InvalidFile as error:
                log.warning("%s", error.message)
        self._thread = threading.Thread(target=self._run, name="headstart-slots", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, options: Recording, engine: Engine, fingerprint: str) -> SavedSlots | None:
        """Those that a server is to keep, or None."""
        if options.slot_save_path is None:
            return None
        return cls(options.slot_save_path, int(options.slot_save_limit * 1e6), engine, fingerprint)

    @property
    def files(self) -> Sequence[SlotFile]:
        """Those that fit this model."""
        return self._files

    def close(self) -> None:
        """Write what is not written yet. The engine must not run any more."""
        self.abandon()
        self._closing.set()
        self._thread.join()

    # -- the engine's thread --------------------------------------------------------------------------------------

    def fetch(self, tokens: Sequence[int], salt: Hashable, *, at_once: bool) -> bool:
        if self._filling is None:
            self._filling = self._best(tuple(tokens), salt)
        if self._filling is None:
            return False
        file, pieces = self._filling
        until = time.perf_counter() + STEP_SECONDS
        try:
            for _ in pieces:
                if not at_once and time.perf_counter() >= until:
                    return True
            with suppress(OSError):
                os.utime(file.path)  # it has been of use
        except InvalidFile as error:
            log.warning("%s", error.message)
            self._drop(file)
        self._filling = None
        return False

    def abandon(self) -> None:
        if self._filling is not None:
            self._filling[1].close()
            self._filling = None
        for each in tuple(self.others):
            each.close()

    def _best(self, tokens: tuple[int, ...], salt: Hashable) -> tuple[SlotFile, Generator[None, None, None]] | None:
        if not self._files or not self.cache.free_slots:
            return None
        owner, most = owner_of(salt), self.cache.capacity - 1
        found = [
            (file.reach(min(most, common_prefix(file.tokens, tokens))), file)
            for file in self._files
            if file.owner == owner
        ]
        length, file = max(found, key=lambda each: each[0], default=(0, None))
        if file is None or length < self.cache.longest(tokens, salt) + SHORTEST:
            return None
        return file, restored(file, self.cache, length, salt)

    # -- the writer's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            self._write(IDLE_SECONDS)
        self._write(0.0)

    def _write(self, seconds: float) -> None:
        """Write the texts that slots have held for so long."""
        now, kept = time.monotonic(), self.cache.kept()
        full = len(kept) == self.cache.free_slots
        for place, (slot, text) in enumerate(kept):
            known, since = self._since.get(slot, (None, now))
            if known is not text:
                since = now
            self._since[slot] = text, since
            if self._stopped or self._done.get(slot) is text or len(text.tokens) < LEAST:
                continue
            if now - since < seconds and (place or not full):  # the first gives way to the next new text
                continue
            try:
                if not self._save(slot, text, NEARLY if seconds else 1.0):
                    continue
                self._done[slot] = text
            except Exception as error:  # whatever it is, the server goes on: a full disk, for example
                self._stopped = True
                log.warning("slots are not written any more in %s: %s", self.folder.name, error)

    def _save(self, slot: int, text: HeldText, share: float) -> bool:
        """Write a text, unless a file has at least this share of it. Returns whether nothing is left to be done."""
        owner, count = owner_of(text.salt), len(text.tokens)
        mine = [file for file in self._files if file.owner == owner]
        known = max((common_prefix(file.tokens, text.tokens) for file in mine), default=0)
        if known >= share * count:
            return known == count
        if text_bytes(self.cache, slot, count) > self.limit:
            log.warning("a text of %d tokens is larger than the limit of saved slots", count)
            return True
        if not self.write(path_of(self.folder, text, self.identity), slot, text):
            return True
        for file in mine:
            named = file.path.name.startswith(NAMED)
            if not named and common_prefix(file.tokens, text.tokens) == len(file.tokens):  # the new one holds all of it
                self._drop(file)
        return True

    def write(self, path: Path, slot: int, text: HeldText) -> SlotFile | None:
        """Write what a free slot holds, and delete what goes beyond the limit by that; None where the slot has been
        taken meanwhile. Any thread but the engine's may.

        Raises:
            OSError: it cannot be written.
        """
        with self._writing:
            made = save(path, self.cache, slot, text, self.identity, lambda: self.cache.keeps(slot, text))
            if made is not None:
                with self._changing:
                    self._files = (*(file for file in self._files if file.path != path), made)
                self._keep_within()
            return made

    def _keep_within(self) -> None:
        """Delete files, those that were of use longest ago first, until the rest is within the limit."""
        sizes = {path: path.stat() for path in self.folder.glob(_FILES)}
        total = sum(each.st_size for each in sizes.values())
        for path in sorted(sizes, key=lambda path: sizes[path].st_mtime):
            if total <= self.limit:
                break
            total -= sizes[path].st_size
            path.unlink(missing_ok=True)
            with self._changing:
                self._files = tuple(file for file in self._files if file.path != path)

    def _drop(self, file: SlotFile) -> None:
        with self._changing:
            self._files = tuple(each for each in self._files if each is not file)
        with suppress(OSError):
            file.path.unlink()


def identity_of(engine: Engine, fingerprint: str) -> str:
    """What the bits of a slot depend on, as one name: the model's files, how its weights are rounded, the kernels and
    libraries that run, the machine; and, so that nothing is forgotten, the bits that come out for a short text."""
    target, cache = engine.target, engine.cache
    slot = cache.acquire()
    try:
        probe = tuple(7919 * number % target.vocab_size for number in range(min(_PROBE, target.max_length)))
        forward = target.forward([Segment(slot, probe, judged=1)], cache)
        cache.keep(slot, len(probe))
        tensors = [each for layer in cache.keys for each in cache.read(layer, slot, len(probe))]
        found = [each.detach().cpu().contiguous().flatten().view(torch.uint8) for each in (*tensors, forward.logits)]
    finally:
        cache.release(slot)
    shapes = [(layer, cache.keys[layer].shape[1:2], cache.keys[layer].shape[3:4]) for layer in cache.keys]
    names = (
        fingerprint, version("headstart"), torch.__version__, str(target.device), cpu_name(), str(target.dtype),
        str(target.cache_dtype),
        target.decoder, target.weights_in_words, native.kernels().name if native.available() else "", shapes,
        None if cache.states is None else sorted(cache.states.shapes.items()),
    )  # fmt: skip
    digest = sha256(repr(names).encode())
    for each in found:
        digest.update(each.numpy().data)
    return digest.hexdigest()
