"""Speculative decoding simulated on models of any kind: what would it gain, and is the distribution of the text kept?

    from headstart.learn import simulate as sim

    target, draft = sim.dial_pair(0.8)
    run = sim.speculate(target, draft, k=4, rule="block", rounds=1000)
    print(run.tokens_per_round, run.acceptance, run.speedup(c=0.1))

A model is any callable from a context (a tuple of token ids) to a distribution; `from_logits` makes one of any
framework's function. NumPy is all this needs. Everything is seeded: the same arguments give the same numbers.
"""

from __future__ import annotations

from headstart.learn.simulate.costs import Estimate, Run
from headstart.learn.simulate.decoding import plain, speculate
from headstart.learn.simulate.distributions import InvalidDistribution
from headstart.learn.simulate.lengths import ConfidentK, FixedK, History, OracleK, SimpleK
from headstart.learn.simulate.models import (
    Model,
    TableModel,
    at_temperature,
    changing_pair,
    dial_acceptance,
    dial_logits,
    dial_pair,
    from_logits,
    greedy,
    planted_pair,
    random_table,
)
from headstart.learn.simulate.placements import Placement, placements
from headstart.learn.simulate.rules import RULES, BlockRule, ChainRule, CoupledRule, PointMassRule, Round, Rule
from headstart.learn.simulate.scenarios import Scenario, ScenarioResult, run_scenario, scenarios
from headstart.learn.simulate.ssd import SsdRun, simulate_ssd
from headstart.learn.simulate.ssd_inputs import LaneCosts, SsdPlan

__all__ = [
    "RULES", "BlockRule", "ChainRule", "ConfidentK", "CoupledRule", "Estimate", "FixedK", "History",
    "InvalidDistribution", "LaneCosts", "Model", "OracleK", "Placement", "PointMassRule", "Round", "Rule", "Run",
    "Scenario", "ScenarioResult", "SimpleK", "SsdPlan", "SsdRun", "TableModel", "at_temperature", "changing_pair",
    "dial_acceptance", "dial_logits", "dial_pair", "from_logits", "greedy", "placements", "plain", "planted_pair",
    "random_table", "run_scenario", "scenarios", "simulate_ssd", "speculate",
]  # fmt: skip
