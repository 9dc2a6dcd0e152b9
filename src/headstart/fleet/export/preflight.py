"""What is refused before anything is measured, and what is warned of: mistakes that an engine would not report.

An engine that reads the wrong layers or drops a bias serves correct text, only with few drafts accepted, and nothing
in its log says so. So each such fault is a rule here. Whatever a rule needs to know is in a `Case`, so that a test can
make it up.

Sources: vLLM 0.32 (config/speculative.py, v1/sample/logits_processor/__init__.py, sampling_params.py), llama.cpp
(src/models/eagle3.cpp, src/models/dflash.cpp, common/speculative.cpp), SGLang 0.5.23
(models/llama_eagle3.py, speculative/eagle_utils.py, arg_groups/speculative_hook.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.base.errors import ExportRefused, HeadstartError
from headstart.fleet.export.architectures import EAGLE3_TARGETS, VERSIONS
from headstart.fleet.export.manifest import DrafterKind, EngineName
from headstart.train.eagle_formats import check_layer_ids


@dataclass(frozen=True, slots=True)
class Head:
    """The facts of a head's config and weights. Sizes are those it was made for.

    layer_ids: inputs, in the order of the config. count: of Medusa heads. third: EAGLE-3, not EAGLE-1 or -2. layers: of
    an EAGLE head's decoder. parallel: P-EAGLE, which guesses all tokens in one forward. width: of its own stream; 0 for
    that of the target. norms: settings that norm the states it reads. selector: whether it has one. without_form: what
    it has that llama.cpp's files have no place for. guesses: tokens that a block head guesses; 0 for others. windows:
    whether layers of a block head have any.
    """

    hidden_size: int = 0
    vocab_size: int = 0
    layer_ids: tuple[int, ...] = ()
    norm_before_residual: bool = False
    third: bool = True
    count: int = 0
    layers: int = 1
    parallel: bool = False
    width: int = 0
    norms: tuple[str, ...] = ()
    selector: bool = False
    without_form: str = ""
    guesses: int = 0
    windows: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All that rules look at.

    architectures, hidden_size, vocab_size, layers, context: the target's. target_at, drafter_at: where the engine will
    find them. head: of an EAGLE-3 head or Medusa heads. draft_vocab, draft_context, draft_parallel: a draft model's;
    parallel is one with a mask token, which guesses all tokens in one forward (PARD). differences: between the
    tokenizers of target and draft model. settings: other options of the engine. processors: entry points of its
    environment that load custom logits processors. cpu: whether it will run on processors.
    """

    engine: EngineName
    kind: DrafterKind
    architectures: tuple[str, ...]
    hidden_size: int
    vocab_size: int
    layers: int
    target_at: str
    drafter_at: str | None = None
    context: int = 0
    head: Head = Head()
    draft_vocab: int | None = None
    draft_context: int | None = None
    draft_parallel: bool = False
    differences: tuple[str, ...] = ()
    depth: int | None = None
    dynamic: bool = False
    costs_known: bool = False
    cpu: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    processors: tuple[str, ...] = ()

    @property
    def parallel(self) -> bool:
        """Whether the drafter guesses all tokens in one forward."""
        return self.draft_parallel or self.head.parallel


