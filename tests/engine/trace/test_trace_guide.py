"""The guide names every field of the format, and its worked example is the recorded one."""

from __future__ import annotations

import re
from pathlib import Path

from headstart.engine.trace import read_trace, schema

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guides" / "read-a-trace.md").read_text(encoding="utf-8")


def test_every_field_is_in_the_tables() -> None:
    named = set(re.findall(r"`(\w+)`", GUIDE))
    for name, part in schema()["$defs"].items():
        missing = set(part["properties"]) - named
        assert not missing, f"the guide does not tell {missing} of {name}"


def test_the_example_is_a_recorded_step() -> None:
    request = read_trace(ROOT / "src" / "headstart" / "learn" / "traces" / "draft-model.jsonl").requests[0]
    step = request.steps[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in GUIDE.splitlines()
        if re.match(r"\| [0-4] \|", line)
    ]
    assert len(rows) == len(step.nodes) == 5
    for (number, guess, *values, state), node, token in zip(rows, step.nodes, step.tokens, strict=True):
        assert guess == "four spaces" if number == "0" else guess.strip("`").strip() == request.text(token).strip()
        assert state == node.state
        for told, value in zip(values, (node.p, node.q, node.uniform, node.weight), strict=True):
            assert (told == "") == (value is None)
            assert value is None or abs(float(told) - value) <= 0.5e-4
    assert f'"emitted": {step.emitted}' in GUIDE
    assert step.procedure == "traverse"
    assert request.text(step.emitted[-1]) == " set"
