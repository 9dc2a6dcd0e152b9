"""The engine: stops at every offset inside an accepted block, streams, cancellation, failures, contexts, events."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from support.timeless import CHEAP, timeless
from support.tiny import VOCAB, byte_tokenizer, random_model
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import ContextExceeded, DrafterFailed, InvalidOption, InvalidPrompt, NonFiniteLogits
from headstart.drafters import Drafter, Observation, Row
from headstart.engine.engine import Engine
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.types import Draft

PROMPT = [5, 17, 40, 9]


class Scripted(Drafter):
    """Proposes the next tokens of a given text: accepted whole, so that everything can end inside a block."""

    def __init__(self, text: Sequence[int], budget: int = 6) -> None:
        self.name = "scripted"
        self.default_budget = budget
        self.text = list(text)

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        return [Draft.chain(self.text[len(c.tokens) : len(c.tokens) + c.budget.nodes]) for c in contexts]


def runner(scale: float = 0.2) -> ModelRunner:
    return ModelRunner(adopt(random_model("llama", scale=scale)), max_length=96)


@pytest.fixture(scope="module")
def target() -> ModelRunner:
    return runner()


@pytest.fixture(scope="module")
def text(target: ModelRunner) -> list[int]:
    """The greedy continuation of PROMPT, prompt included."""
    return PROMPT + list(assemble(target).generate(PROMPT, hs.Sampling(max_tokens=24, ignore_eos=True)).tokens)


PACINGS = {"fixed": lambda _: None, "adaptive": lambda drafter: timeless(drafter, 1e-7, None, CHEAP)}
_chosen = ["fixed"]


@pytest.fixture(autouse=True, params=list(PACINGS))
def _pacing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs under both pacings: `scripted` makes its engines with the one that is tested."""
    _chosen[0] = request.param
    yield
    _chosen[0] = "fixed"


def scripted(target: ModelRunner, text: list[int], **options: Any) -> Engine:
    drafter = Scripted(text)
    return assemble(target, drafter=drafter, pacing=PACINGS[_chosen[0]](drafter), **options)


# -- every way to end, at every offset inside an accepted block ------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 16))
def test_max_tokens_at_every_offset(n: int, target: ModelRunner, text: list[int]) -> None:
    out = scripted(target, text).generate(PROMPT, hs.Sampling(max_tokens=n))
    assert out.tokens == tuple(text[4 : 4 + n])
    assert out.finish_reason == "length"


@pytest.mark.parametrize("offset", range(14))
@pytest.mark.parametrize("how", ["eos", "stop_token_ids"])
def test_stop_tokens_at_every_offset(offset: int, how: str, target: ModelRunner, text: list[int]) -> None:
    stop = text[4 + offset]
    first = text[4:].index(stop)
    eos = frozenset([stop]) if how == "eos" else frozenset()
    sampling = hs.Sampling(max_tokens=20, stop_token_ids=[] if how == "eos" else [stop])
    steps: list[hs.Step] = []
    engine = scripted(target, text, eos_token_ids=eos)
    engine.subscribe(steps.append)
    out = engine.generate(PROMPT, sampling)
    assert out.tokens == tuple(text[4 : 5 + first])
    assert out.finish_reason == "stop"
    assert sum((step.tokens for step in steps), ()) == out.tokens
    assert steps[-1].finish_reason == "stop"


def test_ignore_eos_goes_on(target: ModelRunner, text: list[int]) -> None:
    engine = scripted(target, text, eos_token_ids=frozenset([text[6]]))
    assert engine.generate(PROMPT, hs.Sampling(max_tokens=12, ignore_eos=True)).tokens == tuple(text[4:16])


@pytest.mark.parametrize("minimum", range(1, 9))
def test_min_tokens_at_every_offset(minimum: int, target: ModelRunner, text: list[int]) -> None:
    """EOS is impossible before min_tokens, and the text up to there is that of plain decoding."""
    eos = frozenset([text[5]])
    sampling = hs.Sampling(max_tokens=16, min_tokens=minimum)
    plain = assemble(target, eos_token_ids=eos).generate(PROMPT, sampling)
    out = scripted(target, text, eos_token_ids=eos).generate(PROMPT, sampling)
    assert out.tokens == plain.tokens
    assert len(out.tokens) >= minimum
    assert text[5] not in out.tokens[:minimum]


