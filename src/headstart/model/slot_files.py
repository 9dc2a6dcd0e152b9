"""What a slot holds of a text, in a file: keys, values and recurrent states, for another process of the same model.

A file is a safetensors file whose metadata say of which model, owner and text it is. Keys and values lie in pieces of
2,048 tokens, so that the beginning of a text is read without its rest, and reading one piece takes no longer than a
step. Nothing in a file is believed: all that its header says follows from the cache, the number of tokens and the tags
of states, and a header that is not that very one, to the byte, is refused before any memory is taken for it. Each piece
has a checksum.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol
from zlib import crc32

import torch
from torch import Tensor

from headstart.base.errors import InvalidFile
from headstart.base.files import replacing
from headstart.model import saved_states
from headstart.model.cache import Slots
from headstart.model.planes import LOG
from headstart.model.prefixes import HeldText
from headstart.model.saved_states import StateTags

FORMAT = "headstart slot 1"
PIECE = 2048
"""Tokens; whole tiles of every layout."""
MOST_HEADER = 16 * 2**20
"""Bytes."""
_DTYPES = {
    torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int32: "I32",
    torch.int8: "I8",
}  # fmt: skip
_PLAIN = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""No link is followed, no pipe waited for, and Windows changes no line ends."""
_SUM = 8  # hexadecimal digits of a checksum
_HINT = "it is left out; delete it, or name another folder"


class _Part(NamedTuple):
    """One tensor of a file."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class SavedTexts(Protocol):
    """Texts of former processes, from which slots can be filled."""

    def fetch(self, tokens: Sequence[int], salt: Hashable, *, at_once: bool) -> bool:
        """Put the longest beginning of a text into a free slot, where it is longer than what any slot holds. Returns
        whether there is more to do: without `at_once` only a part is read, so that running requests do not wait."""
        ...

    def abandon(self) -> None:
        """Empty the slot that is being filled."""
        ...


@dataclass(frozen=True, slots=True)
class SlotFile:
    """A file whose header has been checked."""

    path: Path
    tokens: tuple[int, ...]
    owner: str
    size: int
    """Bytes."""
    tags: StateTags | None
    """None where the model has no recurrent layers."""
    header: bytes
    sums: str

    def reach(self, length: int) -> int:
        """How many of its first `length` tokens a text may begin with."""
        return length if self.tags is None else self.tags.reach(length)


def owner_of(salt: object) -> str:
    """A name for those who may see a text, from which their salt cannot be read."""
    return sha256(f"{FORMAT} {salt}".encode()).hexdigest()[:32]


def text_bytes(cache: Slots, slot: int, count: int) -> int:
    """Bytes of a slot's text of so many tokens in a file, but for the header: tokens, keys, values and states."""
    try:
        tags = None if cache.states is None else saved_states.tags_of(cache.states, slot, count)
    except (KeyError, RuntimeError, IndexError, ValueError):  # it has been taken, which `save` will see
        tags = None
    return sum(part.bytes for part in _parts(cache, count, tags))


def path_of(folder: Path, text: HeldText, identity: str) -> Path:
    """The file of a text that has no name."""
    digest = sha256(f"{owner_of(text.salt)} {identity} {text.tokens}".encode()).hexdigest()
    return folder / f"slot-{digest[:32]}.safetensors"


def save(
    path: Path, cache: Slots, slot: int, text: HeldText, identity: str, unchanged: Callable[[], bool]
) -> SlotFile | None:
    """Write what a free slot holds of its text, for its owner alone (mode 600). Any thread may.

    identity: of the model and of everything else on which the bits depend. unchanged: whether the slot still holds this
    text: where it was taken while it was being written, there is no file, and None.

    Raises:
        OSError: it cannot be written.
    """
    owner, count = owner_of(text.salt), len(text.tokens)
    try:
        tags = None if cache.states is None else saved_states.tags_of(cache.states, slot, count)
        parts = _parts(cache, count, tags)
        with replacing(path) as new, new.open("r+b") as file:
            file.write(_header(parts, identity, owner, count, tags, "0" * _SUM * len(parts)))
            sums = []
            for tensor in _tensors(cache, slot, text, tags):
                data = _bytes(tensor)
                sums.append(f"{crc32(data):0{_SUM}x}")
                file.write(data)
                if not unchanged():
                    raise _Taken
            file.seek(0)
            file.write(header := _header(parts, identity, owner, count, tags, "".join(sums)))
    except (_Taken, KeyError, RuntimeError, IndexError, ValueError):
        if unchanged():
            raise
        return None  # a slot that was taken meanwhile, whose states may have been changed under our hands
    size = len(header) + sum(part.bytes for part in parts)
    return SlotFile(path, text.tokens, owner, size, tags, header, "".join(sums))


