"""The target's hidden states on windows of text, and what a loss needs beside them: computed, or kept on disk.

A hidden state is named by the layer it goes into: 0 is the embedding, L (the number of layers) what the final norm
made of the last layer's output. Logits are never kept: see `output_matrix`.

Windows are read by transformers' modules or by headstart's own forward. On a CPU the row kernels read 1.3 to 1.5 times
as fast as the modules in float32 and about four times as fast in int8; on a GPU the modules read whole batches at once,
and are the choice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.loading.checkpoint import Checkpoint, check_quantize
from headstart.model.heads.eagle_checkpoint import default_layer_ids
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.train.checkpoint import StateStore, key_of, usual_gigabytes
from headstart.train.options import HeadTraining
from headstart.train.output_matrix import OutputMatrix


class Reader(Protocol):
    """Reads windows, and nothing of one window depends on another."""

    name: str
    """What the provenance calls it."""

    def read(self, ids: Tensor, taps: Sequence[int]) -> list[Tensor]:
        """The states [n, T, d] that go into each of the layers `taps` (the last of all: what the final norm made), for
        windows ids [n, T]."""


class ModulesReader:
    """Reads with a model of transformers."""

    name = "transformers"

    def __init__(self, target: Any) -> None:
        self._target = target
        takes = "logits_to_keep" in inspect.signature(target.forward).parameters
        self._given = {"logits_to_keep": 1} if takes else {}  # no logits, where the model can leave them out

    @torch.no_grad()
    def read(self, ids: Tensor, taps: Sequence[int]) -> list[Tensor]:
        out = self._target(ids, output_hidden_states=True, use_cache=False, **self._given)
        return [out.hidden_states[layer] for layer in taps]


class RunnerReader:
    """Reads with headstart's own forward: each window is a prompt of one request."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._caches: dict[int, Any] = {}
        self.name = f"{runner.decoder}, {runner.weights_in_words}"

    def read(self, ids: Tensor, taps: Sequence[int]) -> list[Tensor]:
        if len(ids) not in self._caches:
            self._caches[len(ids)] = self._runner.new_cache(len(ids))
        cache = self._caches[len(ids)]
        segments = [Segment(cache.acquire(), tuple(window)) for window in ids.tolist()]
        try:
            hidden = self._runner.forward(segments, cache, tuple(sorted(set(taps)))).hidden
        finally:
            for segment in segments:
                cache.release(segment.slot)
        # copies, because what a forward in inference mode returns cannot take part in a gradient
        return [hidden[layer].view(*ids.shape, -1).clone() for layer in taps]


def make_reader(
    target: Any, source: str | Path, length: int, *, device: torch.device, dtype: torch.dtype, quantize: str | None
) -> Reader:
    """The reader for windows of `length` tokens of the target `source`, which `target` is in transformers.

    The choice depends on the machine and the model alone, so that a run that is resumed reads as it did before.
    """
    if device.type != "cpu" and quantize is None:
        return ModulesReader(target)
    names = {torch.bfloat16: "bfloat16", torch.float32: "float32"}
    found = Checkpoint(source, "target", device=device, dtype=names[dtype], max_length=length)
    try:
        runner = found.runner(quantize)
    except UnsupportedModel:
        if quantize is not None:
            raise
        return ModulesReader(target)
    if quantize is None and runner.decoder == "modules":
        return ModulesReader(target)
    return RunnerReader(runner)


def states_of(
    options: HeadTraining, target: Any, layer_ids: Sequence[int], *, device: torch.device, dtype: torch.dtype
) -> TargetStates:
    """The states that a run with these options learns from.

    Raises:
        InvalidOption: `target_quantize` cannot be computed with here.
        UnsupportedModel: see `TargetStates`.
    """
    check_quantize("target_quantize", options.target_quantize, device)
    folder = options.folder / "hidden"
    gigabytes = usual_gigabytes(folder) if options.cache_hidden is None else options.cache_hidden

    def reader() -> Reader:
        length = options.sequence_length
        return make_reader(target, options.target, length, device=device, dtype=dtype, quantize=options.target_quantize)

    return TargetStates(target, layer_ids, StateStore(folder, gigabytes) if gigabytes else None, reader)


def choose_layers(wanted: Sequence[int] | None, layers: int) -> tuple[int, int, int]:
    """The three states that a head reads: those wanted, in rising order, or the usual ones of a target this deep.

    Raises:
        UnsupportedModel: the target has a single layer.
        InvalidOption: a layer that the target does not have. Their number is no layer either: what engines take it
            for differs, the state before the final norm or after it. (A target of two layers has no other third state;
            a head that reads it runs in headstart alone.)
    """
    if wanted is not None:
        low, middle, high = sorted(wanted)
        if high >= layers and (low, middle, high) != default_layer_ids(layers):
            raise InvalidOption(f"layer_ids has {high}, the target {layers} layers", hint=f"use 0 to {layers - 1}")
        return low, middle, high
    if layers < 2:
        raise UnsupportedModel(
            "a target of one layer has no three states for a head to read", hint="train a draft instead"
        )
    return default_layer_ids(layers)


