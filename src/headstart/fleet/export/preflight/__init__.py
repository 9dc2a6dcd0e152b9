"""What is refused before anything is measured, and what is warned of: mistakes that an engine would not report.

An engine that reads the wrong layers or drops a bias serves correct text, only with few drafts accepted, and nothing
in its log says so. So each such fault is a rule here: a function from a `Case` to findings. Whatever a rule needs to
know is in the case, so that a test can make it up. A rule about one engine stands in that engine's file, and looks at
cases of that engine alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from headstart.base.errors import ExportRefused
from headstart.fleet.export.preflight import any_engine, sglang, vllm
from headstart.fleet.export.preflight.facts import Case, Finding, Head, Rule

__all__ = ["Case", "Finding", "Head", "check", "findings", "rules_of"]

_OF_ENGINE = {"vllm": vllm.RULES, "sglang": sglang.RULES}


def rules_of(case: Case) -> tuple[Rule, ...]:
    """The rules that look at this case: those of its engine, then those of any."""
    return (*_OF_ENGINE[case.engine], *any_engine.RULES)


def check(case: Case) -> list[str]:
    """Every warning, as one line.

    Raises:
        ExportRefused: the first finding that is no warning.
    """
    warnings = []
    for finding in findings(case):
        if finding.kind == "refused":
            raise ExportRefused(finding.message, hint=finding.hint)
        warnings.append(f"{finding.message}: {finding.hint}")
    return warnings


def findings(case: Case) -> Iterator[Finding]:
    """What the rules find, refusals first."""
    found = [finding for rule in rules_of(case) for finding in rule(case)]
    return iter(sorted(found, key=lambda finding: finding.kind != "refused"))
