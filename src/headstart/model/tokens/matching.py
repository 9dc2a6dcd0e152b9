"""A tokenizer as grammars know it: the bytes of every token, and how the tokenizer would write forced text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.base.extras import extra
from headstart.base.lazy import transformers
from headstart.model.kept.tokenizer import real


def matching_tokenizer(tokenizer: Any, vocab_size: int, ends: Collection[int]) -> Any:
    """llguidance's tokenizer of a model: half a second to three seconds, once for each engine that is asked for a
    grammar.

    Args:
        tokenizer: of transformers.
        vocab_size: V, of the target's logits, which may be more or fewer than the tokenizer has.
        ends: the tokens that end a text.

    Raises:
        InvalidOption: llguidance is not installed, or it cannot read this tokenizer.
    """
    library = extra("llguidance.hf", "agents")
    tokenizer = real(tokenizer)  # it reads what is behind the class of transformers
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast) or not ends:
        what = "a fast tokenizer" if ends else "a token that ends a text"
        raise InvalidOption(
            f"a grammar needs {what}, and this model has none", hint="leave structure out, or use another model"
        )
    try:
        return library.from_tokenizer(tokenizer, n_vocab=max(vocab_size, len(tokenizer)), eos_token=sorted(ends))
    except Exception as error:  # it raises what it likes
        raise InvalidOption(
            f"llguidance cannot read this model's tokenizer: {error}"[:300],
            hint="leave structure out, or use another model",
        ) from error
