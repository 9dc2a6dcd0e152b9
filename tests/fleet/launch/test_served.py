"""What an export says of its engine, and what is wrong with it before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fleets import fake_export

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.fleet.launch.engine import _processors, check_free, gpus, share
from headstart.fleet.launch.served import LaunchOptions, read_export


def test_an_export_is_started_as_it_says(tmp_path: Path) -> None:
    served = read_export(fake_export(tmp_path / "out", **{"max-model-len": 512}), LaunchOptions())
    assert (served.name, served.model, served.length, served.ranks) == ("fake", None, 512, 1)
    assert served.flags == {"tensor_parallel_size": 1, "data_parallel_size": 1}


def test_what_the_user_sets_wins(tmp_path: Path) -> None:
    export = fake_export(tmp_path / "out", kv_heads=6, **{"tensor-parallel-size": 3, "max-model-len": 512})
    assert read_export(export, LaunchOptions()).tensor == 3
    options = LaunchOptions(tensor_parallel_size=2, data_parallel_size=2, settings={"max-model-len": 64})
    served = read_export(export, options)
    assert (served.tensor, served.ranks, served.length) == (2, 4, 64)
    assert served.flags["max_model_len"] == 64
    with pytest.raises(InvalidOption, match="--set port is not yours"):
        LaunchOptions(settings={"port": 1})
    with pytest.raises(InvalidOption, match="--host is the router's"):
        LaunchOptions(router="none", host="0.0.0.0")


def test_an_export_that_has_moved_takes_the_drafter_beside_it(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    fake_export(tmp_path / "out").rename(moved)
    served = read_export(moved, LaunchOptions())
    assert served.drafter == moved / "drafter"
    expected = {"method": "eagle3", "model": str(moved / "drafter"), "num_speculative_tokens": 4}
    assert served.flags["speculative_config"] == expected


def test_heads_that_cannot_be_divided_are_named(tmp_path: Path) -> None:
    export = fake_export(tmp_path / "out", kv_heads=3)
    with pytest.raises(InvalidOption, match="the target's heads: num_key_value_heads is 3") as refused:
        read_export(export, LaunchOptions(tensor_parallel_size=2))
    assert "--tensor-parallel-size is one of 1, 3" in refused.value.hint
    assert read_export(export, LaunchOptions(tensor_parallel_size=6)).tensor == 6, "heads may be copied"
    with pytest.raises(InvalidOption, match="num_attention_heads is 6"):
        read_export(export, LaunchOptions(tensor_parallel_size=4))


@pytest.mark.parametrize("text", [None, "[1, 2]", "a: [", "served-model-name: fake"])
def test_a_folder_that_is_no_export_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "vllm.yaml").write_text(text)
    with pytest.raises(InvalidFile) as refused:
        read_export(tmp_path, LaunchOptions())
    assert "headstart export" in refused.value.hint


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    export = fake_export(tmp_path / "out")
    (export / "manifest.json").write_text("{}")
    with pytest.raises(InvalidFile, match="manifest"):
        read_export(export, LaunchOptions())


def test_each_place_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share(range(8), 1, 2) == (4, 5, 6, 7)
    assert share(range(8), 1, 2, each=2) == (2, 3)
    assert share("ab", 2, 3) == ("a",), "too few are shared"
    assert share("", 0, 1) == ()
    monkeypatch.setattr("headstart.fleet.launch.engine.processors", lambda: (0, 1))
    assert _processors(1, 2, 1) == (1,)
    assert _processors(0, 1, 2) == (0, 1)
    assert _processors(0, 2, 2) == (0, 1), "two ranks in one place take both"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-7")
    assert gpus() == ("3", "GPU-7")


def test_an_address_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(InvalidOption, match="cannot listen on"):
        check_free("192.0.2.1", 8000)


def test_settings_are_read_as_yaml(tmp_path: Path) -> None:
    from headstart.fleet.export.options import parse_settings

    assert parse_settings(["max_num_seqs=4", "--enforce-eager=true"]) == {"max-num-seqs": 4, "enforce-eager": True}
    for wrong in (
        "enforce-eager",
        "=1",
        "a=[",
    ):
        with pytest.raises(InvalidOption):
            parse_settings([wrong])
