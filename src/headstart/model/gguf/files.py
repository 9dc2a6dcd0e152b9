"""A model's GGUF file, or the files it was split into, as one."""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.base.errors import DamagedModel, ModelNotFound, UnsupportedModel
from headstart.model.gguf.types import MAGIC

if TYPE_CHECKING:
    from headstart.model.gguf.header import Header, Tensor
    from headstart.model.gguf.metadata import Metadata

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a model's files hold: metadata of the first, tensors of all. The tensors are views of the mapped files."""

    paths: tuple[Path, ...]
    metadata: Metadata
    tensors: dict[str, Tensor]

    @property
    def label(self) -> str:
        return self.paths[0].name

    def damaged(
        self, what: str, hint: str = "copy or download it again, or convert the model again with a current llama.cpp"
    ) -> DamagedModel:
        """An error about what the file holds."""
        return DamagedModel(f"{self.label}: {what}", hint=hint)

    def not_run(self, why: str) -> UnsupportedModel:
        """An error about what the file holds that is not known here."""
        hint = "give the original checkpoint, a directory with config.json and *.safetensors"
        return UnsupportedModel(f"{self.label}: {why}", hint=hint)


def is_gguf(source: str | Path) -> bool:
    """Whether this is a GGUF file, by its name or its first bytes."""
    path = Path(source)
    if not path.is_file():
        return False
    if path.suffix == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_gguf(source: str | Path) -> GgufFile:
    """Read the head of a file, and of the others where it is a part of several. The last few stay in memory.

    Raises:
        ModelNotFound: a file or a part is missing.
        DamagedModel, UnsupportedModel: see `read_header`.
    """
    paths = parts(Path(source))
    try:
        state = tuple((status.st_size, status.st_mtime_ns) for status in (path.stat() for path in paths))
    except OSError as error:
        raise _unreadable(error) from error
    return _opened(paths, state)


def parts(path: Path) -> tuple[Path, ...]:
    """All files of the model that this one belongs to, in order.

    Raises:
        ModelNotFound: some are missing.
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    found = tuple(path.with_name(f"{match['stem']}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1))
    missing = [part.name for part in found if not part.is_file()]
    if missing or not found:
        raise ModelNotFound(
            f"{path.name} is one of {count} files, and {len(missing)} are missing: {', '.join(missing[:3])}",
            hint=f"put all parts into {path.parent}",
        )
    return found


def _unreadable(error: OSError) -> ModelNotFound:
    return ModelNotFound(f"{error.filename}: {error.strerror}", hint="check the path, and that you may read the file")


@lru_cache(maxsize=2)
def _opened(paths: tuple[Path, ...], _state: tuple[tuple[int, int], ...]) -> GgufFile:
    """_state: sizes and times of the files, so that one which has changed is read again."""
    from headstart.model.gguf.metadata import Metadata  # here and in `_header`: most models are no GGUF files

    headers = [_header(path) for path in paths]
    _check_parts(paths, headers)
    tensors: dict[str, Tensor] = {}
    for path, header in zip(paths, headers, strict=True):
        if twice := tensors.keys() & header.tensors.keys():
            raise _contradiction(path, f"tensor {min(twice)!r} is in another part, too")
        tensors.update(header.tensors)
    return GgufFile(paths, Metadata(headers[0].metadata, paths[0].name), tensors)


def _header(path: Path) -> Header:
    from headstart.model.gguf.header import read_header

    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise _contradiction(path, "it is empty")
            return read_header(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), path.name)
    except OSError as error:
        raise _unreadable(error) from error


def _check_parts(paths: tuple[Path, ...], headers: list[Header]) -> None:
    for number, (path, header) in enumerate(zip(paths, headers, strict=True)):
        count = header.metadata.get("split.count", 1)
        if count != len(paths):
            raise _contradiction(path, f"it is one of {count!r} parts, and {len(paths)} were found by its name")
        if header.metadata.get("split.no", 0) != number:
            raise _contradiction(path, f"it is part {header.metadata.get('split.no')!r}, counted from 0, not {number}")
    total = headers[0].metadata.get("split.tensors.count")
    held = sum(len(header.tensors) for header in headers)
    if total is not None and total != held:
        raise _contradiction(paths[0], f"all parts should hold {total!r} tensors, and they hold {held}")


def _contradiction(path: Path, what: str) -> DamagedModel:
    return DamagedModel(
        f"{path.name}: {what}", hint="copy or download the file again, all parts of it, and keep their names"
    )
