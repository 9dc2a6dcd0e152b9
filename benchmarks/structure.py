"""What a grammar costs, and what its certain tokens save: answers in JSON with a schema and without, plain and drafted.

    python benchmarks/structure.py --target DIR [--drafter auto] [--dtype bf16] [--rounds 5]

Each prompt asks for JSON of a schema, which it shows. Four ways take turns on every prompt: without drafts and with the
drafter, each with the schema as a grammar and as a plea alone. Texts with a grammar and without differ, so tokens per
second after the first are compared, by round: an answer with a grammar is shorter, so that reading the prompt would
take more of its time. The share of answers without a grammar that are JSON of the schema's fields is
counted as well, since that is what one gets for nothing.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headstart as hs

TEXT = {"type": "string", "maxLength": 60}
SCHEMAS: dict[str, dict[str, Any]] = {
    "Name a famous novel.": {"title": TEXT, "author": TEXT, "year": {"type": "integer"}},
    "Describe the weather of a day in spring.": {
        "sky": {"enum": ["clear", "cloudy", "overcast"]}, "degrees": {"type": "number"}, "rain": {"type": "boolean"},
    },
    "Invent a person.": {
        "name": TEXT, "age": {"type": "integer"}, "email": TEXT,
        "address": {"type": "object", "properties": {"street": TEXT, "city": TEXT}, "required": ["street", "city"],
                    "additionalProperties": False},
    },
    "List three fruits with their colours.": {
        "fruits": {"type": "array", "minItems": 3, "maxItems": 3, "items": {
            "type": "object", "properties": {"name": TEXT, "colour": TEXT}, "required": ["name", "colour"],
            "additionalProperties": False}},
    },
    "Sort this review: 'The food was cold, but the waiter was kind.'": {
        "sentiment": {"enum": ["positive", "negative", "mixed"]}, "reasons": {
            "type": "array", "items": TEXT, "minItems": 1, "maxItems": 3},
    },
    "Give a recipe for pancakes.": {
        "name": TEXT, "servings": {"type": "integer"}, "ingredients": {
            "type": "array", "items": TEXT, "minItems": 3, "maxItems": 6}, "minutes": {"type": "integer"},
    },
    "Plan a morning in Paris.": {
        "city": TEXT, "stops": {"type": "array", "minItems": 2, "maxItems": 4, "items": {
            "type": "object", "properties": {"time": {"type": "string", "pattern": "[0-9]{2}:[0-9]{2}"}, "place": TEXT},
            "required": ["time", "place"], "additionalProperties": False}},
    },
    "Describe a laptop for a shop.": {
        "product": TEXT, "price": {"type": "number"}, "currency": {"enum": ["EUR", "USD"]}, "in_stock": {
            "type": "boolean"}, "tags": {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 4},
    },
}  # fmt: skip
WAYS = (("plain", False), ("plain", True), ("drafted", False), ("drafted", True))
"""Whether drafts are made, and whether the schema is a grammar."""


@dataclass
class Made:
    """What one way made of all prompts of a round."""

    tokens: int = 0
    forwards: int = 0
    forced: int = 0
    seconds: float = 0.0
    valid: int = 0
    texts: list[str] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


def schema_of(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def fits(text: str, properties: dict[str, Any]) -> bool:
    """Whether a text is JSON with these fields, and no others."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(found, dict) and found.keys() == properties.keys()


def measure(engines: dict[str, hs.Engine], args: argparse.Namespace) -> dict[tuple[str, bool], list[Made]]:
    """The rounds of each way, after one that is not counted."""
    found: dict[tuple[str, bool], list[Made]] = {way: [] for way in WAYS}
    for turn in track(range(args.rounds + 1), "rounds", console=Console(stderr=True), transient=True):
        made = {way: Made() for way in WAYS}
        for number, (prompt, properties) in enumerate(SCHEMAS.items()):
            first = (turn + number) % len(WAYS)
            asked = f"{prompt} Answer with JSON of this schema alone: {json.dumps(schema_of(properties))}"
            structure = hs.Structure.schema(schema_of(properties), whitespace=args.whitespace)
            for way in (*WAYS[first:], *WAYS[:first]):
                kind, grammar = way
                sampling = hs.Sampling(
                    max_tokens=args.max_tokens, temperature=args.temperature, seed=turn,
                    structure=structure if grammar else None,
                )  # fmt: skip
                out = engines[kind].chat([{"role": "user", "content": asked}], sampling)
                each = made[way]
                each.seconds += out.stats.total_seconds - out.stats.seconds_to_first_token
                each.tokens += len(out.tokens) - 1
                each.forwards += out.stats.target_forwards
                each.forced += out.stats.forced
                each.valid += fits(out.text, properties)
                each.texts.append(out.text)
        if turn:
            for way in WAYS:
                found[way].append(made[way])
    for grammar in (False, True):
        if args.temperature == 0 and found["plain", grammar][0].texts != found["drafted", grammar][0].texts:
            raise SystemExit("drafts changed a text")
    return found


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="a model with a chat template")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantize", default=None)
    parser.add_argument("--whitespace", default="flexible", choices=("flexible", "compact", "spaced"))
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(argv)
    provenance, console = Provenance.now("llguidance", "transformers"), Console()
    target = hs.Target(args.target, dtype=args.dtype, quantize=args.quantize)
    engines = {
        "plain": target.engine(None, prefix_cache=False),
        "drafted": target.engine(args.drafter, prefix_cache=False, rule="exact"),
    }
    found = measure(engines, args)

    def over(way: tuple[str, bool], other: tuple[str, bool]) -> list[float]:
        return [a.speed / b.speed for a, b in zip(found[way], found[other], strict=True)]

    rows, table = [], Table("", "grammar", "tokens/s", "over no grammar", "over plain", "tokens per forward",
                            "certain", "of the schema")  # fmt: skip
    for way in WAYS:
        kind, grammar = way
        made, free, plain = found[way], over(way, (kind, False)), over(way, ("plain", grammar))
        last = made[-1]
        row = {
            "drafts": kind == "drafted", "grammar": grammar, "tokens/s": median(each.speed for each in made),
            "over no grammar": free, "over plain": plain, "tokens per forward": last.tokens / last.forwards,
            "certain": last.forced / last.tokens, "of the schema": last.valid, "of": len(SCHEMAS),
        }  # fmt: skip
        rows.append(row)
        table.add_row(
            kind, "yes" if grammar else "no", f"{row['tokens/s']:.1f}",
            f"{median(free):.2f} ({min(free):.2f} to {max(free):.2f})",
            f"{median(plain):.2f} ({min(plain):.2f} to {max(plain):.2f})", f"{row['tokens per forward']:.2f}",
            f"{row['certain']:.0%}", f"{last.valid} of {len(SCHEMAS)}",
        )  # fmt: skip
    console.print(table)
    path = results_file(args.results, "structure")
    path.write_text(json.dumps({**provenance.rows(), "ways": rows}, indent=1) + "\n", encoding="utf-8")
    for line in (f"written: {path.name}", *provenance.lines()):
        console.print(line)


if __name__ == "__main__":
    main()
