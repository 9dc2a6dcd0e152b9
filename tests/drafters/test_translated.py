"""A draft with a tokenizer of its own: what it proposes, that the text stays the target's, and that drafts are right
as often as they should be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.counting import rows_fed
from support.languages import TEXT, byte_level, pieces, random_lm, renumbered, taught, with_ids
from support.rotation import rotated
from support.sampled_distribution import PROMPT, joint, p_value
from support.sampled_distribution import model as eight_tokens
from support.tiny import byte_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import headstart as hs
from headstart.base.errors import IncompatibleTokenizer
from headstart.drafters import Row
from headstart.drafters.matching.transcript import Retokenised
from headstart.drafters.translated import TranslatedDraft
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.model.tokens.translation import Method
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise, Purpose
from headstart.types import Budget, Sampling

METHODS: tuple[Method, ...] = ("ids", "intersection", "text")
NEW = 24


def runner_of(model: Any, length: int = 128) -> ModelRunner:
    """Of a copy: a runner takes the weights out of the model it is given."""
    return ModelRunner(adopt(deepcopy(model)), max_length=length)


def drafter_of(
    model: Any,
    target: Any,
    draft: Any,
    *,
    method: Method | None = None,
    length: int = 128,
    slots: int = 3,
    **options: Any,
) -> TranslatedDraft:
    return TranslatedDraft(
        runner_of(model, length),
        name="tiny",
        vocab_size=len(target),
        slots=slots,
        target_tokenizer=target,
        draft_tokenizer=draft,
        method=method,
        **options,
    )


def context(
    tokens: Sequence[int], vocab: int, budget: int = 3, request: int = 0, stops: Sequence[int] = (), **sampling: Any
) -> Row:
    distribution = SamplingState(Sampling(**sampling), tokens, vocab, frozenset(stops))
    return Row(request, tuple(tokens), distribution, Noise(7), budget=Budget(budget))


@pytest.fixture
def run() -> Iterator[Callable[..., hs.Engine]]:
    """An engine of a target model and a drafter; the caches of both are checked afterwards."""
    made: list[tuple[hs.Engine, TranslatedDraft]] = []

    def make(model: Any, tokenizer: Any, drafter: TranslatedDraft, *, eos: int | None = None, **options: Any) -> Any:
        options = {"rule": "exact", "num_speculative_tokens": 4, "max_batch_size": 3, "prefill_chunk": 8, **options}
        ends = frozenset(() if eos is None else (eos,))
        runner = runner_of(model, options.pop("length", 128))
        engine = assemble(runner, tokenizer, drafter, eos_token_ids=ends, **options)
        made.append((engine, drafter))
        return engine

    yield make
    for engine, drafter in made:
        engine.cache.check()
        drafter.cache.check()
        assert drafter.cache.free_slots == len(drafter.cache.lengths), "the drafter kept a slot"


# -- what is proposed ---------------------------------------------------------------------------------------------


def plain_distribution(model: Any, tokens: Sequence[int], temperature: float) -> torch.Tensor:
    with torch.no_grad():
        return (model(torch.tensor([list(tokens)])).logits[0, -1] / temperature).softmax(-1)


def test_q_is_the_drafts_distribution_over_the_intersection() -> None:
    target, draft = byte_level(), pieces()
    drafter = drafter_of(random_lm(len(draft)), target, draft, method="intersection")
    prompt = target("The quick brown")["input_ids"]
    (made,) = drafter.propose([context(prompt, len(target), temperature=0.7)])
    assert made.q is not None
    assert made.q.shape == (3, len(target))
    pairs = drafter.translation.to_target
    theirs = draft("The quick brown")["input_ids"]
    for i, token in enumerate(made.tokens):
        distribution = plain_distribution(random_lm(len(draft)), theirs, 0.7)
        want = torch.zeros(len(target))
        for there, here in pairs.items():
            want[here] = distribution[there]
        torch.testing.assert_close(made.q[i], want / want.sum(), atol=1e-5, rtol=1e-4)
        theirs.append(drafter.translation.to_draft[token])
    noise = Noise(7)
    drawn = [noise.draw(made.q[i].numpy(), len(prompt) + i, Purpose.DRAFT, len(prompt)) for i in range(3)]
    assert list(made.tokens) == drawn


def test_processors_act_on_the_distribution_over_the_intersection() -> None:
    target, draft = byte_level(), pieces()
    drafter = drafter_of(random_lm(len(draft)), target, draft, method="intersection")
    wanted = target.get_vocab()["Ġthe"]
    bias = {wanted: 100.0, target.get_vocab()["Ġfox"]: 50.0}
    sampling = {"temperature": 1.0, "top_k": 1, "frequency_penalty": 75.0, "logit_bias": bias}
    (made,) = drafter.propose([context([5, 6], len(target), 2, **sampling)])
    assert list(made.tokens) == list(bias)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_through_text_drafts_are_what_the_draft_writes_as_the_target_would_have_it(temperature: float) -> None:
    target, (draft, model) = byte_level(), taught("pieces")
    drafter = drafter_of(model, target, draft, method="text", length=256)
    assert not drafter.draws
    prompt, text = "The quick", " brown fox jumps over the lazy dog"
    tokens = target(prompt)["input_ids"]
    (made,) = drafter.propose([context(tokens, len(target), 8, temperature=temperature)])
    assert made.q is None
    assert list(made.tokens) == target(prompt + text)["input_ids"][len(tokens) :][:8]


def test_penalties_of_a_growing_text_are_those_of_the_whole_text() -> None:
    """A request's processors are carried on from round to round, also over ids that change when more text follows."""
    target, (draft, model) = byte_tokenizer(), taught("pieces")
    tokens = target(TEXT)["input_ids"]
    sampling = {"repetition_penalty": 1.7, "logit_bias": {target.get_vocab()["e"]: 1.5}}
    begin = len(tokens) // 2

    def drafter() -> TranslatedDraft:
        return drafter_of(model, target, draft, method="text", length=256)

    kept, penalised, plain = drafter(), [], []
    for cut in range(begin, begin + 24, 3):
        penalised.append(kept.propose([context(tokens[:cut], len(target), 4, **sampling)])[0].tokens)
        assert penalised[-1] == drafter().propose([context(tokens[:cut], len(target), 4, **sampling)])[0].tokens
        plain.append(kept.propose([context(tokens[:cut], len(target), 4, request=1)])[0].tokens)
    assert penalised != plain


