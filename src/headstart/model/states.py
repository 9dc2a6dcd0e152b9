"""States of recurrent layers that can be rolled back: planes with tags, and a log of the rows that came after them.

Keys and values can be cut at any token; the state of a recurrent layer is that of one text alone. So a slot keeps, for
each such layer, two planes, each the state after a known number of tokens (its tag), and a log of what later rows put
into the state, by place. A forward begins with the newest plane that its text has, runs the logged rows after it again,
and then its own: one function, once for each token along its path, in the order of the text. A state therefore has the
same bits however a text was read. Rejecting a draft is forgetting rows; trees need no copies of states; a forward that
is never kept destroys nothing.

Replaying costs less than writing a state, so a new plane is written only when `FOLD` rows wait in the log, or when
several tokens are read at once. A prompt leaves a plane `LAST` tokens before its end, of which a checkpoint is made
where texts are kept: the next prompt of a conversation often begins like this one but for its last few tokens.

Forwards of the first layers alone write planes of those layers, which count only for forwards as deep. Where all
layers run on the same text too, they write none: what they draft is taken back.

Sources: replaying instead of copying, The Mamba in the Llama (arXiv:2408.15237); trees, STree (arXiv:2505.14969).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headstart.base.errors import InvalidBatch
from headstart.model.memory import bytes_of

if TYPE_CHECKING:
    from headstart.model.packed import Packed, Segment
    from headstart.types import Draft

LOG = 128
"""Rows of the log: those that wait to be replayed, the tokens of a short forward and its draft must fit."""
FOLD = 8
"""Rows that wait in the log before a plane is written; and the fewest tokens of a prompt after which one is."""
SHORT = 32
"""Tokens of the text that a forward logs one by one; of more, only the last ones are logged."""
LAST = 16
"""So many of them, so that a text can be cut a little before its end at no cost."""
MOST_DRAFTED = 64
"""Nodes of the largest draft."""
MOST_SAVED = 8
"""Checkpoints of a slot."""
PLANES = 2

_HINT = "a drafter that runs forwards of its own must stay within its slots; otherwise this is a bug of headstart's"


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


@dataclass(frozen=True, slots=True)
class Store:
    """A plane that is to be written: the text's state after the first `visits` visits."""

    visits: int
    plane: int
    tag: int
    before: tuple[int, ...]
    """The last taps - 1 inputs of that text, the oldest first."""


@dataclass(slots=True)
class Walk:
    """How the rows of one segment pass through the states of its slot, in every recurrent layer alike.

    A visit is one application of a layer's function to an input. Inputs are numbered: the segment's rows, then the
    logged rows of `logged`, then the taps - 1 that the source plane has kept. Those that are rows have an output.
    Visits are in an order in which each node of a draft follows its parent, with only the parent's other descendants
    between them. Numbers lie flat, because a step has little time for anything else.
    """

    slot: int
    rows: tuple[int, int]
    """Where the segment's rows stand in the forward: from, to."""
    source: int | None
    """The plane to begin with; None for the empty text, whose state and kept inputs are zeros."""
    logged: list[int]
    """Indices of the log."""
    inputs: list[int]
    """[visits, taps]: what the convolution of each visit sums: inputs along its path, its own last."""
    depths: list[int]
    """Of each visit: 0 for one of the text, which changes the state in place; a draft's node of depth d makes state d
    of state d - 1 (and of the text's, for d = 1)."""
    stores: list[Store]
    written: range
    """The rows of the segment that are logged."""
    places: list[int]
    """The indices of the log that they go to."""
    before: tuple[list[int | None], int, int | None]
    """What was known of the slot: tags, `logged_from` and `fresh`."""

    @property
    def fed(self) -> int:
        """Rows of the segment."""
        return self.rows[1] - self.rows[0]


