"""Exporting another drafter as an export was written: with the same options, as far as its files hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from headstart.base.errors import InvalidFile
from headstart.fleet.export.manifest import Manifest, read_manifest
from headstart.fleet.export.options import ExportOptions

_FOLLOW = ("model", "revision", "dtype", "served-model-name", "max-model-len", "speculative-config")
"""Keys of vllm.yaml that follow from other options."""


def same_options(folder: Path) -> ExportOptions:
    """The options of an export for vLLM: what clients and its fleet rely on stays as it is. K that changes with the
    number of requests, and the files for clusters, are not made again.

    Raises:
        InvalidFile: it is no export, or for another engine.
    """
    manifest = read_manifest(folder)
    try:
        values = yaml.safe_load((folder / "vllm.yaml").read_text(encoding="utf-8"))
        name, speculation = values["served-model-name"], values["speculative-config"]
        sampled = manifest.expected is not None and manifest.expected.temperature > 0
        drawn = sampled or speculation.get("draft_sample_method") == "probabilistic"
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(
            f"{folder} is no export for vLLM that can be written again: {error}",
            hint="export the new drafter yourself, with `headstart export`",
        ) from error
    return ExportOptions(
        engine=manifest.engine,
        dtype=manifest.target.dtype,
        name=name,
        max_model_len=values.get("max-model-len"),
        settings={key: value for key, value in values.items() if key not in _FOLLOW},
        target_at=_target_at(manifest),
        num_speculative_tokens=manifest.depth,
        measure=manifest.expected is not None,
        **_measured(manifest, drawn=drawn),
    )


def _target_at(manifest: Manifest) -> str | None:
    """Where the target lies for the engine, if it was given."""
    target = manifest.target
    return None if target.path in (None, target.name) else target.name


def _measured(manifest: Manifest, *, drawn: bool) -> dict[str, Any]:
    """What acceptance is measured with. A temperature above 0 also says that drafts are drawn."""
    found = manifest.expected
    if found is None:
        return {"temperature": 1.0 if drawn else 0.0}
    return {"temperature": found.temperature, "max_tokens": found.max_tokens}
