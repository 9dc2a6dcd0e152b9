"""The target's states: which, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.tiny import random_model
from support.training_models import tiny_llama
from torch import Tensor

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.train import DraftTraining, checkpoint
from headstart.train.checkpoint import StateStore, key_of, usual_gigabytes
from headstart.train.harness import load_target
from headstart.train.hidden import ModulesReader, RunnerReader, States, TargetStates, choose_layers, make_reader


@pytest.mark.parametrize("layers", range(2, 40))
def test_default_layers_rise_and_exist(layers: int) -> None:
    low, middle, high = choose_layers(None, layers)
    assert 0 <= low < middle < high <= layers


def test_the_field_s_choice_where_there_is_room() -> None:
    assert choose_layers(None, 32) == (2, 16, 29)
    assert choose_layers(None, 8) == (2, 4, 5)
    assert choose_layers((5, 1, 3), 8) == (1, 3, 5)
    for number in (8, 9):  # the number of layers itself: engines differ in what it means
        with pytest.raises(InvalidOption, match=f"layer_ids has {number}"):
            choose_layers((1, 2, number), 8)
    with pytest.raises(UnsupportedModel):
        choose_layers(None, 1)


def test_states_are_inputs_of_layers() -> None:
    target = tiny_llama()
    ids = torch.arange(24).view(2, 12)
    aux, logits = TargetStates(target, (0, 1, 2)).read(ids)
    embedded = target.get_input_embeddings()(ids)
    torch.testing.assert_close(aux[..., :64], embedded)
    torch.testing.assert_close(target.lm_head(aux[..., 128:]), logits)
    torch.testing.assert_close(logits, target(ids).logits)


def test_a_few_rows_and_log_z_are_the_probabilities_of_the_whole() -> None:
    target = tiny_llama()
    ids = torch.arange(24).view(2, 12)
    states = TargetStates(target, (0, 1))
    found = states.of(ids)
    tokens = torch.tensor([3, 50, 256])
    wanted = target(ids).logits.log_softmax(-1)
    torch.testing.assert_close(
        states.output.only(tokens)(found.last) - found.log_z[..., None], wanted[..., tokens], atol=1e-4, rtol=1e-4
    )
    assert found.log_z.dtype == torch.float32


class Counting(ModulesReader):
    """Remembers how many windows were read at a time."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.sizes: list[int] = []

    def read(self, ids: Tensor, taps: Sequence[int]) -> list[Tensor]:
        self.sizes.append(len(ids))
        return super().read(ids, taps)


def parts(states: States) -> list[Tensor]:
    return [getattr(states, field.name) for field in fields(states)]


def test_what_is_kept_is_what_was_computed(tmp_path: Path) -> None:
    target, readers = tiny_llama(), []

    def reader() -> Counting:
        readers.append(Counting(target))
        return readers[-1]

    windows = torch.arange(60).view(5, 12)
    exact = TargetStates(target, (0, 1)).of(windows)
    unkept = TargetStates(target, (0, 1), StateStore(tmp_path / "none", 1e-9)).of(windows)  # for 1 byte
    states = TargetStates(target, (0, 1), StateStore(tmp_path, 1.0), reader)
    assert list(states.read_ahead(windows[:3], 2)) == [2, 3]
    states.release()
    mixed = states.of(windows[[4, 1, 3, 0, 2]])
    again = states.of(windows)
    states.release()
    reopened = TargetStates(target, (0, 1), StateStore(tmp_path, 1.0), reader).of(windows)
    assert [each.sizes for each in readers] == [[2, 1], [2]], "who read ahead was let go; nothing is read twice"
    order = torch.tensor([4, 1, 3, 0, 2])
    for one, two, three, four, five in zip(*map(parts, (exact, unkept, mixed, again, reopened)), strict=True):
        assert torch.equal(two[order], three)
        assert torch.equal(two, four)
        assert torch.equal(two, five)
        torch.testing.assert_close(one, two, atol=0.05, rtol=0.01, check_dtype=False)
        assert two.dtype == one.dtype
    assert not list((tmp_path / "none").glob("*"))


def test_own_forward_reads_what_the_modules_read(target: Path) -> None:
    cpu = torch.device("cpu")
    options = DraftTraining(target=target, output="o", data=("d",), steps=1, sequence_length=32, dtype="float32")
    model, _ = load_target(options, cpu)
    ids = torch.arange(64).view(2, 32)
    own = make_reader(model, target, 32, device=cpu, dtype=torch.float32, quantize=None)
    assert isinstance(own, RunnerReader)
    for _ in range(2):  # slots are given back
        for ours, theirs in zip(own.read(ids, (0, 2, 1)), ModulesReader(model).read(ids, (0, 2, 1)), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    learnt = torch.nn.Parameter(torch.ones(64))
    (own.read(ids, (1,))[0] * learnt).sum().backward()  # no tensor of inference mode
    assert learnt.grad is not None


def test_the_limit_holds_and_the_rest_is_computed(tmp_path: Path) -> None:
    target = tiny_llama()
    windows = torch.arange(36).view(3, 12)
    size = 12 * (3 * 64 * 2 + 4 + 4)  # tokens: three states in 16 bits, log_z and top
    store = StateStore(tmp_path, 1.5 * size / 1e9)
    states = TargetStates(target, (0, 1), store)
    assert list(states.read_ahead(windows, 1)) == [1]
    assert [key_of(window) in store for window in windows] == [True, False, False]
    for one, two in zip(parts(states.of(windows)), parts(states.of(windows)), strict=True):
        assert torch.equal(one, two)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1.5 * size


def test_files_are_few_and_are_found_again(tmp_path: Path) -> None:
    store = StateStore(tmp_path, 1.0, shard_bytes=100)
    for key in range(-5, 5):
        store.add(key, {"x": torch.full((10,), float(key))})
    store.flush()
    assert len(list(tmp_path.iterdir())) == 4  # three windows of 40 bytes make one
    again = StateStore(tmp_path, 1.0, shard_bytes=100)
    again.add(7, {"x": torch.zeros(10)})
    again.flush()
    assert len(list(tmp_path.iterdir())) == 5, "an old file was written over"
    assert [again.window(key)["x"][3].item() for key in range(-5, 5)] == list(range(-5, 5))


def test_a_full_disk_ends_the_keeping_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(tmp_path, 1.0, shard_bytes=1)
    store.add(0, {"x": torch.ones(3)})

    def full(tensors: Any, path: Path) -> None:
        save_file(tensors, path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    assert not store.add(1, {"x": torch.ones(3)})
    monkeypatch.undo()
    assert not store.add(2, {"x": torch.ones(3)})
    assert [n in store for n in range(3)] == [True, False, False]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["gemma2", "llama"])
def test_a_known_function_of_each_logit_is_no_obstacle(name: str) -> None:
    target = random_model(name)
    ids = torch.arange(12)[None]
    _, logits = TargetStates(target, (0,)).read(ids)
    torch.testing.assert_close(logits, target(ids).logits)


def test_logits_that_are_more_than_their_matrix_are_refused() -> None:
    target = tiny_llama()
    target.register_forward_hook(lambda module, given, out: setattr(out, "logits", out.logits.tanh()))
    with pytest.raises(UnsupportedModel, match="output matrix"):
        TargetStates(target, (0, 1, 2))


def test_the_usual_room_is_a_part_of_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, wanted in ((1e9, 0.25), (1e12, 20.0)):
        monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        assert usual_gigabytes(tmp_path / "not" / "there") == wanted
