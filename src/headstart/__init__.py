"""headstart: lossless speculative decoding for Hugging Face causal LMs.

import headstart as hs
engine = hs.load()
print(engine.generate("def add(a, b):", hs.Sampling(max_tokens=64)).text)
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from headstart.base import errors
from headstart.base.errors import HeadstartError
from headstart.base.lazy import lazily
from headstart.types import (
    AheadStats,
    Chunk,
    Draft,
    Drafting,
    Output,
    Preparation,
    Sampling,
    Seconds,
    Speculation,
    Stats,
    Step,
    Structure,
    TokenLogprob,
    Verdict,
)

if TYPE_CHECKING:
    from headstart.drafters.ahead import Ahead
    from headstart.drafters.matching.suffix_store import SuffixStore
    from headstart.engine.engine import Engine
    from headstart.loading.load import Target, load
    from headstart.loading.stack import Stack

__version__ = version("headstart")

__all__ = [
    "Ahead",
    "AheadStats",
    "Chunk",
    "Draft",
    "Drafting",
    "Engine",
    "HeadstartError",
    "Output",
    "Preparation",
    "Sampling",
    "Seconds",
    "Speculation",
    "Stack",
    "Stats",
    "Step",
    "Structure",
    "SuffixStore",
    "Target",
    "TokenLogprob",
    "Verdict",
    "__version__",
    "errors",
    "load",
]

__getattr__ = lazily(
    __name__,
    **{
        "drafters.ahead": "Ahead",
        "engine.engine": "Engine",
        "drafters.matching.suffix_store": "SuffixStore",
        "loading.load": "Target load",
        "loading.stack": "Stack",
    },
)
