"""`load`: from names to an engine. The one place that knows which drafters exist."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from headstart.drafters import Drafter
from headstart.drafters.cascade import Cascade
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.early_exit import EarlyExitDrafter
from headstart.drafters.lookahead import LookaheadDrafter
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.drafters.suffix_store import SuffixStore
from headstart.engine import Engine
from headstart.errors import InvalidOption
from headstart.model import loading
from headstart.model.linears import can_quantize
from headstart.model.memory import MemoryNeed, preflight
from headstart.model.runner import ModelRunner
from headstart.model.tokenizers import check_pair, load_tokenizer
from headstart.options import check_number, reject_unknown
from headstart.pacing.making import check_pacing, make_pacing
from headstart.types import Rule

WEIGHTLESS = ("ngram", "suffix", "early-exit", "lookahead")
"""Drafters that need no weights, by name."""

DEFAULT_LENGTH = 4096
_SURE = 3  # tokens of match that are asked for where another drafter does better on a weaker one
_DTYPES = ("auto", "float32", "bfloat16", "float16")


def load(
    target: str | Path = loading.BUNDLED,
    drafter: str | Path | Sequence[str | Path] | None = "auto",
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantize: str | None = None,
    rule: Rule = "exact",
    *,
    num_speculative_tokens: int | None = None,
    pacing: str = "adaptive",
    max_batch_size: int = 8,
    max_length: int | None = None,
    prefill_chunk: int = 512,
    draft_quantize: str | None = "auto",
    suffix_store: SuffixStore | Literal["auto"] | None = "auto",
    trust_remote_code: bool = False,
    **unknown: Any,
) -> Engine:
    """Load a target and a drafter, and return the engine that runs them.

    Args:
        target: a model directory, a hub id, or "bundled".
        drafter: "auto" (for the bundled target "ngram" and the bundled draft, otherwise "ngram"), "none", "ngram",
            "suffix", "early-exit" (the target's own first layers), "lookahead", the directory or hub id of a causal
            LM with the target's tokenizer, or a list of these: per step, the
            first that has something to say drafts.
        device: "auto" (a GPU if there is one), "cpu", "cuda", ...
        dtype: "auto" (the checkpoint's, or float32 on a processor without bf16), "float32", "bfloat16", "float16".
        quantize: None, or "int8": weights as 8-bit integers with a scale for each output, activations as 8-bit
            integers with a scale for each token (on a CPU with VNNI). The law kept is that of the quantised model.
        rule: "exact" or "coupled"; see docs/concepts/rule.md.
        num_speculative_tokens: K, the most tokens drafted per step; None leaves it to pacing and drafter, 0 is plain.
        pacing: "adaptive" drafts, step by step and request by request, as much as should be fastest by measured costs
            and acceptance, nothing included; it measures the models for about a second at the first load of a pair and
            keeps the figures in the user's cache directory. "fixed" always drafts K (or the drafter's default).
        max_batch_size: requests that run at once, each with a preallocated cache slot; more of them wait.
        max_length: tokens of prompt and output together; None takes the model's limit, at most 4096.
        prefill_chunk: prompt tokens read per step.
        draft_quantize: the same for draft models, whose rounding costs acceptance at most; "auto" takes int8 where
            it is faster (Llama-shaped drafts on such a CPU).
        suffix_store: past outputs that drafter "suffix" looks into, and adds to. "auto" begins with an empty one; None
            keeps each request to its own text; a `SuffixStore` can be loaded, shared by engines of one tokenizer, and
            saved. Requests with different `Sampling.cache_salt` never see each other's outputs.
        trust_remote_code: run Python code from the model's own repository. Off unless you have read that code.

    Raises:
        InvalidOption, ModelNotFound, UnsupportedModel (PickleCheckpoint, RemoteCodeRequired),
        IncompatibleTokenizer, NotEnoughMemory.
    """
    reject_unknown(unknown, [name for name in inspect.signature(load).parameters if name != "unknown"], "load")
    if num_speculative_tokens is not None:
        check_number("num_speculative_tokens", num_speculative_tokens, low=0, integer=True)
    check_number("max_batch_size", max_batch_size, low=1, integer=True)
    check_pacing(pacing)
    place = _device(device)
    _check_quantize("quantize", quantize, place)
    if suffix_store not in (None, "auto") and not isinstance(suffix_store, SuffixStore):
        raise InvalidOption(
            f"suffix_store={suffix_store!r} is not a SuffixStore",
            hint="SuffixStore.load(path) reads one from a file; 'auto' begins with an empty one, None has none",
        )
    if draft_quantize != "auto":
        _check_quantize("draft_quantize", draft_quantize, place)
    names = _drafter_names(target, drafter)
    plan = _Plan(dtype, place, max_batch_size, max_length, trust_remote_code)

    ours = _Model(target, "target", plan)
    drafts = {name: _Model(name, "draft", plan) for name in names if name not in WEIGHTLESS}
    for draft in drafts.values():
        check_pair(
            ours.tokenizer,
            draft.tokenizer,
            target_vocab=ours.vocab_size,
            draft_vocab=draft.vocab_size,
            name=f"draft {draft.label}",
        )
    preflight([model.need for model in (ours, *drafts.values())], place)

    runner = ours.runner(quantize)
    members: list[Drafter] = []
    budget: dict[str, Any] = {} if num_speculative_tokens is None else {"budget": num_speculative_tokens}
    past = SuffixStore() if suffix_store == "auto" else suffix_store
    for name in names:
        if name in drafts:
            model = drafts[name]
            members.append(
                DraftModel(
                    model.runner(draft_quantize),
                    name=model.label,
                    vocab_size=runner.vocab_size,
                    slots=max_batch_size,
                    **budget,
                )
            )
        elif name == "early-exit":
            members.append(EarlyExitDrafter(text=_some_text(ours), **budget))
        elif name == "lookahead":
            members.append(LookaheadDrafter(**budget))
        elif name == "suffix":
            members.append(SuffixDrafter(store=past, shortest=_SURE if len(names) > 1 else 1, **budget))
        elif len(names) > 1:
            members.append(NgramDrafter(longest=5, shortest=_SURE, **budget))
        else:
            members.append(NgramDrafter(**budget))
    made = members[0] if len(members) == 1 else Cascade(members) if members else None
    engine = Engine(
        runner,
        ours.tokenizer,
        made,
        rule=rule,
        num_speculative_tokens=num_speculative_tokens,
        max_batch_size=max_batch_size,
        prefill_chunk=prefill_chunk,
        eos_token_ids=ours.eos_token_ids,
        target_name=ours.label,
    )
    facts = {
        "models": {name: model.config.to_dict() for name, model in {"": ours, **drafts}.items()},
        "drafters": names,
        "quantize": [quantize, draft_quantize],
        "decoder": runner.decoder,
        "headstart": version("headstart"),
    }
    engine.pacing = make_pacing(pacing, runner, engine.cache, made, num_speculative_tokens, facts)
    return engine


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the models are to be loaded."""

    dtype: str | torch.dtype
    device: torch.device
    slots: int
    max_length: int | None
    trust_remote_code: bool

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, torch.dtype) and self.dtype not in _DTYPES:
            raise InvalidOption(f"dtype={self.dtype!r} is not known", hint=f"it is one of {', '.join(_DTYPES)}")
        if self.max_length is not None:
            check_number("max_length", self.max_length, low=2, integer=True)


