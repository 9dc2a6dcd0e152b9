"""Checkpoints that wrap a text model: the text is theirs, what sees and hears is never made, and nothing is passed over
but that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support.model_types import tiny_model
from support.quantised import GPTQ, Matrices, write
from support.tiny import byte_tokenizer, random_model
from support.wrappers import ANOTHER, AUDIO, IMAGE, VIDEO, VOCAB, config_of, save_wrapper
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import DamagedModel, InvalidPrompt, UnsupportedModel
from headstart.loading.load import Target
from headstart.model import int4, loading, native
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.model.wrappers import SAME_ON_TEXT, WRAPPERS, names_of, text_of

LOGITS_NOT_SCALED = {"aya_vision": 0.0625, "cohere2_vision": 0.0625}
"""Wrappers whose classes in transformers leave out the `logit_scale` of their text model. Greedy text is the same."""

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One of them with a tokenizer, to be damaged."""
    path = tmp_path / "model"
    save_wrapper("llava", path)
    byte_tokenizer().save_pretrained(path)
    return path


def stored(folder: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def target(folder: Path) -> Target:
    return Target(folder, dtype="float32", max_length=64)


# -- the text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(WRAPPERS | {*ANOTHER}))
def test_a_wrapper_loads_as_its_text_model(kind: str, tmp_path: Path, load: Callable[..., hs.Engine]) -> None:
    """Logits and greedy text, with a drafter, of the wrapper's own class; longer than the windows. Neither a module nor
    a byte of memory is for a tower."""
    model = save_wrapper(kind, tmp_path)
    engine = load(tmp_path, "ngram")
    runner = engine.target
    prompt = torch.randint(3, IMAGE, (20,), generator=torch.Generator().manual_seed(1)).tolist()
    ids = torch.tensor([prompt])
    want = model(input_ids=ids).logits[0].detach() * LOGITS_NOT_SCALED.get(kind, 1.0)
    cache = runner.new_cache(1)
    got = runner.forward([Segment(cache.acquire(), tuple(prompt), judged=20)], cache).logits
    assert float((got - want).abs().max() / (want.max() - want.min())) < 1e-5
    model.generation_config.eos_token_id = None
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False)
    mine = engine.generate(prompt, hs.Sampling(max_tokens=5, temperature=0, ignore_eos=True))
    assert list(mine.tokens) == out[0, 20:].tolist()
    config = loading.load_config(str(tmp_path), trust_remote_code=False)
    text = loading.read_model(str(tmp_path), config, torch.float32)
    assert not [name for name, _ in text.named_parameters() if names_of(config)(name) is None]
    numbers = sum(parameter.numel() for parameter in set(text.parameters()))
    assert loading.weight_bytes(str(tmp_path), config, torch.float32) == 4 * numbers
    assert numbers < sum(parameter.numel() for parameter in model.parameters())


def test_text_models_without_a_class_are_those_that_wrappers_have() -> None:
    kinds = {config_of(kind).text_config.model_type for kind in WRAPPERS}
    assert set(SAME_ON_TEXT) <= kinds


def test_a_field_that_the_other_class_does_not_know_is_refused() -> None:
    config = config_of("qwen2_vl")
    config.text_config.invented_field = 3
    with pytest.raises(UnsupportedModel, match="qwen2_vl_text states invented_field=3, which qwen2 does not know"):
        text_of(config)


@pytest.mark.parametrize("kind", ["paligemma", "blip-2"])
def test_other_wrappers_are_refused(kind: str, tmp_path: Path) -> None:
    """PaliGemma sees a whole prompt at once, BLIP-2 feeds its text model with what is no token."""
    config_of(kind).save_pretrained(tmp_path) if kind == "paligemma" else stated(tmp_path, model_type=kind)
    with pytest.raises(UnsupportedModel, match="is not a causal language model"):
        loading.load_config(str(tmp_path), trust_remote_code=False)


def stated(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(before | fields))


