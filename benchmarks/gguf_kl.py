"""What running a GGUF file costs in accuracy: headstart on the file's blocks and llama.cpp, against the same weights in
float32.

    python benchmarks/gguf_kl.py --target FILE.gguf --texts FILE.jsonl [--environments DIR]

The reference is transformers' own modules in float32 on the file's dequantised weights, so that nothing but the
engines' own rounding is measured: of the rows that are multiplied, of keys and values, of sums. All judge the same
positions, the answers of a file of {"prompt": [ids], "output": [ids]} lines, as `headstart train` writes them. The KL
divergence is sum p (log p - log q) in nats, p the reference's distribution and q the engine's, at temperature 1.

llama.cpp runs in `ENVIRONMENTS/llamacpp` (benchmarks/peer_workers); where that is missing it is left out, with the
reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import headstart as hs
from headstart.model import loading
from headstart.model.packed import Segment

REFERENCE = "float32 on the file's weights"
WORKER = Path(__file__).parent / "peer_workers" / "logits_llamacpp.py"


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and an answer, of which every position is judged that predicts a token of the answer."""

    ids: tuple[int, ...]
    judged: int

    @property
    def given(self) -> tuple[int, ...]:
        """What is read: all but the last token, which predicts nothing here."""
        return self.ids[:-1]


def read_texts(path: Path, tokens: int, longest: int, seed: int) -> list[Text]:
    """Texts in a random order until their answers have so many tokens; at most `longest` tokens each."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    random.Random(seed).shuffle(lines)
    found: list[Text] = []
    for line in lines:
        ids, judged = tuple(line["prompt"] + line["output"]), len(line["output"])
        if judged >= 16 and len(ids) <= longest and sum(text.judged for text in found) < tokens:
            found.append(Text(ids, judged))
    return found


def reference(target: str, texts: list[Text]) -> Tensor:
    """Logits [positions, vocabulary] of transformers' modules in float32."""
    model = loading.read_model(target, loading.load_config(target, trust_remote_code=False), torch.float32)
    progress = track(texts, "reference", console=Console(stderr=True), transient=True)
    with torch.inference_mode():
        return torch.cat(
            [model(torch.tensor([text.given]), use_cache=False).logits[0, -text.judged :] for text in progress]
        )


def ours(target: hs.Target, texts: list[Text]) -> Tensor:
    """The same of headstart."""
    cache, found = target.runner.new_cache(1), []
    for text in track(texts, "headstart", console=Console(stderr=True), transient=True):
        slot = cache.acquire()
        found.append(target.runner.forward([Segment(slot, text.given, judged=text.judged)], cache).logits.float())
        cache.release(slot)
    return torch.cat(found)


def llama_cpp(target: str, texts: list[Text], environments: Path) -> tuple[Tensor, dict[str, Any]]:
    """The same of llama.cpp, and what it says of itself.

    Raises:
        RuntimeError: it is not there, or it failed.
    """
    python = environments / "llamacpp" / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"no environment llamacpp in {environments.name}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.npy"
        options = {
            "target": target,
            "texts": [list(text.given) for text in texts],
            "judged": [text.judged for text in texts],
            "threads": torch.get_num_threads(),
            "out": str(out),
        }
        done = subprocess.run(
            [str(python), str(WORKER), json.dumps(options)], capture_output=True, text=True, check=False, env=os.environ
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
        return torch.from_numpy(np.load(out)), json.loads(done.stdout)


def divergences(right: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """For each position the KL divergence in nats, and whether the likeliest token is the same."""
    kl = []
    for a, b in zip(right.split(64), found.split(64), strict=True):
        p, q = a.double().log_softmax(-1), b.double().log_softmax(-1)
        kl.append((p.exp() * (p - q)).sum(-1))
    return torch.cat(kl), right.argmax(-1) == found.argmax(-1)


def facts(kl: Tensor, same: Tensor) -> dict[str, float]:
    return {
        "mean": float(kl.mean()),
        "mean_error": float(kl.std() / len(kl) ** 0.5),
        "median": float(kl.median()),
        "p99": float(kl.quantile(0.99)),
        "most": float(kl.max()),
        "same_likeliest": float(same.double().mean()),
    }


def engines(args: argparse.Namespace, texts: list[Text], absent: dict[str, str]) -> Iterator[tuple[str, Tensor, Any]]:
    """Name, logits, and what the engine says of itself; reasons go into `absent`."""
    target = hs.Target(args.target, dtype="float32", max_length=max(len(text.ids) for text in texts))
    yield "headstart", ours(target, texts), target.runner.weights_in_words
    try:
        found, said = llama_cpp(args.target, texts, args.environments)
        yield "llama.cpp", found, said
    except RuntimeError as error:
        absent["llama.cpp"] = str(error)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", required=True, help="a GGUF file")
    parser.add_argument("--texts", type=Path, required=True, help="JSONL of prompt and output, token ids")
    parser.add_argument("--tokens", type=int, default=600, help="positions that are judged, at least (%(default)s)")
    parser.add_argument("--longest", type=int, default=512, help="tokens of a text (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of texts (%(default)s)")
    parser.add_argument("--environments", type=Path, default=Path("environments"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 120)
    provenance = Provenance.now("headstart", "torch", "transformers")
    texts = read_texts(args.texts, args.tokens, args.longest, args.seed)
    right = reference(args.target, texts)
    absent: dict[str, str] = {}
    tables: dict[str, Any] = {}
    each: dict[str, Tensor] = {}
    table = Table(title=f"{Path(args.target).name}: {len(right)} positions of {len(texts)} texts, against {REFERENCE}")
    for heading in ("", "mean KL, nats", "median", "99%", "most", "likeliest token the same"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, logits, said in engines(args, texts, absent):
        kl, same = divergences(right, logits)
        found = facts(kl, same)
        each[name], tables[name] = kl, {**found, "engine": said}
        table.add_row(
            name,
            f"{found['mean']:.5f} ± {found['mean_error']:.5f}",
            *(f"{found[key]:.4f}" for key in ("median", "p99", "most")),
            f"{found['same_likeliest']:.1%}",
        )
    console.print(table)
    if "llama.cpp" in each:
        apart = each["headstart"] - each["llama.cpp"]
        tables["headstart - llama.cpp"] = {
            "mean": float(apart.mean()),
            "mean_error": float(apart.std() / len(apart) ** 0.5),
        }
        of = tables["headstart - llama.cpp"]
        console.print(f"headstart - llama.cpp, position by position: {of['mean']:+.5f} ± {of['mean_error']:.5f} nats")
    for name, why in absent.items():
        console.print(f"{name} is left out: {why}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    record = {
        "target": Path(args.target).name,
        "texts": {"file": args.texts.name, "count": len(texts), "positions": len(right), "seed": args.seed},
        "kl_to_float32": tables,
        "absent": absent,
        "provenance": asdict(provenance),
    }
    path = results_file(args.results, f"gguf-kl-{Path(args.target).stem}")
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
