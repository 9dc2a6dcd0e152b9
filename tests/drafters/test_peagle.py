"""Heads of several layers, and masked rows (P-EAGLE): what the formulas say, in one forward; and the target's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import eagle_heads
from support.eagle_engines import PROMPTS, engines, head_of, paths, recorded, reference, runner_of
from support.eagle_heads import MASK, Plain, write

import headstart as hs
from headstart.drafters.eagle import EagleDrafter
from headstart.drafters.eagle.drafter import LONGEST
from headstart.engine.engine import Engine
from headstart.model.heads.eagle_checkpoint import is_eagle, read
from headstart.model.packed import Packed, Segment
from headstart.rule.drafted import drafted_distributions, whole
from headstart.types import Draft, Sampling

TEXT = [3, 5, 2, 7, 11, 4, 4, 1, 9]
K = 4


@pytest.fixture
def engine_of() -> Iterator[Callable[..., Engine]]:
    yield from engines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "head"


@pytest.mark.parametrize(("form", "layers"), [("eagle1", 2), ("eagle3", 3)])
def test_both_forwards_of_several_layers_say_what_the_formulas_say(
    form: str, layers: int, folder: Path, root: Path
) -> None:
    target = eagle_heads.target(root, tied=True)
    plain = Plain(write(folder, form, layers=layers), target)
    for kind in ("tensor", "fused"):
        found = head_of(folder, runner_of(target), kind).read(TEXT[1:], plain.states(TEXT[:-1])).logits
        for n in (2, 9):
            torch.testing.assert_close(found[n - 2], plain.logits(TEXT[:n]), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_masked_rows_of_the_kernels_and_of_their_twin(dtype: torch.dtype, folder: Path, root: Path) -> None:
    """Two requests of different lengths; the masks of the round before lie behind the text, and are not seen."""
    path = eagle_heads.target(root, tied=True)
    runner = runner_of(path, dtype=dtype)
    write(folder, "speculators", layers=2, masked=True, draft_vocab=13)
    found = []
    for kind in ("tensor", "fused"):
        head = head_of(folder, runner, kind)
        slots = head.new_cache(2)
        generator = torch.Generator().manual_seed(0)
        outputs = []
        for counts in ((9, 5), (2, 1)):
            segments, given = [], []
            for n in counts:
                slot = len(segments) if outputs else slots.acquire()
                segments.append(Segment(slot, tuple(range(n)), Draft.chain([MASK] * (K - 1)), judged=K))
                given += [torch.randn(n, head.config.features, generator=generator), head.mask_states(K - 1).float()]
            packed = Packed(segments, slots, dtype, runner.device)
            output = head.run(packed, torch.cat(given).to(dtype), own=False)
            outputs += [output.logits.float(), output.states.float()]
            for segment in segments:
                slots.keep(segment.slot, len(segment.causal))
        found.append(outputs)
    tolerance = 2e-4 if dtype == torch.float32 else 0.15
    for tensor, fused in zip(*found, strict=True):
        torch.testing.assert_close(fused, tensor, atol=tolerance, rtol=tolerance)


def corrected(plain: Plain, logits: torch.Tensor, state: torch.Tensor, before: int, top: int = 6) -> torch.Tensor:
    """Logits [V] of one place with the selector, written down once more."""
    a, b, w = (
        plain.w[f"candidate_selector.{name}"]
        for name in ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
    )
    ids = torch.arange(len(b)) + plain.w.get("d2t", 0)
    best = logits[ids].topk(top).indices
    found = torch.full_like(logits, float("-inf"))
    found[ids[best]] = logits[ids[best]] + b[best] @ (a[before] * (w @ state))
    return found


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize(("form", "tree"), [("speculators", "none"), ("eagle3", "sampled")])
def test_drafts_are_those_of_the_formulas_and_cost_one_forward(
    form: str, tree: Any, rank: int, folder: Path, root: Path, engine_of: Callable[..., Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Greedy chains, and the distributions of drawn ones; prompts in pieces, requests that join and leave."""
    target = eagle_heads.target(root)
    plain = Plain(write(folder, form, layers=2, masked=True, rank=rank, draft_vocab=13), target)
    engine = engine_of(target, folder, tree, budget=K, rule="exact")
    head = engine.drafter.head  # type: ignore[union-attr]
    calls: list[int] = []
    run = head.run
    monkeypatch.setattr(
        head, "run", lambda packed, *a, **b: calls.append(len(packed.judged_rows)) or run(packed, *a, **b)
    )
    drafts = recorded(engine)
    samplings = [Sampling(max_tokens=n, temperature=0.8 * (n % 2), seed=n) for n in (8, 5, 7)]
    outs = engine.generate(list(PROMPTS[:3]), samplings)
    assert all(out.stats.speculation.error is None for out in outs)
    made = [each for each in drafts if len(each[2])]
    assert len(made) >= 8
    assert sum(each > 3 for each in calls) <= len(made), "one forward for all that is drafted in a step"
    for text, row, draft in made[::2]:
        logits, states = plain.masked(text, max(draft.depths))
        for node, path in enumerate(paths(draft)):
            place, before = len(path) - 1, (text[-1], *path)[len(path) - 1]
            scores = corrected(plain, logits[place], states[place], before) if rank else logits[place]
            elder = [draft.tokens[i] for i in draft.children[draft.parents[node] + 1] if i < node]
            if row.sampling.greedy:
                scores[elder] = float("-inf")
                assert path[-1] == int(scores.argmax())
                continue
            distribution = (scores / 0.8).softmax(-1)
            distribution[elder] = 0
            assert draft.q is not None
            found = torch.from_numpy(whole(drafted_distributions(draft)[node], len(distribution)))
            torch.testing.assert_close(found, distribution / distribution.sum(), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("tree", "rank", "dim"), [("none", 0, 16), ("top-k", 3, 16), ("mixed", 3, 8)])
