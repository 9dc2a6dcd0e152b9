"""What `headstart.load` takes: options of the target, and options of an engine on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from headstart.errors import InvalidOption
from headstart.options import check_number, strict
from headstart.types import Rule

if TYPE_CHECKING:
    import torch

    from headstart.drafters.matching.suffix_store import SuffixStore
    from headstart.pacing import Pacing

DraftTree = Literal["auto", "none", "mixed", "top-k", "sampled"]
PacingName = Literal["adaptive", "fixed"]
_DTYPES = ("auto", "float32", "bfloat16", "float16")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How a target is loaded."""

    device: str | torch.device = "auto"
    """"auto" (a GPU if there is one), "cpu", "cuda", ..."""
    dtype: str | torch.dtype = "auto"
    """"auto" (the checkpoint's, or float32 on a processor without bf16), "float32", "bfloat16", "float16"."""
    quantize: str | None = None
    """None, or "int8": weights as 8-bit integers with a scale for each output, activations as 8-bit integers with a
    scale for each token (on a CPU with VNNI). The law kept is that of the quantised model."""
    max_length: int | None = None
    """Tokens of prompt and output together; None takes the model's limit, at most 4096."""
    trust_remote_code: bool = False
    """Run Python code from the model's own repository. Leave it off unless you have read that code."""

    def __post_init__(self) -> None:
        if isinstance(self.dtype, str) and self.dtype not in _DTYPES:
            raise InvalidOption(f"dtype={self.dtype!r} is not known", hint=f"it is one of {', '.join(_DTYPES)}")
        if self.max_length is not None:
            check_number("max_length", self.max_length, low=2, integer=True)


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How an engine drafts and serves requests."""

    rule: Rule = "exact"
    """"exact" or "coupled"; see docs/concepts/rule.md."""
    num_speculative_tokens: int | None = None
    """K, the most tokens drafted per step; None leaves it to pacing and drafter, 0 is plain decoding."""
    pacing: PacingName | Pacing = "adaptive"
    """"adaptive" drafts, step by step and request by request, as much as should be fastest by measured costs and
    acceptance, nothing included; it measures the models for about a second at the first load of a pair and keeps the
    figures in the user's cache directory. "fixed" always drafts K (or the drafter's default). A `Pacing` of your own
    decides by itself."""
    max_batch_size: int = 8
    """Requests that run at once, each with a preallocated cache slot; more of them wait."""
    prefill_chunk: int = 512
    """Prompt tokens read per step."""
    draft_tree: DraftTree = "auto"
    """How draft models and EAGLE heads guess: "none" (chains), "top-k" (trees of the likeliest continuations),
    "sampled" (trees drawn without replacement, in the shape that measured acceptance calls for), "mixed" (the first for
    greedy requests, the second for others); "auto" is "mixed" for heads of targets that are not tiny, chains for
    everything else. Medusa heads always guess trees."""
    draft_quantize: str | None = "auto"
    """`quantize` for draft models and heads, whose rounding costs acceptance at most; "auto" takes int8 where it is
    faster (Llama-shaped drafts on such a CPU)."""
    suffix_store: SuffixStore | Literal["auto"] | None = "auto"
    """Past outputs that the drafter "suffix" looks into, and adds to. "auto" begins with an empty one; None keeps each
    request to its own text; a `SuffixStore` can be loaded, shared by engines of one tokenizer, and saved. Requests with
    different `Sampling.cache_salt` never see each other's outputs."""

    def __post_init__(self) -> None:
        if self.num_speculative_tokens is not None:
            check_number("num_speculative_tokens", self.num_speculative_tokens, low=0, integer=True)
        check_number("max_batch_size", self.max_batch_size, low=1, integer=True)
        check_number("prefill_chunk", self.prefill_chunk, low=1, integer=True)
        if self.rule not in get_args(Rule):
            raise InvalidOption(f"rule={self.rule!r} does not exist", hint="it is 'exact' or 'coupled'")
        if self.draft_tree not in get_args(DraftTree):
            kinds = ", ".join(get_args(DraftTree))
            raise InvalidOption(f"draft_tree={self.draft_tree!r} does not exist", hint=f"it is one of {kinds}")
        if isinstance(self.pacing, str) and self.pacing not in get_args(PacingName):
            raise InvalidOption(f"pacing={self.pacing!r} does not exist", hint="it is 'adaptive' or 'fixed'")
