"""What third-party readers raise on a stranger's files, as typed errors: one boundary for all of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headstart.base.errors import DamagedModel, HeadstartError, ModelNotFound, NotEnoughMemory, UnsupportedModel
from headstart.model.hub import hub

_COPY = "the checkpoint is damaged: copy or download it again"
_PANIC = "PanicException"
"""What a library written in Rust raises for a bug of its own. It has no common class with other exceptions."""


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Turn whatever is raised while a model is read into typed errors; without a network, within seconds.

    Configs, tokenizers and weights of unknown origin can make their readers fail in any way: a number where an object
    is expected, a size of 0, a name that is not in a table. Each becomes one line that names the model. The original
    stays as the cause, so a bug of headstart's own is still found.

    Raises:
        ModelNotFound: a file is missing or cannot be read.
        DamagedModel: a file of weights is damaged.
        UnsupportedModel: all else that readers refuse or stumble over.
        NotEnoughMemory: there was no memory for what the config asks for.
    """
    unreachable = ""
    try:
        with hub(source) as unreachable:
            yield
    except HeadstartError:
        raise
    except OSError as error:
        if unreachable:
            raise ModelNotFound(
                f"{source!r} is no directory and not in the local cache, and {unreachable}",
                hint="check the path, or the network (and HF_ENDPOINT, if it is set)",
            ) from error
        raise ModelNotFound(
            f"no model could be read from {source!r}: {first_line(error)}",
            hint='give a directory with config.json and *.safetensors, a .gguf file, a hub id, or "bundled"',
        ) from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise  # an interrupt, or the end of the program
        raise _typed(source, error) from error


def _typed(source: str, error: BaseException) -> HeadstartError:
    if isinstance(error, SafetensorError):
        return DamagedModel(f"the weights of {source!r} cannot be read: {first_line(error)}", hint=_COPY)
    if isinstance(error, MemoryError):
        return NotEnoughMemory(f"there is no memory for {source!r}", hint="load a smaller model")
    said = first_line(error)
    if not isinstance(error, ValueError) and not _is_strict(
        error
    ):  # of a key or an index, the message alone says little
        said = f"{type(error).__name__}: {said}"
    return UnsupportedModel(
        f"{source!r} cannot be loaded: {said}",
        hint="check that its files are whole, and that this version of transformers knows the model's type",
    )


def _is_strict(error: BaseException) -> bool:
    """Whether a config's class has refused a value, in words that say all."""
    library: Any = sys.modules.get("huggingface_hub.errors")  # nothing can be of its classes before it is imported
    return library is not None and isinstance(error, library.StrictDataclassError)


def first_line(error: BaseException) -> str:
    """Of its message, with the second where the first announces it; its type where there is none."""
    first, *others = str(error).splitlines() or [""]
    if first.endswith(":") and others:
        first = f"{first} {others[0].strip()}"
    return first or type(error).__name__


def read_object(path: Path, *, hint: str) -> dict[str, Any]:
    """A file that holds one JSON object. hint: what to do if there is no such file.

    Raises:
        ModelNotFound: it is missing, or something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelNotFound(f"{path.parent} has no {path.name}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ModelNotFound(f"{path} is not valid JSON", hint=_COPY) from error
    if not isinstance(found, dict):
        raise ModelNotFound(f"{path} is not a JSON object", hint=_COPY)
    return found


def object_in(path: Path) -> dict[str, Any]:
    """The same to look at: {} where there is no such file, or something else in it."""
    try:
        return read_object(path, hint="")
    except ModelNotFound:
        return {}
