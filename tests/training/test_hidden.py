"""The target's states: which, and from where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.training_models import tiny_llama

from headstart.errors import InvalidOption, UnsupportedModel
from headstart.training import hidden
from headstart.training.hidden import HiddenStore, TargetStates, choose_layers


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


def test_what_is_kept_is_what_was_computed(tmp_path: Path) -> None:
    target = tiny_llama()
    ids = torch.arange(24).view(2, 12)
    fresh = TargetStates(target, (0, 1, 2)).read(ids)
    store = HiddenStore(tmp_path, 1.0)
    states = TargetStates(target, (0, 1, 2), store)
    first = states.read(ids, torch.tensor([7, 3]))
    assert 3 in store and 7 in store and len(store) == 2  # noqa: PT018
    calls = []
    target.register_forward_hook(lambda *_: calls.append(1))
    again = states.read(ids.flip(0), torch.tensor([3, 7]))
    assert not calls
    for one, two, three in zip(fresh, first, again, strict=True):
        torch.testing.assert_close(one, two)
        assert torch.equal(two, three.flip(0))
    reopened = HiddenStore(tmp_path, 1.0)
    assert torch.equal(reopened.read([7])[7], store.read([7])[7])


def test_the_limit_holds_and_the_rest_is_computed(tmp_path: Path) -> None:
    target = tiny_llama()
    window = torch.arange(12)[None]
    size = 12 * 4 * 64 * 4  # tokens, three states and the last, width, bytes
    store = HiddenStore(tmp_path, 1.5 * size / 1e9)
    states = TargetStates(target, (0, 1, 2), store)
    wanted = states.read(window, torch.tensor([0]))
    beyond = states.read(window, torch.tensor([1]))
    assert 0 in store
    assert 1 not in store
    assert torch.equal(wanted[1], beyond[1])
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1.5 * size


def test_a_full_disk_ends_the_keeping_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = HiddenStore(tmp_path, 1.0)
    store.keep({0: torch.ones(3)})

    def full(tensors: Any, path: Path) -> None:
        save_file(tensors, path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hidden, "save_file", full)
    store.keep({1: torch.ones(3)})
    monkeypatch.undo()
    store.keep({2: torch.ones(3)})
    assert [n in store for n in range(3)] == [True, False, False]
    assert len(list(tmp_path.iterdir())) == 1


def test_bounded_logits_cannot_be_made_from_states(tmp_path: Path) -> None:
    target = tiny_llama()
    target.lm_head.register_forward_hook(lambda module, given, out: out)
    HiddenStore(tmp_path, 1.0)
    TargetStates(target, (0, 1, 2), HiddenStore(tmp_path, 1.0))
    target.register_forward_hook(lambda module, given, out: setattr(out, "logits", out.logits.tanh()))
    with pytest.raises(UnsupportedModel, match="output matrix"):
        TargetStates(target, (0, 1, 2), HiddenStore(tmp_path, 1.0))
