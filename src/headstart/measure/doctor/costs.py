"""What steps cost: the target's forward by its number of rows, and whole steps as measured rounds show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Literal

import torch

from headstart.engine.in_turn import Round
from headstart.model import int4
from headstart.model.native.memory import read_bandwidth
from headstart.theory import DraftCost, StepCosts

Bound = Literal["weights", "between", "rows"]
CHEAP, EXPENSIVE = 0.35, 0.7
"""Of twice as many rows: added time, as a share, up to which weights are what counts, and from which rows are."""
NEARLY_FREE = 1.25
"""Cost over that of one row up to which rows count as nearly free."""
_READ_AT_MOST = 1 << 29


def bandwidth(costs: StepCosts, read: int | None) -> float | None:
    """Bytes of weights per second, at one row. read: bytes of a forward, see `bytes_read`."""
    return None if read is None else read / costs.forward(1)


def plain_reading(read: int) -> float:
    """What reading so many bytes and nothing else gives, in bytes per second: of at most 512 MiB, since a model lies
    beside them."""
    return read_bandwidth(min(read, _READ_AT_MOST))


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
    return "weights" if share <= CHEAP else "rows" if share >= EXPENSIVE else "between"


def bound_in_words(costs: StepCosts, batch: int) -> str:
    meaning = {
        "weights": "memory-bound, so guesses are cheap to check",
        "between": "between memory and arithmetic, so guesses must be good to pay",
        "rows": "compute-bound, so a guess costs about as much as a token",
    }[bound(costs, batch)]
    return f"batch {batch}: {meaning} (twice the rows take {added(costs, batch):.0%} longer)"


def costs_record(costs: StepCosts, read: int | None) -> dict[str, Any]:
    """As JSON values. request_seconds: of a further request with as many rows in all; in a mixture of experts its rows
    share less with the others than those of one text do."""
    return {
        "seconds": costs.forward(1),
        "v": {str(n): costs.v(n) for n in costs.forwards},
        "request_seconds": costs.of_texts().request,
        "weight_bytes_read": read,
        "bytes_per_second": bandwidth(costs, read),
        "nearly_free_rows": free_rows(costs),
    }


def bytes_read(config: Any, weights: int, dtype: torch.dtype, quantize: str | None, met: float = 1.0) -> int:
    """Bytes of weights that a forward of one row reads. weights: all of them, in dtype. met: the share of them that a
    row of a mixture of experts meets.

    Of an input embedding that is not the output's too, and of a table of the layers' own inputs, one row in thousands
    is read. int8 weights take a byte each; for int4 see `headstart.model.int4`.
    """
    text = config.get_text_config()
    size = torch.finfo(dtype).bits // 8
    numbers = int(weights // size * met)
    if not getattr(config, "tie_word_embeddings", getattr(text, "tie_word_embeddings", True)):
        numbers -= text.vocab_size * text.hidden_size
    if own := getattr(text, "hidden_size_per_layer_input", None):
        numbers -= text.vocab_size_per_layer_input * text.num_hidden_layers * own
    if quantize == "int4":
        head = text.vocab_size * text.hidden_size
        return int((numbers - head) * int4.BITS_OF_A_WEIGHT + head * int4.BITS_OF_THE_HEAD) // 8
    if quantize == "int8-grouped":
        return int(numbers * int4.BITS_OF_THE_HEAD) // 8
    return numbers if quantize == "int8" else numbers * size


@dataclass(frozen=True, slots=True)
class Timing:
    """Costs of steps as they were found in rounds."""

    plain: StepCosts
    """Of steps without a draft; its only draft cost, under the source "", is that of a call that proposes nothing."""
    sources: Mapping[str, StepCosts] = field(default_factory=dict)
    """Of steps with a draft of that source."""

    def of(self, source: str) -> StepCosts:
        """Of steps with a draft of this source; one that never drafted here costs as a call without a proposal."""
        found = self.sources.get(source, self.plain)
        return found if source in found.drafts else replace(found, drafts={source: found.drafts[""]})

    def step(self, source: str, rows: float, depth: float) -> float:
        """Seconds of a step with a draft of this source, or, under "", without a draft."""
        return self.of(source).step(rows, drafts={source: (depth, 1, max(0.0, rows - 1 - depth))})


def fit(costs: StepCosts, plain: Sequence[Round], drafted: Sequence[Round]) -> Timing:
    """Timing from the costs and measured rounds: medians, since other work on a machine only ever adds time.

    The shapes are those of `costs`. Their levels come from the rounds: plain ones at one row, drafted ones at their
    usual number of rows, a straight line between.
    """
    if not plain:
        raise ValueError("there is no plain round to compare with")
    rest = median(map(_outside, plain))
    level = median(one.parts.verify for one in plain) / costs.forward(1)
    # With what deciding takes, which steps without a drafter have not
    in_vain = [one.parts.draft + max(0.0, _outside(one) - rest) for one in drafted if not one.nodes]
    asked = DraftCost(start=median(in_vain) if in_vain else 0.0)
    of_plain = _levelled(costs, level, {"": asked}, rest)
    sources = {}
    for source in dict.fromkeys(one.source for one in drafted if one.nodes):
        mine = [one for one in drafted if one.source == source]
        expected = [level * costs.forward(1 + one.nodes) for one in mine]
        found = median(one.parts.verify / seconds for one, seconds in zip(mine, expected, strict=True))
        # More rows than one never take less than a plain step; where they seem to, the plain ones were held up
        least = level * costs.forward(1) / median(expected)
        width = 1 + round(median(one.nodes for one in mine))
        further = max(0.0, median(map(_outside, mine)) - rest) / max(1, width - 1)
        drafts = {source: _cost(costs.drafts.get(source, DraftCost()), mine)}
        sources[source] = _levelled(
            costs, level, drafts, rest, factor=max(least, found), width=width, row_overhead=further
        )
    return Timing(of_plain, sources)


def _levelled(
    costs: StepCosts,
    level: float,
    drafts: Mapping[str, DraftCost],
    overhead: float,
    *,
    factor: float = 1.0,
    width: int = 1,
    row_overhead: float = 0.0,
) -> StepCosts:
    """The costs at the level of the rounds: forwards of one row times `level`, those of `width` and more times `factor`
    besides, a straight line between."""
    rows = []
    for n in range(1, max(width, costs.rows[-1][0]) + 2):
        reach = min(1.0, (n - 1) / max(1, width - 1))
        rows.append((n, level * costs.forward(n) * (1 + (factor - 1) * reach)))
    return StepCosts(tuple(rows), level * costs.request, drafts, max(0.0, overhead), row_overhead)


def _outside(one: Round) -> float:
    """Seconds outside draft and forward."""
    return one.seconds - one.parts.draft - one.parts.verify


def _cost(found: DraftCost, rounds: Sequence[Round]) -> DraftCost:
    """The costs, scaled so that drafts take what they took in rounds; what rounds hid and slowed is in these times.

    Drafts that are made ahead take nearly nothing or all of their time, so that their mean counts, and no median.
    """
    middle = fmean if found.hidden else median
    found = replace(found, hidden=0.0, slowing=0.0)
    seconds = middle(one.parts.draft for one in rounds)
    expected = median(found.seconds(one.depth, siblings=one.nodes - one.depth) for one in rounds)
    if expected <= 0:
        return DraftCost(start=seconds, growth=found.growth)
    return found.scaled(seconds / expected)
