"""`load`: what it accepts, and how it says no. Each refusal is typed, gives a reason and a hint."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from support.tiny import byte_tokenizer, random_model

import headstart as hs
from headstart.base.errors import (
    HeadstartError,
    IncompatibleTokenizer,
    InvalidOption,
    ModelNotFound,
    NotEnoughMemory,
    PickleCheckpoint,
    RemoteCodeRequired,
    UnsupportedModel,
)
from headstart.drafters.translated import TranslatedDraft
from headstart.model import loading, memory, native

OPTIONS = [
    ({"drafer": "ngram"}, "did you mean 'drafter'"),
    ({"temperature": 1}, "the options are"),
    ({"num_speculative_tokens": -1}, "at least 0"),
    ({"num_speculative_tokens": 2.5}, "whole number"),
    ({"max_batch_size": 0}, "at least 1"),
    ({"threads": 0}, "at least 1"),
    ({"threads": 1.5}, "whole number"),
    ({"threads": 257}, "at most 256"),
    ({"threads": "all"}, "whole number"),
    ({"max_length": 1}, "at least 2"),
    ({"max_length": 10_000}, "max_length=128 or less"),
    ({"dtype": "int4"}, "bfloat16"),
    ({"device": "abacus"}, "'cpu'"),
    ({"quantize": "int3"}, "'int8'"),
    ({"draft_quantize": 8}, "'int8'"),
    ({"rule": "typical"}, "'exact' or 'coupled'"),
    ({"suffix_store": "past.safetensors"}, "SuffixStore.load(path)"),
    ({"index": "no.index"}, "'ngram'"),
    ({"index": "no.index", "drafter": "ngram"}, "headstart index"),
    ({"index": 7, "drafter": "ngram"}, "headstart index"),
    ({"drafter": ["ngram", "none"]}, "name each drafter"),
    ({"drafter": ["auto", "ngram"]}, "'auto' may be its last"),
    ({"drafter": ["ngram", "ngram"]}, "once"),
    ({"drafter": []}, "once"),
]


@pytest.mark.parametrize(("options", "hint"), OPTIONS, ids=lambda value: str(value))
def test_options_are_checked(options: dict[str, Any], hint: str, tiny: Callable[..., str]) -> None:
    with pytest.raises(InvalidOption) as caught:
        hs.load(tiny("llama"), **{"drafter": "none", "dtype": "float32", **options})
    assert any(part in caught.value.hint for part in hint.split("|"))


SAMPLINGS = [
    {"temprature": 1},
    {"temperature": -0.1},
    {"temperature": float("nan")},
    {"temperature": "hot"},
    {"temperature": True},
    {"top_p": 0},
    {"top_p": 1.01},
    {"top_k": -1},
    {"min_p": 1.5},
    {"repetition_penalty": 0},
    {"repetition_penalty": 1e-300},
    {"frequency_penalty": 1e300},
    {"presence_penalty": -1e300},
    {"logit_bias": {1: 1e30}},
    {"presence_penalty": float("inf")},
    {"max_tokens": 0},
    {"max_tokens": 4, "min_tokens": 5},
    {"seed": -1},
    {"logprobs": -1},
    {"logprobs_mode": "cooked"},
    {"stop": [""]},
    {"stop": 7},
    {"stop_token_ids": [-3]},
    {"stop_token_ids": "ab"},
    {"logit_bias": [1]},
    {"logit_bias": {3: float("nan")}},
    {"ignore_eos": 1},
]


@pytest.mark.parametrize("options", SAMPLINGS, ids=str)
def test_sampling_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        hs.Sampling(**options)
    assert caught.value.hint
    assert isinstance(caught.value, ValueError)


def test_a_path_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        hs.load(tmp_path)
    with pytest.raises(ModelNotFound, match="no model could be read"):
        hs.load(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelNotFound, match="is a file"):
        hs.load(tmp_path / "file")
    (tmp_path / "config.json").write_text("{not json")
    with pytest.raises(ModelNotFound, match="not valid JSON"):
        hs.load(tmp_path)


def copy(source: str, to: Path) -> Path:
    shutil.copytree(source, to)
    return to


def test_a_pickle_is_never_opened(tiny: Callable[..., str], tmp_path: Path) -> None:
    path = copy(tiny("llama"), tmp_path / "pickled")
    (path / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"no \*\.safetensors"):
        hs.load(path, "none")
    (path / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'touch /tmp/owned'\ntR.")
    with pytest.raises(PickleCheckpoint, match=r"pytorch_model\.bin"):
        hs.load(path, "none")


def test_remote_code_is_not_run(tiny: Callable[..., str], tmp_path: Path) -> None:
    path = copy(tiny("llama"), tmp_path / "remote")
    config = json.loads((path / "config.json").read_text())
    config |= {"model_type": "mystery", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "code.py").write_text("raise SystemExit('remote code was run')")
    with pytest.raises(RemoteCodeRequired) as caught:
        hs.load(path, "none")
    assert "trust_remote_code=True" in caught.value.hint


def test_an_unknown_model_type(tiny: Callable[..., str], tmp_path: Path) -> None:
    path = copy(tiny("llama"), tmp_path / "unknown")
    config = json.loads((path / "config.json").read_text()) | {"model_type": "mystery"}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="mystery"):
        hs.load(path, "none")


REFUSED = {
    "mamba": (lambda: tf.MambaConfig(), "recurrent state|roll back"),
    "rwkv": (lambda: tf.RwkvConfig(), "recurrent state"),
    "jamba": (lambda: tf.JambaConfig(), "recurrent state|roll back"),
    "recurrent_gemma": (lambda: tf.RecurrentGemmaConfig(), "recurrent state|roll back"),
    "t5": (lambda: tf.T5Config(), "encoder-decoder"),
    "bert": (lambda: tf.ViTConfig(), "not a causal language model"),
    "falcon": (lambda: tf.FalconConfig(alibi=True), "does not know alibi=True"),
    "bloom": (lambda: tf.BloomConfig(), "in its own code"),
    "llama4": (lambda: tf.Llama4TextConfig(), "chunked_attention"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_exact_are_refused_before_any_weight_is_read(name: str, tmp_path: Path) -> None:
    config, reason = REFUSED[name]
    config().save_pretrained(tmp_path)  # there are no weights at all
    with pytest.raises(UnsupportedModel) as caught:
        hs.load(tmp_path, "none")
    assert any(part in caught.value.message for part in reason.split("|"))
    assert caught.value.hint


def test_too_little_memory(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny("llama")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**21)
    with pytest.raises(NotEnoughMemory, match=r"weights .* GiB \+ KV cache .* GiB") as caught:
        hs.load(path, tiny("llama", seed=9), dtype="float32", max_batch_size=64)
    assert "max_length" in caught.value.hint
    assert isinstance(caught.value, MemoryError)
    hs.load(path, "none", dtype="float32", max_batch_size=1)


def test_the_targets_cache_counts_without_a_draft_too(tiny: Callable[..., str]) -> None:
    path = tiny("llama")
    with pytest.raises(NotEnoughMemory, match="KV cache"):
        hs.load(path, "none", dtype="float32", max_length=128, max_batch_size=10**7)
    with pytest.raises(NotEnoughMemory, match=r"KV cache .*KV cache"):
        hs.load(path, tiny("llama", seed=9), dtype="float32", max_length=128, max_batch_size=10**7)


@pytest.mark.parametrize("draft", ["none", "draft"])
def test_contexts_as_long_as_memory_allows(
    draft: str, tiny: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest of which weights and caches of all slots still fit, in steps, and never above the model's limit."""

    def longer(seed: int, limit: int) -> str:
        path = shutil.copytree(tiny("llama", seed=seed), tmp_path / str(seed))
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": limit}))
        return str(path)

    path, other = longer(0, 4096), longer(9, 1024)
    drafter = other if draft == "draft" else "none"

    def length(free: float) -> int:
        monkeypatch.setattr("headstart.loading.assembly.free_bytes", lambda device: free)
        engine = hs.load(path, drafter, dtype="float32", max_length="auto", max_batch_size=3)
        return int(engine.describe()["max_length"])

    assert length(1e12) == 4096
    target = hs.Target(path, dtype="float32", max_length=2048)
    rows = 512 + 3  # of a prompt's step, and one of each slot
    needed = target.checkpoint.need(3, None, rows).total
    if draft == "draft":
        needed += hs.Target(other, dtype="float32", max_length=1024).checkpoint.need(3, None, rows).total
    assert length(needed / 0.8 + 1) == 2048
    assert length(needed / 0.8 - 1) == 2048 - 256
    assert length(0) == 256, "the check of what is free then says what is needed"


