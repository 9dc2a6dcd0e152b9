"""The metrics say what the steps say; the dashboard asks for nothing that is not there."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.bridges import Gate, bridged, job, until
from support.greedy import prompts

import headstart as hs
from headstart.base.errors import Overloaded
from headstart.drafters.ahead import PREFIX
from headstart.serve.bridge import Job
from headstart.serve.metrics import Buckets, Metrics, dashboard
from headstart.serve.names import MOST_NAMES, OTHER, public_name
from headstart.serve.options import Limits
from headstart.serve.worker import ThreadBridge
from headstart.theory.rounds import PositionCounts
from headstart.types import Step

Load = Callable[..., hs.Engine]
LONG: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}


def values(metrics: Metrics) -> dict[str, dict[str, float]]:
    """Of each sample, the value by its label beside that of the model, "" where it has none."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.startswith("headstart:"):
                assert labels.pop("model_name") == "the-model"
            assert len(labels) <= 1, "one label beside the model"
            found.setdefault(sample.name, {})["".join(labels.values())] = sample.value
    return found


def watched(engine: hs.Engine, jobs: list[Job]) -> tuple[Metrics, list[Step], list[hs.Output]]:
    """The metrics after these jobs, the steps of the engine, and what it put out."""
    metrics, steps = Metrics("the-model"), list[Step]()
    engine.subscribe(steps.append)

    async def scene(bridge: ThreadBridge) -> list[hs.Output]:
        metrics.follow(bridge)
        return [await answer.output() for answer in bridge.submit(jobs)]

    outputs = bridged(engine, scene, subscribers=[metrics])
    return metrics, steps, outputs


@pytest.mark.parametrize("drafter", ["ngram", "draft LM", "none"])
def test_counts_are_those_of_the_steps(drafter: str, tiny: Callable[..., str], load: Load) -> None:
    source = tiny("llama", noise=0.02) if drafter == "draft LM" else drafter
    engine = load("llama", source, max_batch_size=3, prefill_chunk=8)
    metrics, steps, outputs = watched(engine, [job(prompt, **LONG) for prompt in prompts()])
    found = values(metrics)
    judged = [step for step in steps if step.tokens]
    drafts = [step for step in judged if len(step.draft)]
    expected = {
        "prompt_tokens": sum(map(len, prompts())),
        "prefix_cache_queries": sum(map(len, prompts())),
        "prefix_cache_hits": 0,
        "generation_tokens": sum(len(output.tokens) for output in outputs),
        "target_forwards": sum(output.stats.target_forwards for output in outputs),
        "spec_decode_num_drafts": len(drafts),
        "spec_decode_num_draft_tokens": sum(output.stats.drafted for output in outputs),
        "spec_decode_num_accepted_tokens": sum(output.stats.accepted for output in outputs),
        "requests_refused": 0,
    }
    for name, value in expected.items():
        assert found[f"headstart:{name}_total"] == {"": value}, name
    positions, lengths = PositionCounts(), Counter(len(step.path) for step in drafts)
    for step in drafts:
        positions.add(max(step.draft.depths), len(step.path))
    for name, counts in (("tested", positions.tested), ("accepted", positions.accepted)):
        by_place = {str(place): count for place, count in enumerate(counts)}
        assert found.get(f"headstart:spec_decode_num_{name}_tokens_per_pos_total", {}) == by_place
    buckets = found["headstart:accepted_length_bucket"]
    assert [buckets[f"{n}.0"] for n in range(5)] == [sum(lengths[i] for i in range(n + 1)) for n in range(5)]
    assert buckets["+Inf"] == found["headstart:accepted_length_count"][""] == len(drafts)
    sources = Counter[str]()
    for step in drafts:
        sources[public_name(step.draft.source)] += len(step.draft)
    assert found.get("headstart:drafted_by_total", {}) == sources
    assert found["headstart:request_success_total"] == Counter(output.finish_reason for output in outputs)
    assert found["headstart:chunk_gap_seconds_count"][""] == len(judged) - len(outputs)
    for name in ("time_to_first_token", "request_queue_time", "e2e_request_latency", "time_per_output_token"):
        assert found[f"headstart:{name}_seconds_count"] == {"": len(outputs)}, name
    off = found.get("headstart:speculation_off_total", {})
    assert off == ({outputs[0].stats.speculation.reason: len(outputs)} if drafter == "none" else {})


def test_drafts_made_ahead_are_counted(tiny: Callable[..., str], load: Load) -> None:
    engine = load("llama", f"ahead:{tiny('llama', noise=0.02)}", max_batch_size=3)
    metrics, _, outputs = watched(engine, [job(prompt, **LONG) for prompt in prompts()])
    found, stats = values(metrics), [output.stats.ahead for output in outputs]
    for name in ("hits", "misses"):
        assert found[f"headstart:ahead_{name}_total"] == {"": sum(getattr(each, name) for each in stats)}, name
    assert set(found["headstart:drafted_by_total"]) == {public_name(engine.drafter_name)}
    assert public_name(f"{PREFIX}/models/deep/draft + ngram") == f"{PREFIX}draft + ngram"
    assert public_name(f"{PREFIX}./draft") == f"{PREFIX}draft"