@dataclass(slots=True)
class _Slot:
    """What is known of one slot's states."""

    tags: list[int | None] = field(default_factory=lambda: [None] * PLANES)
    """Tokens of the text that each plane has seen; None for a plane without use."""
    depths: list[int] = field(default_factory=lambda: [0] * PLANES)
    """Layers that have written each plane: a forward may end early."""
    logged_from: int = 0
    """The log holds every row of the text from this place on."""
    fresh: int | None = None
    """The tag of a plane that is worth a checkpoint once the text of the last forward is kept."""
    saved: dict[int, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    """Checkpoints by their tags: of each shape, states and kept inputs."""


class States:
    """The states of a cache's recurrent layers. The slots' lengths are the cache's business.

    planes[layer]: [2, slots, numbers]. kept[layer]: [2, slots, taps - 1, channels], the last inputs of the convolution
    before each plane's tag. log[layer]: [slots, LOG, channels + gates].
    """

    def __init__(self, shapes: Mapping[int, StateShape], slots: int, device: torch.device, saved: int) -> None:
        """saved: bytes of checkpoints that one slot may have."""
        taps = {shape.taps for shape in shapes.values()}
        if len(taps) != 1:
            raise InvalidBatch(f"recurrent layers whose convolutions have {sorted(taps)} taps", hint=_HINT)
        self.shapes = shapes
        self.taps = taps.pop()
        self.planes: dict[int, Tensor] = {}
        self.kept: dict[int, Tensor] = {}
        self.log: dict[int, Tensor] = {}
        self._groups: list[tuple[Tensor, Tensor, Tensor]] = []
        for shape in dict.fromkeys(shapes.values()):  # one tensor for layers alike: a cut is then few operations
            layers = [layer for layer, other in shapes.items() if other == shape]
            sizes = ((PLANES, slots, shape.numbers), (PLANES, slots, shape.taps - 1, shape.channels))
            # empty, not zeros: pages of slots that are never used are never touched
            planes, kept = (torch.empty(len(layers), *size, device=device) for size in sizes)
            log = torch.empty(len(layers), slots, LOG, shape.logged, device=device)
            self._groups.append((planes, kept, log))
            for number, layer in enumerate(layers):
                self.planes[layer], self.kept[layer], self.log[layer] = planes[number], kept[number], log[number]
        self._slots = [_Slot() for _ in range(slots)]
        self._layers = max(shapes) + 1
        self._deepest = 0
        """The most of these layers that a forward has run: what a whole state has."""
        self._taken_back = 0
        """The most tokens that a caller has kept and then taken back: planes lie so far apart that one is left."""
        self._most_saved = _most_saved(shapes, saved)

    def memory(self) -> int:
        """Bytes of planes and logs, and of checkpoints as they are now."""
        saved = [tensor for slot in self._slots for parts in slot.saved.values() for part in parts for tensor in part]
        return bytes_of((*(tensor for group in self._groups for tensor in group), *saved))

    # -- forwards -----------------------------------------------------------------------------------------------------

    def walks(self, packed: Packed, layers: int | None) -> list[Walk]:
        """How each segment of a forward passes. layers: those that run, if not all.

        Planes that it writes count once `written` has been told so. A forward of some layers that raises here has
        changed nothing.

        Raises:
            InvalidBatch: a draft is too large for the log, or a slot's text has no state.
        """
        depth = self._depth(layers)
        segments = list(zip(packed.segments, packed.starts, packed.bounds, strict=True))
        for segment, start, _ in segments:
            self._check(segment, start, depth)
        if depth > self._deepest:
            self._deepest = depth
            for slot in self._slots:  # of fewer layers
                slot.saved.clear()
        return [self._walk(segment, start, rows, depth) for segment, start, rows in segments]

    def _depth(self, layers: int | None) -> int:
        """Of the layers up to the last recurrent one, those that run."""
        return self._layers if layers is None else min(layers, self._layers)

    def _check(self, segment: Segment, start: int, depth: int) -> None:
        causal, drafted = len(segment.causal), len(segment.draft)
        _, tag = self._source(segment.slot, start, depth)
        if depth < self._deepest and tag < start:  # it may not write the plane of the text, so the rows that wait stay
            most = LOG - (start + causal - tag)
        else:
            most = LOG - (LAST if self._reads_long(causal, start + causal + drafted - tag, depth) else causal)
        if drafted > most:
            raise InvalidBatch(
                f"{causal} tokens and a draft of {drafted} after {start}, and the log of recurrent states has {LOG} "
                f"rows, of which {start - tag} are needed",
                hint=_HINT,
            )

    def _reads_long(self, causal: int, rows: int, depth: int) -> bool:
        """Whether a forward logs the last of its tokens alone. rows: of the log, if it logged them all. What a forward
        of some layers reads may be taken back, so it logs what it can."""
        return causal > SHORT and (depth == self._deepest or rows > LOG)

    def _walk(self, segment: Segment, start: int, rows: tuple[int, int], depth: int) -> Walk:
        slot, causal, draft, held = self._slots[segment.slot], len(segment.causal), segment.draft, segment.held
        taps, end = self.taps - 1, start + causal
        self._invalidate(slot, start)
        source, tag = self._source(segment.slot, start, depth)
        waiting, whole = start - tag, depth == self._deepest
        crowded = end + len(draft) - tag > LOG  # rows that wait would be written over
        long = self._reads_long(causal, end + len(draft) - tag, depth)
        first = end - LAST if long else start  # the first place that is logged
        reads = whole and causal >= FOLD
        patient = max(FOLD, self._taken_back)
        points = []  # the places where planes are written
        if waiting and (long or crowded or (whole and not reads and waiting >= patient)):
            points.append(start)
        if long or (reads and end - LAST > (points or [tag])[0]):
            points.append(end - LAST)
        # inputs by their numbers: rows, logged rows, those that the source keeps
        fed, logged = len(segment), [place % LOG for place in (*range(tag, start), *range(end, end + held))]
        kept = range(fed + len(logged), fed + len(logged) + taps)
        text = [*kept, *range(fed, fed + waiting), *range(causal)]
        nodes = [*range(fed + waiting, fed + len(logged)), *range(causal, fed)]
        planes = (0, 1) if source is None else (1 - source, source)
        stores = [
            Store(point - tag, plane, point, tuple(text[point - tag : point - tag + taps]))
            for point, plane in zip(points, planes, strict=False)
        ]
        before = slot.tags, slot.logged_from, slot.fresh
        if stores:
            lost = {store.plane for store in stores}
            slot.tags = [None if plane in lost else tag for plane, tag in enumerate(slot.tags)]
        slot.fresh = None
        if reads:
            slot.fresh = end - LAST if end - LAST in points else tag
        slot.logged_from = max(first if long or slot.logged_from > start else slot.logged_from, end + len(draft) - LOG)
        depths = [0] * (waiting + causal)
        if draft.is_chain:
            text += nodes
            depths += draft.depths
        inputs = _windows(text, taps)
        if not draft.is_chain:
            _visit_nodes(draft, nodes, held, text[len(text) - taps :], inputs, depths)
        return Walk(
            slot=segment.slot,
            rows=rows,
            source=source,
            logged=logged,
            inputs=inputs,
            depths=depths,
            stores=stores,
            written=range(first - start, fed),
            places=[place % LOG for place in (*range(first, end), *range(end + held, end + len(draft)))],
            before=before,
        )

    def unwritten(self, walks: Sequence[Walk]) -> None:
        """These walks have not been begun, and never will be."""
        for walk in walks:
            slot = self._slots[walk.slot]
            slot.tags, slot.logged_from, slot.fresh = walk.before

    def written(self, walks: Sequence[Walk], layers: int | None) -> None:
        """The planes of these walks have been written, in so many layers."""
        for walk in walks:
            slot = self._slots[walk.slot]
            for store in walk.stores:
                slot.tags[store.plane] = store.tag
                slot.depths[store.plane] = self._depth(layers)

    def _source(self, number: int, start: int, depth: int) -> tuple[int | None, int]:
        """The plane from which the state of so many layers after `start` tokens is made, and its tag."""
        slot = self._slots[number]
        if ways := self._ways(slot, start, depth):
            tag, plane = max(ways)
            return plane, tag
        if start == 0 or slot.logged_from == 0:
            return None, 0
        raise InvalidBatch(f"the recurrent states of slot {number} are lost after a failure", hint=_HINT)

    @staticmethod
    def _ways(slot: _Slot, length: int, depth: int) -> list[tuple[int, int]]:
        """The tags and planes from which the state of so many layers after `length` tokens can be made."""
        return [
            (tag, plane)
            for plane, (tag, layers) in enumerate(zip(slot.tags, slot.depths, strict=True))
            if tag is not None and layers >= depth and tag <= length and (tag == length or slot.logged_from <= tag)
        ]

    def room(self, number: int, length: int) -> int:
        """Rows that forwards of some layers may add after the first `length` tokens of a slot: they write no plane, so
        all that has waited since the last one must stay in the log."""
        return LOG - (length - self._source(number, length, self._deepest)[1])

    # -- what a slot holds --------------------------------------------------------------------------------------------

    def keep(self, number: int, base: int, path: Sequence[int], *, saves: bool) -> None:
        """The text goes on to token `base`, then along the nodes of `path`: their logged rows move to its places.

        saves: whether later requests may begin with this text.
        """
        if list(path) != list(range(len(path))):
            to = [(base + i) % LOG for i in range(len(path))]
            of = [(base + node) % LOG for node in path]
            for _, _, log in self._groups:
                log[:, number, to] = log[:, number, of]  # the index makes a copy first
        slot = self._slots[number]
        if saves and slot.fresh is not None and slot.fresh in slot.tags and slot.fresh not in slot.saved:
            self._save(slot, slot.fresh, number)
        slot.fresh = None

    def _save(self, slot: _Slot, tag: int, number: int) -> None:
        plane = slot.tags.index(tag)
        slot.saved[tag] = [
            (planes[:, plane, number].clone(), kept[:, plane, number].clone()) for planes, kept, _ in self._groups
        ]
        if len(slot.saved) > self._most_saved:
            # without the one whose neighbours are nearest to each other the rest lies most evenly; the last one stays
            tags = [0, *sorted(slot.saved)]
            gaps = {tags[i]: tags[i + 1] - tags[i - 1] for i in range(1, len(tags) - 1)}
            del slot.saved[min(gaps, key=lambda each: gaps[each]) if gaps else min(slot.saved)]

    def reach(self, number: int, length: int) -> int:
        """The most of the first `length` tokens of a slot whose state there is."""
        slot = self._slots[number]
        if slot.logged_from == 0:
            return length
        planes = (
            length if slot.logged_from <= tag else tag
            for tag, depth in zip(slot.tags, slot.depths, strict=True)
            if tag is not None and tag <= length and depth >= self._deepest
        )
        return max((0, *planes, *(tag for tag in slot.saved if tag <= length)))

    def cut(self, number: int, length: int, *, taken_back: int = 0) -> int:
        """Forget everything after the first `length` tokens, or after as many of them as there is a state of.

        taken_back: so many tokens that were kept belong to the text no more.
        """
        if taken_back <= MOST_DRAFTED:
            self._taken_back = max(self._taken_back, taken_back)
        slot, reached = self._slots[number], self.reach(number, length)
        self._invalidate(slot, reached)
        slot.fresh = None
        if reached == 0:
            slot.logged_from = 0
        elif slot.logged_from > 0 and not self._ways(slot, reached, self._deepest):
            self._restore(slot.saved[reached], number, reached)
        return reached

    def copy(self, source: int, number: int, length: int) -> None:
        """Make the states of a slot those of another after its first `length` tokens, which it reaches."""
        theirs, slot = self._slots[source], self._slots[number]
        slot.saved = {tag: saved for tag, saved in theirs.saved.items() if tag <= length}
        slot.fresh = None
        begin, plane = max(self._ways(theirs, length, self._deepest), default=(0, None))
        if plane is None and theirs.logged_from > 0 and length > 0:
            self._restore(slot.saved[length], number, length)
            return
        places = [place % LOG for place in range(begin, length)]
        for planes, kept, log in self._groups:
            log[:, number, places] = log[:, source, places]
            if plane is not None:
                planes[:, 0, number], kept[:, 0, number] = planes[:, plane, source], kept[:, plane, source]
        self._begin(slot, begin)

    def pretend(self, number: int, length: int) -> None:
        """Let a slot count as holding so many tokens, whatever its states are; for timing."""
        for planes, kept, _ in self._groups:
            planes[:, 0, number], kept[:, 0, number] = 0.0, 0.0
        self._slots[number] = _Slot()
        self._begin(self._slots[number], length)

    def check(self, number: int, length: int) -> None:
        """Audit what is known of a slot that holds so many tokens, and whose last forward has been kept or forgotten:
        there is a state of all of them, and none of more."""
        slot = self._slots[number]
        tags = [*(tag for tag in slot.tags if tag is not None), *slot.saved]
        assert all(0 < tag <= length for tag in tags), f"slot {number} holds {length} tokens, and states of {tags}"
        assert self.reach(number, length) == length, f"slot {number} holds {length} tokens, and no state of them"
        assert len(slot.saved) <= self._most_saved, f"slot {number} has {len(slot.saved)} checkpoints"

    def _restore(self, saved: Sequence[tuple[Tensor, Tensor]], number: int, tag: int) -> None:
        """Begin a slot with a checkpoint."""
        for (planes, kept, _), (state, inputs) in zip(self._groups, saved, strict=True):
            planes[:, 0, number], kept[:, 0, number] = state, inputs
        self._begin(self._slots[number], tag)

    def _begin(self, slot: _Slot, tag: int) -> None:
        """Plane 0 alone is of use, and the log from its tag on."""
        slot.tags, slot.depths, slot.logged_from = [tag or None, None], [self._deepest or self._layers, 0], tag

    @staticmethod
    def _invalidate(slot: _Slot, length: int) -> None:
        """What was made of more tokens than these belongs to another text, or to a forward that was not kept."""
        slot.tags = [None if tag is None or tag > length else tag for tag in slot.tags]
        if any(tag > length for tag in slot.saved):
            slot.saved = {tag: saved for tag, saved in slot.saved.items() if tag <= length}


def states_bytes(shapes: Mapping[int, StateShape], *, saved: int) -> int:
    """Bytes of one slot, its checkpoints among them."""
    checkpoints = _most_saved(shapes, saved) * _checkpoint_bytes(shapes)
    return sum(4 * shape.numbers_per_slot for shape in shapes.values()) + checkpoints


def _most_saved(shapes: Mapping[int, StateShape], saved: int) -> int:
    """Checkpoints of a slot that take no more than `saved` bytes; at least one."""
    return max(1, min(MOST_SAVED, saved // max(1, _checkpoint_bytes(shapes))))


def _checkpoint_bytes(shapes: Mapping[int, StateShape]) -> int:
    return sum(4 * (shape.numbers + (shape.taps - 1) * shape.channels) for shape in shapes.values())


def _windows(path: Sequence[int], before: int) -> list[int]:
    """Of each number of a path but the first `before` ones: so many numbers before it, and itself, all in a row."""
    found: list[int] = []
    for end in range(before + 1, len(path) + 1):
        found += path[end - before - 1 : end]
    return found


def _visit_nodes(
    draft: Draft, nodes: Sequence[int], held: int, last: Sequence[int], inputs: list[int], depths: list[int]
) -> None:
    """Add the visits of a draft's nodes, each after its parent. nodes: the input of each. last: the text's last."""
    needed = set(range(held, len(draft)))  # the nodes that are fed, and what lies above them
    for node in range(held, len(draft)):
        parent = draft.parents[node]
        while parent >= 0 and parent not in needed:
            needed.add(parent)
            parent = draft.parents[parent]
    waiting = [(node, list(last)) for node in reversed(draft.children[0])]
    while waiting:
        node, before = waiting.pop()
        if node not in needed:
            continue
        path = [*before, nodes[node]]
        inputs += path
        depths.append(draft.depths[node])
        waiting += [(child, path[1:]) for child in reversed(draft.children[node + 1])]
