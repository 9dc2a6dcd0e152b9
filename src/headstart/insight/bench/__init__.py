"""How fast is it, here, on these prompts? Plain and speculative decoding in turn, with everything raw kept.

`session.Session` runs, `BenchResult` keeps what came (and reads and writes it), `summarise` makes figures of it,
`compare` tells two results apart from noise. Only what runs needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.insight.bench.options import BenchSettings
from headstart.lazy import lazily

if TYPE_CHECKING:
    from headstart.insight.bench.comparison import Comparison, compare
    from headstart.insight.bench.records import FAST, PLAIN, PromptRecord, RunRecord, Trial
    from headstart.insight.bench.result import BenchResult
    from headstart.insight.bench.summary import Figures, summarise
    from headstart.insight.bench.sweep import SweepPoint, sweep_points

__all__ = [
    "FAST",
    "PLAIN",
    "BenchResult",
    "BenchSettings",
    "Comparison",
    "Figures",
    "PromptRecord",
    "RunRecord",
    "SweepPoint",
    "Trial",
    "compare",
    "summarise",
    "sweep_points",
]

__getattr__ = lazily(
    __name__,
    comparison="Comparison compare",
    records="FAST PLAIN PromptRecord RunRecord Trial",
    result="BenchResult",
    summary="Figures summarise",
    sweep="SweepPoint sweep_points",
)
