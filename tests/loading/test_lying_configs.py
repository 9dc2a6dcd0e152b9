"""Configs that cannot be true: one typed line that names the key, before anything of such sizes is made.

Every family with a recipe is tried, with lies by name and with values drawn at random for each key of its config.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.model_types import tiny_model

import headstart as hs
from headstart.base.errors import DamagedModel, HeadstartError, UnsupportedModel
from headstart.model import loading
from headstart.model.plausible import check_stated
from headstart.model.recipes import BUILDERS, recipe_of
from headstart.model.recipes.mixers import DeltaRule, Mamba2, ShortConv
from headstart.model.recipes.recipe import Attention, Layer, Mlp, Norm, Recipe, Rope
from headstart.model.recipes.sane import check_recipe

NAN, HUGE = float("nan"), 2**62
NUMBERS = (0, -1, 1, 3, 10**9, HUGE, -HUGE, "x", "64", 1.5, NAN, float("inf"), [], {}, True)
KINDS = ("linear", "yarn", "llama3", "longrope", "dynamic", "proportional", "nobody", 5, [], {})
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")

LIES: list[tuple[str, Any]] = [
    *(
        (key, value)
        for key in ("hidden_size", "num_attention_heads", "vocab_size")
        for value in (0, -1, HUGE, "x", 1.5)
    ),
    *(("num_key_value_heads", value) for value in (0, -1, 3, "x")),
    *(("head_dim", value) for value in (-1, HUGE, "x", 1.5, NAN)),
    *(("intermediate_size", value) for value in (-1, HUGE, "x")),
    *((key, value) for key in LAYERS for value in (0, -1, 10**9, "x")),
    *(("rms_norm_eps", value) for value in (-1e-6, NAN, "x")),
    *((key, value) for key in ("hidden_act", "hidden_activation", "activation_function") for value in ("nobody", 5)),
    *(("sliding_window", value) for value in (0, -1, "x", 1.5)),
    *(
        ("layer_types", value)
        for value in (5, ["full_attention"] * 3, ["linear_attention", "full_attention", "nobody", "nobody"], [5] * 4)
    ),
    *(
        (key, value)
        for key in (
            "conv_L_cache",
            "conv_kernel",
            "linear_conv_kernel_dim",
            "linear_key_head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_value_head_dim",
            "mamba_d_conv",
            "mamba_d_state",
            "mamba_head_dim",
            "mamba_n_groups",
            "mamba_n_heads",
            "mamba_num_heads",
            "n_groups",
            "ssm_state_size",
        )
        for value in (0, -1, HUGE, "x", 1.5)
    ),
    ("time_step_limit", [0.001, 0.1]),
    ("attn_output_gate", False),
    ("mamba_ssm_dtype", "bfloat16"),
    ("mamba_hidden_act", "gelu"),
    *(("partial_rotary_factor", value) for value in (-0.5, 1.5, NAN, "x")),
]
"""Keys and values that no model has; a key is tried where a family's config has it."""
ROTATIONS: list[tuple[str, dict[str, Any]]] = [
    ("rope_type", {"rope_type": "nobody"}),
    ("rope_type", {"rope_type": []}),
    ("rope_theta", {"rope_theta": -1.0}),
    ("rope_theta", {"rope_theta": NAN}),
    ("rope_theta", {"rope_theta": "x"}),
    ("factor", {"rope_type": "linear", "factor": "x"}),
    ("factor", {"rope_type": "linear", "factor": NAN}),
    ("factor", {"rope_type": "yarn", "factor": -2.0, "original_max_position_embeddings": 64}),
    ("original_max_position_embeddings", {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": "x"}),
    ("long_factor", {"rope_type": "longrope", "long_factor": [NAN] * 8, "short_factor": [1.0] * 8}),
    ("partial_rotary_factor", {"partial_rotary_factor": 1e9}),
]
"""The key that must be named, and what is stated of the rotation."""


@cache
def stated_of(name: str, folder: Path) -> dict[str, Any]:
    """The config.json of a tiny model of this type, which is saved there."""
    tiny_model(name).save_pretrained(folder)
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


@pytest.fixture(scope="module", params=sorted(BUILDERS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.getbasetemp() / f"honest-{request.param}"
    return folder, stated_of(request.param, folder)


def write(folder: Path, stated: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(stated))


def refused(folder: Path, stated: dict[str, Any]) -> HeadstartError:
    write(folder, stated)
    with pytest.raises((UnsupportedModel, DamagedModel)) as caught:
        loading.load_config(str(folder), trust_remote_code=False)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_lies_are_named(model: tuple[Path, dict[str, Any]]) -> None:
    """Every other one, beginning with the first or the second in turns."""
    folder, honest = model
    for key, value in LIES[sorted(BUILDERS).index(honest["model_type"]) % 2 :: 2]:
        if key in honest and not (key == "sliding_window" and honest.get("use_sliding_window") is False):
            assert key in refused(folder, honest | {key: value}).message, f"{key}={value!r}"


def test_lies_about_the_rotation_are_named(model: tuple[Path, dict[str, Any]]) -> None:
    folder, honest = model
    rope = honest.get("rope_parameters")
    if rope is None:
        pytest.skip("it has none")
    nested = {kind: each for kind, each in rope.items() if isinstance(each, dict)}
    for key, lie in ROTATIONS:
        said = {kind: each | lie for kind, each in nested.items()} or rope | lie
        assert key in refused(folder, honest | {"rope_parameters": said}).message, f"{lie}"
    assert "rope_parameters" in refused(folder, honest | {"rope_parameters": 5}).message


def drawn(stated: dict[str, Any], generator: random.Random) -> Iterator[dict[str, Any]]:
    """Configs with one or two keys at random values."""
    keys = [key for key in stated if key not in ("model_type", "transformers_version", "architectures", "dtype")]
    while True:
        changes: dict[str, Any] = {}
        for key in generator.sample(keys, generator.choice((1, 1, 2))):
            value = stated[key]
            changes[key] = generator.choice((*NUMBERS, None))
            if isinstance(value, list):
                count = len(value)
                others = ([], value[:-1], ["nobody"] * count, [5] * count, [None] * count, 5, "x")
                changes[key] = generator.choice(others)
            elif isinstance(value, dict):
                fields = generator.sample(("factor", "rope_theta", "low_freq_factor"), 2)
                numbers = {name: generator.choice((2.0, *NUMBERS)) for name in fields}
                changes[key] = value | {"rope_type": generator.choice(KINDS)} | numbers
            elif isinstance(value, str):
                changes[key] = generator.choice(("nobody", "", 5, None, []))
        yield stated | changes


def outcome(folder: Path, stated: dict[str, Any]) -> HeadstartError | None:
    """Loads the model and writes a few tokens; anything but an answer or a typed error of one line fails."""
    write(folder, stated)
    errors: list[HeadstartError] = []
    with catching(errors):
        recipe_of(loading.load_config(str(folder), trust_remote_code=False))
    with catching(errors):
        engine = hs.load(folder, "none", dtype="float32", max_length=48, pacing="fixed", max_batch_size=1)
        engine.generate([5, 6, 7], hs.Sampling(max_tokens=2, ignore_eos=True))
        errors.clear()  # without a recipe the modules of transformers may run it
    assert not [error for error in errors if "\n" in error.message], stated
    return errors[-1] if errors else None


@contextmanager
def catching(errors: list[HeadstartError]) -> Iterator[None]:
    try:
        yield
    except HeadstartError as error:
        errors.append(error)


@pytest.mark.parametrize("count", [1, pytest.param(300, marks=pytest.mark.slow)])
def test_values_at_random_end_in_a_typed_line(model: tuple[Path, dict[str, Any]], count: int) -> None:
    folder, honest = model
    configs = drawn(honest, random.Random(count))
    errors = [outcome(folder, next(configs)) for _ in range(count)]
    if count > 1:
        assert any(errors)
        assert outcome(folder, honest) is None, "the model itself runs"


def test_shapes_that_the_weights_have_not_name_their_keys(tmp_path: Path) -> None:
    honest = stated_of("llama", tmp_path)
    for key, value in [("vocab_size", 90), ("intermediate_size", 80), ("head_dim", 8), ("num_key_value_heads", 1)]:
        error = outcome(tmp_path, honest | {key: value})
        assert isinstance(error, DamagedModel)
        assert key in error.message
    error = outcome(tmp_path, honest | {"num_hidden_layers": 3})
    assert error is not None
    assert "num_hidden_layers is 3" in error.message


def test_what_a_config_leaves_out_or_null_is_no_lie() -> None:
    check_stated("x", {})
    check_stated("x", {"sliding_window": 0, "use_sliding_window": False})
    check_stated("x", {"sliding_window": 0, "layer_types": ["full_attention"]})
    check_stated("x", {"rope_parameters": None, "rope_scaling": {"type": "su"}, "head_dim": None, "layer_types": None})
    check_stated("x", {"vision_config": {"hidden_size": 0, "rope_parameters": {"rope_type": "axial"}}})
    check_stated("x", {"num_attention_heads": [4, 8], "intermediate_size": [16, 32], "head_dim": 15})
    with pytest.raises(UnsupportedModel, match=r"hidden_size is 0"):
        check_stated("x", {"text_config": {"hidden_size": 0}})
    with pytest.raises(UnsupportedModel, match=r"head_dim is 15, and only an even number"):
        check_stated("x", {"head_dim": 15, "rope_theta": 10000.0})


LAYER = Layer(
    Attention(4, 2, 16, 0.25, Rope(16)), Mlp(96, "silu"), Norm("attention_norm", 1e-6), Norm("mlp_norm", 1e-6)
)
NORM = Norm("mixer_norm", 1e-6)
INSANE: dict[str, Layer] = {
    "kv_heads is 0": Layer(Attention(4, 0, 16, 0.25, Rope(16)), LAYER.mlp, None, None),
    "4 heads cannot share 3": Layer(Attention(4, 3, 16, 0.25, Rope(16)), LAYER.mlp, None, None),
    "18 numbers of a head of 16 turn": Layer(Attention(4, 2, 16, 0.25, Rope(18)), LAYER.mlp, None, None),
    "15 numbers of a head of 16 turn": Layer(Attention(4, 2, 16, 0.25, Rope(15)), LAYER.mlp, None, None),
    "window is -1": Layer(Attention(4, 2, 16, 0.25, None, window=-1), LAYER.mlp, None, None),
    "scaling is nan": Layer(Attention(4, 2, 16, NAN, None), LAYER.mlp, None, None),
    "has the keys of layer 1": Layer(Attention(4, 2, 16, 0.25, None, keys_of=1), LAYER.mlp, None, None),
    "mlp_width is 1.5": Layer(LAYER.attention, Mlp(1.5, "silu"), None, None),  # type: ignore[arg-type]
    "a norm's epsilon is nan": Layer(LAYER.attention, LAYER.mlp, Norm("x", NAN), None),
    "a layer has neither a mixer nor an MLP": Layer(None, None, None, None),
    "taps is 0": Layer(ShortConv(64, 0), LAYER.mlp, None, None),
    "sums one input alone": Layer(ShortConv(64, 1), LAYER.mlp, None, None),
    "4 heads of a recurrence cannot share 3": Layer(DeltaRule(4, 3, 16, 16, 4, NORM), LAYER.mlp, None, None),
    "4 heads of a recurrence cannot share 8": Layer(Mamba2(4, 16, 16, 8, 4, NORM), LAYER.mlp, None, None),
    "beta_factor is nan": Layer(DeltaRule(4, 2, 16, 16, 4, NORM, beta_factor=NAN), LAYER.mlp, None, None),
    "epsilon is inf": Layer(Mamba2(4, 16, 16, 2, 4, Norm("x", float("inf"))), LAYER.mlp, None, None),
    "residual_factor is 'x'": Layer(LAYER.attention, LAYER.mlp, None, None, residual_factor="x"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", INSANE)
def test_a_recipe_that_kernels_could_not_run_is_refused(what: str) -> None:
    check_recipe(Recipe(64, 96, (LAYER, LAYER), None), "llama")
    with pytest.raises(UnsupportedModel, match=what):
        check_recipe(Recipe(64, 96, (LAYER, INSANE[what]), None), "llama")
