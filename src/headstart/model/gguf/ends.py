"""Which tokens end a text: files say it in several places, and none of them has to be complete."""

from __future__ import annotations

from headstart.model.gguf.metadata import Metadata

CONTROL = 3
"""The kind of tokens that text never spells."""

_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_ENDS = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>",
    "<|return|>", "<|call|>", "<|end_of_turn|>", "<|turn_end|>", "</s>",
}  # fmt: skip
"""How tokens that end a turn or a text are spelled."""


def end_tokens(metadata: Metadata) -> frozenset[int]:
    """Ids of the tokens after which nothing follows: those that are named as such, and control tokens with the
    spelling of an end that the chat template writes."""
    tokens = metadata.texts("tokenizer.ggml.tokens", [])
    kinds = metadata.numbers("tokenizer.ggml.token_type", None)
    named = (metadata.whole(f"tokenizer.ggml.{key}", None) for key in _KEYS)
    found = {token for token in named if token is not None and token < max(len(tokens), 1)}
    template = metadata.text("tokenizer.chat_template", "")
    if kinds is not None and template:
        wanted = {end for end in _ENDS if end in template}
        found |= {
            token
            for token, (text, kind) in enumerate(zip(tokens, kinds.tolist(), strict=False))
            if kind == CONTROL and text in wanted
        }
    return frozenset(found)
