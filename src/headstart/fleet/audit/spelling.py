"""Which token a server means when it gives its text instead of its id.

Several tokens may be written alike: halves of one character, special tokens that are written as nothing, ids that only
fill up a model's vocabulary. They cannot be told apart, so they are *merged*: a class of tokens counts as its lowest
id, in what was drawn and in the distribution it is compared with (`merged`), and since it is unknown how the text went
on, a completion ends where the first of them comes. That is exact: which completions end depends on nothing but what
was drawn.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import IncompatibleTokenizer
from headstart.model.tokens.vocabulary import Vocabulary

_BYTES = re.compile(r"bytes:((?:\\x[0-9a-fA-F]{2})+)")
Name = int | str
"""A token as a server tells it: its id, or a string."""


class Spelling:
    """The tokens of a reference as servers write them.

    Two conventions are known: the text a token writes (special tokens as nothing or as their name), and the tokenizer's
    own spelling ("Ġadd", "▁add"). The first in which all that is seen has a meaning is taken, and kept.

    Args:
        tokenizer: of transformers.
        vocab_size: V, the width of the reference's logits; ids that no token has are written as nothing.
        ends: ids that end a text. A server may leave the last of them out, so they are one class.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, ends: Iterable[int] = ()) -> None:
        self.vocab_size = vocab_size
        self.ends = frozenset(ends)
        texts, names, pieces = _written(tokenizer, vocab_size)
        self.texts: tuple[str, ...] = tuple(texts)
        """What each token writes; special tokens write nothing."""
        written = _inverse(texts, self.ends)
        named = {names[i]: written[texts[i]] for i in range(vocab_size) if not texts[i] and names[i] not in written}
        self._conventions = [written | named, _inverse(pieces, self.ends)]

    def tokens(self, names: Sequence[Name]) -> tuple[tuple[int, ...], bool]:
        """The ids of a completion, and whether they are all of it: a token that could be several is the last.

        Raises:
            IncompatibleTokenizer: a string that no token of the reference writes.
        """
        unknown: list[str] = []
        for convention in self._conventions:
            missing = [name for name in names if isinstance(name, str) and _plain(name) not in convention]
            if not missing:
                self._conventions = [convention]
                return _read(names, convention)
            unknown = unknown or missing
        raise IncompatibleTokenizer(
            f"the server wrote {unknown[0]!r}, which is no token of the reference",
            hint="give as --model the very model the server runs, with its own tokenizer files",
            differences=tuple(f"{string!r} is no token of the reference" for string in unknown[:5]),
        )

    def token_class(self) -> NDArray[np.int64]:
        """[V]: the id that each token counts as."""
        token_class = np.arange(self.vocab_size)
        for ids in self._conventions[0].values():
            token_class[list(ids)] = ids[0]
        return token_class


def merged(distributions: NDArray[np.floating[Any]], token_class: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
    """distributions [n, V] with the mass of every token moved to the one it counts as (`Spelling.token_class`)."""
    out = np.zeros_like(distributions)
    np.add.at(out.T, token_class, distributions.T)
    return out


def _read(names: Sequence[Name], convention: dict[str, tuple[int, ...]]) -> tuple[tuple[int, ...], bool]:
    found: list[int] = []
    for name in names:
        ids = (name,) if isinstance(name, int) else convention[_plain(name)]
        found.append(ids[0])
        if len(ids) > 1:
            return tuple(found), False
    return tuple(found), True


def _plain(string: str) -> str:
    """A token as text; "bytes:\\xe2\\x96" is how some servers write half a character."""
    raw = _BYTES.fullmatch(string)
    if raw is None:
        return string
    return bytes(int(byte, 16) for byte in raw[1].split("\\x")[1:]).decode("utf-8", "replace")


def _written(tokenizer: Any, vocab_size: int) -> tuple[list[str], list[str], list[str]]:
    """What each id is written as: special tokens as nothing, or by name; then as the tokenizer spells it."""
    try:
        vocabulary = Vocabulary(tokenizer, name="the reference")
        words = [vocabulary.word(i) for i in range(vocab_size)]
        texts = ["" if word is None else word.decode("utf-8", "replace") for word in words]
        names = {i: (vocabulary.text(i) or b"").decode("utf-8", "replace") for i in range(vocab_size)}
    except IncompatibleTokenizer:
        texts = [str(tokenizer.decode([i], skip_special_tokens=True)) for i in range(min(vocab_size, len(tokenizer)))]
        texts += [""] * (vocab_size - len(texts))
        names = {i: str(tokenizer.decode([i])) for i in tokenizer.all_special_ids}
    pieces = tokenizer.convert_ids_to_tokens(list(range(min(vocab_size, len(tokenizer)))))
    spelled = [piece or "" for piece in pieces] + [""] * (vocab_size - len(pieces))
    return texts, [texts[i] or names.get(i, "") for i in range(vocab_size)], spelled


def _inverse(written: Sequence[str], ends: frozenset[int]) -> dict[str, tuple[int, ...]]:
    """The ids of each string, lowest first. The ends of a text are one class, under every string of theirs."""
    ids: dict[str, list[int]] = defaultdict(list)
    for token, string in enumerate(written):
        ids[string].append(token)
    together = sorted({other for end in ends for other in ids[written[end]]} | ends)
    inverse = {string: tuple(group) for string, group in ids.items()}
    for end in ends:
        inverse[written[end]] = tuple(together)
    return inverse
