"""Targets and drafts with recurrent layers: every drafter, every kind of them; and what a second turn reads again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from engine.test_matrix import check_cells
from scipy.stats import chi2
from support.http_server import serving
from support.hybrids import SMALLER, checkpoint, small
from support.matrix_cells import ACROSS, CONTEXT, ENTRIES, LETTERS, RULES, WIDTH, Entry, Workshop, tokenizer
from support.matrix_distributions import EOS, VOCAB, model
from support.tiny import drawn
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.loading.assembly import assemble
from headstart.model.states import LAST
from headstart.types import Rule

# -- the matrix -------------------------------------------------------------------------------------------------------


class HybridShop(Workshop):
    """The matrix's workshop with a target, and drafts, that have recurrent layers."""

    def __init__(self, root: Path, kind: str) -> None:
        self.kind = kind
        super().__init__(root / f"hybrid-{kind}")

    def checkpoint(self, *, near: bool = False) -> str:
        path = self._root / ("near" if near else "target")
        if not path.exists():
            made = small(self.kind, vocab=VOCAB, width=WIDTH, context=CONTEXT, bos=None, eos=EOS)
            drawn(made, scale=0.35, noise=0.12 if near else 0.0).save_pretrained(path)
            tokenizer(tuple(LETTERS)).save_pretrained(path)
        return str(path)


@pytest.fixture(scope="module")
def shops(root: Path) -> Callable[[str], HybridShop]:
    return cache(lambda kind: HybridShop(root, kind))


QUICK = dict(
    zip(("n-gram", "early exit, chain", "draft LM, tree sampled", "EAGLE-3, dynamic tree"), SMALLER, strict=True)
)
CELLS = [
    pytest.param(
        entry, kind, RULES[(number + turn) % 2],
        marks=() if QUICK.get(entry.name) == kind else pytest.mark.slow,
    )
    for number, entry in enumerate(each for each in ENTRIES if "4-bit" not in each.name)
    for turn, kind in enumerate(SMALLER)
]  # fmt: skip


@pytest.mark.parametrize(("entry", "kind", "rule"), CELLS, ids=lambda each: getattr(each, "name", each))
def test_every_drafter(entry: Entry, kind: str, rule: Rule, shops: Callable[[str], HybridShop]) -> None:
    """Greedy texts are those of `generate`; each sampled token is held against its own distribution. What else a
    request may ask for is done with logits, whatever they come from."""
    shop = shops(kind)
    assert shop.target.new_cache(1).states is not None
    check_cells(entry, rule, shop, ACROSS, blocks=False)


# -- long texts -------------------------------------------------------------------------------------------------------

NEW = 150


@cache
def written(path: str, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """What transformers writes."""
    made = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ids = torch.tensor([prompt])
    options: Any = {"attention_mask": torch.ones_like(ids), "max_new_tokens": NEW, "do_sample": False}
    out = made.generate(ids, eos_token_id=None, pad_token_id=0, **options)
    return tuple(out[0, len(prompt) :].tolist())


PROMPTS = ((5, 9, 5, 9, 7), tuple(3 + 7 * i % 80 for i in range(45)))
LONG: dict[str, dict[str, Any]] = {
    "n-gram": {"drafter": "ngram", "num_speculative_tokens": 31},
    "suffix": {"drafter": "suffix"},
    "early exit": {"drafter": "early-exit", "num_speculative_tokens": 8},
    "early exit, trees": {"drafter": "early-exit", "draft_tree": "top-k", "num_speculative_tokens": 24},
    "draft": {"noise": 0.01, "num_speculative_tokens": 12},
    "draft, trees": {"noise": 0.01, "draft_tree": "top-k", "num_speculative_tokens": 64},
    "draft ahead": {"noise": 0.01, "num_speculative_tokens": 5, "ahead": True},
    "early exit ahead": {"drafter": "ahead:early-exit", "num_speculative_tokens": 5},
    "list": {"list": True, "noise": 0.01},
}


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        pytest.param(what, kind, marks=() if turn == number % 3 else pytest.mark.slow)
        for number, what in enumerate(LONG)
        for turn, kind in enumerate(SMALLER)
    ],
)
def test_long_greedy_texts_are_transformers_own(what: str, kind: str, root: Path, load: Callable[..., Any]) -> None:
    """The log has gone round, planes have been written and given up, in a batch."""
    options = dict(LONG[what])
    target, drafter = checkpoint(root, kind), options.pop("drafter", None)
    if "noise" in options:
        drafter = checkpoint(root, kind, noise=options.pop("noise"))
    if options.pop("ahead", False):
        drafter = f"ahead:{drafter}"
    if options.pop("list", False):
        drafter = ["ngram", drafter]
    engine = load(target, drafter, max_length=256, max_batch_size=2, **options)
    outs = engine.generate([list(prompt) for prompt in PROMPTS], hs.Sampling(max_tokens=NEW, ignore_eos=True))
    assert [out.tokens for out in outs] == [written(target, prompt) for prompt in PROMPTS]
    assert all(out.stats.speculation.error is None for out in outs)
    assert sum(out.stats.accepted for out in outs) > 0


