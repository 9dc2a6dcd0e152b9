"""From a file's metadata to a tokenizer of transformers, with its chat template. A tokenizer.json beside the file wins.

transformers can build tokenizers from GGUF files too, but where it does not know `tokenizer.ggml.pre` it cuts text up
as GPT-2 does and says nothing ("smollm" is one), and padding that is no token becomes tokens. Hence this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.base.lazy import transformers
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.metadata import CONTROL, Metadata
from headstart.model.gguf.splits import SPLITS

BESIDE = "tokenizer.json"

_USER_DEFINED, _UNUSED = 4, 5
_SPACE = "\u2581"
_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_MOST_SAME = 0.99
"""The share of tokens that a tokenizer beside the file must spell as the file does."""


def load_tokenizer(file: GgufFile) -> Any:
    """The model's tokenizer, or None if the file has none (prompts are token ids then).

    Raises:
        UnsupportedModel: a kind of tokenizer that is not known.
        DamagedModel: tokens or merges that contradict each other.
    """
    metadata = file.metadata
    kind = metadata.text("tokenizer.ggml.model", "no_vocab")
    beside = file.paths[0].parent
    if (beside / BESIDE).is_file():
        return _from_folder(beside, file)
    if kind in ("no_vocab", "none"):
        return None
    if kind not in ("gpt2", "llama", "gemma4"):
        raise _unknown(file, f"tokenizer.ggml.model is {kind!r}")
    tokens = _Tokens(file)
    backend = _byte_level(file, tokens) if kind == "gpt2" else _sentence_piece(file, tokens)
    backend.add_special_tokens(tokens.added(CONTROL, special=True))
    backend.add_tokens(tokens.added(_USER_DEFINED, special=False))
    begins = SPLITS[metadata.text("tokenizer.ggml.pre")].begins if kind == "gpt2" else kind == "llama"
    _frame(backend, file, tokens, begins=begins)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        **{role: tokens.named(name) for role, name in _ROLES.items()},
        **_templates(metadata),
    )


class _Tokens:
    """The file's vocabulary, without the entries that only fill it up."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        texts = file.metadata.texts("tokenizer.ggml.tokens")
        self.gemma = file.metadata.text("general.architecture", "").startswith("gemma")
        if self.gemma:  # whose runs of spaces are spelled with spaces, and found in texts whose spaces are marked
            texts = [_SPACE * len(text) if len(text) > 1 and not text.strip(" ") else text for text in texts]
        kinds = file.metadata.numbers("tokenizer.ggml.token_type", None)
        self._kinds = [1] * len(texts) if kinds is None else kinds.tolist()
        if len(self._kinds) != len(texts):
            raise self.damaged(f"it has {len(texts)} tokens and the kinds of {len(self._kinds)}")
        self.texts = texts
        self.vocabulary = {
            text: token for token, (text, kind) in enumerate(zip(texts, self._kinds, strict=True)) if kind != _UNUSED
        }
        if len(self.vocabulary) != len(texts) - self._kinds.count(_UNUSED):
            raise self.damaged("two of its tokens are spelled alike")

    def damaged(self, what: str) -> DamagedModel:
        return DamagedModel(
            f"{self._file.label}: {what}", hint=f"put the model's own {BESIDE} beside the file; it is used instead"
        )

    def named(self, name: str) -> str | None:
        """The token with a role: "bos", say."""
        token = self._file.metadata.whole(f"tokenizer.ggml.{name}_token_id", None)
        if token is None:
            return None
        if token >= len(self.texts):
            raise self.damaged(f"its {name} token is {token}, and it has {len(self.texts)} tokens")
        return str(self.texts[token])

    def added(self, kind: int, *, special: bool) -> list[AddedToken]:
        """Tokens of a kind that are found whole in a text. Those spelled with the mark of a space are ordinary ones."""
        return [
            AddedToken(text, normalized=False, special=special)
            for text, each in zip(self.texts, self._kinds, strict=True)
            if each == kind and text and _SPACE not in text
        ]

    def merges(self) -> list[tuple[str, str]]:
        """As the file lists them, each checked."""
        found = []
        for line in self._file.metadata.texts("tokenizer.ggml.merges"):
            left, _, right = line.partition(" ")
            if not {left, right, left + right} <= self.vocabulary.keys():
                raise self.damaged(f"it merges {line!r}, which are not tokens of its own")
            found.append((left, right))
        return found

    def merges_by_score(self) -> list[tuple[str, str]]:
        """All pairs of tokens that make a token, the highest score first: what SentencePiece does step by step. In
        Gemma's files, whose scores say something else, the first token first (as in transformers' own reader)."""
        scores = self._file.metadata.numbers("tokenizer.ggml.scores")
        if len(scores) != len(self.texts):
            raise self.damaged(f"it has {len(self.texts)} tokens and {len(scores)} scores")
        if self.gemma:
            scores = -np.arange(len(scores))
        found = [
            (float(scores[token]), text[:cut], text[cut:])
            for text, token in self.vocabulary.items()
            for cut in range(1, len(text))
            if text[:cut] in self.vocabulary and text[cut:] in self.vocabulary
        ]
        found.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
        return [(left, right) for _, left, right in found]