class _Model:
    """A model whose config and tokenizer are read and checked, and whose weights are not loaded yet."""

    def __init__(self, source: str | Path, role: str, plan: _Plan) -> None:
        self.source = loading.resolve(source, role)
        self.label = str(source) if str(source) != loading.BUNDLED else f"bundled {role}"
        self.config = loading.load_config(self.source, trust_remote_code=plan.trust_remote_code)
        self.tokenizer = load_tokenizer(self.source, trust_remote_code=plan.trust_remote_code)
        self.dtype = loading.choose_dtype(plan.dtype, self.config, plan.device)
        self.length = self._length(plan.max_length, role)
        self._plan = plan

    @property
    def vocab_size(self) -> int:
        return int(self.config.get_text_config().vocab_size)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends a text, by generation config, model config or tokenizer."""
        return loading.eos_token_ids(self.source, self.config, self.tokenizer)

    @property
    def need(self) -> MemoryNeed:
        weights = loading.weight_bytes(self.source, self.config, self.dtype)
        cache = loading.cache_bytes(self.config, self.dtype, slots=self._plan.slots, length=self.length)
        return MemoryNeed(self.label, weights, cache)

    def runner(self, quantize: str | None) -> ModelRunner:
        plan = self._plan
        model = loading.load_weights(
            self.source, self.config, self.dtype, plan.device, trust_remote_code=plan.trust_remote_code
        )
        return ModelRunner(model, max_length=self.length, quantize=quantize)

    def _length(self, asked: int | None, role: str) -> int:
        limit = loading.context_limit(self.config)
        if asked is None:
            return min(limit, DEFAULT_LENGTH)
        if asked > limit and role == "target":
            raise InvalidOption(
                f"max_length={asked} is above the {limit} positions {self.label} was built for",
                hint=f"use max_length={limit} or less",
            )
        return min(asked, limit)


def _some_text(model: _Model) -> list[int]:
    """A few tokens to begin a text with; which ones hardly matters."""
    return [0] if model.tokenizer is None else list(model.tokenizer("The first")["input_ids"]) or [0]


def _check_quantize(name: str, quantize: str | None, device: torch.device) -> None:
    if quantize not in (None, "int8"):
        raise InvalidOption(f"{name}={quantize!r} does not exist", hint="it is None or 'int8'")
    if quantize is not None and not can_quantize(device):
        raise InvalidOption(
            f"{name}='int8' needs a CPU with VNNI instructions, and this is {device}",
            hint="leave it out; weights run in their dtype",
        )


def _device(device: str | torch.device) -> torch.device:
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InvalidOption(f"device={device!r} is not known", hint="use 'auto', 'cpu' or 'cuda'") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidOption("device='cuda', but this PyTorch sees no CUDA device", hint="use device='cpu' or 'auto'")
    return place


def _drafter_names(target: str | Path, drafter: str | Path | Sequence[str | Path] | None) -> list[str]:
    """The drafters to make, in order of preference: names in WEIGHTLESS, or models. Empty for plain decoding."""
    if drafter is None or isinstance(drafter, (str, Path)):
        asked = ["none" if drafter is None else str(drafter)]
    else:
        asked = [str(name) for name in drafter]
    if asked == ["auto"]:
        return ["ngram", loading.BUNDLED] if str(target) == loading.BUNDLED else ["ngram"]
    if asked == ["none"]:
        return []
    for name in asked:
        if name in ("auto", "none"):
            raise InvalidOption(f"{name!r} cannot stand in a list of drafters", hint="name each drafter of the list")
    if len(set(asked)) != len(asked) or not asked:
        raise InvalidOption(f"drafter={drafter!r} is empty or names one twice", hint="name each drafter once")
    return asked
