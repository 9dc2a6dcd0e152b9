"""Do a draft and its target have the same tokens, and if not, what is done about it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headstart.loading.checkpoint import Checkpoint, check_sizes
from headstart.model.tokens.tokenizers import differences
from headstart.model.tokens.translation import Translation

How = Literal["none", "own", "same", "sizes", "ids", "intersection", "text"]


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How a draft's tokens relate to the target's.

    how: "none" (no tokens of its own), "own" (a head drafts the target's), "same", "sizes" (no tokenizer to compare, as
    many tokens), or the method by which drafts are translated (`Translation.method`).
    words: the same in words.
    differences: between the tokenizers, in words.
    """

    how: How
    words: str
    differences: tuple[str, ...] = ()


WEIGHTLESS = Compatibility("none", "it copies the target's own tokens")
HEAD = Compatibility("own", "a head drafts the target's tokens")


def compare(ours: Checkpoint, theirs: Checkpoint) -> Compatibility:
    """Compare tokenizers, not sizes of vocabularies: those may differ by padding.

    Raises:
        IncompatibleTokenizer: drafts cannot even be translated; the message names what differs.
    """
    check_sizes(ours, theirs)
    if ours.tokenizer is None or theirs.tokenizer is None:
        return Compatibility("sizes", f"no tokenizer to compare; both models know {ours.vocab_size} tokens")
    found = differences(ours.tokenizer, theirs.tokenizer)
    if not found:
        padding = ours.vocab_size != theirs.vocab_size
        sizes = f" ({ours.vocab_size} and {theirs.vocab_size} entries differ by padding only)" if padding else ""
        return Compatibility("same", f"the target's own tokenizer{sizes}")
    translation = Translation.between(
        ours.tokenizer,
        theirs.tokenizer,
        target_vocab=ours.vocab_size,
        draft_vocab=theirs.vocab_size,
        name=f"draft {theirs.label}",
    )
    return Compatibility(translation.method, f"another tokenizer; {translation}", found)