def test_the_wrapper_says_whether_weights_are_tied(tmp_path: Path) -> None:
    """What its text model's config says is another thing, and not asked."""
    save_wrapper("internvl", tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert (said["tie_word_embeddings"], said["text_config"]["tie_word_embeddings"]) == (True, False)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert not [name for name in file.keys() if "lm_head" in name]  # noqa: SIM118
    assert loading.load_config(str(tmp_path), trust_remote_code=False).tie_word_embeddings


def test_a_model_that_was_saved_unwrapped_is_none_any_more(folder: Path, tmp_path: Path) -> None:
    config = loading.load_config(str(folder), trust_remote_code=False)
    loading.read_model(str(folder), config, torch.float32).save_pretrained(tmp_path / "text")
    again = loading.load_config(str(tmp_path / "text"), trust_remote_code=False)
    assert again.model_type == "llama"
    assert names_of(again)("model.vision_tower.weight") == "model.vision_tower.weight"


@pytest.mark.parametrize("quantize", ["int8", "int4"])
def test_gemma_4_in_its_wrapper_runs_on_whole_numbers(quantize: str, tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    if not (
        int4.can_run(cpu) if quantize == "int4" else native.available() and native.kernels().supported(native.INT8)
    ):
        pytest.skip("this processor has no products of whole numbers")
    save_wrapper("gemma4", tmp_path)
    runner = Target(tmp_path, dtype="float32", max_length=64, quantize=quantize).runner
    assert (runner.decoder, runner.quantize) == ("fused", quantize)


def test_layers_that_share_keys_may_have_stored_some(tmp_path: Path) -> None:
    """Gemma 4's own checkpoints hold keys of layers that have none."""
    save_wrapper("gemma4", tmp_path)
    key = "model.language_model.layers.3.self_attn.k_proj.weight"
    stored(tmp_path, lambda tensors: tensors.update({key: torch.ones(32, 48)}))
    assert isinstance(target(tmp_path).runner, ModelRunner)


@pytest.mark.parametrize("kind", ["qwen3_5", "qwen3_5_text"])
def test_a_head_for_further_tokens_is_passed_over(kind: str, tmp_path: Path) -> None:
    """Of Qwen3.5's checkpoints, with a tower and without."""
    if kind == "qwen3_5":
        save_wrapper(kind, tmp_path)
    else:
        tiny_model(kind).save_pretrained(tmp_path)
    want = parameters(tmp_path)
    head = {"mtp.fc.weight": torch.ones(1 << 16), "mtp.layers.0.mlp.up_proj.weight": torch.ones(64)}
    stored(tmp_path, lambda tensors: tensors.update(head))
    assert parameters(tmp_path) == want


def parameters(folder: Path) -> list[str]:
    """Those of the model that is read."""
    config = loading.load_config(str(folder), trust_remote_code=False)
    return [name for name, _ in loading.read_model(str(folder), config, torch.float32).named_parameters()]


# -- nothing is passed over -------------------------------------------------------------------------------------------

LEFT = {
    "language_model.model.layers.0.self_attn.q_norm.weight": torch.ones(16),
    "language_model.model.layers.2.mlp.up_proj.weight": torch.ones(64, 48),
    "language_model.model.another_norm.weight": torch.ones(48),
    "another_tower.weight": torch.ones(48),
    "model.visualised.weight": torch.ones(48),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_weight_that_has_no_place_is_an_error(name: str, folder: Path) -> None:
    """Also of a tower that is not known."""
    stored(folder, lambda tensors: tensors.update({name: LEFT[name]}))
    with pytest.raises(UnsupportedModel, match=f"holds {names_of_text(name)}, for which the llama"):
        _ = target(folder).runner


def names_of_text(name: str) -> str:
    return name.replace("language_model.model.", "model.")


def test_a_missing_weight_is_an_error(folder: Path) -> None:
    stored(folder, lambda tensors: tensors.pop("language_model.model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(DamagedModel, match=r"model\.layers\.1\.mlp\.up_proj\.weight is missing"):
        _ = target(folder).runner


def test_the_weights_of_a_tower_do_not_make_up_for_those_of_the_text(folder: Path) -> None:
    """A tower alone, as large as the text model: the numbers are counted before any is drawn."""

    def tower(tensors: Tensors) -> None:
        tensors["vision_tower.large.weight"] = torch.ones(1 << 20)
        for name in [name for name in tensors if name.startswith("language_model.model.layers")]:
            del tensors[name]

    stored(folder, tower)
    with pytest.raises(DamagedModel, match="and its files hold"):
        _ = target(folder).runner


def test_layers_are_counted_against_the_tensors_of_the_text(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        text = [name for name in file.keys() if name.startswith("language_model")]  # noqa: SIM118
    stated(folder, vision_config=config["vision_config"] | {"num_hidden_layers": 50})
    loading.load_config(str(folder), trust_remote_code=False)
    stated(folder, text_config=config["text_config"] | {"num_hidden_layers": len(text) + 1})
    with pytest.raises(DamagedModel, match=f"its files hold {len(text)} tensors"):
        loading.load_config(str(folder), trust_remote_code=False)


# -- media ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "token", "said"),
    [
        ("llava", IMAGE, "an image"),
        ("qwen2_5_vl", IMAGE, "an image"),
        ("qwen2_5_vl", VIDEO, "a video"),
        ("gemma4", AUDIO, "a sound"),
        ("mistral3", IMAGE, "an image"),
    ],
)
def test_media_in_a_prompt_are_refused(
    kind: str, token: int, said: str, tmp_path: Path, load: Callable[..., hs.Engine]
) -> None:
    save_wrapper(kind, tmp_path)
    engine = load(tmp_path, "none")
    with pytest.raises(InvalidPrompt, match=f"token {token}, which stands for {said}") as refused:
        engine.generate([5, token, 7], hs.Sampling(max_tokens=2))
    assert "out of the prompt" in refused.value.hint
    assert engine.generate([5, 6, 7], hs.Sampling(max_tokens=2, ignore_eos=True)).tokens


def test_a_text_model_alone_takes_every_token(tmp_path: Path, load: Callable[..., hs.Engine]) -> None:
    AutoModelForCausalLM.from_config(config_of("llava").text_config).save_pretrained(tmp_path)
    assert load(tmp_path, "none").generate([5, IMAGE, VOCAB - 1], hs.Sampling(max_tokens=2, ignore_eos=True)).tokens


def test_tokenizer_and_chat_template_of_the_folder_are_used(folder: Path, load: Callable[..., hs.Engine]) -> None:
    """Its vocabulary is larger than the model's, so that the text here is of its first bytes alone."""
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    engine = load(folder, "none")
    plain = engine.generate("()", hs.Sampling(max_tokens=3, temperature=0, ignore_eos=True))
    chat = engine.chat([{"role": "user", "content": "()"}], hs.Sampling(max_tokens=3, temperature=0, ignore_eos=True))
    assert plain.tokens == chat.tokens


# -- quantised --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantize", [None, "none"])
def test_a_quantised_wrapper_runs_on_its_codes(quantize: str | None, tmp_path: Path) -> None:
    """Bit for bit as the same codes in a checkpoint of the text model alone; the tower has codes too, or none."""
    plain, wrapped = tmp_path / "plain", tmp_path / "wrapped"
    write(plain, random_model("llama"), Matrices().gptq, GPTQ)
    shutil.copytree(plain, wrapped)

    def wrap(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[f"language_model.{name}"] = tensors.pop(name)
        tensors["vision_tower.encoder.layers.0.mlp.fc1.qweight"] = torch.ones(4, 32, dtype=torch.int32)
        tensors["multi_modal_projector.linear_1.weight"] = torch.ones(32, 32)

    stored(wrapped, wrap)
    text = json.loads((plain / "config.json").read_text())
    settings, tied = text.pop("quantization_config"), text["tie_word_embeddings"]
    vision = config_of("llava").vision_config.to_dict()
    (wrapped / "config.json").write_text("{}")
    stated(
        wrapped, model_type="llava", text_config=text, vision_config=vision, image_token_id=96,
        quantization_config=settings, tie_word_embeddings=tied,
    )  # fmt: skip
    rows = []
    for path in (plain, wrapped):
        runner = Target(path, dtype="float32", max_length=64, quantize=quantize).runner
        assert bool(runner.blocks) == (quantize is None and int4.can_run(torch.device("cpu")))
        cache = runner.new_cache(1)
        rows.append(runner.forward([Segment(cache.acquire(), (5, 6, 7, 8), judged=4)], cache).logits)
    assert torch.equal(*rows)
    assert runner.media_tokens == {96: "image"}
