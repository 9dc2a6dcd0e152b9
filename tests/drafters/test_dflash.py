"""DFlash and DSpark: what the formulas say, in one forward of the head; the target's text; and checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import dflash_heads, eagle_heads, hybrids
from support.dflash_heads import BLOCK, FORMS, INPUTS, Plain, write
from support.eagle_engines import PROMPTS, paths, recorded, reference, runner_of
from support.eagle_heads import CONTEXT
from support.sampled_distribution import PROMPT, TOKENS, joint, p_value
from transformers import AutoConfig, AutoModelForCausalLM

import headstart as hs
from headstart.drafters.dflash import DFlashDrafter
from headstart.drafters.eagle import EagleDrafter
from headstart.drafters.eagle import recognises as is_eagle
from headstart.engine.engine import Engine
from headstart.loading.assembly import assemble
from headstart.model.cache import KVCache
from headstart.model.heads.borrowed import borrowed
from headstart.model.heads.dflash import Block, DFlashHead
from headstart.model.heads.dflash_checkpoint import is_dflash, read
from headstart.rule.drafted import drafted_distributions, whole
from headstart.types import Sampling

TEXTS = ([3, 5, 2, 7, 11, 4, 4, 1, 9], [8, 2], [6, 6, 1, 14, 20])
KINDS = (None, "vanilla", "gated", "rnn")
TREES = ("none", "top-k", "sampled")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "head"


@pytest.fixture
def engine_of() -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def make(
        target: str, folder: Path, tree: Any = "none", slots: int = 3, budget: int | None = None, **options: Any
    ) -> Engine:
        runner = runner_of(target, max_length=options.pop("max_length", None))
        drafter = DFlashDrafter.load(folder, runner, target_folder=target, slots=slots, budget=budget, tree=tree)
        drafter._chunk = 4  # so that tiny prompts are long ones
        engines.append(assemble(runner, None, drafter, max_batch_size=slots, prefill_chunk=6, **options))
        return engines[-1]

    yield make
    for engine in engines:
        for slots in (engine.cache, engine.drafter.cache):  # type: ignore[union-attr]
            slots.check()
            assert slots.free_slots == len(slots.lengths), "a slot was not given back"


def head_of(folder: Path, target: str, **options: Any) -> DFlashHead:
    runner = runner_of(target, **options)
    checkpoint = read(folder, runner.config)
    embedding, output = borrowed(runner, target, checkpoint.tensors)
    assert isinstance(embedding, torch.Tensor)
    return DFlashHead(
        checkpoint, embedding=embedding, output=output, dtype=runner.dtype, device=runner.device, length=CONTEXT
    )


def test_the_forms_say_where_the_masks_stand(folder: Path, root: Path) -> None:
    target = AutoModelForCausalLM.from_pretrained(eagle_heads.target(root)).config
    for form in FORMS:
        config = read(write(folder, form), target).config
        assert config.layer_ids == INPUTS
        anchored = form in ("dspark", "deepspec", "liquid")
        assert (config.from_anchor, config.guesses) == (anchored, BLOCK if anchored else BLOCK - 1)
    assert read(write(folder, "dflash", sample_from_anchor=True), target).config.guesses == BLOCK
    assert read(write(folder, "dspark", sample_from_anchor=False), target).config.guesses == BLOCK - 1


def test_layers_that_it_reads_where_the_config_names_none(folder: Path, root: Path) -> None:
    """Evenly from the second layer to the last but two, by their outputs: here 1 and 1 of four layers."""
    target = AutoModelForCausalLM.from_pretrained(eagle_heads.target(root)).config
    nested = {"mask_token_id": 5}
    assert read(write(folder, "z-lab", dflash_config=nested), target).config.layer_ids == (2, 2)
    one = {"extra": {"fc.weight": torch.zeros(32, 32)}, "layers": 1}
    assert read(write(folder, "z-lab", dflash_config=nested, **one), target).config.layer_ids == (3,)
    embedding = {"mask_token_id": 5, "target_layer_ids": [-1, 3]}
    assert read(write(folder, "z-lab", dflash_config=embedding), target).config.layer_ids == (0, 4)


VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dflash": ("dflash", {}, {}),
    "dflash, a part of the vocabulary": ("dflash", {"draft_vocab": 13}, {}),
    "dflash, three layers with biases": ("dflash", {"layers": 3, "bias": True}, {}),
    "dspark": ("dspark", {"kind": "vanilla"}, {}),
    "z-lab": ("z-lab", {}, {}),
    "deepspec, its own embedding": ("deepspec", {"kind": "rnn", "own": True}, {}),
    "liquid, neighbours turn together": ("liquid", {"kind": "vanilla"}, {}),
    "windows, causal": (
        "dflash",
        {"layer": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}},
        {"windows": (3, None), "causal": (True, False)},
    ),
    "windows, not causal": (
        "dflash",
        {
            "layer": {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 2},
            "sliding_window_non_causal": True,
        },
        {"windows": (None, 2)},
    ),
    "windows as the authors have them": (
        "z-lab",
        {"layer": {"layer_types": ["sliding_attention"] * 2, "sliding_window": 3}},
        {"windows": (3, 3)},
    ),
    "causal": ("z-lab", {"causal": True}, {"causal": (True, True)}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_forward_says_what_the_formulas_say(variant: str, folder: Path, root: Path) -> None:
    """Three texts at once, read in pieces with blocks in between, which leave nothing behind."""
    form, options, layers = VARIANTS[variant]
    target = eagle_heads.target(root)
    plain = Plain(write(folder, form, **options), target, **layers)
    head = head_of(folder, target)
    cache = head.new_cache(4)
    slots = [cache.acquire() for _ in TEXTS]
    states = [plain.states(text[:-1]) for text in TEXTS]
    head.read(cache, [(slot, each[:1]) for slot, each in zip(slots, states, strict=True)])
    head.guess(cache, [Block(slots[0], 9, 2), Block(slots[2], 1, 1)])
    head.read(cache, [(slots[2], states[2][1:]), (slots[0], states[0][1:])])
    wanted = (head.config.guesses, 1, 2)
    found = head.guess(cache, [Block(slot, text[-1], n) for slot, text, n in zip(slots, TEXTS, wanted, strict=True)])
    expected = [plain.guesses(text) for text in TEXTS]
    logits = torch.cat([each[0][:n] for each, n in zip(expected, wanted, strict=True)])
    torch.testing.assert_close(found.logits, logits, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(
        found.states, torch.cat([each[1][:n] for each, n in zip(expected, wanted, strict=True)]), atol=2e-4, rtol=1e-4
    )


def test_on_the_short_convolutions_that_its_makers_publish_it_for(folder: Path, root: Path) -> None:
    """The target is an LFM2: the head's guesses from its states, and its text."""
    target = hybrids.checkpoint(root, "lfm2")
    vocab = AutoConfig.from_pretrained(target).vocab_size
    plain = Plain(write(folder, "liquid", vocab=vocab, kind="vanilla"), target)
    head = head_of(folder, target)
    cache = head.new_cache(1)
    slot, text = cache.acquire(), TEXTS[0]
    head.read(cache, [(slot, plain.states(text[:-1]))])
    found = head.guess(cache, [Block(slot, text[-1], head.config.guesses)])
    torch.testing.assert_close(found.logits, plain.guesses(text)[0], atol=2e-4, rtol=1e-4)
    asked = Sampling(max_tokens=40, ignore_eos=True)
    outs = [
        hs.load(target, drafter, dtype="float32", max_length=64, pacing="fixed", draft_tree=tree).generate(text, asked)
        for drafter, tree in (("none", "none"), (folder, "none"), (folder, "top-k"))
    ]
    assert outs[0].tokens == outs[1].tokens == outs[2].tokens
    assert min(out.stats.drafted for out in outs[1:]) > 0