def test_free_memory_is_a_sensible_number() -> None:
    assert 2**20 < memory.free_bytes(torch.device("cpu")) < 2**50


@pytest.fixture
def with_tokenizer(tmp_path: Path) -> Callable[..., Path]:
    """A model whose embedding is padded beyond the tokenizer, as published models are."""

    def make(name: str, *, vocab: int = 258, extra: tuple[str, ...] = (), seed: int = 0) -> Path:
        config = tf.LlamaConfig(
            vocab_size=vocab, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, eos_token_id=256, pad_token_id=257, bos_token_id=None,
        )  # fmt: skip
        torch.manual_seed(seed)
        model = tf.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.2)
        path = tmp_path / name
        model.save_pretrained(path)
        tokenizer = byte_tokenizer()
        tokenizer.add_tokens(list(extra))
        tokenizer.save_pretrained(path)
        return path

    return make


@pytest.mark.parametrize(("target_vocab", "draft_vocab"), [(258, 300), (300, 258), (320, 300)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_vocabularies_that_differ_by_padding_work(
    target_vocab: int, draft_vocab: int, temperature: float, with_tokenizer: Callable[..., Path], load: Any
) -> None:
    target = str(with_tokenizer("target", vocab=target_vocab))
    draft = str(with_tokenizer("draft", vocab=draft_vocab))
    engine = load(target, draft, max_length=64, rule="coupled")
    sampling = hs.Sampling(max_tokens=20, temperature=temperature, seed=1, ignore_eos=True)
    out = engine.generate("hello", sampling)
    assert out.stats.speculation.on
    assert out.stats.drafted > 0
    # a random target emits ids of its own padding now and then, which the draft cannot read
    assert out.tokens == load(target, "none", max_length=64, rule="coupled").generate("hello", sampling).tokens


def test_another_tokenizer_is_translated_and_what_differs_is_said(
    with_tokenizer: Callable[..., Path], load: Callable[..., hs.Engine], caplog: pytest.LogCaptureFixture
) -> None:
    target = str(with_tokenizer("target", vocab=300, extra=("<a>", "<b>")))
    draft = str(with_tokenizer("draft", vocab=300, extra=("<b>", "<c>", "<a>")))
    engine = load(target, draft, max_length=64)
    assert isinstance(engine.drafter, TranslatedDraft)
    assert "has another tokenizer" in caplog.text
    assert str(engine.drafter.translation) in caplog.text
    sampling = hs.Sampling(max_tokens=20, ignore_eos=True)
    out = engine.generate("hello", sampling)
    assert out.stats.speculation.error is None
    assert out.tokens == load(target, "none", max_length=64).generate("hello", sampling).tokens


def test_without_tokenizers_the_sizes_decide(tiny: Callable[..., str], with_tokenizer: Callable[..., Path]) -> None:
    with pytest.raises(IncompatibleTokenizer, match="97 and 258"):
        hs.load(tiny("llama"), with_tokenizer("draft"), dtype="float32", max_length=64)


def test_every_error_is_in_the_tree_and_has_a_hint() -> None:
    from headstart.base import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) > 20
    for kind in kinds:
        assert issubclass(kind, HeadstartError)
        extra = {IncompatibleTokenizer: {"differences": ()}, errors.Overloaded: {"retry_after": 1.0}}.get(kind, {})
        error = kind("what", hint="how", **extra)
        assert str(error) == "what\nhint: how"
    with pytest.raises(TypeError):
        HeadstartError("no hint")  # type: ignore[call-arg]


def test_the_public_face() -> None:
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = hs.lod


def test_describe_and_plain(load: Any, tiny: Callable[..., str]) -> None:
    engine = load("llama", tiny("llama", noise=0.02))
    facts = engine.describe()
    assert facts["dtype"] == "float32"
    assert facts["rule"] == "auto"
    plain = engine.plain()
    assert plain.drafter_name == "none"
    out = plain.generate([5, 6], hs.Sampling(max_tokens=8))
    assert out.tokens == engine.generate([5, 6], hs.Sampling(max_tokens=8)).tokens
    assert not out.stats.speculation.on
    assert out.stats.speculation.reason


def test_bf16_loads_packed_and_runs(tmp_path: Path) -> None:
    """The packed path end to end; on a processor without it, the same test runs the plain one."""
    random_model("llama").to(torch.bfloat16).save_pretrained(tmp_path)
    out = hs.load(tmp_path, "ngram", dtype="bfloat16").generate([5, 6, 7], hs.Sampling(max_tokens=12, ignore_eos=True))
    assert len(out.tokens) == 12


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_auto_takes_bf16_where_the_row_kernels_or_pytorch_compute_with_it(
    name: str, tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Gemma 2 runs on PyTorch's operations, whose bf16 is slow without instructions for it."""
    config = loading.load_config(tiny(name), trust_remote_code=False)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for stored, instructions in itertools.product((torch.float32, torch.float16, torch.bfloat16), (False, True)):
        config.dtype = stored
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda there=instructions: there)
        short = stored == torch.bfloat16 and (instructions or (name == "llama" and native.available()))
        assert loading.choose_dtype("auto", config, cpu) == (torch.bfloat16 if short else torch.float32)
        assert loading.choose_dtype("auto", config, gpu) == stored
        assert loading.choose_dtype("float16", config, cpu) == torch.float16
