"""headstart and llama.cpp on the same tiny GGUF files: logits of every architecture and type of block, and tokens.

    python benchmarks/gguf_logits.py --environments DIR [--sources DIR] [--record]

`ENVIRONMENTS/llamacpp` holds llama-cpp-python (benchmarks/peer_workers). The files are those of tests/support/llamacpp:
random weights, no gain 1 and no bias 0, windows shorter than the text. With --sources, a checkout of llama.cpp, its
converter makes them too, and every key and tensor is compared with what the tests write. With --record the answers of
llama.cpp go to tests/model/gguf/llamacpp.npz, which the tests compare headstart with.

Errors are relative to the spread of the logits. llama.cpp keeps keys and values in float32 here and does not fuse
attention; what is left of the errors is its rounding of rows to 8 bits, where matrices are codes, and its table of GELU
in half precision.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import llamacpp as asked
from support.gguf_files import write
from support.gguf_models import IDS, off, run
from support.tiny import random_model

from headstart.model.gguf.checkpoint import load_tokenizer
from headstart.model.gguf.splits import SPLITS

WORKERS = Path(__file__).parent / "peer_workers"
IMPLIED = ("rope.dimension_count", "rope.freq_base", "attention.key_length", "attention.value_length", "vocab_size")
"""Keys that the converter leaves out where they say what is assumed without them."""
NO_PART_OF_THE_MODEL = ("GGUF.", "general.", "tokenizer.")


class LlamaCpp:
    """llama.cpp, in a process of its own for each list of questions."""

    def __init__(self, environments: Path) -> None:
        self._python = environments / "llamacpp" / "bin" / "python"
        self.said: dict[str, Any] = {}

    def logits(self, targets: list[Path]) -> list[Tensor]:
        """Of all tokens of `IDS`, [tokens, vocabulary]."""
        texts = IDS.tolist()
        shared = {"texts": texts, "judged": [len(text) for text in texts], "threads": 2, "flash": False, "keys": "F32"}
        outs = [target.with_suffix(".npy") for target in targets]
        self._ask([{"target": str(path), "out": str(out), **shared} for path, out in zip(targets, outs, strict=True)])
        return [torch.from_numpy(np.load(out)) for out in outs]

    def tokens(self, targets: list[Path], strings: tuple[str, ...]) -> list[list[list[int]]]:
        """Of each string, by file."""
        return [each["tokens"] for each in self._ask([{"target": str(path), "strings": strings} for path in targets])]

    def _ask(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        line = [str(self._python), str(WORKERS / "logits_llamacpp.py"), json.dumps(questions)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=os.environ)
        answers = [json.loads(each) for each in done.stdout.splitlines()]
        if done.returncode:
            failed = Path(questions[len(answers)]["target"]).name
            raise SystemExit(f"llama.cpp failed at {failed}: {done.stderr.strip()[-500:]}")
        self.said = {key: answers[0][key] for key in ("versions", "system")}
        return answers


def content(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a file of floats says of its model, and its tensors."""
    reader = gguf.GGUFReader(path)
    keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith(NO_PART_OF_THE_MODEL)}
    return keys, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def differences(ours: Path, theirs: Path) -> list[str]:
    """What the file that the tests write says otherwise than the converter's."""
    (keys, tensors), (their_keys, their_tensors) = content(ours), content(theirs)
    found = [f"tensor {name}" for name in sorted(tensors.keys() ^ their_tensors.keys())]
    for name in tensors.keys() & their_tensors.keys():
        if not np.allclose(tensors[name], their_tensors[name], rtol=2e-7, atol=0):
            found.append(f"tensor {name}")
    for key in sorted(keys.keys() | their_keys.keys()):
        mine, other = keys.get(key), their_keys.get(key)
        if other is None and key.partition(".")[2] in IMPLIED:
            continue
        if not _same(mine, other):
            found.append(f"{key}: {mine!r}, and the converter writes {other!r}")
    return found


def _same(mine: Any, other: Any) -> bool:
    numbers = all(isinstance(value, float | int) and not isinstance(value, bool) for value in (mine, other))
    return math.isclose(mine, other, rel_tol=1e-6) if numbers else mine == other


