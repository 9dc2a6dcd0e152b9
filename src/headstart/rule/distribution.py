"""Logits -> the distribution p: every processor of `Sampling`, over rows of different requests at once.

A row is one position of one request: its logits, what was committed before it (`SamplingState`) and the draft tokens
in between (`SamplingRow.drafted`), so that a node of a draft is judged by the distribution the target would have there.
The order: logit_bias, repetition_penalty, presence_ and frequency_penalty, min_tokens (in processors.py), any further
processors of the state, and then temperature, top_k, top_p, min_p (here, all rows at once).

Definitions: transformers' `generation/logits_process.py`, ties included; presence and frequency as in the OpenAI API
reference, "Frequency and presence penalties" (counts of *output* tokens, as vLLM has it too).

Everything is float32. No row reads another: a row's distribution has the same bits in any batch, and a NaN stays in its
row. A processor that no row uses is not run. Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import HeadstartError, InvalidOption
from headstart.rule.filters import COLDEST, filtered, first_maximum, one_hot
from headstart.rule.processors import Place, Processor, processors_of
from headstart.rule.softmax import softmax
from headstart.rule.vocabulary import PartialVocabulary
from headstart.types import LogprobsMode, Sampling, TokenLogprob


class SamplingState:
    """What the distribution of one request needs besides the logits: an immutable value, which can be pickled.

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
    place: Place
    """The processors at the end of the committed text, and behind it those of draft tokens."""
    divisor: float | None
    """The temperature that logits are divided by; None where that is not all that follows the processors."""

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
        self.sampling, self.divisor = sampling, _divisor(sampling)
        self.stop_ids = tuple(sorted(token for token in stop_ids if token < vocab_size))
        self.place = Place((*processors_of(sampling, prompt, vocab_size, self.stop_ids), *processors))

    @property
    def processors(self) -> tuple[Processor, ...]:
        """What edits the logits before the temperature, in order, at the end of the committed text."""
        return self.place.processors

    @property
    def unedited(self) -> bool:
        """Whether nothing comes before the temperature."""
        return not self.place.processors

    @property
    def masks(self) -> bool:
        """Whether a processor may leave few tokens, as a grammar does."""
        return self.place.masks

    def after(self, tokens: Sequence[int]) -> SamplingState:
        """The state once these tokens have been emitted as well."""
        if not self.processors or not tokens:
            return self
        return self._with(self.sampling, self.place.after(tokens))

    def filtered(self, sampling: Sampling) -> SamplingState:
        """The same processors, followed by the temperature and filters of another `Sampling`."""
        return self._with(sampling, self.place)

    def _with(self, sampling: Sampling, place: Place) -> SamplingState:
        state = object.__new__(SamplingState)
        state.sampling, state.stop_ids, state.place = sampling, self.stop_ids, place
        state.divisor = self.divisor if sampling is self.sampling else _divisor(sampling)
        return state


def _divisor(sampling: Sampling) -> float | None:
    if sampling.greedy or sampling.top_k or sampling.top_p < 1 or sampling.min_p:
        return None
    return max(sampling.temperature, COLDEST)


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """One row: its request's state, and the draft tokens between the committed prefix and this row."""

    state: SamplingState
    drafted: tuple[int, ...] = ()

    @property
    def processors(self) -> tuple[Processor, ...]:
        """Those that act on this row."""
        return self.state.place.after(self.drafted).processors

    @property
    def failure(self) -> HeadstartError | None:
        """Why there is no distribution at this row, whatever its logits: a grammar cannot go on here."""
        return self.state.place.after(self.drafted).failure if self.state.masks else None

    def edit(self, x: NDArray[np.float32]) -> None:
        """Change the row's logits [V] in place."""
        for processor in self.processors:
            processor.edit(x)


def distribution(logits: Tensor, rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None = None) -> Tensor:
    """The distribution p of each row: float32 [R, V], rows sum to 1. vocabulary: that of the V columns, where it is a
    part of the target's; here and below.

    A row with a NaN or +inf logit, or with every token masked, comes out as NaN throughout; the others are as
    they would be alone. Temperature 0 gives a one-hot row (the lowest index of tied maxima, as transformers' greedy).
    """
    if logits.device.type == "cpu":
        return torch.from_numpy(on_host(logits, rows, vocabulary))
    if all(row.state.sampling.greedy for row in rows):  # the common case, without the exponentials
        return one_hot(_edit(logits, rows, vocabulary))
    return process(logits, rows, vocabulary).softmax(-1)


