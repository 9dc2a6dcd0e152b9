"""llama.cpp's logits of given texts, through llama-cpp-python: for the accuracy of its products, not for their speed.

    python logits_llamacpp.py OPTIONS        (in llama.cpp's environment)

OPTIONS is one JSON object: target, a GGUF file; texts, lists of token ids; judged, how many last positions of each are
wanted; threads; out, where they are written, an array .npy [positions, vocabulary] in float32. One line of JSON says
what computed them.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import llama_cpp
import numpy as np
from protocol import versions


def logits(model: llama_cpp.Llama, text: list[int], judged: int) -> np.ndarray:
    """Of the last `judged` positions of a text, which is read in one batch."""
    model.reset()
    model.eval(text)
    return np.array(model.scores[len(text) - judged : len(text)], np.float32)


def main(options: dict[str, Any]) -> dict[str, Any]:
    longest, threads = max(map(len, options["texts"])), options["threads"]
    model = llama_cpp.Llama(
        options["target"],
        n_ctx=longest,
        n_batch=longest,
        n_ubatch=longest,
        n_threads=threads,
        n_threads_batch=threads,
        flash_attn=options.get("flash", True),
        logits_all=True,
        verbose=False,
    )
    found = [logits(model, text, judged) for text, judged in zip(options["texts"], options["judged"], strict=True)]
    np.save(options["out"], np.concatenate(found))
    system = llama_cpp.llama_print_system_info().decode()
    return {"versions": versions("llama-cpp-python"), "system": " ".join(system.split())}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to standard error
    answers.write(json.dumps(main(json.loads(sys.argv[1]))) + "\n")
