"""What the target's forward costs by its number of rows: whether reading the weights is what takes the time."""

from __future__ import annotations

from typing import Any, Literal

import torch

from headstart.model import int4
from headstart.theory import StepCosts

Bound = Literal["weights", "between", "rows"]
CHEAP, DEAR = 0.35, 0.7
"""Of twice as many rows: added time, as a share, up to which weights are what counts, and from which rows are."""
NEARLY_FREE = 1.25
"""Cost over that of one row up to which rows count as nearly free."""


def bandwidth(costs: StepCosts, read: int | None) -> float | None:
    """Bytes of weights per second, at one row. read: bytes of a forward, see `bytes_read`."""
    return None if read is None else read / costs.forward(1)


def free_rows(costs: StepCosts) -> int:
    """The most measured rows that cost hardly more than one."""
    return max(n for n in costs.forwards if costs.v(n) <= NEARLY_FREE)


def added(costs: StepCosts, batch: int) -> float:
    """What a second row for each of so many requests adds, as a share of plain decoding's forward."""
    plain = costs.forward(batch, batch)
    return (costs.forward(2 * batch, batch) - plain) / plain


def bound(costs: StepCosts, batch: int) -> Bound:
    """What a forward's time goes into: reading weights (or what is as fixed), or rows."""
    share = added(costs, batch)
    return "weights" if share <= CHEAP else "rows" if share >= DEAR else "between"


def bound_in_words(costs: StepCosts, batch: int) -> str:
    meaning = {
        "weights": "memory-bound, so guesses are cheap to check",
        "between": "between memory and arithmetic, so guesses must be good to pay",
        "rows": "compute-bound, so a guess costs about as much as a token",
    }[bound(costs, batch)]
    return f"batch {batch}: {meaning} (twice the rows take {added(costs, batch):.0%} longer)"


def costs_record(costs: StepCosts, read: int | None) -> dict[str, Any]:
    """As JSON values."""
    return {
        "seconds": costs.forward(1),
        "v": {str(n): costs.v(n) for n in costs.forwards},
        "request_seconds": costs.request,
        "weight_bytes_read": read,
        "bytes_per_second": bandwidth(costs, read),
        "nearly_free_rows": free_rows(costs),
    }


def bytes_read(config: Any, weights: int, dtype: torch.dtype, quantize: str | None) -> int | None:
    """Bytes of weights that a forward of one row reads. weights: all of them, in dtype.

    Of an input embedding that is not the output's too, one row in thousands is read. int8 weights take a byte each;
    for int4 see `headstart.model.int4`.
    """
    text = config.get_text_config()
    if any(getattr(text, name, None) for name in ("num_local_experts", "num_experts", "n_routed_experts")):
        return None
    size = torch.finfo(dtype).bits // 8
    numbers = weights // size
    if not getattr(config, "tie_word_embeddings", getattr(text, "tie_word_embeddings", True)):
        numbers -= text.vocab_size * text.hidden_size
    if quantize == "int4":
        head = text.vocab_size * text.hidden_size
        return int((numbers - head) * int4.BITS_OF_A_WEIGHT + head * int4.BITS_OF_THE_HEAD) // 8
    if quantize == "int8-grouped":
        return int(numbers * int4.BITS_OF_THE_HEAD) // 8
    return numbers if quantize == "int8" else numbers * size
