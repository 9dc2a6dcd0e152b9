"""Slots that clients save under a name, restore and erase, as llama.cpp's server lets them.

Names belong to the owner of a text: nobody sees, restores or erases what is another's. A saved slot is a file among
those of `SavedSlots`, under the same limit, so a request that begins like it finds it without being told.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Hashable
from hashlib import sha256
from pathlib import Path

from headstart.base.errors import InvalidFile, InvalidOption, Overloaded
from headstart.model.prefixes import HeldText
from headstart.model.slot_files import SlotFile, opened, owner_of, restored, text_bytes
from headstart.serve.saved_slots import NAMED, SavedSlots

MOST_NAMES = 256
"""Names that an owner may have files under."""
AT_ONCE = 4
"""Slots that may wait to be written: one is, and each takes a thread meanwhile."""


class NamedSlots:
    """The named files of a folder."""

    def __init__(self, saved: SavedSlots) -> None:
        self._saved, self._cache = saved, saved.cache
        self._writing = threading.BoundedSemaphore(AT_ONCE)

    def save(self, slot: int, name: str, salt: Hashable) -> SlotFile:
        """Write what a free slot holds, for the owner of this salt. Any thread but the engine's, which does not wait.

        Raises:
            InvalidOption: the slot holds no text of theirs, is taken while it is written, or holds too much; or they
                have too many names.
            InvalidFile: it cannot be written.
            Overloaded: others are being written.
        """
        if not self._writing.acquire(blocking=False):
            raise Overloaded(f"{AT_ONCE} slots are being written", hint="come back in a second", retry_after=1.0)
        try:
            return self._save(slot, self._path_of(name, salt), salt)
        finally:
            self._writing.release()

    def _save(self, slot: int, path: Path, salt: Hashable) -> SlotFile:
        text = self._text_of(slot)
        if text is None or text.salt != salt or not text.tokens:
            raise InvalidOption(f"slot {slot} holds no text of yours", hint="it is empty, in use or another's")
        owner, files = owner_of(salt), self._saved.files
        names = {file.path for file in files if file.owner == owner and file.path.name.startswith(NAMED)}
        if path not in names and len(names) >= MOST_NAMES:
            hint = "save under a name that you have used already"
            raise InvalidOption(f"{len(names)} slots are saved under names of yours, and no more may be", hint=hint)
        if (size := text_bytes(self._cache, slot, len(text.tokens))) > self._saved.limit:
            words = f"slot {slot} takes {size / 1e6:.0f} MB, more than all files of slots may"
            raise InvalidOption(words, hint="start the server with a larger --slot-save-limit")
        try:
            made = self._saved.write(path, slot, text)
        except OSError as error:
            raise InvalidFile(f"the slot cannot be written: {error.strerror}", hint="is the disk full?") from error
        if made is None:
            raise InvalidOption(f"slot {slot} was taken by a request", hint="save it again when that has ended")
        return made

    def find(self, name: str, salt: Hashable) -> SlotFile:
        """The file that the owner of this salt has given a name. Any thread may ask.

        Raises:
            InvalidOption: there is none.
            InvalidFile: it is damaged, or of another model.
        """
        path = self._path_of(name, salt)
        if not path.exists():
            raise InvalidOption(f"no slot was saved as {name!r}", hint="save one first, with the same key")
        return opened(path, self._cache, self._saved.identity)

    def restore(self, slot: int, file: SlotFile, salt: Hashable) -> Generator[None, None, int]:
        """Put a file of `find` into a free slot, piece by piece, on the engine's thread; returns the tokens. What has
        been put there goes if a step of the engine fails meanwhile: it then ends early, and returns nothing.

        Raises:
            InvalidOption: the slot is in use.
            InvalidFile: the file has changed.
        """
        pieces = self._restored(slot, file, salt)
        self._saved.others.add(pieces)
        return pieces

    def _restored(self, slot: int, file: SlotFile, salt: Hashable) -> Generator[None, None, int]:
        if self._text_of(slot) is None:
            raise _in_use(slot)
        length = file.reach(min(self._cache.capacity - 1, len(file.tokens)))
        yield from restored(file, self._cache, length, salt, slot)
        with contextlib.suppress(OSError):  # it is gone
            os.utime(file.path)  # what was of use longest ago is deleted first
        return length

    def erase(self, slot: int, salt: Hashable) -> int:
        """Forget what a free slot holds for the owner of this salt, on the engine's thread; returns its tokens, 0 where
        it holds nothing of theirs. Files stay.

        Raises:
            InvalidOption: the slot is in use.
        """
        if (text := self._text_of(slot)) is None:
            raise _in_use(slot)
        if text.salt != salt:
            return 0
        self._cache.take(slot)
        self._cache.release(slot)
        return len(text.tokens)

    def _text_of(self, slot: int) -> HeldText | None:
        """See `Slots.held`."""
        if slot >= (slots := len(self._cache.lengths)):
            raise InvalidOption(f"there is no slot {slot}", hint=f"they are 0 to {slots - 1}")
        return self._cache.held(slot)

    def _path_of(self, name: str, salt: Hashable) -> Path:
        """What the file is called tells nothing, and leads nowhere else."""
        digest = sha256(f"{owner_of(salt)} {name}".encode()).hexdigest()
        return self._saved.folder / f"{NAMED}{digest[:32]}.safetensors"


def _in_use(slot: int) -> InvalidOption:
    return InvalidOption(f"slot {slot} is in use", hint="name another, or wait until its request has ended")
