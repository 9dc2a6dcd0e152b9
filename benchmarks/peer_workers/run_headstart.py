"""headstart: plain, n-gram, draft LM, or a list of n-gram and draft LM, its trees, or an EAGLE-3 head; each K fixed or
the drafter's own."""

from __future__ import annotations

from typing import Any

import torch
from protocol import Complete, Options, serve, versions

import headstart as hs


def build(options: Options) -> tuple[Complete, dict[str, Any]]:
    torch.set_num_threads(options["threads"])
    draft = options["drafter"]
    drafters = {
        "plain": "none",
        "ngram": "ngram",
        "draft": draft,
        "list": ["ngram", draft],
        "trees": ["ngram", draft],
        "heads": ["ngram", options["eagle"]],
    }
    engine = hs.load(
        options["target"],
        drafters[options["mode"]],
        device="cpu",
        dtype="bfloat16",
        quantize="int8" if options["precision"] == "int8" else None,
        num_speculative_tokens=options.get("k"),
        draft_tree="mixed" if options["mode"] in ("trees", "heads") else "auto",
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

    return complete, {"versions": versions("headstart", "torch", "transformers")}


if __name__ == "__main__":
    serve(build)
