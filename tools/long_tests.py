"""Make tests/long_tests.txt from the durations of a whole run of the suite.

    python -m pytest -n 2 --dist worksteal --durations=900 > durations.txt
    python tools/long_tests.py durations.txt

A function is long where one of its cases takes more than a second on a core, or all of them together more than three.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).parents[1] / "tests" / "long_tests.txt"
ONE, ALL = 1.0, 3.0  # seconds
PROOFS = (
    "tests/commands/test_cli_launch.py",  # no process may be left behind by it
    "tests/drafters/test_ahead_distribution.py::test_two_rounds",
    "tests/drafters/test_eagle.py::test_chi",
    "tests/engine/test_greedy_identity.py",
    "tests/engine/test_matrix.py",
    "tests/model/test_prefixes.py",  # a state machine, which has no function
    "tests/rule/test_verify.py",
    "tests/serve/test_many.py",
)
"""Stay in the fast suite whatever they take."""

LINE = re.compile(r"([\d.]+)s (?:call|setup|teardown)\s+(\S.*)")


def long_tests(durations: str) -> list[str]:
    """The functions, as path::name, in order."""
    cases: dict[str, float] = defaultdict(float)
    for line in durations.splitlines():
        if found := LINE.match(line.strip()):
            cases[found[2]] += float(found[1])
    functions: dict[str, list[float]] = defaultdict(list)
    for case, seconds in cases.items():
        functions[case.split("[")[0]].append(seconds)
    return sorted(
        name
        for name, seconds in functions.items()
        if (max(seconds) > ONE or sum(seconds) > ALL) and not name.startswith(PROOFS)
    )


def kept(listed: list[str], found: list[str]) -> list[str]:
    """The lines to write: what is found, and what is listed with a number, which is chosen by hand."""
    numbered = {line.partition(" ")[0]: line for line in listed if " " in line}
    return sorted([*numbered.values(), *(name for name in found if name not in numbered)])


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit((__doc__ or "").strip())
    lines = LIST.read_text(encoding="utf-8").splitlines()
    about = [line for line in lines if line.startswith("#")]
    listed = [line for line in lines if not line.startswith("#")]
    found = kept(listed, long_tests(Path(sys.argv[1]).read_text(encoding="utf-8")))
    LIST.write_text("\n".join([*about, *found]) + "\n", encoding="utf-8")
    print(f"{len(found)} functions in {LIST.name}")


if __name__ == "__main__":
    main()
