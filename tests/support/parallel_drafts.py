"""Draft LMs with a mask token, as published ones are, and what transformers says of all rows of a draft."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM


def masked_checkpoint(path: str, mask: int, **fields: Any) -> str:
    """A copy of a checkpoint whose config names the mask token."""
    folder = Path(f"{path}-masked-{mask}-{len(fields)}")
    if not folder.exists():
        shutil.copytree(path, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "spd_type": "pard", "pard_token": mask, **fields}))
    return str(folder)


def all_rows(model: Any, text: Sequence[int], mask: int, count: int) -> Tensor:
    """[count, V]: transformers' logits after the text, and after each mask behind it."""
    with torch.no_grad():
        rows: Tensor = model(torch.tensor([[*text, *[mask] * (count - 1)]])).logits[0, len(text) - 1 :]
    return rows


def of(path: str) -> Any:
    """transformers' own model."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
