"""`headstart info`: what is true of a model, without reading its weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstart.base.as_json import as_json as plain
from headstart.base.errors import HeadstartError
from headstart.base.machine import cpu_name
from headstart.base.options import option
from headstart.commands import loading as cli
from headstart.commands.options import command, only
from headstart.commands.terminal import facts_table, messages, note, output, print_error
from headstart.loading.options import InfoOptions, TargetOptions
from headstart.model import native

if TYPE_CHECKING:
    from headstart.loading.info import Format, Info

_REFUSED = 1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@command()
def info(
    *,
    words: list[str] = cli.words(
        "[MODEL]", "The model, as --model takes it. Without one, what is true of this machine."
    ),
    target: str | None = option(
        None,
        "A folder, a .gguf file, a Hugging Face hub id, or 'bundled' (a tiny model that writes Python). Without it, "
        "what is true of this machine.",
        "--model",
        "-m",
        "--target",
        metavar="MODEL",
        panel="Model",
    ),
    loading: Annotated[TargetOptions, only("device", "dtype", "cpu_level", "trust_remote_code")],
    asked: InfoOptions,
    as_json: bool = option(False, "Print all of it as JSON.", "--json", panel="Output"),
) -> None:
    """Describe a model: its layers, what would run it here, its memory, and the drafters that fit. Without a model,
    describe this machine.

    It reads the model's config, its tokenizer and the headers of its files, and no weights.

    Exit codes: 0 the model can be loaded, 1 it is refused (the message says why), 2 there is no such model.

    **Examples**

        headstart info
        headstart info bundled
        headstart info Qwen3-8B-Q4_K_M.gguf --max-model-len 16384 --max-batch-size 1
        headstart info my/model --json
    """
    del words  # none is left
    model = target
    if model is None:
        with native.using_level(loading.cpu_level):
            kernels = native.here()
        if as_json:
            from headstart.model.threads import default_threads

            said = {"processor": cpu_name(), "threads": plain(default_threads()), "kernels": plain(kernels)}
            print(json.dumps(said, indent=1))
        else:
            output().print(facts_table(_machine(kernels)))
        return
    try:
        with note(messages(), f"reading {model} …"):
            from headstart.loading.info import describe, refusal
            from headstart.model.threads import default_threads

            found = describe(model, loading, asked)
            kernels = native.here()
    except HeadstartError as error:
        if not refusal(error):
            raise
        if as_json:
            print(json.dumps({"model": model, "refused": plain(error)}, indent=1))
        else:
            print_error(error)
        raise typer.Exit(_REFUSED) from None
    if as_json:
        more = {"decoder": found.decoder, "needed": found.needed, "kernels": plain(kernels)}
        more["threads"] = plain(default_threads())
        print(json.dumps(plain(found) | more, indent=1, allow_nan=False))
    else:
        output().print(facts_table([*_facts(found), *_machine(kernels)]))


def _machine(kernels: native.Here) -> Iterator[tuple[str, str]]:
    yield "processor", f"{cpu_name()}: {', '.join(kernels.levels) or 'its levels are not known'}"
    from headstart.model.threads import default_threads  # which loads PyTorch

    cores = default_threads()
    yield "threads", f"{cores.threads}: {cores.why}"
    if kernels.level is None:
        yield "kernels", f"none: {kernels.why}"
        return
    made = "prebuilt, in the package" if kernels.prebuilt else "compiled on this machine"
    by = f", by {kernels.compiler}" if kernels.compiler else ""
    yield "kernels", f"of the level {kernels.level}{' (forced)' if kernels.forced else ''}; {made}{by}"


def _facts(found: Info) -> Iterator[tuple[str, str]]:
    of = f", the text model of {found.wrapper}" if found.wrapper else ""
    yield "model", f"{found.model}: {found.model_type} ({found.architecture}){of}"
    yield "weights", _weights(found)
    yield (
        "shape",
        (f"{found.layers} layers, {found.width} wide; {found.vocabulary:,} tokens; context {found.context_limit:,}"),
    )
    yield from _layers(found)
    yield "runs on", _runs(found)
    yield from _named("formats", [_format(each, found) for each in found.formats])
    yield "memory", _memory(found)
    yield from _experts(found)
    yield from _named("drafters", _drafters(found))
    yield "", f"auto takes {' + '.join(found.auto) or 'none'}: {found.auto_why}"


def _weights(found: Info) -> str:
    held = "" if found.file_bytes is None else f", {_bytes(found.file_bytes)} of {found.stored}"
    kinds = f" ({', '.join(list(found.types)[:4])})" if found.types else ", of which nothing is on this machine yet"
    more = sum(found.types.values()) - found.parameters
    beside = f"; {_count(more)} numbers beside them do not run" if more > 0.02 * found.parameters else ""
    return f"{_count(found.parameters)} parameters{held}{kinds}{beside if found.stored == 'safetensors' else ''}"


def _layers(found: Info) -> Iterator[tuple[str, str]]:
    """What is the same in all layers is said once."""
    kinds = found.kinds
    if not kinds:
        return
    yield "layers", ", ".join(f"{each.count} x {each.span}" for each in kinds)
    for name in ("attention", "positions", "norms", "mlp", "beside"):
        said = [getattr(each, name) for each in kinds]
        if len(set(said)) > 1:
            shared = dict.fromkeys(said)
            for one in shared:
                of = [f"{each.count} x {each.span}" for each in kinds if getattr(each, name) == one]
                yield name if one == next(iter(shared)) else "", f"{one or 'nothing'} ({', '.join(of)})"
        elif said[0]:
            yield "MLP" if name == "mlp" else name, said[0]
    if found.rest:
        yield "around", found.rest
    if found.ignored:
        yield "ignored", f"{', '.join(found.ignored)}: they change nothing here"


def _runs(found: Info) -> str:
    from headstart.loading.info import DECODERS

    first = found.formats[0]
    name = "nothing as it is" if first.decoder is None else DECODERS[first.decoder]
    return f"{name} on {found.device}" + (f", because {first.why}" if first.why else "")


def _format(each: Format, found: Info) -> str:
    from headstart.loading.info import DECODERS

    asked = f" (--quantize {each.quantize})" if each.quantize not in (None, each.name) else ""
    default = " (the default)" if each is found.formats[0] else ""
    if each.decoder is None:
        return f"{each.name}{asked}: not here: {each.why}"
    slower = each.decoder != found.formats[0].decoder
    return f"{each.name}{asked}{default}: {_bytes(each.weights)}" + (f", on {DECODERS[each.decoder]}" if slower else "")


def _memory(found: Info) -> str:
    slots = "1 slot" if found.slots == 1 else f"{found.slots} slots"
    states = f", {_bytes(found.states)} of them states" if found.states else ""
    cache = f"{slots} x {_bytes(found.cache)} of cache for {found.context:,} tokens{states}"
    fits = "fits in" if found.needed <= found.free else "does not fit in"
    beside = f" beside the {_bytes(found.mapped)} of experts that lie in a file" if found.mapped else ""
    weights = f"{_bytes(found.formats[0].weights - found.mapped)} of weights{beside}"
    rows = f" + {_bytes(found.rows)} for the rows of a forward" if found.rows else ""
    return f"{weights} + {cache}{rows} = {_bytes(found.needed)}, which {fits} the {_bytes(found.free)} that are free"


def _experts(found: Info) -> Iterator[tuple[str, str]]:
    """Where they lie."""
    if found.experts_file is None:
        return
    there = "is" if Path(found.experts_file).exists() else "will be made at the first load, and is then"
    rest = found.free - found.needed
    short = "" if rest >= found.mapped else f"; for {_bytes(max(0, rest))} of it there is memory, the disk has the rest"
    yield "experts", f"run where they lie in {found.experts_file}, which {there} mapped{short}"


def _drafters(found: Info) -> list[str]:
    fitting: dict[str, list[str]] = {}
    for each in found.drafters:
        if each.fits:
            fitting.setdefault(each.why, []).append(each.name)
    said = [f"{', '.join(names)}: {why}" for why, names in fitting.items()]
    return [*said, *(f"{each.name}: not here: {each.why}" for each in found.drafters if not each.fits)]


def _named(name: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The name beside the first line alone."""
    for number, line in enumerate(lines):
        yield "" if number else name, line


def _bytes(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"


def _count(count: int) -> str:
    for name, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{name}"
    return str(count)
