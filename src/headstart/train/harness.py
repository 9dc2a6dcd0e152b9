"""One training run, whatever is trained: read, cut into windows, step, measure, save, finish.

A `Student` knows its parameters, its loss on windows of text, its measure and its files; everything else is here. A
run can be killed at any moment: the same call goes on from the last checkpoint, and ends with the same weights as a run
that was never stopped (with a budget in steps, on the same machine).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from headstart.base.errors import InvalidOption
from headstart.base.words import counted
from headstart.loading.checkpoint import Checkpoint, check_quantize, find_device
from headstart.model import loading
from headstart.train import generations, output, sources, windows
from headstart.train.options import Training
from headstart.train.run import Run, read_ahead, take_steps
from headstart.train.schedule import Observer, Phases, Report, TrainingResult
from headstart.train.student import Material, Student
from headstart.train.windows import Text, Windows

__all__ = ["Maker", "Material", "Observer", "Report", "Student", "TrainingResult", "dtype_of", "load_target", "train"]

PROMPTS, PROMPT_TOKENS = 6, 128  # for the speedup at the end: the first half of so many windows, so many tokens at most

Maker = Callable[[Material], Student]


def train(options: Training, make: Maker, observe: Observer) -> TrainingResult:
    """Train what `make` makes and leave it in `options.output`, with its provenance.

    Raises:
        InvalidOption: a value or a data path that cannot be.
        ModelNotFound, UnsupportedModel: the target cannot be read.
        TrainingFailed: no text; no room on the disk; the directory holds another run or a finished drafter; the loss
            is not finite.
    """
    output.refuse_occupied(options)
    observe(Report("loading", 0.0))
    device = find_device(options.device)
    dtype = dtype_of(options, device)
    if options.generation_quantize is not None:
        check_quantize("generation_quantize", options.generation_quantize, device)
    target, tokenizer = load_target(options, device)
    corpus = sources.read(options.data) if options.data else sources.Corpus((), ())
    phases = Phases.of(options.folder / output.PHASES)
    learnt, heldout = make_windows(
        options, target, tokenizer, corpus, device=device, dtype=dtype, phases=phases, observe=observe
    )
    output.claim(options)
    run = Run.start(options, make(Material(target, tokenizer, learnt, heldout, device, dtype)), phases)
    student, resumed = run.student, run.step
    read_ahead(run, learnt, heldout, observe)
    take_steps(run, learnt, heldout, observe)
    student.module.to(torch.bfloat16).to(target.dtype)  # rounded as it will be stored, and then measured
    acceptance = run.measure(heldout)
    phases.save()
    record = output.describe(options, corpus, target, kind=student.kind, run=run, acceptance=acceptance)
    output.finish(options.folder, student.write, {**record, **student.facts()})
    result = TrainingResult(
        options.folder,
        run.step,
        run.tokens,
        run.clock.seconds,
        acceptance,
        resumed,
        tuple(tuple(row) for row in heldout.ids[:PROMPTS, : min(PROMPT_TOKENS, heldout.ids.shape[1] // 2)].tolist()),
        phases=dict(phases.found),
        stopped=run.stopped,
        used=student.used(options.folder),
    )
    observe(run.report("done", acceptance=acceptance))
    return result


def load_target(options: Training, device: torch.device) -> tuple[Any, Any]:
    """The target, frozen, and its tokenizer."""
    found = Checkpoint(options.target, "target", device=device)
    limit = loading.context_limit(found.config)
    if options.sequence_length > limit:
        problem = f"sequence_length={options.sequence_length} is longer than the target's context of {limit}"
        raise InvalidOption(problem, hint=f"use {limit} or less")
    if found.tokenizer is None:
        raise InvalidOption(f"{found.source} has no tokenizer", hint="copy the tokenizer's files beside the weights")
    target = loading.read_model(found.source, found.config, dtype_of(options, device))
    return target.to(device).eval().requires_grad_(False), found.tokenizer


def dtype_of(options: Training, device: torch.device) -> torch.dtype:
    """bfloat16 where the processor multiplies it natively, else float32; masters are float32 in any case."""
    if options.dtype != "auto":
        return torch.bfloat16 if options.dtype == "bfloat16" else torch.float32
    native = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native else torch.float32


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
        sources.UserTurn.of(tokenizer)  # refused before anything is written
    if wanted:
        output.claim(options)
        template = 2 * len(sources.chat_ids("", tokenizer)) if options.self_prompts else 0  # around what a user says
        longest = generations.longest_prompt(options) + template + options.generation_tokens
        limit = min(loading.context_limit(target.config), longest)
        with phases.doing("writing") as phase:
            writer = generations.Writer(options, tokenizer, device, dtype, longest=limit)
            meter = _Meter(wanted, options.generation_tokens, observe)
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
    learnt, held = windows.split(texts, options.validation, options.seed, least=options.sequence_length)
    packed = windows.pack(learnt, options.sequence_length, what="training")
    heldout = windows.pack(held, options.sequence_length, what="validation")
    return packed, heldout[: options.validation_windows]


def _text(document: sources.Document, tokenizer: Any) -> Text:
    if document.tokens:
        return Text(document.tokens, document.asked)
    if document.turns:
        return Text(generations.turn_ids(document, tokenizer))
    return Text(tokenizer(document.text, verbose=False)["input_ids"])


class _Meter:
    """Reports how many texts there are and how fast tokens come. Texts of a batch are done together, so what it has
    written counts as texts of the greatest length."""

    def __init__(self, wanted: int, longest: int, observe: Observer) -> None:
        self._wanted, self._longest, self._observe = wanted, longest, observe
        self._texts = self._tokens = self._before = 0
        self._begun = self._reported = time.monotonic()

    def batch(self, texts: int) -> None:
        self._texts += texts
        self._before = self._tokens
        self._report()

    def count(self, tokens: int) -> None:
        self._tokens += tokens
        if time.monotonic() - self._reported >= QUIET:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        note = counted(self._texts, "text")
        if self._tokens:
            note += f", {self._tokens / max(1e-9, self._reported - self._begun):.0f} tokens/s"
        under_way = min(
            (self._tokens - self._before) / self._longest, 0.9 * min(generations.BATCH, self._wanted - self._texts)
        )
        self._observe(Report("generating", (self._texts + under_way) / self._wanted, note=note))
