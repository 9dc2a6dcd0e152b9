"""Heads that come with headstart for models that do not: which of them belongs to a target, by the target's config.

A head can only cost speed and never changes a text, and pacing stops asking one that does not pay: a fine-tuned model
of the same shape is offered it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from headstart.base.errors import HeadstartError
from headstart.loading.kept import Kept
from headstart.model import loading
from headstart.model.gguf import checkpoint as gguf
from headstart.model.reading import object_in

FOLDER = Path(str(resources.files("headstart") / "heads"))
TARGET = "target_config"
"""In a head's config, below `headstart`: the fields of the target's config by which it is known."""


def head_for(target: str) -> Path | None:
    """The directory of the head for a target, a directory, a GGUF file or a hub id; None if there is none.

    Nothing but its config is read; one that cannot be read has no head, and loading will say what is wrong.
    """
    if target == loading.BUNDLED:
        return None
    try:
        config = _config(loading.resolve(target, "target"))
    except HeadstartError:
        return None
    return next((folder for folder, fields in _known() if config and _fits(config, fields)), None)


def _known() -> list[tuple[Path, Mapping[str, Any]]]:
    found = [
        (file.parent, json.loads(file.read_text(encoding="utf-8"))) for file in sorted(FOLDER.glob("*/config.json"))
    ]
    return [(folder, config["headstart"][TARGET]) for folder, config in found]


def _config(source: str) -> Mapping[str, Any]:
    if gguf.is_gguf(source):
        known = Kept.of(source).config
        found: Mapping[str, Any] = (
            loading.load_config(source, trust_remote_code=False) if known is None else known
        ).to_dict()
        return found
    folder = loading.config_folder(source)
    return object_in(folder / "config.json") if folder else {}


def _fits(config: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    rope = config.get("rope_parameters") or {}
    return all(_single(config.get(name, rope.get(name))) == _single(value) for name, value in fields.items())


def _single(value: Any) -> Any:
    """The one element of a list: an end token stands in one, or by itself."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
