"""What the first load of a model found out is kept: the second one makes no modules, and runs on the same bits."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import families
from support.gguf_files import Q, byte_level, trained, write
from support.gguf_mixtures import MIXTURES
from support.tiny import random_model

import headstart as hs
from headstart.base.files import cache_directory
from headstart.loading import checkpoint as checkpoints
from headstart.loading.info import describe
from headstart.loading.load import Target
from headstart.loading.options import TargetOptions
from headstart.model import native
from headstart.model.kept import store
from headstart.model.kept.config import KeptConfig
from headstart.model.kept.tokenizer import KeptTokenizer

GREEDY = hs.Sampling(max_tokens=12, temperature=0.0, ignore_eos=True, logprobs=0)
PROMPT = [5, 6, 7, 8, 9, 3, 11]

pytestmark = [
    pytest.mark.skipif(not native.available(), reason="no row kernels here, and nothing else is kept"),
    pytest.mark.usefixtures("made"),
]


def gguf(path: Path, kind: Q = Q.Q4_0, **more: Any) -> Path:
    return write(path, random_model("llama", **more), kind=kind)


def folder(path: Path, name: str = "llama", dtype: torch.dtype = torch.float32) -> Path:
    families.random_model(families.config_of(name), dtype).save_pretrained(path)
    return path


def written(source: Path, **options: Any) -> tuple[Any, hs.Output]:
    target = Target(source, max_length=96, **options)
    return target, target.engine("none").generate(PROMPT, GREEDY)


@pytest.mark.parametrize("of", [gguf, folder])
def test_the_second_load_makes_no_modules_and_writes_the_same_bits(of: Any, tmp_path: Path, made: list[str]) -> None:
    source = of(tmp_path / ("m.gguf" if of is gguf else "m"))
    (first, right), (second, found) = written(source), written(source)
    assert made == [str(source)]
    assert (found.tokens, found.logprobs) == (right.tokens, right.logprobs)
    assert isinstance(second.checkpoint.config, KeptConfig)
    assert second.runner.decoder == "fused"
    assert second.runner.memory() == pytest.approx(first.runner.memory(), rel=0.01)  # a rotation is no tensor here
    for name in ("eos_token_ids", "generation_config", "advised_by"):
        theirs, ours = getattr(first, name), getattr(second, name)
        assert json.dumps(ours, default=str) == json.dumps(theirs, default=str)
    for quantize in (None, "none"):
        assert second.checkpoint.need(2, quantize).cache == first.checkpoint.need(2, quantize).cache
    assert second.checkpoint.weight_bytes == first.checkpoint.weight_bytes


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if place % 3 == 0 else pytest.mark.slow)
        for place, name in enumerate(sorted(families.FAMILIES))
    ],
)
def test_every_family_has_the_same_logits_or_is_probed_again(name: str, tmp_path: Path, made: list[str]) -> None:
    source = folder(tmp_path / "m", name)
    (_, right), (second, found) = written(source), written(source)
    assert (found.tokens, found.logprobs) == (right.tokens, right.logprobs)
    assert len(made) == (2 if name in NOT_KEPT else 1), f"{name}: {second.runner.decoder}"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qwen3_moe", Q.Q8_0), ("qwen3_moe", Q.F16), ("gemma4, experts", Q.Q8_0), ("glm4_moe", Q.Q4_0),
        ("gpt_oss", Q.MXFP4), ("gpt_oss, yarn", Q.Q8_0), ("deepseek_v2", Q.Q8_0), ("deepseek_v3", Q.Q4_0),
        ("nemotron_h, experts", Q.Q8_0),
    ],
)  # fmt: skip
def test_a_file_of_experts_is_kept_and_used(
    name: str, kind: Q, tmp_path: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Codes of all experts, or floats of them; gate and up in two tensors, or in one (Gemma 4); angles that a rotary
    module gives once (GPT-OSS), or as complex numbers (DeepSeek V2)."""
    source = write(tmp_path / "m.gguf", families.random_model(MIXTURES[name]()), kind=kind)
    with caplog.at_level(logging.WARNING):
        (_, right), (second, found) = written(source), written(source)
    assert made == [str(source)]
    assert "cannot be used" not in caplog.text
    assert isinstance(second.checkpoint.config, KeptConfig)
    assert (found.tokens, found.logprobs) == (right.tokens, right.logprobs)