def test_a_hybrid_drafts_for_a_plain_target_and_the_other_way_round(
    root: Path, load: Callable[..., Any], tiny: Callable[..., str]
) -> None:
    plain, hybrid = tiny("llama"), checkpoint(root, "qwen3_5")
    for target, draft in ((plain, hybrid), (hybrid, plain)):
        engine = load(target, draft, num_speculative_tokens=12)
        out = engine.generate(list(PROMPTS[0]), TURN)
        assert out.stats.speculation.error is None
        assert out.stats.drafted > 0
        assert out.tokens == engine.plain().generate(list(PROMPTS[0]), TURN).tokens


def test_pacing_decides_on_a_hybrid(root: Path, load: Callable[..., Any]) -> None:
    target = checkpoint(root, "granite4h")
    engine = load(target, [checkpoint(root, "granite4h", noise=0.01), "early-exit"], max_length=256, pacing="adaptive")
    out = engine.generate(list(PROMPTS[0]), hs.Sampling(max_tokens=NEW, ignore_eos=True))
    assert out.tokens == written(target, PROMPTS[0])
    assert out.stats.speculation.error is None


# -- enumeration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["exact", pytest.param("coupled", marks=pytest.mark.slow)])
def test_all_texts_have_their_probabilities(rule: Rule, shops: Callable[[str], HybridShop]) -> None:
    """Every text of three tokens, counted, against the product of transformers' probabilities."""
    shop, prompt, length, samples = shops("qwen3_5"), (1, 3, 2, 1, 3), 3, 800
    texts = list(itertools.product(range(VOCAB), repeat=length))
    with torch.no_grad():
        ids = torch.tensor([[*prompt, *text] for text in texts])
        logp = model(shop.path)(ids).logits[:, len(prompt) - 1 : -1].double().log_softmax(-1)
    chances = logp.gather(-1, ids[:, len(prompt) :, None]).sum((1, 2)).exp().tolist()
    shop.slots = 50
    engine = assemble(
        shop.target, shop.tokenizer, shop.draft(), rule=rule, num_speculative_tokens=2, max_batch_size=50,
        eos_token_ids=shop.eos,
    )  # fmt: skip
    asked = [hs.Sampling(max_tokens=length, temperature=1.0, ignore_eos=True, seed=i) for i in range(samples)]
    outs = engine.generate([list(prompt)] * samples, asked)
    assert 0 < sum(out.stats.accepted for out in outs) < sum(out.stats.drafted for out in outs)
    counts = Counter(out.tokens for out in outs)
    assert p_value([counts[text] for text in texts], [samples * chance for chance in chances]) > 1e-4


def p_value(found: Sequence[int], expected: Sequence[float]) -> float:
    """Of a chi-square; outcomes of fewer than five expected count as one."""
    cells = [(n, e) for n, e in zip(found, expected, strict=True) if e >= 5]
    rest = (sum(found) - sum(n for n, _ in cells), sum(expected) - sum(e for _, e in cells))
    cells.append(rest)
    statistic = sum((n - e) ** 2 / e for n, e in cells)
    return float(chi2.sf(statistic, len(cells) - 1))


# -- conversations ----------------------------------------------------------------------------------------------------

QUESTIONS = ("What is a rather long question, so that there is something to read?", "Why?", "And then what came?",
             "Tell me more of it.", "Thank you so much!")  # fmt: skip
TURN = hs.Sampling(max_tokens=40, ignore_eos=True)


@pytest.mark.parametrize("kind", SMALLER)
@pytest.mark.parametrize("drafter", ["none", "draft"])
def test_a_turn_reads_only_what_is_new(kind: str, drafter: str, root: Path, load: Callable[..., Any]) -> None:
    """Five turns whose answers are written otherwise in the next prompt, as by a template that leaves thoughts out; so
    the common beginning ends with the question."""
    if kind != "qwen3_5" and drafter == "draft":
        pytest.skip("one kind of draft will do")
    target = checkpoint(root, kind, chat=True)
    draft = checkpoint(root, kind, chat=True, noise=0.01) if drafter == "draft" else "none"
    warm, cold = (load(target, draft, max_length=1024, max_batch_size=2, prefix_cache=keeps) for keeps in (True, False))
    talk: list[dict[str, str]] = []
    before = 0
    fed: list[int] = []
    if drafter == "draft":
        read_on = warm.drafter._read
        warm.drafter._read = lambda feeds: fed.append(len(feeds[0][1])) or read_on(feeds)
    for question in QUESTIONS:
        talk.append({"role": "user", "content": question})
        fed.clear()
        out = warm.chat(talk, TURN)
        assert out.tokens == cold.chat(talk, TURN).tokens
        read = len(out.prompt_tokens) - out.stats.cached_tokens
        if before:
            # the rest of the last prompt after its checkpoint, the answer as it is written now, and the question
            most = LAST + len("It is so.") + len(question) + 8
            assert read <= most, "a checkpoint lies near the end of each prompt"
            assert max(fed, default=0) <= most, "of the draft's, too"
        else:
            assert out.stats.cached_tokens == 0
        before = len(out.prompt_tokens)
        talk.append({"role": "assistant", "content": "It is so."})
        warm.cache.check()
    again = warm.chat(talk[:-1], TURN)
    assert again.tokens == out.tokens
    assert len(again.prompt_tokens) - again.stats.cached_tokens <= LAST


