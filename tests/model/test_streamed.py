"""Experts of safetensors that are read one after the other: the model is the one that transformers reads whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import families
from support.gguf_mixtures import MIXTURES

import headstart as hs
from headstart.base.errors import DamagedModel, NotEnoughMemory
from headstart.base.files import cache_directory
from headstart.base.lazy import transformers
from headstart.loading import checkpoint
from headstart.loading.load import Target
from headstart.model import int4, loading, mapped, memory, native
from headstart.model import streamed as streaming
from headstart.model.quantised.tensors import Tensors
from headstart.model.streamed import StoredExperts

GREEDY = hs.Sampling(max_tokens=12, temperature=0.0, ignore_eos=True, logprobs=0)
PROMPT = [5, 6, 7, 8, 9, 3, 11]

pytestmark = pytest.mark.skipif(not native.available(), reason="no row kernels here")


def saved(path: Path, name: str, dtype: torch.dtype = torch.float32) -> str:
    families.random_model(MIXTURES[name]()).to(dtype).save_pretrained(path)
    return str(path)


def streamed(source: str, dtype: torch.dtype = torch.float32) -> Any:
    config = loading.load_config(source, trust_remote_code=False)
    return loading.load_weights(source, config, dtype, torch.device("cpu"), trust_remote_code=False)


@pytest.mark.parametrize("name", [name for name in MIXTURES if name != "youtu"])
def test_every_matrix_is_the_one_that_is_read_whole(name: str, tmp_path: Path) -> None:
    source = saved(tmp_path, name)
    found = streamed(source)
    config = loading.load_config(source, trust_remote_code=False)
    right = loading.read_model(source, config, torch.float32)
    assert type(found) is type(right)
    experts = {name: each for name, each in found.named_modules() if isinstance(each, StoredExperts)}
    assert experts
    wanted = dict(right.named_parameters())
    for name, held in experts.items():
        whole = wanted.pop(name)
        assert held.shape == tuple(whole.shape)
        assert all(torch.equal(held[number], whole[number]) for number in reversed(range(len(whole))))
    assert all(torch.equal(parameter, wanted.pop(name)) for name, parameter in found.named_parameters())
    assert not wanted


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own, in which experts of any size are worth a file."""
    kernels = cache_directory("kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_directory("kernels").parent.mkdir(parents=True)
    cache_directory("kernels").symlink_to(kernels, target_is_directory=True)
    monkeypatch.setattr(checkpoint, "WORTH_MAPPING", 1)
    monkeypatch.setattr(mapped, "_SPARE", 0)
    return cache_directory(mapped.KIND)


def written(source: str, **options: Any) -> tuple[Any, Any]:
    target = Target(source, max_length=96, **options)
    found = target.engine("none").generate(PROMPT, GREEDY)
    return target, (found.tokens, found.logprobs)


@pytest.mark.parametrize("quantize", [None, "int8", "int4", "int8-grouped"])
def test_the_same_bits_as_of_the_whole_model(
    quantize: str | None, tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, from a file that is made, and from one that is there: what the kernels lay out of a model that lies in
    memory whole."""
    if quantize in int4.KINDS and not int4.can_run(torch.device("cpu")):
        pytest.skip("no codes in groups here")
    source = saved(tmp_path / "m", "qwen3_moe", torch.bfloat16)
    with monkeypatch.context() as whole:
        whole.setattr(loading, "streams", lambda *_: False)
        _, right = written(source, quantize=quantize)
    assert not list(files.glob("*.products"))
    assert written(source, quantize=quantize, packed_file=False)[1] == right
    assert not list(files.glob("*.products"))
    target, first = written(source, quantize=quantize)
    (made,) = files.glob("*.products")
    state = made.stat().st_mtime_ns, made.stat().st_ino
    assert first == right == written(source, quantize=quantize)[1]
    assert state[1] == made.stat().st_ino
    assert target.checkpoint._packed(quantize).bytes == pytest.approx(made.stat().st_size, rel=0.5)


def test_what_cannot_be_streamed_after_all_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preflight has counted what is laid out, and the floats of all experts are read then."""
    source = saved(tmp_path / "m", "qwen3_moe", torch.bfloat16)
    monkeypatch.setattr(streaming, "find_experts", lambda *_: None)
    assert written(source)
    checkpoint = Target(source, max_length=96, quantize="int4", packed_file=False).checkpoint
    required = checkpoint.need(0, "int4").total
    assert required < checkpoint.weight_bytes
    monkeypatch.setattr(memory, "free_bytes", lambda _: required)
    with pytest.raises(NotEnoughMemory, match="are free"):
        checkpoint.runner("int4")


def test_memory_is_counted_as_it_is_laid_out(tmp_path: Path, files: Path) -> None:
    """The floats of the experts are required nowhere; laid out they are, unless they lie in a file."""
    source = saved(tmp_path / "m", "qwen3_moe", torch.bfloat16)
    whole = Target(source, max_length=96, dtype="float32", packed_file=False).checkpoint
    floats = 3 * 8 * 3 * 64 * 32
    plain, four = (whole.need(1, quantize).weights for quantize in (None, "int4"))
    assert plain == whole.weight_bytes
    assert four == plain - floats * 4 + floats * 5 // 8
    mapping = Target(source, max_length=96, dtype="float32").checkpoint
    need = mapping.need(1, "int4")
    assert (need.weights, need.mapped) == (plain - floats * 4, floats * 5 // 8)
    assert files


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("2.down_proj.weight", None, r"experts.2.down_proj.weight' is missing"),
        ("2.up_proj.weight", lambda each: each[:-1].clone(), r"is \(31, 64\) and \(32, 64\), and 8 times \[.., 64\]"),
        ("gate_proj.weight", lambda each: each[:-1].clone(), "need matrices of 64 rows, and there are 63"),
        ("down_proj.weight", lambda each: each[:, :-1].clone(), r"is \(64, 31\), and 8 times \[.., 32\] is needed"),
        ("7.up_proj.weight", "more", "there are 9 of .*up_proj.weight', and 8 experts"),
        ("up_proj.weight", None, "need matrices of 64 rows, and there are 32"),
    ],
)
def test_experts_that_are_missing_or_of_another_shape(name: str, change: Any, message: str, tmp_path: Path) -> None:
    source = saved(tmp_path, "qwen3_moe")
    (file,) = tmp_path.glob("*.safetensors")
    stored = load_file(file)
    for full in [full for full in stored if f"layers.1.mlp.experts.{name}" in full or _any_expert(full, name)]:
        tensor = stored.pop(full)
        if change == "more":
            stored |= {full: tensor, full.replace(".7.", ".8."): tensor.clone()}
        elif change is not None:
            stored[full] = change(tensor)
    save_file(stored, file, {"format": "pt"})
    with pytest.raises(DamagedModel, match=message):
        streamed(source)


def _any_expert(full: str, name: str) -> bool:
    return not name[0].isdigit() and "layers.1.mlp.experts." in full and full.endswith(name)


def test_one_matrix_is_kept_for_all_layers(tmp_path: Path) -> None:
    found = streamed(saved(tmp_path, "qwen3_moe"))
    experts = [each for each in found.modules() if isinstance(each, StoredExperts)]
    read = [each[0] for each in experts]
    assert len(read) > 1
    assert [*streaming._last] == [experts[-1]]
    assert experts[-1][0] is read[-1]


def test_a_mixture_of_one_expert(tmp_path: Path) -> None:
    config = MIXTURES["qwen3_moe"]()
    config.num_experts, config.num_experts_per_tok = 1, 1
    families.random_model(config).save_pretrained(tmp_path)
    right = dict(loading.read_model(str(tmp_path), config, torch.float32).named_parameters())
    experts = {name: each for name, each in streamed(str(tmp_path)).named_modules() if isinstance(each, StoredExperts)}
    assert experts
    assert all(torch.equal(each[0], right[name][0]) for name, each in experts.items())


def test_matrices_that_lie_otherwise_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored transposed is more than stacking makes of it: the model is then read by transformers alone."""
    source = saved(tmp_path, "qwen3_moe")
    asked = transformers.conversion_mapping.get_model_conversion_mapping

    def otherwise(*given: Any, **named: Any) -> Any:
        found = asked(*given, **named)
        for each in found:
            if getattr(each, "operations", None):
                each.operations.append(transformers.core_model_loading.Transpose(1, 2))
        return found

    config = loading.load_config(source, trust_remote_code=False)
    model = streaming.class_of(config)(config)
    monkeypatch.setattr(transformers.conversion_mapping, "get_model_conversion_mapping", otherwise)
    assert streaming.find_experts(model, Tensors(tmp_path), None) is None