def test_a_character_split_over_tokens_is_finished_by_the_draft() -> None:
    """The committed text ends within an emoji, whose bytes so far the draft must read as bytes."""
    target, (draft, model) = byte_tokenizer(), taught("pieces")
    drafter = drafter_of(model, target, draft, method="text", length=256)
    before, after = TEXT.split("😀🎉")
    tokens = target(before + "😀")["input_ids"]
    for cut in (1, 2, 3):
        (made,) = drafter.propose([context(tokens[:-cut], len(target), cut + 4, request=cut)])
        assert list(made.tokens[:cut]) == tokens[-cut:]
        assert list(made.tokens) == target(TEXT)["input_ids"][len(tokens) - cut :][: cut + 4]
    assert after


@pytest.mark.parametrize("method", ["intersection", "text"])
def test_the_end_of_the_text_is_proposed_as_the_targets_own(method: Method) -> None:
    target, draft = byte_level(marks=("<eos>", "<|user|>")), byte_level(marks=("</s>", "<|mine|>"))
    model = random_lm(len(draft))
    theirs = draft.get_vocab()
    for mark, want in (("</s>", [target.eos_token_id]), ("<|mine|>", [])):
        with torch.no_grad():
            model.get_output_embeddings().weight.zero_()
            model.get_output_embeddings().weight[theirs[mark]] = 100 * model.model.norm.weight.new_ones(32)
        drafter = drafter_of(model, target, draft, method=method)
        tokens = target("The quick")["input_ids"]
        high = plain_distribution(model, draft("The quick")["input_ids"], 1.0)[theirs[mark]]
        if high < 0.5:  # the sign of the hidden state's sum: turn the mark around
            with torch.no_grad():
                model.get_output_embeddings().weight[theirs[mark]] *= -1
            drafter = drafter_of(model, target, draft, method=method)
        (made,) = drafter.propose([context(tokens, len(target), 3)])  # greedy goes through text both ways
        assert list(made.tokens) == want
        if method == "intersection" and want:
            (drawn,) = drafter.propose([context(tokens, len(target), 1, request=1, temperature=1.0)])
            assert list(drawn.tokens) == want


