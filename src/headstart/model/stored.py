"""Whether a config and the weights beside it are of one model: before anything is made, and after all was read.

transformers draws random numbers for weights that it does not find, and passes over those that it has no place for.
Both leave a model that writes something else than its makers' does, so both are errors here.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.model.layer_configs import values_of
from headstart.model.recipes import MOST_LAYERS
from headstart.model.recipes.stated import LAYERS_AFTER

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_MOST_LABELS = 100_000
"""The same of classes, for which configs make tables."""
_SPARE = 1.5

_SIZES = (
    *_LAYERS, "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip

_SHAPES = ("vocab_size", "hidden_size", "intermediate_size", "head_dim")
"""Fields that shapes of weights follow from."""

_NUMBERED = re.compile(r"(?P<stack>.*?)\.(?P<index>\d+)\.")
_SAYS_NOTHING = re.compile(r"(\.attn\.(masked_)?bias|\.attention\.(masked_)?bias|inv_freq|[._](k|v|kv)_scale)$")
"""Ends of names that old or quantised checkpoints hold beside the weights: masks and frequencies that the config gives,
and scales of a cache that is not rounded here."""


def layers_after(stated: Callable[[str], Any]) -> int:
    """How many layers after the last guess further tokens, by what a config states of its text. transformers' classes
    do not run them."""
    return max((found for name in LAYERS_AFTER if isinstance(found := stated(name), int)), default=0)


_AGAIN = "copy or download the checkpoint again, all of it; or its config.json is of another model"
_reports = logging.getLogger("transformers.modeling_utils")


Names = Callable[[str], str | None]
"""What the class of a model calls a stored tensor; None for one that is no part of the model: see `wrappers`."""


@dataclass(frozen=True, slots=True)
class Held:
    """What files of weights hold, by their heads."""

    types: Mapping[str, int]
    """Numbers by type, the most first."""
    bytes: int

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, int, int]]) -> Held:
        """From the type, the numbers and the bytes of each tensor."""
        types, size = Counter[str](), 0
        for kind, count, taken in tensors:
            types[kind] += count
            size += taken
        return cls(dict(types.most_common()), size)

    @property
    def numbers(self) -> int:
        return sum(self.types.values())


def held_in(folder: Path) -> Held:
    """What the safetensors in a directory hold.

    Raises:
        SafetensorError: a head cannot be read.
    """
    return Held.of(tensor for file in sorted(folder.glob("*.safetensors")) for tensor in _tensors(file))


def check_counts(folder: Path, stated: Mapping[str, Any], names: Names = str) -> None:
    """Refuse numbers of layers that the files in a directory cannot hold, before anything of such a size is made, and
    codes that the config does not explain.

    stated: what config.json says. names: of the tensors that count; of what the config says of other parts than the
    text, nothing is asked where there are such names.

    Raises:
        DamagedModel: there are fewer tensors than layers, or weights are whole numbers without a quantisation.
    """
    found = {name: kind for file in sorted(folder.glob("*.safetensors")) for name, kind in _types(file)}
    stored = {name: kind for name, kind in found.items() if names(name) is not None}
    most = min(len(stored) or MOST_LAYERS, MOST_LAYERS)
    parts = {name: value for name, value in stated.items() if isinstance(value, Mapping)}
    if len(stored) < len(found):
        parts = {name: value for name, value in parts.items() if name == "text_config"}
    for part in (stated, *parts.values()):
        for key, limit in (*((key, most) for key in _LAYERS), ("num_labels", _MOST_LABELS)):
            claimed = part.get(key)
            if isinstance(claimed, (int, float)) and claimed > limit:
                what = f"{claimed} {'layers' if key in _LAYERS else 'labels'} ({key})"
                raise DamagedModel(f"{folder}: it claims {what}, and its files hold {len(stored)} tensors", hint=_AGAIN)
    whole = [name for name, kind in stored.items() if name.endswith(".weight") and not kind.startswith(("F", "BF"))]
    if whole and not stated.get("quantization_config"):
        raise DamagedModel(
            f"{folder}: {whole[0]} is {stored[whole[0]]}{_more(whole)}, and config.json names no quantisation",
            hint=_AGAIN,
        )


def check_amount(folder: Path, needed: int, names: Names = str) -> None:
    """Refuse files that hold far fewer numbers than the model has: transformers would draw all the others.

    needed: parameters of the model. names: of the tensors that count. What is missing of a model that is about as large
    is named by `check_complete`.

    Raises:
        DamagedModel: they do.
    """
    shapes = [each for file in sorted(folder.glob("*.safetensors")) for each in _shapes(file)]
    held = sum(math.prod(shape) for name, shape in shapes if names(name) is not None)
    if needed > _SPARE * held:
        raise DamagedModel(
            f"{folder}: its config means a model of {needed:,} weights, and its files hold {held:,}", hint=_AGAIN
        )


def check_sizes(source: str, config: Any) -> None:
    """Refuse sizes of 0 or less, of which modules can be made that fail only when they run.

    Raises:
        UnsupportedModel: there is one.
    """
    for part in (config, config.get_text_config()):
        for key in _SIZES:
            for value in values_of(part, key):
                if isinstance(value, (int, float)) and value < 1:
                    raise UnsupportedModel(f"{source!r}: {key} is {value}, which no model has", hint=_AGAIN)


def check_complete(
    source: str, model: Any, found: Mapping[str, Any], is_zero: Callable[[str], bool], *, whole: bool = False
) -> None:
    """Refuse a model of which some weights were not read, or whose layers should have more.

    found: what `from_pretrained` reports; it counts tied weights as read, and leaves out what the model's class is
    known not to use. What stands beside the model, another head say, is no part of it and is passed over, unless these
    are the weights of a whole model, of which what stands beside it has been taken away. is_zero: whether a stored
    tensor of this name holds zeros alone.

    Raises:
        DamagedModel: weights are missing, or of another shape.
        UnsupportedModel: a part of the model has weights that its class has no place for.
    """
    if wrong := sorted(found["mismatched_keys"]):
        name, there, wanted = wrong[0]
        what = f"{name} is {list(there)}, and its config means {list(wanted)}{_keys_of(model.config, there, wanted)}"
        raise DamagedModel(f"{source!r}: {what}{_more(wrong)}", hint=_AGAIN)
    if missing := sorted(found["missing_keys"]):
        raise DamagedModel(f"{source!r}: {missing[0]} is missing{_more(missing)}", hint=_AGAIN)
    left = [name for name in sorted(found["unexpected_keys"]) if not _SAYS_NOTHING.search(name)]
    left = [name for name in left if whole or _changes(name, model)]
    left = [name for name in left if not (name.endswith(".bias") and is_zero(name))]
    if left:
        raise UnsupportedModel(
            f"{source!r} holds {left[0]}{_more(left)}, for which the {model.config.model_type} of its config has no "
            f"place{_layers_of(left[0], model.config)}",
            hint=_AGAIN,
        )


@contextmanager
def unreported() -> Iterator[None]:
    """Keep transformers' table of missing and unexpected weights off the terminal: `check_complete` judges them."""

    def wanted(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    _reports.addFilter(wanted)
    try:
        yield
    finally:
        _reports.removeFilter(wanted)


def _changes(name: str, model: Any) -> bool:
    """Whether a tensor that was passed over belongs to a part of the model: one of its modules, or one more layer."""
    prefix = f"{model.base_model_prefix}."
    name = name.removeprefix(prefix)
    modules = {module.removeprefix(prefix) for module, _ in model.named_modules()}
    numbered = _NUMBERED.match(name)
    if numbered is None:
        return name.rpartition(".")[0] in modules - {"", model.base_model_prefix}
    stack, index = numbered["stack"], int(numbered["index"])
    layers = sum(owner == stack and last.isdigit() for owner, _, last in (each.rpartition(".") for each in modules))
    config = model.config.get_text_config()
    after = layers_after(lambda key: getattr(config, key, None))
    return layers > 0 and not layers <= index < layers + after


def _types(file: Path) -> Iterator[tuple[str, str]]:
    """Names and types of a file's tensors."""
    with safe_open(file, framework="pt") as stored:
        for name in stored.keys():  # noqa: SIM118 -- not a mapping
            yield name, str(stored.get_slice(name).get_dtype())


def _shapes(file: Path) -> Iterator[tuple[str, list[int]]]:
    with safe_open(file, framework="pt") as stored:
        for name in stored.keys():  # noqa: SIM118
            yield name, stored.get_slice(name).get_shape()


def _tensors(file: Path) -> Iterator[tuple[str, int, int]]:
    """Type, numbers and bytes of a file's tensors."""
    with safe_open(file, framework="pt") as stored:
        for name in stored.keys():  # noqa: SIM118
            tensor = stored.get_slice(name)
            kind, count = str(tensor.get_dtype()), math.prod(tensor.get_shape())
            yield kind, count, count * _bits(kind) // 8


def _bits(kind: str) -> int:
    """Of a number, by the first digits of its type: BF16, F32, F8_E4M3, I64, BOOL."""
    found = re.match(r"[A-Z]+(\d+)", kind)
    return int(found[1]) if found else 8


def _keys_of(config: Any, there: Sequence[int], wanted: Sequence[int]) -> str:
    """The keys of a config that say a size which the weights have not, in words; nothing where none does."""
    text = config.get_text_config()
    said = {key: _read(text, key) for key in _SHAPES}
    heads, dim = {key: _read(text, key) for key in _SIZES if "heads" in key}, said["head_dim"]
    if dim is None and isinstance(said["hidden_size"], int) and isinstance(heads["num_attention_heads"], int):
        dim = said["hidden_size"] // heads["num_attention_heads"]
    if isinstance(dim, int):
        said |= {f"{key} * head_dim": count * dim for key, count in heads.items() if isinstance(count, int)}
    sizes = [size for size, held in zip(wanted, there, strict=False) if size != held]
    keys = [f"{key} is {size}" for size in sizes for key, value in said.items() if value == size]
    return f" ({', '.join(keys)})" if keys else ""


def _layers_of(name: str, config: Any) -> str:
    """How many layers a config states, where a tensor is of one more."""
    numbered, count = _NUMBERED.match(name), _read(config.get_text_config(), "num_hidden_layers")
    more = numbered is not None and isinstance(count, int) and int(numbered["index"]) >= count
    return f" (num_hidden_layers is {count})" if more else ""


def _read(text: Any, key: str) -> Any:
    """A field of a config; None where it is missing, or differs from layer to layer."""
    try:
        return getattr(text, key, None)
    except ValueError:
        return None


def _more(names: list[Any]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
