"""What clients and a fleet rely on stays as it is when another drafter is exported in the place of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.fleet.export.options import ExportOptions, same_options
from headstart.fleet.export.write import export


@pytest.mark.parametrize(
    "given",
    [
        {"name": "mine", "max_model_len": 256, "settings": {"max-num-seqs": 8}, "num_speculative_tokens": 5},
        {"target_at": "/models/target", "dtype": "float32", "temperature": 1.0},
    ],
)
def test_an_export_s_options_are_those_that_wrote_it(tmp_path: Path, given: dict[str, Any]) -> None:
    first = export("bundled", "bundled", tmp_path / "first", ExportOptions(measure=False, **given))
    found = same_options(tmp_path / "first")
    again = export("bundled", "bundled", tmp_path / "again", found)
    ours, theirs = ((tmp_path / name / "vllm.yaml").read_text() for name in ("first", "again"))
    assert ours.replace("/first/", "/again/") == theirs
    assert (again.target, again.depth) == (first.target, first.depth)


def test_what_is_no_export_for_vllm_is_refused(tmp_path: Path) -> None:
    export("bundled", "bundled", tmp_path / "out", ExportOptions(measure=False, engine="sglang"))
    with pytest.raises(InvalidFile, match="no export for vLLM that can be written again"):
        same_options(tmp_path / "out")


@pytest.mark.parametrize("given", [{"engine": "sglang", "mount": "/m"}, {"engine": "llama.cpp", "tpot_p99": 0.1}])
def test_an_option_that_no_file_of_the_export_has_a_place_for_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="could be written to"):
        ExportOptions(**given)
