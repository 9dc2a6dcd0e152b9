"""What changes logits before the temperature: bias, penalties and min_tokens. A grammar is one more such class.

A processor is an immutable value. It stands for the edit at one place of a text, and `after(tokens)` is the processor
at a later place. A draft node is judged with `processor.after(path)`, for which the committed processor does not
change, so rolling back a rejected draft is dropping those values.

The places of a draft make a trie, in which each keeps what follows it: whoever asks for the processors behind a node,
the drafter, the rule or a recorder, is given the same values, and what they have computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import HeadstartError
from headstart.types import Sampling

A = TypeVar("A", NDArray[np.float32], Tensor)
Terms = tuple[Any, ...]


class Processor(Protocol):
    """An edit of the logits that may depend on the text so far. Values of it are immutable, and can be pickled.

    Subclass it to inherit all but `after` and `edit`.
    """

    masks: ClassVar[bool] = False
    """Whether it may leave few tokens: a class that overrides `forced`, `allows` or `failure` says True."""

    def after(self, tokens: Sequence[int]) -> Processor:
        """The processor once these tokens follow the text it knows; `self` stays as it is.

        A guess may be a token that the processor itself forbids. It is then never accepted, but the rows after it are
        computed, and must have a distribution: `edit` does best to leave them alone.
        """
        ...

    def edit(self, x: NDArray[np.float32]) -> None:
        """Change one row of logits [V] in place. A NaN must stay a NaN."""
        ...

    def forced(self) -> int | None:
        """The token that comes next for certain: the only one whose logit `edit` leaves finite. None where there is
        another, or where that is not known."""
        return None

    def allows(self, token: int) -> bool:  # noqa: ARG002
        """Whether this token may come next: False where `edit` makes its logit -inf."""
        return True

    @property
    def failure(self) -> HeadstartError | None:
        """Why nothing can come next, so that a request whose text comes here ends; None where something can."""
        return None

    def edit_columns(self, x: NDArray[np.float32], ids: NDArray[np.int64], size: int) -> None:
        """`edit` for a row that has only some columns of the vocabulary: x [W] are the logits of the tokens ids [W].

        size: V. This default spreads the row over the whole vocabulary.
        """
        whole = np.full(size, -np.inf, dtype=x.dtype)
        whole[ids] = x
        self.edit(whole)
        x[:] = whole[ids]

    @classmethod
    def edit_rows(cls, x: Tensor, members: Sequence[tuple[int, Any]]) -> None:
        """Change logits [R, V] on any device in place, to the same bits as `edit`: for each (r, processor), row r.

        The processors are all of this class. This default goes through the host.
        """
        for r, processor in members:
            row = x[r].detach().cpu().numpy()
            processor.edit(row)
            x[r] = torch.from_numpy(row)


class Place:
    """The processors at one place of a text and, as far as anyone has asked, those at the places that follow."""

    __slots__ = ("_masking", "_next", "processors")

    def __init__(self, processors: tuple[Processor, ...]) -> None:
        self.processors = processors
        self._masking = tuple(each for each in processors if getattr(each, "masks", False))
        self._next: dict[int, Place] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (self.processors,)

    def after(self, tokens: Sequence[int]) -> Place:
        """The place that these tokens lead to."""
        place = self
        for token in tokens:
            found = place._next.get(token)
            if found is None:
                following = tuple(processor.after((token,)) for processor in place.processors)
                found = place._next.setdefault(token, Place(following))
            place = found
        return place

    @property
    def masks(self) -> bool:
        """Whether a processor may leave few tokens."""
        return bool(self._masking)

    @property
    def failure(self) -> HeadstartError | None:
        """Of the first processor that has one."""
        return next((found for each in self._masking if (found := each.failure) is not None), None)

    def allows(self, token: int) -> bool:
        """Whether all processors let this token come next."""
        return all(each.allows(token) for each in self._masking)

    def forced(self) -> int | None:
        """The token that comes next for certain, or None."""
        return next((token for each in self._masking if (token := each.forced()) is not None), None)


class TokenEdit(Processor):
    """A processor that changes the logits of some tokens, each by itself."""

    @abstractmethod
    def entries(self) -> tuple[NDArray[np.int64], Terms]:
        """The ids [n] to change and the further arguments of `change`, numbers or arrays [n].

        Where an id is repeated, so are its terms.
        """

    @staticmethod
    @abstractmethod
    def change(score: A, *terms: Any) -> A:
        """The new logits of the ids, from the present ones and the terms. The only arithmetic, for host and device."""

    def edit(self, x: NDArray[np.float32]) -> None:
        ids, terms = self.entries()
        x[ids] = self.change(x[ids], *terms)

    @classmethod
    def edit_rows(cls, x: Tensor, members: Sequence[tuple[int, Any]]) -> None:
        entries = [processor.entries() for _, processor in members]
        lengths = [len(ids) for ids, _ in entries]
        rows = np.repeat([r for r, _ in members], lengths)
        columns = zip(*(terms for _, terms in entries), strict=True)
        wide = [np.concatenate([np.broadcast_to(t, n) for t, n in zip(c, lengths, strict=True)]) for c in columns]
        at = tuple(
            torch.from_numpy(index).to(x.device) for index in (rows, np.concatenate([ids for ids, _ in entries]))
        )
        x.index_put_(at, cls.change(x[at], *(torch.from_numpy(terms).to(x.device) for terms in wide)))


@dataclass(frozen=True, eq=False, slots=True)
class LogitBias(TokenEdit):
    """Adds a number to the logits of some tokens.

    ids: the tokens [n].
    bias: what is added to each [n].
    """

    ids: NDArray[np.int64]
    bias: NDArray[np.float32]

    def after(self, tokens: Sequence[int]) -> LogitBias:  # noqa: ARG002
        return self

    def entries(self) -> tuple[NDArray[np.int64], Terms]:
        return self.ids, (self.bias,)

    @staticmethod
    def change(score: A, *terms: Any) -> A:
        added: A = score + terms[0]
        return added


@dataclass(frozen=True, eq=False, slots=True)
class MinTokens(TokenEdit):
    """Takes the tokens that would end the text out of the distribution until enough have been emitted.

    -inf is added, not filled in: a NaN stays a NaN.

    stop_ids: the tokens that end the text [n].
    missing: how many tokens have still to come before one of them may.
    """

    stop_ids: NDArray[np.int64]
    missing: int

    def after(self, tokens: Sequence[int]) -> MinTokens:
        return replace(self, missing=self.missing - len(tokens)) if self.missing > 0 else self

    def entries(self) -> tuple[NDArray[np.int64], Terms]:
        return self.stop_ids if self.missing > 0 else self.stop_ids[:0], (np.float32(-np.inf),)

    @staticmethod
    def change(score: A, *terms: Any) -> A:
        added: A = score + terms[0]
        return added


@dataclass(frozen=True, eq=False, slots=True)
class RepetitionPenalty(TokenEdit):
    """Divides the logits of tokens in prompt and output by the penalty if positive, else multiplies them by it.

    penalty: as in `Sampling`.
    seen: the ids in prompt and output; one may be there more than once, which costs less than finding out.
    """

    penalty: np.float32
    seen: NDArray[np.int64]

    def after(self, tokens: Sequence[int]) -> RepetitionPenalty:
        return RepetitionPenalty(self.penalty, np.concatenate([self.seen, np.asarray(tokens, dtype=np.int64)]))

    def entries(self) -> tuple[NDArray[np.int64], Terms]:
        return self.seen, (self.penalty,)

    @staticmethod
    def change(score: A, *terms: Any) -> A:
        (penalty,) = terms
        where: Any = torch.where if isinstance(score, Tensor) else np.where
        changed: A = where(score < 0, score * penalty, score / penalty)
        return changed


@dataclass(frozen=True, eq=False, slots=True)
class CountPenalty(TokenEdit):
    """Takes count * frequency + presence from the logit of every token of the output.

    presence, frequency: the penalties, as in `Sampling`.
    counts: how often each token of the output occurs.
    """

    presence: np.float32
    frequency: np.float32
    counts: Mapping[int, int]

    def after(self, tokens: Sequence[int]) -> CountPenalty:
        counts = dict(self.counts)
        for token in tokens:
            counts[token] = counts.get(token, 0) + 1
        return CountPenalty(self.presence, self.frequency, counts)

    def entries(self) -> tuple[NDArray[np.int64], Terms]:
        number = len(self.counts)
        ids = np.fromiter(self.counts, np.int64, number)
        return ids, (np.fromiter(self.counts.values(), np.float32, number) * self.frequency, self.presence)

    @staticmethod
    def change(score: A, *terms: Any) -> A:
        by_count, presence = terms
        lowered: A = score - by_count - presence
        return lowered


def processors_of(
    sampling: Sampling, prompt: Sequence[int], vocab_size: int, stop_ids: Sequence[int]
) -> tuple[Processor, ...]:
    """The processors that the request's `Sampling` asks for, in their order, before anything is emitted.

    prompt: token ids; those from vocab_size on cannot be emitted (some embeddings are wider than the logits).
    stop_ids: what min_tokens takes out; below vocab_size.
    """
    made: list[Processor] = []
    if bias := sampling.logit_bias:
        made.append(LogitBias(np.array(list(bias), np.int64), np.array(list(bias.values()), np.float32)))
    if sampling.repetition_penalty != 1:
        seen = sorted({token for token in prompt if token < vocab_size})
        made.append(RepetitionPenalty(np.float32(sampling.repetition_penalty), np.array(seen, np.int64)))
    if sampling.presence_penalty or sampling.frequency_penalty:
        made.append(CountPenalty(np.float32(sampling.presence_penalty), np.float32(sampling.frequency_penalty), {}))
    if sampling.min_tokens and stop_ids:
        made.append(MinTokens(np.array(stop_ids, np.int64), sampling.min_tokens))
    return tuple(made)
