"""One training run, whatever is trained: read, cut into windows, step, measure, save, finish.

A `Student` knows its parameters, its loss on windows of text, its measure and its files; everything else is here. A
run can be killed at any moment: the same call goes on from the last checkpoint, and ends with the same weights as a run
that was never stopped (with a budget in steps, on the same machine).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from headstart.errors import InvalidOption, TrainingFailed
from headstart.loading.checkpoint import Checkpoint, find_device
from headstart.model import loading
from headstart.training import checkpoint, generations, output, provenance, sources, windows
from headstart.training.acceptance import Acceptance
from headstart.training.hidden import TargetStates
from headstart.training.optimiser import Optimiser
from headstart.training.options import Training
from headstart.training.schedule import Budget, Clock, rate

LOGITS_AT_ONCE = 1 << 26  # elements; a micro-batch's logits stay below it
QUICK_WINDOWS = 16  # of the held-out windows are measured on the way; all of them at the end
PROMPTS, PROMPT_TOKENS = 6, 128  # for the speedup at the end
Stage = Literal["reading", "generating", "training", "measuring", "done"]


@dataclass(frozen=True, slots=True)
class Report:
    """What an observer is given after every step, and when the stage changes."""

    stage: Stage
    progress: float
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    acceptance: Acceptance | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A finished drafter: its directory, how much it was trained, and how it did on held-out text."""

    path: Path
    steps: int
    tokens: int
    seconds: float
    acceptance: Acceptance
    resumed_from: int = 0
    prompts: tuple[tuple[int, ...], ...] = ()
    """Beginnings of held-out windows, in token ids, to measure the speedup on."""


Observer = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class Material:
    """What a student is made from."""

    target: Any
    """The frozen target, a model of transformers."""
    tokenizer: Any
    train: Tensor
    """Windows [n, length] to learn from."""
    heldout: Tensor
    """Windows [n, length] to measure on."""
    device: torch.device
    dtype: torch.dtype
    """Of the student's weights during training."""


class Student(Protocol):
    """What is trained. Its parameters must be a function of options and material alone, so that a run can resume."""

    kind: str
    """For the provenance: "draft", "eagle3", ..."""

    logits_per_token: int
    """Logits held at once for each token of a window, which bounds the windows of a micro-batch."""

    @property
    def states(self) -> TargetStates | None:
        """What it learns from, where that can be read ahead and kept."""

    @property
    def module(self) -> nn.Module:
        """What is trained."""

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """What the optimiser updates."""

    def loss(self, ids: Tensor, places: Tensor, step: int) -> Tensor:
        """Mean loss, with its graph, on windows [n, length] that stand at `places` [n] of the training windows."""

    def measure(self, heldout: Tensor) -> Acceptance:
        """How often its drafts would be accepted on windows [n, length]."""

    def write(self, folder: Path) -> None:
        """Write its files into an empty directory."""

    def facts(self) -> dict[str, Any]:
        """What the provenance records beside the options."""


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
    observe(Report("reading", 0.0))
    device = find_device(options.device)
    target, tokenizer = load_target(options, device)
    corpus = sources.read(options.data)
    learnt, heldout = _windows(options, target, tokenizer, corpus, observe)
    output.claim(options)
    student = make(Material(target, tokenizer, learnt, heldout, device, dtype_of(options, device)))
    run = Run.start(options, student, device)
    resumed = run.step
    _steps(run, learnt, heldout, observe)
    student.module.to(torch.bfloat16).to(target.dtype)  # rounded as it will be stored, and then measured
    acceptance = student.measure(heldout)
    record = provenance.describe(
        options,
        corpus,
        target,
        kind=student.kind,
        steps=run.step,
        tokens=run.tokens,
        seconds=run.clock.seconds,
        acceptance=acceptance,
    )
    output.finish(options.folder, student.write, {**record, **student.facts()})
    result = TrainingResult(
        options.folder, run.step, run.tokens, run.clock.seconds, acceptance, resumed, _prompts(heldout)
    )
    observe(run.report("done", acceptance=acceptance))
    return result