def test_greedy_text_is_that_of_transformers(
    tree: str, rank: int, dim: int, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    """On the kernels, and in tensor operations where attention heads are of 8 numbers."""
    target = eagle_heads.target(root)
    sizes = {"q": 32, "k": 16, "v": 16}
    extra = {}
    for layer, into in (("midlayer", 64), ("layers.1", 32)):
        extra |= {f"{layer}.self_attn.{n}_proj.weight": 0.2 * torch.randn(out, into) for n, out in sizes.items()}
        extra[f"{layer}.self_attn.o_proj.weight"] = 0.2 * torch.randn(32, 32)
    extra = extra if dim == 8 else {}
    write(folder, "eagle3", layers=2, masked=True, rank=rank, draft_vocab=13, extra=extra, head_dim=dim)
    engine = engine_of(target, folder, tree)
    assert type(engine.drafter.head).__name__ == ("TensorHead" if dim == 8 else "FusedHead")  # type: ignore[union-attr]
    outs = engine.generate(list(PROMPTS), Sampling(max_tokens=16))
    assert [out.tokens for out in outs] == [reference(target, tuple(prompt), 16) for prompt in PROMPTS]
    assert all(out.stats.speculation.error is None for out in outs)
    assert sum(out.stats.drafted for out in outs) > sum(out.stats.accepted for out in outs) > 0


def test_a_folder_is_recognised_and_loads_by_its_path(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    assert is_eagle(write(folder, "speculators", layers=2, masked=True, draft_vocab=13))
    engine = hs.load(target, drafter=folder, dtype="float32", max_batch_size=1, pacing="fixed")
    assert isinstance(engine.drafter, EagleDrafter)
    assert engine.drafter.head.config.parallel
    assert engine.generate([3, 4, 5], Sampling(max_tokens=8)).stats.drafted > 0


def test_the_token_may_have_other_names_and_the_depth_is_what_was_trained(folder: Path, root: Path) -> None:
    runner = runner_of(eagle_heads.target(root))
    for name in ("mask_token_id", "pard_token", "ptd_token_id"):
        write(folder, "eagle3", masked=True, **{"mask_token_id": None, name: 7})
        assert read(folder, runner.config).config.mask_token_id == 7
    write(folder, "speculators", masked=True)
    config = read(folder, runner.config).config
    assert (config.depth, config.layers, config.selector_rank) == (5, 1, 0)
    drafter = EagleDrafter.load(folder, runner, target_folder="", slots=1)
    assert (drafter.default_budget, drafter.limit) == (5, LONGEST)
    trees = EagleDrafter.load(folder, runner, target_folder="", slots=1, tree="top-k")
    assert {depth for _, depth in trees.sizes} == {1, 2, 3, 4, 5}


def test_a_selector_may_lie_in_a_file_of_its_own(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    write(folder, "eagle3", masked=True, rank=3, draft_vocab=13)
    whole = read(folder, runner_of(target).config)
    tensors = load_file(folder / "model.safetensors")
    apart = {name: tensors.pop(name) for name in list(tensors) if name.startswith("candidate_selector.")}
    save_file(tensors, folder / "model.safetensors")
    save_file(apart, folder / "selector.safetensors")
    assert read(folder, runner_of(target).config).tensors.keys() == whole.tensors.keys()
