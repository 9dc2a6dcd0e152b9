"""What is known of one slot's states: how much of the text each plane, the log and the checkpoints have seen, and so
where the text can be cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from headstart.model.planes import PLANES, Saved

Known = tuple[list[int | None], int, int | None]
"""`CutPoints.tags`, `logged_from` and `fresh`."""


@dataclass(slots=True)
class CutPoints:
    """Of one slot. Its length is the cache's business."""

    tags: list[int | None] = field(default_factory=lambda: [None] * PLANES)
    """Tokens of the text that each plane has seen; None for a plane without use."""
    depths: list[int] = field(default_factory=lambda: [0] * PLANES)
    """Layers that have written each plane: a forward may end early."""
    logged_from: int = 0
    """The log holds every row of the text from this place on."""
    fresh: int | None = None
    """The tag of a plane that is worth a checkpoint once the text of the last forward is kept."""
    saved: dict[int, Saved] = field(default_factory=dict)
    """Checkpoints by their tags."""

    @property
    def known(self) -> Known:
        """What a forward changes, and gets back if it has not begun."""
        return self.tags, self.logged_from, self.fresh

    @known.setter
    def known(self, known: Known) -> None:
        self.tags, self.logged_from, self.fresh = known

    def ways(self, length: int, depth: int) -> list[tuple[int, int]]:
        """The tags and planes from which the state of so many layers after `length` tokens can be made."""
        return [
            (tag, plane)
            for plane, (tag, layers) in enumerate(zip(self.tags, self.depths, strict=True))
            if tag is not None and layers >= depth and tag <= length and (tag == length or self.logged_from <= tag)
        ]

    def reach(self, length: int, depth: int) -> int:
        """The most of the first `length` tokens whose state there is, of so many layers."""
        if self.logged_from == 0:
            return length
        planes = (
            length if self.logged_from <= tag else tag
            for tag, layers in zip(self.tags, self.depths, strict=True)
            if tag is not None and tag <= length and layers >= depth
        )
        return max((0, *planes, *(tag for tag in self.saved if tag <= length)))

    def begin(self, tag: int, layers: int) -> None:
        """Plane 0 alone is of use, and the log from its tag on."""
        self.tags, self.depths, self.logged_from = [tag or None, None], [layers, 0], tag

    def invalidate(self, length: int) -> None:
        """What was made of more tokens than these belongs to another text, or to a forward that was not kept."""
        self.tags = [None if tag is None or tag > length else tag for tag in self.tags]
        if any(tag > length for tag in self.saved):
            self.saved = {tag: saved for tag, saved in self.saved.items() if tag <= length}

    def save(self, tag: int, saved: Saved, most: int) -> None:
        """Take in a checkpoint, and of more than `most` leave one out."""
        self.saved[tag] = saved
        if len(self.saved) > most:
            # without the one whose neighbours are nearest to each other the rest lies most evenly; the last one stays
            tags = [0, *sorted(self.saved)]
            gaps = {tags[i]: tags[i + 1] - tags[i - 1] for i in range(1, len(tags) - 1)}
            del self.saved[min(gaps, key=lambda each: gaps[each]) if gaps else min(self.saved)]

    def check(self, number: int, length: int, depth: int, most: int) -> None:
        """Audit what is known of slot `number`, which holds so many tokens."""
        tags = [*(tag for tag in self.tags if tag is not None), *self.saved]
        assert all(0 < tag <= length for tag in tags), f"slot {number} holds {length} tokens, and states of {tags}"
        assert self.reach(length, depth) == length, f"slot {number} holds {length} tokens, and no state of them"
        assert len(self.saved) <= most, f"slot {number} has {len(self.saved)} checkpoints"
