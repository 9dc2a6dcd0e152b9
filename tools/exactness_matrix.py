"""Write docs/exactness-matrix.md from what tests/support/matrix_cells.py declares.

python tools/exactness_matrix.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.matrix_cells import table  # noqa: E402 -- it stands beside the tests

if __name__ == "__main__":
    (ROOT / "docs" / "exactness-matrix.md").write_text(table(), encoding="utf-8")