def test_min_tokens_keeps_the_end_of_the_text_out_of_written_drafts() -> None:
    target, draft = byte_level(), byte_level(marks=("</s>",))
    drafter = drafter_of(random_lm(len(draft)), target, draft, method="text")
    bias = {target.eos_token_id: 100.0}
    tokens = target("The quick")["input_ids"]
    free = context(tokens, len(target), 3, stops=[target.eos_token_id], logit_bias=bias)
    held = context(tokens, len(target), 3, 1, stops=[target.eos_token_id], logit_bias=bias, min_tokens=9)
    made = drafter.propose([free, held])
    assert made[0].tokens == (target.eos_token_id,)
    assert len(made[1]) > 0
    assert target.eos_token_id not in made[1].tokens


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_budgets_are_kept_and_a_batch_equals_each_alone(method: Method, temperature: float) -> None:
    target = byte_level()
    draft, order = renumbered(target)
    model = with_ids(random_lm(len(target)), order)
    drafter = drafter_of(model, target, draft, method=method, slots=5)
    prompts = ["The quick", "dog " * 30, "x", "def add(", "日本"]
    contexts = [
        context(target(text)["input_ids"], len(target), budget, i, temperature=temperature)
        for i, (text, budget) in enumerate(zip(prompts, (0, 1, 2, 5, 7), strict=True))
    ]
    together = drafter.propose(contexts)
    for each, made in zip(contexts, together, strict=True):
        alone = TranslatedDraft(
            drafter.runner, name="alone", vocab_size=len(target), slots=1, target_tokenizer=target,
            draft_tokenizer=draft, method=method, chunk=8,
        ).propose([each])[0]  # fmt: skip
        assert alone.tokens == made.tokens
        assert len(made) <= each.budget.nodes
        if method != "text" or temperature == 0:
            assert len(made) > 0 or each.budget.nodes == 0


@pytest.mark.parametrize("method", METHODS)
def test_at_the_end_of_its_context_it_proposes_less_and_then_nothing(method: Method) -> None:
    target = byte_tokenizer()
    draft, order = renumbered(target)
    drafter = drafter_of(with_ids(random_lm(len(target)), order), target, draft, method=method, length=64)
    a = target("a")["input_ids"]
    lengths = [len(drafter.propose([context(a * n, len(target), 3)])[0]) for n in (61, 62, 63, 64, 90)]
    assert lengths == [3, 2, 1, 0, 0]


def test_where_the_draft_can_read_nothing_it_says_nothing() -> None:
    target, draft = byte_level(), few_words(*THEIRS)
    drafter = drafter_of(random_lm(len(draft)), target, draft, method="text")
    unread = target("日本")["input_ids"]
    assert drafter.propose([context(unread, len(target), 3)])[0].tokens == ()
    assert len(drafter.propose([context([*unread, *target("a")["input_ids"]], len(target), 3)])[0]) > 0