NOT_KEPT = {
    "apertus", "ernie4_5_moe", "gpt2", "granitemoe", "granitemoehybrid, experts", "granitemoeshared", "kimi_linear",
    "lfm3", "minimax_m2", "mixtral", "nemotron_h", "nemotron_h, experts", "olmo_hybrid", "olmo_hybrid, no positions",
}  # fmt: skip
"""Families that are probed at every start: numbers of activations, matrices by inputs, and tensors that files call
otherwise than transformers, or hold apart where it joins them."""


@pytest.mark.parametrize("of", [gguf, folder])
def test_info_says_the_same_of_a_model_that_is_kept(of: Any, tmp_path: Path, made: list[str]) -> None:
    source = of(tmp_path / ("m.gguf" if of is gguf else "m"))
    asked = TargetOptions(dtype="float32", device="cpu")
    before = describe(source, asked)
    written(source, dtype="float32")
    assert isinstance(Target(source, max_length=96).checkpoint.config, KeptConfig)
    after = describe(source, asked)
    assert replace(after, free=before.free) == before
    assert all(each.weights > 0 for each in after.formats)


def test_whatever_it_depends_on_is_probed_again(tmp_path: Path, made: list[str], monkeypatch: Any) -> None:
    source = gguf(tmp_path / "m.gguf")

    def probed(**options: Any) -> bool:
        made.clear()
        written(source, **options)
        return bool(made)

    assert [probed(), probed()] == [True, False]
    assert [probed(dtype="float32"), probed(dtype="float32")] == [True, False]
    assert [probed(quantize="none"), probed(quantize="none"), probed()] == [True, False, False]
    assert [probed(probe="always"), probed()] == [True, False]
    monkeypatch.setattr(native.kernels(), "name", "decoder-of-another-compiler.so")
    assert [probed(), probed()] == [True, False]
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "WORTH_KEEPING", 0)


def test_a_changed_file_is_probed_again(tmp_path: Path, made: list[str]) -> None:
    source = gguf(tmp_path / "m.gguf")
    _, before = written(source)
    gguf(tmp_path / "m.gguf", seed=1)
    _, after = written(source)
    assert made == [str(source)] * 2
    assert after.logprobs != before.logprobs


def test_a_model_may_lie_elsewhere(tmp_path: Path, made: list[str]) -> None:
    source = gguf(tmp_path / "m.gguf")
    written(source)
    other = tmp_path / "elsewhere" / "m.gguf"
    other.parent.mkdir()
    shutil.copy2(source, other)
    written(other)
    assert made == [str(source)]


