"""Short chat templates of our own in the forms of models, and a byte tokenizer that knows their marks."""

from __future__ import annotations

from transformers import AddedToken, PreTrainedTokenizerFast

from headstart.serve.conversation.formats import FORMATS, THINKS, Format
from support.tiny import byte_tokenizer

SPOKEN = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>")
"""Marks that tokenizers know as one token that is not special, as Qwen's do."""


def marked_tokenizer(*texts: str, spoken: tuple[str, ...] = SPOKEN) -> PreTrainedTokenizerFast:
    """A byte tokenizer with these texts as special tokens and others that are not special."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(each, special=True) for each in texts]})
    tokenizer.add_tokens([AddedToken(each, special=False) for each in spoken])
    return tokenizer


def marks_of(form: Format) -> tuple[str, ...]:
    """The marks of a format that its models know as special tokens."""
    import re

    found = {mark for text in form.marks for mark in re.findall(r"<\|[^>]*\|?>|<[a-z_]+\|>|<｜[^<>]*｜>|\[[A-Z_]+\]", text)}
    return tuple(sorted(found | {"<escape>", "<start_function_call>", "<end_function_call>"} & set(form.marks)))
