"""What a bench runs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict
from headstart.types import Sampling

_option = partial(option, panel="What to run")


def parse_lengths(text: str) -> tuple[int, ...]:
    """ "1,2,3" as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        hint = "for example --k-sweep 1,2,3,5,8"
        raise InvalidOption(f"--k-sweep {text!r} is not a list of whole numbers", hint=hint) from None


@strict
@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What to run."""

    sampling: Sampling = field(default_factory=Sampling)
    repetitions: int = _option(3, "How many times each prompt is run.", low=1)
    warm_up: int = _option(1, "Trials that run before anything counts.", low=0)
    limit: int | None = _option(
        None, "The most prompts of each category; a conversation is one, with all its turns.", low=1
    )
    batch_size: int = _option(
        1, "Prompts of a category that run at once; the speedup then compares whole batches.", low=1
    )
    ks: tuple[int, ...] = _option(
        (), "Also measure these fixed draft lengths, on two batches of each category: '1,2,3,5,8'.",
        "--k-sweep", metavar="K,K,...", kind=str, parse=parse_lengths, low=1,
    )  # fmt: skip
    synthetic_acceptance: float | None = _option(
        None,
        "Keep each guess with this probability, whatever it is, to see what rounds cost with a drafter that guesses so "
        "well. The text is then not the model's.",
        metavar="PROBABILITY", low=0, high=1,
    )  # fmt: skip
    keep_texts: bool = option(False, "Write prompts and texts into the result too.", panel="Output")

    def __post_init__(self) -> None:
        check_fields(self)
        if len(set(self.ks)) != len(self.ks):
            raise InvalidOption(f"k_sweep names a K twice: {self.ks}", hint="give each draft length once")

    def record(self) -> dict[str, Any]:
        """All settings as JSON has them: lists for tuples."""
        found = asdict(self)
        found["sampling"]["logit_bias"] = {str(token): bias for token, bias in self.sampling.logit_bias.items()}
        del found["sampling"]["cache_salt"]  # the bench's own, see `in_turn`
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]