@dataclass(frozen=True, slots=True)
class States:
    """What a head learns from on windows [n, T]."""

    aux: Tensor
    """The chosen states, side by side [n, T, k * d]."""
    last: Tensor
    """What the output matrix reads [n, T, d]."""
    log_z: Tensor
    """The log-sum-exp of the logits of all tokens, float32 [n, T]: logit - log_z is the log-probability."""


class TargetStates:
    """Reads windows with the frozen target.

    Args:
        target: a model of transformers, for its output matrix, and to read with where `reader` is None.
        layer_ids: the states that `aux` has, which may be none.
        store: keeps what was computed. Everything is then rounded to 16 bits, kept or not, so that it makes no
            difference what has room.
        reader: makes the reader; called at the first window that must be computed.

    Raises:
        UnsupportedModel: the target's logits cannot be made from its last state.
    """

    def __init__(
        self,
        target: Any,
        layer_ids: Sequence[int],
        store: StateStore | None = None,
        reader: Callable[[], Reader] | None = None,
    ) -> None:
        self._target, self._store = target, store
        self._make = reader or (lambda: ModulesReader(target))
        self._reader: Reader | None = None
        self.read_with = "none: all states were kept"  # for the provenance
        self.read_tokens = 0  # that were computed, by this process
        self._taps = (*layer_ids, int(target.config.get_text_config().num_hidden_layers))
        self.output = OutputMatrix.of(target)
        embedding = target.get_input_embeddings().weight
        self._dtype, self._device = embedding.dtype, embedding.device

    @property
    def reader(self) -> Reader:
        """What reads windows with the target."""
        if self._reader is None:
            self._reader = self._make()
            self.read_with = self._reader.name
        return self._reader

    def of(self, ids: Tensor) -> States:
        """The states of windows ids [n, T]: floats in the target's type, on its device."""
        if self._store is None:
            return self._computed(ids, rounded=False)
        keys = [key_of(window) for window in ids]
        fresh = self._kept(ids, keys)
        windows = [fresh[key] if key in fresh else self._store.window(key) for key in keys]
        names = [field.name for field in fields(States)]
        found = {name: torch.stack([window[name] for window in windows]).to(self._device) for name in names}
        floats = {name: found[name].to(self._dtype) for name in ("aux", "last")}
        return States(**{**found, **floats})

    def read(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen states [n, T, k * d] and the logits of all tokens [n, T, V] of windows ids [n, T]."""
        found = self.of(ids)
        return found.aux, self.output(found.last)

    def read_ahead(self, windows: Tensor, at_once: int) -> Iterator[int]:
        """Compute and keep what is not in the store of windows [n, T], so many at a time, and yield how many of them
        are done with, until all are or no more fit."""
        store = self._store
        if store is None:
            return
        for start in range(0, len(windows), at_once):
            part = windows[start : start + at_once].long().to(self._device)
            keys = [key_of(window) for window in part]
            self._kept(part, keys)
            if not all(key in store for key in keys):
                return
            yield min(start + at_once, len(windows))

    def release(self) -> None:
        """Write to disk what waits for it, and release the reader, which is made again when needed."""
        self._reader = None
        if self._store is not None:
            self._store.flush()

    def _kept(self, ids: Tensor, keys: Sequence[int]) -> dict[int, dict[str, Tensor]]:
        """Compute those of the windows ids [n, T] that the store lacks, keep them if they fit, and return them."""
        store = self._store
        assert store is not None, "the caller has seen it"
        missing = [i for i, key in enumerate(keys) if key not in store]
        if not missing:
            return {}
        made = self._computed(ids[missing], rounded=True)
        columns = {field.name: getattr(made, field.name).cpu() for field in fields(made)}
        fresh = {keys[i]: {name: tensor[row] for name, tensor in columns.items()} for row, i in enumerate(missing)}
        for key, tensors in fresh.items():
            store.add(key, tensors)
        return fresh

    @torch.no_grad()
    def _computed(self, ids: Tensor, *, rounded: bool) -> States:
        *chosen, last = self.reader.read(ids, self._taps)
        self.read_tokens += ids.numel()
        aux = torch.cat(chosen, dim=-1) if chosen else last[..., :0]
        if rounded:
            aux, last = _half(aux, torch.bfloat16), _half(last, torch.float16)
        return States(aux, last, self.output.log_z(last))


def _half(states: Tensor, kind: torch.dtype) -> Tensor:
    """In 16 bits. States of layers have outliers and want bf16's range; a normed state has none and float16 is eight
    times as fine. What is in bf16 already stays as it is."""
    if states.dtype == torch.bfloat16:
        return states
    limit = torch.finfo(kind).max
    return states.clamp(-limit, limit).to(kind)
