"""The steps of a training run, and all that changes while they go on."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import TrainingFailed
from headstart.base.words import counted
from headstart.train import checkpoint, windows
from headstart.train.acceptance import Acceptance
from headstart.train.optimiser import Optimiser
from headstart.train.options import Training
from headstart.train.schedule import Budget, Clock, Observer, Phases, Report, Stage, rate
from headstart.train.student import Student
from headstart.train.windows import Windows

LOGITS_AT_ONCE = 1 << 26  # elements; a micro-batch's logits stay below it
QUICK_WINDOWS = 16  # of the held-out windows are measured on the way; all of them at the end
READING_SHARE = 0.5  # of a budget in minutes, at most, for reading ahead
READ_AT_ONCE = 4  # windows


@dataclass
class Best:
    """The weights that did best on held-out text, and for how many measurements nothing did better."""

    length: float = -math.inf
    stale: int = 0

    def judge(self, acceptance: Acceptance) -> bool:
        """Whether this is the best so far."""
        length = mean_length(acceptance)
        better = length > self.length
        self.length, self.stale = (length, 0) if better else (self.length, self.stale + 1)
        return better


def mean_length(acceptance: Acceptance) -> float:
    """Accepted tokens of a draft, the mean over temperatures."""
    return sum(acceptance.length.values()) / max(1, len(acceptance.length))


@dataclass
class Run:
    """All that changes during a run."""

    options: Training
    student: Student
    optimiser: Optimiser
    budget: Budget
    clock: Clock
    phases: Phases
    step: int = 0
    losses: list[float] = field(default_factory=list)
    best: Best = field(default_factory=Best)

    @classmethod
    def start(cls, options: Training, student: Student, phases: Phases) -> Run:
        """A new run, or the one that a checkpoint in the output directory belongs to."""
        parameters = student.named_parameters()
        optimiser = Optimiser(
            parameters, matrix_rate=options.matrix_rate, other_rate=options.other_rate, lengths=student.lengths
        )
        run = cls(options, student, optimiser, Budget(options.steps, options.minutes), Clock(), phases)
        if found := checkpoint.latest(options.folder / "checkpoints"):
            optimiser.load(found.tensors("optimiser"))
            state = found.state()
            run.step, run.clock = found.step, Clock(state["seconds"])
            run.best = Best(**state.get("best", {}))
        return run

    @property
    def progress(self) -> float:
        return self.budget.progress(self.step, self.clock.seconds)

    @property
    def tokens(self) -> int:
        return self.step * self.options.batch_size * self.options.sequence_length

    @property
    def stopped(self) -> str:
        """Why the run ends before its budget is spent; empty while it does not."""
        patience = self.options.patience
        if patience is None or self.best.stale < patience:
            return ""
        return f"{self.best.stale} measurements without a better one than {self.best.length:.2f} accepted of 4"

    def save(self, folder: str = "checkpoints") -> None:
        """Write a checkpoint: the optimiser's masters are the weights."""
        state: dict[str, Any] = {"seconds": self.clock.seconds, "options": self.options.record()}
        if self.options.patience is not None and self.best.length > -math.inf:
            state["best"] = {"length": self.best.length, "stale": self.best.stale}
        checkpoint.save(self.options.folder / folder, self.step, {"optimiser": self.optimiser.tensors()}, state)
        self.phases.save()

    def report(self, stage: Stage, *, acceptance: Acceptance | None = None) -> Report:
        loss = sum(self.losses) / len(self.losses) if self.losses else math.nan
        return Report(stage, self.progress, self.step, self.tokens, self.clock.seconds, loss, acceptance)

    def measure(self, heldout: Windows) -> Acceptance:
        """The student's acceptance on these windows."""
        with self.phases.doing("measuring") as phase:
            phase.tokens += heldout.ids.numel()
            return self.student.measure(heldout)


