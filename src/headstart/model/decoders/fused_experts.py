"""Mixtures of experts as the row kernels read them."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.model import native
from headstart.model.decoders import parts
from headstart.model.decoders.experts import down_of, gate_up_of, router_gain, router_of
from headstart.model.decoders.parts import part
from headstart.model.native import structs
from headstart.model.native.weights import NativeWeights
from headstart.model.recipes.experts import Experts
from headstart.model.recipes.norms import Norm

Laid = tuple[Sequence[structs.Product], Sequence[structs.Product]]
"""Products of a layer's experts: of gate and up, and of what comes after them."""


def experts_struct(
    owner: Any,
    experts: Experts,
    weights: NativeWeights,
    norm: Callable[[Norm | None], structs.Norm],
    laid: Laid | None = None,
) -> int:
    """The address of a mixture of experts. norm: makes one of the owner's norms. laid: its products but for the shared
    expert's, where they are laid out already."""
    router, shared = experts.router, experts.shared
    made = router_of(owner, experts)
    kind = native.BF16_WIDE if made.weight.dtype == torch.bfloat16 else native.FLOAT32
    first_up, first_down = ((), ()) if laid is None else laid
    count = (experts.count if laid is None else 0) + (shared is not None)
    gate_up, down = (gate_up_of(owner, experts), down_of(owner, experts)) if laid is None else (iter(()), iter(()))
    if shared is not None:
        gate_up = itertools.chain(gate_up, [parts.gate_up(owner, shared)])
        down = itertools.chain(down, [parts.plain(part(owner, shared.down))])

    def numbers(name: str | None) -> int | None:
        return None if name is None else weights.pointer(part(owner, name).float().reshape(-1))

    activation = "clamped" if experts.limit is not None else experts.activation
    struct = structs.Experts(
        gate_up=ctypes.addressof(weights.products(gate_up, count, first_up)),
        down=ctypes.addressof(weights.products(down, count, first_down)),
        router=weights.product(made, kind),
        input_norm=norm(experts.input_norm),
        output_norm=norm(experts.output_norm),
        shared_norm=norm(experts.shared_norm),
        choice_bias=numbers(router.choice_bias),
        expert_factors=numbers(router.expert_factors),
        gate=structs.Gate(structs.ACTIVATIONS.index(activation), experts.gated, 1.0, None),
        count=experts.count,
        chosen=router.chosen,
        groups=router.groups,
        groups_kept=router.groups_kept,
        group_best=router.group_best,
        least_sum=router.least_sum,
        factor=router.factor,
        score=structs.SCORES.index(router.score),
        normalised=router.normalised,
        shared=shared is not None,
        shared_gated=experts.shared_gate is not None,
        mapped=laid is not None,
    )
    if experts.limit is not None:
        struct.gate.numbers = weights.pointer(Tensor([experts.limit, experts.alpha]))
    if router.norm is not None:
        gain = router_gain(owner, router)
        struct.router_norm = structs.Norm(weights.gain(gain), None, router.norm.eps, structs.RMS)
    return weights.structure(struct)
