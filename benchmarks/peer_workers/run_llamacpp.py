"""llama.cpp through llama-cpp-python: plain, prompt lookup, or a draft LM behind its `LlamaDraftModel`.

Drafts are for one sequence at a time there; a batch is decoded plainly, with one sequence for each prompt.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding
from protocol import Complete, Forward, Options, resident_bytes, serve


class DraftLM(LlamaDraftModel):
    """K greedy tokens of a second model, whose cache keeps the prefix that it shares with the call before."""

    def __init__(self, model: llama_cpp.Llama, k: int) -> None:
        self.model = model
        self.k = k

    def __call__(self, input_ids: np.ndarray, /, **_: Any) -> np.ndarray:
        return np.fromiter(islice(self.model.generate(input_ids.tolist(), temp=0), self.k), dtype=np.intc)


class Batch:
    """Greedy decoding of several sequences at once, on the weights of `model`."""

    def __init__(self, model: llama_cpp.Llama, sequences: int, length: int, threads: int) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max = sequences
        params.n_ctx = params.n_batch = sequences * length
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.context = llama_cpp.llama_init_from_model(model.model, params)
        self.batch = llama_cpp.llama_batch_init(sequences * length, 0, 1)
        self.vocabulary = model.n_vocab()

    def steps(self, prompts: list[list[int]]) -> Iterator[list[int]]:
        """One token for each prompt at a time, without end."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        ends = [0] * len(prompts)
        fed = prompts
        while True:
            last = []
            count = 0
            for sequence, tokens in enumerate(fed):
                for i, token in enumerate(tokens):
                    self.batch.token[count] = token
                    self.batch.pos[count] = ends[sequence] + i
                    self.batch.n_seq_id[count] = 1
                    self.batch.seq_id[count][0] = sequence
                    self.batch.logits[count] = i == len(tokens) - 1
                    count += 1
                ends[sequence] += len(tokens)
                last.append(count - 1)
            self.batch.n_tokens = count
            if code := llama_cpp.llama_decode(self.context, self.batch):
                raise RuntimeError(f"llama_decode returned {code}")
            chosen = [self._largest(row) for row in last]
            yield chosen
            fed = [[token] for token in chosen]

    def _largest(self, row: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())


def timed_forward(model: llama_cpp.Llama) -> Forward:
    """Forwards of rows after cached tokens, on the context of `model`; what is cached is kept from call to call.

    The states of recurrent layers cannot be cut there: they are copied before, and copied back.
    """
    context = model.ctx
    recurrent = llama_cpp.llama_model_is_recurrent(model.model) or llama_cpp.llama_model_is_hybrid(model.model)
    saved = (ctypes.c_uint8 * 0)()
    batch = llama_cpp.llama_batch_init(model.n_batch, 0, 1)
    held = -1

    def decode(first: int, count: int, judged: bool) -> None:
        batch.n_tokens = count
        for row in range(count):
            batch.token[row] = (first + row) * 7919 % model.n_vocab()
            batch.pos[row] = first + row
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = judged or row == count - 1
        if code := llama_cpp.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        llama_cpp.llama_synchronize(context)

    def forward(rows: int, cached: int, kept: int) -> float:
        nonlocal held, saved
        if kept:
            raise ValueError("all rows are forgotten here")
        memory = llama_cpp.llama_get_memory(context)
        if held != cached:
            llama_cpp.llama_memory_clear(memory, True)
            decode(0, cached, judged=False)
            held = cached
            if recurrent:
                saved = (ctypes.c_uint8 * llama_cpp.llama_state_seq_get_size(context, 0))()
                llama_cpp.llama_state_seq_get_data(context, saved, len(saved), 0)
        start = time.perf_counter()
        decode(cached, rows, judged=True)
        seconds = time.perf_counter() - start
        if not recurrent:
            llama_cpp.llama_memory_seq_rm(memory, 0, cached, -1)
        elif llama_cpp.llama_state_seq_set_data(context, saved, len(saved), 0) != len(saved):
            raise RuntimeError("the copy of the states was not taken back")
        return seconds

    return forward


def build(options: Options) -> tuple[Complete, dict[str, Any], Forward]:
    length, threads = options["context"], options["threads"]

    def load(path: str, **extra: Any) -> llama_cpp.Llama:
        shape = {"n_ctx": length, "n_batch": length, "n_threads": threads, "n_threads_batch": threads}
        return llama_cpp.Llama(path, flash_attn=True, verbose=False, **shape, **extra)

    before = resident_bytes()
    draft = load(options["drafter"]) if options["mode"] == "draft" else None
    guess: LlamaDraftModel | None = None
    if draft is not None:
        guess = DraftLM(draft, options["k"])
    elif options["mode"] == "ngram":
        guess = LlamaPromptLookupDecoding(max_ngram_size=3, num_pred_tokens=options["k"])
    model = load(options["target"], draft_model=guess, logits_all=guess is not None)
    batch = Batch(model, options["batch"], length, threads) if guess is None and options["batch"] > 1 else None

    loaded = resident_bytes() - before

    def complete(prompts: list[list[int]], new_tokens: int) -> tuple[list[list[int]], int | None]:
        if len(prompts) > 1:
            if batch is None:
                raise ValueError("llama-cpp-python drafts for one sequence at a time")
            return [list(row) for row in zip(*islice(batch.steps(prompts), new_tokens), strict=True)], None
        for each in (model, draft):
            if each is not None:
                each.reset()  # the prompt is read each time
        return [list(islice(model.generate(prompts[0], temp=0), new_tokens))], None

    system = llama_cpp.llama_print_system_info().decode()
    facts = {"versions": {"llama-cpp-python": llama_cpp.__version__}, "system": " ".join(system.split())}
    return complete, {**facts, "bytes_before": before, "loaded_bytes": loaded}, timed_forward(model)


if __name__ == "__main__":
    serve(build)
