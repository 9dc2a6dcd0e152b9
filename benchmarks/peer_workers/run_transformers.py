"""transformers' `generate`: plain (batches padded on the left), assisted by a draft LM, or by prompt lookup.

Assisted: a constant K, and no early end of a draft.
"""

from __future__ import annotations

from typing import Any

import torch
from protocol import Complete, Options, serve, versions
from transformers import AutoModelForCausalLM


def build(options: Options) -> tuple[Complete, dict[str, Any]]:
    torch.set_num_threads(options["threads"])
    model = AutoModelForCausalLM.from_pretrained(options["target"], dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None  # a fixed number of tokens on all sides
    extra: dict[str, Any] = {}
    if options["mode"] == "draft":
        assistant = AutoModelForCausalLM.from_pretrained(options["drafter"], dtype=torch.bfloat16).eval()
        settings = assistant.generation_config
        settings.eos_token_id = None
        settings.num_assistant_tokens = options["k"]
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0.0
        extra["assistant_model"] = assistant
    elif options["mode"] == "ngram":
        extra["prompt_lookup_num_tokens"] = options["k"]
    forwards = 0

    def count(*_: Any) -> None:
        nonlocal forwards
        forwards += 1

    model.register_forward_pre_hook(count)

    def complete(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], int | None]:
        before, width = forwards, max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=0, **extra
        )
        return out[:, width:].tolist(), forwards - before if len(prompts) == 1 else None

    return complete, {"versions": versions("transformers", "torch")}


if __name__ == "__main__":
    serve(build)
