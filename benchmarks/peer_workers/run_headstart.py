"""headstart: plain, n-gram, draft LM, EAGLE-3 head, or a list of n-gram and draft LM, its trees, or the head; each K
fixed or the drafter's own. In the mode "named" the drafter is any name, or a list, that `headstart.load` takes."""

from __future__ import annotations

import time
from typing import Any

import torch
from protocol import Complete, Forward, Options, resident_bytes, serve, versions

import headstart as hs
from headstart.model import native
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft


def timed_forward(runner: ModelRunner, cache: Slots) -> Forward:
    """Forwards of a chain of draft nodes after cached tokens; what is cached is kept from call to call."""
    slot = cache.acquire()

    def forward(rows: int, context: int, kept: int) -> float:
        tokens = [number * 7919 % runner.vocab_size for number in range(context + rows)]
        if cache.lengths[slot] != context:
            cache.rewind(slot, 0)
            runner.forward([Segment(slot, tuple(tokens[:context]))], cache)
            cache.keep(slot, context)
        segment = Segment(slot, (tokens[context],), Draft.chain(tokens[context + 1 :]), rows)
        start = time.perf_counter()
        runner.forward([segment], cache)
        seconds = time.perf_counter() - start
        if kept:
            cache.keep(slot, 1, range(kept - 1))
        return seconds

    return forward


def build(options: Options) -> tuple[Complete, dict[str, Any], Forward]:
    torch.set_num_threads(options["threads"])
    draft = options["drafter"]
    drafters = {
        "plain": "none",
        "ngram": "ngram",
        "draft": draft,
        "head": options.get("eagle"),
        "list": ["ngram", draft],
        "trees": ["ngram", draft],
        "heads": ["ngram", options.get("eagle")],
        "named": draft,
    }
    before = resident_bytes()
    engine = hs.load(
        options["target"],
        drafters[options["mode"]],
        device="cpu",
        dtype=options.get("dtype", "bfloat16"),
        quantize=options["precision"] if options["precision"] in ("int8", "int4") else None,
        num_speculative_tokens=options.get("k"),
        draft_tree="mixed" if options["mode"] in ("trees", "head", "heads") else "auto",
        max_batch_size=options["batch"],
        max_length=options["context"],
    )

    def complete(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], int | None]:
        sampling = hs.Sampling(max_tokens=new_tokens, ignore_eos=True)
        outputs = engine.generate(prompts, sampling)
        for output in outputs:  # a figure of a fallback would be of something else
            failure = output.error or output.stats.speculation.error
            if failure is not None:
                raise RuntimeError("the engine did not run as asked") from failure
        one = outputs[0].stats.target_forwards + outputs[0].stats.prefill_forwards
        return [list(output.tokens) for output in outputs], one if len(outputs) == 1 else None

    cache = engine.target.new_cache(1)
    facts = {
        "versions": versions("headstart", "torch", "transformers"),
        "decoder": engine.target.decoder,
        "level": native.here().level,
        "recurrent": cache.states is not None,
        "bytes_before": before,
        "loaded_bytes": resident_bytes() - before,
    }
    return complete, facts, timed_forward(engine.target, cache)


if __name__ == "__main__":
    serve(build)
