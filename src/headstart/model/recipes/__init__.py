"""What each family of models computes, one small builder for each `model_type`: from a config to a `Recipe`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headstart.base.errors import HeadstartError, UnsupportedModel
from headstart.model.reading import first_line
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.sane import check_recipe
from headstart.model.recipes.stated import Stated

__all__ = ["BUILDERS", "Recipe", "built", "find_recipe", "recipe_of"]

BUILDERS = {
    "apertus": "ungated.apertus",
    "arcee": "ungated.arcee",
    "bamba": "mamba.bamba",
    "cohere": "cohere.cohere",
    "cohere2": "cohere.cohere2",
    "deepseek_v2": "deepseek.deepseek_v2",
    "deepseek_v3": "deepseek.deepseek_v3",
    "ernie4_5": "pairs.ernie4_5",
    "ernie4_5_moe": "mixtures.ernie4_5_moe",
    "exaone4": "exaone.exaone4",
    "falcon": "gpt.falcon",
    "falcon_h1": "mamba.falcon_h1",
    "gemma": "gemma.gemma",
    "gemma2": "gemma.gemma2",
    "gemma3_text": "gemma.gemma3",
    "gemma4_text": "gemma4.gemma4",
    "gemma4_unified_text": "gemma4.gemma4",
    "glm": "glm.glm",
    "glm4": "glm.glm4",
    "glm4_moe": "mixtures.glm4_moe",
    "glm4_moe_lite": "deepseek.glm4_moe_lite",
    "gpt2": "gpt.gpt2",
    "gpt_bigcode": "gpt.gpt_bigcode",
    "gpt_neox": "gpt.gpt_neox",
    "gpt_oss": "mixtures.gpt_oss",
    "granite": "granite.granite",
    "granite_swa": "granite_swa.granite_swa",
    "granitemoe": "mixtures.granitemoe",
    "granitemoehybrid": "granite_hybrid.granite_hybrid",
    "granitemoeshared": "mixtures.granitemoe",
    "helium": "pairs.helium",
    "hunyuan_v1_dense": "hunyuan.hunyuan_v1_dense",
    "hunyuan_v1_moe": "mixtures.hunyuan_v1_moe",
    "internlm3": "llama.llama",
    "iquestcoder": "llama.llama",
    "kimi_linear": "deepseek.kimi_linear",
    "lfm2": "lfm2.lfm2",
    "lfm2_moe": "lfm2.lfm2_moe",
    "lfm3": "lfm2.lfm3",
    "llama": "llama.llama",
    "minicpm3": "deepseek.minicpm3",
    "minimax_m2": "mixtures.minimax_m2",
    "ministral": "llama.qwen2",
    "ministral3": "llama.ministral3",
    "mistral": "llama.mistral",
    "mistral4": "deepseek.mistral4",
    "mixtral": "mixtures.mixtral",
    "nemotron": "layer_norm.nemotron",
    "nemotron_h": "mamba.nemotron_h",
    "olmo": "olmo.olmo",
    "olmo2": "olmo.olmo2",
    "olmo3": "olmo.olmo3",
    "olmo_hybrid": "olmo.olmo_hybrid",
    "olmoe": "mixtures.olmoe",
    "opt": "gpt.opt",
    "phi": "layer_norm.phi",
    "phi3": "phi.phi3",
    "qwen2": "llama.qwen2",
    "qwen2_moe": "mixtures.qwen2_moe",
    "qwen3": "llama.qwen3",
    "qwen3_5_moe_text": "qwen3_5.qwen3_5_moe",
    "qwen3_5_text": "qwen3_5.qwen3_5",
    "qwen3_moe": "mixtures.qwen3_moe",
    "qwen3_next": "qwen3_5.qwen3_next",
    "seed_oss": "llama.seed_oss",
    "smollm3": "smollm.smollm3",
    "stablelm": "layer_norm.stablelm",
    "starcoder2": "layer_norm.starcoder2",
    "youtu": "deepseek.youtu",
}
"""By the `model_type` of a config of transformers: file and function. A file is imported when a model needs it."""

MOST_LAYERS = 10_000
"""More than any model has; configs and modules are made layer by layer."""

_COMPARE = "compare config.json with the original's"


def recipe_of(config: Any) -> Recipe:
    """The recipe of a model with this config of transformers.

    Raises:
        UnsupportedModel: the family is not known, or the config states something that its recipe cannot say. The
            modules of transformers may run the model all the same.
    """
    text = config.get_text_config()
    if isinstance(known := vars(text).get("recipe"), Recipe):  # of a config that was kept: see `headstart.model.kept`
        return known
    place = BUILDERS.get(text.model_type)
    if place is None or not type(text).__module__.startswith("transformers."):
        raise UnsupportedModel(
            f"headstart's own decoder does not know the model type {text.model_type!r}",
            hint="leave quantize out: the modules of transformers then run the model",
        )
    return built(text, place)


def built(text: Any, place: str) -> Recipe:
    """The recipe of this config of a text model, by a builder: its file and function.

    Raises:
        UnsupportedModel: the config states something that the recipe cannot say.
    """
    layers = getattr(text, "num_hidden_layers", None)
    if not isinstance(layers, int) or not 0 < layers <= MOST_LAYERS:  # before a list is made of so many
        raise UnsupportedModel(f"num_hidden_layers={layers!r:.60} of a {text.model_type} config", hint=_COMPARE)
    stated = Stated(text)
    file, _, function = place.partition(".")
    build: Callable[[Stated], Recipe] = getattr(import_module(f"{__name__}.{file}"), function)
    try:
        recipe = build(stated)
        check_recipe(recipe, text.model_type)
        stated.check()
    except HeadstartError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnsupportedModel(
            f"a {text.model_type} config cannot be read at {stated.last}: {first_line(error)}", hint=_COMPARE
        ) from error
    return recipe


def find_recipe(config: Any) -> Recipe | None:
    """The same, or None where there is none."""
    try:
        return recipe_of(config)
    except UnsupportedModel:
        return None