@dataclass
class Run:
    """All that changes during a run."""

    options: Training
    student: Student
    optimiser: Optimiser
    budget: Budget
    clock: Clock
    device: torch.device
    step: int = 0
    losses: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, options: Training, student: Student, device: torch.device) -> Run:
        """A new run, or the one that a checkpoint in the output directory belongs to."""
        parameters = student.named_parameters()
        optimiser = Optimiser(parameters, matrix_rate=options.matrix_rate, other_rate=options.other_rate)
        run = cls(options, student, optimiser, Budget(options.steps, options.minutes), Clock(), device)
        if found := checkpoint.latest(options.folder / "checkpoints"):
            optimiser.load(found.tensors("optimiser"))
            run.step, run.clock = found.step, Clock(found.state()["seconds"])
        return run

    @property
    def progress(self) -> float:
        return self.budget.progress(self.step, self.clock.seconds)

    @property
    def tokens(self) -> int:
        return self.step * self.options.batch_size * self.options.sequence_length

    def save(self) -> None:
        """Write a checkpoint: the optimiser's masters are the weights."""
        state = {"seconds": self.clock.seconds, "options": self.options.record()}
        checkpoint.save(self.options.folder / "checkpoints", self.step, {"optimiser": self.optimiser.tensors()}, state)

    def report(self, stage: Stage, *, acceptance: Acceptance | None = None) -> Report:
        loss = sum(self.losses) / len(self.losses) if self.losses else math.nan
        return Report(stage, self.progress, self.step, self.tokens, self.clock.seconds, loss, acceptance)


def _steps(run: Run, learnt: Tensor, heldout: Tensor, observe: Observer) -> None:
    """Steps until the budget is spent; measures and saves on the way."""
    options = run.options
    saved = run.clock.seconds
    while (progress := run.progress) < 1:
        places = windows.picks(len(learnt), run.step, options.batch_size, options.seed)
        loss = _backward(run, learnt[places].long().to(run.device), places)
        if not math.isfinite(loss):
            raise TrainingFailed(f"the loss at step {run.step} is {loss}", hint="lower matrix_rate and other_rate")
        run.optimiser.step(rate(progress, run.step))
        run.step += 1
        run.losses = [*run.losses[-49:], loss]
        observe(run.report("training"))
        if run.step % options.evaluate_every == 0:
            observe(run.report("measuring", acceptance=run.student.measure(heldout[:QUICK_WINDOWS])))
        if run.clock.seconds - saved >= options.save_every:
            run.save()
            saved = run.clock.seconds
    if run.clock.seconds > saved:
        run.save()  # whatever goes wrong from here on, nothing has to be learnt again


def _backward(run: Run, ids: Tensor, places: Tensor) -> float:
    """Gradients of the mean loss over windows [batch, length], a micro-batch at a time; returns the loss."""
    options = run.options
    size = options.micro_batch or max(1, LOGITS_AT_ONCE // (run.student.logits_per_token * options.sequence_length))
    total = 0.0
    for part, where in zip(torch.split(ids, size), torch.split(places, size), strict=True):
        loss = run.student.loss(part, where, run.step) * (len(part) / len(ids))
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


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


def _windows(
    options: Training, target: Any, tokenizer: Any, corpus: sources.Corpus, observe: Observer
) -> tuple[Tensor, Tensor]:
    """Windows to learn from and windows held out: the texts, and the target's own if asked for."""
    texts = []
    for document in corpus.documents:
        if document.tokens:
            texts.append(list(document.tokens))
        elif document.turns:
            texts.append(generations.turn_ids(document, tokenizer))
        else:
            texts.append(tokenizer(document.text, verbose=False)["input_ids"])
    if options.generations:
        output.claim(options)
        folder = options.folder / "generations"
        written: list[list[int]] = []
        for batch in generations.write(target, tokenizer, corpus.documents, options, folder):
            written += batch
            observe(Report("generating", len(written) / options.generations, note=f"{len(written)} texts"))
        texts += written
    learnt, held = windows.split(texts, options.validation, options.seed)
    packed = windows.pack(learnt, options.sequence_length, what="training")
    heldout = windows.pack(held, options.sequence_length, what="validation")
    return packed, heldout[: options.validation_windows]


def _prompts(heldout: Tensor) -> tuple[tuple[int, ...], ...]:
    """The first half of a few windows."""
    begun = heldout[:PROMPTS, : min(PROMPT_TOKENS, heldout.shape[1] // 2)]
    return tuple(tuple(row) for row in begun.tolist())


def dtype_of(options: Training, device: torch.device) -> torch.dtype:
    """bfloat16 where the processor multiplies it natively, else float32; masters are float32 in any case."""
    if options.dtype != "auto":
        return torch.bfloat16 if options.dtype == "bfloat16" else torch.float32
    native = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native else torch.float32
