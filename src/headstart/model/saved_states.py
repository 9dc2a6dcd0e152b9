"""The recurrent states of one slot as tensors, to be kept in a file and put into a slot of another process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.model.planes import LOG
from headstart.model.states import States


@dataclass(frozen=True, slots=True)
class StateTags:
    """Where in a text its states are: one after `tag` tokens, from which the log goes on to the end of the text, and
    checkpoints."""

    tag: int
    saved: tuple[int, ...] = ()

    def reach(self, length: int) -> int:
        """The most of the first `length` tokens of the text after which there is a state."""
        return length if self.tag <= length else max((tag for tag in self.saved if tag <= length), default=0)


Shapes = Sequence[tuple[str, tuple[int, ...]]]
"""Names and shapes, in the order in which they are stored; all in float32."""


def shapes_of(states: States, tags: StateTags, length: int) -> Shapes:
    """What is stored of a text of so many tokens."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for number, (planes, kept, log) in enumerate(states._stored.groups):
        state, inputs = (len(planes), planes.shape[-1]), (len(kept), *kept.shape[-2:])
        found += [(f"state.{number}", state), (f"inputs.{number}", inputs)]
        found.append((f"log.{number}", (len(log), length - tags.tag, log.shape[-1])))
        for tag in tags.saved:
            found += [(f"state.{number}.{tag}", state), (f"inputs.{number}.{tag}", inputs)]
    return found


def tags_of(states: States, slot: int, length: int) -> StateTags:
    """Where the states of a slot are that holds so many tokens."""
    held = states._slots[slot]
    tag, _ = max(held.ways(length, states._deepest), default=(0, None))
    return StateTags(tag, tuple(sorted(held.saved)))


def taken_out(states: States, slot: int, length: int) -> Iterator[Tensor]:
    """The tensors of `shapes_of`."""
    held = states._slots[slot]
    tag, plane = max(held.ways(length, states._deepest), default=(0, None))
    places = [place % LOG for place in range(tag, length)]
    for number, (planes, kept, log) in enumerate(states._stored.groups):
        state, inputs = planes[:, plane or 0, slot], kept[:, plane or 0, slot]
        # Without a plane the log begins with the text, whose first state is zero
        yield from (state, inputs) if plane is not None else (torch.zeros_like(state), torch.zeros_like(inputs))
        yield log[:, slot, places]
        for saved in sorted(held.saved):
            yield from held.saved[saved][number]


def put_in(states: States, slot: int, length: int, tags: StateTags, tensors: Mapping[str, Tensor]) -> None:
    """Make the states of a slot those of the first `length` tokens of the text, which `tags` reaches."""
    held, groups = states._slots[slot], range(len(states._stored.groups))
    states._deepest = states._layers  # those of all layers: a later forward must not take them for fewer
    held.saved = {
        tag: [(tensors[f"state.{number}.{tag}"], tensors[f"inputs.{number}.{tag}"]) for number in groups]
        for tag in [tag for tag in tags.saved if tag <= length][-states._most_saved :]
    }
    held.fresh = None
    if tags.tag > length:
        states._restore(slot, length)
        return
    places = [place % LOG for place in range(tags.tag, length)]
    for number, (planes, kept, log) in enumerate(states._stored.groups):
        planes[:, 0, slot], kept[:, 0, slot] = tensors[f"state.{number}"], tensors[f"inputs.{number}"]
        log[:, slot, places] = tensors[f"log.{number}"][:, : len(places)]
    held.begin(tags.tag, states._whole)
