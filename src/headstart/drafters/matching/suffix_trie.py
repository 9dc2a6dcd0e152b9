"""Every suffix of some texts, with counts: what followed wherever the last few tokens have stood before.

A trie in which a branch that only one suffix takes is not stored: a leaf points into its text, where the suffix goes
on. A node exists for what occurs twice, so there are a few of them for each token, and appending a token visits the
suffixes that are still shared, at most `depth` of them: linear in the new tokens. Texts can be taken out again.

Source of the counts' use: SuffixDecoding (arXiv:2411.04975), section 4.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

ROOT = 0
DEPTH = 24
"""The longest suffix that is counted, in tokens; beyond it the latest text is followed."""


@dataclass(eq=False, slots=True)
class Text:
    """A growing sequence of tokens in a trie. ends[m] is the node of its last m tokens, as far as these occur twice."""

    tokens: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [ROOT])


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere in the trie: a node, or beyond a leaf, `at` tokens into its text (-1: the node itself)."""

    node: int
    at: int = -1


@dataclass(frozen=True, slots=True)
class Continuation:
    """A token that followed, in which share of the cases, and where that leads."""

    token: int
    share: float
    place: Place


class SuffixTrie:
    """Counts of all strings of at most `depth` tokens in the texts it holds."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        self._child: dict[int, int] = {}  # node << 32 | token -> node
        self._first = array("i", [0])  # a node's newest child, 0 for none
        self._next = array("i", [0])  # its next elder sibling
        self._token = array("i", [-1])
        self._count = array("i", [0])
        self._at = array("i", [-1])  # of a leaf: where in its text it goes on; -1 for other nodes
        self._text: list[list[int]] = [[]]
        self._free: list[int] = []

    @property
    def nodes(self) -> int:
        return len(self._count) - len(self._free)

    # -- changing it --------------------------------------------------------------------------------------------------

    def append(self, text: Text, token: int) -> None:
        """Make `text` one token longer."""
        tokens, ends = text.tokens, text.ends
        at = len(tokens)
        tokens.append(token)
        child, count = self._child, self._count
        reached = [ROOT]
        for depth, node in enumerate(ends, start=1):
            found = child.get(node << 32 | token)
            if found is None:
                self._leaf(node, token, tokens, at + 1)
                continue
            count[found] += 1
            if depth >= self.depth:
                self._text[found], self._at[found] = tokens, at + 1  # the latest text is followed from here
                continue
            if self._at[found] >= 0:
                self._branch(found)
            reached.append(found)
        text.ends = reached

    def extend(self, text: Text, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.append(text, token)

    def remove(self, text: Text) -> None:
        """Take out all that `text` brought in; it must not be used afterwards."""
        tokens = text.tokens
        for start in range(len(tokens)):
            node = ROOT
            for token in tokens[start : start + self.depth]:
                found = self._child[node << 32 | token]
                leaf = self._at[found] >= 0
                self._count[found] -= 1
                if self._count[found] == 0:
                    self._drop(node, found)
                if leaf:
                    break
                node = found

    def _leaf(self, parent: int, token: int, text: list[int], at: int) -> None:
        if self._free:
            node = self._free.pop()
            self._next[node], self._token[node], self._count[node], self._at[node] = self._first[parent], token, 1, at
            self._first[node], self._text[node] = 0, text
        else:
            node = len(self._count)
            self._next.append(self._first[parent])
            self._token.append(token)
            self._count.append(1)
            self._at.append(at)
            self._first.append(0)
            self._text.append(text)
        self._first[parent] = node
        self._child[parent << 32 | token] = node

    def _branch(self, leaf: int) -> None:
        """A second suffix has come to this leaf: the first one moves one token further."""
        text, at = self._text[leaf], self._at[leaf]
        self._at[leaf], self._text[leaf] = -1, _NOTHING
        if at < len(text):
            self._leaf(leaf, text[at], text, at + 1)

    def _drop(self, parent: int, node: int) -> None:
        del self._child[parent << 32 | self._token[node]]
        if self._first[parent] == node:
            self._first[parent] = self._next[node]
        else:
            elder = self._first[parent]
            while self._next[elder] != node:
                elder = self._next[elder]
            self._next[elder] = self._next[node]
        self._text[node] = _NOTHING
        self._at[node] = -1
        self._free.append(node)

    # -- asking -------------------------------------------------------------------------------------------------------

    def find(self, tokens: Sequence[int]) -> Place | None:
        """Where these tokens lead from the root, or None if they never stood together."""
        place = Place(ROOT)
        for token in tokens:
            if place.at >= 0:
                text = self._text[place.node]
                if place.at >= len(text) or text[place.at] != token:
                    return None
                place = Place(place.node, place.at + 1)
            else:
                found = self._child.get(place.node << 32 | token)
                if found is None:
                    return None
                place = Place(found, self._at[found])
        return place

    def longest(self, tokens: Sequence[int], most: int) -> int:
        """How many of the last `most` tokens stand here together, with something after them."""
        length = 0
        while length < min(most, len(tokens)):
            place = self.find(tokens[len(tokens) - length - 1 :])
            if place is None or next(self.after(place), None) is None:
                break
            length += 1
        return length

    def count(self, place: Place) -> int:
        """How often what leads here occurs (beyond a leaf that several texts share, at most that often)."""
        return self._count[place.node]

    def after(self, place: Place, drafted: Sequence[int] = ()) -> Iterator[Continuation]:
        """What followed, newest first. Beyond the end of a text, `drafted` is what goes on there: text that repeats
        itself is then followed round and round."""
        if place.at >= 0:
            text, beyond = self._text[place.node], place.at - len(self._text[place.node])
            if beyond < 0:
                yield Continuation(text[place.at], 1.0, Place(place.node, place.at + 1))
            elif beyond < len(drafted):
                yield Continuation(drafted[beyond], 1.0, Place(place.node, place.at + 1))
            return
        children = []
        total = 0
        child = self._first[place.node]
        while child:
            children.append(child)
            total += self._count[child]
            child = self._next[child]
        for child in children:
            yield Continuation(self._token[child], self._count[child] / total, Place(child, self._at[child]))


_NOTHING: list[int] = []
