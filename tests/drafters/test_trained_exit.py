"""A trained exit: at first it is plain early exit to the bit, and what it has learnt is what it drafts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.greedy import NEW, prompts, reference
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import UnsupportedModel
from headstart.drafters import Row
from headstart.drafters.ahead import AheadDrafter
from headstart.drafters.early_exit import EarlyExitDrafter
from headstart.drafters.trained_exit import TrainedExitDrafter
from headstart.model.heads.exit import Exit, read, write
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Sampling

TEXT = (3, 7, 11, 5, 3, 7)
WIDTH, VOCAB = 32, 97


def runner(path: str, decoder: Any = "auto") -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)), decoder=decoder)


def folder_of(tmp_path: Path, exit_: Exit) -> Path:
    folder = tmp_path / f"exit-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    write(folder, exit_, vocab_size=VOCAB, target="target")
    return folder


def exit_of(path: str, layers: int = 2, *, noise: float = 0.0, token_ids: torch.Tensor | None = None) -> Exit:
    """The target's own way out, or one near it."""
    gain = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).model.norm.weight.detach()
    generator = torch.Generator().manual_seed(3)
    linear = torch.eye(WIDTH) + noise * torch.randn(WIDTH, WIDTH, generator=generator)
    return Exit(layers, gain, linear, token_ids)


def drafted(drafter: Any, target: ModelRunner, **sampling: Any) -> hs.types.Draft:
    cache = target.new_cache(1)
    slot = cache.acquire()
    target.forward([Segment(slot, TEXT[:-1])], cache)
    cache.keep(slot, len(TEXT) - 1)
    drafter.attach(target, cache)
    distribution = SamplingState(Sampling(**sampling), (), VOCAB, frozenset())
    (draft,) = drafter.propose([Row(0, TEXT, distribution, Noise(0), budget=Budget(5), slot=slot)])
    assert cache.lengths[slot] == len(TEXT) - 1, "the target's cache is as it was"
    return draft


@pytest.mark.parametrize("decoder", ["fused", "lean"])
@pytest.mark.parametrize("tree", ["none", "sampled"])
def test_the_targets_own_way_out_is_plain_early_exit(
    decoder: Any, tree: Any, tiny: Callable[..., str], tmp_path: Path
) -> None:
    target = runner(tiny("llama"), decoder)
    folder = folder_of(tmp_path, exit_of(tiny("llama")))
    mine = TrainedExitDrafter.load(folder, target, target_folder=tiny("llama"), quantize=None, tree=tree)
    plain = EarlyExitDrafter(layer=2, tree=tree)
    for sampling in ({}, {"temperature": 0.8}):
        one, other = drafted(mine, target, **sampling), drafted(plain, target, **sampling)
        assert (one.tokens, one.parents) == (other.tokens, other.parents)
        assert (one.q is None) == (other.q is None)
        if one.q is not None and other.q is not None:
            # Only the row kernels promise the same bits; torch's sums depend on the shapes and on the processor
            torch.testing.assert_close(one.q, other.q, **({"rtol": 0.0, "atol": 0.0} if decoder == "fused" else {}))


@pytest.mark.parametrize("decoder", ["fused", "lean"])
def test_a_guess_is_that_of_norm_map_and_matrix(decoder: Any, tiny: Callable[..., str], tmp_path: Path) -> None:
    known = torch.tensor([3, 5, 11, 40, 41, 60, 96])
    made = exit_of(tiny("llama"), noise=0.3, token_ids=known)
    target = runner(tiny("llama"), decoder)
    folder = folder_of(tmp_path, made)
    mine = TrainedExitDrafter.load(folder, target, target_folder=tiny("llama"), quantize=None)
    draft = drafted(mine, target, temperature=1.0)
    assert draft.q is not None
    model = AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32)
    rounded = made.linear.bfloat16().float()
    with torch.no_grad():
        states = model(torch.tensor([[*TEXT, *draft.tokens]]), output_hidden_states=True).hidden_states[2][0]
        normed = model.model.norm(states)
        logits = normed @ rounded.T @ model.lm_head.weight[known].T
    for i in range(5):
        want = logits[len(TEXT) - 1 + i].softmax(-1)
        torch.testing.assert_close(draft.q[i, known], want, atol=2e-4, rtol=1e-2)
        assert draft.q[i].sum() == pytest.approx(1)
    assert set(draft.tokens) <= set(known.tolist())


@pytest.mark.parametrize("quantize", ["auto", None])
def test_it_is_recognised_and_the_text_is_the_targets(
    quantize: Any, tiny: Callable[..., str], load: Callable[..., Any], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, exit_of(tiny("llama"), 3, noise=0.02))
    engine = load("llama", str(folder), draft_quantize=quantize, max_batch_size=3, prefill_chunk=8)
    assert isinstance(engine.drafter, TrainedExitDrafter)
    batch = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in batch) == reference(tiny("llama"))
    assert sum(out.stats.accepted for out in batch) > 0
    assert sum(tensor.numel() for tensor in engine.drafter.weights()) < 20_000, "the layers are the target's"


def test_ahead_of_the_target_it_drafts_what_it_drafts_in_turn(
    tiny: Callable[..., str], load: Callable[..., Any], tmp_path: Path
) -> None:
    """Drawn tokens under a seed, so that any difference between the two would show in the text."""
    folder = folder_of(tmp_path, exit_of(tiny("llama"), 3, noise=0.02, token_ids=torch.arange(60)))
    sampling = hs.Sampling(max_tokens=NEW, temperature=1.0, seed=5)
    texts, accepted = [], []
    for name in (str(folder), f"ahead:{folder}"):
        engine = load("llama", name, rule="exact", num_speculative_tokens=3, max_batch_size=3)
        outs = engine.generate([list(prompt) for prompt in prompts()], sampling)
        texts.append([out.tokens for out in outs])
        accepted.append(sum(out.stats.accepted for out in outs))
    assert isinstance(engine.drafter, AheadDrafter)
    assert texts[0] == texts[1]
    assert accepted[0] == accepted[1] > 0


def test_what_does_not_fit_is_refused(tiny: Callable[..., str], load: Callable[..., Any], tmp_path: Path) -> None:
    own = exit_of(tiny("llama"))
    shape: dict[str, int] = {"layers": 4, "width": WIDTH, "vocab_size": VOCAB}
    folder = folder_of(tmp_path, own)
    others = (({"layers": 2}, "after 2 layers"), ({"width": 64}, "hidden_size=32"), ({"vocab_size": 5}, "97"))
    for wrong, message in others:
        with pytest.raises(UnsupportedModel, match=message):
            read(folder, **{**shape, **wrong})
    for known in ([5, 4], [3, 97], [4, 4]):
        with pytest.raises(UnsupportedModel, match="d2t"):
            read(folder_of(tmp_path, Exit(2, own.gain, own.linear, torch.tensor(known))), **shape)
    with pytest.raises(UnsupportedModel, match=r"linear\.weight is"):
        read(folder_of(tmp_path, Exit(2, own.gain, own.linear[:5])), **shape)
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(UnsupportedModel, match="cannot be read"):
        read(folder, **shape)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "exit_layers": "two"}))
    with pytest.raises(UnsupportedModel, match="'two'"):
        read(folder, **shape)
    with pytest.raises(UnsupportedModel, match=r"cannot be left early|hidden_size"):
        load("persimmon", str(folder_of(tmp_path, own)))
