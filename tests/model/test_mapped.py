"""Experts in a file: the same bits as in memory, made once, and made again where the file is not what it should be."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from support import families
from support.gguf_files import Q, stored_matrices, write
from support.gguf_mixtures import MIXTURES

import headstart as hs
from headstart.base.errors import NotEnoughMemory
from headstart.base.files import cache_directory
from headstart.loading import checkpoint as checkpoints
from headstart.loading.info import describe
from headstart.loading.load import Target
from headstart.model import mapped, native
from headstart.model import memory as memories
from headstart.model.native.product_file import _HEAD, ProductFile

GREEDY = hs.Sampling(max_tokens=12, temperature=0.0, ignore_eos=True, logprobs=0)
PROMPT = [5, 6, 7, 8, 9, 3, 11]

pytestmark = pytest.mark.skipif(not native.available(), reason="no row kernels here")


@pytest.fixture(autouse=True)
def tiny_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_folder(monkeypatch, tmp_path)


def use_folder(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """A cache directory of the test's own; experts of any size are worth a file."""
    kernels = cache_directory("kernels")
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    cache_directory("kernels").parent.mkdir(parents=True)
    cache_directory("kernels").symlink_to(kernels, target_is_directory=True)  # for processes of their own
    patch.setattr(checkpoints, "WORTH_MAPPING", 1)
    patch.setattr(mapped, "_SPARE", 0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return mixture(tmp_path / "m.gguf")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, str, bytes]:
    """A model, what it writes, and the name and the bytes of the file that it makes."""
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        use_folder(patch, folder)
        model = mixture(folder / "m.gguf")
        _, right = written(model)
        return model, right, the_file().name, the_file().read_bytes()


def mixture(path: Path, name: str = "qwen3_moe", kind: Q = Q.Q4_0) -> Path:
    return write(path, families.random_model(MIXTURES[name]()), kind=kind)


def written(source: Path, **options: Any) -> tuple[Any, Any]:
    target = Target(source, max_length=96, **options)
    found = target.engine("none").generate(PROMPT, GREEDY)
    return target, (found.tokens, found.logprobs)


def files() -> list[Path]:
    return sorted(cache_directory(mapped.KIND).glob("*.products"))


def the_file() -> Path:
    (found,) = files()
    return found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qwen3_moe", Q.Q4_0),
        ("gpt_oss", Q.MXFP4),
        ("glm4_moe", Q.Q8_0),
        ("gemma4, experts", Q.Q8_0),
        ("lfm2_moe", Q.Q4_0),
    ],
)
def test_the_same_bits_from_the_file_as_from_memory(name: str, kind: Q, tmp_path: Path) -> None:
    """With biases, shared experts, and gate and up in one tensor; at the first start and at the second."""
    source = mixture(tmp_path / "m.gguf", name, kind)
    _, right = written(source, packed_file=False)
    assert not files()
    (_, first), (_, second) = written(source), written(source)
    assert first == right
    assert second == right
    assert the_file().stat().st_size > 4096


def test_gate_and_up_in_blocks_of_different_types(tmp_path: Path) -> None:
    """As many files mix them: a product of two parts, whose second one the file's object holds."""
    model = families.random_model(MIXTURES["qwen3_moe"]())
    rng = np.random.default_rng(0)
    up = {name: shape for name, shape in stored_matrices(model) if name.endswith("ffn_up_exps.weight")}
    blocks = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in up.items()}
    assert blocks
    source = write(
        tmp_path / "m.gguf",
        model,
        kind=Q.Q4_0,
        blocks={name: (gguf.quantize(values, Q.Q8_0), Q.Q8_0) for name, values in blocks.items()},
    )
    _, right = written(source, packed_file=False)
    for _ in range(2):
        target, found = written(source)
        gc.collect()
        assert found == right
        again = target.engine("none").generate(PROMPT, GREEDY)
        assert (again.tokens, again.logprobs) == right


def test_the_file_is_made_once_and_shared(source: Path) -> None:
    written(source)
    state = the_file().stat()
    target, _ = written(source)
    assert (the_file().stat().st_ino, the_file().stat().st_size) == (state.st_ino, state.st_size)
    decoder = target.runner._decoder
    file = next(each for each in decoder.weights() if each.dtype == torch.uint8 and len(each) == state.st_size)
    begin, end = file.data_ptr(), file.data_ptr() + len(file)
    assert any(begin <= _first_expert(decoder).weights < end for _ in "1")
    if Path("/proc/self/maps").exists():
        lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(the_file()) in line]
        assert lines
        assert all("r--s" in line for line in lines)


def _first_expert(decoder: Any) -> Any:
    from headstart.model.native import structs

    experts = next(layer.experts for layer in decoder._layers if layer.experts)
    return structs.Product.from_address(structs.Experts.from_address(experts).gate_up)


