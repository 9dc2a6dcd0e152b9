"""What a server's tokens are in the reference's vocabulary, and which of them it does not tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.base.errors import EndpointFailed, IncompatibleTokenizer, InvalidPrompt
from headstart.engine.detokenize import TextStream
from headstart.fleet.audit.answers import Answer
from headstart.fleet.audit.spelling import Spelling, merged
from headstart.measure.audit.subject import Distribution, Reference
from headstart.types import Sampling, TokenLogprob


class ServerTokens:
    """Reads the tokens of answers as the reference's; `learn` must come first.

    Without a tokenizer (no reference) prompts are code points of text, and tokens are whatever ids the server gives.

    Attributes:
        source: where tokens are taken from: "ids", "ids in the log-probabilities", "token strings" or "text" (nowhere).
        token_class: [V] which token each counts as, where the server does not tell all of them apart.
        texts: what each token of the reference writes; special tokens write nothing.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, ends: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._ends = ends
        self._spelling = None if tokenizer is None else Spelling(tokenizer, vocab_size, ends)
        self.texts: tuple[str, ...] = () if self._spelling is None else self._spelling.texts
        self.source: str | None = None
        self.token_class: NDArray[np.int64] | None = None

    def learn(self, prompt: Sequence[int], answer: Answer) -> None:
        """Take the first answer as a sample of what the server gives.

        Raises:
            IncompatibleTokenizer: the server's tokens are not the reference's: the audit would compare unlike things.
        """
        self.source = answer.token_source
        if self._spelling is None:
            if self.source == "token strings":
                self.source = "text"  # which tokens they are, only a tokenizer could tell
            return
        if answer.prompt_ids not in (None, tuple(prompt)):
            raise _other_tokenizer(
                f"the prompt is {list(prompt)[:8]}... here and {list(answer.prompt_ids)[:8]}... there"
            )
        if answer.prompt_tokens not in (None, len(prompt)):
            raise _other_tokenizer(f"the prompt has {len(prompt)} tokens here and {answer.prompt_tokens} there")
        tokens, _ = self._tokens(answer) if self.source != "text" else ((), True)
        if answer.ids is not None and _bare(text := self.text_of(prompt, tokens)) != _bare(answer.text):
            raise _other_tokenizer(f"its tokens write {text[:40]!r} here and {answer.text[:40]!r} there")
        if self.source == "token strings":
            self.token_class = self._spelling.token_class()
        elif len(self._ends) > 1:  # where the server leaves the end out, it could be any of them
            self.token_class = np.arange(self._vocab_size)
            self.token_class[list(self._ends)] = min(self._ends)

    def check_prompt(self, prompt: Sequence[int], answer: Answer) -> None:
        """Raises:
        IncompatibleTokenizer: the server counts other tokens in this prompt; tokenizers can agree on one and not on
            the next.
        """
        if self._spelling is not None and answer.prompt_tokens not in (None, len(prompt)):
            raise _other_tokenizer(f"a prompt of {len(prompt)} tokens here has {answer.prompt_tokens} there")

    def of(self, answer: Answer, sampling: Sampling) -> tuple[tuple[int, ...], bool]:
        """The tokens of a completion, and whether they are all of it; each token as the one that it counts as."""
        tokens, whole = self._tokens(answer)
        if whole and answer.finish_reason == "stop":
            tokens = self._closed(tokens, sampling)
        if self.token_class is None:
            return tokens, whole
        tokens = tuple(self.token_class[list(tokens)].tolist())
        return tokens, whole or tokens[-1] in self.token_class[list(self._ends)]

    def logprobs(self, answer: Answer, tokens: Sequence[int]) -> tuple[TokenLogprob, ...] | None:
        """The log-probabilities of the tokens that are known for sure."""
        _, whole = self._tokens(answer)
        return answer.logprobs_of(tokens if whole else tokens[:-1], self._spelling)

    def prompt_text(self, prompt: Sequence[int]) -> str:
        """The prompt as text.

        Raises:
            InvalidPrompt: it would not become the same tokens again.
        """
        if self.tokenizer is None:
            return "".join(map(chr, prompt))
        text = str(self.tokenizer.decode(list(prompt), skip_special_tokens=True))
        if list(self.tokenizer(text)["input_ids"]) != list(prompt):
            raise InvalidPrompt(
                f"{text[:40]!r} does not become the same tokens again",
                hint="this server takes prompts as text only: give prompts as text, ending where a word ends",
            )
        return text

    def text_of(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """What tokens write after a prompt; special tokens write nothing."""
        stream = TextStream(lambda ids: str(self.tokenizer.decode(ids, skip_special_tokens=True)), prompt, ())
        stream.push(tokens)
        stream.flush()
        return stream.text

    def merge(self, reference: Reference) -> Reference:
        """The reference, with the distributions of tokens added up that the server does not tell apart."""
        return reference if self.token_class is None else _MergedReference(reference, self.token_class)

    def _tokens(self, answer: Answer) -> tuple[tuple[int, ...], bool]:
        if self.source == "token strings" and answer.tokens is not None and self._spelling is not None:
            return self._spelling.tokens(answer.tokens)
        if answer.ids is None and not answer.text:
            return (), True  # ended at once
        if answer.ids is None:
            raise EndpointFailed("the server gave tokens at first and then no longer", hint="its log may tell why")
        outside = [token for token in answer.ids if not 0 <= token < self._vocab_size]
        if outside and self._spelling is not None:
            raise _other_tokenizer(f"it emitted token {outside[0]}; the reference has {self._vocab_size} tokens")
        return answer.ids, True

    def _closed(self, tokens: tuple[int, ...], sampling: Sampling) -> tuple[int, ...]:
        """With the token that ended the text, which some servers leave out. A stop string ends between tokens."""
        stops = self._ends | set(sampling.stop_token_ids)
        if sampling.stop or sampling.stop_token_ids or (tokens and tokens[-1] in stops):
            return tokens
        return (*tokens, min(self._ends)) if self._ends else tokens


@dataclass(frozen=True)
class _MergedReference:
    """A reference whose tokens of one class count as one."""

    reference: Reference
    token_class: NDArray[np.int64]

    def distributions(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Distribution:
        return merged(self.reference.distributions(prompt, tokens, sampling), self.token_class)

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        return frozenset(self.token_class[list(self.reference.stop_ids(sampling))].tolist())

    def describe(self) -> dict[str, Any]:
        return self.reference.describe()


def _other_tokenizer(difference: str) -> IncompatibleTokenizer:
    return IncompatibleTokenizer(
        f"the server has another tokenizer than the reference: {difference}",
        hint="give as --model the very model the server runs, with its own tokenizer files",
        differences=(difference,),
    )


def _bare(text: str) -> str:
    """Text without what servers treat differently: white space around it, and an unfinished character at its end."""
    return text.strip().rstrip("\ufffd").strip()
