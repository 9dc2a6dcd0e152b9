"""`vllm.yaml`: what one engine is started with.

Keys of `vllm.yaml` are the long options of `vllm serve`, without their dashes. The speculative config is a nested
mapping, so that no shell has to quote JSON. `method` always stands in it: without it vLLM guesses the method from the
folder's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headstart.fleet.export.manifest import DepthAt, DrafterKind
from headstart.fleet.export.options import ExportOptions

LOOKUP = (3, 5)
"""The least and the greatest length of a match of n-grams. An engine that drafts K tokens after every match cannot tell
weak ones, so short ones are left out; vLLM's own default is 5 and 5."""
BUCKETS = {
    "inter_token_latency": [
        0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5,
        5.0,
    ],
}  # fmt: skip
"""Seconds. vLLM's smallest bucket of these histograms is 10 ms, in which every fast answer would disappear."""


def speculative_config(
    kind: DrafterKind,
    folder: str | None,
    depth: int,
    *,
    drawn: bool,
    revision: str | None = None,
    parallel: bool = False,
) -> dict[str, Any]:
    """What vLLM calls `speculative_config`.

    folder: of the drafter on the serving machine, or its hub id. drawn: draft tokens are drawn from the drafter's
    distribution and judged by it, as headstart does at temperatures above 0; else they are its likeliest ones. Both are
    exact.
    parallel: the drafter guesses all tokens in one forward.
    """
    found: dict[str, Any] = {"method": kind}
    if folder is not None:
        found["model"] = folder
    if revision is not None:
        found["revision"] = revision
    found["num_speculative_tokens"] = depth
    if kind == "ngram":
        found["prompt_lookup_min"], found["prompt_lookup_max"] = LOOKUP
    if drawn and kind in ("eagle3", "draft_model"):
        found["draft_sample_method"] = "probabilistic"
    if parallel:
        found["parallel_drafting"] = True
    return found


def schedule(depths: Sequence[DepthAt]) -> list[list[int]]:
    """[[first, last, K], ...] for `num_speculative_tokens_per_batch_size`, from K at some batch sizes.

    A size between two that were looked at takes the K of the larger one: guesses are dearer the more requests there
    are. The last range is open in effect: vLLM takes its K for all larger batches.
    """
    ranges: list[list[int]] = []
    first = 1
    for one in depths:
        if ranges and ranges[-1][2] == one.depth:
            ranges[-1][1] = one.batch
        else:
            ranges.append([first, one.batch, one.depth])
        first = one.batch + 1
    return ranges


def vllm_values(target: str, name: str, dtype: str, speculation: Mapping[str, Any], options: ExportOptions,
                revision: str | None = None) -> dict[str, Any]:  # fmt: skip
    """The keys and values of the file."""
    found: dict[str, Any] = {"model": target, "served-model-name": name, "dtype": dtype}
    if revision is not None:
        found["revision"] = revision
    if options.max_model_len is not None:
        found["max-model-len"] = options.max_model_len
    found["speculative-config"] = dict(speculation)
    found["custom-histogram-buckets"] = BUCKETS
    return found | dict(options.settings)
