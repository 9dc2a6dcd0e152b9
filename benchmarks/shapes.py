"""How fast models of real shapes run: plain decoding, forwards by rows, prompts, memory, and the bytes behind it all.

    python tools/random_model.py llama-3.2-1b --folder DIR --gguf FILE.gguf --type Q4_0
    python benchmarks/shapes.py DIR FILE.gguf [--formats float32 bf16 int8 int4] [--environments ENVIRONMENTS]
        [--gguf int8=FILE.gguf ...] [--openvino DIR] [--reference DIR_OR_FILE]

A folder runs in each of the formats, a GGUF file on its own blocks. With --environments, llama.cpp takes turns on the
same file, and OpenVINO on the same folder, converted to the same format once (see peer_workers/README.md). llama.cpp
reads no folders: --gguf names the file of the same shape that it runs beside a folder in one format. OpenVINO reads no
blocks: --openvino names the model that it runs beside GGUF files. --reference is a second model that headstart runs in
turn, in the same format, so that two shapes are compared by the bytes that they read per second. Who cannot take part
is listed with the reason. Everything runs without drafts, for one request, with the same threads.

Decoding is timed as an answer of 1 + N tokens less one of 1 token. Its bytes are those of the weights that a forward of
one row reads: all but the embeddings that are read row by row. Their share of the read bandwidth is what a plain read
of as many bytes with the same threads, in the same round, would need of the time of a token. Weights in a folder count
in the bytes of headstart's format; a peer whose weights are another file, or in a format of its own, has no share.
Where a model has recurrent layers, `replay` is what a step costs more for the rows that they run again, and for the
states that they write: the mean of the steps of a round, after each of which some rows are kept, over the step for
which no row waits. Memory is what a process took after it began to load the model: the cache, and what a library needs
beside the weights, are part of it. It is divided by the weights that the engine was given, where these are known.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from configurations import Absent, Places
from gguf_peers import OURS, THEIRS, Contender, Race, costs, forwards, reading
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table
from workers import Worker

from headstart.model import int4
from headstart.model.gguf.files import open_gguf
from headstart.model.native.memory import read_bandwidth
from headstart.model.states import FOLD

FORMATS = ("float32", "bf16", "int8", "int4")
ROWS = (1, 2, 4, 8, 16, 32)
MANY = 8
"""Rows whose forward is compared with that of one."""
REPLAYED = ((1, 1), (MANY, MANY // 2))
"""Rows of a step, and those that it keeps, where the rows that recurrent layers run again are timed."""
OPENVINO = "OpenVINO plain"
REFERENCE = "headstart, the reference"
PROMPT = 128
"""Tokens of the prompt whose answer is timed."""
LARGEST_READ = 2**30
"""Bytes of the plain read: more of them are not read at another speed."""


@dataclass(frozen=True)
class Weights:
    """Bytes of a model's weights in a format."""

    stored: int
    """All of them: for a file its size."""
    read: int
    """Those that a forward of one row reads."""
    vocabulary: int


