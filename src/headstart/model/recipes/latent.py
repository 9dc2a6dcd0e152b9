"""Multi-head latent attention: what it computes, and what its configs state (DeepSeek, GLM-4.7-Flash, MiniCPM3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headstart.model.recipes.norms import Norm
from headstart.model.recipes.recipe import Attention, Rope
from headstart.model.recipes.stated import Stated

INNER_EPS = 1e-6
"""Of the norms within attention, whatever the config says of the others: the modules are made without one."""


@dataclass(frozen=True, kw_only=True)
class Latent(Attention):
    """Attention to rows that all heads share: a row is [latent | key], and all that is stored of a token.

    The latent has `rank` numbers and is normed by `k_norm`; the key turns. A module makes keys [nope] and values
    [value_dim] of each head from a latent, by matrices K and V. They are applied to the query and to what is attended
    instead: a head's query [q | turning q] becomes [K^T q | turning q], as wide as a row; its output is V times the
    weighted sum of latents. `dim` is the width of a row, and `kv_heads` 1. Where queries are of low rank, `qkv` makes
    that many numbers, which `q_norm` norms, and `q_b` makes queries of them.

    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1.
    """

    rank: int
    """Numbers of a latent."""
    nope: int
    """Numbers of a head's query and key that do not turn."""
    value_dim: int
    """Of a head."""
    q_rank: int | None
    """Numbers that queries are made of; None: `qkv` makes the queries."""
    q_b: str = "self_attn.q_b_proj"
    kv_b: str = "self_attn.kv_b_proj"
    """The module that makes the keys and the values of all heads."""

    @property
    def turning(self) -> int:
        """Numbers of a head's query, and of the key, behind those that do not turn."""
        return self.dim - self.rank

    @property
    def query_outputs(self) -> int:
        """Of all heads."""
        return self.heads * (self.nope + self.turning)

    @property
    def outputs(self) -> int:
        return (self.query_outputs if self.q_rank is None else self.q_rank) + self.dim

    @property
    def inner(self) -> dict[str, int]:
        queries = {} if self.q_rank is None else {self.q_b: self.query_outputs}
        return queries | {self.kv_b: self.heads * (self.nope + self.value_dim)}

    @property
    def gains(self) -> set[int]:
        return {self.rank} if self.q_rank is None else {self.rank, self.q_rank}

    @property
    def widths(self) -> set[int]:
        return {self.dim, self.rank, self.nope, self.value_dim} | (set() if self.q_rank is None else {self.q_rank})

    @property
    def widest(self) -> int:
        return max(self.dim, self.nope + self.turning, self.value_dim)

    @property
    def kept(self) -> tuple[int, int, int]:
        return 1, self.dim, 0

    @property
    def kept_by_modules(self) -> tuple[int, int, int]:
        return self.heads, self.nope + self.turning, self.value_dim


def latent(stated: Stated, *more: str, pairs: bool) -> Latent:
    """Latent attention as DeepSeek's configs state it. pairs: whether neighbouring numbers turn together. more: see
    `Stated.rope`."""
    heads, rank, turning = stated.num_attention_heads, stated.kv_lora_rank, stated.qk_rope_head_dim
    nope, q_rank = stated.qk_nope_head_dim, stated.get("q_lora_rank")
    stated.must_be("num_key_value_heads", heads)  # a cache of keys and values has them all
    stated.get("attention_bias")
    stated.without_effect("qk_head_dim", "head_dim")  # sums of others; the rotary module is compared with its angles
    first = "self_attn.q_proj" if q_rank is None else "self_attn.q_a_proj"
    return Latent(
        heads,
        1,
        rank + turning,
        _scaling(stated.rope(*more), nope + turning),
        Rope(turning, pairs=pairs),
        qkv=(first, "self_attn.kv_a_proj_with_mqa"),
        q_norm=None if q_rank is None else Norm("self_attn.q_a_layernorm", INNER_EPS),
        k_norm=Norm("self_attn.kv_a_layernorm", INNER_EPS),
        rank=rank,
        nope=nope,
        value_dim=stated.v_head_dim,
        q_rank=q_rank,
    )


def _scaling(rope: dict[str, Any], dim: int) -> float:
    """Of scores, which a longer rotation makes larger (YaRN, arXiv:2309.00071, as DeepSeek states it)."""
    scaling = 1 / math.sqrt(dim)
    more = rope.get("mscale_all_dim")
    if rope.get("rope_type", "default") == "default" or not more or rope["factor"] <= 1:
        return scaling
    longer: float = 0.1 * more * math.log(rope["factor"]) + 1.0
    return scaling * longer**2
