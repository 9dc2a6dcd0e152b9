"""What texts must look like, said by transformers alone; and how sure one can be that they do.

A request's every token has, given the prompt and what was emitted before it, a distribution that can be written down:
logits of transformers' own forward, put through transformers' own processors. Each emitted token is compared with its
own distribution, wherever in whatever block it came out, so that all tokens of a run bear witness and texts may end
when they like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import chi2
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, LogitsProcessorList, PreTrainedTokenizerFast
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from headstart.model.tokens.matching import matching_tokenizer
from headstart.rule.compiled_grammar import Tokens
from headstart.rule.drafted import drafted_distributions, whole
from headstart.rule.grammars import Grammars
from headstart.types import Output, Sampling, Step
from support.allowed_tokens import AllowedTokens, StructureLogitsProcessor

LETTERS = "abcdefgh"
VOCAB, EOS = len(LETTERS), LETTERS.index("h")
Text = tuple[int, ...]


def tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token for each of these words, of which the longer ones are merged from letters."""
    merges = [(word[0], word[1:]) for word in words if len(word) > 1]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


_LETTERS = Tokens(partial(matching_tokenizer, tokenizer(LETTERS), VOCAB, {EOS}), VOCAB, frozenset({EOS}))
ALLOWED = AllowedTokens(Grammars(_LETTERS), VOCAB, EOS)


class OpenAIPenalties:
    """x[t] - count[t] * frequency - (count[t] > 0) * presence, over the tokens after the prompt."""

    def __init__(self, prompt_length: int, presence: float, frequency: float) -> None:
        self._begin, self._presence, self._frequency = prompt_length, presence, frequency

    def __call__(self, ids: Any, scores: Any) -> Any:
        counts = torch.nn.functional.one_hot(ids[:, self._begin :], VOCAB).sum(1).to(scores.dtype)
        return scores - counts * self._frequency - (counts > 0) * self._presence


def processors(sampling: Sampling, prompt_length: int) -> LogitsProcessorList:
    """transformers' own, in the order that `Sampling` documents; without temperature for a greedy request."""
    found: list[Any] = []
    if sampling.logit_bias:
        found.append(SequenceBiasLogitsProcessor({(token,): bias for token, bias in sampling.logit_bias.items()}))
    if sampling.repetition_penalty != 1:
        found.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        found.append(OpenAIPenalties(prompt_length, sampling.presence_penalty, sampling.frequency_penalty))
    if sampling.min_tokens and not sampling.ignore_eos:
        found.append(MinNewTokensLengthLogitsProcessor(prompt_length, sampling.min_tokens, EOS, device="cpu"))
    if sampling.structure is not None:
        found.append(StructureLogitsProcessor(ALLOWED, sampling.structure, prompt_length))
    if sampling.greedy:
        return LogitsProcessorList(found)
    found.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        found.append(MinPLogitsWarper(sampling.min_p))
    return LogitsProcessorList(found)


@dataclass
class Distributions:
    """The logits and distributions at every position of some outputs: [T, V] each, float64."""

    raw: dict[Text, NDArray[Any]] = field(default_factory=dict)
    p: dict[Text, NDArray[Any]] = field(default_factory=dict)


@cache
def model(path: str) -> Any:
    """transformers' own. Of longrope's two sets of angles it has the one for long texts alone, as an engine has whose
    texts may be long (see `headstart.model.longrope`)."""
    config = AutoConfig.from_pretrained(path)
    if rope := getattr(config, "rope_parameters", None):
        config.rope_parameters = {**rope, "short_factor": rope["long_factor"]} if "long_factor" in rope else rope
    made = AutoModelForCausalLM.from_pretrained(path, config=config, dtype=torch.float32).eval()
    made.generation_config.eos_token_id = None
    return made


def distributions(path: str, prompt: Text, sampling: Sampling, outputs: Iterable[Text]) -> Distributions:
    """By output: what transformers says of each of its positions."""
    unique = sorted(set(outputs))
    longest = max(map(len, unique))
    ids = torch.tensor([[*prompt, *output, *[0] * (longest - len(output))] for output in unique])
    begin = len(prompt)
    with torch.no_grad():
        logits = model(path)(ids).logits[:, begin - 1 : -1].double()
    chain = processors(sampling, begin)
    p = torch.stack([chain(ids[:, : begin + i], logits[:, i]).softmax(-1) for i in range(longest)], 1)
    found = Distributions()
    for row, output in enumerate(unique):
        found.raw[output] = logits[row, : len(output)].numpy()
        found.p[output] = p[row, : len(output)].numpy()
    return found


