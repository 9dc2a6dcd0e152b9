"""A tokenizer of transformers by the tokenizers library alone: what it does at every request, without its class.

Whatever else is asked, the tokenizer of transformers is made for it, which takes seconds, and answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Tokenizer

from headstart.base.files import cache_directory, replacing
from headstart.base.lazy import transformers
from headstart.model.kept.store import KIND, read_text

_SAME = (
    "__call__", "__len__", "_decode", "_encode_plus", "_convert_encoding", "added_tokens_decoder",
    "apply_chat_template", "backend_tokenizer", "decode", "get_chat_template", "get_vocab",
)  # fmt: skip
"""What a class must not do in its own way."""
_ATTRIBUTES = (
    "all_special_ids", "all_special_tokens", "bos_token", "bos_token_id", "chat_template",
    "clean_up_tokenization_spaces", "eos_token", "eos_token_id", "is_fast", "model_input_names", "model_max_length",
    "name_or_path", "pad_token", "pad_token_id", "padding_side", "response_template", "special_tokens_map",
    "unk_token", "unk_token_id",
)  # fmt: skip


class Encoded(dict[str, Any]):
    """What a text is to a model, by name: as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class KeptTokenizer:
    """A tokenizer as the package uses one: see `PreTrainedTokenizerFast` of transformers."""

    backend_tokenizer: Tokenizer
    _make: Callable[[], Any]
    _absent: frozenset[str]
    _changed: bool
    """Whether an attribute was set, so that the real tokenizer answers."""

    def __init__(self, backend: Tokenizer, attributes: Mapping[str, Any], make: Callable[[], Any]) -> None:
        """attributes: values by name, and which names there are none of. make: the tokenizer of transformers."""
        own = {"backend_tokenizer": backend, "_make": make, "_absent": frozenset(attributes["absent"])}
        vars(self).update(own, _changed=False, **attributes["has"])

    @cached_property
    def real(self) -> Any:
        """The tokenizer of transformers."""
        return self._make()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in vars(self).get("_absent", ()):
            raise AttributeError(name)
        return getattr(self.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.real, name, value)
        for each in _ATTRIBUTES:
            vars(self).pop(each, None)
        vars(self).update(backend_tokenizer=self.real.backend_tokenizer, _absent=frozenset(), _changed=True)

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    def __bool__(self) -> bool:
        return True

    def __call__(
        self, text: Any, *more: Any, add_special_tokens: bool = True, verbose: bool = True, **options: Any
    ) -> Any:
        """The ids of a text, or of each of several, and as many ones, as "input_ids" and "attention_mask"."""
        many = isinstance(text, list) and bool(text) and all(isinstance(each, str) for each in text)
        if self._changed or more or options or not (many or isinstance(text, str)) or self.model_input_names != _INPUTS:
            return self.real(text, *more, add_special_tokens=add_special_tokens, verbose=verbose, **options)
        found = self.backend_tokenizer.encode_batch(text if many else [text], add_special_tokens=add_special_tokens)
        ids, masks = [each.ids for each in found], [each.attention_mask for each in found]
        return Encoded(zip(_INPUTS, (ids, masks) if many else (ids[0], masks[0]), strict=True))

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **options: Any) -> Any:
        """The text of an id or of several."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        if self._changed or options or not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
            return self.real.decode(token_ids, skip_special_tokens=skip_special_tokens, **options)
        return self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(self, conversation: Any, tools: Any = None, **options: Any) -> Any:
        """A conversation through the chat template, as text or as ids."""
        plain = isinstance(self.chat_template, str) and isinstance(conversation, list) and bool(conversation)
        known = all(isinstance(each, dict) for each in conversation) if plain else False
        tokenize, as_dict = options.get("tokenize", True), options.get("return_dict", True)
        if self._changed or not known or (tokenize and as_dict) or not options.keys().isdisjoint(_RENDERED_OTHERWISE):
            return self.real.apply_chat_template(conversation, tools, **options)
        said = {name: value for name, value in options.items() if name not in ("tokenize", "return_dict")}
        if said.get("continue_final_message") and said.get("add_generation_prompt"):
            return self.real.apply_chat_template(conversation, tools, **options)  # which says why not
        from headstart.model.kept.template import rendered  # most texts are no conversations

        given = {**self.special_tokens_map, **said}
        messages = [{name: each[name] for name in each if each[name] is not None} for each in conversation]
        if (text := rendered(self.chat_template, messages, tools, given)) is None:
            (text,), _ = transformers.utils.chat_template_utils.render_jinja_template(
                conversations=[messages], tools=tools, chat_template=self.chat_template, **given
            )
        return self(text, add_special_tokens=False)["input_ids"] if tokenize else text

    def get_vocab(self) -> dict[str, int]:
        """The ids by their texts."""
        return self.backend_tokenizer.get_vocab(with_added_tokens=True)

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The tokens that were added to the trained ones, by their ids."""
        return self.backend_tokenizer.get_added_tokens_decoder()


_INPUTS = ["input_ids", "attention_mask"]
_RENDERED_OTHERWISE = {
    "chat_template", "max_length", "padding", "return_assistant_tokens_mask", "return_tensors",
    "sanitize_control_tokens", "tokenizer_kwargs", "truncation",
}  # fmt: skip
"""Options under which the tokenizer of transformers does what is asked."""


def to_keep(tokenizer: Any) -> dict[str, Any] | None:
    """Keep the tokenizer's own file, and what else `kept_tokenizer` needs; None where it cannot be kept."""
    plain = transformers.PreTrainedTokenizerFast
    kind = type(tokenizer)
    if not isinstance(tokenizer, plain) or any(getattr(kind, name) is not getattr(plain, name) for name in _SAME):
        return None
    if tokenizer.split_special_tokens or _cleans(tokenizer):
        return None
    has = {name: getattr(tokenizer, name) for name in _ATTRIBUTES if hasattr(tokenizer, name)}
    text: str = tokenizer.backend_tokenizer.to_str()
    backend = Tokenizer.from_str(text)
    backend.no_padding()
    backend.no_truncation()
    text = backend.to_str()
    if json.loads(json.dumps(has)) != has or Tokenizer.from_str(text).to_str() != text:
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()
    with replacing(_path(digest)) as part:
        part.write_text(text, encoding="utf-8")
    return {"digest": digest, "has": has, "absent": [name for name in _ATTRIBUTES if name not in has]}


def kept_tokenizer(stored: Mapping[str, Any], make: Callable[[], Any]) -> KeptTokenizer | None:
    """The tokenizer again; None if its file is gone or is another. make: the tokenizer of transformers."""
    with suppress(OSError, ValueError):
        text = read_text(_path(stored["digest"]))
        if hashlib.sha256(text.encode()).hexdigest() == stored["digest"]:
            return KeptTokenizer(Tokenizer.from_str(text), stored, make)
    return None


def real(tokenizer: Any) -> Any:
    """The tokenizer of transformers that this one is, or stands for."""
    return tokenizer.real if isinstance(tokenizer, KeptTokenizer) else tokenizer


def _path(digest: str) -> Any:
    return cache_directory(KIND) / f"tokenizer-{digest[:24]}.json"


def _cleans(tokenizer: Any) -> bool:
    """Whether spaces are taken out of decoded texts."""
    if not tokenizer.clean_up_tokenization_spaces:
        return False
    forced = getattr(tokenizer, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", False)
    return type(tokenizer.backend_tokenizer.model).__name__ != "BPE" or bool(forced)