def read_ahead(run: Run, learnt: Windows, heldout: Windows, observe: Observer) -> None:
    """Compute the target's states once, before the steps need them, for as many windows as they will see and fit.

    Of a budget in minutes it takes at most `READING_SHARE`, and what it takes is taken from it; the rest is computed
    when a step comes to it, which is the first time for each window. With a budget in steps it is the windows that
    they come to.
    """
    states, options = run.student.states, run.options
    if states is None or run.progress >= 1:
        return
    seen = len(learnt) if options.steps is None else min(len(learnt), options.steps * options.batch_size)
    order = windows.picks(len(learnt), 0, seen, options.seed)
    wanted = torch.cat([heldout.ids, learnt.ids[order]])
    most = math.inf if options.minutes is None else 60 * options.minutes * READING_SHARE
    with run.phases.doing("reading") as phase:
        begun, trained = time.monotonic(), run.clock.seconds
        before, first = phase.tokens, states.read_tokens
        for done in states.read_ahead(wanted, READ_AT_ONCE):
            fresh, seconds = states.read_tokens - first, time.monotonic() - begun
            phase.tokens = before + fresh
            note = f"{counted(phase.tokens, 'token')}" + (f", {fresh / seconds:.0f} tokens/s" if seconds else "")
            observe(Report("reading", done / len(wanted), note=note))
            if run.phases["reading"].seconds >= most:
                break
        states.release()
    if options.minutes is not None:
        spent = min(most, run.phases["reading"].seconds)
        run.budget = Budget(minutes=options.minutes - spent / 60)
    run.clock = Clock(trained)


def take_steps(run: Run, learnt: Windows, heldout: Windows, observe: Observer) -> None:
    """Steps until the budget is spent, or held-out acceptance has stopped to rise; measures and saves on the way."""
    options = run.options
    saved = run.clock.seconds
    with run.phases.doing("training") as phase:
        while (progress := run.progress) < 1 and not run.stopped:
            places = windows.picks(len(learnt), run.step, options.batch_size, options.seed)
            loss = _backward(run, learnt[places], places)
            if not math.isfinite(loss):
                raise TrainingFailed(f"the loss at step {run.step} is {loss}", hint="lower matrix_rate and other_rate")
            run.optimiser.step(rate(progress, run.step))
            run.step += 1
            phase.tokens = run.tokens
            run.losses = [*run.losses[-49:], loss]
            observe(run.report("training"))
            if run.step % options.evaluate_every == 0:
                acceptance = run.measure(heldout[:QUICK_WINDOWS])
                observe(run.report("measuring", acceptance=acceptance))
                _keep_best(run, acceptance)
            if run.clock.seconds - saved >= options.save_every:
                run.save()
                saved = run.clock.seconds
        if run.clock.seconds > saved:
            run.save()  # whatever goes wrong from here on, nothing has to be learnt again
    if options.patience is not None:
        _take_best(run, heldout)


def _keep_best(run: Run, acceptance: Acceptance) -> None:
    """Note how the weights did; keep them if nothing did better."""
    if run.options.patience is None:
        return
    if run.best.judge(acceptance):
        run.save("best")
    run.save()  # what is known of the best is of this step, so a run that is resumed must be at it


def _take_best(run: Run, heldout: Windows) -> None:
    """Go back to the best weights that were kept, unless the last are better still."""
    found = checkpoint.latest(run.options.folder / "best")
    if found is None or mean_length(run.measure(heldout[:QUICK_WINDOWS])) > run.best.length:
        return
    run.optimiser.load(found.tensors("optimiser"))


def _backward(run: Run, batch: Windows, places: Tensor) -> float:
    """Gradients of the mean loss over a batch of windows, a micro-batch at a time; returns the loss."""
    options = run.options
    size = options.micro_batch or max(1, LOGITS_AT_ONCE // (run.student.logits_per_token * options.sequence_length))
    total = 0.0
    for part, where in zip(batch.in_parts(size), torch.split(places, size), strict=True):
        loss = run.student.loss(part, where, run.step) * (len(part) / len(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total
