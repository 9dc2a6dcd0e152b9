"""A tokenizer seen as bytes: what each token writes, and which tokens write a given text.

Two tokenizers can only be compared by what their tokens write. Byte-level BPE spells bytes in an alphabet of its own
(GPT-2's), SentencePiece a space as U+2581 and rare bytes as <0xNN>; here both are plain bytes. Encoding never adds
anything: no opening tokens, no space in front, and the literal text of a special token is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from tokenizers import Tokenizer

from headstart.base.errors import IncompatibleTokenizer

Lead = Literal["never", "first", "always"]
"""Where a tokenizer writes a space that is not in the text: nowhere, before the text, after special tokens too."""

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_RAW = re.compile("([\udc80-\udcff]+)")
_ROLES = ("eos", "bos", "pad", "unk")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Tokens, and where each ends, in bytes of the text."""

    ids: tuple[int, ...]
    ends: tuple[int, ...]


class Vocabulary:
    """The tokens of one tokenizer.

    words: words[i] is what token i writes, as bytes; None for special tokens and for ids that no token has.
    added: ids of tokens that were added to the trained vocabulary, special ones left out.
    bytewise: ids of <0xNN> tokens.
    specials: ids of special tokens by their text.
    roles: ids of special tokens by their use: "eos", "bos", "pad", "unk".
    opening: the special tokens that the tokenizer puts before a text.
    lead: see `Lead`.

    Raises:
        IncompatibleTokenizer: the tokens cannot be written as bytes (WordPiece, for one, or a tokenizer in Python).
    """

    def __init__(self, tokenizer: Any, *, name: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise _unreadable(name, "it does not run in the tokenizers library")
        try:
            decoder, normalizer, splitter = (
                _state(part) for part in (backend.decoder, backend.normalizer, backend.pre_tokenizer)
            )
        except Exception as error:  # a component written in Python may raise anything
            raise _unreadable(name, f"a part of it cannot be read: {error}") from error
        kinds = {str(part["type"]) for part in _flat(decoder)}
        pieced = "Metaspace" in kinds or any(_SPACE in json.dumps(part, ensure_ascii=False) for part in _flat(decoder))
        if "ByteLevel" not in kinds and not pieced:
            raise _unreadable(name, f"its decoder is {' + '.join(sorted(kinds)) or 'missing'}")
        byte_level = "ByteLevel" in kinds
        extra = backend.get_added_tokens_decoder()
        special = {i for i, token in extra.items() if token.special} | set(tokenizer.all_special_ids)
        self.specials: Mapping[str, int] = {
            token: i for i in sorted(special) if (token := backend.id_to_token(i)) is not None
        }
        self._texts = {i: token.encode() for token, i in self.specials.items()}
        roles = {role: getattr(tokenizer, f"{role}_token_id", None) for role in _ROLES}
        self.roles: Mapping[str, int] = {role: i for role, i in roles.items() if i is not None}
        self.added = frozenset(extra) - special
        self.words, self.bytewise = _words(backend, special, self.added, byte_level=byte_level)
        self.lead = _lead([*_flat(normalizer), *_flat(splitter)])
        self.opening = _opening(tokenizer, special)
        self._kept = frozenset({self.roles["unk"]} if "unk" in self.roles else ())
        self._special = frozenset(special)
        self._model = backend.model if byte_level else None
        self._single = {word[0]: i for i, word in enumerate(self.words) if word is not None and len(word) == 1}
        self._encoder, self._renamed = _encoder(backend, normalizer, splitter, {i: extra[i] for i in self.added})

    def __len__(self) -> int:
        return len(self.words)

    def word(self, token: int) -> bytes | None:
        """What a token writes; None if it is special, or padding of a model's embedding."""
        return self.words[token] if token < len(self.words) else None

    def text(self, token: int) -> bytes | None:
        """The literal text of a special token."""
        return self._texts.get(token)

    def encode(self, text: bytes) -> Encoded:
        """The tokens that write a text. Bytes that are not UTF-8 become tokens of single bytes where there are such;
        a character for which there is nothing becomes the unknown token or is left out, as the tokenizer has it."""
        ids: list[int] = []
        ends: list[int] = []
        done = 0
        for piece in _RAW.split(text.decode("utf-8", "surrogateescape")):
            data = piece.encode("utf-8", "surrogateescape")
            found = self._raw(data) if _RAW.match(piece) else self._plain(piece, data)
            ids += found.ids
            ends += (done + end for end in found.ends)
            done += len(data)
        return Encoded(tuple(ids), tuple(ends))

    def _plain(self, piece: str, data: bytes) -> Encoded:
        if not piece:
            return Encoded((), ())
        encoding = self._encoder.encode(piece, add_special_tokens=False)
        found = [self._renamed.get(i, i) for i in encoding.ids]
        keep = [i not in self._special or i in self._kept for i in found]
        ends = list(accumulate(len(self.word(i) or b"") for i in found))
        if not ends or ends[-1] != len(data):  # the text was normalised: characters are the best there is
            at = list(accumulate((len(char.encode()) for char in piece), initial=0))
            ends = [at[end] for _, end in encoding.offsets]
        return Encoded(
            tuple(i for i, kept in zip(found, keep, strict=True) if kept),
            tuple(end for end, kept in zip(ends, keep, strict=True) if kept),
        )

    def _raw(self, data: bytes) -> Encoded:
        if self._model is not None:
            ids = [token.id for token in self._model.tokenize("".join(_ALPHABET[byte] for byte in data))]
            ends = list(accumulate(len(self.word(i) or b"") for i in ids))
            if ends and ends[-1] == len(data):
                return Encoded(tuple(ids), tuple(ends))
        pairs = [(self._single[byte], at + 1) for at, byte in enumerate(data) if byte in self._single]
        return Encoded(tuple(i for i, _ in pairs), tuple(end for _, end in pairs))


def _words(
    backend: Tokenizer, special: set[int], added: frozenset[int], *, byte_level: bool
) -> tuple[tuple[bytes | None, ...], frozenset[int]]:
    """`words` and `bytewise` of a vocabulary."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    words: list[bytes | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    bytewise = set[int]()
    for token, i in vocabulary.items():
        if i in special:
            continue
        if byte_level:
            words[i] = (token.encode() if i in added else _from_alphabet(token)) or None
        elif (byte := _BYTE.fullmatch(token)) is not None:
            words[i] = bytes([int(byte[1], 16)])
            bytewise.add(i)
        else:
            words[i] = token.replace(_SPACE, " ").encode() or None
    return tuple(words), frozenset(bytewise)


def _unreadable(name: str, why: str) -> IncompatibleTokenizer:
    return IncompatibleTokenizer(
        f"{name} has a tokenizer whose tokens cannot be written as bytes: {why}",
        hint="drafts between different tokenizers need byte-level BPE or SentencePiece ones; "
        "use a draft with the target's own tokenizer, or drafter='ngram'",
        differences=(why,),
    )


def _alphabet() -> tuple[str, ...]:
    """GPT-2's: printable bytes are themselves, the others for the characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


_ALPHABET = _alphabet()
_FROM_ALPHABET = {char: byte for byte, char in enumerate(_ALPHABET)}


def _from_alphabet(token: str) -> bytes:
    try:
        return bytes([_FROM_ALPHABET[char] for char in token])
    except KeyError:
        return token.encode()


def _state(part: Any) -> Any:
    """A component's JSON, or None."""
    return None if part is None else json.loads(part.__getstate__())


def _flat(part: Any) -> list[dict[str, Any]]:
    """A component, or the members of a sequence of them."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    members = part.get("decoders") or part.get("normalizers") or part.get("pretokenizers") or []
    return [inner for member in members for inner in _flat(member)]


def _lead(parts: Sequence[Mapping[str, Any]]) -> Lead:
    for part in parts:
        scheme = part.get("prepend_scheme", "never")
        if part["type"] == "Metaspace" and scheme != "never":
            return "first" if scheme == "first" else "always"
        if part["type"] == "Prepend" or (part["type"] == "ByteLevel" and part.get("add_prefix_space")):
            return "always"
    return "never"


def _without_lead(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "Metaspace":
        return {**part, "prepend_scheme": "never"}
    return {**part, "add_prefix_space": False} if part["type"] == "ByteLevel" else dict(part)


def _opening(tokenizer: Any, special: set[int]) -> tuple[int, ...]:
    """The special tokens before the first other one of an encoded text."""
    ids = list(tokenizer("a")["input_ids"])
    first = next((at for at, i in enumerate(ids) if i not in special), 0)
    return tuple(ids[:first])


def _encoder(
    backend: Tokenizer, normalizer: Any, splitter: Any, added: Mapping[int, Any]
) -> tuple[Tokenizer, dict[int, int]]:
    """The tokenizer without its additions, and its own ids for those that come out differently.

    added: tokens beside the trained ones. The model, which is what is large, is shared; only the small
    parts around it are made again.
    """
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    kept = [_without_lead(part) for part in _flat(normalizer) if part["type"] != "Prepend"]
    pieces = [_without_lead(part) for part in _flat(splitter)]
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": kept} if kept else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pieces} if pieces else None,
    }
    shell = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": empty, **parts}))
    encoder = Tokenizer(backend.model)
    if shell.normalizer is not None:
        encoder.normalizer = shell.normalizer
    if shell.pre_tokenizer is not None:
        encoder.pre_tokenizer = shell.pre_tokenizer
    owned = {token.content: i for i, token in added.items()}
    encoder.add_tokens(list(added.values()))
    return encoder, {fresh: i for token, i in owned.items() if (fresh := encoder.token_to_id(token)) is not None}
