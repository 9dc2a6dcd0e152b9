"""Fleets of real vLLM servers: slow, and only where one is installed. `-s` shows what was found."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from support.fleets import free_port
from support.tiny import byte_tokenizer

from headstart.base.errors import EngineNotFound
from headstart.fleet.export.options import ExportOptions
from headstart.fleet.export.write import export
from headstart.fleet.http import ask
from headstart.fleet.launch.checks import CheckOptions, Checks
from headstart.fleet.launch.fleet import Fleet
from headstart.fleet.launch.router import find_router
from headstart.fleet.vllm import Installation, find
from headstart.fleet.watch.counters import total
from headstart.fleet.watch.scrape import scrape

pytestmark = pytest.mark.slow
SMALL = {"enforce-eager": True, "max-num-seqs": 8}
CHECKS = CheckOptions(parity_prompts=2, greedy_only=True, reference_device="cpu")


@pytest.fixture(scope="module")
def installation(vllm_python: Path) -> Installation:
    found = find(vllm_python)
    try:
        find_router(found)
    except EngineNotFound as error:
        pytest.skip(error.message)
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _export("bundled", "eagle3", tmp_path_factory.mktemp("bundled") / "out", max_model_len=512)


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random pair whose heads two ranks can share; the draft is the target, slightly off."""
    folder = tmp_path_factory.mktemp("even")
    config = tf.LlamaConfig(
        vocab_size=258, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=512, eos_token_id=256, pad_token_id=257,
        bos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(3)
    model = tf.LlamaForCausalLM(config).eval()
    for name, noise in (("target", 0.0), ("draft", 0.002)):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += noise * torch.randn_like(parameter)
        model.save_pretrained(folder / name)
        byte_tokenizer().save_pretrained(folder / name)
    return _export(str(folder / "target"), str(folder / "draft"), folder / "out", max_model_len=256)


def _export(target: str, drafter: str, out: Path, **options: Any) -> Path:
    given = ExportOptions(
        dtype="float32", num_speculative_tokens=4, measure=False, settings={"enforce-eager": True}, **options
    )
    export(target, drafter, out, given, progress=lambda what, share: None)
    return out


Start = Callable[..., tuple[Fleet, Checks]]


@pytest.fixture
def start(installation: Installation) -> Iterator[Start]:
    """A fleet that has been checked as `headstart launch` checks it."""
    fleets: list[Fleet] = []

    def make(folder: Path, checks: CheckOptions = CHECKS, **options: Any) -> tuple[Fleet, Checks]:
        asked = Checks(checks)
        begun = time.monotonic()
        fleets.append(
            Fleet.start(
                folder, installation, port=free_port(), timeout=500, settings=SMALL, admit=asked.admit, **options
            )
        )
        print(f"\nready and admitted after {time.monotonic() - begun:.0f} s")
        asked.through_router(fleets[-1])
        print(f"checked after {time.monotonic() - begun:.0f} s", *asked.lines, sep="\n")
        return fleets[-1], asked

    yield make
    for fleet in fleets:
        pids = [engine.child._guard.pid for engine in fleet.engines]
        fleet.stop()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def complete(fleet: Fleet, prompt: str = "def add(a, b):", tokens: int = 32) -> str:
    body = {"model": fleet.engines[0].served.name, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    answer = ask("POST", f"{fleet.url}/v1/completions", json=body, seconds=120)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["text"])


def generated(fleet: Fleet) -> list[int]:
    """Tokens that each engine has counted, its data-parallel ranks together."""
    sums = [total(scrape(engine.url)) for engine in fleet.engines]
    return [0 if each is None else each.generated for each in sums]


def test_two_engines_are_proved_and_one_is_replaced_under_load(start: Start, exported: Path) -> None:
    """The router shares requests, an engine is replaced without failing one, and the loss of an engine is survived."""
    fleet, checks = start(exported, engines=2)
    assert sum("counters equal in 2 of 2 prompts" in line for line in checks.lines) == 2
    before = generated(fleet)
    text = complete(fleet)
    assert all(complete(fleet) == text for _ in range(3))
    assert [now - then for now, then in zip(generated(fleet), before, strict=True)] == [64, 64]

    failed: list[Exception] = []
    answered: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                answered.append(complete(fleet))
            except Exception as error:
                failed.append(error)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        begun = time.monotonic()
        fleet.replace(0, exported)
        print(f"replaced after {time.monotonic() - begun:.0f} s; {len(answered)} requests meanwhile")
    finally:
        time.sleep(1.0)
        stop.set()
        for thread in asking:
            thread.join()
    assert failed == []
    assert set(answered) == {text}

    assert fleet.router is not None
    os.killpg(_group(fleet.engines[1].child._guard.pid), signal.SIGKILL)
    said: list[str] = []
    while not said:
        said = fleet.tend()
    print(said[0])
    assert "engine-1 was ended by SIGKILL; the last lines of its log" in said[0]
    assert fleet.router.engines() == (fleet.engines[0].url,)
    assert complete(fleet) == text


def test_data_parallel_ranks_are_one_engine(start: Start, exported: Path) -> None:
    fleet, _ = start(exported, engines=1, data_parallel_size=2)
    assert len(scrape(fleet.engines[0].url)) == 2, "each rank has counters of its own"
    text = complete(fleet)
    assert all(complete(fleet) == text for _ in range(3))


def test_tensor_parallel_ranks_share_even_heads(start: Start, even: Path) -> None:
    fleet, _ = start(even, engines=1, tensor_parallel_size=2)
    assert complete(fleet)


def _group(guard: int) -> int:
    """The process group of what a guard guards."""
    return int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])
