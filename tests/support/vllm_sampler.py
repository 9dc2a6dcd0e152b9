"""vLLM's rejection sampler, called directly: which distributions do its tokens have? Run by a python that has a vLLM.

Prints, for each way of sampling and of drafting, the chi-square of the tokens of each row against the distribution
asked for, as [statistic, cells] pairs, or the error: one line of JSON.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.plugins import load_general_plugins

load_general_plugins()
current_platform.import_kernels()
current_platform.register_triton_kernel_overrides()  # what a worker does after its plugins

import vllm.v1.sample.rejection_sampler as sampler  # noqa: E402

V, B, K = 12, 20000, 3


def distribution(logits: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    """[V], the plain twin: temperature, then top-k, then top-p."""
    logits = logits / temperature
    kept = logits >= logits.sort(descending=True).values[(top_k or V) - 1]
    p, order = logits.masked_fill(~kept, -torch.inf).softmax(-1).sort(descending=True)
    p = torch.where(p.cumsum(-1) - p < top_p, p, 0.0)
    return torch.zeros(V).scatter(0, order, p / p.sum())


def tested(rows: torch.Tensor, sampling: tuple[float, int, float], one_hot: bool) -> list[tuple[float, int]] | str:
    temperature, top_k, top_p = sampling
    q = (rows * 0.6).softmax(-1)
    drafts = torch.stack([torch.multinomial(each, B, True) for each in q], 1)
    if one_hot:
        drafts[:] = rows.argmax(-1)
    ends = torch.arange(1, B + 1, dtype=torch.int32) * K
    asked: Any = SimpleNamespace(
        all_greedy=False, all_random=True, generators={}, temperature=torch.full((B,), temperature),
        top_k=torch.full((B,), top_k, dtype=torch.int32) if top_k else None,
        top_p=torch.full((B,), top_p) if top_p < 1 else None,
    )  # fmt: skip
    try:
        logits = sampler.apply_sampling_constraints(rows.repeat(B, 1), ends, asked)
        out = sampler.rejection_sample(
            drafts.flatten().int(), [K] * B, K, ends, None if one_hot else q.repeat(B, 1), logits,
            torch.zeros(B, 1, dtype=torch.int64), asked,
        )  # fmt: skip
    except RuntimeError as error:
        return str(error)
    found, reached = [], torch.ones(B, dtype=torch.bool)
    for i in range(K):
        tokens = out[reached, i].long().clamp(0, V - 1)  # from rubbish come tokens that do not exist
        if len(tokens) < 50:
            break
        counts = torch.bincount(tokens, minlength=V).float()
        wanted = distribution(rows[i], *sampling) * counts.sum()
        cells = wanted > 0
        statistic = ((counts - wanted) ** 2 / wanted.clamp(min=1e-9)).sum()  # a token of probability 0 counts a lot
        found.append((float(statistic), int(cells.sum())))
        reached &= out[:, i] == drafts[:, i]
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    rows = torch.randn(K, V) * 1.5
    ways = [(1.0, 0, 1.0), (0.7, 0, 1.0), (0.7, 0, 0.9), (0.7, 5, 0.9)]
    print(json.dumps([tested(rows, way, one_hot) for way in ways for one_hot in (True, False)]))