@pytest.fixture(scope="module")
def byte_target() -> ModelRunner:
    import transformers as tf

    config = tf.LlamaConfig(
        vocab_size=258, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, eos_token_id=256, pad_token_id=257, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return ModelRunner(adopt(model))


@pytest.fixture(scope="module")
def ascii_only() -> dict[int, float]:
    """A bias that leaves only printable bytes, so that any run of them is a stop string."""
    tokenizer = byte_tokenizer()
    return {
        i: -100.0 for i in range(258) if not (len(t := tokenizer.decode([i])) == 1 and t.isascii() and t.isprintable())
    }


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("offset", range(12))
def test_stop_strings_at_every_offset(
    offset: int, length: int, byte_target: ModelRunner, ascii_only: dict[int, float]
) -> None:
    tokenizer = byte_tokenizer()
    base = hs.Sampling(max_tokens=30, logit_bias=ascii_only)
    plain = assemble(byte_target, tokenizer).generate("ab", base)
    assert len(plain.text) == 30
    stop = plain.text[offset : offset + length]
    at = plain.text.index(stop)
    script = list(tokenizer("ab")["input_ids"]) + list(plain.tokens)
    engine = assemble(byte_target, tokenizer, Scripted(script))
    sampling = hs.Sampling(max_tokens=30, logit_bias=ascii_only, stop=["never there", stop])
    chunks = list(engine.stream("ab", sampling))
    assert "".join(chunk.text for chunk in chunks) == plain.text[:at]
    assert sum((chunk.tokens for chunk in chunks), ()) == plain.tokens[: at + length]
    assert chunks[-1].finish_reason == "stop"
    assert engine.generate("ab", sampling).text == plain.text[:at]


def test_streamed_text_is_the_text_even_when_characters_span_tokens(byte_target: ModelRunner) -> None:
    """Random bytes: incomplete and broken characters. The pieces join to the decoded whole."""
    tokenizer = byte_tokenizer()
    for seed in range(20):
        engine = assemble(byte_target, tokenizer, num_speculative_tokens=3)
        sampling = hs.Sampling(max_tokens=20, temperature=1.5, seed=seed, ignore_eos=True)
        chunks = list(engine.stream("añb", sampling))
        tokens = [token for chunk in chunks for token in chunk.tokens]
        prompt = tokenizer("añb")["input_ids"]
        whole = tokenizer.decode(prompt + tokens, skip_special_tokens=True)
        assert "añb" + "".join(chunk.text for chunk in chunks) == whole


def test_context_full_ends_with_length(target: ModelRunner, text: list[int]) -> None:
    for engine in (assemble(target), scripted(target, text * 5)):
        out = engine.generate(PROMPT, hs.Sampling(max_tokens=500, ignore_eos=True))
        assert out.finish_reason == "length"
        assert len(out.tokens) + len(PROMPT) == target.max_length


# -- batches, streams, cancellation ----------------------------------------------------------------------------------


def test_every_row_of_a_batch_is_what_it_is_alone(target: ModelRunner, text: list[int]) -> None:
    """Each with its own Sampling and seed; noise and distribution do not depend on who else is there."""
    samplings = [
        hs.Sampling(max_tokens=9, temperature=1.0, seed=1),
        hs.Sampling(max_tokens=20),
        hs.Sampling(max_tokens=14, temperature=0.7, top_p=0.8, seed=3, repetition_penalty=1.3),
        hs.Sampling(max_tokens=5, temperature=1.3, min_p=0.1, seed=4, frequency_penalty=0.5),
        hs.Sampling(max_tokens=17, temperature=2.0, top_k=7, seed=5, presence_penalty=1.0),
    ]
    prompts = [[7] * n for n in (3, 30, 11, 1, 6)]
    alone = [scripted(target, text).generate(p, s).tokens for p, s in zip(prompts, samplings, strict=True)]
    together = scripted(target, text, max_batch_size=2, prefill_chunk=5).generate(prompts, samplings)
    assert [out.tokens for out in together] == alone


def test_interleaved_streams_and_cancellation(target: ModelRunner, text: list[int]) -> None:
    engine = scripted(target, text)
    first = engine.stream(PROMPT, hs.Sampling(max_tokens=16))
    second = engine.stream([8, 9], hs.Sampling(max_tokens=16))
    begun, cut = next(first).tokens, next(second).tokens
    second.close()  # type: ignore[attr-defined]
    assert len(engine.scheduler.requests()) == 1
    rest = [token for chunk in first for token in chunk.tokens]
    solo, other = (assemble(target).generate(p, hs.Sampling(max_tokens=16)).tokens for p in (PROMPT, [8, 9]))
    assert (*begun, *rest) == solo
    assert 1 <= len(cut) < len(other)
    assert cut == other[: len(cut)]
    assert not engine.scheduler.requests()
    engine.cache.check()


def test_a_cancelled_request_keeps_what_it_has(target: ModelRunner) -> None:
    engine = assemble(target)
    request = engine.submit(PROMPT, hs.Sampling(max_tokens=16, ignore_eos=True))
    for _ in range(3):
        engine.step()
    engine.cancel(request)
    out = request.finish()
    assert (out.finish_reason, len(out.tokens)) == ("cancelled", 3)
    waiting = engine.submit(PROMPT)
    engine.cancel(waiting)
    engine.cancel(waiting)
    assert waiting.finish().tokens == ()
    assert engine.step() == []


def test_requests_join_between_steps(target: ModelRunner) -> None:
    engine = assemble(target, max_batch_size=2)
    requests = [engine.submit([n + 3], hs.Sampling(max_tokens=4, ignore_eos=True)) for n in range(3)]
    batches = []
    while any(request.finish_reason is None for request in requests):
        batches.append(engine.step()[0].batch)
    assert batches == [2] * 4 + [1] * 4
    assert [request.finish().tokens for request in requests] == [
        assemble(target).generate([n + 3], hs.Sampling(max_tokens=4, ignore_eos=True)).tokens for n in range(3)
    ]


def test_steps_tell_the_whole_story(target: ModelRunner, text: list[int]) -> None:
    steps: list[hs.Step] = []
    engine = scripted(target, text, prefill_chunk=3)
    stop = engine.subscribe(steps.append)
    out = engine.generate(PROMPT, hs.Sampling(max_tokens=15, ignore_eos=True))
    assert [step.index for step in steps] == list(range(len(steps)))
    assert steps[0].tokens == ()
    assert steps[0].rows == 3
    position = len(PROMPT)
    for step in steps:
        assert step.position == position
        assert step.accepted <= len(step.draft)
        assert [step.draft.tokens[node] for node in step.path][: step.accepted] == list(step.tokens[: step.accepted])
        position += len(step.tokens)
    stats = out.stats
    assert stats.tokens == 15
    assert (stats.target_forwards, stats.prefill_forwards) == (len(steps) - 1, 1)
    assert stats.accepted == sum(step.accepted for step in steps)
    assert stats.drafted == sum(len(step.draft) for step in steps)
    assert stats.seconds.total == pytest.approx(sum(step.seconds.total for step in steps))
    assert 0 < stats.seconds_to_first_token <= stats.total_seconds
    assert stats.speculation.on
    stop()
    engine.generate(PROMPT, hs.Sampling(max_tokens=1))
    assert steps[-1].finish_reason == "length"
    assert sum(len(step.tokens) for step in steps) == 15


# -- drafters that misbehave, learn, or look inside ------------------------------------------------------------------


class Broken(Scripted):
    """Fails at its third call, in one of several ways."""

    def __init__(self, text: Sequence[int], how: str) -> None:
        super().__init__(text)
        self.how, self.calls = how, 0

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        self.calls += 1
        if self.calls < 3:
            return super().propose(contexts)
        if self.how == "raises":
            raise RuntimeError("out of ideas")
        return {
            "too long": [Draft.chain([3] * (contexts[0].budget.nodes + 1))],
            "not a token": [Draft.chain([VOCAB])],
            "wrong q": [Draft.chain([3], torch.ones(1, 5))],
            "too few": [],
        }[self.how]


@pytest.mark.parametrize("how", ["raises", "too long", "not a token", "wrong q", "too few"])
def test_a_failing_drafter_leaves_the_text_alone(how: str, target: ModelRunner, text: list[int]) -> None:
    engine = assemble(target, drafter=Broken(text, how), num_speculative_tokens=2)
    out = engine.generate(PROMPT, hs.Sampling(max_tokens=20, ignore_eos=True))
    assert out.tokens == tuple(text[4:24])
    speculation = out.stats.speculation
    assert not speculation.on
    raised = how in ("raises", "too few")
    assert speculation.reason.startswith("the drafter raised " if raised else "a draft was refused: ")
    assert isinstance(speculation.error, DrafterFailed)
    assert not raised or speculation.error.__cause__ is not None


@pytest.mark.parametrize("method", ["observe", "release"])
def test_a_drafter_may_fail_anywhere(method: str, target: ModelRunner, text: list[int]) -> None:
    drafter = Scripted(text)
    setattr(drafter, method, lambda _: 1 / 0)
    out = assemble(target, drafter=drafter).generate(PROMPT, hs.Sampling(max_tokens=20, ignore_eos=True))
    assert out.tokens == tuple(text[4:24])
    assert "ZeroDivisionError" in out.stats.speculation.reason


class Tapped(Scripted):
    """Collects what it is shown."""

    taps = (2, 4)

    def __init__(self, text: Sequence[int]) -> None:
        super().__init__(text)
        self.tokens: list[int] = []
        self.hidden: dict[int, list[torch.Tensor]] = {2: [], 4: []}

    def observe(self, observation: Observation) -> None:
        self.tokens += observation.tokens
        for layer, states in observation.hidden.items():
            self.hidden[layer].append(states)


def test_a_drafter_sees_the_hidden_states_of_committed_tokens(target: ModelRunner, text: list[int]) -> None:
    wrong = [*text[:9], 3, *text[10:]]  # one draft is rejected in the middle
    drafter = Tapped(wrong)
    assemble(target, drafter=drafter, prefill_chunk=3).generate(PROMPT, hs.Sampling(max_tokens=20, ignore_eos=True))
    seen = drafter.tokens
    assert seen == text[: len(seen)]
    assert len(seen) >= 23
    plain = random_model("llama")
    with torch.no_grad():
        want = plain(torch.tensor([seen]), output_hidden_states=True).hidden_states
    for layer in (2, 4):
        torch.testing.assert_close(torch.cat(drafter.hidden[layer]), want[layer][0], atol=2e-5, rtol=1e-4)


class Tree(Drafter):
    """A bushy tree around the true continuation; the truth is never the first child."""

    name = "tree"
    default_budget = 9

    def __init__(self, text: Sequence[int]) -> None:
        self.text = list(text)

    def propose(self, contexts: Sequence[Row]) -> list[Draft]:
        drafts = []
        for context in contexts:
            tokens: list[int] = []
            parents: list[int] = []
            parent = -1
            for depth in range(context.budget.nodes // 3):
                at = len(context.tokens) + depth
                true = self.text[at] if at < len(self.text) else 3
                tokens += [(true + 1) % VOCAB, true, (true + 2) % VOCAB]
                parents += [parent] * 3
                parent = len(tokens) - 2
            drafts.append(Draft(tuple(tokens), tuple(parents)))
        return drafts


def test_trees_are_verified_and_compacted(target: ModelRunner, text: list[int]) -> None:
    engine = assemble(target, drafter=Tree(text))
    outs = engine.generate([PROMPT, PROMPT[:2]], hs.Sampling(max_tokens=24, ignore_eos=True))
    assert outs[0].tokens == tuple(text[4:])
    assert outs[0].stats.tokens_per_forward > 2.5
    assert outs[1].tokens == assemble(target).generate(PROMPT[:2], hs.Sampling(max_tokens=24, ignore_eos=True)).tokens
    engine.cache.check()


# -- numbers that go wrong --------------------------------------------------------------------------------------------


def test_nan_logits_end_one_request_and_not_the_others() -> None:
    """One token's embedding is NaN: the request that contains it ends, its neighbour does not notice."""
    broken = random_model("llama")
    with torch.no_grad():
        broken.model.embed_tokens.weight[50] = math.nan
        # untied, so that only reading the token is poisonous
        broken.lm_head.weight = torch.nn.Parameter(broken.lm_head.weight.nan_to_num(0.1))
    engine = assemble(ModelRunner(adopt(broken)), max_batch_size=3)
    sampling = hs.Sampling(max_tokens=8, logit_bias={50: -100.0}, ignore_eos=True)
    good, bad, other = engine.generate([[4, 5], [4, 50], [6]], sampling)
    assert bad.finish_reason == "error"
    assert isinstance(bad.error, NonFiniteLogits)
    assert bad.tokens == ()
    assert (good.finish_reason, other.finish_reason) == ("length", "length")
    assert good.tokens == engine.generate([4, 5], sampling).tokens
    assert good.error is None
    engine.cache.check()


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_logprobs_are_the_targets_own(mode: Any, target: ModelRunner, text: list[int]) -> None:
    sampling = hs.Sampling(
        max_tokens=12, logprobs=3, logprobs_mode=mode, temperature=0.5, seed=2, logit_bias={7: 2.0}, ignore_eos=True
    )
    plain = assemble(target).generate(PROMPT, sampling)
    out = scripted(target, text).generate(PROMPT, sampling)
    assert out.tokens == plain.tokens
    assert out.logprobs is not None
    assert len(out.logprobs) == 12
    model = random_model("llama")
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *out.tokens]])).logits[0, 3:-1]
    if mode == "processed":
        logits[:, 7] += 2
        logits /= 0.5
    want = logits.log_softmax(-1)
    for i, (token, entry) in enumerate(zip(out.tokens, out.logprobs, strict=True)):
        assert entry.token == token
        assert entry.logprob == pytest.approx(float(want[i, token]), abs=1e-4)
        values, ids = want[i].topk(3)
        assert list(entry.top) == ids.tolist()
        assert list(entry.top.values()) == pytest.approx(values.tolist(), abs=1e-4)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [[], [[3], []]])
