"""Logits -> the law p: every processor of `Sampling`, over rows of different requests at once.

A row is one position of one request: its logits, what was committed before it (`LawState`) and the draft tokens
in between (`LawRow.drafted`), so that a node of a draft is judged by the law the target would have there. The
order: logit_bias, repetition_penalty, presence_ and frequency_penalty, min_tokens (in processors.py), any further
processors of the state, and then temperature, top_k, top_p, min_p (here, all rows at once).

Definitions: transformers' `generation/logits_process.py`, ties included; presence and frequency as in the OpenAI API
reference, "Frequency and presence penalties" (counts of *output* tokens, as vLLM has it too).

Everything is float32. No row reads another: a row's law has the same bits in any batch, and a NaN stays in its
row. A processor that no row uses is not run. Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.errors import InvalidOption
from headstart.rule.processors import Processor, processors_of
from headstart.types import LogprobsMode, Sampling, TokenLogprob

# Logits divided by this stay inside float32, and no two that differ are likely at once: lower temperatures count as it.
COLDEST = 1e-30
# How many of the largest logits top_p looks at before it sorts the whole vocabulary; see `_nucleus`.
NUCLEUS_WIDTHS = (128, 1024, 8192)


class LawState:
    """What the law of one request needs besides the logits: an immutable value, which can be pickled.

    Args:
        sampling: temperature and filters, and the built-in processors (`processors_of`).
        prompt: token ids, which the repetition penalty counts as seen.
        vocab_size: V, the width of the target's logits.
        stop_ids: what min_tokens masks: the EOS ids (unless ignore_eos) and stop_token_ids.
        processors: further ones, which edit after the built-in ones in the order given.

    Raises `InvalidOption` if logit_bias names a token outside the vocabulary.
    """

    sampling: Sampling
    stop_ids: tuple[int, ...]
    """Those inside the vocabulary."""
    processors: tuple[Processor, ...]
    """What edits the logits before the temperature, in order, at the end of the committed text."""

    def __init__(
        self,
        sampling: Sampling,
        prompt: Sequence[int],
        vocab_size: int,
        stop_ids: frozenset[int],
        *,
        processors: Sequence[Processor] = (),
    ) -> None:
        outside = [token for token in sampling.logit_bias if token >= vocab_size]
        if outside:
            raise InvalidOption(
                f"logit_bias names token {outside[0]}", hint=f"the vocabulary has the ids 0 to {vocab_size - 1}"
            )
        self.sampling = sampling
        self.stop_ids = tuple(sorted(token for token in stop_ids if token < vocab_size))
        self.processors = (*processors_of(sampling, prompt, vocab_size, self.stop_ids), *processors)

    @property
    def unedited(self) -> bool:
        """Whether nothing comes before the temperature."""
        return not self.processors

    def after(self, tokens: Sequence[int]) -> LawState:
        """The state once these tokens have been emitted as well."""
        if not self.processors or not tokens:
            return self
        return self._with(self.sampling, tuple(processor.after(tokens) for processor in self.processors))

    def filtered(self, sampling: Sampling) -> LawState:
        """The same processors, followed by the temperature and filters of another `Sampling`."""
        return self._with(sampling, self.processors)

    def _with(self, sampling: Sampling, processors: tuple[Processor, ...]) -> LawState:
        state = object.__new__(LawState)
        state.sampling, state.stop_ids, state.processors = sampling, self.stop_ids, processors
        return state


@dataclass(frozen=True, slots=True)
class LawRow:
    """One row: its request's state, and the draft tokens between the committed prefix and this row."""

    state: LawState
    drafted: tuple[int, ...] = ()

    @property
    def processors(self) -> tuple[Processor, ...]:
        """Those that act on this row."""
        return self.state.after(self.drafted).processors


def law(logits: Tensor, rows: Sequence[LawRow]) -> Tensor:
    """The law p of each row: float32 [R, V], rows sum to 1.

    A row with a NaN or +inf logit, or with every token masked, comes out as NaN throughout; the others are as
    they would be alone. Temperature 0 gives a one-hot row (the lowest index of tied maxima, as transformers' greedy).
    """
    if all(row.state.sampling.greedy for row in rows):  # the common case, without the exponentials
        return _one_hot(_edit(logits, rows))
    return process(logits, rows).softmax(-1)


