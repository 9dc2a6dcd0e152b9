"""`EngineParts`: all that an engine is made of, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headstart.drafters import capabilities
from headstart.model.threads import process_threads

if TYPE_CHECKING:
    from headstart.engine.engine import Engine
    from headstart.engine.guarded_drafter import GuardedDrafter
    from headstart.engine.guards import GuardedPacing
    from headstart.engine.judging import Judge
    from headstart.model.cache import Slots
    from headstart.model.runner import ModelRunner
    from headstart.pacing import Pacing
    from headstart.types import EngineRule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineParts:
    """What an engine is made of. `headstart.loading.assembly.assemble` checks and makes them."""

    target: ModelRunner
    """The model whose distribution is kept."""
    cache: Slots
    """Of the target, unused, with a slot for each request that may run at once."""
    drafter: GuardedDrafter
    """Guesses tokens; attached to target and cache."""
    pacing: Pacing
    """Decides how much each request drafts in each step."""
    judge: Judge
    """Computes distributions and applies the rule."""
    rule: EngineRule
    """Says by which rule each request is judged."""
    tokenizer: Any
    """Of transformers, or None if prompts are token ids and no text is wanted."""
    eos_token_ids: frozenset[int]
    prefill_chunk: int
    """The most prompt tokens read per step, over all requests."""
    target_name: str
    reason: str
    """Why this drafter, or why none."""
    traced: Callable[..., AbstractContextManager[Any]]
    """Records the steps of an engine, which it is given, with the arguments of `Engine.trace`; the engine does not know
    its recorder."""
    plain: Callable[[], Engine]
    """Makes an engine on the same weights, without a drafter and with a cache of its own."""

    def describe(self, pacing: GuardedPacing) -> dict[str, Any]:
        """See `Engine.describe`. pacing: the one that decides now."""
        return {
            "target": self.target_name,
            "drafter": self.drafter.name,
            "chosen": self.reason,
            "rule": self.rule,
            "pacing": pacing.pacing.name,
            "not_guessing": pacing.idle or None,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "quantize": self.target.quantize,
            "kv_cache_dtype": str(self.target.cache_dtype).removeprefix("torch."),
            "weights": self.target.weights_in_words,
            "drafter_weights": {
                part.name: words
                for part in capabilities.parts(self.drafter.drafter)
                if (words := capabilities.weights_in_words(part))
            },
            "decoder": self.target.decoder,
            "width_invariant": self.target.width_invariant,
            "device": str(self.target.device),
            "threads": process_threads(),
            "vocab_size": self.target.vocab_size,
            "max_length": self.target.max_length,
            "max_batch_size": len(self.cache.lengths),
            "prefill_chunk": self.prefill_chunk,
            "prefix_cache": self.cache.keeps_texts,
        }
