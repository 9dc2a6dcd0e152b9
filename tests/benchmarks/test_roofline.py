"""The benchmark of products against a plain read, on small matrices."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from headstart.model import native

pytestmark = pytest.mark.skipif(not native.available(), reason="no row kernels here")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    monkeypatch.delitem(sys.modules, "roofline", raising=False)
    found = importlib.import_module("roofline")
    monkeypatch.setattr(found, "SHAPES", ((256, 512), (512, 256)))
    monkeypatch.setattr(found, "HEAD", (768, 512))
    return found


def test_every_format_is_measured_against_reading_its_own_bytes(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.main(["--rows", "1", "3", "--rounds", "2", "--size", "1", "--results", str(tmp_path)])
    (written,) = tmp_path.glob("roofline-*.json")
    record = json.loads(written.read_text())
    bits = {name: told["bits_per_weight"] for name, told in record["formats"].items()}
    assert (bits["float32"], bits["bf16"], bits["int8"], bits["int4"], bits["Q8_0"]) == (32, 16, 8, 5, 8.5)
    assert list(bits) == list(bench.FORMATS)
    for told in record["formats"].values():
        assert told["bytes"] >= 2**20
        assert set(told["shapes"]) == {"256x512", "512x256", "768x512"}
        for one in (*told["rows"].values(), *told["shapes"]["256x512"].values()):
            assert min(one["seconds"], one["read_bandwidth"], one["share"], one["share_of_quickest"]) > 0
    assert record["level"] == native.kernels().library.level
    assert {"date", "commit"} <= set(record["provenance"])
    assert "plain read" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["bf16", "int8", "Q6_K", "MXFP4"])
def test_matrices_of_a_shape_are_the_same_product_in_memory_of_their_own(bench: ModuleType, name: str) -> None:
    found, held = bench.matrices(name, 2**22)
    x = torch.randn(2, 512)
    for each in found:
        results = []
        for product in each.products:
            y = torch.empty(2, each.shape[0])
            native.kernels().multiply(product, x.data_ptr(), 2, y.data_ptr(), 1)
            results.append(y)
        assert all(torch.equal(y, results[0]) for y in results)
        assert torch.equal(results[0][:, : bench.PART], results[0][:, -bench.PART :])
        assert torch.isfinite(results[0]).all()
        assert results[0].std() > 0
        assert len({product.weights for product in each.products}) == len(each.products)
    del held
