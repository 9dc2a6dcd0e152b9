"""On a CUDA device: the same claims. Their CPU twins are test_greedy_identity and test_sampled_distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from support.tiny import ARCHITECTURES, checkpoint

import headstart as hs
from headstart.model.cache import KVCache, LayerShape
from headstart.model.decoders.attention import Scores, attend_packed
from headstart.model.packed import Packed, Segment
from headstart.model.recorded.graphs import RecordedDecoder
from headstart.model.recorded.grid import Grid, attend_plainly
from headstart.types import Draft

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


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt2"])
def test_forwards_are_recorded_and_come_out_as_the_others(name: str, load: Callable[..., hs.Engine]) -> None:
    """Batches of drafts, and states that are tapped: twice, since the first of a shape is not yet a replay."""
    target = load(name, device="cuda").target
    assert isinstance(target._decoder, RecordedDecoder)
    plain, taps = target._decoder._decoder, (0, 2)
    for segments in (
        [
            Segment(1, (5, 6), Draft((7, 8, 9), (-1, -1, 0)), judged=4),
            Segment(0, (4,)),
            Segment(2, (1, 2, 3), judged=0),
        ],
        [Segment(2, (5,), Draft(tuple(range(40)), tuple(range(-1, 39))), judged=41)],
        [Segment(0, (4,))],
    ):
        cache = target.new_cache(3)
        for _ in range(3):
            found = target.forward(segments, cache, taps)
            expected = plain.run(Packed(segments, cache, target.dtype, target.device), taps)
            torch.testing.assert_close(found.logits, expected.logits, atol=1e-4, rtol=1e-4)
            for layer, states in expected.hidden.items():
                torch.testing.assert_close(found.hidden[layer], states, atol=1e-4, rtol=1e-4)
            for segment in segments:
                cache.keep(segment.slot, len(segment.causal), (0,) if len(segment.draft) else ())
    assert target._decoder._recorder.refused is None


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.bfloat16, 6e-2)])
@pytest.mark.parametrize(
    "how", [Scores(None), Scores(0.3, window=9), Scores(None, softcap=4.0), Scores(None, sinks=torch.ones(8))]
)
@pytest.mark.parametrize("dim", [16, 64, 80])
def test_kernels_attend_as_their_twin(dim: int, how: Scores, dtype: torch.dtype, most: float) -> None:
    """What lies behind the rows is not read: it is no number here."""
    from headstart.model.recorded.kernels import attend

    torch.manual_seed(0)
    draft = Draft((1, 2, 3, 4, 5), (-1, -1, 0, 2, 1))
    segments = [Segment(1, (5, 6, 7), draft), Segment(0, (), draft, held=2), Segment(3, tuple(range(50)))]
    found = []
    drawn = [torch.randn(1, count, 256, dim) for count in (8, 2, 2)]
    for device, attention in (("cpu", attend_plainly), ("cuda", attend)):
        sizes = {"slots": 4, "capacity": 400, "dtype": dtype, "device": torch.device(device)}
        cache = KVCache({0: LayerShape(2, dim, dim)}, **sizes)
        torch.manual_seed(1)
        for store in (cache.keys[0], cache.values[0]):
            store.copy_(torch.randn(store.shape))
            for slot, length in enumerate((7, 300, 0, 70)):
                cache.lengths[slot] = length
                store[slot, :, length + 2 :] = float("nan")
        packed = Packed(segments, cache, dtype, cache.keys[0].device)
        grid = Grid(cache, 4, 64, packed._device, attention)
        grid.fill(packed)
        query, key, value = (part.to(device, dtype) for part in drawn)
        sinks = None if how.sinks is None else how.sinks.to(device, dtype)
        out = attend_packed(grid, 0, query, (key, value), replace(how, sinks=sinks))
        found.append(out[:, grid.real[: len(packed.token_ids)]].float().cpu())
        found.append(cache.keys[0][1, :, : 300 + 8].float().cpu())
    torch.testing.assert_close(found[2], found[0], atol=most, rtol=most)
    assert torch.equal(found[3], found[1])
    assert found[0].isfinite().all()
