"""The tensors of recurrent states: two planes a slot and layer, and a log of the rows that came after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.model.memory import bytes_of

LOG = 128
"""Rows of the log: those that wait to be replayed, the tokens of a short forward and its draft must fit."""
PLANES = 2

Saved = list[tuple[Tensor, Tensor]]
"""A checkpoint: of each shape, states and kept inputs."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """What one recurrent layer keeps of a text, in float32."""

    channels: int
    """Of its convolution's input."""
    taps: int
    """Inputs that the convolution sums, the row's own among them."""
    gates: int
    """Further numbers of a row that the state is made with."""
    numbers: int
    """Of the state; 0 where the convolution is all there is."""

    @property
    def logged(self) -> int:
        """Numbers of a row of the log: the convolution's input, then the gates."""
        return self.channels + self.gates

    @property
    def numbers_per_slot(self) -> int:
        return PLANES * (self.numbers + (self.taps - 1) * self.channels) + LOG * self.logged

    @property
    def saved_bytes(self) -> int:
        """Of its part of a checkpoint."""
        return 4 * (self.numbers + (self.taps - 1) * self.channels)


class Planes:
    """By layer: `planes` [2, slots, numbers]; `kept` [2, slots, taps - 1, channels], the last inputs of the convolution
    before each plane's tag; `log` [slots, LOG, channels + gates]."""

    def __init__(self, shapes: Mapping[int, StateShape], slots: int, device: torch.device) -> None:
        self.planes: dict[int, Tensor] = {}
        self.kept: dict[int, Tensor] = {}
        self.log: dict[int, Tensor] = {}
        self.groups: list[tuple[Tensor, Tensor, Tensor]] = []
        for shape in dict.fromkeys(shapes.values()):  # one tensor for layers alike: a cut is then few operations
            layers = [layer for layer, other in shapes.items() if other == shape]
            sizes = ((PLANES, slots, shape.numbers), (PLANES, slots, shape.taps - 1, shape.channels))
            # empty, not zeros: pages of slots that are never used are never touched
            planes, kept = (torch.empty(len(layers), *size, device=device) for size in sizes)
            log = torch.empty(len(layers), slots, LOG, shape.logged, device=device)
            self.groups.append((planes, kept, log))
            for number, layer in enumerate(layers):
                self.planes[layer], self.kept[layer], self.log[layer] = planes[number], kept[number], log[number]

    def memory(self) -> int:
        """Bytes."""
        return bytes_of(tensor for group in self.groups for tensor in group)

    def gather(self, number: int, base: int, path: Sequence[int]) -> None:
        """Move the logged rows of a draft's nodes, which began at place `base`, to the places of a text there."""
        if list(path) != list(range(len(path))):
            to = [(base + i) % LOG for i in range(len(path))]
            of = [(base + node) % LOG for node in path]
            for _, _, log in self.groups:
                log[:, number, to] = log[:, number, of]  # the index makes a copy first

    def copy(self, source: int, number: int, plane: int | None, places: range) -> None:
        """Of one slot to another: a plane, which becomes the first, and rows of the log by the places of the text."""
        rows = [place % LOG for place in places]
        for planes, kept, log in self.groups:
            log[:, number, rows] = log[:, source, rows]
            if plane is not None:
                planes[:, 0, number], kept[:, 0, number] = planes[:, plane, source], kept[:, plane, source]

    def saved(self, number: int, plane: int) -> Saved:
        """A checkpoint of a slot's plane."""
        return [(planes[:, plane, number].clone(), kept[:, plane, number].clone()) for planes, kept, _ in self.groups]

    def restore(self, number: int, saved: Saved) -> None:
        """Make a checkpoint the first plane of a slot."""
        for (planes, kept, _), (state, inputs) in zip(self.groups, saved, strict=True):
            planes[:, 0, number], kept[:, 0, number] = state, inputs

    def clear(self, number: int) -> None:
        """Make the first plane of a slot zeros."""
        for planes, kept, _ in self.groups:
            planes[:, 0, number], kept[:, 0, number] = 0.0, 0.0