def test_empty_prompts(prompt: Any, target: ModelRunner) -> None:
    with pytest.raises(InvalidPrompt, match="empty"):
        assemble(target).generate(prompt)


def test_token_ids_come_in_many_containers(target: ModelRunner, text: list[int]) -> None:
    engine, sampling = assemble(target), hs.Sampling(max_tokens=4, ignore_eos=True)
    want = tuple(text[4:8])
    for prompt in (PROMPT, tuple(PROMPT), np.array(PROMPT), torch.tensor(PROMPT)):
        assert engine.generate(prompt, sampling).tokens == want
        assert [out.tokens for out in engine.generate([prompt, prompt], sampling)] == [want, want]


def test_text_prompts(target: ModelRunner, byte_target: ModelRunner) -> None:
    with pytest.raises(InvalidPrompt, match="no tokenizer"):
        assemble(target).generate("hello")
    with pytest.raises(InvalidPrompt, match="empty"):
        assemble(byte_target, byte_tokenizer()).generate("")
    with pytest.raises(InvalidOption, match="stop strings"):
        assemble(target).generate([3], hs.Sampling(stop="x"))


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_tokens_outside_the_vocabulary(token: int, target: ModelRunner) -> None:
    with pytest.raises(InvalidPrompt, match=f"{token} is not in the vocabulary"):
        assemble(target).generate([3, token])


