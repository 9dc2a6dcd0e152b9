"""A vocabulary of six tokens, two of which spell one text in two ways, and grammars over it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headstart.model.tokens.matching import matching_tokenizer
from headstart.rule.compiled_grammar import Tokens
from headstart.rule.grammars import Grammars

A, B, C, AB, EOS, MARK = range(6)
SIZE = 6


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """a, b, c, ab, <eos> and <m>; "ab" is written as one token."""
    backend = Tokenizer(models.BPE({"a": A, "b": B, "c": C, "ab": AB}, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", additional_special_tokens=["<m>"])
    ids: Any = made.convert_tokens_to_ids(["a", "b", "c", "ab", "<eos>", "<m>"])
    assert ids == [A, B, C, AB, EOS, MARK]
    return made


@cache
def tokens() -> Tokens:
    """The tokenizer as grammars know it."""
    ends = frozenset({EOS})
    return Tokens(partial(matching_tokenizer, tokenizer(), SIZE, ends), SIZE, ends)


def new_grammars() -> Grammars:
    """Of an engine with this tokenizer."""
    return Grammars(tokens())


grammars = cache(new_grammars)