class _Taken(Exception):
    """The slot has been taken."""


def opened(path: Path, cache: Slots, identity: str) -> SlotFile:
    """A file for a cache like this one, its header and tokens read and checked.

    Raises:
        InvalidFile: it is of another model, damaged, another user's, or no such file.
    """
    with _file(path) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(MOST_HEADER, size - 8):
            raise _invalid(path, "it has no header")
        header = file.read(length)
        try:
            stated = json.loads(header)["__metadata__"]
            form, model, owner, sums = (str(stated[name]) for name in ("format", "identity", "owner", "crc32"))
            count, *numbers = (int(number) for number in str(stated["tokens"])[:200].split())
        except (ValueError, TypeError, KeyError, RecursionError):
            raise _invalid(path, "its header is no header of a slot") from None
        if form != FORMAT:
            raise _invalid(path, f"its format is {form[:40]!r}, not {FORMAT!r}")
        if model != identity:
            raise _invalid(path, "it is of another model, another version, or other kernels or options")
        whole = bool(numbers) == (cache.states is not None) and all(0 <= number <= count for number in numbers)
        least = 2 * len(cache.keys) * -(-count // PIECE)
        if not whole or count - (numbers or [count])[0] > LOG or not 0 < count <= size or _SUM * least > len(sums):
            raise _invalid(path, "it does not hold as many tokens as it says")
        sums = sums[:-_SUM]
        tags = StateTags(numbers[0], tuple(numbers[1:])) if numbers else None
        parts = _parts(cache, count, tags)
        expected = _header(parts, model, owner, count, tags, sums)
        if len(sums) != _SUM * len(parts) or expected[8:] != header:
            raise _invalid(path, "its header is not that of such a slot")
        if size != len(expected) + sum(part.bytes for part in parts):
            raise _invalid(path, "it is cut off, or too long")
        tokens = _read(path, file, parts[0], sums[:_SUM])
    return SlotFile(path, tuple(tokens.tolist()), owner, size, tags, expected, sums)


def restored(
    file: SlotFile, cache: Slots, length: int, salt: Hashable, slot: int | None = None
) -> Generator[None, None, None]:
    """Put the first `length` tokens of a file, which it reaches, into a free slot, as a text that the slot keeps.
    Yields between two pieces. If it is closed before its end, the slot is empty.

    slot: which, where it matters; it must be free.

    Raises:
        InvalidFile: the file has changed since its header was read.
    """
    kept = 0
    if slot is None:
        slot = cache.acquire()
    else:
        cache.take(slot)
    try:
        with _file(file.path) as (handle, size):
            if size != file.size or handle.read(len(file.header)) != file.header:
                raise _invalid(file.path, "it was changed")
            states: dict[str, Tensor] = {}
            at = len(file.header)
            for number, part in enumerate(_parts(cache, len(file.tokens), file.tags)):
                kind, *where = part.name.split(".")
                begin = PIECE * int(where[-1]) if kind in ("keys", "values") else 0
                if number and begin < length:
                    handle.seek(at)
                    found = _read(file.path, handle, part, file.sums[_SUM * number : _SUM * (number + 1)])
                    if kind in ("keys", "values"):
                        store = (cache.keys if kind == "keys" else cache.values)[int(where[0])]
                        _put(store[slot], begin, found[:, : length - begin])
                        yield
                    else:
                        states[part.name] = found
                at += part.bytes
        if cache.states is not None and file.tags is not None:
            saved_states.put_in(cache.states, slot, length, file.tags, states)
        cache.lengths[slot] = kept = length
    finally:
        cache.release(slot, file.tokens[:kept], salt)


# -- the tensors ------------------------------------------------------------------------------------------------------


def _parts(cache: Slots, count: int, tags: StateTags | None) -> list[_Part]:
    """What a file holds of so many tokens, in order."""
    parts = [_Part("tokens", torch.int32, (count,))]
    for piece, begin in enumerate(range(0, count, PIECE)):
        new = min(PIECE, count - begin)
        for layer in cache.keys:
            for kind, store in (("keys", cache.keys[layer]), ("values", cache.values[layer])):
                parts.append(_Part(f"{kind}.{layer}.{piece}", store.dtype, (store.shape[1], new, _width(store))))
    if cache.states is not None and tags is not None:
        shapes = saved_states.shapes_of(cache.states, tags, count)
        parts += [_Part(name, torch.float32, shape) for name, shape in shapes]
    return parts


def _tensors(cache: Slots, slot: int, text: HeldText, tags: StateTags | None) -> Iterator[Tensor]:
    count = len(text.tokens)
    yield torch.tensor(text.tokens, dtype=torch.int32)
    for begin in range(0, count, PIECE):
        for layer in cache.keys:
            for store in (cache.keys[layer], cache.values[layer]):
                yield _rows(store[slot], begin, min(begin + PIECE, count))
    if cache.states is not None and tags is not None:
        yield from saved_states.taken_out(cache.states, slot, count)


def _width(store: Tensor) -> int:
    """Numbers of a head: [slots, heads, capacity, dim], or in tiles [slots, heads, tiles, dim, lanes]."""
    return store.shape[3]


def _rows(store: Tensor, begin: int, end: int) -> Tensor:
    """[heads, tokens, dim] of a slot. begin: of a tile."""
    if store.dim() == 3:
        return store[:, begin:end]
    lanes = store.shape[-1]
    return store[:, begin // lanes : -(-end // lanes)].transpose(2, 3).flatten(1, 2)[:, : end - begin]


def _put(store: Tensor, begin: int, rows: Tensor) -> None:
    """Write what `_rows` has read. What lies behind the last token of a tile is scratch."""
    if store.dim() == 3:
        store[:, begin : begin + rows.shape[1]] = rows
        return
    lanes = store.shape[-1]
    tiles = -(-rows.shape[1] // lanes)
    whole = rows.new_zeros(len(rows), tiles * lanes, rows.shape[2])
    whole[:, : rows.shape[1]] = rows
    store[:, begin // lanes : begin // lanes + tiles] = whole.view(len(rows), tiles, lanes, -1).transpose(2, 3)


# -- bytes ------------------------------------------------------------------------------------------------------------


def _header(parts: Sequence[_Part], identity: str, owner: str, count: int, tags: StateTags | None, sums: str) -> bytes:
    """The header of safetensors, with its length before it. sums: of the parts; one more is of the metadata."""
    numbers = (count,) if tags is None else (count, tags.tag, *tags.saved)
    stated = {"format": FORMAT, "identity": identity, "owner": owner, "tokens": " ".join(map(str, numbers))}
    sums += f"{crc32(f'{stated} {sums}'.encode()):0{_SUM}x}"
    found: dict[str, object] = {"__metadata__": {**stated, "crc32": sums}}
    at = 0
    for part in parts:
        offsets = [at, at := at + part.bytes]
        found[part.name] = {"dtype": _DTYPES[part.dtype], "shape": list(part.shape), "data_offsets": offsets}
    text = json.dumps(found, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _read(path: Path, file: BinaryIO, part: _Part, digits: str) -> Tensor:
    data = bytearray(file.read(part.bytes))
    if len(data) < part.bytes or f"{crc32(data):0{_SUM}x}" != digits:
        raise _invalid(path, f"its {part.name} are damaged")
    return torch.frombuffer(data, dtype=part.dtype).view(part.shape) if data else torch.empty(part.shape)


@contextmanager
def _file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A file of this user's that nobody else can read or write, and its size."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _PLAIN), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise _invalid(path, "it is no plain file")
            if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
                raise _invalid(path, "others can read or write it, or it is theirs")
            yield file, found.st_size
    except OSError as error:
        raise _invalid(path, error.strerror or str(error)) from error


def _invalid(path: Path, why: str) -> InvalidFile:
    return InvalidFile(f"{path.name} cannot be used as a saved slot: {why}", hint=_HINT)
