"""Every command, by its signature: each field arrives with the value of the command line, and nothing else is taken.

Nothing here names an option that is not special: a new field of a dataclass is tested as soon as it is there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.testing import CliRunner, Result

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, options_of, strict, types_of
from headstart.commands import cli
from headstart.commands.cli import app
from headstart.commands.options import command

SPECIAL: dict[str, tuple[list[str], Any]] = {
    "api_key_env": (["PATH"], "PATH"),
    "cpu_level": (["avx2"], "avx2"),
    "by_position": (["0.9,0.8"], (0.9, 0.8)),
    "chat_format": (["hermes"], "hermes"),
    "data": (["a.txt", "b.jsonl"], ("a.txt", "b.jsonl")),
    "device": (["cuda:1"], "cuda:1"),
    "draft_costs": (["1:0.1,24:0.2"], {1: 0.1, 24: 0.2}),
    "draft_parameters": (["1B"], 1e9),
    "draft_quantize": (["none"], None),
    "dtype": (["float32"], "float32"),
    "fan_out": (["4,3,2"], (4, 3, 2)),
    "generation_quantize": (["int8"], "int8"),
    "hits": (["0.6,0.8"], (0.6, 0.8)),
    "hits_full": (["0.7,0.9"], (0.7, 0.9)),
    "ks": (["1,2"], (1, 2)),
    "mount": (["/some/where"], "/some/where"),
    "logit_bias": (["7=-1.5", "9=2"], {7: -1.5, 9: 2.0}),
    "pacing": (["fixed"], "fixed"),
    "parameters": (["8M"], 8e6),
    "quantize": (["int8"], "int8"),
    "sequence_length": (["12"], 12),
    "settings": (["max_num_seqs=4"], {"max-num-seqs": 4}),
    "target_at": (["/some/where"], "/some/where"),
    "target_quantize": (["int8"], "int8"),
    "verify_cost": (["1:1,8:1.5"], {1: 1.0, 8: 1.5}),
}
"""Fields whose values are written differently on the command line: the words, and the value."""

RUN = ["--target", "T", "--output", "O", "d.txt"]
"""What each kind of training must be given, beside a budget."""


def walk(group: typer.Typer, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Callable[..., None]]:
    """The commands below this group: how each is called, and its function."""
    found = {}
    for each in group.registered_commands:
        assert each.callback is not None
        name = each.name or each.callback.__name__
        found[path if name == "run" else (*path, name)] = each.callback
    for below in group.registered_groups:
        assert below.typer_instance is not None
        found |= walk(below.typer_instance, (*path, str(below.name)))
    return found


def walk_all() -> dict[tuple[str, ...], Callable[..., None]]:
    """All commands: how each is called, and its function."""
    found: dict[tuple[str, ...], Callable[..., None]] = {}
    for name in cli.COMMANDS:
        body = getattr(import_module(f"headstart.commands.{name}"), name)
        found |= walk(body, (name,)) if isinstance(body, typer.Typer) else {(name,): body}
    return found


COMMANDS = walk_all()


def dataclasses_of(function: Callable[..., None]) -> dict[str, type[Any]]:
    """The parameters of a command that are dataclasses."""
    hints = get_type_hints(inspect.unwrap(function))
    return {name: hint for name, hint in hints.items() if hasattr(hint, "__dataclass_fields__")}


FIELDS = [
    (path, parameter, field)
    for path, function in COMMANDS.items()
    for parameter, cls in dataclasses_of(function).items()
    for field in options_of(cls)
    if f"{parameter}_{field}" in inspect.signature(function).parameters
]


def call(path: tuple[str, ...], words: list[str]) -> dict[str, Any]:
    """What the body of this command is called with, for these words."""
    body = inspect.unwrap(COMMANDS[path])
    seen: dict[str, Any] = {}

    @functools.wraps(body)
    def spy(**given: Any) -> None:
        seen.update(given)

    alone = typer.Typer()
    alone.command()(command()(spy))
    result = CliRunner().invoke(alone, words)
    assert result.exit_code == 0, result.output
    return seen


@functools.cache
def call_once(path: tuple[str, ...], words: tuple[str, ...]) -> dict[str, Any]:
    """The same, for the words that the tests of all fields of a command begin with."""
    return call(path, list(words))


def sample(cls: type[Any], field: str, default: Any) -> tuple[list[str], Any]:
    """Words of the command line for a field, and the value they should become."""
    each = options_of(cls)[field]
    name = next((flag for flag in each.flags if flag.startswith("--")), f"--{field.replace('_', '-')}")
    hint = types_of(cls).get(field, each.kind)
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    first = next((kind for kind in kinds if get_origin(kind) is not Literal), kinds[0])
    value: Any
    if isinstance(default, bool):
        return [name.split("/")[-1 if default else 0]], not default
    if field in SPECIAL and not (field == "dtype" and get_origin(hint) is Literal):
        words, value = SPECIAL[field]
    elif get_origin(hint) is Literal:
        value = next(choice for choice in get_args(hint) if choice != default)
        words = [value]
    elif get_origin(hint) not in (None, Union) and hasattr(get_origin(hint), "__iter__"):
        value = {int: (3, 4, 5), float: (0.25, 0.5, 0.75), str: ("one", "two", "three")}[first]
        words = [str(part) for part in value]
    elif isinstance(first, type):
        number = max(each.low, 3)  # an infinite bound is no bound
        value = {
            int: int(number) + (default == number),
            float: 0.25 if each.low <= 0.25 else each.low + 0.25,
            Path: Path("some/where"),
        }.get(first, "some/where")
        words = [str(value)]
    else:  # an optional sequence
        value = (3, 4, 5)
        words = ["3", "4", "5"]
    return (words, value) if each.positional else ([part for word in words for part in (name, word)], value)


GIVEN = {
    "adapt": ["traffic.jsonl"], "chat": ["M"], "export": ["T", "D", "--output", "O"], "index": ["DIR"],
    "info": ["M"], "launch": ["DIR"],
}  # fmt: skip
"""What other commands must be given."""


NEEDS = {
    "against": ["--endpoint", "E"],
    "tools": ["--endpoint", "E"],
    "freeze_first": ["--begin-with", "D", "--parallel", "4"],
    "learn_mask": ["--parallel", "4"],
    "mask_token": ["--parallel", "4"],
    "selector_rank": ["--parallel", "4"],
}
"""What a field cannot be given without."""


def required(path: tuple[str, ...], budget: str = "--steps") -> list[str]:
    return [*RUN, budget, "9"] if path[0] == "train" else list(GIVEN.get(path[0], ()))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_field_arrives_and_changes_nothing_else(path: tuple[str, ...]) -> None:
    for parameter, field in [(parameter, field) for of, parameter, field in FIELDS if of == path]:
        cls = dataclasses_of(COMMANDS[path])[parameter]
        before = required(path, "--minutes" if field == "minutes" else "--steps")
        before += NEEDS.get(field, [])
        without = call_once(path, tuple(before))
        words, value = sample(cls, field, getattr(without[parameter], field))
        found = call(path, [word for word in before if field != "data" or word != "d.txt"] + words)
        assert found == without | {parameter: replace(without[parameter], **{field: value})}, field


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_defaults_are_those_of_the_library(path: tuple[str, ...]) -> None:
    if path == ("bench", "compare"):
        return
    found = call(path, required(path))
    for parameter, cls in dataclasses_of(COMMANDS[path]).items():
        default = inspect.signature(inspect.unwrap(COMMANDS[path])).parameters[parameter].default
        given = {"target": "T", "output": "O", "data": ("d.txt",), "steps": 9} if "output" in options_of(cls) else {}
        assert found[parameter] == (cls(**given) if default is inspect.Parameter.empty else default)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_refused_with_the_nearest_one(path: tuple[str, ...]) -> None:
    flags = {
        "bench compare": "--fail-below", "train": "--batch-size", "generate": "--temperature", "launch": "--check-only",
    }  # fmt: skip
    flag = flags.get(" ".join(path), "--traceback")
    result = invoke(*path, flag[:-2] + flag[-1])
    assert result.exit_code == 2
    assert flag[:-2] + flag[-1] in result.stderr
    assert flag in " ".join(result.stderr.split()).partition("options: ")[2]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_and_each_of_its_options(path: tuple[str, ...]) -> None:
    result = invoke(*path, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout
    for parameter in inspect.signature(COMMANDS[path]).parameters.values():
        if parameter.annotation is not typer.Context:
            _, info = get_args(parameter.annotation)
            assert info.help.strip().endswith((".", "=")), parameter.name


# -- the declarations themselves ---------------------------------------------------------------------------------------


@strict
@dataclass(frozen=True)
class Bread:
    """A loaf."""

    slices: int = option(8, "Number of slices.", low=1)
    kind: Literal["rye", "wheat"] = option("rye", "Kind of flour.")
    weights: tuple[float, ...] = option((), "Weights of the slices in grams.", above=0)
    name: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


@strict
@dataclass(frozen=True)
class Toast(Bread):
    """A toasted loaf."""

    slices: int = 2


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"slices": 0}, "at least 1"),
        ({"slices": 1.5}, "a whole number"),
        ({"kind": "oat"}, "kind is 'rye' or 'wheat'"),
        ({"weights": [3, 0]}, "above 0"),
        ({"weights": "3"}, "a list of numbers"),
        ({"slice": 3}, "did you mean 'slices'?"),
    ],
)
def test_values_are_checked_by_type_and_bounds(wrong: dict[str, Any], hint: str) -> None:
    for cls in (Bread, Toast):
        with pytest.raises(InvalidOption) as caught:
            cls(**wrong)
        assert hint in caught.value.hint


def test_a_subclass_may_change_a_default_and_keeps_the_option() -> None:
    assert Toast().slices == 2
    assert options_of(Toast)["slices"] is options_of(Bread)["slices"]
    assert "slices: Number of slices." in str(Toast.__doc__)
