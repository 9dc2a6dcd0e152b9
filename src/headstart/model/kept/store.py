"""The files in which it lies, and under which facts. A file that cannot be used is no error."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.base.errors import HeadstartError
from headstart.base.files import cache_directory, cache_file, replacing
from headstart.model.fingerprint import fingerprint
from headstart.model.gguf.files import is_gguf, parts
from headstart.model.kept.recipes import recipe_from, recipe_to
from headstart.model.recipes import Recipe
from headstart.model.rotation import Rotation

VERSION = 5
KIND = "models"
"""The folder of these files in the cache directory."""
MOST = 64
"""Files that are kept; those that were not read for longest go."""
_LIBRARIES = ("headstart", "torch", "transformers", "tokenizers")
_TEMPLATES = "additional_chat_templates/*.jinja"
_CONFIGS = ("*.json", "*.jinja", "*.txt", "*.model", _TEMPLATES)
_BESIDE = (
    "tokenizer*.json", "config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", _TEMPLATES,
)  # fmt: skip
"""What `PreTrainedTokenizerFast.from_pretrained` reads beside a GGUF file."""

log = logging.getLogger(__name__)


class Changed(Exception):
    """What was kept is not true of the model any more."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a model is, whatever it runs on."""

    config: dict[str, Any]
    """The fields of its config, see `kept.config`."""
    recipe: Recipe
    generation: dict[str, Any]
    """What its generation config says."""
    tokenizer: dict[str, Any] | None
    """See `kept.tokenizer`."""
    parameters: int
    """How many numbers it has."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor or a layer of the model, by its name in transformers."""

    name: str
    kind: str
    """"parameter", "linear", "table", "coded linear", "coded table", "coded experts", "stored experts", "tied" or
    "none"."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    bias: str = ""
    """The dtype of a linear layer's bias, if it has one."""
    like: str = ""
    """The layer whose matrix a tied one has."""
    factor: float = 1.0
    """Of a coded table."""
    parts: tuple[str, ...] = ()
    """Where stored experts lie, see `streamed`."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A model as it passed the probe, in one dtype and on one set of kernels."""

    leaves: tuple[Leaf, ...]
    rotations: dict[str, Rotation]
    """By the name of the rotary module, and behind a colon the table that it was asked for."""
    length: int
    """Positions of which they are right."""
    logits: str
    """The digest of the kernels' logits of the probe's last token."""


def facts_of(source: str) -> dict[str, Any]:
    """What everything about a model depends on: its files, wherever they lie, and the libraries that read them.

    source: a directory or a GGUF file.
    """
    folder, single = Path(source), is_gguf(source)
    if single:
        folder, weights = folder.parent, list(parts(folder))
    else:
        weights = sorted(folder.glob("*.safetensors"))
    configs = sorted(file for pattern in (_BESIDE if single else _CONFIGS) for file in folder.glob(pattern))
    named = {path.relative_to(folder).as_posix(): path for path in configs}
    states = [("" if single else path.name, path.stat()) for path in weights]
    return {
        "version": VERSION,
        "fingerprint": fingerprint(source),
        "weights": [[name, state.st_size, state.st_mtime_ns] for name, state in states],
        "configs": [[name, hashlib.sha256(path.read_bytes()).hexdigest()] for name, path in named.items()],
        **_libraries(),
    }  # fmt: skip


@cache
def _libraries() -> dict[str, str]:
    """Versions of what reads a model; of an editable install of headstart, which keeps its version, its files' too."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    states = "".join(
        f"{path.name} {state.st_size} {state.st_mtime_ns}\n" for path in sources for state in [path.stat()]
    )
    versions = {name: version(name) for name in _LIBRARIES}
    return {**versions, "sources": hashlib.sha256(states.encode()).hexdigest()[:16]}


def read_found(facts: Mapping[str, Any]) -> Found | None:
    """What a model of these facts is, if it is known."""
    stored = _read(facts)
    if stored is None:
        return None
    try:
        return Found(**{**stored, "recipe": recipe_from(stored["recipe"])})
    except (HeadstartError, TypeError, KeyError, ValueError, AttributeError) as error:
        _unusable(facts, error)
        return None


def read_passed(facts: Mapping[str, Any]) -> Passed | None:
    """How a model of these facts passed the probe, if it did."""
    stored = _read(facts)
    if stored is None:
        return None
    try:
        leaves = tuple(
            Leaf(**{**each, "shape": tuple(each["shape"]), "parts": tuple(each["parts"])}) for each in stored["leaves"]
        )
        rotations = {
            name: Rotation(tuple(map(float, each["frequencies"])), float(each["factor"]), bool(each["polar"]))
            for name, each in stored["rotations"].items()
        }
        return Passed(leaves, rotations, int(stored["length"]), str(stored["logits"]))
    except (HeadstartError, TypeError, KeyError, ValueError, AttributeError) as error:
        _unusable(facts, error)
        return None


def _read(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        path = cache_file(KIND, facts)
        text = read_text(path)
    except (OSError, RuntimeError, ValueError):  # there is none, no home, or bytes that are no text
        return None
    try:
        head, _, body = text.partition("\n")
        if json.loads(head) != {"digest": _digest(body)}:
            raise ValueError("its digest is another")
        found = json.loads(body)["found"]
        if not isinstance(found, dict):
            raise TypeError("it holds no object")
        return found
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        _unusable(facts, error)
        return None


def read_text(path: Path) -> str:
    """A file's text; of the files that are kept, those that were read last stay."""
    text = path.read_text(encoding="utf-8")
    with suppress(OSError):
        os.utime(path)
    return text


def _unusable(facts: Mapping[str, Any], error: Exception) -> None:
    log.warning("%s cannot be used (%s): the model is loaded as it was the first time", cache_file(KIND, facts), error)


def write(facts: Mapping[str, Any], found: Found | Passed) -> None:
    """Keep it, all or nothing; where that is not possible, nothing is kept."""
    if isinstance(found, Found):
        plain = {each.name: getattr(found, each.name) for each in fields(found)}
        plain["recipe"] = recipe_to(found.recipe)
    else:
        plain = asdict(found)
    with suppress(OSError, RuntimeError, TypeError, ValueError):
        body = json.dumps({"facts": facts, "found": plain}, default=str)
        with replacing(cache_file(KIND, facts)) as part:
            part.write_text(f"{json.dumps({'digest': _digest(body)})}\n{body}", encoding="utf-8")
        _tidy()


def forget(facts: Mapping[str, Any]) -> None:
    """Remove what has turned out to be wrong."""
    with suppress(OSError, RuntimeError):
        cache_file(KIND, facts).unlink(missing_ok=True)


def _tidy() -> None:
    ages = sorted((path.stat().st_mtime, path) for path in cache_directory(KIND).glob("*.json"))
    for _, path in ages[:-MOST]:
        path.unlink(missing_ok=True)


def digest_of(logits: Tensor) -> str:
    """Of the bits of logits."""
    return hashlib.sha256(logits.float().contiguous().numpy().tobytes()).hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
