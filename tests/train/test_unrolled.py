"""Attention of the training-time test equals a loop over rows that looks up what each may see."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.train.unrolled import attend, nested, plain_attend

ROWS, PASSES, DIM = 9, 4, 8


def passes(dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Query [2, 4, T - i, D], key and value [2, 2, T - i, D] of each pass."""
    torch.manual_seed(0)
    return [
        (
            torch.randn(2, 4, ROWS - i, DIM).to(dtype).requires_grad_(),
            torch.randn(2, 2, ROWS - i, DIM).to(dtype).requires_grad_(),
            torch.randn(2, 2, ROWS - i, DIM).to(dtype).requires_grad_(),
        )
        for i in range(PASSES)
    ]


@pytest.mark.parametrize("attention", [attend, plain_attend])
def test_each_row_sees_its_chain(attention: object) -> None:
    made = passes()
    for i, (query, _, _) in enumerate(made):
        out = attention(query, [(k, v) for _, k, v in made[: i + 1]])  # type: ignore[operator]
        for t in range(ROWS - i):
            for head in range(4):
                group = head // 2
                keys = torch.cat(
                    [made[0][1][:, group, : t + 1], *(k[:, group, t, None] for _, k, _ in made[1 : i + 1])], 1
                )
                values = torch.cat(
                    [made[0][2][:, group, : t + 1], *(v[:, group, t, None] for _, _, v in made[1 : i + 1])], 1
                )
                distribution = (torch.einsum("bd,bsd->bs", query[:, head, t], keys) * DIM**-0.5).softmax(-1)
                wanted = torch.einsum("bs,bsd->bd", distribution, values)
                torch.testing.assert_close(out[:, head, t], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", [attend, plain_attend])
def test_the_first_pass_is_causal_attention(attention: object) -> None:
    query, key, value = passes()[0]
    wanted = F.scaled_dot_product_attention(
        query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1), is_causal=True
    )
    torch.testing.assert_close(attention(query, [(key, value)]), wanted)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_the_plain_twin(dtype: torch.dtype) -> None:
    made = passes(dtype)
    query = made[-1][0]
    past = [(k, v) for _, k, v in made]
    leaves = [query, *(tensor for pair in past for tensor in pair)]
    upstream = torch.randn_like(query)
    ours = torch.autograd.grad(attend(query, past), leaves, upstream)
    theirs = torch.autograd.grad(plain_attend(query, past), leaves, upstream)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def kept_passes(dtype: torch.dtype) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor]:
    """The query of the last pass of three, of which each keeps some rows, with the keys and values of all."""
    rows = nested(ROWS, (1.0, 0.7, 0.5), torch.Generator().manual_seed(1))[-1]
    torch.manual_seed(0)
    query = torch.randn(2, 4, len(rows), DIM).to(dtype).requires_grad_()
    past = [
        (torch.randn(2, 2, n, DIM).to(dtype).requires_grad_(), torch.randn(2, 2, n, DIM).to(dtype).requires_grad_())
        for n in (ROWS, len(rows), len(rows))
    ]
    return query, past, rows


@pytest.mark.parametrize("attention", [attend, plain_attend])
def test_rows_that_were_kept_see_what_they_see_among_all(attention: object) -> None:
    made = passes()
    rows = torch.tensor([0, 2, 5])
    query, own = made[2][0][:, :, rows], [(k[:, :, rows], v[:, :, rows]) for _, k, v in made[1:3]]
    kept = attention(query, [made[0][1:], *own], rows)  # type: ignore[operator]
    whole = plain_attend(made[2][0], [(k, v) for _, k, v in made[:3]])
    torch.testing.assert_close(kept, whole[:, :, rows], atol=1e-5, rtol=1e-5)
    alone = attention(made[0][0][:, :, rows], [made[0][1:]], rows)  # type: ignore[operator]
    torch.testing.assert_close(alone, plain_attend(made[0][0], [made[0][1:]])[:, :, rows], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_kept_rows_are_those_of_the_plain_twin(dtype: torch.dtype) -> None:
    query, past, rows = kept_passes(dtype)
    leaves = [query, *(tensor for pair in past for tensor in pair)]
    upstream = torch.randn_like(query)
    ours = torch.autograd.grad(attend(query, past, rows), leaves, upstream)
    theirs = torch.autograd.grad(plain_attend(query, past, rows), leaves, upstream)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def test_every_kept_row_was_kept_by_the_pass_before() -> None:
    shares = [max(0.7**i, 0.2) for i in range(8)]
    kept = nested(200, shares, torch.Generator().manual_seed(0))
    assert [len(rows) for rows in kept] == [200, 140, 98, 69, 48, 40, 40, 40]
    for before, rows in pairwise(kept):
        assert set(rows.tolist()) <= set(before.tolist())
        assert torch.equal(rows, rows.sort().values)
    other = nested(200, shares, torch.Generator().manual_seed(1))
    assert not torch.equal(kept[-1], other[-1])
