"""`train_draft`: distil a small draft from any causal LM (Hinton et al. 2015; for drafts: DistillSpec, 2310.08461).

The target reads windows of text, the draft reads the same, and at every position the draft's law is pulled towards
the target's. A run can be killed at any moment: the same call goes on from the last checkpoint, and ends with the same
weights as a run that was never stopped (with a budget in steps, on the same machine).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from headstart.errors import InvalidOption, TrainingFailed
from headstart.model import loading
from headstart.model.tokenizers import load_tokenizer
from headstart.training import checkpoint, generations, output, provenance, sources, student, windows
from headstart.training.acceptance import Acceptance, measure
from headstart.training.objective import divergence
from headstart.training.optimiser import Optimiser
from headstart.training.options import DraftTraining
from headstart.training.schedule import Budget, Clock, rate

LOGITS_AT_ONCE = 1 << 26  # elements; a micro-batch's logits stay below it
Stage = Literal["reading", "generating", "training", "measuring", "done"]


@dataclass(frozen=True, slots=True)
class Report:
    """What an observer is told: after every step, and when the stage changes."""

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
    """A finished draft: its directory, how much it was trained, and how it did on held-out text."""

    path: Path
    steps: int
    tokens: int
    seconds: float
    acceptance: Acceptance
    resumed_from: int = 0


Observer = Callable[[Report], None]


def train_draft(options: DraftTraining, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train a draft and write it to `options.output` as a plain Hugging Face directory with its provenance.

    Raises:
        InvalidOption: a value or a data path that cannot be.
        ModelNotFound, UnsupportedModel: the target cannot be read.
        TrainingFailed: no text; the directory holds another run or a finished draft; the loss is not finite.
    """
    output.refuse_occupied(options)
    observe(Report("reading", 0.0))
    device = torch.device(options.device if options.device != "auto" else _best_device())
    target, tokenizer = load_target(options, device)
    corpus = sources.read(options.data)
    train, heldout = _windows(options, target, tokenizer, corpus, observe)
    output.claim(options)
    run = Run.start(options, target, device)
    resumed = run.step
    _train(run, target, train, heldout, observe)
    draft = run.draft.eval().to(torch.bfloat16).to(target.dtype)  # rounded as it will be stored, then measured
    acceptance = measure(target, draft, heldout)
    record = provenance.describe(
        options, corpus, target, steps=run.step, tokens=run.tokens, seconds=run.clock.seconds, acceptance=acceptance
    )
    output.finish(options.folder, draft.to(torch.bfloat16), tokenizer, record)
    result = TrainingResult(options.folder, run.step, run.tokens, run.clock.seconds, acceptance, resumed)
    observe(run.report("done", acceptance=acceptance))
    return result


@dataclass
class Run:
    """All that changes during a run."""

    options: DraftTraining
    draft: LlamaForCausalLM
    optimiser: Optimiser
    budget: Budget
    clock: Clock
    device: torch.device
    step: int = 0
    losses: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, options: DraftTraining, target: Any, device: torch.device) -> Run:
        """A new run, or the one that a checkpoint in the output directory belongs to."""
        shape = student.full_shape(options.shape, target.config)
        draft = student.build(shape, target, init=options.init, seed=options.seed).to(device, _dtype(options, device))
        optimiser = Optimiser(draft.named_parameters(), matrix_rate=options.matrix_rate, other_rate=options.other_rate)
        run = cls(options, draft, optimiser, Budget(options.steps, options.minutes), Clock(), device)
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


def _train(run: Run, target: Any, train: Tensor, heldout: Tensor, observe: Observer) -> None:
    """Steps until the budget is spent; measures and saves on the way."""
    options = run.options
    saved = run.clock.seconds
    while (progress := run.progress) < 1:
        ids = windows.batch(train, run.step, options.batch_size, options.seed).to(run.device)
        loss = _backward(run, target, ids)
        if not math.isfinite(loss):
            raise TrainingFailed(f"the loss at step {run.step} is {loss}", hint="lower matrix_rate and other_rate")
        run.optimiser.step(rate(progress, run.step))
        run.step += 1
        run.losses = [*run.losses[-49:], loss]
        observe(run.report("training"))
        if run.step % options.evaluate_every == 0:
            run.draft.eval()
            observe(run.report("measuring", acceptance=measure(target, run.draft, heldout[:16])))
            run.draft.train()
        if run.clock.seconds - saved >= options.save_every:
            run.save()
            saved = run.clock.seconds


def _backward(run: Run, target: Any, ids: Tensor) -> float:
    """Gradients of the mean loss over windows [batch, length], a micro-batch at a time; returns the loss."""
    options = run.options
    width = run.draft.config.vocab_size
    size = options.micro_batch or max(1, LOGITS_AT_ONCE // (width * options.sequence_length))
    total = 0.0
    for part in torch.split(ids, size):
        with torch.no_grad():
            theirs = target(part, use_cache=False).logits.flatten(0, 1)
        ours = run.draft(part, use_cache=False).logits.flatten(0, 1)
        loss = divergence(theirs, ours, options.tv_weight) * (len(part) / len(ids))
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


def load_target(options: DraftTraining, device: torch.device) -> tuple[Any, Any]:
    """The target, frozen, and its tokenizer."""
    source = loading.resolve(options.target, "target")
    config = loading.load_config(source, trust_remote_code=False)
    tokenizer = load_tokenizer(source, trust_remote_code=False)
    if tokenizer is None:
        raise InvalidOption(f"{source} has no tokenizer", hint="copy the tokenizer's files beside the weights")
    with loading.reading(source):
        target = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=_dtype(options, device), use_safetensors=True
        )
    return target.to(device).eval().requires_grad_(False), tokenizer


def _windows(
    options: DraftTraining, target: Any, tokenizer: Any, corpus: sources.Corpus, observe: Observer
) -> tuple[Tensor, Tensor]:
    """Windows to learn from and windows held out: the texts, and the target's own if asked for."""
    texts = []
    for document in corpus.documents:
        if document.turns:
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
    train = windows.pack(learnt, options.sequence_length, what="training")
    heldout = windows.pack(held, options.sequence_length, what="validation")
    return train, heldout[: options.validation_windows]


def _best_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _dtype(options: DraftTraining, device: torch.device) -> torch.dtype:
    """bfloat16 where the processor multiplies it natively, else float32; masters are float32 in any case."""
    if options.dtype != "auto":
        return torch.bfloat16 if options.dtype == "bfloat16" else torch.float32
    native = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native else torch.float32