@pytest.mark.parametrize("method", METHODS)
def test_the_cache_holds_what_tokenising_from_scratch_gives(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    target, (draft, model) = byte_level(), taught("pieces")
    if method == "ids":
        draft, order = renumbered(target)
        model = with_ids(random_lm(len(target), context=256), order)
    drafter = drafter_of(model, target, draft, method=method, length=256)
    fed: dict[int, list[int]] = {}
    original = drafter.runner.forward

    def following(segments: Any, cache: Any, taps: Any = ()) -> Any:
        for segment in segments:
            kept = fed.setdefault(segment.slot, [])
            del kept[cache.lengths[segment.slot] :]
            kept += segment.causal
        return original(segments, cache, taps)

    monkeypatch.setattr(drafter.runner, "forward", following)
    tokens, end = target(TEXT)["input_ids"], 3
    generator = torch.Generator().manual_seed(0)
    total = 0
    while end < len(tokens):
        (made,) = drafter.propose([context(tokens[:end], len(target), 4, temperature=0.5)])
        # what was read before the first guess: the committed text, whatever was guessed, kept or thrown away before
        (slot,) = fed
        read = target.decode(tokens[:end], skip_special_tokens=True)
        want = [drafter.translation.to_draft[t] for t in tokens[:end]] if method == "ids" else draft(read)["input_ids"]
        if "\ufffd" not in read:
            assert fed[slot][: len(want)] == want
        drafter.release(99)
        accepted = next((i for i, t in enumerate(made.tokens) if t != tokens[end : end + 5][i]), len(made))
        total += accepted
        end += accepted + 1 + int(torch.randint(0, 3, (), generator=generator))
        end = min(end, len(tokens))
        if end + 5 >= len(tokens):
            break
    assert method == "ids" or total > 0
    drafter.release(0)
    drafter.release(0)
    drafter.cache.check()
    assert drafter.cache.free_slots == 3


def test_tokens_already_read_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    target, (draft, model) = byte_level(), taught("pieces")
    drafter = drafter_of(model, target, draft, method="text", length=256)
    tokens = target(TEXT)["input_ids"]
    rows = rows_fed(drafter, monkeypatch)
    drafter.propose([context(tokens[:60], len(target), 4)])
    rows.clear()
    for end in range(61, 90):
        drafter.propose([context(tokens[:end], len(target), 1)])
    assert max(rows) < 8  # a word or two of the draft's, never the text


def test_what_is_unread_counts_in_the_targets_tokens() -> None:
    target, draft = byte_level(), byte_tokenizer()
    drafter = drafter_of(random_lm(len(draft)), target, draft, method="text")
    prompt, theirs = (each("The quick brown fox")["input_ids"] for each in (target, draft))
    assert len(theirs) - 10 > len(prompt), "the draft's tokens are so much shorter"
    (made,) = drafter.propose([replace(context(prompt, len(target)), reading=10)])
    (caught_up,) = made.caught_up
    assert caught_up.read == 10
    assert caught_up.unread == math.ceil(len(prompt) * (len(theirs) - 10) / len(theirs))
    assert not len(made)


def test_a_tokenizer_that_cannot_be_read_is_named() -> None:
    inner = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="?")
    with pytest.raises(IncompatibleTokenizer, match="draft tiny has a tokenizer") as caught:
        drafter_of(random_lm(258), byte_tokenizer(), words)
    assert caught.value.hint


# -- the text stays the target's ----------------------------------------------------------------------------------

PROMPTS = ("The quick brown", "def add(first, second):\n    return", "12", "café 日本 😀", "It isn't the first time:")


def generated(model: Any, prompts: Sequence[Sequence[int]], new: int = NEW) -> list[tuple[int, ...]]:
    """What transformers generates greedily, prompt by prompt."""
    texts = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt)])
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0
        )
        texts.append(tuple(made[0, len(prompt) :].tolist()))
    return texts


SPEAKERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "byte level, pieces": (byte_level, pieces),
    "pieces, byte level": (pieces, byte_level),
    "pieces, unigram": (pieces, lambda: pieces(unigram=True)),
    "bytes, byte level": (byte_tokenizer, byte_level),
    "byte level, bytes": (byte_level, byte_tokenizer),
    "byte level, fewer words": (byte_level, lambda: byte_level(300)),
}


@pytest.mark.parametrize(("pair", "method"), rotated([list(SPEAKERS)], [("intersection",), ("text",)]))
def test_greedy_text_is_the_targets_alone(pair: str, method: Method, run: Callable[..., Any]) -> None:
    target, draft = (make() for make in SPEAKERS[pair])
    prompts = [list(target(text)["input_ids"]) for text in PROMPTS]
    expected = generated(random_lm(len(target)), prompts)
    drafter = drafter_of(random_lm(len(draft), seed=4), target, draft, method=method)
    engine = run(random_lm(len(target)), target, drafter)
    sampling = hs.Sampling(max_tokens=NEW)
    single = engine.generate(prompts[1], sampling)
    assert single.tokens == expected[1]
    assert single.stats.speculation.on, single.stats.speculation.reason
    outs = engine.generate(prompts, sampling)
    assert [out.tokens for out in outs] == expected
    assert all(out.stats.speculation.on for out in outs)
    assert sum(out.stats.drafted for out in outs) > 0


@pytest.mark.parametrize(
    ("kinds", "method", "k"),
    rotated(
        [[("byte level", "pieces"), ("pieces", "byte level")], ("intersection", "text")], [(5,), (1,), (0,)], most=2
    ),
)
def test_models_that_know_one_text_in_different_words(
    kinds: tuple[str, str], method: Method, k: int, run: Callable[..., Any]
) -> None:
    """Both have learnt the text, so drafts are right although the two cut it differently: all of them through text;
    over the intersection, up to words that the target alone has."""
    (target, model), (draft, other) = (taught(kind) for kind in kinds)
    ends = (TEXT.index(word) for word in (" brown", " over", " sleeps", " It", "\n    return"))
    prompts = [list(target(TEXT[:end])["input_ids"]) for end in ends]
    expected = generated(model, prompts)
    drafter = drafter_of(other, target, draft, method=method, length=256)
    engine = run(model, target, drafter, num_speculative_tokens=k, length=256)
    outs = engine.generate(prompts, hs.Sampling(max_tokens=NEW))
    assert [out.tokens for out in outs] == expected
    warm = engine.generate(prompts, [hs.Sampling(max_tokens=NEW, temperature=0.3, seed=i) for i in range(5)])
    for batch in (outs, warm):
        assert all(out.stats.speculation.on for out in batch)
        drafted, accepted = (sum(getattr(out.stats, name) for out in batch) for name in ("drafted", "accepted"))
        least = 0.5 if method == "text" else 0.3 if batch is outs else 0.0
        assert accepted > least * drafted if k else drafted == 0


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize(("made", "method"), [("byte level", None), ("bytes", "text"), ("pieces", None)])
def test_the_same_model_under_other_ids_is_a_perfect_draft(
    made: str, method: Method | None, rule: str, run: Callable[..., Any]
) -> None:
    """Everything it says is right, whether ids are renumbered or bytes go through text."""
    target = {"byte level": byte_level, "bytes": byte_tokenizer, "pieces": pieces}[made]()
    draft, order = renumbered(target)
    drafter = drafter_of(with_ids(random_lm(len(target)), order), target, draft, method=method)
    assert drafter.translation.method == (method or "ids")
    engine = run(random_lm(len(target)), target, drafter, num_speculative_tokens=3, rule=rule)
    prompts = [list(target(text)["input_ids"]) for text in PROMPTS]
    outs = engine.generate(prompts, hs.Sampling(max_tokens=24, ignore_eos=True))
    assert [out.tokens for out in outs] == generated(random_lm(len(target)), prompts)
    if method is None:
        warm = [hs.Sampling(max_tokens=24, temperature=1.0, seed=seed) for seed in range(5)]
        for out in (*outs, *engine.generate(prompts, warm)):  # some draft a step later, lest others wait
            assert out.stats.accepted == out.stats.drafted > 0
        for prompt, sampling in zip(prompts, warm, strict=True):
            assert engine.generate(prompt, sampling).stats.tokens_per_forward == 4
    # a special token among its guesses ends a draft that goes through text
    assert all(out.stats.accepted == out.stats.drafted for out in outs)


@pytest.mark.parametrize("method", METHODS)
def test_the_end_of_the_text_inside_a_draft(method: Method, run: Callable[..., Any]) -> None:
    """Whatever token is made the one that ends the text, it ends it, and nothing after it leaks."""
    plain = byte_tokenizer()
    (free,) = generated(random_lm(len(plain)), [plain("The quick")["input_ids"]])
    for at in (1, 2, 3, 5, 8):
        end = free[at]
        marks = {plain.convert_ids_to_tokens(end): "eos"}
        target = byte_tokenizer()
        target.eos_token = next(iter(marks))
        draft, order = renumbered(target)
        drafter = drafter_of(with_ids(random_lm(len(plain)), order), target, draft, method=method)
        engine = run(random_lm(len(plain)), target, drafter, eos=end)
        out = engine.generate(list(plain("The quick")["input_ids"]), hs.Sampling(max_tokens=NEW))
        assert out.finish_reason == "stop"
        assert out.tokens == free[: free.index(end) + 1]
        assert out.stats.speculation.on
        assert out.stats.accepted > 0


# -- sampled text follows the target's distribution
# ------------------------------------------------------------------------


def few_words(words: Sequence[str], merges: Sequence[tuple[str, str]]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


OURS = (("a", "b", "c", "d", "ab", "cd", "ba", "abc"), (("a", "b"), ("c", "d"), ("ab", "c"), ("b", "a")))
THEIRS = (("d", "cd", "b", "a", "dd", "c", "bb", "da"), (("d", "d"), ("c", "d"), ("b", "b"), ("d", "a")))


METHODS = ("intersection", "text", "near", "ids")
TURNS = (("exact", 0.7, 0.9), ("exact", 1.3, 0.95), ("coupled", 0.7, 0.9), ("coupled", 1.3, 0.95))


# The exactness matrix has drafts through text in its fast part; "near" is the method of "intersection" once more.
@pytest.mark.parametrize(
    ("method", "rule", "temperature", "top_p"),
    rotated([METHODS], TURNS, lambda method: method in ("text", "near"), most=1),
)
def test_chi_square(
    method: str, rule: str, temperature: float, top_p: float, root: Path, run: Callable[..., Any]
) -> None:
    tokens, samples = 3, 800
    path = eight_tokens(root, 0, 2)
    target = few_words(*OURS)
    if method in ("ids", "near"):  # the target's own weights, a little off
        draft, order = renumbered(target)
        model = with_ids(AutoModelForCausalLM.from_pretrained(eight_tokens(root, 0, 2, 0.1)), order)
        chosen: Method = "ids" if method == "ids" else "intersection"
    else:
        draft, model = few_words(*THEIRS), AutoModelForCausalLM.from_pretrained(eight_tokens(root, 5, 1))
        chosen = "intersection" if method == "intersection" else "text"
    drafter = drafter_of(model, target, draft, method=chosen, length=32, slots=50)
    engine = run(
        AutoModelForCausalLM.from_pretrained(path), target, drafter, rule=rule, num_speculative_tokens=3,
        max_batch_size=50, length=32,
    )  # fmt: skip
    samplings = [
        hs.Sampling(max_tokens=tokens + 2, temperature=temperature, top_p=top_p, seed=seed) for seed in range(samples)
    ]
    outs = engine.generate([PROMPT] * samples, samplings)
    assert all(out.stats.speculation.on for out in outs)
    assert p_value(Counter(out.tokens[:tokens] for out in outs), joint(path, temperature, top_p)) > 1e-3
    accepted, drafted = (sum(getattr(out.stats, name) for out in outs) for name in ("accepted", "drafted"))
    assert 0 < accepted < drafted


@pytest.mark.parametrize("method", ["intersection", "text"])
def test_coupled_gives_one_text_for_a_seed_whatever_the_draft(method: Method, run: Callable[..., Any]) -> None:
    target, draft = byte_level(), pieces()
    prompts = [list(target(text)["input_ids"]) for text in PROMPTS]
    samplings = [hs.Sampling(max_tokens=16, temperature=1.0, top_p=0.95, seed=seed) for seed in range(5)]
    texts = set()
    for k in (0, 1, 4):
        drafter = drafter_of(random_lm(len(draft), seed=4), target, draft, method=method)
        engine = run(random_lm(len(target)), target, drafter, rule="coupled", num_speculative_tokens=k)
        texts.add(tuple(out.tokens for out in engine.generate(prompts, samplings)))
    assert len(texts) == 1


def test_point_masses_leave_a_seeds_text_alone(run: Callable[..., Any]) -> None:
    """Through text nothing is drawn, so under rule "exact" too the drafts change no text."""
    target, draft = byte_level(), pieces()
    sampling = hs.Sampling(max_tokens=16, temperature=1.0, seed=3)
    texts = set()
    for k in (0, 2, 5):
        drafter = drafter_of(random_lm(len(draft), seed=4), target, draft, method="text")
        engine = run(random_lm(len(target)), target, drafter, num_speculative_tokens=k)
        texts.add(engine.generate(list(target("The quick")["input_ids"]), sampling).tokens)
    assert len(texts) == 1


def test_a_retokenised_transcript_is_what_such_a_pair_gets() -> None:
    target, draft = byte_level(), pieces()
    drafter = drafter_of(random_lm(len(draft)), target, draft)
    drafter.propose([context(target("The quick")["input_ids"], len(target), 1)])
    assert isinstance(drafter._memories[0]._transcript, Retokenised)
    assert drafter._memories[0].ids == draft("The quick")["input_ids"]
