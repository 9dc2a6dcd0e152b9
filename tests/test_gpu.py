"""On a CUDA device: the same claims. Their CPU twins are test_greedy_identity and test_sampled_distribution."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.tiny import ARCHITECTURES, checkpoint

import headstart as hs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]


@pytest.mark.parametrize("drafter", ["ngram", "model"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_text_is_that_of_plain_decoding(name: str, drafter: str, root, load: Callable[..., hs.Engine]) -> None:  # type: ignore[no-untyped-def]
    draft = checkpoint(root, name, noise=0.02) if drafter == "model" else drafter
    prompts = [[5, 6, 7, 5, 6], [9] * 20, [3]]
    sampling = hs.Sampling(max_tokens=24)
    fast = load(name, draft, device="cuda", prefill_chunk=8).generate(prompts, sampling)
    plain = load(name, device="cuda").generate(prompts, sampling)
    assert [out.tokens for out in fast] == [out.tokens for out in plain]


def test_a_seed_gives_the_same_noise_as_on_the_cpu(load: Callable[..., hs.Engine]) -> None:
    sampling = hs.Sampling(max_tokens=24, temperature=1.0, seed=5)
    texts = {load("llama", device=device).generate([5, 6], sampling).tokens for device in ("cpu", "cuda")}
    assert len(texts) == 1
