"""Past outputs, for the suffix drafter: bounded, first in first out, apart for each salt; can be saved and loaded.

An output of one request can become a guess for another. A guess changes no text, but how fast it is accepted can be
measured from outside, so tenants that must not learn of each other get different salts (`Sampling.cache_salt`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from headstart.base.errors import DamagedStore
from headstart.base.files import replacing
from headstart.base.options import check_number
from headstart.drafters.matching.suffix_trie import SuffixTrie, Text

LIMIT = 1 << 16
_FORMAT = "headstart suffix store 1"


class SuffixStore:
    """Past outputs, in which the drafter "suffix" looks for what to copy.

    limit: the most tokens kept, over all salts; each takes about half a kilobyte of memory. Of a longer text the end is
        kept. Default: 65,536.

    Raises:
        InvalidOption: `limit` is below 1.

    Examples:
        >>> import headstart as hs
        >>> store = hs.SuffixStore()
        >>> engine = hs.load("bundled", "suffix", suffix_store=store, dtype="float32")
        >>> out = engine.generate("def add(a, b):", hs.Sampling(max_tokens=8))
        >>> len(store) > 0
        True
    """

    def __init__(self, limit: int = LIMIT) -> None:
        check_number("limit", limit, low=1, integer=True)
        self.limit = limit
        self._tries: dict[str, SuffixTrie] = {}
        self._texts: deque[tuple[str, Text]] = deque()
        self._held = 0

    def __len__(self) -> int:
        """Tokens held."""
        return self._held

    def add(self, tokens: Sequence[int], salt: str = "") -> None:
        """Keep a text, given as token ids, under a salt. If the limit is exceeded, the oldest texts are dropped."""
        text = Text()
        self._tries.setdefault(salt, SuffixTrie()).extend(text, tokens[-self.limit :])
        self._texts.append((salt, text))
        self._held += len(text.tokens)
        while self._held > self.limit:
            self._forget()

    def _forget(self) -> None:
        salt, text = self._texts.popleft()
        self._tries[salt].remove(text)
        self._held -= len(text.tokens)
        if self._tries[salt].nodes == 1:
            del self._tries[salt]

    def trie(self, salt: str = "") -> SuffixTrie | None:
        """What is held under this salt, or None for nothing."""
        return self._tries.get(salt)

    def texts(self, salt: str = "") -> list[list[int]]:
        """What is held under this salt, oldest first."""
        return [text.tokens for mine, text in self._texts if mine == salt]

    def save(self, path: str | Path) -> None:
        """Write all texts to a safetensors file, which is replaced as a whole or not at all."""
        path = Path(path)
        texts = [text.tokens for _, text in self._texts]
        tensors = {
            "tokens": torch.tensor([token for text in texts for token in text], dtype=torch.int32),
            "lengths": torch.tensor([len(text) for text in texts], dtype=torch.int64),
        }
        metadata = {"format": _FORMAT, "salts": json.dumps([salt for salt, _ in self._texts])}
        with replacing(path) as part:
            save_file(tensors, part, metadata)

    @classmethod
    def load(cls, path: str | Path, *, limit: int = LIMIT, vocab_size: int | None = None) -> SuffixStore:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            DamagedStore: it is not a whole store, or holds tokens outside a vocabulary of `vocab_size`.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no suffix store {path}")
        texts, salts = _read(path)
        most = max((max(text, default=0) for text in texts), default=0)
        least = min((min(text, default=0) for text in texts), default=0)
        if least < 0 or (vocab_size is not None and most >= vocab_size):
            raise DamagedStore(
                f"{path} holds the token {most if least >= 0 else least}, which the vocabulary does not have",
                hint="it was written for another model: keep one store for each tokenizer",
            )
        store = cls(limit)
        for text, salt in zip(texts, salts, strict=True):
            store.add(text, salt)
        return store


def _read(path: Path) -> tuple[list[list[int]], list[str]]:
    hint = "delete it: the store fills again as requests end"
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise DamagedStore(f"{path} is not a suffix store of this version", hint=hint)
            tokens, lengths = file.get_tensor("tokens").tolist(), file.get_tensor("lengths").tolist()
        salts = json.loads(metadata["salts"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        if isinstance(error, DamagedStore):
            raise
        raise DamagedStore(f"{path} cannot be read as a suffix store: {error}", hint=hint) from error
    whole = isinstance(salts, list) and all(isinstance(salt, str) for salt in salts)
    if not whole or len(salts) != len(lengths) or min(lengths, default=0) < 0 or sum(lengths) != len(tokens):
        raise DamagedStore(f"{path} does not hold as much as its lengths add up to", hint=hint)
    texts, begin = [], 0
    for length in lengths:
        texts.append(tokens[begin : begin + length])
        begin += length
    return texts, salts
