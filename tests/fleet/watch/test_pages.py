"""Pages as real servers wrote them: vLLM 0.32 on a CPU (shortened), and headstart's own server, asked here.

The pages of vLLM are of the bundled target, twelve prompts of 96 tokens and then twelve of 64, four at once, greedy:
with the bundled EAGLE-3 head (K = 4), and with n-grams of 2 to 4 tokens (K = 5).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.bridges import bridged, job

import headstart as hs
from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.findings import broken
from headstart.fleet.watch.scrape import DIALECTS, read
from headstart.serve.metrics import Metrics
from headstart.serve.worker import ThreadBridge

PAGES = Path(__file__).parent / "pages"


def vllm(name: str, number: int) -> Counters:
    (found,) = read((PAGES / f"vllm-{name}-{number}.txt").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", ["eagle3", "ngram"])
def test_a_page_of_vllm_is_read_and_holds_together(name: str) -> None:
    start, middle, end = (vllm(name, number) for number in range(3))
    assert (start.kind, start.model, start.engine, start.generated) == ("vllm", "headstart-target", "0", 0)
    assert ((middle - start).generated, (end - middle).generated) == (12 * 96, 12 * 64)
    assert [(end - middle).ended, (end - middle).restarts] == [12, 0]
    assert not [words for page in (start, middle, end) for words in broken(page)]
    for histogram in ((end - start).first_token, (end - start).per_token):
        assert histogram is not None
        assert histogram.total == 24


def test_every_step_of_an_eagle_head_is_drafted_so_that_forwards_are_known() -> None:
    window = vllm("eagle3", 1) - vllm("eagle3", 0)
    assert window.forwards == 288 + 12
    assert window.tokens_per_forward == 3.84
    assert window.generated - window.accepted == 277, "accepted tokens beyond max_tokens are in A"
    assert [window.tested(place) for place in range(4)] == [288, 258, 233, 206]


def test_n_grams_leave_steps_without_drafts_out_of_vllm_s_own_figure() -> None:
    window = vllm("ngram", 1) - vllm("ngram", 0)
    assert window.tokens_per_draft == pytest.approx(4.72, abs=0.01)
    assert window.tokens_per_forward == pytest.approx(3.26, abs=0.01)
    assert window.drafted_share == pytest.approx(0.61, abs=0.01)
    assert window.tested(0) == window.drafts
    assert window.tested(1) is None, "three drafts were shorter, which is more than a hundredth of those tested"


@pytest.mark.parametrize("drafter", ["ngram", "none"])
def test_our_own_server_is_read_and_holds_together(load: Callable[..., hs.Engine], drafter: str) -> None:
    metrics = Metrics("tiny")

    async def scene(bridge: ThreadBridge) -> list[Counters]:
        metrics.follow(bridge)
        found = read(metrics.exposition()[0].decode())
        for answer in bridge.submit([job([1, 2, 3, 1, 2, 3, 1, 2], max_tokens=24, ignore_eos=True)]):
            await answer.output()
        return found + read(metrics.exposition()[0].decode())

    before, after = bridged(load(drafter=drafter), scene, subscribers=[metrics])
    window = after - before
    assert (window.kind, window.model, window.generated, window.restarts) == ("headstart", "tiny", 24, 0)
    assert window.forwards + window.accepted == 24, "each forward gives its accepted tokens and one more"
    assert (window.drafts > 0) == (drafter == "ngram")
    assert window.started is not None
    assert not broken(after)


SGLANG = """
sglang:generation_tokens_total{model_name="m"} 1000
sglang:num_requests_total{model_name="m"} 20
sglang:spec_verify_calls_total{model_name="m",tp_rank="0"} 380
sglang:spec_verify_calls_total{model_name="m",tp_rank="1"} 380
sglang:spec_accept_length{model_name="m",tp_rank="0"} 9.9
sglang:time_to_first_token_seconds_bucket{model_name="m",le="0.1"} 20
sglang:time_to_first_token_seconds_bucket{model_name="m",le="+Inf"} 20
"""
"""By the source of 0.5.23, not recorded."""


def test_sglang_counts_its_verifications_once_and_first_tokens_are_added() -> None:
    (found,) = read(SGLANG)
    assert (found.kind, found.counts_drafts) == ("sglang", False)
    assert found.forwards == 380 + 20
    assert found.tokens_per_forward == 2.5


@pytest.mark.parametrize("suffix", ["", "_total"])
def test_llama_cpp_s_counters_are_found_with_both_endings(suffix: str) -> None:
    """By its pull request 26389, not recorded."""
    page = "llamacpp:tokens_predicted_total 100\n"
    page += "".join(
        f"llamacpp:spec_decode_num_{name}{suffix} {value}\n"
        for name, value in (("drafts", 20), ("draft_tokens", 60), ("accepted_tokens", 40))
    )
    page += f'llamacpp:spec_decode_num_accepted_tokens_per_pos{suffix}{{position="0"}} 18\n'
    (found,) = read(page)
    assert (found.kind, found.generated, found.drafts, found.accepted) == ("llama.cpp", 100, 20, 40)
    assert found.accepted_per_position == (18,)


def test_a_server_without_speculation_makes_a_token_in_each_forward() -> None:
    (found,) = read('vllm:generation_tokens_total{engine="0",model_name="m"} 50\n')
    assert (found.counts_drafts, found.tokens_per_forward, found.acceptance) == (False, 1.0, None)


def test_no_two_kinds_share_a_prefix() -> None:
    assert len({dialect["prefix"] for dialect in DIALECTS.values()}) == len(DIALECTS)