def convert(sources: Path, models: dict[str, Any], folder: Path) -> list[Path]:
    """The files of models by llama.cpp's converter."""
    folders = [folder / f"converted-{number}" for number in range(len(models))]
    for checkpoint, model in zip(folders, models.values(), strict=True):
        model.save_pretrained(checkpoint)
        path = checkpoint / "config.json"
        path.write_text(json.dumps(asked.published(json.loads(path.read_text()))))
        vocabulary = {str(number): number for number in range(model.config.vocab_size)}
        (checkpoint / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
    line = [sys.executable, str(WORKERS / "convert_llamacpp.py"), *map(str, (sources, *folders))]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise SystemExit(f"the converter failed: {done.stderr.strip()[-500:]}")
    return [each.with_name(f"{each.name}.gguf") for each in folders]


def compare_logits(engine: LlamaCpp, folder: Path, sources: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """By file: headstart's errors to llama.cpp's logits, and those logits to be kept."""
    found: dict[str, Any] = {}
    paths = {name: folder / f"{number}.gguf" for number, name in enumerate(asked.FILES)}
    models = {name: asked.write_case(path, name) for name, path in track_of(paths.items(), "files")}
    theirs = dict(zip(paths, engine.logits(list(paths.values())), strict=True))
    for name, path in track_of(paths.items(), "headstart"):
        floats = run(path, packed=False)[0]
        found[name] = {"headstart on floats": off(floats, theirs[name])}
        if name not in asked.FLOATS and not name.endswith("16"):
            codes = run(path)[0]
            found[name] |= {"headstart": off(codes, theirs[name]), "headstart to floats": off(codes, floats)}
    if sources is not None:
        converted = convert(sources, {name: models[name] for name in asked.FLOATS}, folder)
        pairs = zip(asked.FLOATS, converted, engine.logits(converted), strict=True)
        for name, path, logits in track_of(list(pairs), "converter"):
            found[name] |= {
                "converter differs in": differences(paths[name], path),
                "headstart on the converter's file": off(run(path, packed=False)[0], logits),
            }
    return found, {name: logits[-asked.JUDGED :].numpy() for name, logits in theirs.items()}


def compare_tokens(engine: LlamaCpp, folder: Path) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """By the name of a cut: texts of which headstart and llama.cpp make other tokens; and llama.cpp's tokens."""
    found, kept = {}, {}
    paths = [
        write(folder / f"{pre}.gguf", random_model("llama"), tokenizer=asked.crossing(pre))
        for pre in track_of(SPLITS, "vocabularies")
    ]
    for pre, path, theirs in zip(SPLITS, paths, engine.tokens(paths, asked.CUT), strict=True):
        tokenizer = load_tokenizer(str(path))
        pairs = zip(asked.CUT, theirs, strict=True)
        found[pre] = [text for text, ids in pairs if tokenizer(text)["input_ids"] != ids]
        kept[pre] = np.array([number for ids in theirs for number in (*ids, -1)], np.int16)
    return found, kept


def track_of(what: Iterable[Any], label: str) -> Iterable[Any]:
    return track(list(what), label, console=Console(stderr=True), transient=True)


def tables(logits: dict[str, Any], tokens: dict[str, list[str]]) -> list[Table]:
    of_logits = Table(title="largest error, relative to the spread of llama.cpp's logits")
    columns = ("headstart on floats", "headstart", "headstart to floats", "headstart on the converter's file")
    for heading in ("file", *columns, "converter differs in"):
        of_logits.add_column(heading)
    for name, of in logits.items():
        shown = (f"{of[key]:.1e}" if key in of else "" for key in columns)
        of_logits.add_row(name, *shown, "; ".join(of.get("converter differs in", ())))
    of_tokens = Table(title=f"texts of {len(asked.CUT)} with other tokens")
    for heading in ("cut", "composed here", "cut otherwise by llama.cpp", "unexplained"):
        of_tokens.add_column(heading)
    for pre, texts in tokens.items():
        unexplained = [text for text in texts if asked.same_tokens(pre, text)]
        otherwise = sum(text in asked.OTHERWISE.get(pre, ()) for text in texts)
        composed = len(texts) - otherwise - len(unexplained)
        of_tokens.add_row(pre, str(composed), str(otherwise), "; ".join(map(repr, unexplained)))
    return [of_logits, of_tokens]


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--environments", type=Path, required=True, help="directory that holds llamacpp/")
    parser.add_argument("--sources", type=Path, help="a checkout of llama.cpp: its converter is compared, too")
    parser.add_argument("--record", action="store_true", help="keep llama.cpp's answers for the tests")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    provenance = Provenance.now("headstart", "torch", "transformers", "tokenizers", "gguf")
    with tempfile.TemporaryDirectory() as name:
        engine = LlamaCpp(args.environments)
        logits, kept = compare_logits(engine, Path(name), args.sources)
        tokens, kept_tokens = compare_tokens(engine, Path(name))
    for table in tables(logits, tokens):
        console.print(table)
    if args.record:
        np.savez_compressed(asked.RECORD, **kept, **{f"cut {pre}": ids for pre, ids in kept_tokens.items()})
        console.print(f"kept: {asked.RECORD.name}, {asked.RECORD.stat().st_size} bytes", highlight=False)
    record = {
        "errors": logits,
        "other_tokens": {pre: {text: asked.same_tokens(pre, text) for text in texts} for pre, texts in tokens.items()},
        "llama.cpp": engine.said,
        "provenance": asdict(provenance),
    }
    path = results_file(args.results, "gguf-logits")
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
