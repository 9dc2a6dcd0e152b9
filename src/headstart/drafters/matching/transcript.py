"""A request's committed text as a draft model with another tokenizer reads it, kept up to date a few tokens at a time.

Committed text only grows, but its last tokens may merge differently once more of it is there, and may end within a
character. So each time the last `WINDOW` draft tokens are made again, together with what is new, and joined to the
older ones where both agree; if they agree nowhere the window grows, up to the whole text. The result is what
tokenising the whole text would give, as long as no token depends on text more than a window before it.

A special token of the target ends a stretch of text: tokens never merge across it. The draft reads its own special
token of the same text or use there, else the literal text, or nothing where it only opens, closes or pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headstart.model.tokens.translation import Translation
from headstart.model.tokens.vocabulary import Encoded, Vocabulary

WINDOW = 32
"""Draft tokens that are made again each time."""
MARGIN = 8
"""Of these, tokens at the front that are not believed: they may lack the text before them."""


class Transcript(Protocol):
    """ids: the draft's tokens for all that was committed."""

    ids: list[int]

    def follow(self, tokens: Sequence[int]) -> int:
        """Read all committed target tokens, of which those read before are known; returns how many of the ids
        have not changed since."""
        ...


class Renumbered:
    """The transcript where both tokenizers have the same words: token by token, no text in between."""

    def __init__(self, translation: Translation) -> None:
        self.ids: list[int] = []
        self._translation = translation
        self._read = 0

    def follow(self, tokens: Sequence[int]) -> int:
        stable = len(self.ids)
        for token in tokens[self._read :]:
            self.ids += mark(self._translation, token)
        self._read = len(tokens)
        return stable


class Retokenised:
    """The transcript through text. It begins with the special tokens that the draft's texts begin with."""

    def __init__(self, translation: Translation) -> None:
        self.ids = list(translation.draft.opening)
        self._translation = translation
        self._read = 0
        self._stretches = 0
        self._text = bytearray()  # of the present stretch
        self._begin = len(self.ids)  # where its tokens begin
        self._ends: list[int] = []  # where each ends in its text

    def follow(self, tokens: Sequence[int]) -> int:
        target = self._translation.target
        stable, new = len(self.ids), bytearray()
        for at in range(self._read, len(tokens)):
            word = target.word(tokens[at])
            if word is not None:
                new += word
                continue
            stable = min(stable, self._extend(bytes(new)))
            new.clear()
            if at > 0 or tokens[at] != target.roles.get("bos"):
                self._mark(tokens[at])
        self._read = len(tokens)
        return min(stable, self._extend(bytes(new)))

    def _mark(self, token: int) -> None:
        self.ids += mark(self._translation, token)
        self._stretches += 1
        self._begin = len(self.ids)
        self._text.clear()
        self._ends.clear()

    def _extend(self, new: bytes) -> int:
        """Append to the stretch; returns how many ids have not changed."""
        if not new:
            return len(self.ids)
        if not self._text:
            new = respaced(new, self._translation.target, self._translation.draft, self._stretches)
        self._text += new
        window = WINDOW
        while True:
            first = self._boundary(len(self._ends) - window)
            start = self._ends[first - 1] if first else 0
            made = self._translation.draft.encode(bytes(self._text[start:]))
            kept = self._join(made, first, start)
            if kept is not None:
                return self._begin + kept
            window *= 4

    def _boundary(self, index: int) -> int:
        """The last token up to `index` that begins with a whole character, or 0."""
        while index > 0 and self._text[self._ends[index - 1]] & 0xC0 == 0x80:
            index -= 1
        return max(index, 0)

    def _join(self, made: Encoded, first: int, start: int) -> int | None:
        """Replace the tokens from `first` on by those made of the text from `start` on, keeping older ones up to where
        both agree; returns how many of the stretch are as before, None if they agree nowhere."""
        old = self.ids[self._begin :]
        new = list(zip(made.ids, (start + end for end in made.ends), strict=True))
        kept, begin = 0, 0
        if first > 0:
            places = {pair: at for at, pair in enumerate(new)}
            agreed = next((i for i in range(first + MARGIN, len(old)) if (old[i], self._ends[i]) in places), None)
            if agreed is None:
                return None
            kept, begin = agreed + 1, places[old[agreed], self._ends[agreed]] + 1
        del new[:begin]
        same = 0
        for (token, _), before in zip(new, old[kept:], strict=False):
            if token != before:
                break
            same += 1
        self.ids[self._begin + kept :] = [token for token, _ in new]
        self._ends[kept:] = [end for _, end in new]
        return kept + same


def transcript(translation: Translation) -> Transcript:
    """An empty one, of the kind that fits the pair."""
    return Renumbered(translation) if translation.method == "ids" else Retokenised(translation)


def mark(translation: Translation, token: int) -> tuple[int, ...]:
    """One target token by itself, in the draft's tokens."""
    found = translation.to_draft.get(token)
    if found is not None:
        return (found,)
    target = translation.target
    word = target.word(token)
    if word is None and token not in target.roles.values():
        word = target.text(token)
    return translation.draft.encode(word).ids if word else ()


def respaced(text: bytes, source: Vocabulary, goal: Vocabulary, stretch: int) -> bytes:
    """The beginning of a stretch of text (the first is number 0) as another tokenizer would have it: without the
    space that the one puts in front of a text, with the one that the other does."""
    if leads(source, stretch):
        text = text.removeprefix(b" ")
    return b" " + text if leads(goal, stretch) else text


def leads(vocabulary: Vocabulary, stretch: int) -> bool:
    return vocabulary.lead == "always" or (vocabulary.lead == "first" and stretch == 0)
