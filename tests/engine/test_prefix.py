"""A cache may hand out a slot that already holds the beginning of a text; engine and drafters are ready for it.

Nothing in the package shares beginnings yet. Here a cache does, in twenty lines: a slot keeps what its last request's
prompt was, and the next request of the same salt that begins alike gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import eagle_heads
from support.greedy import NEW, prompts, reference

import headstart as hs
from headstart.model.cache import Slots


def share_beginnings(cache: Slots) -> list[int]:
    """Make this cache share beginnings; returns a list that is given how long each shared one was."""
    held: dict[int, tuple[str, tuple[int, ...]]] = {}
    shared: list[int] = []

    def acquire(tokens: Sequence[int] = (), salt: str = "") -> int:
        def common(slot: int) -> int:
            owner, text = held.get(slot, ("", ()))
            pairs = zip(text, tokens, strict=False)
            return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(tokens))) * (owner == salt)

        slot = max(cache._free, key=common)
        cache._free.remove(slot)
        cache.lengths[slot] = common(slot)
        shared.append(common(slot))
        held[slot] = (salt, tuple(tokens))
        return slot

    cache.acquire = acquire  # type: ignore[method-assign]
    return shared


@pytest.mark.parametrize("kind", ["none", "ngram", "suffix", "early-exit", "lookahead", "draft LM"])
def test_the_text_is_the_same_with_a_beginning_that_is_there_already(
    kind: str, tiny: Callable[..., str], load: Callable[..., Any]
) -> None:
    engine = load("llama", tiny("llama", noise=0.02) if kind == "draft LM" else kind, max_batch_size=1, prefill_chunk=8)
    shared = share_beginnings(engine.cache)
    sampling = hs.Sampling(max_tokens=NEW)
    for _ in range(2):
        for prompt, expected in zip(prompts(), reference(tiny("llama")), strict=True):
            again = engine.generate(list(prompt), sampling)
            once_more = engine.generate(list(prompt), sampling)
            assert again.tokens == once_more.tokens == expected
    assert max(shared) > 8, "beginnings were shared"
    other = engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW, cache_salt="other"))
    assert other.tokens == reference(tiny("llama"))[1]
    assert shared[-1] == 0, "another salt shares nothing"


def test_a_head_drafts_after_a_beginning_it_has_not_seen(root: Path, tmp_path: Path) -> None:
    """It is shown no states of the shared text, so it reads what comes after; guesses may be worse, the text not."""
    path = eagle_heads.target(root)
    folder = eagle_heads.write(tmp_path, "eagle3")
    engine = hs.load(path, str(folder), dtype="float32", pacing="fixed", max_batch_size=1)
    shared = share_beginnings(engine.cache)
    prompt = list(range(3, 15))
    sampling = hs.Sampling(max_tokens=10, ignore_eos=True)
    first, second = (engine.generate(prompt, sampling) for _ in range(2))
    assert shared == [0, len(prompt)]
    assert first.tokens == second.tokens == engine.plain().generate(prompt, sampling).tokens
    assert second.stats.speculation.error is None
    assert second.stats.drafted > 0, "the head went on drafting"
