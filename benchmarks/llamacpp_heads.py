"""llama-server with a head that headstart exported, beside headstart: accepted tokens of the same greedy texts.

    headstart export --engine llama.cpp TARGET.gguf HEAD -o OUT --dtype float32
    python benchmarks/llamacpp_heads.py OUT ... --server llama.cpp/build/bin/llama-server

Each export's own prompts are sent to llama-server one after the other, started by the export's script. headstart then
drafts chains of the same length on the same files. llama.cpp keeps keys and values in float32 and does not fuse
attention here, so that what differs is the order in which numbers are added.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table

import headstart
from headstart.base.prompt_sets import read_prompt_set
from headstart.drafters import Drafter
from headstart.drafters.dflash import DFlashDrafter
from headstart.drafters.eagle import EagleDrafter
from headstart.engine.in_turn import run_once
from headstart.fleet.export.manifest import Manifest, read_manifest
from headstart.fleet.http import answers
from headstart.fleet.http import ask as http_ask
from headstart.fleet.processes import Children
from headstart.pacing import FixedPacing
from headstart.types import Sampling

EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32", "-ctkd", "f32", "-ctvd", "f32")
"""Options with which llama-server rounds neither keys nor values."""
STARTED = 120.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one text. forwards: of the target that gave tokens, the prompt's last one among them."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int

    @property
    def forwards(self) -> int:
        return len(self.tokens) - self.accepted


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def served(folder: Path, server: Path, more: Sequence[str]) -> Iterator[str]:
    """The export's script, run until the block ends; its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    line = [str(folder / "serve-llama-server.sh"), "--host", "127.0.0.1", "--port", str(port), "-np", "1", *more]
    with Children(folder) as children:
        child = children.start("llama-server", line, env={**os.environ, "LLAMA_SERVER": str(server)})
        children.wait([(child, lambda: answers(address, "/health"))], seconds=STARTED)
        yield address


def ask(address: str, prompt: Sequence[int], max_tokens: int) -> Counted:
    body = {
        "prompt": list(prompt), "n_predict": max_tokens, "temperature": 0.0, "cache_prompt": False,
        "return_tokens": True, "samplers": ["temperature"],
    }  # fmt: skip
    found = http_ask("POST", f"{address}/completion", json=body, seconds=600).raise_for_status().json()
    timings = found["timings"]
    return Counted(tuple(found["tokens"]), timings.get("draft_n", 0), timings.get("draft_n_accepted", 0))


def here(manifest: Manifest, head: str, prompts: Sequence[Sequence[int]], dtype: str, max_tokens: int) -> list[Counted]:
    """The same in headstart."""
    model = headstart.Target(manifest.target.name, dtype=dtype, quantize="none")
    kind: Any = EagleDrafter if manifest.drafter.kind == "eagle3" else DFlashDrafter
    more = {"quantize": None} if kind is EagleDrafter else {}
    drafter: Drafter = kind.load(
        head, model.runner, target_folder=model.checkpoint.source, slots=1, budget=manifest.depth, tree="none", **more
    )
    engine = model.engine(drafter, pacing="fixed", num_speculative_tokens=manifest.depth, max_batch_size=1)
    found = []
    with engine.paced(FixedPacing(manifest.depth)):
        for prompt in prompts:
            output = run_once("heads", engine, list(prompt), Sampling(max_tokens=max_tokens, temperature=0.0)).output
            stats = output.stats
            found.append(Counted(tuple(output.tokens), stats.drafted, stats.accepted))
    return found


def compare(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    manifest = read_manifest(folder)
    items = read_prompt_set(args.prompts or folder / "prompts.jsonl")[: args.limit]
    prompts: list[Any] = [item.prompt for item in items]
    options = ("-t", str(args.threads), *(() if args.rounded else EXACT))
    with served(folder, args.server, options) as address:
        theirs = [ask(address, prompt, args.max_tokens) for prompt in prompts]
    ours = here(
        manifest, manifest.drafter.origin if args.head is None else args.head, prompts, args.dtype, args.max_tokens
    )
    pairs = list(zip(ours, theirs, strict=True))
    whole = {
        name: {
            "tokens": sum(len(one.tokens) for one in each),
            "forwards": sum(one.forwards for one in each),
            "drafted": sum(one.drafted for one in each),
            "accepted": sum(one.accepted for one in each),
        }
        for name, each in (("headstart", ours), ("llama.cpp", theirs))
    }
    return {
        "target": Path(manifest.target.name).name,
        "kind": manifest.drafter.kind,
        "depth": manifest.depth,
        "prompts": len(pairs),
        "same_texts": sum(mine.tokens == other.tokens for mine, other in pairs),
        "same_counts": sum((mine.tokens, mine.accepted) == (other.tokens, other.accepted) for mine, other in pairs),
        **whole,
        "texts": [[asdict(mine), asdict(other)] for mine, other in pairs] if args.texts else [],
    }


def table(found: Sequence[dict[str, Any]]) -> Table:
    made = Table(title="tokens per forward of the target; accepted of drafted tokens")
    for heading in ("target", "head", "K", "prompts", "same texts", "same counts", "headstart", "", "llama.cpp", ""):
        made.add_column(heading)
    for one in found:
        cells = [one["target"], one["kind"], one["depth"], one["prompts"], one["same_texts"], one["same_counts"]]
        for name in ("headstart", "llama.cpp"):
            of = one[name]
            cells += [f"{of['tokens'] / of['forwards']:.3f}", f"{of['accepted']}/{of['drafted']}"]
        made.add_row(*map(str, cells))
    return made


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "exports", type=Path, nargs="+", help="folders that `headstart export --engine llama.cpp` wrote"
    )
    parser.add_argument("--server", type=Path, required=True, help="llama-server")
    parser.add_argument("--head", help="the head's directory, where it lies elsewhere than when it was exported")
    parser.add_argument("--prompts", type=Path, help="token ids as JSONL, where the exports have none of their own")
    parser.add_argument("--dtype", default="float32", help="of headstart")
    parser.add_argument("--limit", type=int, default=64, help="the first N prompts")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounded", action="store_true", help="llama.cpp's own defaults: keys and values in float16")
    parser.add_argument("--texts", action="store_true", help="keep the tokens of every text in the record")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    provenance = Provenance.now("headstart", "torch", "transformers")
    found = [compare(folder, args) for folder in args.exports]
    console.print(table(found))
    version = subprocess.run([str(args.server), "--version"], capture_output=True, text=True, check=False)
    record = {"heads": found, "llama.cpp": version.stderr.strip(), "provenance": asdict(provenance)}
    path = results_file(args.results, "llamacpp-heads")
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
