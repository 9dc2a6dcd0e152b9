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
from typing import TYPE_CHECKING

import torch

from headstart.base.errors import InvalidBatch
from headstart.model.cut_points import CutPoints
from headstart.model.memory import bytes_of
from headstart.model.planes import LOG, Planes, StateShape
from headstart.model.walks import Store, Walk, visit_nodes, windows

if TYPE_CHECKING:
    from headstart.model.packed import Packed, Segment

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

_HINT = "a drafter that runs forwards of its own must stay within its slots; otherwise this is a bug of headstart's"


class States:
    """The states of a cache's recurrent layers. The slots' lengths are the cache's business. planes, kept, log: see
    `Planes`."""

    def __init__(self, shapes: Mapping[int, StateShape], slots: int, device: torch.device, saved: int) -> None:
        """saved: bytes of checkpoints that one slot may have."""
        taps = {shape.taps for shape in shapes.values()}
        if len(taps) != 1:
            raise InvalidBatch(f"recurrent layers whose convolutions have {sorted(taps)} taps", hint=_HINT)
        self.shapes = shapes
        self.taps = taps.pop()
        self._stored = Planes(shapes, slots, device)
        self.planes, self.kept, self.log = self._stored.planes, self._stored.kept, self._stored.log
        self._slots = [CutPoints() for _ in range(slots)]
        self._layers = max(shapes) + 1
        self._deepest = 0
        """The most of these layers that a forward has run: what a whole state has."""
        self._taken_back = 0
        """The most tokens that a caller has kept and then taken back: planes lie so far apart that one is left."""
        self._most_saved = _most_saved(shapes, saved)

    def memory(self) -> int:
        """Bytes of planes and logs, and of checkpoints as they are now."""
        saved = [tensor for slot in self._slots for parts in slot.saved.values() for part in parts for tensor in part]
        return self._stored.memory() + bytes_of(saved)

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
        slot.invalidate(start)
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
        before = slot.known
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
        inputs = windows(text, taps)
        if not draft.is_chain:
            visit_nodes(draft, nodes, held, text[len(text) - taps :], inputs, depths)
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
            self._slots[walk.slot].known = walk.before

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
        if ways := slot.ways(start, depth):
            tag, plane = max(ways)
            return plane, tag
        if start == 0 or slot.logged_from == 0:
            return None, 0
        raise InvalidBatch(f"the recurrent states of slot {number} are lost after a failure", hint=_HINT)

    def room(self, number: int, length: int) -> int:
        """Rows that forwards of some layers may add after the first `length` tokens of a slot: they write no plane, so
        all that has waited since the last one must stay in the log."""
        return LOG - (length - self._source(number, length, self._deepest)[1])

    # -- what a slot holds --------------------------------------------------------------------------------------------

    def keep(self, number: int, base: int, path: Sequence[int], *, saves: bool) -> None:
        """The text goes on to token `base`, then along the nodes of `path`: their logged rows move to its places.

        saves: whether later requests may begin with this text.
        """
        self._stored.gather(number, base, path)
        slot = self._slots[number]
        if saves and slot.fresh is not None and slot.fresh in slot.tags and slot.fresh not in slot.saved:
            slot.save(slot.fresh, self._stored.saved(number, slot.tags.index(slot.fresh)), self._most_saved)
        slot.fresh = None

    def reach(self, number: int, length: int) -> int:
        """The most of the first `length` tokens of a slot whose state there is."""
        return self._slots[number].reach(length, self._deepest)

    def cut(self, number: int, length: int, *, taken_back: int = 0) -> int:
        """Forget everything after the first `length` tokens, or after as many of them as there is a state of.

        taken_back: so many tokens that were kept belong to the text no more.
        """
        if taken_back <= MOST_DRAFTED:
            self._taken_back = max(self._taken_back, taken_back)
        slot, reached = self._slots[number], self.reach(number, length)
        slot.invalidate(reached)
        slot.fresh = None
        if reached == 0:
            slot.logged_from = 0
        elif slot.logged_from > 0 and not slot.ways(reached, self._deepest):
            self._restore(number, reached)
        return reached

    def copy(self, source: int, number: int, length: int) -> None:
        """Make the states of a slot those of another after its first `length` tokens, which it reaches."""
        theirs, slot = self._slots[source], self._slots[number]
        slot.saved = {tag: saved for tag, saved in theirs.saved.items() if tag <= length}
        slot.fresh = None
        begin, plane = max(theirs.ways(length, self._deepest), default=(0, None))
        if plane is None and theirs.logged_from > 0 and length > 0:
            self._restore(number, length)
            return
        self._stored.copy(source, number, plane, range(begin, length))
        slot.begin(begin, self._whole)

    def pretend(self, number: int, length: int) -> None:
        """Let a slot count as holding so many tokens, whatever its states are; for timing."""
        self._stored.clear(number)
        self._slots[number] = CutPoints()
        self._slots[number].begin(length, self._whole)

    def check(self, number: int, length: int) -> None:
        """Audit what is known of a slot that holds so many tokens, and whose last forward has been kept or forgotten:
        there is a state of all of them, and none of more."""
        self._slots[number].check(number, length, self._deepest, self._most_saved)

    def _restore(self, number: int, tag: int) -> None:
        """Begin a slot with its checkpoint of so many tokens."""
        self._stored.restore(number, self._slots[number].saved[tag])
        self._slots[number].begin(tag, self._whole)

    @property
    def _whole(self) -> int:
        """The layers of a whole state."""
        return self._deepest or self._layers


def states_bytes(shapes: Mapping[int, StateShape], *, saved: int) -> int:
    """Bytes of one slot, its checkpoints among them."""
    checkpoints = _most_saved(shapes, saved) * _checkpoint_bytes(shapes)
    return sum(4 * shape.numbers_per_slot for shape in shapes.values()) + checkpoints


def _most_saved(shapes: Mapping[int, StateShape], saved: int) -> int:
    """Checkpoints of a slot that take no more than `saved` bytes; at least one."""
    return max(1, min(MOST_SAVED, saved // max(1, _checkpoint_bytes(shapes))))


def _checkpoint_bytes(shapes: Mapping[int, StateShape]) -> int:
    return sum(shape.saved_bytes for shape in shapes.values())