def weights_of_folder(folder: Path, kind: str) -> Weights:
    """Of the safetensors in a folder, whose heads alone are read."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    tied = not any(name.endswith("lm_head.weight") for name in shapes)

    def size(name: str) -> float:
        one = {"float32": 32.0, "bf16": 16.0, "int8": 8.0, "int4": int4.BITS_OF_A_WEIGHT}[kind]
        if len(shapes[name]) < 2:
            one = 32.0 if kind == "float32" else 16.0
        elif kind == "int4" and name.endswith(("lm_head.weight", "embed_tokens.weight")):
            one = int4.BITS_OF_THE_HEAD
        return one * math.prod(shapes[name]) / 8

    shapes = {name: shape for name, shape in shapes.items() if not name.startswith("mtp.")}  # a drafter
    tables = ("embed_tokens_per_layer.weight",) if tied else ("embed_tokens.weight", "embed_tokens_per_layer.weight")
    read = sum(size(name) for name in shapes if not name.endswith(tables))
    return Weights(int(sum(map(size, shapes))), int(read), int(config["vocab_size"]))


def weights_of_file(path: Path) -> Weights:
    """Of a GGUF file, in the bytes of its blocks."""
    file = open_gguf(path)
    tied = "output.weight" not in file.tensors
    tables = {"per_layer_token_embd.weight"} | (set() if tied else {"token_embd.weight"})
    architecture = file.metadata.text("general.architecture")
    chosen, experts = (file.metadata.whole(f"{architecture}.expert_{key}", 1) or 1 for key in ("used_count", "count"))

    def part(name: str) -> float:
        return chosen / experts if "_exps." in name else float(name not in tables)

    read = int(sum(part(name) * tensor.data.nbytes for name, tensor in file.tensors.items()))
    vocabulary = file.tensors["token_embd.weight"].shape[0]
    return Weights(sum(each.stat().st_size for each in file.paths), read, vocabulary)


def weights_of(model: Path, kind: str) -> Weights:
    """kind: of a folder; a file has its own blocks."""
    return weights_of_file(model) if model.is_file() else weights_of_folder(model, kind)


def asked(model: Path, kind: str, args: argparse.Namespace) -> tuple[list[Contender], dict[str, str]]:
    """headstart and the peers on this model in this format; and who is absent, with the reason."""
    found, absent = [Contender(OURS, "run_headstart.py", sys.executable, ours(model, kind))], {}
    if (reference := reference_of(model, args)) is not None:
        options = {**ours(reference, kind), "target": str(reference)}
        found.append(Contender(REFERENCE, "run_headstart.py", sys.executable, options))
    if args.environments is None:
        return found, absent
    environments = args.environments.absolute()
    places = Places(model, model, environments, args.converted or environments / "converted")
    for engine, label in (("llamacpp", THEIRS), ("openvino", OPENVINO)):
        try:
            python = str(places.python(engine))
            if (target := target_of(engine, places, kind, args)) is not None:
                options = {"mode": "plain", "target": str(target.absolute())}
                found.append(Contender(label, f"run_{engine}.py", python, options))
        except Absent as reason:
            absent[label] = str(reason)
    return found, absent


def ours(model: Path, kind: str) -> dict[str, Any]:
    """headstart's options for this model in this format."""
    if model.is_file():
        return {"mode": "plain"}
    return {"mode": "plain", "precision": kind, "dtype": "float32" if kind == "float32" else "bfloat16"}


def reference_of(model: Path, args: argparse.Namespace) -> Path | None:
    """Files are compared with a file, folders with a folder."""
    return next((each for each in args.reference if each.is_file() == model.is_file()), None)


def target_of(engine: str, places: Places, kind: str, args: argparse.Namespace) -> Path | None:
    """What a peer runs beside this model in this format; None where nothing was given to it."""
    if engine == "llamacpp":
        given: Path | None = places.target if kind == "gguf" else args.gguf.get(kind)
        return given
    if kind == "gguf":
        return Path(args.openvino) if args.openvino else None
    if kind == "float32":
        raise Absent("its weights are 16 bits or fewer here")
    return places.checkpoint(engine, places.target.absolute(), kind)


