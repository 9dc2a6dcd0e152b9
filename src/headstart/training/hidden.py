"""The target's hidden states and logits on windows of text: computed on the fly, or kept on disk.

A hidden state is named by the layer it goes into: 0 is the embedding, L (the number of layers) what the final norm
made of the last layer's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headstart.errors import InvalidOption, UnsupportedModel
from headstart.files import replacing
from headstart.model.heads.eagle_checkpoint import default_layer_ids

GIGABYTE = 1e9


def choose_layers(asked: Sequence[int] | None, layers: int) -> tuple[int, int, int]:
    """The three states that a head reads: those asked for, in rising order, or the usual ones of a target this deep.

    Raises:
        UnsupportedModel: the target has a single layer.
        InvalidOption: a layer that the target does not have. Their number is no layer either: what engines take it
            for differs, the state before the final norm or after it. (A target of two layers has no other third state;
            a head that reads it runs in headstart alone.)
    """
    if asked is not None:
        low, middle, high = sorted(asked)
        if high >= layers and (low, middle, high) != default_layer_ids(layers):
            raise InvalidOption(f"layer_ids has {high}, the target {layers} layers", hint=f"use 0 to {layers - 1}")
        return low, middle, high
    if layers < 2:
        raise UnsupportedModel(
            "a target of one layer has no three states for a head to read", hint="train a draft instead"
        )
    return default_layer_ids(layers)


class TargetStates:
    """Reads windows with the frozen target. `store` keeps what was computed, if there is one."""

    def __init__(self, target: Any, layer_ids: Sequence[int], store: HiddenStore | None = None) -> None:
        self._target = target
        self._layer_ids = tuple(layer_ids)
        self._store = store
        if store is not None:
            self._check_output_matrix()

    @torch.no_grad()
    def read(self, ids: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The chosen states [n, length, 3d] and the logits [n, length, V] of windows ids [n, length].

        `places` [n] are their numbers among the training windows; without it nothing is looked up or kept.
        """
        if self._store is None or places is None:
            out = self._target(ids, output_hidden_states=True, use_cache=False)
            return self._joined(out), out.logits
        numbers = places.tolist()
        found = self._store.read([n for n in numbers if n in self._store])
        missing = [i for i, n in enumerate(numbers) if n not in found]
        if missing:
            out = self._target(ids[missing], output_hidden_states=True, use_cache=False)
            made = torch.cat([self._joined(out), out.hidden_states[-1]], dim=-1)
            fresh = {numbers[i]: states for i, states in zip(missing, made, strict=True)}
            self._store.keep(fresh)
            found |= fresh
        states = torch.stack([found[n].to(ids.device) for n in numbers])
        width = states.shape[-1] // (len(self._layer_ids) + 1)
        return states[..., :-width], self._target.get_output_embeddings()(states[..., -width:])

    def _joined(self, out: Any) -> Tensor:
        return torch.cat([out.hidden_states[i] for i in self._layer_ids], dim=-1)

    @torch.no_grad()
    def _check_output_matrix(self) -> None:
        """Logits are made from the last state again: refuse where the target does more to them than its matrix."""
        device = next(self._target.parameters()).device
        out = self._target(torch.arange(8, device=device)[None], output_hidden_states=True, use_cache=False)
        again = self._target.get_output_embeddings()(out.hidden_states[-1])
        if not torch.allclose(again, out.logits, atol=1e-3, rtol=1e-3):
            raise UnsupportedModel(
                f"{self._target.config.model_type} does more to its logits than its output matrix",
                hint="leave out cache_hidden: they cannot be made from states on disk",
            )


class HiddenStore:
    """States of windows on disk, up to so many gigabytes: a safetensors shard for each batch that was computed.

    A kill leaves whole shards alone. Where the limit or the disk is reached, nothing more is kept, and the rest is
    computed whenever it is needed.
    """

    def __init__(self, folder: Path, gigabytes: float) -> None:
        self._folder = folder
        self._limit = gigabytes * GIGABYTE
        folder.mkdir(parents=True, exist_ok=True)
        self._shards: dict[int, Path] = {}
        self._used = 0
        for shard in sorted(folder.glob("*.safetensors")):
            self._note(shard)

    def __contains__(self, window: int) -> bool:
        return window in self._shards

    def __len__(self) -> int:
        return len(self._shards)

    def read(self, windows: Sequence[int]) -> dict[int, Tensor]:
        """The states of these windows, all of which must be here."""
        found: dict[int, Tensor] = {}
        for shard in dict.fromkeys(self._shards[w] for w in windows):
            with safe_open(shard, framework="pt") as file:
                found |= {w: file.get_tensor(str(w)) for w in windows if self._shards[w] == shard}
        return found

    def keep(self, states: dict[int, Tensor]) -> None:
        """Write one shard, if it fits."""
        size = sum(t.numel() * t.element_size() for t in states.values())
        if self._used + size > self._limit:
            return
        shard = self._folder / f"{min(states):08d}.safetensors"
        try:
            with replacing(shard) as partial:
                save_file({str(w): t.cpu().contiguous() for w, t in states.items()}, partial)
        except (OSError, SafetensorError):  # a full disk, most likely: what is on it already stays
            self._limit = self._used
            return
        self._note(shard)

    def _note(self, shard: Path) -> None:
        with safe_open(shard, framework="pt") as file:
            self._shards |= {int(name): shard for name in file.keys()}  # noqa: SIM118 (not a mapping)
        self._used += shard.stat().st_size
