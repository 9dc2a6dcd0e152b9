"""What a server has counted: read from its page, subtracted over a window, added over engines."""

from __future__ import annotations

import sys

import pytest

from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.base.extras import how_to_install
from headstart.fleet.watch.counters import Counters, total
from headstart.fleet.watch.scrape import read

VLLM = """
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1152.0
vllm:generation_tokens_total{engine="1",model_name="m"} 10.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 314.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 0.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 1256.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 0.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 826.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 0.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 280.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 224.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 182.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="3"} 140.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 10.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 1.5
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="m"} 11.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 12.0
"""


def test_a_page_of_vllm_is_read_engine_by_engine() -> None:
    first, second = read(VLLM)
    assert (first.kind, first.model, first.engine, second.engine) == ("vllm", "m", "0", "1")
    assert (first.generated, first.drafts, first.drafted, first.accepted) == (1152, 314, 1256, 826)
    assert first.accepted_per_position == (280, 224, 182, 140)
    assert first.ended == 12
    assert (first.running, first.started) == (2.0, 1.7e9)
    assert first.first_token is not None
    assert first.first_token.counts == (4, 7, 1)
    assert second.generated == 10


def test_tokens_per_forward_count_every_forward_once() -> None:
    first = read(VLLM)[0]
    assert first.forwards == 12 + 314
    assert first.tokens_per_forward == 1152 / 326
    assert first.tokens_per_forward_low == 1152 / (326 + 12 * 4)  # each text may have ended before four accepted ones


def test_accepted_tokens_behind_the_end_of_a_text_do_not_hide_forwards() -> None:
    first = read(VLLM.replace("826.0", "850.0"))[0]
    assert first.generated - first.accepted == 302
    assert first.forwards == 314 + 12, "each draft was verified in a forward, each first token came without a draft"


def test_vllm_s_own_figure_flatters() -> None:
    first = read(VLLM)[0]
    assert first.tokens_per_draft == 1 + 826 / 314


def test_with_a_fixed_length_each_position_has_a_conditional_acceptance() -> None:
    first = read(VLLM)[0]
    assert [first.tested(position) for position in range(4)] == [314, 280, 224, 182]
    assert first.acceptance_at(1) == 224 / 280


def test_with_drafts_of_many_lengths_only_the_first_position_has_one() -> None:
    first = read(VLLM.replace("1256.0", "1100.0"))[0]
    assert [first.tested(position) for position in range(4)] == [314, None, None, None]
    assert first.share_of_drafts_at(1) == 224 / 314


def test_a_window_is_a_difference_and_a_restart_begins_anew() -> None:
    first = read(VLLM)[0]
    later = read(VLLM.replace("1152.0", "2152.0"))[0]
    window = later - first
    assert (window.generated, window.drafts, window.running, window.restarts) == (1000, 0, 2.0, 0)
    anew = read(VLLM.replace("1152.0", "100.0").replace("826.0", "50.0"))[0]
    window = anew - first
    assert (window.generated, window.accepted, window.restarts) == (100, 50, 1)


def test_a_restart_shows_even_if_every_counter_has_grown_beyond_what_it_was() -> None:
    first = read(VLLM)[0]
    anew = read(VLLM.replace("1152.0", "9000.0").replace("start_time_seconds 1.7e+09", "start_time_seconds 1.8e+09"))[0]
    assert (anew - first).generated == 9000
    assert (anew - first).restarts == 1


def test_engines_are_added() -> None:
    both = total(read(VLLM))
    assert both is not None
    assert (both.generated, both.accepted, both.engine) == (1162, 826, "")
    assert both.accepted_per_position == (280, 224, 182, 140)


def test_a_sum_over_kinds_counts_forwards_of_both() -> None:
    both = Counters(kind="headstart", generated=10, accepted=4, counted_forwards=7) + Counters(
        kind="vllm", generated=10, accepted=5
    )
    assert both.forwards == 12


@pytest.mark.parametrize(
    "text",
    [
        VLLM.replace('position="1"', 'position="one"'),
        VLLM.replace(',position="1"', ""),
        VLLM.replace("1256.0", "NaN"),
        VLLM.replace("826.0", "+Inf"),
        VLLM.replace('le="0.25"', 'le="long"'),
    ],
)
def test_a_page_with_counts_that_cannot_be_is_an_error_with_a_hint(text: str) -> None:
    with pytest.raises(EndpointFailed, match=r"no counter can be|no text for Prometheus"):
        read(text)


@pytest.mark.parametrize("text", ["", "other:things_total 3\n", "<html>no</html>"])
def test_a_page_without_counters_of_a_known_server_is_an_error_with_a_hint(text: str) -> None:
    with pytest.raises(EndpointFailed, match=r"counters|text for Prometheus"):
        read(text)


def test_a_missing_parser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    with pytest.raises(InvalidOption, match="prometheus-client") as caught:
        read(VLLM)
    assert caught.value.hint == how_to_install("fleet")
