"""A server writes down what it was asked and answered, only where it may, and no file can hurt a request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.bridges import bridged, job

import headstart as hs
from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.traffic import Exchange, TrafficWriter, read
from headstart.serve.bridge import Job
from headstart.serve.events import Ended
from headstart.serve.options import Recording
from headstart.serve.traffic_log import TrafficLog
from headstart.serve.worker import ThreadBridge

Load = Callable[..., hs.Engine]
PROMPT = (5, 6, 7, 5, 6)
MEGABYTE = 1 << 20


def serve(engine: hs.Engine, log: TrafficLog, jobs: Sequence[Job]) -> list[hs.Output]:
    async def scene(bridge: ThreadBridge) -> list[hs.Output]:
        return [await answer.output() for answer in bridge.submit(jobs)]

    outputs = bridged(engine, scene, subscribers=[log])
    log.close()
    return outputs


@pytest.mark.parametrize("consenting", [False, True])
def test_exchanges_are_written_unless_refused(load: Load, tmp_path: Path, consenting: bool) -> None:
    path = tmp_path / "traffic.jsonl"
    log = TrafficLog(path, "target", limit=MEGABYTE, consenting=consenting, clock=lambda: 3600 * 494_000.5)
    asked = replace(job(PROMPT, max_tokens=6, ignore_eos=True), tag="code")
    jobs = [
        replace(asked, user="ann", sampling=replace(asked.sampling, temperature=0.5)),
        replace(asked, user="ann", store=True),
        replace(asked, store=False),
    ]
    outputs = serve(load("llama", "ngram"), log, jobs)
    found = read(path).exchanges
    ann = found[0].user
    expected = [
        Exchange(PROMPT, outputs[1].tokens, 0.0, 494_000, "code", ann),
        Exchange(PROMPT, outputs[0].tokens, 0.5, 494_000, "code", ann),
    ]
    assert sorted(found, key=lambda each: each.temperature) == expected[: 1 if consenting else 2]
    assert ann not in ("", "ann")
    assert "ann" not in path.read_text()
    assert (log.stopped, log.lost) == (None, 0)


def test_failed_requests_are_not_written(load: Load, tmp_path: Path) -> None:
    log = TrafficLog(tmp_path / "t", "target", limit=MEGABYTE)
    log(Ended(0, job([5]), None, "failure", 0.0, None, 1.0))
    log.close()
    assert read(tmp_path / "t").exchanges == ()


def test_a_file_that_cannot_be_written_ends_the_recording_and_nothing_else(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").write_text("in the way")
    full = TrafficWriter.append

    def no_room(self: TrafficWriter, exchanges: Sequence[Exchange]) -> int:
        raise OSError(28, "No space left on device")

    jobs = [job(PROMPT, max_tokens=8, ignore_eos=True)] * 4
    for path, append in ((tmp_path / "folder" / "t", full), (tmp_path / "t", no_room)):
        monkeypatch.setattr(TrafficWriter, "append", append)
        with caplog.at_level(logging.WARNING):
            log = TrafficLog(path, "target", limit=MEGABYTE, write_seconds=0.0)
            outputs = serve(load("llama", "ngram"), log, jobs)
        assert [len(output.tokens) for output in outputs] == [8] * 4
        assert log.stopped is not None
    assert caplog.text.count("not recorded any more") == 2


def test_exchanges_that_find_no_room_are_counted_and_nobody_waits(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TrafficLog(tmp_path / "t", "target", limit=1000, most_waiting=2, write_seconds=60.0)
    jobs = [job(PROMPT, max_tokens=2, ignore_eos=True)] * 8 + [job(range(3, 90), max_tokens=500, ignore_eos=True)]
    serve(load("llama", "ngram"), log, jobs)
    assert log.lost + len(read(tmp_path / "t").exchanges) == len(jobs)
    assert log.lost >= 4


def test_another_models_file_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert TrafficLog.of(Recording(), "target") is None
    log = TrafficLog.of(Recording(traffic=path), "target")
    assert log is not None
    log.close()
    with pytest.raises(InvalidFile, match="another model"):
        TrafficLog.of(Recording(traffic=path), "other")
    for wrong in ({"traffic_limit": 0}, {"traffic_of": "some"}):
        with pytest.raises(InvalidOption):
            Recording(**wrong)  # type: ignore[arg-type]
