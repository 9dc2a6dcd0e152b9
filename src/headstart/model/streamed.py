"""Mixtures of experts in safetensors: the floats of experts stay in their files until a decoder lays them out, one
expert after the other, so that the model never lies in memory as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headstart.base.lazy import transformers
from headstart.model.coded import model_class
from headstart.model.int4 import bits_of
from headstart.model.quantised.tensors import Tensors
from headstart.model.recipes import Recipe, recipe_of

_STACKING = {"MergeModulelist": 0, "Concatenate": 1}
"""What transformers does with stored tensors for a parameter of experts, and along which axis: matrices of experts one
after the other, gate and up side by side."""


class StoredExperts(nn.Module):
    """The matrices of all experts, each read when it is needed. transformers' modules take one as if this were their
    parameter."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        """shape: of the parameter. dtype: of the floats that are given."""
        super().__init__()
        self.shape, self.dtype = tuple(shape), dtype
        self.parts: tuple[str, ...] = ()
        """See `lie_in`."""
        self._read: list[Callable[[int], Tensor]] = []

    def lie_in(self, tensors: Tensors, parts: Sequence[str]) -> None:
        """Say where they are. parts: whose outputs are side by side; of each the name of a tensor that holds all
        experts, or those of the experts' own, in which their number is written {}.

        Raises:
            DamagedModel: tensors are missing, or of another shape.
        """
        count, *matrix = self.shape
        rows, self.parts, self._read = 0, tuple(parts), []
        _last.clear()
        for part in parts:
            names = [part.format(number) for number in range(count)] if _EACH in part else [part]
            if missing := [name for name in names if name not in tensors.names]:
                raise tensors.damaged(f"tensor {missing[0]!r} is missing")
            shapes = {tensors.shape(name) for name in names}
            *first, outputs, inputs = sorted(shapes)[0] if all(len(shape) > 1 for shape in shapes) else (0, 0)
            stacked = [] if _EACH in part or (count == 1 and not first) else [count]
            if len(shapes) > 1 or first != stacked or inputs != matrix[1]:
                found = " and ".join(map(str, sorted(shapes)))
                raise tensors.damaged(f"{part!r} is {found}, and {count} times [.., {matrix[1]}] is needed")
            rows += outputs
            self._read.append(_reader(tensors, names))
        if rows != matrix[0]:
            named = "".join(f" {part!r}" for part in parts)
            raise tensors.damaged(f"experts need matrices of {matrix[0]} rows, and there are {rows}:{named or ' none'}")

    def __getitem__(self, number: int | Tensor) -> Tensor:
        """The matrix of an expert, as the parameter has it."""
        wanted, last = int(number), _last.get(self)
        if last is None or last[0] != wanted:  # rounding asks for one again and again, for some rows at a time
            found = [read(wanted) for read in self._read]
            last = wanted, (found[0] if len(found) == 1 else torch.cat(found)).to(self.dtype)
            _last.clear()
            _last[self] = last
        return last[1]


_last: WeakKeyDictionary[StoredExperts, tuple[int, Tensor]] = WeakKeyDictionary()
"""The matrix that was read last and its number, of all models: one a module would be as many as there are layers."""


_EACH = "{}"


def _reader(tensors: Tensors, names: Sequence[str]) -> Callable[[int], Tensor]:
    if len(names) > 1 or len(tensors.shape(names[0])) == 2:
        return lambda number: tensors.read(names[number])
    return lambda number: tensors.read(names[0], slice(number, number + 1))[0]


def numbers(recipe: Recipe) -> int:
    """How many weights all experts have."""
    return sum(count * inputs * outputs for count, inputs, outputs in recipe.expert_matrices)


def laid_out_bytes(config: Any, dtype: torch.dtype, rounded: str | None) -> int:
    """Bytes of the experts as the kernels have them, within a few hundredths. rounded: see `ModelRunner`."""
    return int(numbers(recipe_of(config)) * bits_of(rounded, dtype) / 8)


def class_of(config: Any) -> Any:
    """The class of transformers that a model with this config has, but for the parameters of its experts, in the place
    of which it has `StoredExperts`: nothing is read for them."""
    base, recipe = model_class(config), recipe_of(config)

    def init(self: Any, *given: Any, **named: Any) -> None:
        base.__init__(self, *given, **named)
        for name in _parameters(recipe):
            path, _, last = name.rpartition(".")
            owner = self.get_submodule(path)
            held = getattr(owner, last)
            delattr(owner, last)
            owner.add_module(last, StoredExperts(held.shape, held.dtype))

    # of the same name, by which transformers knows what stored tensors are called
    return type(base.__name__, (base,), {"__init__": init, "__module__": base.__module__})


def _parameters(recipe: Recipe) -> list[str]:
    layers = ((index, layer.experts) for index, layer in enumerate(recipe.layers))
    return [f"{recipe.stack}.{index}.{name}" for index, of in layers if of for name in (*of.gate_up, of.down)]


def find_experts(model: Any, tensors: Tensors, renamed: Mapping[str, str] | None) -> set[str] | None:
    """Say to a model of `class_of` where its experts lie; returns the names of their parameters, or None where what is
    stored would have to be changed by more than stacking it.

    tensors: of all files, by their stored names. renamed: the `key_mapping` with which it was read.

    Raises:
        DamagedModel: tensors are missing, or of another shape.
    """
    loading = transformers.core_model_loading
    transforms = transformers.conversion_mapping.get_model_conversion_mapping(model, renamed)
    renamings = [each for each in transforms if isinstance(each, loading.WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, loading.WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    experts = {name: each for name, each in model.named_modules() if isinstance(each, StoredExperts)}
    known = dict.fromkeys([*model.state_dict(), *experts], True)
    found: dict[str, dict[str | None, list[str]]] = {name: {} for name in experts}
    for stored in sorted(tensors.names, key=_numbers_last):
        name, pattern = loading.rename_source_key(stored, renamings, converters, model.base_model_prefix, known)
        if name not in known and stored in known:
            name, pattern = stored, None
        if name in found:
            found[name].setdefault(pattern, []).append(stored)
    for name, parts in found.items():
        operations = [each for pattern in parts if pattern for each in by_pattern[pattern].operations]
        if any((type(each).__name__, getattr(each, "dim", None)) not in _STACKING.items() for each in operations):
            return None
        order = {pattern: place for place, pattern in enumerate(by_pattern)}
        lists = [parts[each] for each in sorted(parts, key=lambda each: order.get(each, 0))]
        count = experts[name].shape[0]
        experts[name].lie_in(tensors, [_pattern(each) for each in lists])
        if more := [each for each in lists if len(each) not in (1, count)]:
            raise tensors.damaged(
                f"there are {len(more[0])} of {_pattern(more[0])!r}, and {count} experts in its config"
            )
    model.config._experts_implementation = "eager"  # the others of transformers take tensors alone
    model.__class__ = type(model).__base__
    return set(experts)


def _pattern(names: Sequence[str]) -> str:
    """What these names have in common, and {} for the number in which the second differs from the first."""
    if len(names) == 1:
        return names[0]
    first, second = (re.split(r"(\d+)", name) for name in names[:2])
    return "".join(_EACH if one != other else one for one, other in zip(first, second, strict=False))


def _numbers_last(name: str) -> list[tuple[int, str]]:
    """A key that sorts names by the numbers in them: expert 10 behind expert 9."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