def decoding(race: Race, weights: Weights, args: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second after the first one and the bandwidth of a plain read, by round."""
    speeds: dict[str, list[float]] = {}
    bandwidth = []
    prompt = [(7 + 7919 * number) % weights.vocabulary for number in range(PROMPT)]
    for name in list(race.workers):
        race.complete(name, prompt, 2)  # is not counted
    for turn in track(range(args.rounds), "decoding", console=Console(stderr=True), transient=True):
        bandwidth.append(read_bandwidth(min(weights.read, LARGEST_READ)))
        for name in race.turns(turn):
            first, whole = (race.complete(name, prompt, count) for count in (1, 1 + args.max_tokens))
            if first is not None and whole is not None:
                seconds = whole[1] - first[1]
                speeds.setdefault(name, []).append(args.max_tokens / seconds if seconds > 0 else math.inf)
    return {"tokens_per_second": speeds, "bandwidth": bandwidth}


def measured(model: Path, kind: str, args: argparse.Namespace) -> dict[str, Any]:
    weights = weights_of(model, kind)
    taking_part, absent = asked(model, kind, args)
    found: dict[str, Any] = {"weights": asdict(weights)}
    if (reference := reference_of(model, args)) is not None:
        found["reference"] = {"model": reference.name, "weights": asdict(weights_of(reference, kind))}
        smaller = min(weights.vocabulary, found["reference"]["weights"]["vocabulary"])
        weights = replace(weights, vocabulary=smaller)
    if kind != "gguf" and THEIRS in {each.label for each in taking_part}:
        found["weights_of_file"] = asdict(weights_of_file(args.gguf[kind]))
    race = Race(model, args, taking_part)
    try:
        found["decoding"] = decoding(race, weights, args)
        found["forwards"] = forwards(race, args.cached, args.repetitions, ROWS)
        if (own := race.workers.get(OURS)) is not None and own.facts.get("recurrent"):
            found["replays"] = {f"{rows} rows, {kept} kept": replays(own, rows, kept, args) for rows, kept in REPLAYED}
        found["memory"] = {name: memory_of(race, name) for name in race.workers}  # before long prompts fill the cache
        found["reading"] = reading(race, args.lengths, args.readings, weights.vocabulary)
        found["facts"] = {name: worker.facts for name, worker in race.workers.items()}
    finally:
        race.stop()
    return {**found, "figures": figures(found), "absent": {**absent, **race.absent}}


def replays(worker: Worker, rows: int, kept: int, args: argparse.Namespace) -> dict[int, list[float]]:
    """Seconds of forwards of so many rows, of which so many are kept, by how many rows wait in the log of the recurrent
    layers and are run again first. Where `FOLD` of them wait, the forward writes a state, and then none wait."""
    found: dict[int, list[float]] = {waiting: [] for waiting in range(0, FOLD + 1, kept)}
    context = args.cached
    worker.forward(rows, context)  # writes the state of what is cached
    for _ in range(args.repetitions):
        for waiting, seconds in found.items():
            more = kept if waiting + kept <= FOLD else 0
            seconds.append(worker.forward(rows, context, more))
            context += more
    return found


def memory_of(race: Race, name: str) -> dict[str, int | None]:
    """whole: of the process; taken: since it began to load the model, of engines that say what they had before."""
    worker = race.workers[name]
    whole, before = worker.memory(), worker.facts.get("bytes_before")
    return {"whole": whole, "taken": None if before is None else whole - before}


def figures(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By contender: the medians of the ratios of each round."""
    speeds, bandwidth = found["decoding"]["tokens_per_second"], found["decoding"]["bandwidth"]
    weights = given_weights(found)
    peers = {name: rounds for name, rounds in speeds.items() if name in (THEIRS, OPENVINO)}
    names = ("over_best_peer", "over_reference", "share_of_bandwidth", "many_rows", "replay", "memory")
    made: dict[str, dict[str, float]] = {name: {} for name in names}
    if peers and OURS in speeds:
        best = max(peers.values(), key=median)
        ratios = [mine / theirs for mine, theirs in zip(speeds[OURS], best, strict=False)]
        made["over_best_peer"][OURS] = median(ratios)
    if REFERENCE in speeds and OURS in speeds:
        bytes_ratio = weights[OURS]["read"] / weights[REFERENCE]["read"]
        pairs = zip(speeds[OURS], speeds[REFERENCE], strict=False)
        made["over_reference"][OURS] = median(mine / other * bytes_ratio for mine, other in pairs)
    for name, rounds in speeds.items():
        if name in weights:
            shares = [speed * weights[name]["read"] / whole for speed, whole in zip(rounds, bandwidth, strict=False)]
            made["share_of_bandwidth"][name] = median(shares)
    for name, by_rows in found["forwards"].items():
        made["many_rows"][name] = by_rows[MANY] / by_rows[1]
    for steps, by_waiting in found.get("replays", {}).items():
        without, *others = (median(seconds) for seconds in by_waiting.values())
        made["replay"][steps] = mean(others) / without - 1
    for name, each in found["memory"].items():
        if each["taken"] is not None and name in weights:
            made["memory"][name] = each["taken"] / weights[name]["stored"]
    return made


def given_weights(found: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    """Of the contenders whose bytes are known: OpenVINO's formats are its own."""
    made = {OURS: found["weights"], THEIRS: found.get("weights_of_file", found["weights"])}
    if "reference" in found:
        made[REFERENCE] = found["reference"]["weights"]
    return made


HEADINGS = (
    "tokens/s (range)", "over best peer", "over reference, by bytes", "read for a token, MB", "share of read bandwidth",
    f"{MANY} rows / 1", "memory, MB", "memory / weights",
)  # fmt: skip


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """found: by model and format."""
    made = Table(title="plain decoding")
    for heading in ("", "", *HEADINGS):
        made.add_column(heading, justify="right" if heading else "left")
    for label, each in found.items():
        ratios, weights = each["figures"], given_weights(each)
        for name, rounds in each["decoding"]["tokens_per_second"].items():
            memory = each["memory"].get(name)
            made.add_row(
                label,
                name,
                f"{median(rounds):.1f} ({min(rounds):.1f} to {max(rounds):.1f})",
                _shown(ratios["over_best_peer"].get(name), ".2f"),
                _shown(ratios["over_reference"].get(name), ".2f"),
                f"{weights[name]['read'] / 1e6:.0f}" if name in weights else "",
                _shown(ratios["share_of_bandwidth"].get(name), ".0%"),
                _shown(ratios["many_rows"].get(name), ".2f"),
                "" if memory is None else f"{memory['whole'] / 1e6:.0f}",
                _shown(ratios["memory"].get(name), ".2f"),
            )
    return made


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="a folder or a GGUF file")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="of folders (all)")
    parser.add_argument("--environments", type=Path, help="directory that holds llamacpp/ and openvino/")
    parser.add_argument("--converted", type=Path, help="converted checkpoints (ENVIRONMENTS/converted)")
    parser.add_argument(
        "--gguf",
        type=_of_format,
        nargs="+",
        default=[],
        metavar="FORMAT=FILE",
        help="what llama.cpp runs beside a folder in this format",
    )
    parser.add_argument("--openvino", type=Path, metavar="DIR", help="what OpenVINO runs beside GGUF files")
    parser.add_argument(
        "--reference",
        type=Path,
        nargs="+",
        default=[],
        metavar="MODEL",
        help="a folder, a GGUF file, or both, that headstart runs in turn with the models of the same kind",
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[512], help="of prompts that are only read (512)")
    parser.add_argument("--max-tokens", type=int, default=64, help="that are decoded after the first (%(default)s)")
    parser.add_argument("--cached", type=int, default=200, help="tokens while forwards are timed (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--readings", type=int, default=3, help="rounds of prompts that are only read (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=11, help="of forwards (%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every engine (%(default)s)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    args = parser.parse_args(argv)
    args.gguf = dict(args.gguf)
    for model in (*args.models, *args.reference, *args.gguf.values()):
        if not model.is_file() and not (model / "config.json").is_file():
            parser.error(f"{model} is neither a file nor a folder with a config.json")
    for name in ("max_tokens", "cached", "rounds", "readings", "repetitions", "threads", "lengths"):
        value = getattr(args, name)
        if min(value if isinstance(value, list) else [value]) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    stepped = args.cached + args.repetitions * FOLD + max(ROWS)
    longest = max(PROMPT + 1 + args.max_tokens, stepped, max(args.lengths) + 1)
    args.context = longest + 8
    return args


def _of_format(text: str) -> tuple[str, Path]:
    kind, equals, path = text.partition("=")
    if not equals or kind not in FORMATS:
        raise argparse.ArgumentTypeError(f"{text!r} is not FORMAT=FILE with a format of {', '.join(FORMATS)}")
    return kind, Path(path)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)  # of the plain read
    console = Console(width=None if sys.stdout.isatty() else 180)
    provenance = Provenance.now("headstart", "torch", "transformers")
    start = time.perf_counter()
    found: dict[str, dict[str, Any]] = {}
    path = results_file(args.results, f"shapes-{args.models[0].resolve().name.removesuffix('.gguf')}")
    for model in args.models:
        for kind in ("gguf",) if model.is_file() else args.formats:
            label = model.name if kind == "gguf" else f"{model.resolve().name} {kind}"
            found[label] = measured(model, kind, args)
            console.print(costs(found[label], f"{label}: "))
            for steps, share in found[label]["figures"]["replay"].items():
                console.print(f"rows run again, in steps of {steps}: {share:.1%} of a step", highlight=False)
            for name, reason in found[label]["absent"].items():
                console.print(f"absent: {name}: {reason}", highlight=False, markup=False)
            record = {
                "models": found,
                "threads": args.threads,
                "max_tokens": args.max_tokens,
                "cached": args.cached,
                "seconds": time.perf_counter() - start,
                "provenance": asdict(provenance),
            }
            path.write_text(json.dumps(record, indent=1) + "\n")  # what is measured is kept
    console.print(table(found))
    console.print(f"written: {path.name}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
