"""Recipes as JSON and back: each object with the name of its class, so that nothing need be guessed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from headstart.model.recipes import common
from headstart.model.recipes.experts import Experts, Router
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.mixers import ChannelRule, DeltaRule, Mamba2, ShortConv
from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Attention, Layer, LayerInput, Mlp, Recipe, Rope, TokenInputs
from headstart.model.recipes.sane import check_recipe

_NODES = (
    Attention, ChannelRule, DeltaRule, Experts, Latent, Layer, LayerInput, Mamba2, Mlp, Norm, Recipe, Rope, Router,
    ShortConv, TokenInputs,
)  # fmt: skip
_CLASSES: dict[str, Any] = {each.__name__: each for each in _NODES}
_CLASS = "class"


def recipe_to(recipe: Recipe) -> Any:
    """A recipe as JSON takes it."""
    return _plain(recipe)


def recipe_from(stored: Any) -> Recipe:
    """The recipe again; equal layers are one object.

    Raises:
        UnsupportedModel, TypeError, KeyError, AttributeError: it is none, or one that the decoders do not run.
    """
    found = _object(stored)
    if not isinstance(found, Recipe):
        raise TypeError("it holds no recipe")
    found = replace(found, layers=common.shared(list(found.layers)))
    check_recipe(found, "kept")
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {
            _CLASS: type(value).__name__,
            **{each.name: _plain(getattr(value, each.name)) for each in fields(value)},
        }
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _object(stored: Any) -> Any:
    if isinstance(stored, list):
        return tuple(_object(each) for each in stored)
    if not isinstance(stored, dict):
        return stored
    return _CLASSES[stored[_CLASS]](**{name: _object(value) for name, value in stored.items() if name != _CLASS})
