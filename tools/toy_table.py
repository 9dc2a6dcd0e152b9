"""Writes the table of the lessons' toy: the distributions of a target and a draft after each of 28 kinds of context.

    python tools/toy_table.py

The toy is that of a published tutorial: ten words, and distributions that depend on the sum of the last three token
ids, made with NumPy's legacy generator. The page cannot run NumPy, so it carries the distributions; a test makes them
anew and compares.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PATH = Path(__file__).parent.parent / "src/headstart/base/web/modules/algorithm/toy-table.js"
WORDS = 10
SUMS = 3 * (WORDS - 1) + 1

_HEAD = """\
// The toy's distributions: row s holds the ten chances after a context whose last three token ids add up to s.
// Written by tools/toy_table.py.
"""


def distributions(seed: int, spread: float, boost: float) -> NDArray[np.float64]:
    """[28, 10]: softmax of normal logits, one of them raised; for each sum a generator of its own."""
    rows = []
    for total in range(SUMS):
        logits = np.random.RandomState(total + seed).randn(WORDS) * spread
        logits[total % WORDS] += boost
        grown = np.exp(logits - logits.max())
        rows.append(grown / grown.sum())
    return np.array(rows)


def target() -> NDArray[np.float64]:
    return distributions(100, 1.0, 2.0)


def draft() -> NDArray[np.float64]:
    return distributions(200, 0.8, 1.5)


def module() -> str:
    """The JavaScript module; numbers are written so that they are read back as the same doubles."""
    parts = [_HEAD]
    for name, table in (("TARGET", target()), ("DRAFT", draft())):
        rows = ",\n".join("  [" + ", ".join(repr(float(x)) for x in row) + "]" for row in table)
        parts.append(f"\nexport const {name} = [\n{rows},\n];\n")
    return "".join(parts)


if __name__ == "__main__":
    PATH.write_text(module())