def greedy(logits: Tensor, rows: Sequence[LawRow]) -> list[int]:
    """The token of each row's law where every request is at temperature 0: `law`'s one-hot rows as numbers.

    -1 for a row whose largest logit is not finite. Nothing as wide as the vocabulary is made or copied.
    """
    edited = _edit(logits, rows)
    if edited.device.type == "cpu":  # a dozen small operations on a cold cache would take longer than the work
        values = edited.detach().numpy()
        tokens = values.argmax(-1).tolist()
        return [token if math.isfinite(row[token]) else -1 for token, row in zip(tokens, values, strict=True)]
    first, highest = _first_maximum(edited)
    return torch.where(torch.isfinite(highest), first, -1)[:, 0].tolist()


def process(logits: Tensor, rows: Sequence[LawRow]) -> Tensor:
    """The logits [R, V] after all processors, float32; -inf where the law is 0.

    `logits` is never written to, but the result may be the same memory if no processor is on: read it only.
    """
    samplings = [row.state.sampling for row in rows]
    x = _temperature(_edit(logits, rows), samplings)
    return _min_p(_top_p(_top_k(x, samplings), samplings), samplings)


def token_logprobs(
    logits: Tensor, p: Tensor, tokens: Sequence[int], *, top: int, mode: LogprobsMode
) -> list[TokenLogprob]:
    """Log-probabilities (nats) of a request's emitted tokens, and of the `top` likeliest at each position.

    logits, p: [N, V], row i the target's logits and law where tokens[i] was emitted. mode "raw": log_softmax of
    the logits in float32, before the processors; "processed": log p. Alternatives come likeliest first; those
    of probability 0 are left out, so there may be fewer than `top`.
    """
    assert logits.shape == p.shape, f"logits {tuple(logits.shape)}, p {tuple(p.shape)}"
    logs = logits.float().log_softmax(-1) if mode == "raw" else p.log()
    chosen = logs.gather(1, torch.tensor(tokens, dtype=torch.long, device=logs.device).unsqueeze(1))
    values, ids = logs.topk(min(top, logs.shape[1]))
    return [
        TokenLogprob(token, logprob, {i: v for i, v in zip(row_ids, row, strict=True) if v > -math.inf})
        for token, (logprob,), row_ids, row in zip(tokens, chosen.tolist(), ids.tolist(), values.tolist(), strict=True)
    ]


def _column(values: Iterable[float], like: Tensor) -> Tensor:
    """One float32 parameter per row: [R, 1]."""
    return torch.tensor(list(values), dtype=torch.float32, device=like.device).unsqueeze(1)


def _edit(logits: Tensor, rows: Sequence[LawRow]) -> Tensor:
    """The logits in float32 after the processors of each row."""
    assert len(rows) == logits.shape[0], f"{len(rows)} rows for logits {tuple(logits.shape)}"
    x = logits.float()
    if all(row.state.unedited for row in rows):
        return x
    if x.device.type == "cpu":
        return torch.from_numpy(_edit_on_host(x.detach().numpy(), rows))
    return _edit_on_device(x, rows)


@np.errstate(invalid="ignore", over="ignore")  # bad logits come out as NaN, which the caller looks for
def _edit_on_host(logits: NDArray[np.float32], rows: Sequence[LawRow]) -> NDArray[np.float32]:
    """Row by row: the work is small, and a dozen tensor operations would not be."""
    edited = logits.copy()
    for x, row in zip(edited, rows, strict=True):
        for processor in row.processors:
            processor.edit(x)
    return edited


def _edit_on_device(logits: Tensor, rows: Sequence[LawRow]) -> Tensor:
    """As `_edit_on_host`, to the bit, for all rows at once whose next processor is of the same class."""
    edited = logits.clone()
    waiting = {r: list(row.processors) for r, row in enumerate(rows)}
    while waiting := {r: processors for r, processors in waiting.items() if processors}:
        kind = type(next(iter(waiting.values()))[0])
        turn = [r for r, processors in waiting.items() if type(processors[0]) is kind]
        kind.edit_rows(edited, [(r, waiting[r].pop(0)) for r in turn])
    return edited


