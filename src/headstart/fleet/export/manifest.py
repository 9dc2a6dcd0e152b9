"""`manifest.json`: what an export holds, and what was measured of it when it was written.

Whoever runs the export reads it: `headstart launch` what to start, `headstart watch` what to expect of it, `headstart
adapt` what it replaces. Hashes are SHA-256 in hexadecimal, by file name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from headstart.base.as_json import first_problem
from headstart.base.errors import InvalidFile

NAME, CONFIG = "manifest.json", "vllm.yaml"
VERSION = 1
DrafterKind = Literal["eagle3", "medusa", "draft_model", "ngram", "suffix", "dflash", "dspark"]
EngineName = Literal["vllm", "sglang", "llama.cpp"]

_Count = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Strict:
    """A record that takes the fields it names and no others."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", populate_by_name=True)


@dataclass(frozen=True, slots=True)
class TargetRecord(_Strict):
    """The model that writes.

    name: as the engine knows it, a path on the serving machine or a hub id. path: where it lay when this was written,
    a directory or a GGUF file; None for a hub id. sha256: of its files, weights included, where they are local. dtype:
    what it is served in.
    """

    name: str
    path: str | None
    revision: str | None
    sha256: Mapping[str, str]
    dtype: str
    vocab_size: Annotated[int, Field(ge=1)]
    layers: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class DrafterRecord(_Strict):
    """What drafts.

    folder: relative to the manifest; None where nothing is loaded. origin: what the user named. layer_ids: the layers
    of the target whose inputs an EAGLE-3, DFlash or DSpark head reads; None for others.
    """

    kind: DrafterKind
    folder: str | None
    origin: Annotated[str, Field(alias="from")]
    sha256: Mapping[str, str]
    layer_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Figure(_Strict):
    """A value and the ends of its interval, which are None where it has none (a single prompt has no scatter)."""

    value: float
    low: float | None
    high: float | None
    level: _Share = 0.95


@dataclass(frozen=True, slots=True)
class PositionRecord(_Strict):
    """Acceptance at one position of the draft, counted from 1, conditional on all positions before it.

    tested: rounds whose draft reached the position and in which everything before it was accepted.
    """

    position: Annotated[int, Field(ge=1)]
    tested: _Count
    accepted: _Count
    value: float | None
    low: _Share
    high: _Share


@dataclass(frozen=True, slots=True)
class PromptsRecord(_Strict):
    """What was measured with. sha256: of the prompts' token ids. source: a file, or "sample prompts"."""

    count: Annotated[int, Field(ge=1)]
    sha256: str
    source: str


@dataclass(frozen=True, slots=True)
class Expected(_Strict):
    """What headstart's own engine measured of this target, drafter and draft length, on these prompts.

    tokens_per_forward is G / (G - A): generated tokens over forwards of the target, where each forward that emits
    tokens of a request counts once. The forward that ends a prompt emits that request's first token and counts too, as
    it does in vLLM's counters (a chunk of a prompt that emits nothing counts in neither). vLLM adds accepted tokens to
    A that lie behind a stop, so that its figure lies slightly above this one.
    chat: whether prompts went through the target's chat template.
    """

    prompts: PromptsRecord
    max_tokens: Annotated[int, Field(ge=1)]
    temperature: Annotated[float, Field(ge=0)]
    chat: bool
    tokens_per_forward: Figure
    by_position: tuple[PositionRecord, ...]


@dataclass(frozen=True, slots=True)
class DepthAt(_Strict):
    """The draft length that should be fastest where so many requests are decoded at once; 0: do not speculate."""

    batch: Annotated[int, Field(ge=1)]
    depth: _Count
    speedup: float


@dataclass(frozen=True, slots=True)
class CostsRecord(_Strict):
    """Where the costs come from that the draft length was chosen by: "file: ..." or "assumption: ...".

    c: a drafted token, in plain steps. v: {rows: cost of a step of so many rows, in plain steps}.
    """

    source: str
    c: float
    v: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Manifest(_Strict):
    """What an export holds, and what was measured of it.

    expected: None where nothing was measured. off_from: the number of requests at once from which no draft pays; None
    where every batch size that was looked at gains, or costs are an assumption. tested: versions of engines that this
    format was tested with. verified: the result of `headstart export --verify`, as its report records it.
    """

    engine: EngineName
    created: str
    command: str
    versions: Mapping[str, str]
    target: TargetRecord
    drafter: DrafterRecord
    depth: Annotated[int, Field(ge=1)]
    expected: Expected | None
    depth_by_batch: tuple[DepthAt, ...]
    off_from: int | None
    costs: CostsRecord
    tested: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    verified: Mapping[str, Any] | None = None
    headstart_export: Literal[1] = 1

    def record(self) -> dict[str, Any]:
        """As JSON values."""
        found: dict[str, Any] = _MANIFEST.dump_python(self, mode="json", by_alias=True)
        return {"headstart_export": found.pop("headstart_export"), **found}

    def text(self) -> str:
        """The file."""
        return json.dumps(self.record(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


_MANIFEST = TypeAdapter(Manifest)


def read_manifest(folder: Path, *, hint: str = "write the folder again with `headstart export`") -> Manifest:
    """The manifest of an export. folder: or the manifest's own path. hint: where it cannot be read.

    Raises:
        InvalidFile: there is none, it is damaged, of another kind, or of a version that this headstart does not know.
    """
    path = folder if folder.is_file() else folder / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{folder} is no export: cannot read {path}", hint=hint) from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidFile(f"{path} is not JSON: {error}", hint=hint) from error
    version = found.get("headstart_export") if isinstance(found, dict) else None
    if version is None:
        raise InvalidFile(f"{path} is no manifest of `headstart export`", hint=hint)
    if version != VERSION:
        raise InvalidFile(
            f"{path} has version {version!r}, and this headstart reads version {VERSION}",
            hint="use the headstart that wrote it, or write the folder again",
        )
    try:
        return _MANIFEST.validate_json(text, strict=True)
    except ValidationError as error:
        raise InvalidFile(f"{path}: {first_problem(error, 'the manifest')}", hint=hint) from error


def read_values(folder: Path) -> dict[str, Any]:
    """The options of an export for vLLM, of its `vllm.yaml`: by long name, with dashes.

    Raises:
        InvalidFile: there is no such file, or it holds something else.
    """
    hint, path = "write one with: headstart export TARGET DRAFTER -o DIR", folder / CONFIG
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{folder} is no export for vLLM: cannot read {CONFIG}", hint=hint) from error
    except yaml.YAMLError as error:
        raise InvalidFile(f"{path} is not YAML", hint=hint) from error
    if not isinstance(found, dict):
        raise InvalidFile(f"{path} holds no options", hint=hint)
    return {str(name).replace("_", "-"): value for name, value in found.items()}
