"""Who could draft: named, found, always; and whether tokens fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support import dflash_heads
from support.eagle_heads import target as eagle_target
from support.eagle_heads import write
from support.tiny import byte_tokenizer

from headstart.base.errors import IncompatibleTokenizer, InvalidOption
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.choice import choose
from headstart.loading.load import Target
from headstart.measure.doctor import memory as needs
from headstart.measure.doctor import question as asking
from headstart.measure.doctor.candidates import Candidate, absolute, candidates, compare, scan
from headstart.measure.doctor.question import may_copy
from headstart.model import int4

OPTIONS = {"dtype": "float32", "device": "cpu", "max_length": 64}


def checkpoint_of(source: str, role: str) -> Checkpoint:
    return Checkpoint(source, role, dtype="float32", device=torch.device("cpu"), max_length=64)


def model(path: Path, *, layers: int, tokenizer: bool = True, extra: str = "") -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=259 if extra else 258, hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    if tokenizer:
        made = byte_tokenizer()
        if extra:
            made.add_tokens([extra])
        made.save_pretrained(path)
    return path


def names(found: list[Candidate]) -> list[str]:
    return [candidate.name for candidate in found]


def test_who_is_looked_at(tmp_path: Path) -> None:
    assert names(candidates("hub/target", [])) == ["ngram", "suffix", "early-exit"]
    assert names(candidates("bundled", [])) == ["bundled", "medusa", "eagle3", "ngram", "suffix", "early-exit"]
    assert names(candidates("hub/target", [], own_copy=True))[-1] == "self-int4"
    local = tmp_path / "draft"
    local.mkdir()
    found = candidates("hub/target", ["suffix", f"ngram,{local}"], [str(local)])
    assert [each.drafters for each in found] == [
        ("suffix",), ("ngram", str(local)), (str(local),), ("ngram",), ("early-exit",),
    ]  # fmt: skip
    assert found[1].name == "ngram + draft"
    assert [each.origin for each in found] == ["given", "given", "found", "always", "always"]


@pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no products of 4-bit weights here")
def test_a_copy_on_four_bits_is_looked_at_where_it_has_less_to_read(
    tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not may_copy(Target(tiny("llama"), **OPTIONS)), "steps of so small a model are not spent on reading"
    monkeypatch.setattr(asking, "LEAST_COPIED", 1)
    for quantize, looked_at in ((None, True), ("int8-grouped", True), ("int4", False)):
        assert may_copy(Target(tiny("llama"), quantize=quantize, **OPTIONS)) is looked_at, quantize
    monkeypatch.setattr(int4, "can_run", lambda device: False)
    assert not may_copy(Target(tiny("llama"), **OPTIONS))


@pytest.mark.parametrize("name", ["auto", "none", ",", "ngram,none"])
def test_what_is_no_drafter(name: str) -> None:
    with pytest.raises(InvalidOption, match="no drafter to look at"):
        candidates("hub/target", [name])


def test_a_local_path_stays_right_wherever_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "ngram").mkdir()
    monkeypatch.chdir(tmp_path)
    assert absolute("draft") == str(tmp_path / "draft")
    assert absolute("ngram") == "ngram"
    assert absolute("hub/draft") == "hub/draft"


def test_a_directory_is_searched(tmp_path: Path) -> None:
    ours = model(tmp_path / "target", layers=8)
    small = model(tmp_path / "deep" / "small", layers=1)
    model(tmp_path / "large", layers=7)
    model(tmp_path / "other", layers=1, extra="<extra>")
    model(tmp_path / ".hidden", layers=1)
    shutil.copytree(small, tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").unlink()
    found, passed_over = scan(tmp_path, Target(str(ours), **OPTIONS))
    assert found == (str(small),)
    reasons = {Path(path).name: why for path, why in passed_over.items()}
    assert reasons.keys() == {"target", "large", "other", "broken"}
    assert reasons["target"] == "it is the target"
    assert "of the target's weights" in reasons["large"]
    assert "the target knows 258 tokens, the draft 259" in reasons["other"]
    assert "safetensors" in reasons["broken"]


def test_heads_are_found_too(tmp_path: Path) -> None:
    ours = eagle_target(tmp_path)
    heads = write(tmp_path / "head", "eagle3"), dflash_heads.write(tmp_path / "block", "dspark", kind="vanilla")
    assert {str(head.resolve()) for head in heads} <= set(scan(tmp_path, Target(ours, **OPTIONS))[0])


def test_the_memory_of_a_head_counts_its_layers_caches(tmp_path: Path) -> None:
    ours = eagle_target(tmp_path)
    target = Target(ours, **OPTIONS)
    layer = target.checkpoint.need(2, None).cache // 4
    for count in (1, 3):
        for form, folder in (("eagle3", write), ("dspark", dflash_heads.write)):
            head = folder(tmp_path / f"{form}-{count}", form, layers=count)  # type: ignore[operator]
            need = needs._head(target, 2, choose(ours, head).drafters[0])
            assert need.cache == count * layer
            assert need.weights == (head / "model.safetensors").stat().st_size


def test_there_must_be_a_directory(tmp_path: Path, tiny: Callable[..., str]) -> None:
    with pytest.raises(InvalidOption, match="no such directory"):
        scan(tmp_path / "nowhere", Target(tiny("llama"), **OPTIONS))


def test_tokenizers_are_compared(tmp_path: Path) -> None:
    ours = checkpoint_of(str(model(tmp_path / "a", layers=1)), "target")
    same = compare(ours, checkpoint_of(str(model(tmp_path / "b", layers=1)), "draft"))
    assert (same.how, same.differences) == ("same", ())
    other = compare(ours, checkpoint_of(str(model(tmp_path / "c", layers=1, extra="<extra>")), "draft"))
    assert other.how == "ids"
    assert "renumbered" in other.words
    assert any("'<extra>'" in words for words in other.differences)


def test_without_tokenizers_sizes_must_do(tmp_path: Path, tiny: Callable[..., str]) -> None:
    ours = checkpoint_of(tiny("llama"), "target")
    assert compare(ours, checkpoint_of(tiny("qwen3"), "draft")).how == "sizes"
    with pytest.raises(IncompatibleTokenizer, match="97 and 258"):
        compare(ours, checkpoint_of(str(model(tmp_path / "a", layers=1, tokenizer=False)), "draft"))