def test_other_weights_have_another_file(source: Path) -> None:
    _, before = written(source)
    model = families.random_model(MIXTURES["qwen3_moe"]())
    for layer in model.model.layers:
        layer.mlp.experts.down_proj.data *= 2
    write(source, model, kind=Q.Q4_0)
    _, after = written(source)
    assert after != before
    assert after == written(source, packed_file=False)[1]
    assert len(files()) == 2


def _cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def _empty(data: bytearray) -> None:
    del data[:]


def _short(data: bytearray) -> None:
    del data[10:]


def _nowhere(data: bytearray) -> None:
    """A head with a digest that is right, of an index before the products."""
    import hashlib

    mark, version, *_ = _HEAD.unpack(data[: _HEAD.size])
    data[: _HEAD.size] = _HEAD.pack(mark, version, 0, len(data), hashlib.sha256(data).digest())


def _numbers(data: bytearray) -> None:
    """Other codes of the first expert, in what is sampled."""
    data[4096:4400] = bytes(300)


def _zeros(data: bytearray) -> None:
    data[:] = bytes(len(data))


def _version(data: bytearray) -> None:
    data[8] += 1


def _index(change: Callable[[Any], None]) -> Callable[[bytearray], None]:
    """An index that says something else, with a digest that is right."""
    import hashlib

    def damage(data: bytearray) -> None:
        mark, version, begin, length, _ = _HEAD.unpack(data[: _HEAD.size])
        index = json.loads(data[begin : begin + length])
        change(index)
        made = json.dumps(index).encode()
        data[begin:] = made
        data[: _HEAD.size] = _HEAD.pack(mark, version, begin, len(made), hashlib.sha256(made).digest())

    return damage


def _set(key: str, value: Any) -> Callable[[bytearray], None]:
    def change(index: Any) -> None:
        next(iter(index["groups"].values()))[0][0][key] = value

    return _index(change)


