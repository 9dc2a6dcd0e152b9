"""The bundled pair, end to end: small, documented, safetensors only, and float32-identical with transformers."""

from __future__ import annotations

import ast
import json
from importlib import resources
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

import headstart as hs

PAIR = Path(str(resources.files("headstart") / "pair"))
PROMPTS = ["def add(a, b):", "class Stack:\n    def push(self, item):", "import os\n\n\ndef read(path):\n    "]


def test_files() -> None:
    weights = [file for file in PAIR.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in weights) <= 45 * 10**6
    assert {file.suffix for file in weights} <= {".safetensors", ".json", ".md"}
    for role in ("target", "draft"):
        with safe_open(PAIR / role / "model.safetensors", framework="pt") as file:
            assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118
        assert json.loads((PAIR / role / "provenance.json").read_text())
    card = (PAIR / "README.md").read_text()
    for word in ("Licence", "bits per byte", "Acceptance", "headstart train draft"):
        assert word.lower() in card.lower()


@pytest.fixture(scope="module")
def engine() -> hs.Engine:
    return hs.load(dtype="float32")


def test_float32_greedy_text_is_transformers_own(engine: hs.Engine) -> None:
    model = AutoModelForCausalLM.from_pretrained(PAIR / "target", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(PAIR / "target")
    outs = engine.generate(PROMPTS, hs.Sampling(max_tokens=48))
    for prompt, out in zip(PROMPTS, outs, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")
        want = model.generate(**ids, max_new_tokens=48, do_sample=False)[0, ids["input_ids"].shape[1] :]
        assert list(out.tokens) == want.tolist()
        assert out.text == tokenizer.decode(want, skip_special_tokens=True)
        assert out.stats.speculation.on
    assert sum(out.stats.accepted for out in outs) > 0.3 * sum(out.stats.drafted for out in outs)


def test_it_writes_python(engine: hs.Engine) -> None:
    """Not good Python, but Python: most greedy completions parse once the unfinished last lines are dropped."""
    parsed = 0
    for prompt, out in zip(PROMPTS, engine.generate(PROMPTS, hs.Sampling(max_tokens=96)), strict=True):
        lines = (prompt + out.text).splitlines()
        parsed += any(parses("\n".join(lines[:n])) for n in range(len(lines), prompt.count("\n") + 1, -1))
    assert parsed >= 2


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def test_the_readme_line() -> None:
    out = hs.load().generate("def add(a, b):", hs.Sampling(max_tokens=32))
    assert out.text.strip()
    assert out.stats.tokens_per_forward > 1
    assert out.stats.speculation.drafter == "ngram + bundled draft"


def test_tokenizer_loses_no_byte(engine: hs.Engine) -> None:
    text = "".join(chr(c) for c in range(1, 0x250)) + "\n\t    def ñ(): 😀 12345\r\n"
    ids = engine.tokenizer(text)["input_ids"]
    assert engine.tokenizer.decode(ids, skip_special_tokens=True) == text
