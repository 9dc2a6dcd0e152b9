"""EAGLE heads: what they propose is what the papers' formulas say, in every form, kind of draft and kind of batch; what
is emitted is the target's own; what cannot be run is refused with the reason."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import eagle_heads
from support.eagle_engines import PROMPTS, engines, head_of, paths, recorded, reference, runner_of
from support.eagle_heads import FORMS, LAYERS, Plain, write
from support.sampled_distribution import PROMPT, TOKENS, joint, p_value
from support.tiny import checkpoint
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.drafters import Observation, Row
from headstart.drafters.eagle import EagleDrafter
from headstart.engine.engine import Engine
from headstart.loading.assembly import assemble
from headstart.model import native
from headstart.model.heads.eagle import TensorHead
from headstart.model.heads.eagle_checkpoint import default_layer_ids, is_eagle, read
from headstart.model.heads.stored_tensors import rounded
from headstart.model.packed import Packed, Segment
from headstart.model.runner import ModelRunner
from headstart.rule.distribution import SamplingState
from headstart.rule.drafted import drafted_distributions, whole
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling

TREES = ("none", "top-k", "sampled")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "eagle1": ("eagle1", {}),
    "eagle1, bias": ("eagle1", {"bias": True}),
    "eagle3": ("eagle3", {}),
    "eagle3, part of the vocabulary": ("eagle3", {"draft_vocab": 13}),
    "speculators": ("speculators", {"eagle_aux_hidden_state_layer_ids": [0, 2, LAYERS]}),
    "speculators, normed residual": ("speculators", {"norm_before_residual": True, "draft_vocab": 9}),
    "speculators, all norms": (
        "speculators",
        {
            "norm_before_residual": True,
            "norm_before_fc": True,
            "fc_norm": True,
            "norm_output": True,
            "extra": {
                "input_norm.weight": torch.linspace(0.5, 1.5, 96),
                **{f"fc_norm.{i}.weight": torch.linspace(1.5 - i, 0.5 + i, 32) for i in range(3)},
            },
        },
    ),
    "eagle1, own embedding": (
        "eagle1",
        {"extra": {"embed_tokens.weight": torch.randn(23, 32, generator=torch.Generator().manual_seed(4))}},
    ),
}


@pytest.fixture
def engine_of() -> Iterator[Callable[..., Engine]]:
    yield from engines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "head"


# -- the two forwards -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_forwards_say_what_the_formulas_say(variant: str, folder: Path, root: Path) -> None:
    form, options = VARIANTS[variant]
    target = eagle_heads.target(root, tied=True)
    plain = Plain(write(folder, form, **options), target)
    text = torch.randint(23, (17,), generator=torch.Generator().manual_seed(2)).tolist()
    for kind in ("tensor", "fused"):
        head = head_of(folder, runner_of(target), kind)
        said = head.read(text[1:], plain.states(text[:-1])).logits
        for n in (2, 3, 9, 17):
            want = plain.logits(text[:n])
            want = want if head.token_ids is None else want[head.token_ids]
            torch.testing.assert_close(said[n - 2], want, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_the_row_kernels_agree_with_their_twin_on_trees_grown_in_steps(
    form: str, dtype: torch.dtype, folder: Path, root: Path
) -> None:
    target = runner_of(eagle_heads.target(root, tied=True), dtype=dtype)
    write(folder, form, draft_vocab=None if form == "eagle1" else 11)
    found = []
    for kind in ("tensor", "fused"):
        head = head_of(folder, target, kind)
        slots = head.new_cache(2)
        generator = torch.Generator().manual_seed(0)
        for slot, n in ((slots.acquire(), 9), (slots.acquire(), 5)):
            states = torch.randn(n, head.config.features, generator=generator).to(dtype)
            head.run(Packed([Segment(slot, tuple(range(n)))], slots, dtype, target.device), states, own=False)
            slots.keep(slot, n)
        said = []
        for tokens, parents, held in (((3, 4, 5), (-1, -1, 0), 0), ((3, 4, 5, 6, 7), (-1, -1, 0, 1, 2), 3)):
            draft = Draft(tokens, parents)
            segments = [Segment(slot, (), draft, judged=len(tokens) - held, held=held) for slot in (0, 1)]
            rows = 2 * (len(tokens) - held)
            states = torch.randn(rows, 32, generator=generator)
            spoken = head.run(Packed(segments, slots, dtype, target.device), states, own=True)
            said += [spoken.logits.float(), spoken.states.float()]
        found.append(said)
    tolerance = 2e-4 if dtype == torch.float32 else 0.15
    for tensor, fused in zip(*found, strict=True):
        torch.testing.assert_close(fused, tensor, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("quantize", [None, "int8", "int4"])
def test_a_row_has_the_same_bits_in_any_company(quantize: str | None, folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    plain = Plain(write(folder, "eagle3"), target)
    text = list(range(1, 20))
    head = head_of(folder, runner_of(target), "fused", quantize=quantize)
    whole = head.read(text[1:], plain.states(text[:-1])).logits
    slots = head.new_cache(1)
    slots.acquire()
    for row, (token, state) in enumerate(zip(text[1:], plain.states(text[:-1]), strict=True)):
        packed = Packed([Segment(0, (token,))], slots, head.dtype, head.device)
        assert torch.equal(head.run(packed, state[None], own=False).logits[0], whole[row])
        slots.keep(0, 1)


@pytest.mark.parametrize(("quantize", "share"), [("int8", 0.1), ("int4", 0.4)])
def test_a_rounded_head_is_close(quantize: str, share: float, folder: Path, root: Path) -> None:
    if not native.kernels().supported({"int8": native.INT8, "int4": native.GROUPED4}[quantize]):
        pytest.skip(f"this processor has no {quantize} products")
    target = eagle_heads.target(root)
    plain = Plain(write(folder, "eagle3"), target)
    text = list(range(1, 20))
    exact, coarse = (head_of(folder, runner_of(target), "fused", quantize=q) for q in (None, quantize))
    want, got = (head.read(text[1:], plain.states(text[:-1])).logits for head in (exact, coarse))
    assert 0 < float((want - got).abs().max()) < share * float(want.max() - want.min())
    held = [sum(tensor.nbytes for tensor in head._weights.tensors) for head in (exact, coarse)]
    assert held[1] < 0.7 * held[0]
    named = {"int8": "int8", "int4": "4-bit codes by 32"}[quantize]
    assert [head.weights_in_words for head in (exact, coarse)] == ["float32", named]


def test_heads_refuse_other_codes(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    runner = runner_of(target)
    with pytest.raises(hs.errors.InvalidOption, match="int8-grouped"):
        EagleDrafter.load(write(folder, "eagle3"), runner, target_folder=target, slots=1, quantize="int8-grouped")


def test_a_head_stored_on_int8_is_the_one_that_runs_on_int8(folder: Path, root: Path, tmp_path: Path) -> None:
    target = eagle_heads.target(root)
    plain = Plain(write(folder, "eagle3", draft_vocab=13), target)
    small = tmp_path / "small"
    shutil.copytree(folder, small)
    stored = rounded(load_file(small / "model.safetensors"))
    save_file(stored, small / "model.safetensors")
    assert stored["midlayer.mlp.up_proj.weight"].dtype == stored["lm_head.weight"].dtype == torch.int8
    assert stored["fc.weight"].dtype == torch.float32
    runner = runner_of(target)
    for name, tensor in read(small, runner.config).tensors.items():
        whole = read(folder, runner.config).tensors[name]
        coarse = name.endswith("_proj.weight") or name == "lm_head.weight"
        torch.testing.assert_close(tensor, whole, atol=float(whole.abs().max()) / 253 if coarse else 0.0, rtol=0.0)
    if native.kernels().supported(native.INT8):
        text = list(range(1, 20))
        both = (head_of(each, runner, "fused", quantize="int8") for each in (folder, small))
        want, got = (head.read(text[1:], plain.states(text[:-1])).logits for head in both)
        assert torch.equal(want, got)


@pytest.mark.parametrize("damage", ["none", "short"])
def test_codes_without_their_scales_are_refused(damage: str, folder: Path, root: Path) -> None:
    config = AutoModelForCausalLM.from_pretrained(eagle_heads.target(root)).config
    write(folder, "eagle3")
    stored = rounded(load_file(folder / "model.safetensors"))
    scale = stored.pop("lm_head.weight_scale")
    if damage == "short":
        stored["lm_head.weight_scale"] = scale[:-1].clone()
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(hs.errors.UnsupportedModel, match=r"lm_head\.weight is on int8") as error:
        read(folder, config)
    assert "lm_head.weight_scale" in error.value.hint


def test_what_the_kernels_do_not_take_runs_in_tensor_operations(folder: Path, root: Path) -> None:
    """Attention heads of 8 numbers: the head still drafts, in every way."""
    target = eagle_heads.target(root)
    shapes = {"q": (32, 64), "k": (16, 64), "v": (16, 64), "o": (32, 32)}
    extra = {f"midlayer.self_attn.{name}_proj.weight": 0.2 * torch.randn(shape) for name, shape in shapes.items()}
    write(folder, "eagle3", draft_vocab=13, extra=extra, head_dim=8)
    runner = runner_of(target)
    for tree in TREES:
        drafter = EagleDrafter.load(folder, runner, target_folder=target, slots=2, tree=tree)
        assert isinstance(drafter.head, TensorHead)
        engine = assemble(runner, None, drafter, max_batch_size=2)
        outs = engine.generate([[3, 4], [5]], [Sampling(max_tokens=12), Sampling(max_tokens=12, temperature=1.0)])
        assert all(out.stats.drafted > 0 and out.stats.speculation.error is None for out in outs)
        assert outs[0].tokens == engine.plain().generate([3, 4], Sampling(max_tokens=12)).tokens


# -- drafts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_chains_are_those_of_the_formulas_in_every_step_of_a_batch(
    variant: str, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    """Prompts read in pieces, requests that join and leave, guesses accepted and rejected."""
    form, options = VARIANTS[variant]
    target = eagle_heads.target(root)
    plain = Plain(write(folder, form, **options), target)
    engine = engine_of(target, folder, budget=3)
    drafts = recorded(engine)
    outs = engine.generate(list(PROMPTS), [Sampling(max_tokens=n) for n in (12, 5, 9, 16, 7)])
    assert all(out.stats.speculation.error is None for out in outs)
    assert sum(len(draft) > 0 for _, _, draft in drafts) > 20
    for text, _, draft in drafts[::2]:
        for i, token in enumerate(draft.tokens):
            assert token == int(plain.logits(text, draft.tokens[:i]).argmax())


@pytest.mark.parametrize("form", ["eagle1", "eagle3"])
def test_dynamic_trees_are_the_likeliest_paths(
    form: str, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    target = eagle_heads.target(root)
    plain = Plain(write(folder, form), target)
    engine = engine_of(target, folder, "top-k", budget=14)
    drafts = recorded(engine)
    outs = engine.generate(list(PROMPTS[:3]), Sampling(max_tokens=8))
    assert all(out.stats.speculation.error is None for out in outs)
    grown = [each for each in drafts if len(each[2])]
    assert len(grown) > 10
    for text, context, draft in grown[::3]:
        assert len(draft) == min(14, context.budget.nodes)
        width = min(10, max(2, len(draft) // 2))
        assert set(paths(draft)) == likeliest(plain, text, len(draft), max(draft.depths), width)


def likeliest(plain: Plain, text: Sequence[int], count: int, depth: int, width: int) -> set[tuple[int, ...]]:
    """EAGLE-2, written down again: expand the `width` best of each level, rank all candidates."""
    scores: dict[tuple[int, ...], float] = {}
    frontier: list[tuple[int, ...]] = [()]
    for _ in range(depth):
        born: dict[tuple[int, ...], float] = {}
        for path in frontier:
            values, ids = plain.logits(text, path).log_softmax(-1).topk(width)
            for value, token in zip(values.tolist(), ids.tolist(), strict=True):
                born[(*path, token)] = scores.get(path, 0.0) + value
        scores |= born
        frontier = sorted(born, key=lambda path: -born[path])[:width]
    return set(sorted(scores, key=lambda path: -scores[path])[:count])


@pytest.mark.parametrize("tree", ["none", "sampled"])
def test_q_is_the_distribution_each_node_was_drawn_from(
    tree: str, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    target = eagle_heads.target(root)
    plain = Plain(write(folder, "eagle3", draft_vocab=13), target)
    engine = engine_of(target, folder, tree, budget=7, rule="exact")
    drafts = recorded(engine)
    engine.generate(list(PROMPTS[:3]), [Sampling(max_tokens=10, temperature=0.8, seed=s) for s in range(3)])
    checked = 0
    for text, _, draft in drafts[::3]:
        if not len(draft):
            continue
        assert draft.q is not None
        assert draft.vocabulary is not None
        assert draft.q.shape == (len(draft), 13)
        q = [whole(distribution, 23) for distribution in drafted_distributions(draft)]
        for node, path in enumerate(paths(draft)):
            distribution = (plain.logits(text, path[:-1]) / 0.8).softmax(-1)
            elder = [i for i in draft.children[draft.parents[node] + 1] if i < node]
            distribution[[draft.tokens[i] for i in elder]] = 0
            torch.testing.assert_close(
                torch.from_numpy(q[node]), distribution / distribution.sum(), atol=1e-4, rtol=1e-3
            )
            checked += 1
    assert checked > 20


def test_a_request_of_which_states_are_missing_gets_no_draft(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    runner = runner_of(target)
    drafter = EagleDrafter.load(write(folder, "eagle3"), runner, target_folder=target, slots=2, tree="none")
    distribution = SamplingState(Sampling(), (), 23, frozenset())

    def propose(request: int, tokens: Sequence[int]) -> Draft:
        return drafter.propose([Row(request, tuple(tokens), distribution, Noise(0), budget=Budget(4))])[0]

    assert len(propose(-1, [1, 2, 3, 4])) == 0, "measured before the first request"
    Watched(drafter, runner).read(1, [5, 6, 7])
    assert len(propose(2, [5, 6, 7, 8])) == 0, "never seen"
    assert len(propose(1, [5, 6, 7, 8, 9])) == 0, "one state is missing"
    first = propose(1, [5, 6, 7, 8])
    assert len(first) == 4
    assert propose(1, [5, 6, 7, 8]).tokens == first.tokens, "asked twice"
    assert propose(1, [5, 6, 7, 9]).tokens != (), "another token may come than was thought"
    drafter.release(1)
    drafter.release(1)
    drafter.release(7)
    drafter.cache.check()
    assert drafter.cache.free_slots == 2


class Watched:
    """Shows a drafter what a target reads."""

    def __init__(self, drafter: EagleDrafter, runner: ModelRunner) -> None:
        self.drafter, self.runner = drafter, runner

    def read(self, request: int, tokens: Sequence[int]) -> None:
        slots = self.runner.new_cache(1)
        hidden = self.runner.forward([Segment(slots.acquire(), tuple(tokens))], slots, taps=self.drafter.taps).hidden
        self.drafter.observe(Observation(_step(request), tuple(tokens), 0, hidden))


def _step(request: int) -> Any:
    from headstart.engine.guarded_drafter import NO_DRAFT
    from headstart.types import Seconds, Speculation, Step

    speculation = Speculation(on=True, drafter="eagle")
    return Step(request, 0, 0, NO_DRAFT, (), (), None, 0, 1, Seconds(), None, speculation)


@pytest.mark.parametrize("tree", TREES)
def test_at_the_end_of_its_context_it_drafts_no_further(
    tree: str, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    target = eagle_heads.target(root)
    write(folder, "eagle3", max_position_embeddings=32)
    engine = engine_of(target, folder, tree)
    drafts = recorded(engine)
    out = engine.generate([1, 2, 3], Sampling(max_tokens=60))
    assert out.tokens == engine.plain().generate([1, 2, 3], Sampling(max_tokens=60)).tokens
    assert out.stats.speculation.error is None
    assert max(len(text) for text, _, draft in drafts if len(draft)) > 26
    assert all(len(text) + max(draft.depths) <= 32 for text, _, draft in drafts if len(draft))


# -- the text is the target's own -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("form", FORMS)
def test_greedy_text_is_that_of_transformers(
    form: str, tree: str, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    """Batch 1 and ragged 5, untied and tied."""
    for tied in (False, True):
        target = eagle_heads.target(root, tied=tied)
        write(folder, form, draft_vocab=None if form == "eagle1" else 13)
        engine = engine_of(target, folder, tree)
        expected = [reference(target, tuple(prompt), 24) for prompt in PROMPTS]
        assert engine.generate(list(PROMPTS[3]), Sampling(max_tokens=24)).tokens == expected[3]
        outs = engine.generate(list(PROMPTS), Sampling(max_tokens=24))
        assert [out.tokens for out in outs] == expected
        assert all(out.stats.speculation.error is None for out in outs)
        accepted, drafted = (sum(getattr(out.stats, name) for out in outs) for name in ("accepted", "drafted"))
        assert drafted > accepted > 0


LAWS = [
    *(("eagle3", tree, rule, 1.0, 1.0) for tree in TREES for rule in ("exact", "coupled")),
    *(("eagle1", tree, "exact", 0.7, 0.9) for tree in ("none", "top-k")),
]


@pytest.mark.parametrize(("form", "tree", "rule", "temperature", "top_p"), LAWS)
@pytest.mark.slow  # the exactness matrix has these heads with each tree, under both rules
def test_chi_square(
    form: str, tree: str, rule: Any, temperature: float, top_p: float, folder: Path, root: Path,
    engine_of: Callable[..., Engine],
) -> None:  # fmt: skip
    target = eagle_heads.target(root, vocab=8)
    write(folder, form, vocab=8, draft_vocab=None if form == "eagle1" else 6)
    engine = engine_of(target, folder, tree, slots=50, budget=3 if tree == "none" else 8, rule=rule)
    samplings = [
        Sampling(max_tokens=TOKENS + 1, temperature=temperature, top_p=top_p, seed=seed) for seed in range(800)
    ]
    outs = engine.generate([PROMPT] * len(samplings), samplings)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(target, temperature, top_p)) > 1e-3
    assert all(out.stats.speculation.error is None for out in outs)
    assert 0 < sum(out.stats.accepted for out in outs) < sum(out.stats.drafted for out in outs)


def test_coupled_gives_the_text_of_the_seed(folder: Path, root: Path, engine_of: Callable[..., Engine]) -> None:
    target = eagle_heads.target(root)
    write(folder, "eagle3", draft_vocab=13)
    texts = set()
    for tree in TREES:
        engine = engine_of(target, folder, tree, rule="coupled")
        samplings = [Sampling(max_tokens=20, temperature=1.0, seed=s, repetition_penalty=1.1) for s in range(5)]
        texts.add(tuple(out.tokens for out in engine.generate(list(PROMPTS), samplings)))
        texts.add(tuple(out.tokens for out in engine.plain().generate(list(PROMPTS), samplings)))
    assert len(texts) == 1


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_every_form_is_recognised_and_nothing_else(folder: Path, root: Path) -> None:
    for form in FORMS:
        assert is_eagle(write(folder / form, form))
    assert not is_eagle(eagle_heads.target(root))
    assert not is_eagle(checkpoint(root, "gpt2"))
    assert not is_eagle(folder / "nowhere")


@pytest.mark.parametrize(
    ("form", "fields", "ids"),
    [
        ("eagle1", {}, (LAYERS,)),
        ("eagle3", {}, (1, 2, 3)),
        ("eagle3", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 3]}}, (1, 2, 4)),
        (
            "eagle3",
            {
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 2], "use_aux_hidden_state": True},
                "headstart": {"layer_ids": [0, 1, 3], "layer_ids_are": "inputs"},
            },
            (0, 1, 3),
        ),
        ("eagle3", {"headstart": {"layer_ids": [0, 1, 3], "layer_ids_are": "outputs"}}, (1, 2, 4)),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": [0, 2, 4]}, (0, 2, 4)),
    ],
)
def test_layer_ids_by_their_convention(
    form: str, fields: dict[str, Any], ids: tuple[int, ...], folder: Path, root: Path
) -> None:
    config = runner_of(eagle_heads.target(root)).config
    assert read(write(folder, form, **fields), config).config.layer_ids == ids


def test_usual_layer_ids_are_three_different_ones() -> None:
    assert default_layer_ids(32) == (2, 16, 29)
    for layers in range(2, 40):
        ids = default_layer_ids(layers)
        assert len(set(ids)) == 3
        assert all(0 <= i <= layers for i in ids)


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "hidden size of the target": ("eagle3", {"target_hidden_size": 64}, "hidden_size is 64 there and 32 here"),
    "vocabulary": ("eagle3", {"vocab_size": 24}, "vocab_size is 24 there and 23 here"),
    "both": ("eagle1", {"vocab_size": 24, "hidden_size": 48}, "hidden_size is 48 .*; vocab_size is 24"),
    "a layer too many": ("speculators", {"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, r"\[1, 2, 9\].* 4 layers"),
    "layers of no convention": ("eagle3", {"headstart": {"layer_ids": [1, 2, 3]}}, "None"),
    "more layers": ("eagle3", {"num_hidden_layers": 2}, r"lacks tensors layers\.1\."),
    "layers of two kinds": (
        "eagle3",
        {"layers": 2, "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8},
        "several kinds",
    ),
    "masks without their token": ("eagle3", {"masked": True, "mask_token_id": None}, "names no mask token"),
    "two mask tokens": ("eagle3", {"masked": True, "pard_token": 6}, "is no mask token"),
    "a mask token outside": ("speculators", {"masked": True, "mask_token_id": 23}, "is no mask token"),
    "masks without their state": ("speculators", {"masked": True, "without": ["mask_hidden"]}, "tensor mask_hidden"),
    "a selector without its tensors": (
        "eagle3", {"masked": True, "selector_rank": 3, "selector_top_k": 4}, "candidate_selector",
    ),
    "a selector of nothing": ("eagle3", {"masked": True, "rank": 3, "selector_top_k": 0}, "are no selector"),
    "a selector of steps": ("eagle3", {"rank": 3}, "drafts step by step"),
    "another activation": ("eagle1", {"hidden_act": "gelu"}, "gelu"),
    "a rotation that is not known": ("eagle3", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
    "no inner states": ("eagle3", {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
    "config and weights": ("eagle3", {"intermediate_size": 64}, r"proj.weight has the shape .*48.* where .*64"),
    "d2t out of range": ("eagle3", {"draft_vocab": 9, "extra": {"d2t": torch.full((9,), 20)}}, "tokens from 20 to 28"),
    "d2t twice": ("eagle3", {"draft_vocab": 9, "extra": {"d2t": -torch.arange(9)}}, "the same token twice"),
    "d2t too short": ("eagle3", {"draft_vocab": 9, "extra": {"d2t": torch.zeros(8).long()}}, "draft_vocab_size=9"),
    "t2d of another head": (
        "eagle3", {"draft_vocab": 9, "extra": {"t2d": torch.arange(23) < 9}}, "t2d does not mark",
    ),
    "no d2t": ("eagle3", {"draft_vocab": 9, "without": ["d2t", "t2d"]}, "lacks the tensor d2t"),
    "no fc": ("eagle1", {"without": ["fc.weight"]}, "lacks the tensor fc.weight"),
    "two missing": (
        "speculators", {"without": ["layers.0.hidden_norm.weight", "norm.weight"]}, "tensors hidden_norm.weight, norm",
    ),
    "a tensor too many": ("eagle1", {"extra": {"enorm.weight": torch.ones(32)}}, "enorm.weight"),
    "parallel in name alone": ("speculators", {"speculators_model_type": "peagle"}, "names no mask token"),
    "yet another speculator": ("speculators", {"speculators_model_type": "mlp"}, "'mlp'"),
    "accept k": (
        "speculators", {"speculators_config": {"proposal_methods": [{"verifier_accept_k": 3}]}}, "verifier_accept_k=3",
    ),
    "tolerance": (
        "speculators", {"speculators_config": {"proposal_methods": [{"accept_tolerance": 0.1}]}}, "tolerance=0.1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_run_is_refused_with_the_reason(name: str, folder: Path, root: Path) -> None:
    form, options, message = BAD[name]
    config = AutoModelForCausalLM.from_pretrained(eagle_heads.target(root)).config
    with pytest.raises(hs.errors.UnsupportedModel, match=message) as error:
        read(write(folder, form, **options), config)
    assert error.value.hint


def test_damaged_directories(folder: Path, root: Path) -> None:
    config = AutoModelForCausalLM.from_pretrained(eagle_heads.target(root)).config
    with pytest.raises(hs.errors.ModelNotFound, match="no config"):
        read(folder, config)
    write(folder, "eagle3")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(hs.errors.UnsupportedModel, match="cannot be read"):
        read(folder, config)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(hs.errors.PickleCheckpoint, match=r"pytorch_model\.bin"):
        read(folder, config)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(hs.errors.ModelNotFound, match="safetensors"):
        read(folder, config)
    (folder / "config.json").write_text("{")
    with pytest.raises(hs.errors.ModelNotFound, match="JSON"):
        read(folder, config)


def test_options_are_checked(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    runner = runner_of(target)
    write(folder, "eagle3")
    for options in ({"tree": "bush"}, {"budget": -1}, {"budget": 1.5}):
        with pytest.raises(hs.errors.InvalidOption):
            EagleDrafter.load(folder, runner, target_folder=target, slots=1, **options)


def test_a_head_may_need_the_targets_own_output_matrix(folder: Path, root: Path, tmp_path: Path) -> None:
    """It is read from the target's files, since by then the runner has laid its own out for its kernels."""
    target = eagle_heads.target(root)
    runner = runner_of(target)
    write(folder, "eagle1")
    drafter = EagleDrafter.load(folder, runner, target_folder=target, slots=1, quantize=None)
    plain = Plain(folder, target)
    said = drafter.head.read([4, 5], plain.states([3, 4])).logits
    torch.testing.assert_close(said[-1], plain.logits([3, 4, 5]), atol=2e-4, rtol=1e-4)
    with pytest.raises(hs.errors.UnsupportedModel, match=r"no tensor lm_head\.weight"):
        EagleDrafter.load(folder, runner, target_folder=tmp_path, slots=1)


def test_trees_only_for_targets_of_some_size(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    runner = runner_of(target)
    drafter = EagleDrafter.load(write(folder, "eagle3"), runner, target_folder=target, slots=1)
    assert drafter.sizes == ()
    assert (drafter.default_budget, drafter.draws) == (5, True)
    trees = EagleDrafter.load(folder, runner, target_folder=target, slots=1, tree="top-k")
    assert (trees.default_budget, trees.draws) == (24, False)
    assert all(nodes <= trees.limit for nodes, _ in trees.sizes)
