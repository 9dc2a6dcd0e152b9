"""headstart: lossless speculative decoding for any Hugging Face causal LM.

import headstart as hs
engine = hs.load()
print(engine.generate("def add(a, b):", hs.Sampling(max_tokens=64)).text)
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from headstart import errors
from headstart.errors import HeadstartError
from headstart.types import Chunk, Draft, Output, Sampling, Seconds, Speculation, Stats, Step, TokenLogprob, Verdict

if TYPE_CHECKING:
    from headstart.drafters.matching.suffix_store import SuffixStore
    from headstart.engine.engine import Engine
    from headstart.loading.load import Target, load

__version__ = version("headstart")

__all__ = [
    "Chunk",
    "Draft",
    "Engine",
    "HeadstartError",
    "Output",
    "Sampling",
    "Seconds",
    "Speculation",
    "Stats",
    "Step",
    "SuffixStore",
    "Target",
    "TokenLogprob",
    "Verdict",
    "__version__",
    "errors",
    "load",
]

_LAZY = {
    "Engine": "headstart.engine.engine",
    "SuffixStore": "headstart.drafters.matching.suffix_store",
    "Target": "headstart.loading.load",
    "load": "headstart.loading.load",
}
"""What needs torch is imported when it is first used, so that `headstart --help` answers at once."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'headstart' has no attribute {name!r}")
