"""A checkpoint with a trained MTP head in it: what `drafter="mtp"` reads, and vLLM's and SGLang's MTP for the family.

An MTP head is no drafter of its own: engines look for it in the checkpoint of its target, below `mtp.`, and the config
says how many layers it has. So the target's files are written beside it: weights as hard links where the file system
has them, so that they take no room twice, and otherwise as copies. Only a file that holds an older head is written
anew. An index says in which file each tensor is.

Source: the Qwen3.5 checkpoints as published; vLLM's model_executor/models/qwen3_5_mtp.py reads the same names.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from headstart.model.heads.mtp_checkpoint import FORMS
from headstart.model.heads.stored_tensors import names_in, write_tensors
from headstart.model.loading import weight_files

PREFIX = "mtp."
FIELD = "mtp_num_hidden_layers"
HEAD = "mtp.safetensors"
_INDEX = "model.safetensors.index.json"
_BESIDE = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*")
_OURS = ("provenance.json", "run.json", "phases.json", _INDEX, HEAD)
"""Files of a run, and those that are made anew."""


def write(folder: Path, target: Path, config: Any, tensors: Mapping[str, Tensor]) -> None:
    """Write the checkpoint into an empty directory.

    target: the directory of the target. config: the target's. tensors: the head's, by the names that
    `mtp_checkpoint.read` gives them.
    """
    text = config.get_text_config()
    form = FORMS[text.model_type]
    head = {form.stored(name, text.num_hidden_layers): tensor for name, tensor in tensors.items()}
    write_tensors(folder / HEAD, head)
    held = dict.fromkeys(head, HEAD)
    for file in weight_files(target, convert="save_pretrained writes safetensors"):
        if file.name != HEAD:
            held |= dict.fromkeys(_without_head(file, folder / file.name), file.name)
    for pattern in _BESIDE:
        for file in target.glob(pattern):
            if file.name not in _OURS and not file.name.endswith(".index.json"):
                shutil.copyfile(file, folder / file.name)
    size = sum((folder / name).stat().st_size for name in set(held.values()))
    _write_json(folder / _INDEX, {"metadata": {"total_size": size}, "weight_map": dict(sorted(held.items()))})
    raw = json.loads((target / "config.json").read_text(encoding="utf-8"))
    nested = raw.get("text_config")
    (nested if isinstance(nested, dict) else raw)[FIELD] = 1
    _write_json(folder / "config.json", raw)


def _without_head(file: Path, copy: Path) -> list[str]:
    """Put a file of weights at `copy`, without the tensors of a head; returns the names of the others."""
    names = list(names_in(file))
    others = [name for name in names if not name.startswith(PREFIX)]
    if not others:
        return []
    if len(others) < len(names):
        with safe_open(file, framework="pt") as stored:
            save_file({name: stored.get_tensor(name) for name in others}, copy, {"format": "pt"})
        return others
    try:
        os.link(file.resolve(), copy)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, copy)
    return others


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