@pytest.mark.parametrize(
    "damage",
    [
        _cut, _empty, _short, _nowhere, _numbers, _zeros, _version,
        _set("inputs", 64 * 1000), _set("outputs", 2**40), _set("kind", 77),
        _set("group", 0), _set("group", 7), _set("scales", 9), _set("minimum", 2**40), _set("weights", 2**40),
        _set("weights", -64), _set("weights", 4097), _set("weights", None), _set("results", 2**33), _set("order", 4096),
        _set("table", 2**33), _set("bias", "x"), _set("inputs", 1.5),
        _index(lambda index: index["groups"].clear()),
        _index(lambda index: index["groups"].update({"0.down": []})),
        _index(lambda index: index.update(groups=5)),
        _index(lambda index: index.update(facts={})),
        _index(lambda index: index["facts"].update(kernels="decoder-avx2-0.so")),
        _index(lambda index: next(iter(index["groups"].values())).pop()),
    ],
)  # fmt: skip
def test_a_damaged_file_is_made_again(
    damage: Callable[[bytearray], None], sound: tuple[Path, Any, str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    source, right, name, whole = sound
    data = bytearray(whole)
    damage(data)
    cache_directory(mapped.KIND).mkdir()
    (cache_directory(mapped.KIND) / name).write_bytes(data)
    with caplog.at_level(logging.WARNING):
        _, found = written(source)
    assert "is made again" in caplog.text or "cannot be used" in caplog.text
    assert found == right
    assert the_file().read_bytes() == whole


def test_numbers_that_no_sample_sees_are_seen_by_the_probe(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are of experts that the probe's tokens choose."""
    from headstart.model.native import product_file

    monkeypatch.setattr(product_file, "_samples", lambda *_: "")
    _, right = written(source)
    data = bytearray(the_file().read_bytes())
    end = _HEAD.unpack(data[: _HEAD.size])[2]
    data[4096:end] = bytes(byte ^ 0x11 for byte in data[4096:end])
    the_file().write_bytes(data)
    assert written(source)[1] == right
    assert the_file().read_bytes() != bytes(data)


def test_a_folder_that_cannot_be_written_to(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, right = written(source, packed_file=False)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    (tmp_path / "cache").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert written(source)[1] == right
    assert "in memory" in caplog.text


def test_a_disk_that_is_too_full(
    source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is written, the experts are counted as memory, and where there is none either that is the error."""
    _, right = written(source, packed_file=False)
    monkeypatch.setattr(mapped, "_SPARE", 2**60)
    target = Target(source, max_length=96)
    assert target.checkpoint.need(1, None).mapped == 0
    with caplog.at_level(logging.WARNING):
        assert written(source)[1] == right
    assert "has no room" in caplog.text
    assert not files()
    monkeypatch.setattr(mapped, "free_bytes", lambda _: 0, raising=False)
    monkeypatch.setattr(memories, "free_bytes", lambda _: 0)
    with pytest.raises(NotEnoughMemory, match="experts of"):
        _experts(target).file(*_model(target))


def _experts(target: Target) -> Any:
    found = target.checkpoint._packed(None)
    assert found is not None
    return found


def _model(target: Target) -> tuple[Any, Any, int]:
    from headstart.model.recipes import recipe_of

    config = target.checkpoint.config
    return None, recipe_of(config), native.BF16_WIDE


def test_a_disk_that_is_full_in_the_middle(
    source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, right = written(source, packed_file=False)
    whole = mapped.Writer.add
    added: list[str] = []

    def add(self: Any, name: str, products: Any) -> None:
        if len(added) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        added.append(name)
        whole(self, name, products)

    monkeypatch.setattr(mapped.Writer, "add", add)
    with caplog.at_level(logging.WARNING):
        assert written(source)[1] == right
    assert "No space left" in caplog.text
    assert list(cache_directory(mapped.KIND).glob("*.products*")) == []


def test_required_memory_is_without_the_experts(source: Path) -> None:
    inside, beside = (
        Target(source, max_length=96, packed_file=maps).checkpoint.need(2, None) for maps in (False, True)
    )
    assert inside.mapped == 0
    assert beside.mapped > 0
    assert inside.weights == beside.weights + beside.mapped
    target, _ = written(source)
    layers = target.runner.layers
    size = the_file().stat().st_size
    assert (
        beside.mapped <= size < beside.mapped + 4096 * (2 * layers + 2) + 300 * len("products") * layers
    )  # and its index
    assert describe(source).mapped == beside.mapped


def test_experts_that_do_not_fit_beside_the_rest_are_said(
    source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target(source, max_length=96)
    need = target.checkpoint.need(1, None)
    monkeypatch.setattr(memories, "free_bytes", lambda _: need.total + need.mapped // 2)
    with caplog.at_level(logging.WARNING):
        memories.preflight([need], torch.device("cpu"))
    assert "GiB of experts lie in a file" in caplog.text


def test_files_that_were_not_used_for_longest_go(tmp_path: Path) -> None:
    folder = cache_directory(mapped.KIND)
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"{number}.products").write_bytes(b"")
        os.utime(folder / f"{number}.products", (number, number))
    source = mixture(tmp_path / "m.gguf")
    written(source)
    left = [path.name for path in files()]
    assert len(left) == mapped.MOST
    assert {"3.products", "4.products", "5.products"} < set(left)


def test_files_of_others_are_not_removed_in_vain(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their room would not be enough, either, the experts are in memory."""
    folder = cache_directory(mapped.KIND)
    folder.mkdir(parents=True)
    for number in range(2):
        (folder / f"{number}.products").write_bytes(b"x")
    monkeypatch.setattr(mapped, "_SPARE", 2**60)
    _, found = written(source)
    assert found == written(source, packed_file=False)[1]
    assert [path.name for path in files()] == ["0.products", "1.products"]


def test_files_of_others_make_room(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where memory alone would not do: that is asked before they go."""
    folder = cache_directory(mapped.KIND)
    folder.mkdir(parents=True)
    (folder / "old.products").write_bytes(b"x" * 2**20)
    usage = shutil.disk_usage(folder)
    free = lambda _: usage._replace(free=mapped._SPARE + (0 if (folder / "old.products").exists() else 2**30))  # noqa: E731
    experts = Target(source, max_length=96).checkpoint._packed(None)
    assert experts is not None
    monkeypatch.setattr(mapped.shutil, "disk_usage", free)
    monkeypatch.setattr(experts, "bytes", 2**19)
    assert experts.can_be()
    experts._tidy(for_room=True)
    assert not files()


def test_what_a_stopped_process_left_goes(source: Path) -> None:
    written(source)
    whole = the_file()
    whole.unlink()
    remains = whole.with_name(f".{whole.name}-abc")
    remains.write_bytes(b"half a file")
    written(source)
    assert not remains.exists()
    assert the_file() == whole


def test_two_processes_that_start_at_once_make_one_file(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys, headstart as hs\n"
        "from headstart.loading import checkpoint\n"
        "from headstart.model import mapped\n"
        "checkpoint.WORTH_MAPPING, mapped._SPARE = 1, 0\n"
        "made = mapped.MappedExperts._make\n"
        "def make(*given):\n"
        "    print('made', flush=True)\n"
        "    made(*given)\n"
        "mapped.MappedExperts._make = make\n"
        "engine = hs.load(sys.argv[1], 'none', max_length=96, pacing='fixed')\n"
        f"print(engine.generate({PROMPT}, hs.Sampling(max_tokens=12, temperature=0, ignore_eos=True)).tokens)\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(source)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [each.communicate(timeout=900)[0].splitlines() for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert sum(lines.count("made") for lines in said) == 1
    assert said[0][-1] == said[1][-1]
    assert len(files()) == 1


def test_a_file_of_products_is_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "x.products"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(ValueError, match="no file of products"):
        ProductFile(path, {})