def test_bfloat16_is_close(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    plain = Plain(write(folder, "dflash"), target)
    head = head_of(folder, target, dtype=torch.bfloat16)
    cache = head.new_cache(1)
    slot = cache.acquire()
    head.read(cache, [(slot, plain.states(TEXTS[0][:-1]))])
    found = head.guess(cache, [Block(slot, TEXTS[0][-1], 3)])
    torch.testing.assert_close(found.logits.float(), plain.guesses(TEXTS[0])[0], atol=0.15, rtol=0.15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("form", "tree"), [("dspark", "none"), ("dspark", "sampled"), ("dspark", "top-k")])
def test_drafts_are_those_of_the_formulas_and_cost_one_forward(
    form: str, tree: Any, kind: str | None, folder: Path, root: Path, engine_of: Callable[..., Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Prompts in pieces, requests that join and leave; every node's distribution, and greedy chains."""
    target = eagle_heads.target(root)
    plain = Plain(write(folder, form, kind=kind, draft_vocab=13), target)
    engine = engine_of(target, folder, tree, budget=BLOCK, rule="exact")
    head = engine.drafter.head  # type: ignore[union-attr]
    asked: list[int] = []
    guess = head.guess
    monkeypatch.setattr(head, "guess", lambda cache, blocks: asked.append(len(blocks)) or guess(cache, blocks))
    drafts = recorded(engine)
    samplings = [Sampling(max_tokens=n, temperature=0.8 * (n % 2), seed=n) for n in (8, 5, 7)]
    outs = engine.generate(list(PROMPTS[:3]), samplings)
    assert all(out.stats.speculation.error is None for out in outs)
    made = [each for each in drafts if len(each[2])]
    assert len(made) >= 8
    assert sum(asked) == len(made), "one block for each draft"
    assert max(asked) > 1, "of all requests in one forward"
    for text, row, draft in made:
        logits, states = plain.guesses(text)
        for node, path in enumerate(paths(draft)):
            scores = plain.wide(plain.corrected(logits, states, (text[-1], *path[:-1])))
            elder = [draft.tokens[i] for i in draft.children[draft.parents[node] + 1] if i < node]
            if row.sampling.greedy and tree == "none":
                assert path[-1] == int(scores.argmax())
            elif draft.q is not None:
                distribution = (scores / 0.8).softmax(-1)
                distribution[elder] = 0
                found = torch.from_numpy(whole(drafted_distributions(draft)[node], len(distribution)))
                torch.testing.assert_close(found, distribution / distribution.sum(), atol=1e-4, rtol=1e-3)
        if tree == "top-k":
            assert tuple(draft.tokens[each] for each in draft.path(0)) in set(plain.paths(text, 1))


def test_the_likeliest_tree_of_a_recurrent_head_follows_each_path(
    folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    target = eagle_heads.target(root)
    plain = Plain(write(folder, "dspark", kind="rnn"), target)
    engine = engine_of(target, folder, "top-k", budget=40)
    drafts = recorded(engine)
    engine.generate(list(PROMPTS[:2]), Sampling(max_tokens=9))
    deep = 0
    for text, _, draft in drafts:
        if not len(draft):
            continue
        logits, states = plain.guesses(text)
        for parent in range(-1, len(draft)):
            children = draft.children[parent + 1]
            if not children:
                continue
            path = tuple(draft.tokens[each] for each in draft.path(parent)) if parent >= 0 else ()
            scores = plain.corrected(logits, states, (text[-1], *path))
            best = scores.topk(len(children)).indices.tolist()
            assert sorted(draft.tokens[child] for child in children) == sorted(best)
            deep += len(path) > 0  # where the recurrent state is not the first any more
    assert deep >= 8


@pytest.mark.parametrize(
    ("form", "kind", "tree"),
    [("dflash", None, "none"), ("z-lab", None, "top-k"), ("dspark", "gated", "mixed"), ("deepspec", "rnn", "top-k")],
)
def test_greedy_text_is_that_of_transformers(
    form: str, kind: str | None, tree: str, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    """Batch 1 and ragged 5."""
    target = eagle_heads.target(root)
    write(folder, form, kind=kind, draft_vocab=13 if form in ("dflash", "dspark") else None)
    engine = engine_of(target, folder, tree)
    expected = [reference(target, tuple(prompt), 24) for prompt in PROMPTS]
    assert engine.generate(list(PROMPTS[3]), Sampling(max_tokens=24)).tokens == expected[3]
    outs = engine.generate(list(PROMPTS), Sampling(max_tokens=24))
    assert [out.tokens for out in outs] == expected
    assert all(out.stats.speculation.error is None for out in outs)
    assert sum(out.stats.drafted for out in outs) > sum(out.stats.accepted for out in outs) > 0


SLOW = pytest.mark.slow  # the exactness matrix has DFlash and DSpark heads with each tree, under both rules


@pytest.mark.parametrize(
    ("kind", "tree", "rule"),
    [
        ("gated", "none", "exact"),
        *(
            pytest.param(*cell, marks=SLOW)
            for cell in (
                (None, "none", "exact"),
                ("vanilla", "none", "coupled"),
                ("rnn", "none", "exact"),
                ("rnn", "sampled", "exact"),
                ("vanilla", "sampled", "coupled"),
                (None, "sampled", "exact"),
            )
        ),
    ],
)
def test_chi_square(
    kind: str | None, tree: str, rule: Any, folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    target = eagle_heads.target(root, vocab=8)
    write(folder, "dspark", kind=kind, vocab=8, draft_vocab=6)
    engine = engine_of(target, folder, tree, slots=50, budget=3 if tree == "none" else 8, rule=rule)
    samplings = [Sampling(max_tokens=TOKENS + 1, temperature=1.0, seed=seed) for seed in range(800)]
    outs = engine.generate([PROMPT] * len(samplings), samplings)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(target, 1.0, 1.0)) > 1e-3
    assert all(out.stats.speculation.error is None for out in outs)
    assert 0 < sum(out.stats.accepted for out in outs) < sum(out.stats.drafted for out in outs)


def test_coupled_gives_the_text_of_the_seed(folder: Path, root: Path, engine_of: Callable[..., Engine]) -> None:
    target = eagle_heads.target(root)
    write(folder, "dspark", kind="vanilla", draft_vocab=13)
    texts = set()
    for tree in TREES:
        engine = engine_of(target, folder, tree, rule="coupled")
        samplings = [Sampling(max_tokens=20, temperature=1.0, seed=s, repetition_penalty=1.1) for s in range(5)]
        texts.add(tuple(out.tokens for out in engine.generate(list(PROMPTS), samplings)))
        texts.add(tuple(out.tokens for out in engine.plain().generate(list(PROMPTS), samplings)))
    assert len(texts) == 1


def test_at_the_end_of_its_context_it_drafts_no_further(
    folder: Path, root: Path, engine_of: Callable[..., Engine]
) -> None:
    target = eagle_heads.target(root)
    write(folder, "dflash", layer={"max_position_embeddings": 32})
    engine = engine_of(target, folder, "none")
    drafts = recorded(engine)
    out = engine.generate([1, 2, 3], Sampling(max_tokens=60))
    assert out.tokens == engine.plain().generate([1, 2, 3], Sampling(max_tokens=60)).tokens
    assert out.stats.speculation.error is None
    assert max(len(text) for text, _, draft in drafts if len(draft)) > 26
    assert all(len(text) + len(draft) <= 32 for text, _, draft in drafts if len(draft))


@pytest.mark.parametrize("kind", [None, "vanilla"])
def test_a_text_that_was_kept_is_not_read_again(
    kind: str | None, folder: Path, root: Path, engine_of: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts after a text that an earlier request left are those of a fresh engine; another salt shares nothing."""
    target = eagle_heads.target(root)
    write(folder, "dspark", kind=kind)
    first, prompt = [1, 2, 3] * 12, [*[1, 2, 3] * 12, 7, 9, 4]
    cold = engine_of(target, folder, "none")
    expected = recorded(cold)
    text = cold.generate(prompt, Sampling(max_tokens=8)).tokens
    engine = engine_of(target, folder, "none", prefix_cache=True)
    engine.generate(first, Sampling(max_tokens=4))
    read: list[int] = []
    head: DFlashHead = engine.drafter.head  # type: ignore[union-attr]
    original = head.read

    def counted(cache: KVCache, texts: Any) -> None:
        read.extend(len(states) for _, states in texts)
        original(cache, texts)

    monkeypatch.setattr(head, "read", counted)
    found = recorded(engine)
    assert engine.generate(prompt, Sampling(max_tokens=8)).tokens == text
    assert [(seen, draft.tokens) for seen, _, draft in found] == [(seen, draft.tokens) for seen, _, draft in expected]
    assert sum(read) < 20, "the first 36 tokens were kept"
    read.clear()
    assert engine.generate(prompt, Sampling(max_tokens=8, cache_salt="other")).tokens == text
    assert sum(read) >= len(prompt)


# -- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_is_recognised_and_loads_by_its_path(form: str, folder: Path, root: Path) -> None:
    assert is_dflash(write(folder, form))
    assert not is_eagle(folder)
    engine = hs.load(eagle_heads.target(root), drafter=folder, dtype="float32", max_batch_size=1, pacing="fixed")
    assert isinstance(engine.drafter, DFlashDrafter)
    assert engine.describe()["drafter"]
    assert engine.generate([3, 4, 5], Sampling(max_tokens=8)).stats.drafted > 0


def test_it_stands_in_a_list(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    engine = hs.load(target, drafter=["ngram", write(folder, "dspark", kind="vanilla")], dtype="float32")
    assert engine.generate([3, 4, 5], Sampling(max_tokens=12)).tokens == reference(target, (3, 4, 5), 12)


def test_other_folders_are_not_taken_for_it(folder: Path, root: Path) -> None:
    assert not is_dflash(eagle_heads.target(root))
    assert not is_dflash(eagle_heads.write(folder, "speculators"))
    assert is_eagle(folder)
    assert not is_dflash(folder / "nowhere")
    (folder / "config.json").write_text("[]")
    assert not is_dflash(folder)


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "DFlash2": ("z-lab", {"architectures": ["DFlash2DraftModel"]}, "kind 'dflash2draftmodel'"),
    "DFlash2 by its fields": ("dflash", {"conv_kernel_size": 2}, "kind 'dflash2'"),
    "Gemma's layers": ("deepspec", {"architectures": ["Gemma4DSparkModel"]}, "gemma4dsparkmodel"),
    "no mask token": ("dflash", {"mask_token_id": None}, "mask_token_id=None, and it is 0 to 22"),
    "a mask token out of range": ("dflash", {"mask_token_id": 23}, "mask_token_id=23"),
    "no block": ("dflash", {"block_size": None}, "block_size=None, and it is 2 or more"),
    "a block of one": ("dflash", {"block_size": 1}, "block_size=1"),
    "no layers named": ("dflash", {"aux_hidden_state_layer_ids": None}, "lacks aux_hidden_state_layer_ids"),
    "layers of a deeper target": ("dflash", {"aux_hidden_state_layer_ids": [1, 9]}, "this target has 4 layers"),
    "another target": ("dflash", {"layer": {"vocab_size": 99}, "draft_vocab_size": 99}, "made for another target"),
    "an unknown Markov head": ("dspark", {"markov_rank": 3, "markov_head_type": "lstm"}, "'lstm'"),
    "a recurrent head behind x0": ("dspark", {"kind": "rnn", "sample_from_anchor": False}, "does not guess from x0"),
    "a Markov head without its tensors": ("dspark", {"markov_rank": 3}, "markov_head.markov_w1"),
    "unknown kinds of layers": ("dflash", {"layer": {"layer_types": ["linear_attention"] * 2}}, "linear_attention"),
    "a window of nothing": ("dflash", {"layer": {"layer_types": ["sliding_attention"] * 2}}, "sliding_window=None"),
    "no norm of keys": ("dflash", {"without": ["layers.0.self_attn.k_norm.weight"]}, "lacks the tensor"),
    "a gate of attention": ("dflash", {"extra": {"layers.0.self_attn.g_proj.weight": torch.ones(2, 2)}}, "g_proj"),
    "another shape": ("dflash", {"layer": {"intermediate_size": 64}}, "has the shape"),
    "lossy": ("dflash", {"speculators_config": {"proposal_methods": [{"verifier_accept_k": 2}]}}, "lossy"),
    "an activation": ("dflash", {"layer": {"hidden_act": "gelu"}}, "gelu"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_run_is_refused_with_the_reason(name: str, folder: Path, root: Path) -> None:
    form, options, message = BAD[name]
    config = AutoModelForCausalLM.from_pretrained(eagle_heads.target(root)).config
    with pytest.raises(hs.errors.UnsupportedModel, match=message) as error:
        read(write(folder, form, **options), config)
    assert error.value.hint


def test_a_relative_is_refused_by_its_name_and_not_taken_for_a_model(folder: Path, root: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "architectures": ["DFlash2DraftModel"]}))
    with pytest.raises(hs.errors.UnsupportedModel, match="dflash2") as error:
        hs.load(eagle_heads.target(root), drafter=folder)
    assert "P-EAGLE" in str(error.value.hint)


def test_options_are_checked(folder: Path, root: Path) -> None:
    target = eagle_heads.target(root)
    runner = runner_of(target)
    write(folder, "dflash")
    for options in ({"tree": "bush"}, {"budget": -1}, {"budget": 1.5}):
        with pytest.raises(hs.errors.InvalidOption):
            DFlashDrafter.load(folder, runner, target_folder=target, slots=1, **options)
    drafter = DFlashDrafter.load(folder, runner, target_folder=target, slots=1)
    assert (drafter.sizes, drafter.default_budget, drafter.limit) == ((), BLOCK - 1, BLOCK - 1)
    trees = DFlashDrafter.load(folder, runner, target_folder=target, slots=1, tree="top-k")
    assert {depth for _, depth in trees.sizes} == {1, 2, BLOCK - 1}
    assert drafter.head.config.layers == 2
    assert drafter.head.config.block == dflash_heads.BLOCK
    assert not isinstance(drafter, EagleDrafter)