def _temperature(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """x / T; at T = 0 everything but the first maximum becomes -inf."""
    if not all(s.temperature in (0, 1) for s in samplings):
        x = x / _column((1.0 if s.greedy else max(s.temperature, COLDEST) for s in samplings), x)
    if not any(s.greedy for s in samplings):
        return x
    off = _one_hot(x) == 0
    if not all(s.greedy for s in samplings):
        off &= _column((s.greedy for s in samplings), x) > 0
    return torch.where(off, -math.inf, x)


def _one_hot(x: Tensor) -> Tensor:
    """All mass on the first maximum of each row; NaN throughout where that maximum is not finite. float32 [R, V]."""
    first, highest = _first_maximum(x)
    nothing = highest - highest  # 0, or NaN
    return nothing.expand_as(x).clone(memory_format=torch.contiguous_format).scatter_(1, first, nothing + 1)


def _first_maximum(x: Tensor) -> tuple[Tensor, Tensor]:
    """Where each row's first maximum (or first NaN) is, and its value; both [R, 1]."""
    if x.device.type == "cpu":  # NumPy's argmax takes a tenth of the time of torch's, and agrees on ties and NaN
        first = torch.from_numpy(x.detach().numpy().argmax(-1)).unsqueeze(1)
    else:
        first = x.argmax(-1, keepdim=True)
    return first, x.gather(1, first)


def _top_k(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Keep what is not below the k-th largest logit, ties with it included."""
    ks = [0 if s.greedy else min(s.top_k, x.shape[1]) for s in samplings]
    if not any(ks):
        return x
    column = _column(ks, x)
    kth = x.topk(max(ks)).values.gather(1, column.long().sub(1).clamp(min=0))
    return torch.where(x < kth.masked_fill(column == 0, -math.inf), -math.inf, x)


def _top_p(x: Tensor, samplings: Sequence[Sampling], widths: Sequence[int] | None = None) -> Tensor:
    """Keep the likeliest tokens, each as long as those before it hold less than top_p of the mass.

    transformers says it from below (drop while the mass so far is <= 1 - top_p), which is the same set. Among
    tokens tied at the cut it keeps as many as are needed, whichever its sort left last; here the lowest ids.
    widths: see `_nucleus`; () is the plain twin that always sorts everything.
    """
    limits = [1.0 if s.greedy else s.top_p for s in samplings]
    if all(limit >= 1 for limit in limits):
        return x
    on_cpu = x.device.type == "cpu"  # elsewhere reading a flag back would stall the device: always do all the work
    limit = _column(limits, x)
    cut, room, tied = _nucleus(x, limit, (NUCLEUS_WIDTHS if on_cpu else ()) if widths is None else widths)
    drop = x < cut
    if not on_cpu or bool(tied.any()):
        at_cut = x == cut
        drop |= at_cut & (at_cut.cumsum(-1) > room)
    return torch.where(drop, -math.inf, x)


def _nucleus(x: Tensor, limit: Tensor, widths: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Each row's lowest kept logit, how many tokens of that logit are kept, and whether there are more; all [R, 1].

    Only the `width` largest logits are sorted, for the first width that provably holds every row's kept set and
    one token more (whose logit shows whether the cut falls between ties); the whole vocabulary if none does.
    The masses are those of the full softmax, so every width gives the same bits.
    """
    p = x.softmax(-1)
    off = limit >= 1
    vocab_size = x.shape[1]
    for width in (*(width for width in widths if width < vocab_size), vocab_size):
        top, ids = x.topk(width)
        mass = p.gather(1, ids).cumsum(-1)
        if width == vocab_size or bool(((mass[:, -2:-1] >= limit) | off).all()):
            break
    kept = ((mass < limit).sum(-1, keepdim=True) + 1).clamp(max=width)
    cut = top.gather(1, kept - 1)
    room = kept - (top > cut).sum(-1, keepdim=True)
    tied = (kept < width) & (top.gather(1, kept.clamp(max=width - 1)) == cut) & ~off
    return cut.masked_fill(off, -math.inf), room, tied


def _min_p(x: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Keep the tokens whose probability is at least min_p times that of the likeliest."""
    fractions = [0.0 if s.greedy else s.min_p for s in samplings]
    if not any(fractions):
        return x
    p = x.softmax(-1)
    return torch.where(p < _column(fractions, x) * p.amax(-1, keepdim=True), -math.inf, x)
