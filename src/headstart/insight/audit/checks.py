"""The nouns of the behaviour audit: a check, and what all of them come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headstart.insight.audit.sampled import Verdict

Status = Literal["passed", "failed", "not tested", "noted"]
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the interface. cases: how often it was tried; failures: in words, the first few.

    "noted" is a finding that decides nothing; "not tested" has its reason in `detail`.
    """

    name: str
    status: Status
    detail: str
    cases: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BehaviourResult:
    """All checks, in order."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        statuses = {check.status for check in self.checks}
        if "failed" in statuses:
            return "not lossless"
        return "lossless" if "passed" in statuses else "undecided"

    @property
    def reasons(self) -> list[str]:
        failed = [f"{check.name}: {check.detail}" for check in self.checks if check.status == "failed"]
        if failed:
            return failed
        by_status = {status: [check.name for check in self.checks if check.status == status] for status in _SAID}
        return [f"{said}: {', '.join(by_status[status])}" for status, said in _SAID.items() if by_status[status]]

    def record(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "checks": [{**asdict(check), "failures": list(check.failures)} for check in self.checks],
        }


_SAID: dict[Status, str] = {"passed": "kept", "not tested": "not tested", "noted": "noted"}


def checked(name: str, cases: int, failures: Sequence[str], *, kept: str, untested: str) -> Check:
    """Failed if anything did, not tested (for the reason `untested`) if there was nothing to try, else passed."""
    if failures:
        return Check(name, "failed", f"{len(failures)} of {cases} cases: {failures[0]}", cases, tuple(failures[:SHOWN]))
    return Check(name, "passed", kept, cases) if cases else Check(name, "not tested", untested)
