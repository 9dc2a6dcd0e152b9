"""What `headstart.load` takes: options of the target, and options of an engine on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from headstart.base.cores import MOST as MOST_THREADS
from headstart.base.cores import VARIABLE as THREADS
from headstart.base.levels import VARIABLE, LevelName
from headstart.base.options import check_choice, check_fields, option, strict
from headstart.types import EngineRule, TreeKind

if TYPE_CHECKING:
    import torch

    from headstart.drafters.matching.suffix_store import SuffixStore
    from headstart.drafters.matching.text_index import TextIndex
    from headstart.pacing import Pacing

DraftTree = Literal["auto", TreeKind]
PacingName = Literal["adaptive", "fixed"]
DTypeName = Literal["auto", "float32", "bfloat16", "float16"]
KVCacheDType = Literal["auto", "int8"]
Quantize = Literal["int8", "int8-grouped", "int4", "none"]

_target = partial(option, panel="Model")
_engine = partial(option, panel="Speculation")


def _parse_length(given: str) -> int | str:
    return int(given) if given.isdecimal() else given


def _parse_quantize(name: str) -> str | None:
    return None if name == "none" else name


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How a target is loaded.

    With quantize="int8" weights are 8-bit integers with a scale for each output, and activations 8-bit integers with a
    scale for each token. With "int8-grouped" both have a scale for each 32 inputs, which is nearer to the floats. With
    "int4" weights are 4-bit integers with a scale and a minimum for each 32 inputs (8 bits in the output head), and
    activations 8-bit integers with a scale for each 32. The text then follows the distribution of the quantised model.

    A GGUF file runs on its own blocks by default, which rounds activations as "int4" does, where the row kernels take
    the model; "none" makes floats of them, in `dtype`, as do processors without those kernels. Other models run in
    floats unless they are quantised here, and "none" changes nothing.

    With kv_cache_dtype="int8" each key and each value of an attention head is 8-bit integers with a scale of its own,
    with and without drafts alike. It needs the row kernels, and attention that is not latent.
    """

    device: str | torch.device = _target("auto", "'auto' (a GPU if there is one), 'cpu', 'cuda' or 'cuda:1'.", kind=str)
    dtype: str | torch.dtype = _target(
        "auto", "'auto' (the checkpoint's, or float32 where bf16 would be slower), 'bfloat16', 'float16' or "
        "'float32'. In float32 greedy text is the same token for token; in 16 bits two nearly equal tokens can change "
        "places.",
        kind=str,
    )  # fmt: skip
    quantize: str | None = _target(
        None,
        "Round the weights to 8 or 4 bits, which is faster. 4 bits, and 8 in groups, need a model that headstart's own "
        "decoder runs. A GGUF file or a quantised checkpoint runs on its own codes by default where it "
        "can; 'none' makes floats of them.",
        kind=Quantize,
    )
    max_length: int | Literal["auto"] | None = _target(
        None, "The most tokens of a prompt and its text together. Default: the model's limit, at most 4096. 'auto' "
        "takes as many as fit into memory for all requests that run at once, up to the model's limit.",
        "--max-model-len", "--max-length", kind=str, parse=_parse_length, metavar="TOKENS", low=2,
    )  # fmt: skip
    kv_cache_dtype: KVCacheDType = _target(
        "auto", "What keys and values are kept in: 'int8' takes about half the memory of 16 bits, for long contexts. "
        "The text then follows the distribution of the model on rounded keys and values. 'auto' is the model's dtype.",
    )  # fmt: skip
    probe: Literal["kept", "always"] = _target(
        "kept",
        "'always' compares the kernels with transformers' modules at this start too, instead of believing what was "
        "found out about the same files at an earlier one, and keeps nothing of it.",
    )
    packed_file: bool = _target(
        True,
        "Run large weights, and the experts of a mixture, where they lie in a file of the cache directory, which is "
        "made at the first load; else they are laid out in memory at every start.",
        "--packed-file/--no-packed-file",
    )
    cpu_level: str | None = _target(
        None, "The level of the processor's instructions for which the compiled kernels are taken: 'avx2' or 'neon', "
        f"say; 'headstart info' lists those here. It holds for the whole process. Default: {VARIABLE} of the "
        "environment, or the best.",
        kind=LevelName,
    )  # fmt: skip
    threads: int | None = _target(
        None, "Threads that compute. Default: one for each core, as 'headstart info' says. That is each core that this "
        "process may use, and of a processor with two kinds of cores each fast one; or "
        f"{THREADS} of the environment, if there are as many cores. The number holds for all models of the process, "
        "until another one is loaded.",
        "-t", low=1, high=MOST_THREADS,
    )  # fmt: skip
    trust_remote_code: bool = _target(
        False, "Run Python code from the model's repository. Leave it off unless you have read that code."
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.dtype, str):
            check_choice("dtype", self.dtype, get_args(DTypeName))


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class InfoOptions:
    """What the memory of a model is counted for, by `headstart info`."""

    context: int | None = option(
        None, "Tokens of a prompt and its text together, for which the cache is counted. Default: the model's limit, "
        "at most 4096.", "--max-model-len", "--context", metavar="TOKENS", low=2, panel="Memory",
    )  # fmt: skip
    slots: int = option(
        8, "Requests that run at once.", "--max-batch-size", "--max-num-seqs", "--slots", low=1, panel="Memory"
    )

    def __post_init__(self) -> None:
        check_fields(self)


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How an engine drafts and serves requests.

    Adaptive pacing measures the models for about a second when a pair is first loaded, and keeps the figures in the
    user's cache directory. A `Pacing` of your own decides by itself.
    """

    rule: EngineRule = _engine(
        "auto", "How drafts are verified: 'exact' accepts the most; with 'coupled' a seed gives the same text under "
        "any drafter, or none; 'auto' is 'coupled' for requests with a seed and 'exact' for all others. The "
        "distribution of the text is the same with each.",
    )  # fmt: skip
    num_speculative_tokens: int | None = _engine(
        None, "The most tokens drafted per step (K); 0 drafts none. Default: as pacing and drafter decide.",
        "--num-speculative-tokens", "-k", "--k", low=0,
    )  # fmt: skip
    pacing: PacingName | Pacing = _engine(
        "adaptive", "How many tokens are drafted in a step: 'adaptive' drafts as many as should be fastest by measured "
        "costs and acceptance, which may be none; 'fixed' always drafts as many as --num-speculative-tokens says.",
        kind=PacingName,
    )  # fmt: skip
    max_batch_size: int = _target(
        8, "The most requests that run at once. Each takes the memory of a whole context; more of them wait.",
        "--max-batch-size", "--max-num-seqs", low=1,
    )  # fmt: skip
    prefill_chunk: int = _target(
        512, "The most tokens of prompts that are read per step. While other requests write, a step reads fewer, where "
        "that cannot change a text, so that those go on about ten times a second.", low=1,
    )  # fmt: skip
    prefix_cache: bool = _target(
        False, "Keep the texts of ended requests in the cache, so that a request that begins like one of them need not "
        "read that again. Requests that are kept apart share nothing.",
        "--prefix-cache/--no-prefix-cache",
    )  # fmt: skip
    draft_tree: DraftTree = _engine(
        "auto", "How draft models and EAGLE heads draft: one chain of tokens ('none'), a tree of the likeliest "
        "continuations ('top-k'), a tree drawn at random ('sampled'), or 'top-k' for greedy requests and 'sampled' for "
        "others ('mixed'). 'auto' is 'mixed' for heads of all but tiny targets, else 'none'. Medusa heads always draft "
        "trees.",
        "--tree",
    )  # fmt: skip
    draft_quantize: str | None = _engine(
        "auto", "Run draft models and heads on 8-bit integers, or draft models and EAGLE heads on 4-bit ones; 'auto' "
        "takes a GGUF file's own blocks, else 4 bits for EAGLE heads and 8 for the others, where that is faster. Their "
        "rounding can only cost acceptance.",
        kind=Literal["auto", "int8", "int8-grouped", "int4", "none"], parse=_parse_quantize,
    )  # fmt: skip
    draft_device: str | torch.device | None = _engine(
        None, "Where draft models run: 'cpu' beside a GPU, or another GPU ('cuda:1'). Default: where the target runs.",
        kind=str,
    )  # fmt: skip
    ahead: bool = _engine(
        False, "Draft ahead: while the target verifies a draft, the drafter drafts for its likely outcomes. No text "
        "changes. It pays where the two do not share what limits them; 'headstart doctor' says whether.",
    )  # fmt: skip
    draft_threads: int | None = _engine(
        None, "Cores for a drafter that drafts ahead on the target's processor; the target has the others meanwhile. "
        "Default: 1.", low=1,
    )  # fmt: skip
    draft_residual: float | None = _engine(
        None, "Scale the probability of the draft model's likeliest tokens by this factor when it draws. Below 1, "
        "acceptance falls slightly and --ahead hits more often. For --ahead above temperature 0.",
        above=0, high=1,
    )  # fmt: skip
    index: str | Path | TextIndex | None = _engine(
        None, "Texts that the drafters 'ngram' and 'suffix' also copy from, the same for all requests: a file that "
        "'headstart index' has written.",
        kind=Path,
    )  # fmt: skip
    suffix_store: SuffixStore | Literal["auto"] | None = "auto"
    """Past outputs that the drafter "suffix" searches, and adds to. "auto" begins with an empty one; None keeps each
    request to its own text; a `SuffixStore` can be loaded, shared by engines of one tokenizer, and saved. Requests with
    different `Sampling.cache_salt` never see each other's outputs."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not hasattr(self.pacing, "plan"):
            check_choice("pacing", self.pacing, get_args(PacingName))
