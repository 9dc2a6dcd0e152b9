"""Faults planted in a head on disk: each leaves a checkpoint that loads without a word, and is accepted less."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

TOP = "eagle_aux_hidden_state_layer_ids"
Tensors = dict[str, Tensor]
Config = dict[str, Any]


def _layers_off_by_one(config: Config, _: Tensors) -> None:
    ids = [i - 1 for i in config[TOP]]
    config[TOP] = config["headstart"]["layer_ids"] = ids
    config["eagle_config"][TOP] = [i - 1 for i in ids]


def _no_layers_at_the_top(config: Config, _: Tensors) -> None:
    """As headstart wrote configs once: right for headstart and SGLang, wrong for vLLM."""
    del config[TOP]


def _vocabulary_shifted(_: Config, tensors: Tensors) -> None:
    """Each draft token stands for its neighbour's token."""
    places = torch.arange(len(tensors["d2t"]))
    tensors["d2t"] = (places + tensors["d2t"]).roll(1) - places


def _final_norm_scaled(_: Config, tensors: Tensors) -> None:
    """Half of the gains: scaling all of them would change no likeliest token."""
    gains = tensors["norm.weight"].clone()
    gains[::2] *= 1.5
    tensors["norm.weight"] = gains


def _output_rows_swapped(_: Config, tensors: Tensors) -> None:
    """Every even row with the odd one behind it."""
    rows = torch.arange(len(tensors["lm_head.weight"]))
    tensors["lm_head.weight"] = tensors["lm_head.weight"][rows ^ 1].contiguous()


def _biases_dropped(_: Config, tensors: Tensors) -> None:
    for name in [name for name in tensors if name.endswith("bias")]:
        tensors[name] = torch.zeros_like(tensors[name])


def _biases_enlarged(_: Config, tensors: Tensors) -> None:
    """No fault, but a head whose biases matter: those of the bundled one hardly do."""
    for name in [name for name in tensors if name.endswith("bias")]:
        tensors[name] = 20 * tensors[name]


EAGLE3: dict[str, Callable[[Config, Tensors], None]] = {
    "layers off by one": _layers_off_by_one,
    "vocabulary shifted": _vocabulary_shifted,
    "final norm scaled": _final_norm_scaled,
    "output rows swapped": _output_rows_swapped,
}
MEDUSA: dict[str, Callable[[Config, Tensors], None]] = {"biases dropped": _biases_dropped}
OTHER_HEADS: dict[str, Callable[[Config, Tensors], None]] = {"biases enlarged": _biases_enlarged}
ON_DISK_ONLY: dict[str, Callable[[Config, Tensors], None]] = {"no layers at the top": _no_layers_at_the_top}
"""Those that only another engine reads wrong."""


def planted(head: Path, folder: Path, fault: str) -> Path:
    """A copy of the head, with the fault."""
    config = json.loads((head / "config.json").read_text())
    (file,) = head.glob("*.safetensors")
    tensors = load_file(file)
    {**EAGLE3, **MEDUSA, **OTHER_HEADS, **ON_DISK_ONLY}[fault](config, tensors)
    folder.mkdir(parents=True)
    save_file(tensors, folder / file.name, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder
