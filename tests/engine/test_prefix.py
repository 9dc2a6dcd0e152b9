"""A cache that keeps the texts of ended requests: what is read again, and that no text changes by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import eagle_heads
from support.byte_models import save_model
from support.greedy import NEW, prompts, reference
from support.matrix_cells import EOS, Workshop
from support.rotation import rotated

import headstart as hs
from headstart.drafters import capabilities
from headstart.engine.engine import Engine
from headstart.loading.assembly import assemble

LONG = tuple(range(3, 63))
"""A prompt of 60 tokens."""
SAMPLING = hs.Sampling(max_tokens=8, ignore_eos=True)


def read_tokens(engine: Engine) -> list[int]:
    """A list that is given the rows of each step that are no drafts."""
    rows: list[int] = []
    engine.subscribe(lambda step: rows.append(step.rows - len(step.draft)))
    return rows


@pytest.fixture
def keeping(load: Callable[..., Any]) -> Callable[..., Engine]:
    def make(target: str = "llama", drafter: Any = "none", **options: Any) -> Engine:
        engine: Engine = load(target, drafter, prefix_cache=True, **options)
        return engine

    return make


# -- the same text ----------------------------------------------------------------------------------------------------


KINDS = ("none", "prediction", "ngram", "suffix", "early-exit", "lookahead", "draft LM")


# Of these two the fast suite has `test_a_seed_gives_one_text_warm_or_cold`.
@pytest.mark.parametrize(
    ("kind", "name"),
    rotated(
        [KINDS],
        [("gemma2",), ("llama",), ("gpt2",), ("mixtral",), ("persimmon",)],
        lambda kind: kind in ("suffix", "draft LM"),
    ),
)
def test_greedy_text_is_transformers_own(
    kind: str, name: str, tiny: Callable[..., str], keeping: Callable[..., Engine]
) -> None:
    """Row kernels (llama), the lean forward (gemma2, gpt2), experts (mixtral), the modules (persimmon); prompts in
    pieces, and begun again in every way."""
    if kind == "early-exit" and name == "persimmon":
        pytest.skip("only forwards of our own can be left early")
    drafter = tiny(name, noise=0.02) if kind == "draft LM" else kind
    engine = keeping(name, drafter, max_batch_size=2, prefill_chunk=8)
    sampling = hs.Sampling(max_tokens=NEW)
    texts = dict(zip(prompts(), reference(tiny(name)), strict=True))
    for prompt, text in texts.items():
        wish = hs.Drafting(prediction=text)
        assert engine.generate(list(prompt), sampling, wish).tokens == text
    for prompt, text in reversed(texts.items()):
        assert engine.generate([list(prompt)] * 3, sampling, hs.Drafting(prediction=text))[2].tokens == text
    warm = []
    for prompt, text in texts.items():
        for cut in range(1, len(text), 9):
            if text[cut - 1] != 2:  # nobody goes on after EOS
                out = engine.generate([*prompt, *text[:cut]], hs.Sampling(max_tokens=max(1, NEW - cut)))
                assert out.tokens == text[cut:][: NEW - cut]
                warm.append(out.stats.cached_tokens)
    assert max(warm) > 16
    assert out.stats.speculation.error is None


@pytest.mark.parametrize(
    ("kind", "rule"),
    rotated(
        [["none", "ngram", "suffix", "early-exit", "lookahead", "draft LM", "trees", "list"]],
        [("exact",), ("coupled",)],
    ),
)
def test_a_seed_gives_one_text_warm_or_cold(
    kind: str, rule: Any, tiny: Callable[..., str], load: Callable[..., Any], keeping: Callable[..., Engine]
) -> None:
    near = tiny("llama", noise=0.02)
    drafter = {"draft LM": near, "trees": near, "list": ["ngram", near]}.get(kind, kind)
    options = {"rule": rule, "draft_tree": "sampled"} if kind == "trees" else {"rule": rule}
    cold, warm = load("llama", drafter, **options), keeping("llama", drafter, **options)
    for seed in range(3):
        sampling = hs.Sampling(max_tokens=20, temperature=1.0, seed=seed, ignore_eos=True)
        expected = cold.generate(list(LONG), sampling).tokens
        for _ in range(2):
            out = warm.generate(list(LONG), sampling)
            assert out.tokens == expected
    drawn = rule == "exact" and capabilities.draws(cold.drafter)
    assert out.stats.cached_tokens == (0 if drawn else len(LONG) - 1), "where a text depends on drafts, none is shared"


def test_logits_after_kept_text_have_the_same_bits(keeping: Callable[..., Engine], load: Callable[..., Any]) -> None:
    sampling = hs.Sampling(max_tokens=8, logprobs=5, ignore_eos=True)
    cold = load("llama").generate(list(LONG), sampling)
    engine = keeping()
    assert engine.target.width_invariant
    engine.generate([*LONG[:40], 90, 91], SAMPLING)
    warm = engine.generate(list(LONG), sampling)
    assert warm.stats.cached_tokens == 40
    assert warm.logprobs == cold.logprobs


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_copy_has_the_same_bits(name: str, dtype: str, keeping: Callable[..., Engine]) -> None:
    """Of every layout and dtype, also where the copied part ends within a tile."""
    engine = keeping(name, dtype=dtype, max_batch_size=2)
    cache = engine.cache
    first = engine.submit(list(LONG), SAMPLING)
    engine.step()
    second = engine.submit([*LONG[:37], 90, 91], SAMPLING)
    engine.step()
    assert first.slot is not None
    assert second.slot is not None
    for store in (*cache.keys.values(), *cache.values.values()):
        one, other = store[first.slot], store[second.slot]
        if one.dim() == 4:  # tiles of sixteen tokens
            one, other = (each.transpose(2, 3).flatten(1, 2) for each in (one, other))
        assert one[:, :37].equal(other[:, :37])
    for request in (first, second):
        engine.cancel(request)
    assert second.finish().stats.cached_tokens == 37


# -- what is read again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["none", "draft"])
def test_a_second_turn_reads_only_what_is_new_on_both_models(
    drafter: str, keeping: Callable[..., Engine], tmp_path: Path
) -> None:
    target = str(save_model(tmp_path / "target", chat=True))
    draft = str(save_model(tmp_path / "draft", chat=True, noise=0.01)) if drafter == "draft" else "none"
    engine = keeping(target, draft, max_length=256)
    talk = [{"role": "user", "content": "A question that is rather long, so that there is something to read"}]
    first = engine.chat(talk, SAMPLING)
    asked = [*first.prompt_tokens, *first.tokens, *engine.encode("\nu:And now?\na:")]
    rows = read_tokens(engine)
    fed: list[int] = []
    if drafter == "draft":
        read = engine.drafter._read
        engine.drafter._read = lambda feeds: fed.append(len(feeds[0][1])) or read(feeds)
    second = engine.generate(asked, SAMPLING)
    # the last token of an answer is emitted, but not read
    assert second.stats.cached_tokens == len(first.prompt_tokens) + len(first.tokens) - 1
    assert rows[0] == len(asked) - second.stats.cached_tokens
    assert rows[1:] == [1] * (len(rows) - 1)
    if drafter == "draft":
        assert fed[0] <= rows[0] + 4, "the draft may lack the last guesses that were accepted"
    plain = engine.plain().generate(asked, SAMPLING)
    assert plain.tokens == second.tokens
    assert plain.stats.cached_tokens == 0


@pytest.mark.parametrize("chunk", [20, 64])
def test_choices_of_one_prompt_read_it_once(chunk: int, keeping: Callable[..., Engine]) -> None:
    engine = keeping(max_batch_size=4, prefill_chunk=chunk)
    rows = read_tokens(engine)
    outs = engine.generate([list(LONG)] * 4, hs.Sampling(max_tokens=6, temperature=1.0, ignore_eos=True))
    assert [out.stats.cached_tokens for out in outs] == [0, 59, 59, 59]
    assert sum(rows) == 60 + 4 * 6 - 1, "60 tokens of the prompt, then each token but the last of each text"


def test_one_that_waits_for_another_goes_on_when_that_is_cancelled(keeping: Callable[..., Engine]) -> None:
    engine = keeping(max_batch_size=2, prefill_chunk=16)
    first, second = engine.submit(list(LONG), SAMPLING), engine.submit(list(LONG), SAMPLING)
    engine.step()
    assert second.slot is None
    engine.cancel(first)
    while second.finish_reason is None:
        engine.step()
    assert second.finish().stats.cached_tokens == 16, "what the cancelled one had read"


def test_a_busy_slot_is_copied_and_neither_disturbs_the_other(
    keeping: Callable[..., Engine], load: Callable[..., Any]
) -> None:
    engine = keeping(max_batch_size=3)
    mine = [list(LONG), [*LONG[:30], 80, 81], [*LONG[:50], 70]]
    expected = [load("llama").generate(prompt, SAMPLING).tokens for prompt in mine]
    requests = []
    for prompt in mine:
        requests.append(engine.submit(prompt, SAMPLING))
        engine.step()
    while any(request.finish_reason is None for request in requests):
        engine.step()
    outs = [request.finish() for request in requests]
    assert [out.tokens for out in outs] == expected
    assert [out.stats.cached_tokens for out in outs] == [0, 30, 50]


def test_salts_share_nothing(keeping: Callable[..., Engine]) -> None:
    engine = keeping(max_batch_size=2)
    one, other = (hs.Sampling(max_tokens=4, cache_salt=salt) for salt in ("one", "other"))
    assert engine.generate(list(LONG), one).stats.cached_tokens == 0
    assert engine.generate(list(LONG), other).stats.cached_tokens == 0
    assert engine.generate(list(LONG), one).stats.cached_tokens == len(LONG) - 1
    outs = engine.generate([list(LONG)] * 2, [one, other])
    assert [out.stats.cached_tokens for out in outs] == [len(LONG) - 1] * 2


def test_fifteen_tokens_are_not_worth_it(keeping: Callable[..., Engine]) -> None:
    engine = keeping()
    engine.generate(list(LONG), SAMPLING)
    assert engine.generate([*LONG[:15], 90], SAMPLING).stats.cached_tokens == 0
    assert engine.generate([*LONG[:16], 90], SAMPLING).stats.cached_tokens == 16


def test_it_is_off_where_nobody_asks_for_it(load: Callable[..., Any]) -> None:
    engine = load("llama")
    assert [engine.generate(list(LONG), SAMPLING).stats.cached_tokens for _ in range(2)] == [0, 0]
    assert engine.describe()["prefix_cache"] is False


# -- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", ["none", "draft LM"])
def test_what_was_accepted_after_a_stop_is_not_kept(
    drafter: str, keeping: Callable[..., Engine], tiny: Callable[..., str], load: Callable[..., Any]
) -> None:
    """Where a text ends within an accepted block the cache holds more than the text."""
    whole = load("llama").generate(list(LONG), SAMPLING).tokens
    for at in range(1, len(whole)):
        if whole[at] in whole[:at]:
            continue
        engine = keeping("llama", tiny("llama") if drafter == "draft LM" else drafter, max_batch_size=1)
        stopped = engine.generate(list(LONG), hs.Sampling(max_tokens=8, stop_token_ids=[whole[at]]))
        text = [*LONG, *stopped.tokens]
        engine.cache.check()
        assert engine.cache.lengths[0] <= len(text)
        again = engine.generate([*text, 5, 6], SAMPLING)
        assert again.stats.cached_tokens in (len(text), len(text) - 1)
        assert again.tokens == engine.plain().generate([*text, 5, 6], SAMPLING).tokens


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_stop_string_within_an_accepted_block(
    cut: int, keeping: Callable[..., Engine], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(save_model(tmp_path_factory.getbasetemp() / "stops"))
    prompt = "x = [1, 2, 3, 4, 5, 6, 7, 8]"
    engine = keeping(path, path, draft_quantize=None, num_speculative_tokens=7, max_batch_size=1)
    whole = engine.plain().generate(prompt, hs.Sampling(max_tokens=8, ignore_eos=True))
    stop = whole.text[: len(whole.text)][-cut:]
    stopped = engine.generate(prompt, hs.Sampling(max_tokens=8, ignore_eos=True, stop=[stop]))
    text = [*stopped.prompt_tokens, *stopped.tokens]
    assert engine.cache.lengths[0] <= len(text)
    again = engine.generate([*text, 65, 66], SAMPLING)
    assert again.tokens == engine.plain().generate([*text, 65, 66], SAMPLING).tokens
    assert again.stats.cached_tokens >= len(text) - 1


def test_a_prompt_that_was_cancelled_while_it_was_read_is_of_use(keeping: Callable[..., Engine]) -> None:
    engine = keeping(prefill_chunk=16)
    request = engine.submit(list(LONG), SAMPLING)
    engine.step()
    engine.step()
    engine.cancel(request)
    engine.cache.check()
    out = engine.generate(list(LONG), SAMPLING)
    assert out.stats.cached_tokens == 32
    assert out.tokens == engine.plain().generate(list(LONG), SAMPLING).tokens


def test_the_text_used_least_lately_goes_first(keeping: Callable[..., Engine]) -> None:
    engine = keeping(max_batch_size=2)

    def cached(first: int) -> int:
        return engine.generate([first, *LONG[:30]], hs.Sampling(max_tokens=2)).stats.cached_tokens

    assert [cached(70), cached(71)] == [0, 0]
    assert cached(70) == 30
    assert cached(72) == 0, "takes the place of 71"
    assert [cached(70), cached(72)] == [30, 30]
    assert cached(71) == 0


def test_a_long_text_is_not_given_up_for_its_beginning(keeping: Callable[..., Engine]) -> None:
    """A common system prompt: each conversation keeps a slot of its own while there is room."""
    engine = keeping(max_batch_size=2)
    engine.generate(list(LONG), SAMPLING)
    assert engine.generate([*LONG[:20], 90, 91], SAMPLING).stats.cached_tokens == 20
    assert engine.generate(list(LONG), SAMPLING).stats.cached_tokens == len(LONG) - 1


def test_a_text_that_broke_off_with_an_error_is_not_kept(load: Callable[..., Any], tmp_path: Path) -> None:
    engine = load(str(save_model(tmp_path, nan=True)), prefix_cache=True)
    assert engine.generate("a long prompt before N", SAMPLING).finish_reason == "error"
    assert engine.generate("a long prompt before M", SAMPLING).stats.cached_tokens == 0


# -- heads ------------------------------------------------------------------------------------------------------------


def drafts_of(engine: Engine) -> list[tuple[int, ...]]:
    """A list that is given the draft of each step that emits something."""
    found: list[tuple[int, ...]] = []
    engine.subscribe(lambda step: found.append(step.draft.tokens) if step.tokens else None)
    return found


@pytest.fixture
def headed(root: Path, tmp_path: Path) -> Callable[..., Engine]:
    """An engine with an EAGLE head that drafts chains."""
    path, folder = eagle_heads.target(root), eagle_heads.write(tmp_path, "eagle3")

    def make(**options: Any) -> Engine:
        options = {"pacing": "fixed", "draft_tree": "none", "prefix_cache": True, **options}
        return hs.load(path, str(folder), dtype="float32", **options)

    return make


TURN = hs.Sampling(max_tokens=10, ignore_eos=True)


@pytest.mark.parametrize("tree", ["none", "top-k"])
@pytest.mark.parametrize("cut", [0, 3])
def test_a_head_goes_on_with_its_own_rows_in_a_second_turn(tree: str, cut: int, headed: Callable[..., Engine]) -> None:
    """It drafts just what it would have drafted, had it read the whole text."""
    warm, cold = headed(draft_tree=tree), headed(draft_tree=tree, prefix_cache=False)
    prompt = list(range(3, 23))
    first = warm.generate(prompt, TURN)
    turn = [*prompt, *first.tokens[: len(first.tokens) - cut], 4, 9, 4]
    rows, drafts, expected = read_tokens(warm), drafts_of(warm), drafts_of(cold)
    second = warm.generate(turn, TURN)
    assert second.tokens == cold.generate(turn, TURN).tokens
    assert drafts == expected
    assert max(map(len, drafts)) > 0
    # the state of the last token that is kept is shown once more; without a cut the very last token was never read
    assert rows[0] == len(turn) - second.stats.cached_tokens == 3 + 1 + (cut == 0)
    warm.drafter.cache.check()


def test_choices_share_the_rows_of_a_head(headed: Callable[..., Engine]) -> None:
    warm, cold = headed(max_batch_size=3), headed(prefix_cache=False)
    prompt = [3 + 7 * i % 20 for i in range(40)]
    drafts: dict[int, list[tuple[int, ...]]] = {}
    warm.subscribe(lambda step: drafts.setdefault(step.request, []).append(step.draft.tokens))
    expected = drafts_of(cold)
    outs = warm.generate([prompt] * 3, TURN)
    assert {out.tokens for out in outs} == {cold.generate(prompt, TURN).tokens}
    assert [out.stats.cached_tokens for out in outs] == [0, 39, 39]
    assert list(drafts.values()) == [expected] * 3


def test_a_head_drafts_after_a_beginning_it_has_not_seen(headed: Callable[..., Engine]) -> None:
    """Its rows have gone, those of the target have not: it reads what comes after, and guesses may be worse."""
    engine = headed(max_batch_size=1)
    prompt = list(range(3, 23))
    first = engine.generate(prompt, TURN)
    slot = engine.drafter.cache.acquire()
    engine.drafter.cache.release(slot)
    second = engine.generate(prompt, TURN)
    assert [out.stats.cached_tokens for out in (first, second)] == [0, len(prompt) - 1]
    assert first.tokens == second.tokens == engine.plain().generate(prompt, TURN).tokens
    assert second.stats.speculation.error is None
    assert second.stats.drafted > 0, "the head went on drafting"


@pytest.mark.parametrize(
    ("kind", "seeded"), rotated([["medusa", "eagle-1", "eagle-3", "translated"]], [(False,), (True,)])
)
def test_drafters_with_weights_of_their_own(kind: str, seeded: bool, root: Path) -> None:
    shop = Workshop(root / "prefix")
    shop.slots = 2

    def make(keeps: bool) -> Engine:
        drafter: Any = {
            "medusa": shop.medusa,
            "eagle-1": lambda: shop.eagle(1, "sampled"),
            "eagle-3": lambda: shop.eagle(3, "none"),
            "translated": lambda: shop.translated("intersection"),
        }[kind]()
        return assemble(shop.target, drafter=drafter, rule="exact", max_batch_size=2, prefix_cache=keeps)

    cold, warm = make(False), make(True)
    prompt = [1, 3, 2, 1, 0, 5, 6, 0, 5, 7, 3, 2, 1, 4, 7, 6, 3, 2, 2, 1]
    sampling = hs.Sampling(
        max_tokens=10, ignore_eos=True, stop_token_ids=[EOS], temperature=1.0 if seeded else 0.0, seed=4
    )
    expected = cold.generate(prompt, sampling).tokens
    for _ in range(2):
        outs: Sequence[hs.Output] = warm.generate([prompt, prompt], sampling)
        assert [out.tokens for out in outs] == [expected] * 2
        assert all(out.stats.speculation.error is None for out in outs)
        assert all(out.stats.drafted > 0 for out in outs)
    warm.cache.check()
    if hasattr(warm.drafter, "cache"):
        warm.drafter.cache.check()
