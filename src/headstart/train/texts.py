"""From a run's options to the windows that it learns from and is measured on: the data, and what the target writes."""

from __future__ import annotations

import time
from typing import Any

import torch

from headstart.model import loading
from headstart.train import asking, generations, output, sources, windows
from headstart.train.options import Training
from headstart.train.phases import Phases
from headstart.train.reports import Observer, Report
from headstart.train.windows import Text, Windows

QUIET = 5.0  # seconds between reports while texts are being written


def make_windows(
    options: Training,
    target: Any,
    tokenizer: Any,
    corpus: sources.Corpus,
    *,
    device: torch.device,
    dtype: torch.dtype,
    phases: Phases,
    observe: Observer,
) -> tuple[Windows, Windows]:
    """Windows to learn from, and windows held out."""
    answered = options.generations > 0  # prompts are then learnt with their answers, and not for themselves
    texts = [_text(d, tokenizer) for d in corpus.documents if not (answered and d.turns)]
    wanted = options.generations + options.self_prompts
    if options.self_prompts:
        asking.UserTurn.of(tokenizer)  # refused before anything is written
    if wanted:
        output.claim(options)
        limit = min(
            loading.context_limit(target.config),
            generations.longest_prompt(options) + _overhead(options, tokenizer) + options.generation_tokens,
        )
        with phases.doing("writing") as phase:
            writer = generations.Writer(options, tokenizer, device, dtype, longest=limit)
            meter = _Meter(wanted, observe)
            writer.written = meter.count
            folder = options.folder / "generations"
            for write in (
                generations.converse(writer, folder) if options.self_prompts else (),
                generations.write(writer, corpus.documents, folder) if options.generations else (),
            ):
                for batch in write:
                    texts += batch
                    phase.tokens, writer.tokens = phase.tokens + writer.tokens, 0
                    phases.save()
                    meter.batch(len(batch))
            writer.close()
    learnt, held = windows.split(texts, options.validation, options.seed)
    packed = windows.pack(learnt, options.sequence_length, what="training")
    heldout = windows.pack(held, options.sequence_length, what="validation")
    return packed, heldout[: options.validation_windows]


def _text(document: sources.Document, tokenizer: Any) -> Text:
    if document.tokens:
        return Text(document.tokens, document.asked)
    if document.turns:
        return Text(generations.turn_ids(document, tokenizer))
    return Text(tokenizer(document.text, verbose=False)["input_ids"])


def _overhead(options: Training, tokenizer: Any) -> int:
    """Tokens that the chat template adds to what the target writes as a user."""
    return 2 * len(asking.chat_ids("", tokenizer)) if options.self_prompts else 0


class _Meter:
    """Reports how many texts there are and how fast tokens come."""

    def __init__(self, wanted: int, observe: Observer) -> None:
        self._wanted, self._observe = wanted, observe
        self._texts = self._tokens = 0
        self._begun = self._reported = time.monotonic()

    def batch(self, texts: int) -> None:
        self._texts += texts
        self._report()

    def count(self, tokens: int) -> None:
        self._tokens += tokens
        if time.monotonic() - self._reported >= QUIET:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        note = f"{self._texts} texts"
        if self._tokens:
            note += f", {self._tokens / max(1e-9, self._reported - self._begun):.0f} tokens/s"
        self._observe(Report("generating", self._texts / self._wanted, note=note))
