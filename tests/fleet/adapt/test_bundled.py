"""On the bundled pair: a shifted set of prompts, learned from for a few minutes, must bring a proved gain."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headstart as hs
from headstart.base.traffic import Exchange, write
from headstart.commands.cli import app

LEVELS = ("INFO", "WARN", "ERROR", "DEBUG")
PLACES = ("cache", "worker", "router", "disk", "index", "queue", "login", "mail")
EVENTS = ("started", "stopped", "timed out", "retried", "was refused", "took too long", "has no room", "is ready")


def record(chance: random.Random, form: int) -> str:
    """A line of a log, in one of four forms. The pair has learned Python, and the draft writes these badly."""
    at = f"{chance.randrange(24):02}:{chance.randrange(60):02}"
    level, place, event = chance.choice(LEVELS), chance.choice(PLACES), chance.choice(EVENTS)
    number = chance.randrange(1000)
    if form == 0:
        return f"{at} [{level}] {place}-{number}: {place} {event}"
    if form == 1:
        return json.dumps({"time": at, "level": level.lower(), "part": place, "event": event, "id": number})
    if form == 2:
        return f"| {place} {number} | {event} | {level.lower()} | {at} |"
    return f'<event part="{place}" id="{number}" level="{level}">{place} {event} at {at}</event>'


def served(count: int, path: Path, seed: int) -> None:
    """What the bundled target answers to such prompts, greedily, as a server would have recorded it."""
    target = hs.Target("bundled", dtype="float32", max_length=512)
    engine = target.engine("eagle3", max_batch_size=16, pacing="fixed", draft_tree="none", num_speculative_tokens=4)
    chance = random.Random(seed)
    prompts = []
    for _ in range(count):
        form = chance.randrange(4)
        prompts.append("\n".join(record(chance, form) for _ in range(chance.randrange(3, 6))) + "\n")
    outputs = engine.generate(prompts, hs.Sampling(max_tokens=48))
    write(path, (Exchange(out.prompt_tokens, out.tokens) for out in outputs), target.checkpoint.fingerprint)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_the_draft_gains_on_shifted_traffic(tmp_path: Path, seed: int) -> None:
    served(160, tmp_path / "traffic.jsonl", seed)
    arguments = (
        f"adapt {tmp_path}/traffic.jsonl --target bundled --dtype float32 --drafter bundled --steps 24 --batch-size 4 "
        f"--held-out 0.25 --gate-tokens 48 --batch 16 --seed {seed} -o {tmp_path}/out"
    )
    result = CliRunner().invoke(app, arguments.split())
    print(result.stdout)
    gain = json.loads((tmp_path / "out" / "report.json").read_text())["gain"]
    assert result.exit_code == 0
    assert gain["difference"]["low"] > 0