@dataclass(frozen=True, slots=True)
class Finding:
    """kind: "refused", or "warning" of what will be served all the same."""

    kind: Literal["refused", "warning"]
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    engine: whose cases it looks at; None for any. found: what is wrong with a case; something false where nothing is.
    message, hint: the finding in words, in which {case} and {found} stand for themselves.
    """

    engine: EngineName | None
    kind: Literal["refused", "warning"]
    found: Callable[[Case], object]
    message: str
    hint: str

    def of(self, case: Case) -> Finding | None:
        if self.engine not in (None, case.engine) or not (found := self.found(case)):
            return None
        message, hint = (words.format(case=case, found=found) for words in (self.message, self.hint))
        return Finding(self.kind, message, hint)


def check(case: Case) -> list[str]:
    """Every warning, as one line.

    Raises:
        ExportRefused: the first finding that is no warning.
    """
    found = findings(case)
    for finding in found:
        if finding.kind == "refused":
            raise ExportRefused(finding.message, hint=finding.hint)
    return [f"{finding.message}: {finding.hint}" for finding in found]


def findings(case: Case) -> list[Finding]:
    """What the rules find."""
    return [finding for rule in RULES if (finding := rule.of(case)) is not None]


# -- what takes more than a line --------------------------------------------------------------------------------------

_GUESSED = ("eagle-", "eagle3", "dflash", "dspark")
"""Parts of a drafter's path from which vLLM guesses its method; for draft models and Medusa over the one given."""


def _guessed(case: Case) -> str | None:
    return next((part for part in _GUESSED if part in (case.drafter_at or "").lower()), None)


def _odd_shape(case: Case) -> tuple[int, int] | None:
    """Layers that a parallel head reads, and its width. vLLM's class takes three states of the head's own width as
    `mask_hidden`, and norms none of them."""
    head = case.head
    found = len(head.layer_ids), head.width or head.hidden_size
    return found if case.kind == "eagle3" and head.parallel and found != (3, head.hidden_size) else None


_ON_STATES = ("eagle3", "dflash", "dspark")
"""Kinds of heads that read states of the target's inner layers."""


def _without_states(case: Case) -> str:
    known = EAGLE3_TARGETS[case.engine] & set(case.architectures)
    return case.architectures[0] if case.kind in _ON_STATES and case.architectures and not known else ""


def _misread_layers(case: Case) -> HeadstartError | None:
    if case.kind in _ON_STATES and case.head.third:
        # llama.cpp takes them in any order
        ids = case.head.layer_ids if case.engine != "llama.cpp" else sorted(set(case.head.layer_ids))
        try:
            check_layer_ids(ids, case.layers)
        except HeadstartError as error:
            return error
    return None


def _other_target(case: Case) -> str:
    """The first size that differs."""
    pairs = (("hidden_size", case.head.hidden_size, case.hidden_size), ("vocab_size", case.head.vocab_size,
             case.vocab_size))  # fmt: skip
    words = (f"{name} is {theirs} there and {ours} here" for name, theirs, ours in pairs if theirs != ours)
    return next(words, "") if case.kind in (*_ON_STATES, "medusa") else ""


def _relative(case: Case) -> str:
    for name, path in (("target", case.target_at), ("drafter", case.drafter_at)):
        if path is not None and not path.startswith("/") and (path.startswith((".", "~")) or path.count("/") > 1):
            return f"the {name} would be served from {path!r}"
    return ""


def _changes_k(case: Case) -> bool:
    return case.dynamic and case.kind in ("eagle3", "draft_model")


def _divided(case: Case) -> bool:
    copies = case.settings.get("data-parallel-size")
    return isinstance(copies, int) and copies > 1


_FIXED = ("--dynamic is for EAGLE-3 heads and draft models in vLLM", "leave it out: K is then fixed")
_NO_EAGLE3 = "has no EAGLE-3 for {found}: that model does not hand out states of its inner layers there"
_SAME_TOKENS = "use a draft of the target's own family, or train one (headstart train draft)"

