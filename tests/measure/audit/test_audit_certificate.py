"""The certificate: one verdict from all parts, an exit code, JSON that can be read back, and a page of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headstart.base.errors import InvalidOption
from headstart.measure.audit.certificate import HEADLINES, Certificate
from headstart.measure.audit.findings import BehaviourResult, Check, Trial, check
from headstart.measure.pages.audit_page import audit_page
from headstart.measure.provenance import Provenance


@dataclass(frozen=True)
class Found:
    verdict: Any
    reasons: list[str]

    def record(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "reasons": self.reasons, "value": float("inf")}


def certificate(**parts: str) -> Certificate:
    found = {name: Found(verdict, [f"{name} is {verdict}"]) for name, verdict in parts.items()}
    return Certificate({"name": "s"}, {"name": "r"}, found, {"level": 0.01}, Provenance.now(), ("a note",))


@pytest.mark.parametrize(
    ("parts", "verdict", "code"),
    [
        ({"sampling": "lossless", "greedy": "lossless", "behaviour": "lossless"}, "lossless", 0),
        ({"greedy": "lossless"}, "lossless", 0),
        ({"sampling": "lossless", "greedy": "lossless", "behaviour": "undecided"}, "lossless", 0),
        ({"sampling": "not lossless", "greedy": "lossless"}, "not lossless", 1),
        ({"sampling": "lossless", "greedy": "lossless", "behaviour": "not lossless"}, "not lossless", 1),
        ({"sampling": "undecided", "greedy": "not lossless"}, "not lossless", 1),
        ({"sampling": "undecided", "greedy": "lossless"}, "undecided", 2),
        ({"behaviour": "lossless"}, "undecided", 2),
        ({}, "undecided", 2),
    ],
)
def test_one_verdict(parts: dict[str, str], verdict: str, code: int) -> None:
    made = certificate(**parts)
    assert (made.verdict, made.exit_code) == (verdict, code)
    if verdict in parts.values():
        assert verdict in made.reasons[0], "the part that decides comes first"


def test_the_json_can_be_read_back(tmp_path: Path) -> None:
    made = certificate(sampling="undecided", greedy="lossless")
    record = json.loads(made.write(tmp_path / "new" / "c.json").read_text(encoding="utf-8"))
    assert record == made.record()
    assert (record["headstart_audit"], record["verdict"], record["exit_code"]) == (1, "undecided", 2)
    assert record["parts"]["sampling"]["value"] == "inf", "JSON knows no infinity"
    assert record["provenance"]["versions"]["headstart"]


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "benchmarks" / "results").glob("audit-*.json")))
def test_an_older_certificate_has_a_page(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert HEADLINES[record["verdict"]] in audit_page(record).html()


def test_a_certificate_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text("{")
    with pytest.raises(InvalidOption, match="cannot write"):
        certificate().write(file / "d.json")


def test_checks_come_to_a_verdict() -> None:
    passed, failed = check("a", lambda: Trial(3, [], "all")), check("b", lambda: Trial(3, ["x"], ""))
    untested, noted = check("c", lambda: Trial(0, [], "", "no way")), Check("d", "noted", "differs")
    assert BehaviourResult((passed, untested, noted)).verdict == "lossless"
    assert BehaviourResult((passed, failed)).verdict == "not lossless"
    assert BehaviourResult((untested, noted)).verdict == "undecided"
    assert BehaviourResult((passed, untested)).reasons == ["kept: a", "not tested: c"]
    assert json.dumps(BehaviourResult((failed,)).record())
