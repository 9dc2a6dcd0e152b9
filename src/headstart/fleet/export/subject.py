"""What is exported: target and drafter, found by the names that every command takes, and their facts from configs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.base.errors import ExportRefused
from headstart.fleet.export.manifest import DrafterKind, EngineName
from headstart.loading.choice import MTP, DrafterSpec, choose
from headstart.model import loading
from headstart.model.gguf.files import is_gguf, open_gguf
from headstart.model.heads.dflash_config import head_config

_ENGINES_HAVE = "vLLM and SGLang draft with an EAGLE-3 head, Medusa heads, a draft model, 'ngram' or 'suffix'"
_LLAMACPP_HAS = (
    "for llama.cpp an EAGLE-3, DFlash or DSpark head is exported; small models and n-grams it takes by itself"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The model that writes.

    name: as the user named it. source: its directory, GGUF file or hub id. local: the directory or file, None for a hub
    id. revision: the commit of a hub id's files, where it is known.
    """

    name: str
    source: str
    local: Path | None
    revision: str | None
    config: Any

    @property
    def architectures(self) -> tuple[str, ...]:
        """Of a GGUF file as that calls it."""
        if is_gguf(self.source):
            return (open_gguf(self.source).metadata.text("general.architecture"),)
        return tuple(self.config.architectures or ())

    @property
    def vocab_size(self) -> int:
        return int(self.config.get_text_config().vocab_size)

    @property
    def hidden_size(self) -> int:
        return int(self.config.get_text_config().hidden_size)

    @property
    def layers(self) -> int:
        return int(self.config.get_text_config().num_hidden_layers)

    @property
    def stored_dtype(self) -> str:
        """The checkpoint's, by name."""
        return str(self.config.dtype or "float32").removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class Drafter:
    """What drafts.

    source: its directory, or the hub id of a draft model; "" where nothing is loaded. raw: its config.json as it
    stands. revision: as for the target.
    """

    name: str
    kind: DrafterKind
    source: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be called in a record of `headstart doctor`."""
        return (self.name, self.source)

    @property
    def local(self) -> Path | None:
        return Path(self.source) if self.source and Path(self.source).is_dir() else None


@dataclass(frozen=True, slots=True)
class Subject:
    """A target and its drafter."""

    target: Target
    drafter: Drafter


def find(target: str, drafter: str, engine: EngineName = "vllm") -> Subject:
    """Resolve the names as `headstart.load` does.

    Raises:
        ExportRefused: a drafter that no other engine has, or that is part of headstart alone.
        HeadstartError: what `headstart.load` raises for these names.
    """
    found = _target(target, engine)
    return Subject(found, _drafter(found, drafter, engine))


def _target(name: str, engine: EngineName) -> Target:
    source = loading.resolve(name, "target")
    if engine != "llama.cpp":
        _refuse_gguf(source)
    elif not is_gguf(source):
        raise ExportRefused(
            f"{name} is no GGUF file, and llama.cpp runs no other model",
            hint="convert it with convert_hf_to_gguf.py of llama.cpp and name that file: the head's own file takes its "
            "vocabulary from there",
        )
    config = loading.load_config(source, trust_remote_code=False)
    local = Path(source).resolve() if Path(source).exists() else None
    return Target(name, source if local is None else str(local), local, _commit(source), config)


def _drafter(target: Target, name: str, engine: EngineName) -> Drafter:
    have = _LLAMACPP_HAS if engine == "llama.cpp" else _ENGINES_HAVE
    if name in ("auto", "none") or "," in name:
        raise ExportRefused(f"--drafter {name!r} names no single drafter", hint=f"name one: {have}")
    if engine != "llama.cpp":
        _refuse_gguf(name)  # before anything is read of it
    spec = choose(target.name, name).drafters[0]
    if engine == "llama.cpp":
        return _head(name, spec, target)
    if spec.kind == "ngram" or spec.kind == "suffix":
        return Drafter(name, spec.kind)  # type: ignore[arg-type]
    if spec.kind == MTP and not spec.wrapper:
        raise ExportRefused(
            "an MTP head lies in the target's own checkpoint, and is not exported",
            hint='vLLM drafts with it if its speculative config says {"method": "mtp", "num_speculative_tokens": 3}',
        )
    source = str(spec.source) if spec.source else loading.resolve(name, "draft")
    folder = loading.config_folder(source)
    raw = {} if folder is None else read_json(folder / "config.json")
    kinds: dict[str, DrafterKind] = {"medusa": "medusa", "eagle": "eagle3", "draft": "draft_model"}
    if spec.kind == "dflash" and not spec.wrapper:
        raise ExportRefused(
            f"drafter {name!r} is a DFlash or DSpark head, which is not exported",
            hint="vLLM reads its directory as it was published: name that as `model` in its speculative config",
        )
    if spec.kind not in kinds or spec.wrapper:
        raise ExportRefused(f"drafter {name!r} runs in headstart alone", hint=_ENGINES_HAVE)
    _refuse_gguf(source)
    if spec.kind == "draft":
        loading.load_config(source, trust_remote_code=False)
    local = Path(source).resolve() if Path(source).is_dir() else None
    return Drafter(name, kinds[spec.kind], source if local is None else str(local), raw, _commit(source))


def _head(name: str, spec: DrafterSpec, target: Target) -> Drafter:
    """One of the kinds that llama.cpp has a form for."""
    if spec.kind not in ("eagle", "dflash") or spec.wrapper:
        raise ExportRefused(f"drafter {name!r} is not written for llama.cpp", hint=_LLAMACPP_HAS)
    source = str(spec.source)
    if is_gguf(source):
        raise ExportRefused(
            f"{source} is a GGUF file already", hint="give it to llama-server with -md, or name the original head"
        )
    raw, kind = read_json(Path(source) / "config.json"), "eagle3"
    if spec.kind == "dflash":
        config = head_config(source, raw, target.config.get_text_config())
        kind = "dspark" if config.from_anchor or config.markov_rank else "dflash"
    return Drafter(name, kind, source, raw)  # type: ignore[arg-type]


def _refuse_gguf(source: str) -> None:
    if is_gguf(source):
        raise ExportRefused(
            f"{source} is a GGUF file, which vLLM and SGLang would run with other numbers, or not at all",
            hint="export the original checkpoint, a directory with config.json and *.safetensors, or its hub id",
        )


def read_json(path: Path) -> dict[str, Any]:
    """A config as it stands; {} where it cannot be read, which loading will explain."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _commit(source: str) -> str | None:
    """The commit of a hub id's files in the local cache, by the folder they lie in."""
    if Path(source).is_dir():
        return None
    folder = loading.config_folder(source)
    known = folder is not None and folder.parent.name == "snapshots"
    return folder.name if known and folder is not None else None