def _byte_level(file: GgufFile, tokens: _Tokens) -> Tokenizer:
    """Tokens made of bytes, as GPT-2 spells them."""
    name = file.metadata.text("tokenizer.ggml.pre", "default")
    if name not in SPLITS:
        raise _unknown(file, f"tokenizer.ggml.pre, how text is cut up before it is merged, is {name!r}")
    split = SPLITS[name]
    backend = Tokenizer(models.BPE(tokens.vocabulary, tokens.merges(), ignore_merges=split.whole_words))
    if split.composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = split.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_piece(file: GgufFile, tokens: _Tokens) -> Tokenizer:
    """Tokens made of characters, with bytes for those that are no tokens. Files of Gemma 4 list the merges."""
    metadata = file.metadata
    prefix = metadata.flag("tokenizer.ggml.add_space_prefix", metadata.text("tokenizer.ggml.model") == "llama")
    merges = tokens.merges() if "tokenizer.ggml.merges" in metadata else tokens.merges_by_score()
    unknown = tokens.named("unknown")
    backend = Tokenizer(models.BPE(tokens.vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    marked = normalizers.Replace(" ", _SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), marked]) if prefix else marked
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def _frame(backend: Tokenizer, file: GgufFile, tokens: _Tokens, *, begins: bool) -> None:
    """The first and last tokens that are put around a text. begins: whether there is a first one by default."""
    metadata = file.metadata
    wanted = {"bos": begins, "eos": False}
    found: dict[str, str] = {}
    for name, default in wanted.items():
        key = f"tokenizer.ggml.add_{name}_token"
        if not metadata.flag(key, default):
            continue
        token = tokens.named(name)
        if token is not None and token in tokens.vocabulary:
            found[name] = token
        elif key in metadata:
            raise tokens.damaged(f"{key} is true, and it names no such token")
    if found:
        template = [piece for piece in (found.get("bos"), "$A", found.get("eos")) if piece is not None]
        ids = [(token, tokens.vocabulary[token]) for token in set(found.values())]
        backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)


def _templates(metadata: Metadata) -> dict[str, Any]:
    """The chat template; with others by name, where the file has several."""
    default = metadata.text("tokenizer.chat_template", None)
    prefix = "tokenizer.chat_template."
    others = {key.removeprefix(prefix): metadata.text(key) for key in metadata if key.startswith(prefix)}
    if others and default is not None:
        return {"chat_template": {"default": default, **others}}
    return {} if default is None else {"chat_template": default}


def _from_folder(folder: Path, file: GgufFile) -> Any:
    """The tokenizer.json beside the file, with the chat template and the roles of the file where it has none."""
    try:
        found: Any = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    except Exception as error:  # of the library's Rust part, which has no types of its own
        raise DamagedModel(f"{folder / BESIDE} cannot be read: {error}", hint="copy it again, or remove it") from error
    metadata = file.metadata
    texts = metadata.texts("tokenizer.ggml.tokens", [])
    theirs = found.get_vocab()
    ours = {text: token for token, text in enumerate(texts) if text in theirs}
    same = sum(theirs[text] == token for text, token in ours.items())
    if texts and same < _MOST_SAME * len(theirs):
        raise DamagedModel(
            f"{folder / BESIDE} is of another model: it and {file.label} have {same} of {len(theirs)} tokens in common",
            hint="remove it, and the file's own tokenizer is used; or put the right one there",
        )
    for role, name in _ROLES.items():
        token = metadata.whole(f"tokenizer.ggml.{name}_token_id", None)
        if getattr(found, role) is None and token is not None and token < len(texts):
            setattr(found, role, texts[token])
    if found.chat_template is None:
        found.chat_template = _templates(metadata).get("chat_template")
    return found


def _unknown(file: GgufFile, what: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{file.label}: {what}, which is not known here",
        hint=f"put the model's own {BESIDE} (and tokenizer_config.json) beside the file; it is used instead",
    )
