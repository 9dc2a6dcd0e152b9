"""The tensors of a checkpoint's safetensors: their shapes at once, their numbers when they are needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headstart.base.errors import DamagedModel

_INDEX = "model.safetensors.index.json"


class Tensors:
    """Of the files in a directory. Nothing but their heads is read before a tensor is needed.

    names: what a stored tensor is called here; None for one that is passed over.

    Raises:
        DamagedModel: a file is missing, cut short, or no safetensors; two hold a tensor of the same name.
    """

    def __init__(self, folder: Path, names: Callable[[str], str | None] = str) -> None:
        self.label = folder.name
        self._files: dict[str, tuple[Any, str]] = {}
        for path in _paths(folder):
            try:
                file = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise self.damaged(f"{path.name} cannot be read: {error}") from error
            for stored in list(file.keys()):  # type: ignore[no-untyped-call]
                name = names(stored)
                if name in self._files:
                    raise self.damaged(f"two files hold a tensor {name!r}")
                if name is not None:
                    self._files[name] = file, stored
        self.names = frozenset(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor that is there."""
        return tuple(self._slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """As safetensors name it: "F16", "I32", ..."""
        return str(self._slice(name).get_dtype())

    def read(self, name: str, *index: slice) -> Tensor:
        """A tensor, or a part of it."""
        try:
            if not index:
                file, stored = self._files[name]
                return file.get_tensor(stored)  # type: ignore[no-any-return]
            return self._slice(name)[index]  # type: ignore[no-any-return]
        except (SafetensorError, OSError) as error:
            raise self.damaged(f"tensor {name!r} cannot be read: {error}") from error

    def _slice(self, name: str) -> Any:
        file, stored = self._files[name]
        return file.get_slice(stored)

    def floats(self, name: str, *index: slice) -> Tensor:
        """The same in float32.

        Raises:
            DamagedModel: a number is not finite.
        """
        found = self.read(name, *index).to(torch.float32)
        if not bool(found.isfinite().all()):
            raise self.damaged(f"tensor {name!r} holds numbers that are not finite")
        return found

    def damaged(self, what: str) -> DamagedModel:
        return DamagedModel(f"{self.label}: {what}", hint="the checkpoint is damaged: copy or download it again")


def _paths(folder: Path) -> list[Path]:
    """The files that the index names, where there is one; others may hold the same weights in another form."""
    with suppress(OSError, ValueError, AttributeError, TypeError):
        named = {str(name) for name in json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()}
        return sorted(folder / Path(name).name for name in named)
    return sorted(folder.glob("*.safetensors"))
