"""OpenVINO GenAI with continuous batching on CPU: plain, draft LM, EAGLE-3 head (chains and trees), or prompt lookup;
bf16 or int8 weights.

Activations are bf16. With int8 weights, OpenVINO quantises activations, in the groups that it takes by default or, with
`whole_rows`, with one scale for each row. Its KV cache is 8-bit by default, whatever the weights are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from protocol import Complete, Options, serve, versions

WHOLE_ROWS = str(2**64 - 1)
BRANCHES = 4
"""Children of a tree's node, at most."""


def build(options: Options) -> tuple[Complete, dict[str, Any]]:
    properties: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": options["threads"]}
    if options.get("whole_rows"):
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = WHOLE_ROWS
    extra: dict[str, Any] = {}
    if options["mode"] in ("draft", "head"):
        drafter = options["drafter" if options["mode"] == "draft" else "eagle"]
        extra["draft_model"] = genai.draft_model(drafter, "CPU", **properties)
    elif options["mode"] == "ngram":
        extra["prompt_lookup"] = True
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2  # GiB
    scheduler.max_num_seqs = options["batch"]
    scheduler.enable_prefix_caching = False
    engine = genai.ContinuousBatchingPipeline(options["target"], scheduler, "CPU", {**properties, **extra})

    def complete(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], int | None]:
        config = genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        if options["mode"] != "plain":
            config.num_assistant_tokens = options["k"]
        if options["mode"] == "ngram":
            config.max_ngram_size = 3
        if "tree_depth" in options:
            config.tree_depth = options["tree_depth"]
            config.branching_factor = BRANCHES
        given = [ov.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        outputs = engine.generate(given, [config] * len(prompts))
        return [list(output.m_generation_ids[0]) for output in outputs], None

    return complete, {"versions": versions("openvino", "openvino-genai")}


if __name__ == "__main__":
    serve(build)
