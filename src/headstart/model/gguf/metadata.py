"""A file's metadata, read with the type that is expected."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import DamagedModel
from headstart.model.gguf.header import Texts

_REQUIRED: Any = object()

CONTROL = 3
"""In `tokenizer.ggml.token_type`: the kind of tokens that text never spells."""


class Metadata:
    """Keys and values of a file. A getter without a default raises `DamagedModel` where there is no such key; all do
    where the value is of another type."""

    def __init__(self, values: dict[str, Any], label: str, prefix: str = "") -> None:
        self._values, self._label, self._prefix = values, label, prefix

    def below(self, prefix: str) -> Metadata:
        """Those whose keys begin so, by what follows in their keys."""
        found = {key.removeprefix(prefix): value for key, value in self._values.items() if key.startswith(prefix)}
        return Metadata(found, self._label, prefix)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def whole(self, key: str, default: Any = _REQUIRED) -> Any:
        """A whole number from 0. An array of equal ones counts as that number: files may say it for each layer."""
        value = self._present(key, default)
        if value is default:
            return default
        if isinstance(value, np.ndarray) and len(value) and value.dtype.kind in "iu" and (value == value[0]).all():
            value = int(value[0])
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(key, "a whole number")
        return value

    def count(self, key: str, default: Any = _REQUIRED) -> Any:
        """A whole number from 1."""
        found = self.whole(key, default)
        if not found:
            raise self.wrong(key, "a whole number above 0")
        return found

    def wholes(self, key: str, count: int, default: Any = _REQUIRED) -> list[int]:
        """So many whole numbers from 0; one number stands for all of them."""
        value = self._present(key, default)
        if not isinstance(value, np.ndarray):
            return [self.whole(key, default)] * count
        if len(value) != count or value.dtype.kind not in "iu" or (value < 0).any():
            raise self.wrong(key, f"{count} whole numbers")
        return [int(number) for number in value]

    def number(self, key: str, default: Any = _REQUIRED) -> Any:
        """A finite number."""
        value = self._present(key, default)
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.wrong(key, "a number")
        return float(value)

    def positive(self, key: str, default: Any = _REQUIRED) -> Any:
        """A number above 0."""
        found = self.number(key, default)
        if found <= 0:
            raise self.wrong(key, "a number above 0")
        return found

    def flag(self, key: str, default: Any = _REQUIRED) -> Any:
        return self._of(bool, "true or false", key, default)

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        return self._of(str, "a text", key, default)

    def texts(self, key: str, default: Any = _REQUIRED) -> Any:
        """A list of texts."""
        found = self._of(Texts | list, "a list of texts", key, default)
        return found.read() if isinstance(found, Texts) else found

    def numbers(self, key: str, default: Any = _REQUIRED) -> NDArray[Any] | Any:
        """An array of numbers."""
        return self._of(np.ndarray, "a list of numbers", key, default)

    def each(self, key: str, count: int) -> list[float]:
        """So many finite numbers; one number stands for all of them."""
        value = self._present(key, _REQUIRED)
        if not isinstance(value, np.ndarray):
            return [self.number(key)] * count
        if len(value) != count or value.dtype.kind not in "iuf" or not np.isfinite(value).all():
            raise self.wrong(key, f"{count} numbers")
        return [float(number) for number in value]

    def _of(self, kind: Any, expected: str, key: str, default: Any) -> Any:
        value = self._present(key, default)
        if value is not default and not isinstance(value, kind):
            raise self.wrong(key, expected)
        return value

    def _present(self, key: str, default: Any) -> Any:
        if key not in self._values and default is _REQUIRED:
            raise DamagedModel(
                f"{self._label} does not say {self._prefix + key!r}",
                hint="convert the model again with a current llama.cpp",
            )
        return self._values.get(key, default)

    def wrong(self, key: str, expected: str) -> DamagedModel:
        value = self._values[key]
        shown = (
            f"an array of {len(value)} entries" if isinstance(value, Texts | list | np.ndarray) else repr(value)[:60]
        )
        return DamagedModel(
            f"{self._label}: {self._prefix + key!r} is {shown}, not {expected}",
            hint="the file is damaged, or of a newer kind: convert the model again, or use a newer headstart",
        )