def generated(path: str, tokenizer: Any, prompt: Text, sampling: Sampling) -> Text:
    """What transformers' `generate` writes for a greedy request."""
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {"eos_token_id": None if sampling.ignore_eos else EOS, "pad_token_id": 0}
    if sampling.stop:
        options |= {"stop_strings": list(sampling.stop), "tokenizer": tokenizer}
    out = model(path).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=sampling.max_tokens,
        do_sample=False,
        logits_processor=processors(sampling, len(prompt)),
        **options,
    )
    return tuple(out[0, len(prompt) :].tolist())


# -- evidence ---------------------------------------------------------------------------------------------------------


class Evidence:
    """Emitted tokens and their distributions, compared in several ways, each a chi-square whose p-value should not be
    tiny.

    Given all before it, a token differs from its distribution by something of mean 0 and known covariance; so such
    differences summed over any tokens, chosen by what was there before them, are about normal. The ways are

    context:  by token, after the same prompt and beginning, for the first two tokens;
    token:    by token, all texts and positions together;
    rank:     by the token's rank in its distribution, all together;
    copy:     by whether it is the one that followed the last time the text stood like this;
    repeat:   by whether it is among the last two tokens of the output;
    proposed: by whether the drafter was in favour of it, where that was settled before it was drawn: of a point mass,
              whether it was among the drafted tokens; of a round's first token, whether its q is above its p.
    """

    WAYS = ("context", "token", "rank", "copy", "repeat", "proposed")

    def __init__(self) -> None:
        self._sums: dict[str, dict[Hashable, _Sum]] = {way: defaultdict(_Sum) for way in self.WAYS}
        self.impossible = 0
        self.tokens = 0

    def add(self, prompt: Text, tokens: Text, p: NDArray[Any], variant: Hashable) -> None:
        """One output with the distributions [T, V] of its positions. variant: tells apart requests of different
        distributions."""
        for i, token in enumerate(tokens):
            self.tokens += 1
            self.impossible += p[i, token] <= 0
            if i < 2:
                self._sums["context"][variant, prompt, tokens[:i]].add(token, p[i])
            self._sums["token"][None].add(token, p[i])
            order = np.argsort(-p[i], kind="stable")
            self._sums["rank"][None].add(int(np.flatnonzero(order == token)[0]), p[i][order])
            copied, length = last_time((*prompt, *tokens[:i]))
            if length:
                self._add("copy", length, token, (copied,), p[i])
            if i:
                self._add("repeat", None, token, tokens[max(0, i - 2) : i], p[i])

    def add_round(self, step: Step, p: NDArray[Any], *, free: bool) -> None:
        """The draft of a step, with the distributions [T, V] of its tokens. free: whether point masses owe nothing to
        the noise with which tokens are drawn (under rule "coupled" those of a drafter that draws do)."""
        draft = step.draft
        if draft.q is not None and len(draft):
            first = draft.children[0][0]
            q = whole(drafted_distributions(draft)[first], len(p[0]))
            self._add("proposed", "drawn", step.tokens[0], np.flatnonzero(q > p[0]), p[0])
        elif free and len(draft):
            for i, token in enumerate(step.tokens):
                children = draft.children[step.path[i - 1] + 1 if i else 0]
                if children:
                    self._add("proposed", "named", token, [draft.tokens[child] for child in children], p[i])

    def _add(self, way: str, key: Hashable, token: int, chosen: Iterable[int], p: NDArray[Any]) -> None:
        tokens = set(chosen)
        mass = float(sum(p[each] for each in tokens))
        self._sums[way][key].add(int(token in tokens), np.array([1 - mass, mass]))

    def __iadd__(self, other: Evidence) -> Evidence:
        """Take in what another has."""
        self.tokens += other.tokens
        for way, sums in other._sums.items():
            for key, one in sums.items():
                self._sums[way][key] += one
        return self

    def p_values(self) -> dict[str, float]:
        """By way; those for which there are too few tokens are left out, but "token" and "rank" must be there."""
        found = {}
        for way, sums in self._sums.items():
            parts = [one.chi_square() for one in sums.values()]
            freedom = sum(each for _, each in parts)
            if freedom:
                found[way] = float(chi2.sf(sum(each for each, _ in parts), freedom))
        assert {"token", "rank"} <= set(found), "too few tokens to say anything"
        return found