RULES = (
    # -- vLLM: what it refuses late, reads wrong or drops in silence --
    Rule(
        "vllm", "refused", lambda case: case.kind == "eagle3" and case.head.parallel and ", ".join(case.head.norms),
        "the head norms the states it reads ({found}), which vLLM leaves out for parallel heads",
        "train the head without these settings",
    ),
    Rule(
        "vllm", "refused", _odd_shape,
        "vLLM reads three layers of the target into parallel heads of its width; this one reads {found[0]} into a "
        "width of {found[1]}",
        "train a head of the usual shape",
    ),
    Rule(
        "vllm", "refused", lambda case: case.kind in ("medusa", "draft_model") and _guessed(case),
        "vLLM takes a drafter for another kind if its path has {found!r} in it, whatever method is given: "
        "{case.drafter_at}",
        "write the export to a folder of another name",
    ),
    Rule("vllm", "refused", lambda case: case.dynamic and not _changes_k(case), *_FIXED),
    Rule(
        "vllm", "refused", lambda case: _changes_k(case) and _divided(case),
        "vLLM switches --dynamic off with data parallelism", "leave one of the two out",
    ),
    Rule(
        "vllm", "refused", lambda case: _changes_k(case) and not _divided(case) and case.parallel,
        "--dynamic is not for parallel drafters, whose forward is made for one K", "leave it out",
    ),
    Rule(
        "vllm", "refused", lambda case: _changes_k(case) and not case.costs_known,
        "--dynamic needs what steps cost on the serving machine",
        "run `headstart doctor --output FILE` there, and give --costs FILE",
    ),
    Rule(
        "vllm", "refused", lambda case: case.settings.get("logits-processors"),
        "vLLM does not start with logits processors and speculation", "leave out --set logits-processors",
    ),
    Rule(
        "vllm", "warning", lambda case: case.kind == "eagle3" and _guessed(case) == "eagle-",
        "the drafter's path has 'eagle-' in it ({case.drafter_at})",
        "vLLM takes it for EAGLE-1 as soon as `method` is missing; leave it in the configuration",
    ),
    Rule(
        "vllm", "warning", _changes_k, "K changes with the number of requests",
        "experimental in vLLM: throughput can collapse where it does (vllm#49548); compare with a fixed K under your "
        "load",
    ),
    Rule(
        "vllm", "warning", lambda _: True, "vLLM refuses requests with min_p or logit_bias while it speculates",
        "send those to an engine without speculation",
    ),
    Rule(
        "vllm", "warning", lambda case: ", ".join(case.processors),
        "vLLM does not load the custom logits processors of its environment while it speculates ({found}), and says "
        "nothing",
        "requests that rely on them get another text: serve those without speculation",
    ),
    Rule(
        "vllm", "warning", lambda case: case.cpu,
        "vLLM on a CPU writes wrong text at temperatures above 0 while it speculates (vllm#55005)",
        "serve greedy requests only, or see the documentation for a repair; `headstart audit` tells",
    ),
    Rule(
        "vllm", "warning", lambda case: case.parallel, "vLLM drafts in parallel in its first model runner only",
        "keep to that runner (VLLM_USE_V2_MODEL_RUNNER=0); on processors it is untested",
    ),
    Rule(
        "vllm", "warning", lambda case: case.parallel and case.head.selector,
        "the head's selector is left out, because vLLM has none for EAGLE heads",
        "the acceptance that is promised here is that without it; headstart's own is higher where it helps",
    ),
    Rule(
        "vllm", "warning", lambda case: case.kind == "suffix",
        "vLLM's suffix drafts need the package arctic-inference beside it, and depend on what was served before",
        "install it in the engine's environment; take the measured acceptance as a rough guide",
    ),
    # -- SGLang: what it does not run, or reads wrong --
    Rule(
        "sglang", "refused",
        lambda case: {"medusa": "Medusa heads", "suffix": "drafts from a suffix tree"}.get(case.kind),
        "SGLang does not run {found}", "use --engine vllm, or another drafter",
    ),
    Rule(
        "sglang", "refused", lambda case: case.kind == "eagle3" and case.head.norm_before_residual,
        "the head was trained with norm_before_residual, and SGLang always goes on with the state before that norm",
        "use --engine vllm, or train a head without it",
    ),
    Rule(
        "sglang", "refused", lambda case: case.parallel,
        "SGLang does not run drafters that guess all tokens in one forward",
        "use --engine vllm; a draft model drafts token by token once its config names no pard_token",
    ),
    Rule(
        "sglang", "refused", lambda case: case.head.layers > 1,
        f"the head has {{case.head.layers}} layers, and SGLang {VERSIONS['sglang']} reads the first alone",
        "use --engine vllm, or a head of one layer",
    ),
    Rule("sglang", "refused", lambda case: case.dynamic, *_FIXED),
    Rule(
        "sglang", "warning", lambda case: case.cpu,
        "SGLang on a CPU commits the likeliest token at every temperature while it speculates",
        "serve greedy requests only; `headstart audit` tells",
    ),
    # -- llama.cpp: what it has no form for, or ends with an error at --
    Rule(
        "llama.cpp", "refused", lambda case: case.head.without_form,
        "llama.cpp's files of such heads have no place for something that this head has: {found}",
        "train a head of the plain form with `headstart train eagle3`, or run this one in headstart",
    ),
    Rule(
        "llama.cpp", "refused", _without_states,
        f"llama.cpp ({VERSIONS['llama.cpp']}) hands out no states of inner layers of {{found!r}} models, and ends with "
        "an error",
        "give llama-server a small model of the family as its draft, or --spec-type ngram-mod",
    ),
    Rule("llama.cpp", "refused", lambda case: case.dynamic, *_FIXED),
    Rule(
        "llama.cpp", "warning", lambda case: case.depth is not None and case.depth < case.head.guesses,
        "K={case.depth}, and the head was trained on blocks of {case.head.guesses} guesses",
        "llama.cpp feeds it a shorter block then, where it says something else than headstart measures: leave --k out",
    ),
    Rule(
        "llama.cpp", "warning", lambda case: case.head.windows,
        "layers of the head have windows, which llama.cpp counts from each row of a block",
        "headstart and vLLM count them from the block's begin, so that acceptance may differ a little in long texts",
    ),
    # -- either of them --
    Rule(
        "vllm", "refused", _without_states, f"vLLM {VERSIONS['vllm']} {_NO_EAGLE3}",
        "export a draft model, Medusa heads or 'ngram' for it",
    ),
    Rule(
        "sglang", "refused", _without_states, f"SGLang {VERSIONS['sglang']} {_NO_EAGLE3}",
        "export a draft model or 'ngram' for it",
    ),
    Rule(
        None, "refused", lambda case: not case.head.third, "the head is of EAGLE-1 or -2, which export does not write",
        "train an EAGLE-3 head",
    ),
    Rule(None, "refused", _misread_layers, "{found.message}", "{found.hint}"),
    Rule(
        None, "refused", _other_target, "the head was made for another target: {found}",
        "train a head for this target with `headstart train`, or export a draft model or 'ngram'",
    ),
    Rule(
        None, "refused", lambda case: case.kind == "medusa" and case.depth is not None and case.depth > case.head.count,
        "K={case.depth}, and the checkpoint has {case.head.count} Medusa heads",
        "use --k {case.head.count} or less: each head drafts one token",
    ),
    Rule(
        None, "refused", lambda case: case.kind == "draft_model" and case.differences,
        "the draft model has another tokenizer than the target: {found[0]}", _SAME_TOKENS,
    ),
    Rule(
        None, "refused",
        lambda case: not case.differences and case.draft_vocab is not None and case.draft_vocab != case.vocab_size,
        "the draft model's vocabulary has {case.draft_vocab} entries, the target's {case.vocab_size}, and engines "
        "compare token ids",
        _SAME_TOKENS,
    ),
    Rule(
        None, "refused", _relative, "{found}, which depends on where the server is started",
        "give an absolute path or a hub id (--target-at names the target's place on the serving machine)",
    ),
    Rule(
        None, "warning", lambda case: case.draft_context is not None and case.draft_context < case.context,
        "the draft model reads {case.draft_context} tokens, the target {case.context}",
        "texts are not drafted beyond that length",
    ),
)  # fmt: skip
