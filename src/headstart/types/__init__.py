"""The nouns of the engine, as small frozen values. Nothing here computes; nothing here imports the engine.

Symbols follow the papers: p is the target's distribution, q the draft's, K the length of a draft, x0 the pending token.
Shapes: V is the vocabulary, N the number of nodes of a draft.
"""

from headstart.types.ahead import AheadStats, Preparation
from headstart.types.draft import (
    NO_DRAFT,
    Budget,
    CaughtUp,
    Draft,
    EngineRule,
    Rule,
    TreeKind,
    Verdict,
    children_of,
    depths_of,
)
from headstart.types.output import Output, Saved, Stats
from headstart.types.sampling import Drafting, LogprobsMode, Sampling
from headstart.types.step import PARTS, Chunk, FinishReason, Seconds, Speculation, Step, TokenLogprob
from headstart.types.structure import Structure

__all__ = [
    "NO_DRAFT",
    "PARTS",
    "AheadStats",
    "Budget",
    "CaughtUp",
    "Chunk",
    "Draft",
    "Drafting",
    "EngineRule",
    "FinishReason",
    "LogprobsMode",
    "Output",
    "Preparation",
    "Rule",
    "Sampling",
    "Saved",
    "Seconds",
    "Speculation",
    "Stats",
    "Step",
    "Structure",
    "TokenLogprob",
    "TreeKind",
    "Verdict",
    "children_of",
    "depths_of",
]
