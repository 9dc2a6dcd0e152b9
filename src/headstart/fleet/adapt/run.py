"""`adapt`: from a file of traffic to a drafter that is proved better on it, or to the reason why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.as_json import as_json
from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.files import replacing
from headstart.base.options import values_of
from headstart.base.traffic import Exchange, Tokens, Traffic, read
from headstart.engine.prompts import encode_after
from headstart.fleet.adapt import gate
from headstart.fleet.adapt.gate import Advance, Gain, Pair
from headstart.fleet.adapt.learn import deployed, learn
from headstart.fleet.adapt.options import GateOptions, Learning
from headstart.fleet.adapt.split import HeldOut, Split, require, split
from headstart.loading.load import Target
from headstart.measure.provenance import Provenance
from headstart.train import output
from headstart.train.harness import Observer, TrainingResult

REPORT = "report.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Material:
    """Traffic that fits the target, and how it was divided."""

    file: Path
    traffic: Traffic
    split: Split
    too_long: int
    """Held-out prompts left out because context has no room for their continuation."""

    @property
    def counts(self) -> dict[str, int]:
        """For a report: numbers alone."""
        found = self.split
        return {
            "exchanges": len(self.traffic.exchanges),
            "tokens": sum(len(one.prompt) + len(one.output) for one in self.traffic.exchanges),
            "learnt": len(found.learnt),
            "learnt_tokens": sum(len(one.prompt) + len(one.output) for one in found.learnt),
            "held_out": len(found.held_out),
            "held_out_conversations": len({one.conversation for one in found.held_out}),
            "repeats": found.repeats,
            "alike": found.alike,
            "too_long": self.too_long,
        }


@dataclass(frozen=True, slots=True)
class Adapted:
    """What became of it. new: the drafter that was judged."""

    material: Material
    old: str
    new: str
    training: TrainingResult | None
    gain: Gain
    pairs: tuple[Pair, ...]

    def record(self, target: str, options: GateOptions, learning: Learning | None, made: Provenance) -> dict[str, Any]:
        """The report, as JSON values: every pair, and no text."""
        training = self.training
        return {
            "headstart_adapt": VERSION,
            "provenance": made.record(),
            "target": target,
            "old": self.old,
            "new": self.new,
            "traffic": {"file": str(self.material.file), **self.material.counts},
            "options": as_json(options),
            "training": None if training is None or learning is None else {
                **values_of(learning),
                "steps": training.steps, "tokens": training.tokens, "seconds": round(training.seconds, 1),
            },
            "gain": {**as_json(self.gain), "verdict": self.gain.verdict},
            "pairs": as_json(self.pairs),
        }  # fmt: skip


def material(file: Path, target: Target, options: GateOptions) -> Material:
    """Read the traffic and divide it.

    Raises:
        InvalidFile: it cannot be read, or is of another model.
        InvalidOption: there is too little of it.
    """
    traffic = read(file, encoder(target))
    mine = target.checkpoint.fingerprint
    if traffic.target and traffic.target != mine:
        raise InvalidFile(
            f"{file} holds what another model wrote (fingerprint {traffic.target}, {target.name} has {mine})",
            hint="name the target that was served",
        )
    _check_tokens(file, traffic, target.checkpoint.vocab_size)
    found = split(traffic.exchanges, options.held_out, salt=str(options.seed))
    room = target.checkpoint.length - options.k - 1
    fit = tuple(one for one in found.held_out if _length(one.exchange, options) <= room)
    too_long = len(found.held_out) - len(fit)
    found = Split(found.learnt, fit[: options.gate_prompts], found.repeats, found.alike)
    require(found, gate.LEAST)
    return Material(file, traffic, found, too_long)


def compare(
    target: Target,
    old: str,
    new: str,
    held_out: tuple[HeldOut, ...],
    options: GateOptions,
    advance: Advance = lambda _: None,
) -> tuple[Gain, tuple[Pair, ...]]:
    """Judge two drafters of a target on held-out prompts; their weights are read for it."""
    longest = max(_length(one.exchange, options) for one in held_out) + options.k + 1
    same = Target(target.source, **{**values_of(target.options), "max_length": longest})
    # Under rule "exact", as servers accept: seeds are here so that both drafters meet the same noise
    fixed: dict[str, Any] = {
        "rule": "exact", "pacing": "fixed", "num_speculative_tokens": options.k, "draft_tree": "none"
    }  # fmt: skip
    before, after = (same.engine(each, max_batch_size=options.batch, **fixed) for each in (old, new))
    pairs = gate.measure(
        before, after, held_out, max_tokens=options.gate_tokens, temperature=options.temperature, seed=options.seed,
        advance=advance,
    )  # fmt: skip
    return gate.judge(pairs, level=options.level, seed=options.seed), tuple(pairs)


def trained(
    target: Target, drafter: str, found: Material, folder: Path, learning: Learning, seed: int, observe: Observer
) -> TrainingResult:
    """The deployed drafter, trained further on the learnt side, in `folder / "drafter"`.

    Raises what `headstart.fleet.adapt.learn.learn` and `deployed` raise.

    Raises:
        InvalidOption: the folder holds a trained drafter.
    """
    if (folder / "drafter" / output.FILE).exists():
        raise InvalidOption(
            f"{folder / 'drafter'} holds a finished drafter",
            hint=f"judge it with --gate-only {folder / 'drafter'}, or train another one into another --output",
        )
    begun = deployed(str(target.source), drafter)
    return learn(target, begun, found.split, folder / "drafter", learning, seed, observe)


def write_report(folder: Path, record: dict[str, Any]) -> Path:
    """Write `report.json`, which names no text but says a lot about a server: with mode 600.

    Raises:
        InvalidOption: it cannot be written.
    """
    path = folder / REPORT
    try:
        with replacing(path) as partial:
            partial.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"cannot write {path}: {error.strerror or error}", hint="name another folder") from error
    return path


def encoder(target: Target) -> Callable[[str, Tokens | None], Tokens]:
    """Makes tokens of the texts of plain files."""

    def encode(text: str, before: Tokens | None) -> Tokens:
        if before is not None:
            return encode_after(target.tokenizer, before, text)
        if target.tokenizer is None:
            raise InvalidOption(f"{target.name} has no tokenizer", hint="give traffic in token ids")
        return tuple(target.tokenizer(text, verbose=False)["input_ids"])

    return encode


def _length(exchange: Exchange, options: GateOptions) -> int:
    return len(exchange.prompt) + min(options.gate_tokens, len(exchange.output))


def _check_tokens(file: Path, traffic: Traffic, vocab_size: int) -> None:
    for number, one in enumerate(traffic.exchanges, start=1):
        if max(max(one.prompt), max(one.output)) >= vocab_size:
            raise InvalidFile(
                f"{file}, exchange {number}: token ids beyond the target's {vocab_size}", hint="is it another model's?"
            )
