"""Drafters: the protocol (`Drafter`), what a drafter can do beyond it (`capabilities`), the kinds by name (`building`).
Each drafter is one file of this package, or of another one that names it as an entry point."""

from headstart.drafters import capabilities
from headstart.drafters.building import BuildContext, Weights, kinds
from headstart.drafters.capabilities import FanOut, Foreseen, Foresees, Foresight, Wraps, may_draft
from headstart.drafters.drafter import Drafter, NoDrafter, Observation
from headstart.rule.row import Row

__all__ = [
    "BuildContext",
    "Drafter",
    "FanOut",
    "Foreseen",
    "Foresees",
    "Foresight",
    "NoDrafter",
    "Observation",
    "Row",
    "Weights",
    "Wraps",
    "capabilities",
    "kinds",
    "may_draft",
]
