"""The nouns of the behaviour audit: a check, and what all of them come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headstart.measure.audit.subject import Refused, Verdict

Status = Literal["passed", "failed", "not tested", "noted"]
SHOWN = 5
"""Failures of a check that a record keeps."""
_REASONS: Mapping[Status, str] = {"passed": "kept", "not tested": "not tested", "noted": "noted"}


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of the interface.

    status: "noted" is a finding that decides nothing
    detail: what was seen, or why it was not tested
    cases: how often the promise was tried
    failures: the first few, in words
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
        by_status = {status: [check.name for check in self.checks if check.status == status] for status in _REASONS}
        return [f"{words}: {', '.join(by_status[status])}" for status, words in _REASONS.items() if by_status[status]]

    def record(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reasons": self.reasons,
            "checks": [{**asdict(check), "failures": list(check.failures)} for check in self.checks],
        }


class NotTested(Exception):
    """Raised by a trial that finds nothing to try, with the reason."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What trying a promise came to.

    cases: how often it was tried
    failures: in words
    kept: what to say if nothing failed
    untested: what to say if there was nothing to try
    """

    cases: int
    failures: Sequence[str]
    kept: str
    untested: str = ""


def check(name: str, trial: Callable[[], Trial]) -> Check:
    """Failed if anything did, not tested if there was nothing to try or the server refuses the fields, else passed."""
    try:
        found = trial()
    except NotTested as error:
        return Check(name, "not tested", str(error))
    except Refused as error:
        return Check(name, "not tested", f"refused: {error.message}")
    if not found.failures:
        kept = Check(name, "passed", found.kept, found.cases)
        return kept if found.cases else Check(name, "not tested", found.untested)
    detail = f"{len(found.failures)} of {found.cases} cases: {found.failures[0]}"
    return Check(name, "failed", detail, found.cases, tuple(found.failures[:SHOWN]))