class _Sum:
    """Counts by class, their expectations, and the covariance of the difference."""

    LEAST = 4.0
    """Variance below which a class is merged with others."""

    def __init__(self) -> None:
        self._observed: dict[int, int] = defaultdict(int)
        self._distributions: list[NDArray[Any]] = []

    def add(self, chosen: int, distribution: NDArray[Any]) -> None:
        self._observed[chosen] += 1
        self._distributions.append(distribution)

    def __iadd__(self, other: _Sum) -> _Sum:
        for chosen, count in other._observed.items():
            self._observed[chosen] += count
        self._distributions += other._distributions
        return self

    def chi_square(self) -> tuple[float, int]:
        """Statistic and degrees of freedom."""
        p = np.array(self._distributions)
        observed = np.array([self._observed[i] for i in range(p.shape[1])], dtype=float)
        variance = (p * (1 - p)).sum(0)
        order = np.argsort(variance)
        small = 0  # the classes of small variance are taken together until they have a variance to speak of
        while small < len(order):
            merged = p[:, order[:small]].sum(1)
            if variance[order[small]] >= self.LEAST and (small == 0 or (merged * (1 - merged)).sum() >= self.LEAST):
                break
            small += 1
        groups = ([order[:small]] if small else []) + [order[i : i + 1] for i in range(small, len(order))]
        if len(groups) < 2:
            return 0.0, 0
        distributions_ = np.stack([p[:, group].sum(1) for group in groups], 1)
        difference = np.array([observed[group].sum() for group in groups]) - distributions_.sum(0)
        covariance = np.diag(distributions_.sum(0)) - distributions_.T @ distributions_
        values, vectors = np.linalg.eigh(covariance)  # singular: the differences add up to nothing
        free = values > 1e-6 * values.max()
        return float(((vectors.T @ difference)[free] ** 2 / values[free]).sum()), int(free.sum())


@cache
def last_time(text: Text, longest: int = 3) -> tuple[int, int]:
    """The token that followed the latest earlier occurrence of the text's last few tokens, and how many those are."""
    for length in range(min(longest, len(text) - 1), 0, -1):
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == text[-length:]:
                return text[end], length
    return 0, 0


# -- ends -------------------------------------------------------------------------------------------------------------


def expected_end(sampling: Sampling, tokens: Sequence[int]) -> tuple[int, str, str]:
    """How many of these tokens an output must have, why it ends there, and its text."""
    written = ""
    for count, token in enumerate(tokens, start=1):
        if token == EOS and not sampling.ignore_eos:
            return count, "stop", written
        written += LETTERS[token]
        found = [at for stop in sampling.stop if (at := written.find(stop)) >= 0]
        if found:
            return count, "stop", written[: min(found)]
    return sampling.max_tokens, "length", written


def check_end(output: Output, sampling: Sampling) -> str:
    """What is wrong with where an output ends, or nothing."""
    expected = expected_end(sampling, output.tokens)
    got = len(output.tokens), output.finish_reason, output.text
    return "" if got == expected else f"{output.tokens} ends as {got}, not as {expected}"


def check_logprobs(output: Output, sampling: Sampling, found: Distributions) -> str:
    """What is wrong with its log-probabilities, or nothing."""
    if sampling.logprobs is None or output.logprobs is None:
        return "" if output.logprobs is sampling.logprobs else "log-probabilities that nobody wanted, or none at all"
    raw, p = torch.tensor(found.raw[output.tokens]), torch.tensor(found.p[output.tokens])
    logs = raw.log_softmax(-1) if sampling.logprobs_mode == "raw" else p.log()
    if [entry.token for entry in output.logprobs] != list(output.tokens):
        return "log-probabilities of other tokens"
    for entry, distribution in zip(output.logprobs, logs, strict=True):
        best = distribution.sort(descending=True).values[: sampling.logprobs]
        pairs = [
            (entry.logprob, distribution[entry.token]),
            *((value, distribution[token]) for token, value in entry.top.items()),
        ]
        best = best[best.isfinite()]
        pairs += zip(entry.top.values(), best, strict=False)
        if len(entry.top) != len(best) or not np.allclose(*zip(*pairs, strict=True), atol=1e-4):
            return f"{entry} where the distribution says {distribution.tolist()}"
    return ""
