"""One training run, whatever is trained: read, cut into windows, step, measure, save, finish.

A `Student` knows its parameters, its loss on windows of text, its measure and its files; everything else is here. A
run can be killed at any moment: the same call goes on from the last checkpoint, and ends with the same weights as a run
that was never stopped (with a budget in steps, on the same machine).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from headstart.base.errors import InvalidOption
from headstart.loading.checkpoint import Checkpoint, check_quantize, find_device
from headstart.model import loading
from headstart.train import output, provenance, sources
from headstart.train.options import Training
from headstart.train.phases import Phases
from headstart.train.reports import Observer, Report, TrainingResult
from headstart.train.run import Run, Student, read_ahead, take_steps
from headstart.train.texts import make_windows
from headstart.train.windows import Windows

__all__ = ["Maker", "Material", "Observer", "Report", "Student", "TrainingResult", "dtype_of", "load_target", "train"]

PROMPTS, PROMPT_TOKENS = 6, 128  # for the speedup at the end


@dataclass(frozen=True, slots=True)
class Material:
    """What a student is made from."""

    target: Any
    """The frozen target, a model of transformers."""
    tokenizer: Any
    train: Windows
    """What is learnt from."""
    heldout: Windows
    """What is measured on."""
    device: torch.device
    dtype: torch.dtype
    """Of the student's weights during training."""


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
    record = provenance.describe(options, corpus, target, kind=student.kind, run=run, acceptance=acceptance)
    output.finish(options.folder, student.write, {**record, **student.facts()})
    result = TrainingResult(
        options.folder,
        run.step,
        run.tokens,
        run.clock.seconds,
        acceptance,
        resumed,
        _prompts(heldout),
        phases=dict(phases.found),
        stopped=run.stopped,
    )
    observe(run.report("done", acceptance=acceptance))
    return result


def load_target(options: Training, device: torch.device) -> tuple[Any, Any]:
    """The target, frozen, and its tokenizer."""
    found = Checkpoint(options.target, "target", device=device)
    limit = loading.context_limit(found.config)
    if options.sequence_length > limit:
        raise InvalidOption(
            f"sequence_length={options.sequence_length} is longer than the target's context of {limit}",
            hint=f"use {limit} or less",
        )
    if found.tokenizer is None:
        raise InvalidOption(f"{found.source} has no tokenizer", hint="copy the tokenizer's files beside the weights")
    target = loading.read_model(found.source, found.config, dtype_of(options, device))
    return target.to(device).eval().requires_grad_(False), found.tokenizer


def _prompts(heldout: Windows) -> tuple[tuple[int, ...], ...]:
    """The first half of a few windows."""
    begun = heldout.ids[:PROMPTS, : min(PROMPT_TOKENS, heldout.ids.shape[1] // 2)]
    return tuple(tuple(row) for row in begun.tolist())


def dtype_of(options: Training, device: torch.device) -> torch.dtype:
    """bfloat16 where the processor multiplies it natively, else float32; masters are float32 in any case."""
    if options.dtype != "auto":
        return torch.bfloat16 if options.dtype == "bfloat16" else torch.float32
    native = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native else torch.float32
