"""llama.cpp's logits and tokens of given texts, through llama-cpp-python: for the accuracy of its products, not for
their speed.

    python logits_llamacpp.py OPTIONS        (in llama.cpp's environment)

OPTIONS is one JSON object: target, a GGUF file; texts, lists of token ids; judged, how many last positions of each are
wanted; threads; out, where they are written, an array .npy [positions, vocabulary] in float32; flash, whether attention
is fused (true); keys, "F16" (as it usually is) or "F32" for keys and values. Or: target; strings, texts that are
tokenized. Or a list of such objects, of as many files. One line of JSON for each says what computed it, and which
tokens.
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


def write_logits(options: dict[str, Any]) -> None:
    longest, threads = max(map(len, options["texts"])), options["threads"]
    kind = {"F16": llama_cpp.GGML_TYPE_F16, "F32": llama_cpp.GGML_TYPE_F32}[options.get("keys", "F16")]
    model = llama_cpp.Llama(
        options["target"],
        n_ctx=longest,
        n_batch=longest,
        n_ubatch=longest,
        n_threads=threads,
        n_threads_batch=threads,
        flash_attn=options.get("flash", True),
        type_k=kind,
        type_v=kind,
        logits_all=True,
        verbose=False,
    )
    found = [logits(model, text, judged) for text, judged in zip(options["texts"], options["judged"], strict=True)]
    np.save(options["out"], np.concatenate(found))


def tokens(options: dict[str, Any]) -> list[list[int]]:
    """Of each string, with a first token where the file's tokenizer has one."""
    model = llama_cpp.Llama(options["target"], vocab_only=True, verbose=False)
    return [model.tokenize(text.encode(), add_bos=True, special=True) for text in options["strings"]]


def main(options: dict[str, Any]) -> dict[str, Any]:
    found = {"tokens": tokens(options)} if "strings" in options else {}
    if not found:
        write_logits(options)
    system = llama_cpp.llama_print_system_info().decode()
    return {"versions": versions("llama-cpp-python"), "system": " ".join(system.split()), **found}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to standard error
    asked = json.loads(sys.argv[1])
    for each in asked if isinstance(asked, list) else [asked]:
        answers.write(json.dumps(main(each)) + "\n")
        answers.flush()
