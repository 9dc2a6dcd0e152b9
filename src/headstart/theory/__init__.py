"""What speculation can give, on paper: formulas of the field, for scalars and arrays. NumPy alone; no torch.

alpha: chance that a draft token is accepted. K: draft length. c: one draft step over one plain step. v(n): a forward of
n rows over one of 1 row. Every function returns a float for scalars and an array, by broadcasting, for arrays; a value
outside its range raises `InvalidOption`. The formulas and where they end: docs/concepts/theory.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.base.lazy import lazily

if TYPE_CHECKING:
    from headstart.theory.costs import DraftCost, StepCosts
    from headstart.theory.distributions import (
        acceptance,
        acceptance_at,
        block_tokens,
        coupled_acceptance,
        coupled_floor,
        point_acceptance_at,
    )
    from headstart.theory.machine import (
        Machine,
        Model,
        batch_speedup,
        crossover_batch,
        forward_seconds,
        paying_batch,
    )
    from headstart.theory.mixture import Routing
    from headstart.theory.rounds import ceiling, expected_tokens, expected_tokens_by_position
    from headstart.theory.speed import (
        BestK,
        VerifyCost,
        alpha_c_table,
        alpha_k_table,
        best_k,
        break_even_alpha,
        round_cost,
        speedup,
        speedup_by_position,
        tree_speedup,
        verify_cost,
    )
    from headstart.theory.ssd import (
        SsdAccount,
        batch_hit_rate,
        break_even_hit,
        fan_outs,
        hit_rate,
        round_hit_rate,
        ssd_account,
        ssd_batch,
        ssd_bound,
        ssd_speedup,
    )
    from headstart.theory.stacks import draft_steps, stacked_speedup
    from headstart.theory.trees import Shape, best_tree, tree_tokens

__all__ = [
    "BestK", "DraftCost", "Machine", "Model", "Routing", "Shape", "SsdAccount", "StepCosts", "VerifyCost",
    "acceptance", "acceptance_at", "alpha_c_table", "alpha_k_table", "batch_hit_rate", "batch_speedup", "best_k",
    "best_tree", "block_tokens", "break_even_alpha", "break_even_hit", "ceiling", "coupled_acceptance",
    "coupled_floor", "crossover_batch", "draft_steps", "expected_tokens", "expected_tokens_by_position", "fan_outs",
    "forward_seconds", "hit_rate", "paying_batch", "point_acceptance_at", "round_cost", "round_hit_rate", "speedup",
    "speedup_by_position", "ssd_account", "ssd_batch", "ssd_bound", "ssd_speedup", "stacked_speedup",
    "tree_speedup", "tree_tokens", "verify_cost",
]  # fmt: skip

__getattr__ = lazily(
    __name__,
    costs="DraftCost StepCosts",
    distributions="acceptance acceptance_at block_tokens coupled_acceptance coupled_floor point_acceptance_at",
    machine="Machine Model batch_speedup crossover_batch forward_seconds paying_batch",
    mixture="Routing",
    rounds="ceiling expected_tokens expected_tokens_by_position",
    speed="BestK VerifyCost alpha_c_table alpha_k_table best_k break_even_alpha round_cost speedup speedup_by_position "
    "tree_speedup verify_cost",
    ssd="SsdAccount batch_hit_rate break_even_hit fan_outs hit_rate round_hit_rate ssd_account ssd_batch ssd_bound "
    "ssd_speedup",
    stacks="draft_steps stacked_speedup",
    trees="Shape best_tree tree_tokens",
)
