"""MTP: the head that a checkpoint holds beside its model, and was trained with it, drafts for it.

It is read from the target's own directory or GGUF file and runs as an EAGLE-1 head (`eagle`), on a cache of its own:
chains or trees, at any temperature. Where a checkpoint holds several, one for each further token, they guess in turn.
Its logits are those of the target's output matrix, which in a small model takes a third of a target's step; so of a
large vocabulary the head guesses a part alone, and the other tokens have probability 0 in its distribution, which keeps
the rule exact.

Sources: DeepSeek-V3 (arXiv:2412.19437); the shortlist, FastMTP (2509.18362).
"""

from __future__ import annotations

from headstart.drafters import BuildContext, Weights
from headstart.drafters.eagle.drafter import EagleDrafter
from headstart.model.gguf.files import is_gguf
from headstart.model.heads.mtp_checkpoint import count, read, shortlist
from headstart.model.loading import fetch

WEIGHTS: Weights = "none"

SHORTLIST = 32_768
"""Tokens that a head guesses of a vocabulary of more than twice as many."""


def build(context: BuildContext) -> EagleDrafter:
    """The head of the target's own checkpoint.

    Raises:
        UnsupportedModel: it has none that can be run.
    """
    runner = context.target
    source = context.target_source if is_gguf(context.target_source) else fetch(context.target_source)
    ids = shortlist(runner.vocab_size, SHORTLIST, _special(context))
    heads = max(1, count(source, runner.config))
    first, *later = (read(source, runner.config, token_ids=ids, number=number) for number in range(heads))
    return EagleDrafter.of(
        first,
        runner,
        later=later,
        target_folder=source,
        slots=context.slots,
        quantize=context.quantize,
        name=context.name,
        budget=context.budget,
        tree=context.tree or "auto",
    )


def _special(context: BuildContext) -> set[int]:
    """Tokens outside of the merged ones: ends of text and of turns, tools."""
    found = context.target.config.get_text_config().eos_token_id
    ends = {found} if isinstance(found, int) else set(found or ())
    tokenizer = context.target_tokenizer
    return ends if tokenizer is None else ends | set(tokenizer.added_tokens_decoder)
