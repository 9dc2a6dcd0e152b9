"""Write docs/supported-models.md and tests/model/recipes/model_types.json: what headstart says of every model type of
the installed transformers that is a causal language model. It takes about two minutes.

python tools/model_table.py
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import transformers  # noqa: E402
from support.model_types import FIXTURE, all_types, page, record, tried  # noqa: E402 -- it stands beside the tests

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    verdicts = {name: tried(name) for name in all_types()}
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    FIXTURE.write_text(record(verdicts), encoding="utf-8")
    (ROOT / "docs" / "supported-models.md").write_text(page(verdicts, transformers.__version__), encoding="utf-8")
    found = [each.verdict for each in verdicts.values()]
    print(", ".join(f"{found.count(kind)} {kind}" for kind in ("native", "modules", "refused")))
