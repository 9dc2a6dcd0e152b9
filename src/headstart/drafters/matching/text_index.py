"""A file of many texts in which the last tokens of any other text can be looked up: a suffix array over token ids.

The file is mapped into memory, so that all processes on a machine share it and only what is looked at is read. It
never changes while it is in use, and it only proposes what to draft. So an index changes how fast a text is written,
and neither the text of a seed under rule "coupled" nor any distribution.

Source of the suffix array by doubling: Manber and Myers, SIAM J. Comput. 22, 1993; three tokens fit into the first key.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from headstart.base.errors import DamagedStore, InvalidOption
from headstart.base.files import replacing
from headstart.drafters.matching.last_copy import Copied, Match
from headstart.drafters.matching.ngram_index import COMPARED, alike

SURE = 4
"""Tokens of match that are required: fewer are found in any large index, and say little."""
LENGTHS = (6, 8, 12, 16, 24, COMPARED)
"""Further lengths that are looked up, in order, while many places match."""
FEW = 16
"""Places that are compared one by one."""
COUNTED = 64
"""Places of which the continuations are counted, evenly spread over all."""
FACTOR = 2
"""Most tokens of a continuation for each that matches."""
LEAST = 0.1
"""Continuations of a lower share are not drafted."""
_END = -1  # after each text
_DEPTH = 48  # tokens by which places are in order: more than are compared, so that longer matches are together, too
_FORMAT = "headstart index 1"
_HINT = "write it again: headstart index DIR --model MODEL --output FILE"


class TextIndex:
    """Texts, findable by any few of their tokens.

    Args:
        tokens: [N] of all texts, with -1 after each.
        order: [N] all places of `tokens`, sorted by the tokens from there on.
    """

    def __init__(self, tokens: NDArray[np.int32], order: NDArray[np.int32]) -> None:
        self._arrays = tokens, order
        self.tokens, self._order = tokens.data, order.data  # quicker to read number by number

    def __len__(self) -> int:
        """Tokens, with the end of each text."""
        return len(self.tokens)

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]]) -> TextIndex:
        """The index of these texts. It takes about 40 bytes of memory for each token while it is made, then 8."""
        parts = chain.from_iterable((np.asarray(text, np.int32), _ENDING) for text in texts)
        tokens = np.concatenate([np.empty(0, np.int32), *parts])
        return cls(tokens, _sorted_places(tokens))

    def save(self, path: Path, tokenizer: Any) -> None:
        """Write it to a safetensors file, which is replaced as a whole or not at all. tokenizer: that of the texts."""
        tensors = {name: torch.from_numpy(each) for name, each in zip(("tokens", "order"), self._arrays, strict=True)}
        with replacing(path) as part:
            save_file(tensors, part, {"format": _FORMAT, "vocabulary": vocabulary_hash(tokenizer)})

    @classmethod
    def open(cls, path: str | Path, tokenizer: Any) -> TextIndex:
        """Map a file that `save` has written. tokenizer: of the model that is to be drafted for.

        Raises:
            InvalidOption: there is no such file, the model has no tokenizer, or it is not the index's.
            DamagedStore: it is no index, cut short, or contradicts itself.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise InvalidOption(f"there is no index {path}", hint=_HINT)
        if tokenizer is None:
            raise InvalidOption("this model has no tokenizer, and an index is of one", hint="leave the index out")
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise DamagedStore(f"{path} is not an index of this version", hint=_HINT)
                if metadata.get("vocabulary") != vocabulary_hash(tokenizer):
                    raise InvalidOption(f"{path} was written with the tokenizer of another model", hint=_HINT)
                tokens, order = (file.get_tensor(name) for name in ("tokens", "order"))
        except (SafetensorError, OSError) as error:
            raise DamagedStore(f"{path} cannot be read as an index: {error}", hint=_HINT) from error
        if not (tokens.dtype == order.dtype == torch.int32 and tokens.dim() == 1 and tokens.shape == order.shape):
            raise DamagedStore(f"{path} does not hold what an index holds", hint=_HINT)
        count = len(tokens)
        inside = count == 0 or (
            int(tokens[-1]) == _END and int(tokens.min()) >= _END and int(tokens.max()) < len(tokenizer)
            and int(order.min()) >= 0 and int(order.max()) < count
        )  # fmt: skip
        if not inside:
            raise DamagedStore(f"{path} leads outside of its own texts, or of the vocabulary", hint=_HINT)
        return cls(tokens.numpy(), order.numpy())

    def after(self, tokens: Sequence[int], least: int, most: int) -> Copied | None:
        """What followed the last of these tokens where the most of them are: the commonest continuation, by the share
        of places in which each token of it followed.

        Args:
            least: so many must match, and at least `SURE`. None where fewer do.
            most: tokens of the continuation, which has no more than `FACTOR` for each that matches.
        """
        ends, matched = self._ends(tokens, max(least, SURE))
        most = min(most, FACTOR * matched)
        found: list[int] = []
        chance, expected = 1.0, 0.0
        while len(found) < most:
            after = Counter(self.tokens[end + len(found)] for end in ends)
            token, count = after.most_common(1)[0]
            chance *= count / len(ends)
            if token == _END or chance < LEAST:
                break
            if count < len(ends):
                ends = [end for end in ends if self.tokens[end + len(found)] == token]
            expected += chance
            found.append(token)
        return Copied(Match(self.tokens, ends[0], matched), found, expected) if found else None

    def _ends(self, tokens: Sequence[int], least: int) -> tuple[list[int], int]:
        """Places after which most of the last tokens are the same, some of them where there are many; how many are."""
        found, matched = range(0), 0
        for length in (least, *(each for each in LENGTHS if each > least)):
            if length > min(len(tokens), COMPARED):
                break
            places = self._places(tokens[-length:])
            if not places:
                break
            found, matched = places, length
            if len(places) <= FEW:
                break
        ends = [self._order[place] + matched for place in found[:: -(-len(found) // COUNTED) or 1]]
        if len(found) <= FEW:
            alikes = [alike(self.tokens, end, tokens) for end in ends]
            matched = max(alikes, default=0)
            ends = [end for end, same in zip(ends, alikes, strict=True) if same == matched]
        return ends, matched

    def _places(self, pattern: Sequence[int]) -> range:
        """The places in `order` at which these tokens begin. What matches so far has no end of a text in it, so that
        there is a token behind it."""
        low, high = 0, len(self._order)
        for depth, token in enumerate(pattern):

            def there(place: int, depth: int = depth) -> int:
                return self.tokens[place + depth]

            low = bisect_left(self._order, token, low, high, key=there)
            high = bisect_right(self._order, token, low, high, key=there)
            if low == high:
                break
        return range(low, high)


_ENDING = np.array([_END], np.int32)


def _sorted_places(tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """[N] the places of all tokens, sorted by the next `_DEPTH` tokens, as far as there are any."""
    count = len(tokens)
    base = int(tokens.max(initial=0)) + 3  # the end of all is 0, that of a text 1, the first token 2
    if base**3 >= 1 << 63:
        raise InvalidOption(f"token {base - 3} is too large for an index", hint="use a model with a smaller vocabulary")
    ranks = tokens.astype(np.int64) + 2
    first = ranks * base * base
    first[:-1] += ranks[1:] * base
    first[:-2] += ranks[2:]
    ranks, order, known = first, np.empty(0, np.int64), 3
    while True:
        order = np.argsort(ranks)
        inorder = ranks[order]
        new = np.concatenate((np.ones(min(count, 1), np.int64), (inorder[1:] != inorder[:-1]).astype(np.int64)))
        ranks[order] = np.cumsum(new)
        if known >= _DEPTH or count == 0 or int(ranks[order[-1]]) == count:
            return order.astype(np.int32)
        later = ranks[known:].copy()
        ranks *= count + 1
        ranks[: count - known] += later
        known *= 2


def vocabulary_hash(tokenizer: Any) -> str:
    """Tells vocabularies apart: of every token and its id."""
    words = json.dumps(sorted(tokenizer.get_vocab().items(), key=lambda pair: (pair[1], pair[0])))
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
