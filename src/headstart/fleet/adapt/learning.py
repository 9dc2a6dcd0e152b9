"""How a deployed drafter is trained further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict

_PANEL = "Training"


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How long and how fast the drafter learns. Its first weights are the deployed ones."""

    minutes: float | None = option(None, "Train for this long. Default: 10 minutes.", panel=_PANEL, above=0)
    steps: int | None = option(None, "Train for this many steps instead, which is repeatable.", panel=_PANEL, low=1)
    data: Sequence[str | Path] = option(
        (), "Also learn from this text, such as what the drafter was first trained on, so that it does not forget.",
        kind=list[Path], metavar="DATA", panel=_PANEL,
    )  # fmt: skip
    matrix_rate: float = option(5e-3, "Peak learning rate of the matrices (Muon).", panel=_PANEL, above=0)
    other_rate: float = option(1e-3, "Peak learning rate of embeddings and norms (AdamW).", panel=_PANEL, above=0)
    batch_size: int = option(8, "Windows per step.", panel=_PANEL, low=1)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "data", tuple(str(path) for path in self.data))
        if self.minutes is not None and self.steps is not None:
            raise InvalidOption("both minutes and steps are given", hint="give one of them")
