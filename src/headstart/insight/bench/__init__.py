"""How fast is it, here, on these prompts? Plain and speculative decoding in turn, with everything raw kept.

`session.Session` runs, `BenchResult` keeps what came (and reads and writes it), `summarise` makes figures of it,
`compare` tells two results apart from noise. Only what runs needs torch.
"""

from __future__ import annotations

from headstart.insight.bench.compare import Comparison, compare
from headstart.insight.bench.records import FAST, PLAIN, PromptRecord, Round, RunRecord
from headstart.insight.bench.result import BenchResult
from headstart.insight.bench.summary import Figures, summarise
from headstart.insight.bench.sweep import SweepPoint, sweep_points

__all__ = [
    "FAST",
    "PLAIN",
    "BenchResult",
    "Comparison",
    "Figures",
    "PromptRecord",
    "Round",
    "RunRecord",
    "SweepPoint",
    "compare",
    "summarise",
    "sweep_points",
]