def test_a_text_that_goes_on_is_read_from_its_end(root: Path, load: Callable[..., Any]) -> None:
    engine = load(checkpoint(root, "qwen3_5"), "none", max_length=256, max_batch_size=2, prefix_cache=True)
    first = engine.generate(list(PROMPTS[1]), hs.Sampling(max_tokens=100, ignore_eos=True))
    text = [*PROMPTS[1], *first.tokens, 4, 5, 6]
    second = engine.generate(text, hs.Sampling(max_tokens=20, ignore_eos=True))
    assert len(text) - second.stats.cached_tokens == 4, "the last token of an answer is emitted, but not read"
    assert second.tokens == engine.plain().generate(text, hs.Sampling(max_tokens=20, ignore_eos=True)).tokens


def test_copies_and_salts(root: Path, load: Callable[..., Any]) -> None:
    """Several requests at once begin alike: one reads, the others copy what they can; other salts share nothing."""
    engine = load(checkpoint(root, "granite4h"), "none", max_length=256, max_batch_size=4, prefix_cache=True)
    prompt = [3 + 11 * i % 90 for i in range(140)]
    asked = [prompt, [*prompt, 5, 6], [*prompt[:130], 7], prompt]
    samplings = [hs.Sampling(max_tokens=30, ignore_eos=True, cache_salt=salt) for salt in ("a", "a", "a", "b")]
    outs = engine.generate(asked, samplings)
    expected = engine.plain().generate(asked, samplings)
    assert [out.tokens for out in outs] == [out.tokens for out in expected]
    assert [out.stats.cached_tokens > 0 for out in outs] == [False, True, True, False]
    assert outs[1].stats.cached_tokens >= len(prompt) - LAST


def test_a_step_that_failed_is_made_again(
    root: Path, load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the layers, while a draft is judged: what is lost of a state is read again."""
    target = checkpoint(root, "qwen3_5")
    engine = load(target, "ngram", max_length=256, num_speculative_tokens=31)
    request = engine.submit(list(PROMPTS[1]), hs.Sampling(max_tokens=NEW, ignore_eos=True))
    steps = 0
    while request.finish_reason is None:
        steps += 1
        if steps % 3 == 0:
            with monkeypatch.context() as patch:
                patch.setattr(engine.target._decoder._layers[-1], "run", _fails)
                with pytest.raises(RuntimeError, match="in the middle"):
                    engine.step()
        engine.step()
    assert request.finish().tokens == written(target, PROMPTS[1])


def _fails(*_: Any, **__: Any) -> None:
    raise RuntimeError("in the middle")


def test_a_server_and_five_turns(root: Path) -> None:
    path = checkpoint(root, "qwen3_5", chat=True)
    options: dict[str, Any] = {"dtype": "float32", "max_length": 1024, "max_batch_size": 2}
    engine = hs.load(path, "ngram", prefix_cache=True, **options)
    talk: list[dict[str, str]] = []
    cold = hs.load(path, "none", prefix_cache=False, **options)
    with serving(engine) as running:
        for question in QUESTIONS:
            talk.append({"role": "user", "content": question})
            body = {"messages": talk, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
            response = httpx2.post(f"{running.v1}/chat/completions", json=body, timeout=60)
            assert response.status_code == 200, response.text
            answer = response.json()
            expected = cold.chat(talk, TURN)
            assert answer["choices"][0]["message"]["content"] == expected.text
            if len(talk) > 1:
                assert answer["timings"]["prompt_n"] <= LAST + len("It is so.") + len(question) + 8
                assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == len(expected.prompt_tokens)
            talk.append({"role": "assistant", "content": "It is so."})
        assert running.settled()
    engine.cache.check()


def test_what_a_cache_takes_is_what_is_said_before(root: Path) -> None:
    """The figure of doctor and of the check before loading, against the tensors that are there."""
    engine = hs.load(checkpoint(root, "qwen3_5"), "none", dtype="float32", max_length=256, max_batch_size=3)
    said, there = engine.target.cache_bytes(3), engine.cache.memory()
    assert there <= said
    states = engine.cache.states
    assert states is not None
    checkpoints = (
        3
        * states._most_saved
        * sum(4 * (shape.numbers + (shape.taps - 1) * shape.channels) for shape in states.shapes.values())
    )
    assert said == there + checkpoints
