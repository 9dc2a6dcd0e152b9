"""What is compared: a target, a drafter and a depth, as vLLM's speculative configuration names them, and prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.base.options import check_choice, check_number, strict

Kind = Literal["eagle3", "medusa", "draft_model", "ngram"]
"""Drafters that can be compared, by the names of vLLM's methods."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A target with a drafter of fixed depth.

    Raises:
        InvalidOption: a field lies outside its range, or does not fit the others.
    """

    target: str | Path
    """A directory or hub id."""
    kind: Kind
    depth: int
    """K, the tokens that are drafted in every step of a single request."""
    drafter: str | Path | None = None
    """The folder or hub id of the head or draft model; None for "ngram"."""
    dtype: str = "float32"
    """Of both engines. Only float32 can be compared number by number."""
    device: str = "auto"
    """headstart's: "auto", "cpu", "cuda"."""
    lookup: tuple[int, int] = (5, 5)
    """For "ngram": `prompt_lookup_min` and `prompt_lookup_max`, vLLM's default where neither is given."""
    parallel: bool = False
    """`parallel_drafting`: a draft model with a mask token guesses all tokens in one forward. An EAGLE head's config
    says by itself whether it does."""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        check_number("depth", self.depth, low=1, integer=True)
        if (self.drafter is None) != (self.kind == "ngram"):
            what = "has no weights to name" if self.kind == "ngram" else "needs the folder of its weights"
            raise InvalidOption(
                f"drafter={self.drafter!r}: a drafter of kind {self.kind!r} {what}", hint="see headstart.fleet.parity"
            )
        shortest, longest = self.lookup
        check_number("prompt_lookup_min", shortest, low=1, integer=True)
        check_number("prompt_lookup_max", longest, low=shortest, integer=True)

    @property
    def exact(self) -> bool:
        """Whether the counters must be equal: rounding decides between tokens in narrower numbers only."""
        return self.dtype == "float32"

    @classmethod
    def of_speculation(
        cls, target: str | Path, speculation: Mapping[str, Any], *, dtype: str, device: str = "auto"
    ) -> Plan:
        """The plan of vLLM's ``--speculative-config``. Of depths by batch size the first holds: requests are sent one
        by one.

        Raises:
            UnsupportedModel: a method that headstart has no equal of.
            InvalidOption: no method, or no depth.
        """
        method: Any = speculation.get("method")
        if method not in get_args(Kind):
            raise UnsupportedModel(
                f"parity cannot be shown for speculation by {method!r}",
                hint=f"it can for {', '.join(get_args(Kind))}; name the method in the speculative configuration",
            )
        by_batch = speculation.get("num_speculative_tokens_per_batch_size")
        depth = by_batch[0][2] if by_batch else speculation.get("num_speculative_tokens")
        if not isinstance(depth, int):
            raise InvalidOption(
                "the speculative configuration names no depth", hint="set num_speculative_tokens to a whole number"
            )
        low, high = (speculation.get(f"prompt_lookup_{end}") for end in ("min", "max"))
        return cls(
            target=target,
            kind=method,
            depth=depth,
            drafter=None if method == "ngram" else speculation.get("model"),
            dtype=dtype,
            device=device,
            lookup=(low or high or 5, high or low or 5),
            parallel=bool(speculation.get("parallel_drafting", False)),
        )


MAX_TOKENS = 96
"""New tokens for each prompt."""

PROMPTS: tuple[str, ...] = tuple(json.loads(Path(__file__).with_name("prompts.json").read_text(encoding="utf-8")))
"""The beginnings of a dozen files of Python."""