def on_host(
    logits: Tensor, rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None = None
) -> NDArray[np.float32]:
    """`distribution` of logits on the host, as an array [R, V]."""
    x = _host_edit(logits, rows, vocabulary)
    divisors = [divisor for row in rows if (divisor := row.state.divisor) is not None]
    if len(divisors) < len(rows):
        samplings = [row.state.sampling for row in rows]
        if all(s.greedy for s in samplings):
            found: NDArray[np.float32] = one_hot(torch.from_numpy(x)).numpy()
            return found
        x, divisors = filtered(torch.from_numpy(x), samplings).numpy(), [1.0] * len(rows)
    return softmax().distributions(np.ascontiguousarray(x), divisors)


def greedy(logits: Tensor, rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None = None) -> list[int]:
    """The column of each row's distribution where every request is at temperature 0: `distribution`'s one-hot rows as
    numbers.

    -1 for a row whose largest logit is not finite. Nothing as wide as the vocabulary is made or copied.
    """
    if logits.device.type == "cpu":  # a dozen small operations on a cold cache would take longer than the work
        values = _host_edit(logits, rows, vocabulary)
        tokens = values.argmax(-1).tolist()
        return [token if math.isfinite(row[token]) else -1 for token, row in zip(tokens, values, strict=True)]
    first, highest = first_maximum(_edit(logits, rows, vocabulary))
    return torch.where(torch.isfinite(highest), first, -1)[:, 0].tolist()


def process(logits: Tensor, rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None = None) -> Tensor:
    """The logits [R, V] after all processors, float32; -inf where the distribution is 0.

    `logits` is never written to, but the result may be the same memory if no processor is on: read it only.
    """
    return filtered(_edit(logits, rows, vocabulary), [row.state.sampling for row in rows])


def token_logprobs(
    logits: Tensor, p: Tensor, tokens: Sequence[int], *, top: int, mode: LogprobsMode
) -> list[TokenLogprob]:
    """Log-probabilities (nats) of a request's emitted tokens, and of the `top` likeliest at each position.

    logits, p: [N, V], row i the target's logits and distribution where tokens[i] was emitted. mode "raw": log_softmax
    of the logits in float32, before the processors; "processed": log p. Alternatives come likeliest first; those
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


def _edit(logits: Tensor, rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None) -> Tensor:
    """The logits in float32 after the processors of each row."""
    if logits.device.type == "cpu":
        return torch.from_numpy(_host_edit(logits, rows, vocabulary))
    assert len(rows) == logits.shape[0], f"{len(rows)} rows for logits {tuple(logits.shape)}"
    x = logits.float()
    if all(row.state.unedited for row in rows):
        return x
    if vocabulary is None:
        return _edit_on_device(x, rows)
    return vocabulary.narrowed(_edit_on_device(vocabulary.widened(x), rows))


def _host_edit(
    logits: Tensor, rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None
) -> NDArray[np.float32]:
    """The same of logits on the host, as an array; that of the logits themselves where nothing edits them."""
    assert len(rows) == logits.shape[0], f"{len(rows)} rows for logits {tuple(logits.shape)}"
    given = logits if logits.dtype == torch.float32 else logits.float()
    x: NDArray[np.float32] = (given.detach() if given.requires_grad else given).numpy()
    return _edit_on_host(x, rows, vocabulary) if any(row.state.place.processors for row in rows) else x


@np.errstate(invalid="ignore", over="ignore")  # bad logits come out as NaN, which the caller looks for
def _edit_on_host(
    logits: NDArray[np.float32], rows: Sequence[SamplingRow], vocabulary: PartialVocabulary | None
) -> NDArray[np.float32]:
    """Row by row: the work is small, and a dozen tensor operations would not be."""
    edited = logits.copy()
    for x, row in zip(edited, rows, strict=True):
        if vocabulary is None:
            row.edit(x)
        else:
            vocabulary.edit(x, row.processors)
    return edited


def _edit_on_device(logits: Tensor, rows: Sequence[SamplingRow]) -> Tensor:
    """As `_edit_on_host`, to the bit, for all rows at once whose next processor is of the same class."""
    edited = logits.clone()
    waiting = {r: list(row.processors) for r, row in enumerate(rows)}
    while waiting := {r: processors for r, processors in waiting.items() if processors}:
        kind = type(next(iter(waiting.values()))[0])
        turn = [r for r, processors in waiting.items() if type(processors[0]) is kind]
        kind.edit_rows(edited, [(r, waiting[r].pop(0)) for r in turn])
    return edited