@pytest.mark.parametrize("options", [{"stop_token_ids": [VOCAB]}, {"logit_bias": {VOCAB: 1.0}}], ids=str)
def test_options_that_name_tokens_outside_the_vocabulary(options: dict[str, Any], target: ModelRunner) -> None:
    with pytest.raises(InvalidOption, match=f"names token {VOCAB}"):
        assemble(target).generate([3], hs.Sampling(**options))


def test_prompt_longer_than_the_context(target: ModelRunner) -> None:
    with pytest.raises(ContextExceeded, match="96 tokens and the context holds 96"):
        assemble(target).generate([3] * 96)
    assert assemble(target).generate([3] * 95).finish_reason == "length"


def test_a_mistake_in_one_prompt_starts_nothing(target: ModelRunner) -> None:
    engine = assemble(target)
    with pytest.raises(InvalidPrompt):
        engine.generate([[3], [VOCAB]])
    with pytest.raises(InvalidOption, match="2 Samplings for 1"):
        engine.generate([[3]], [hs.Sampling(), hs.Sampling()])
    assert not engine.scheduler.requests()


def test_engine_options_are_checked(target: ModelRunner) -> None:
    for options in ({"rule": "typical"}, {"num_speculative_tokens": -1}, {"max_batch_size": 0}, {"prefill_chunk": 0}):
        with pytest.raises(InvalidOption):
            assemble(target, **options)  # type: ignore[arg-type]


def test_generate_clears_its_own_requests_chunks_alone(load: Any) -> None:
    engine = load("llama", max_batch_size=3)
    other = engine.submit([5, 6, 7], hs.Sampling(max_tokens=4, ignore_eos=True))
    held: list[int] = []
    engine.record(lambda observation, request: held.append(0 if request is other else len(request.chunks)))
    outputs = engine.generate([[9], [10, 11], [12]], hs.Sampling(max_tokens=6))
    assert [len(each.tokens) for each in outputs] == [6, 6, 6]
    assert max(held) <= 1, "a step's own, at most"
    assert sum(len(each.tokens) for each in other.chunks) == len(other.output) > 0
