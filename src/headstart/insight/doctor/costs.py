"""What the target's forward costs by its number of rows: whether reading the weights is what takes the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from headstart.pacing.costs import Costs, Prices

Bound = Literal["weights", "between", "rows"]
CHEAP, DEAR = 0.35, 0.7
"""Of twice as many rows: added time, as a share, up to which weights are what counts, and from which rows are."""
NEARLY_FREE = 1.25
"""Cost over that of one row up to which rows count as nearly free."""


@dataclass(frozen=True, slots=True)
class TargetCosts:
    """costs: measured. read: bytes of weights that one forward reads, None where that depends on the text (mixtures of
    experts)."""

    costs: Costs
    read: int | None

    @property
    def seconds(self) -> float:
        """Of a forward of one row."""
        return Prices(self.costs, ()).forward(1, 1)

    @property
    def v(self) -> Mapping[int, float]:
        """v(n): cost of n rows over that of one."""
        prices = Prices(self.costs, ())
        one = prices.forward(1, 1)
        return {n: prices.forward(1, n) / one for n, _ in self.costs.rows}

    @property
    def bandwidth(self) -> float | None:
        """Bytes of weights per second, at one row."""
        return None if self.read is None else self.read / self.seconds

    @property
    def free_rows(self) -> int:
        """The most measured rows that cost hardly more than one."""
        return max(n for n, v in self.v.items() if v <= NEARLY_FREE)

    def added(self, batch: int) -> float:
        """What a second row for each of so many requests adds, as a share of plain decoding's forward."""
        prices = Prices(self.costs, ())
        plain = prices.forward(batch, batch)
        return (prices.forward(batch, 2 * batch) - plain) / plain

    def bound(self, batch: int) -> Bound:
        """What a forward's time goes into: reading weights (or what is as fixed), or rows."""
        share = self.added(batch)
        return "weights" if share <= CHEAP else "rows" if share >= DEAR else "between"

    def words(self, batch: int) -> str:
        say = {
            "weights": "memory-bound, so guesses are cheap to check",
            "between": "between memory and arithmetic, so guesses must be good to pay",
            "rows": "compute-bound, so a guess costs about as much as a token",
        }[self.bound(batch)]
        return f"batch {batch}: {say} (twice the rows take {self.added(batch):.0%} longer)"

    def record(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "v": {str(n): value for n, value in self.v.items()},
            "request_seconds": self.costs.request,
            "weight_bytes_read": self.read,
            "bytes_per_second": self.bandwidth,
            "nearly_free_rows": self.free_rows,
        }


def bytes_read(config: Any, weights: int, dtype: torch.dtype, quantize: str | None) -> int | None:
    """Bytes of weights that a forward of one row reads. weights: all of them, in dtype.

    Of an input embedding that is not the output's too, one row in thousands is read. int8 weights take a byte each.
    """
    text = config.get_text_config()
    if any(getattr(text, name, None) for name in ("num_local_experts", "num_experts", "n_routed_experts")):
        return None
    size = torch.finfo(dtype).bits // 8
    numbers = weights // size
    if not getattr(config, "tie_word_embeddings", getattr(text, "tie_word_embeddings", True)):
        numbers -= text.vocab_size * text.hidden_size
    return numbers if quantize == "int8" else numbers * size
