"""Many clients at once, with every option, who come and go: none is lost, none is mixed up, nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from support.bridges import bridged, read
from support.tiny import VOCAB

import headstart as hs
from headstart.serve.bridge import Answer, Job
from headstart.serve.options import Limits
from headstart.serve.worker import ThreadBridge

Load = Callable[..., hs.Engine]
REQUESTS = 60


def mixed(chance: random.Random, *, greedy: bool) -> Job:
    """A job with options of every kind."""
    prompt = tuple(chance.randrange(3, VOCAB) for _ in range(chance.choice((1, 4, 19, 60))))
    return Job(
        prompt,
        hs.Sampling(
            max_tokens=chance.randrange(1, 40),
            temperature=0.0 if greedy else chance.choice((0.0, 0.7, 1.0)),
            top_k=chance.choice((0, 5)),
            top_p=chance.choice((1.0, 0.9)),
            repetition_penalty=chance.choice((1.0, 1.2)),
            logit_bias=chance.choice(({}, {7: 3.0, 9: -5.0})),
            seed=chance.randrange(2**32),
            stop_token_ids=chance.choice(((), (11, 12, 13))),
            ignore_eos=chance.random() < 0.5,
            logprobs=chance.choice((None, 2)),
            cache_salt=chance.choice(("", "one", "other")),
        ),
    )


@pytest.mark.parametrize(("rule", "drafter"), [("exact", "ngram"), ("coupled", "draft LM"), ("coupled", "suffix")])
def test_each_answer_is_its_solo_answer(rule: str, drafter: str, tiny: Callable[..., str], load: Load) -> None:
    """Greedy ones bit for bit under any rule; under rule "coupled" also those that are drawn, by their seed."""
    chance = random.Random(rule + drafter)
    source = tiny("llama", noise=0.02) if drafter == "draft LM" else drafter
    engine = load("llama", source, rule=rule, max_batch_size=6, prefill_chunk=24)
    jobs = [mixed(chance, greedy=rule == "exact") for _ in range(REQUESTS)]
    alone = [engine.generate(job.prompt, job.sampling) for job in jobs]
    ends = [chance.choice(("read", "read", "output", "read and leave", "leave")) for _ in jobs]
    pauses = [chance.random() * 0.1 for _ in jobs]

    async def client(bridge: ThreadBridge, at: int) -> bool:
        """Returns whether it stayed to the end."""
        await asyncio.sleep(pauses[at])
        (answer,) = bridge.submit([jobs[at]])
        if ends[at] == "leave":
            await asyncio.sleep(pauses[-at])
            answer.cancel()
        elif ends[at] == "read and leave":
            async for _ in answer:
                break
            answer.cancel()
        output = await answer.output() if ends[at] == "output" else (await _rest(answer))
        if output.finish_reason == "cancelled":
            assert output.tokens == alone[at].tokens[: len(output.tokens)]
            return False
        assert (output.tokens, output.text) == (alone[at].tokens, alone[at].text)
        assert output.finish_reason == alone[at].finish_reason
        if alone[at].logprobs is not None:
            assert output.logprobs is not None
            assert [one.token for one in output.logprobs] == [one.token for one in alone[at].logprobs]
        return True

    async def scene(bridge: ThreadBridge) -> list[bool]:
        stayed = await asyncio.gather(*(client(bridge, at) for at in range(REQUESTS)))
        assert bridge.queued == 0
        return stayed

    stayed = bridged(engine, scene, Limits(max_waiting_requests=REQUESTS))
    assert sum(stayed) >= REQUESTS // 2


async def _rest(answer: Answer) -> hs.Output:
    async for _ in answer:
        pass
    return await answer.output()


def test_choices_of_one_call_follow_one_another(load: Load) -> None:
    engine = load("llama", "ngram", rule="coupled", max_batch_size=4)
    prompt = (5, 9, 5, 9, 5)
    jobs = [Job(prompt, hs.Sampling(max_tokens=12, temperature=1.0, seed=seed)) for seed in range(4)]
    alone = [engine.generate(prompt, job.sampling).tokens for job in jobs]

    async def scene(bridge: ThreadBridge) -> None:
        outputs = [output for _, output in await asyncio.gather(*(read(one) for one in bridge.submit(jobs)))]
        assert [output.tokens for output in outputs] == alone

    bridged(engine, scene)