def test_weights_that_the_facts_do_not_show_are_found_out_by_the_logits(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another model under the facts of the first: as if a file had been changed where no sample is taken."""
    one, other = gguf(tmp_path / "one.gguf"), gguf(tmp_path / "other.gguf", seed=1)
    _, right = written(other)
    made.clear()
    facts = store.facts_of(str(one))
    monkeypatch.setattr(store, "facts_of", lambda _: {**facts, "mine": True})
    written(one)
    with caplog.at_level(logging.WARNING):
        _, found = written(other)
    assert made == [str(one), str(other)]
    assert "its logits are not those" in caplog.text
    assert found.logprobs == right.logprobs


@pytest.mark.parametrize("harm", ["cut", "emptied", "another", "text", "older"])
def test_a_broken_file_is_ignored_and_said(
    harm: str, tmp_path: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    source = gguf(tmp_path / "m.gguf")
    _, right = written(source)
    for path in cache_directory(store.KIND).glob("*.json"):
        text = path.read_text()
        head, _, body = text.partition("\n")
        path.write_text(
            {
                "cut": text[: len(text) // 2],
                "emptied": "",
                "another": text.replace('"heads": 4', '"heads": 8').replace("leaves", "branches"),
                "text": "no JSON at all",
                "older": f"{head}\n{body[:-1]}, 1]}}",
            }[harm]
        )
    with caplog.at_level(logging.WARNING):
        _, found = written(source)
    assert made == [str(source)] * 2
    assert "cannot be used" in caplog.text
    assert found.logprobs == right.logprobs
    written(source)
    assert len(made) == 2, "and it is kept again"


def test_files_are_written_whole_or_not_at_all(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = gguf(tmp_path / "m.gguf")
    replaced: list[str] = []
    replace = os.replace

    def full(part: Any, path: Any) -> None:
        replaced.append(str(path))
        if store.KIND in str(path):
            raise OSError("no space left on device")
        replace(part, path)

    monkeypatch.setattr(os, "replace", full)
    written(source)
    assert any(store.KIND in path for path in replaced)
    assert list(cache_directory(store.KIND).iterdir()) == [], "neither halves nor what they were written into"


def test_no_more_than_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST", 3)
    for seed in range(3):
        written(gguf(tmp_path / f"{seed}.gguf", seed=seed))
    assert len(list(cache_directory(store.KIND).glob("*.json"))) <= 3


def test_a_tokenizer_that_was_kept_does_what_the_real_one_does(tmp_path: Path, made: list[str]) -> None:
    tokenizer = trained("gpt-2")
    source = write(tmp_path / "m.gguf", random_model("llama"), tokenizer=byte_level(tokenizer))
    first, second = Target(source, max_length=96), Target(source, max_length=96)
    first.engine("none")
    kept = Target(source, max_length=96).tokenizer
    real = second.tokenizer
    assert isinstance(kept, KeptTokenizer)
    assert not isinstance(real, KeptTokenizer)
    texts = ["def add(a, b):\n    return a", " naïve 漢字 🙂", "<|im_start|>user", ""]
    for special in (True, False):
        assert (
            kept(texts, add_special_tokens=special)["input_ids"] == real(texts, add_special_tokens=special)["input_ids"]
        )
        for text in texts:
            assert dict(kept(text, add_special_tokens=special)) == dict(real(text, add_special_tokens=special))
    ids = real(texts[0])["input_ids"] + real.all_special_ids
    for skip in (True, False):
        assert kept.decode(ids, skip_special_tokens=skip) == real.decode(ids, skip_special_tokens=skip)
        assert kept.decode(ids[0], skip_special_tokens=skip) == real.decode(ids[0], skip_special_tokens=skip)
    assert kept.get_vocab() == real.get_vocab()
    assert len(kept) == len(real)
    assert {i: str(each) for i, each in kept.added_tokens_decoder.items()} == {
        i: str(each) for i, each in real.added_tokens_decoder.items()
    }
    for name in ("all_special_ids", "special_tokens_map", "eos_token_id", "bos_token", "chat_template", "is_fast"):
        assert getattr(kept, name) == getattr(real, name)
    assert "real" not in vars(kept), "none of that has made the tokenizer of transformers"
    assert kept.convert_ids_to_tokens(ids) == real.convert_ids_to_tokens(ids)
    assert not hasattr(kept, "no_such_name")


@pytest.mark.parametrize("of", ["a GGUF file", "bundled"])
def test_transformers_is_not_imported(of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor PyTorch's compiler, which some of its operations on "meta" import; not even where the costs of an engine of
    more slots are measured. bundled: two models in directories."""
    source: str | Path = of
    if of != "bundled":
        words = byte_level(trained("gpt-2"))
        words["chat_template"] = "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}"
        source = write(tmp_path / "m.gguf", random_model("llama"), tokenizer=words, kind=Q.Q4_0)
    code = """
import sys
from headstart.loading import checkpoint
checkpoint.WORTH_KEEPING = 0
import headstart as hs
engine = hs.load(sys.argv[1], max_length=96, max_batch_size=int(sys.argv[2]))
print(engine.generate([5, 6, 7, 8], hs.Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)).tokens)
heavy = [
    "transformers", "huggingface_hub", "torch._dynamo", "torch._inductor", "torch.distributed.tensor", "torch.onnx",
    "sympy", "scipy", "pandas",
]
found = [name for name in [*heavy, "jinja2"] if name in sys.modules]
if engine.tokenizer.chat_template:
    print(engine.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False))
    found += [name for name in heavy if name in sys.modules]
print(found)
"""

    def run(slots: int) -> list[str]:
        command = [sys.executable, "-c", code, str(source), str(slots)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    if of == "bundled":  # what the first start does is known by the file, and it has no template
        monkeypatch.setattr(checkpoints, "WORTH_KEEPING", 0)
        asked = hs.Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)
        text = [str(hs.load(source, max_length=96, max_batch_size=1).generate([5, 6, 7, 8], asked).tokens)]
    else:
        *text, before = run(1)
        assert "'transformers'" in before
    *again, after = run(2)
    assert text == again
    assert ("<user> Hi" in text) == (of != "bundled")
    assert after == "[]"
