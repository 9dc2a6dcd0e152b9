"""Damaged checkpoints of all quantised kinds: they load, or are refused with a typed error, in little memory."""

from __future__ import annotations

import json
import struct
import tracemalloc
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.quantised import AWQ, GPTQ, W8A8, Matrices, w4a16, write
from support.tiny import random_model

from headstart.base.errors import HeadstartError
from headstart.model import loading
from headstart.model.quantised.checkpoint import load_model, load_packed

CASES: dict[str, tuple[Any, Any]] = {
    "gptq": (Matrices().gptq, GPTQ),
    "gptq-ordered": (partial(Matrices(4, 16).gptq, shuffled=True), GPTQ | {"group_size": 16, "desc_act": True}),
    "awq": (Matrices().awq, AWQ),
    "w4a16": (Matrices(4, 64).compressed, w4a16(64, symmetric=False)),
    "w8a8": (Matrices().channels, W8A8),
}
NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([10**9, 1 << 31, 1 << 62, -(10**9), 10**30]),
    st.none(),
    st.booleans(),
    st.just("x"),
    st.just([]),
    st.floats(allow_nan=True),
)
KEYS = ("bits", "group_size", "num_bits", "version", "desc_act", "sym", "zero_point", "strategy", "symmetric", "format")
quick = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
deep = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@cache
def good(case: str, folder: Path) -> tuple[bytes, dict[str, Any]]:
    """A checkpoint's file and config."""
    write(folder / case, random_model("qwen2"), *CASES[case])
    return (folder / case / "model.safetensors").read_bytes(), json.loads((folder / case / "config.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantised")


def loaded_or_refused(path: Path, content: bytes, config: dict[str, Any]) -> None:
    """It is read as floats and as codes, which is all that is computed in Python; other errors than typed ones fail."""
    path.mkdir(exist_ok=True)
    file = path / "model.safetensors"
    file.unlink(missing_ok=True)  # an earlier one may still be mapped
    file.write_bytes(content)
    (path / "config.json").write_text(json.dumps(config))
    tracemalloc.start()
    try:
        with suppress(HeadstartError):
            found = loading.load_config(str(path), trust_remote_code=False)
            if loading.is_quantised(found):
                load_model(path, found, loading.torch.float32)
                for module in load_packed(path, found, loading.torch.float32).modules():
                    if hasattr(module, "held"):
                        module.held.read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000


def head_of(content: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<Q", content)
    return dict(json.loads(content[8 : 8 + length]))


def with_head(content: bytes, head: dict[str, Any]) -> bytes:
    (length,) = struct.unpack_from("<Q", content)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def bend(data: Any, content: bytes) -> bytes:
    """One tensor gets another shape or type, other bytes or another name; or bytes of the file change; or it is cut."""
    head = head_of(content)
    names = sorted(name for name in head if "layers.0." in name or "layers.1.mlp" in name)
    name = data.draw(st.sampled_from(names))
    kind = data.draw(st.sampled_from(["shape", "type", "offsets", "name", "bytes", "cut", "length"]))
    if kind == "shape":
        shape = st.lists(st.integers(0, 70) | st.sampled_from([10**9, 1 << 62]), max_size=3)
        head[name]["shape"] = data.draw(shape | st.just(head[name]["shape"][::-1]))
    elif kind == "type":
        head[name]["dtype"] = data.draw(st.sampled_from(["F16", "BF16", "F32", "I32", "I64", "I8", "U8", "BOOL", "X"]))
    elif kind == "offsets":
        head[name]["data_offsets"] = data.draw(st.lists(st.sampled_from([0, 8, 1 << 20, 1 << 62]), max_size=3))
    elif kind == "name":
        head[data.draw(st.sampled_from([f"{name}_", "model.norm.bias", name.replace("layers.0", "layers.9")]))] = (
            head.pop(name)
        )
    elif kind == "cut":
        return content[: data.draw(st.integers(0, len(content)))]
    elif kind == "length":
        return struct.pack("<Q", data.draw(st.sampled_from([0, 1, 1 << 20, 10**9, 1 << 62]))) + content[8:]
    else:
        at, new = data.draw(st.integers(0, len(content) - 1)), data.draw(st.binary(min_size=1, max_size=64))
        return (content[:at] + new + content[at + len(new) :])[: len(content)]
    return with_head(content, head)


def change(data: Any, config: dict[str, Any]) -> dict[str, Any]:
    """One setting of the quantisation, or one size of the model, is another number or no number."""
    config = json.loads(json.dumps(config))
    if data.draw(st.booleans()):
        sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
        config[data.draw(st.sampled_from(sizes))] = data.draw(NUMBERS)
        return config
    owner = config["quantization_config"]
    if "config_groups" in owner and data.draw(st.booleans()):
        owner = owner["config_groups"]["group_0"]["weights"]
    owner[data.draw(st.sampled_from(sorted(KEYS)))] = data.draw(NUMBERS)
    return config


@quick
@given(case=st.sampled_from(sorted(CASES)), data=st.data())
def test_damage_is_refused_or_harmless(folder: Path, case: str, data: Any) -> None:
    content, config = good(case, folder)
    loaded_or_refused(folder / "bent", bend(data, content), config)


@quick
@given(case=st.sampled_from(sorted(CASES)), data=st.data())
def test_settings_that_do_not_fit_are_refused_or_harmless(folder: Path, case: str, data: Any) -> None:
    content, config = good(case, folder)
    loaded_or_refused(folder / "set", content, change(data, config))


@pytest.mark.slow
@deep
@given(case=st.sampled_from(sorted(CASES)), data=st.data())
def test_damage_of_every_kind(folder: Path, case: str, data: Any) -> None:
    content, config = good(case, folder)
    for _ in range(data.draw(st.integers(1, 3))):
        with suppress(ValueError, KeyError, struct.error, AttributeError, TypeError):  # of a head that is none any more
            content = bend(data, content)
    loaded_or_refused(folder / "deep", content, change(data, config) if data.draw(st.booleans()) else config)
