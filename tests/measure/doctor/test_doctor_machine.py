"""Memory and costs: what fits, and what a forward's time goes into."""

from __future__ import annotations

import pytest
import torch
from support.families import config_of
from support.tiny import ARCHITECTURES

from headstart.base.errors import NotEnoughMemory
from headstart.measure.doctor.costs import added, bandwidth, bound, bound_in_words, bytes_read, costs_record, free_rows
from headstart.measure.doctor.memory import GIB, Memory, check
from headstart.model.memory import MemoryNeed
from headstart.theory import Routing, StepCosts

TARGET, DRAFT = MemoryNeed("target", 4 * GIB, 8 * GIB), MemoryNeed("draft", GIB, GIB)


def test_what_fits() -> None:
    memory = Memory(16 * GIB, (TARGET, DRAFT), slots=8, length=4096)
    assert memory.fits
    assert memory.headroom == 2 * GIB
    assert (memory.most_length, memory.most_slots) == (4096, 8)
    assert memory.words.startswith("fits: 14.00 GiB of 16.00 GiB free, for 8 requests of 4096 tokens")
    check(memory)


def test_what_would_fit_instead() -> None:
    memory = Memory(8 * GIB, (TARGET, DRAFT), slots=8, length=4096)
    assert memory.headroom == -6 * GIB
    # 3 GiB are left for caches that want 9
    assert memory.most_length == 4096 // 3
    assert memory.most_slots == 2
    with pytest.raises(NotEnoughMemory, match=r"14\.00 GiB needed, 8\.00 GiB free") as caught:
        check(memory)
    assert "--max-model-len 1365 or --max-batch-size 2 would fit" in caught.value.hint


def test_recurrent_states_take_as_much_for_a_shorter_context() -> None:
    hybrid = MemoryNeed("hybrid", 4 * GIB, 8 * GIB, states=4 * GIB)
    memory = Memory(10 * GIB, (hybrid,), slots=8, length=4096)
    # beside weights and states 2 GiB are left for keys and values that want 4; for all of a slot's, 6 of 8
    assert (memory.most_length, memory.most_slots) == (2048, 6)
    crowded = Memory(7 * GIB, (hybrid,), slots=8, length=4096)
    assert (crowded.most_length, crowded.most_slots) == (0, 3)
    assert crowded.remedy == "--max-batch-size 3 would fit"


def test_weights_alone_are_too_much() -> None:
    memory = Memory(2 * GIB, (TARGET,), slots=8, length=4096)
    assert (memory.most_length, memory.most_slots) == (0, 0)
    assert "no room for a cache" in memory.remedy


def costs(*rows: tuple[int, float], request: float = 0.0) -> StepCosts:
    return StepCosts(rows, request)


def test_memory_bound() -> None:
    found = costs((1, 0.1), (2, 0.1), (4, 0.11), (8, 0.12), (16, 0.14))
    assert bandwidth(found, 10**9) == pytest.approx(1e10)
    assert found.v(8) == pytest.approx(1.2)
    assert free_rows(found) == 8
    assert added(found, 8) == pytest.approx(0.02 / 0.12)
    assert (bound(found, 1), bound(found, 8)) == ("weights", "weights")
    assert bound_in_words(found, 1).startswith("batch 1: memory-bound")


def test_compute_bound() -> None:
    found = costs((1, 0.1), (2, 0.19), (4, 0.37), (8, 0.73), (16, 1.45))
    assert bound(found, 1) == "rows"
    assert free_rows(found) == 1
    bending = costs((1, 0.1), (8, 0.12), (16, 0.19), (32, 0.36))
    assert [bound(bending, batch) for batch in (1, 8, 16)] == ["weights", "between", "rows"]


@pytest.mark.parametrize(("name", "tied"), [("llama", False), ("gpt2", True)])
def test_an_embedding_that_is_only_looked_up_is_not_read(name: str, tied: bool) -> None:
    config = ARCHITECTURES[name]()
    weights = 4 * 100_000
    table = 0 if tied else 97 * 32
    assert bytes_read(config, weights, torch.float32, None) == 4 * (100_000 - table)
    assert bytes_read(config, weights, torch.float32, "int8") == 100_000 - table


def test_a_table_of_inputs_of_layers_is_not_read() -> None:
    config = config_of("gemma4_text")
    tables = 97 * 48 + 97 * 8 * 32
    assert bytes_read(config, 4 * 100_000, torch.float32, None) == 4 * (100_000 - tables)


def test_the_record_of_a_mixture_says_what_requests_share() -> None:
    """Rows of another request read other experts, which their number alone does not tell."""
    routing = Routing(128, 8, layers=40)
    rows = tuple((n, 0.4 + 0.6 * float(routing.union(n)) / 8) for n in (1, 2, 4, 8, 16))
    found = StepCosts(rows, request=0.01, routing=routing)
    record = costs_record(found, None)
    assert record["seconds"] * record["v"]["2"] + record["request_seconds"] == pytest.approx(found.forward(2, 2))
    dense = StepCosts(rows, request=0.01)
    assert costs_record(dense, None)["request_seconds"] == pytest.approx(0.01)


def test_of_a_mixture_of_experts_it_depends_on_the_text() -> None:
    mixture = ARCHITECTURES["mixtral"]()
    table = mixture.vocab_size * mixture.hidden_size
    assert bytes_read(mixture, 4 * 100_000, torch.float32, "int8", 0.6) == 60_000 - table
    assert bandwidth(costs((1, 1.0)), None) is None
