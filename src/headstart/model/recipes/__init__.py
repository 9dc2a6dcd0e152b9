"""What each family of models computes, one small builder for each `model_type`: from a config to a `Recipe`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headstart.base.errors import HeadstartError, UnsupportedModel
from headstart.model.recipes import gemma, llama
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.sane import check_recipe
from headstart.model.recipes.stated import Stated

__all__ = ["BUILDERS", "Recipe", "find_recipe", "recipe_of"]

BUILDERS: dict[str, Callable[[Stated], Recipe]] = {
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3,
    "llama": llama.llama,
    "mistral": llama.llama,
    "qwen2": llama.llama,
    "qwen3": llama.qwen3,
}
"""By the `model_type` of a config of transformers."""


def recipe_of(config: Any) -> Recipe:
    """The recipe of a model with this config of transformers.

    Raises:
        UnsupportedModel: the family is not known, or the config states something that its recipe cannot say. The
            modules of transformers may run the model all the same.
    """
    text = config.get_text_config()
    build = BUILDERS.get(text.model_type)
    if build is None or not type(text).__module__.startswith("transformers."):
        raise UnsupportedModel(
            f"headstart's own decoder does not know the model type {text.model_type!r}",
            hint="leave quantize out: the modules of transformers then run the model",
        )
    stated = Stated(text)
    try:
        recipe = build(stated)
        check_recipe(recipe, text.model_type)
        stated.check()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, HeadstartError):
            raise
        raise UnsupportedModel(
            f"the config of this {text.model_type} describes no decoder: {type(error).__name__}: {error}",
            hint="compare config.json with the original's",
        ) from error
    return recipe


def find_recipe(config: Any) -> Recipe | None:
    """The same, or None where there is none."""
    try:
        return recipe_of(config)
    except UnsupportedModel:
        return None