def test_step_seconds_count_every_step_once(load: Load) -> None:
    engine = load("llama", "ngram", max_batch_size=4)
    metrics, steps, _ = watched(engine, [job([5], **LONG) for _ in range(4)])
    counted = metrics.total["engine_steps"]
    assert counted < len(steps), "several requests in a step"
    each = {(step.seconds.draft, step.seconds.verify): step.seconds.verify for step in steps}
    assert counted == len(each)
    assert metrics.seconds.verify == pytest.approx(sum(each.values()))


def test_cached_prompt_tokens_are_counted_where_a_slot_holds_some(load: Load) -> None:
    engine = load("llama", max_batch_size=1, prefill_chunk=8, prefix_cache=True)
    prompt = list(range(3, 60))
    metrics, _, outputs = watched(engine, [job(prompt[:n], max_tokens=2) for n in (50, 50, 57, 4)])
    found = values(metrics)
    assert found["headstart:prefix_cache_queries_total"] == {"": 50 + 50 + 57 + 4}
    assert found["headstart:prefix_cache_hits_total"] == {"": sum(output.stats.cached_tokens for output in outputs)}
    assert outputs[1].stats.cached_tokens == 49, "the last token is always fed"


def test_gauges_and_ends(load: Load) -> None:
    engine = load("llama", max_batch_size=2)
    gate = Gate(engine)
    metrics = Metrics("the-model")

    async def scene(bridge: ThreadBridge) -> None:
        metrics.follow(bridge)
        answers = bridge.submit([job([5], **LONG) for _ in range(3)])
        gate.allow(1)
        await until(lambda: bridge.queued == 1)
        found = values(metrics)
        assert found["headstart:num_requests_running"] == {"": 2}
        assert found["headstart:num_requests_waiting"] == {"": 1}
        assert found["headstart:kv_cache_usage_perc"] == {"": 2 / 256}
        assert found["headstart:engine_failed"] == {"": 0}
        with pytest.raises(Overloaded):
            bridge.submit([job([5])])
        answers[0].cancel()
        gate.open()
        for answer in answers:
            await answer.output()

    bridged(engine, scene, Limits(max_waiting_requests=1), [metrics])
    found = values(metrics)
    assert found["headstart:requests_refused_total"] == {"": 1}
    assert found["headstart:request_success_total"] == {"abort": 1, "length": 2}
    assert found["headstart:request_ended_by_total"] == {"client": 1, "finished": 2}


def test_the_names_that_clients_choose_are_kept_few(load: Load) -> None:
    engine = load("llama", "ngram")
    jobs = [Job((5,), hs.Sampling(max_tokens=1), tag=f"tag {n}") for n in range(MOST_NAMES + 5)]
    metrics, _, _ = watched(engine, [*jobs, jobs[0]])
    found = values(metrics)["headstart:tagged_requests_total"]
    assert len(found) == MOST_NAMES + 1
    assert found[OTHER] == 5
    assert found["tag 0"] == 2


def test_nothing_is_kept_of_requests_that_have_ended(load: Load) -> None:
    engine = load("llama", max_batch_size=1, prefill_chunk=2)

    async def scene(bridge: ThreadBridge) -> None:
        for prompt in prompts():
            one, other = bridge.submit([job(prompt, **LONG), job(prompt, **LONG)])
            async for _ in one:
                break
            one.cancel()
            other.cancel()
            await other.output()

    metrics = Metrics("the-model")
    bridged(engine, scene, subscribers=[metrics])
    assert not metrics._fed
    assert not metrics._latest


def test_buckets() -> None:
    buckets = Buckets((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        buckets.add(value)
    assert buckets.cumulative() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert buckets.sum == 6.0


def expressions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key in ("expr", "query") and ":" in value)
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def test_every_metric_of_the_dashboard_exists_after_one_request(load: Load) -> None:
    metrics, _, _ = watched(load("llama", "ngram"), [job([5, 6, 5, 6, 5], **LONG)])
    page = metrics.exposition()[0].decode()
    there = set(re.findall(r"^([a-z_:0-9]+)(?:\{| )", page, re.MULTILINE))
    there |= {f"{name}_total" for name in re.findall(r"^# TYPE (\S+?)(?:_total)? counter", page, re.MULTILINE)}
    board = json.loads(dashboard())
    wanted = {name for text in expressions(board) for name in re.findall(r"(?:headstart:|process_)[a-z_0-9]+", text)}
    assert wanted - there == set()
    assert len(wanted) > 25
    labels = {label for text in expressions(board) for label in re.findall(r"by \(([a-z_]+)\)", text)}
    assert labels - set(re.findall(r'[{,]([a-z_]+)="', page)) <= {"reason"}, "no request is without speculation here"
    unused = {name for name in there if name.startswith("headstart:")} - wanted
    assert {name for name in unused if not name.endswith(("_sum", "_count", "_bucket"))} == set(), "shown nowhere"


def test_the_dashboard_asks_for_its_data_source_and_has_no_panel_twice() -> None:
    board = json.loads(dashboard())
    assert [one["type"] for one in board["templating"]["list"]] == ["datasource", "query"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len(panels)
    for panel in panels:
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}"
