"""What is refused before anything is measured, and what is warned of: mistakes that an engine would not report.

An engine that reads the wrong layers or drops a bias serves correct text, only with few drafts accepted, and nothing
in its log says so. So each such fault is a rule here. A rule is a function from a `Case` to findings; whatever a rule
needs to know is in the case, so that a test can make it up.

Sources: vLLM 0.32 (config/speculative.py, v1/sample/logits_processor/__init__.py, sampling_params.py), SGLang 0.5.23
(models/llama_eagle3.py, speculative/eagle_utils.py, arg_groups/speculative_hook.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.errors import ExportRefused, HeadstartError
from headstart.scale.export.architectures import EAGLE3_TARGETS, VERSIONS
from headstart.scale.export.manifest import DrafterKind, EngineName
from headstart.training.eagle_formats import check_layer_ids

_GUESSED = ("eagle-", "eagle3", "dflash", "dspark")
"""Parts of a drafter's path from which vLLM guesses its method; for draft models and Medusa over the one given."""
_TRAIN = "train a head for this target with `headstart train`, or export a draft model or 'ngram'"


@dataclass(frozen=True, slots=True)
class Head:
    """The facts of a head's config and weights. Sizes are those it was made for.

    layer_ids: inputs, in the order of the config. count: of Medusa heads. third: EAGLE-3, not EAGLE-1 or -2. layers: of
    an EAGLE head's decoder. parallel: P-EAGLE, which guesses all tokens in one forward. width: of its own stream; 0 for
    that of the target. norms: settings that norm the states it reads. selector: whether it has one.
    """

    hidden_size: int
    vocab_size: int
    layer_ids: tuple[int, ...] = ()
    norm_before_residual: bool = False
    third: bool = True
    count: int = 0
    layers: int = 1
    parallel: bool = False
    width: int = 0
    norms: tuple[str, ...] = ()
    selector: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All that rules look at.

    architectures, hidden_size, vocab_size, layers, context: the target's. target_at, drafter_at: where the engine will
    find them. draft_vocab, draft_context, draft_parallel: a draft model's; parallel is one with a mask token, which
    guesses all tokens in one forward (PARD). differences: between the tokenizers of target and draft
    model. settings: other options of the engine. processors: entry points of its environment that load custom logits
    processors. cpu: whether it will run on processors.
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
    head: Head | None = None
    draft_vocab: int | None = None
    draft_context: int | None = None
    draft_parallel: bool = False
    differences: tuple[str, ...] = ()
    depth: int | None = None
    temperature: float = 0.0
    dynamic: bool = False
    costs_known: bool = False
    cpu: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    processors: tuple[str, ...] = ()

    @property
    def parallel(self) -> bool:
        """Whether the drafter guesses all tokens in one forward."""
        return self.draft_parallel or (self.head is not None and self.head.parallel)


@dataclass(frozen=True, slots=True)
class Finding:
    """kind: "refused", or "warning" of what will be served all the same."""

    kind: Literal["refused", "warning"]
    message: str
    hint: str


Rule = Callable[[Case], Iterator[Finding]]


def check(case: Case) -> list[str]:
    """Every warning, as one line.

    Raises:
        ExportRefused: the first finding that is no warning.
    """
    warnings = []
    for finding in findings(case):
        if finding.kind == "refused":
            raise ExportRefused(finding.message, hint=finding.hint)
        warnings.append(f"{finding.message}: {finding.hint}")
    return warnings


def findings(case: Case) -> Iterator[Finding]:
    """What all rules find, refusals first."""
    found = [finding for rule in RULES for finding in rule(case)]
    return iter(sorted(found, key=lambda finding: finding.kind != "refused"))


def _refused(message: str, hint: str) -> Finding:
    return Finding("refused", message, hint)


def _warning(message: str, hint: str) -> Finding:
    return Finding("warning", message, hint)


# -- what no engine runs ----------------------------------------------------------------------------------------------


def engine_has_the_method(case: Case) -> Iterator[Finding]:
    if case.engine == "sglang" and case.kind in ("medusa", "suffix"):
        what = "Medusa heads" if case.kind == "medusa" else "drafts from a suffix tree"
        yield _refused(f"SGLang does not run {what}", "use --engine vllm, or another drafter")


def eagle3_needs_states(case: Case) -> Iterator[Finding]:
    known = EAGLE3_TARGETS[case.engine]
    if case.kind == "eagle3" and case.architectures and not known & set(case.architectures):
        name = {"vllm": "vLLM", "sglang": "SGLang"}[case.engine]
        yield _refused(
            f"{name} {VERSIONS[case.engine]} has no EAGLE-3 for {case.architectures[0]}: that model does not hand out "
            "states of its inner layers there",
            "export a draft model, Medusa heads or 'ngram' for it" if case.engine == "vllm" else
            "export a draft model or 'ngram' for it",
        )  # fmt: skip


def only_eagle3(case: Case) -> Iterator[Finding]:
    if case.head is not None and not case.head.third:
        yield _refused("the head is of EAGLE-1 or -2, which export does not write", "train an EAGLE-3 head")


# -- what would be read wrong -----------------------------------------------------------------------------------------


def layer_ids_mean_the_same(case: Case) -> Iterator[Finding]:
    if case.kind == "eagle3" and case.head is not None and case.head.third:
        try:
            check_layer_ids(case.head.layer_ids, case.layers)
        except HeadstartError as error:
            yield _refused(error.message, error.hint)


def head_fits_the_target(case: Case) -> Iterator[Finding]:
    if case.head is None:
        return
    for name, theirs, ours in (
        ("hidden_size", case.head.hidden_size, case.hidden_size),
        ("vocab_size", case.head.vocab_size, case.vocab_size),
    ):
        if theirs != ours:
            yield _refused(f"the head was made for another target: {name} is {theirs} there and {ours} here", _TRAIN)


def sglang_goes_on_before_the_norm(case: Case) -> Iterator[Finding]:
    if case.engine == "sglang" and case.kind == "eagle3" and case.head is not None and case.head.norm_before_residual:
        yield _refused(
            "the head was trained with norm_before_residual, and SGLang always goes on with the state before that norm",
            "use --engine vllm, or train a head without it",
        )


def parallel_heads_are_read_whole(case: Case) -> Iterator[Finding]:
    """vLLM's class for them takes three states of the head's own width as `mask_hidden`, and norms none of them."""
    head = case.head
    if case.kind != "eagle3" or head is None or not head.parallel:
        return
    if case.engine == "vllm" and head.norms:
        yield _refused(
            f"the head norms the states it reads ({', '.join(head.norms)}), which vLLM leaves out for parallel heads",
            "train the head without these settings",
        )
    if len(head.layer_ids) != 3 or head.width not in (0, head.hidden_size):
        yield _refused(
            f"vLLM reads three layers of the target into parallel heads of its width; this one reads "
            f"{len(head.layer_ids)} into a width of {head.width or head.hidden_size}",
            "train a head of the usual shape",
        )


def sglang_has_one_layer(case: Case) -> Iterator[Finding]:
    if case.engine == "sglang" and case.head is not None and case.head.layers > 1:
        yield _refused(
            f"the head has {case.head.layers} layers, and SGLang {VERSIONS['sglang']} reads the first alone",
            "use --engine vllm, or a head of one layer",
        )


def heads_enough(case: Case) -> Iterator[Finding]:
    if case.kind == "medusa" and case.head is not None and case.depth is not None and case.depth > case.head.count:
        yield _refused(
            f"K={case.depth}, and the checkpoint has {case.head.count} Medusa heads",
            f"use --k {case.head.count} or less: each head drafts one token",
        )


def same_tokens(case: Case) -> Iterator[Finding]:
    if case.kind != "draft_model":
        return
    hint = "use a draft of the target's own family, or train one (headstart train draft)"
    if case.differences:
        yield _refused(f"the draft model has another tokenizer than the target: {case.differences[0]}", hint)
    elif case.draft_vocab is not None and case.draft_vocab != case.vocab_size:
        yield _refused(
            f"the draft model's vocabulary has {case.draft_vocab} entries, the target's {case.vocab_size}, and engines "
            "compare token ids",
            hint,
        )


def paths_are_whole(case: Case) -> Iterator[Finding]:
    for name, path in (("target", case.target_at), ("drafter", case.drafter_at)):
        if path is not None and not path.startswith("/") and (path.startswith((".", "~")) or path.count("/") > 1):
            yield _refused(
                f"the {name} would be served from {path!r}, which depends on where the server is started",
                "give an absolute path or a hub id (--target-at names the target's place on the serving machine)",
            )


def method_is_not_guessed(case: Case) -> Iterator[Finding]:
    if case.engine != "vllm" or case.drafter_at is None:
        return
    part = next((part for part in _GUESSED if part in case.drafter_at.lower()), None)
    if part is None:
        return
    if case.kind in ("medusa", "draft_model"):
        yield _refused(
            f"vLLM takes a drafter for another kind if its path has {part!r} in it, whatever method is given: "
            f"{case.drafter_at}",
            "write the export to a folder of another name",
        )
    elif case.kind == "eagle3" and part == "eagle-":
        yield _warning(
            f"the drafter's path has 'eagle-' in it ({case.drafter_at})",
            "vLLM takes it for EAGLE-1 as soon as `method` is missing; leave it in the configuration",
        )


def draft_length_by_batch(case: Case) -> Iterator[Finding]:
    if not case.dynamic:
        return
    if case.engine != "vllm" or case.kind not in ("eagle3", "draft_model"):
        yield _refused("--dynamic is for EAGLE-3 heads and draft models in vLLM", "leave it out: K is then fixed")
    elif _number(case.settings.get("data-parallel-size")) > 1:
        yield _refused("vLLM switches --dynamic off with data parallelism", "leave one of the two out")
    elif not case.costs_known:
        yield _refused(
            "--dynamic needs what steps cost on the serving machine", "run `headstart doctor --json FILE` there, and "
            "give --costs FILE",
        )  # fmt: skip
    else:
        yield _warning(
            "K changes with the number of requests", "experimental in vLLM: throughput can collapse where it does "
            "(vllm#49548); compare with a fixed K under your load",
        )  # fmt: skip


# -- what is served, and may surprise ---------------------------------------------------------------------------------


def parameters_refused(case: Case) -> Iterator[Finding]:
    if case.engine == "vllm":
        yield _warning(
            "vLLM refuses requests with min_p or logit_bias while it speculates",
            "send those to an engine without speculation",
        )


def processors_dropped(case: Case) -> Iterator[Finding]:
    if case.engine == "vllm" and case.processors:
        yield _warning(
            f"vLLM does not load the custom logits processors of its environment while it speculates "
            f"({', '.join(case.processors)}), and says nothing",
            "requests that rely on them get another text: serve those without speculation",
        )
    if case.engine == "vllm" and case.settings.get("logits-processors"):
        yield _refused(
            "vLLM does not start with logits processors and speculation", "leave out --set logits-processors"
        )


def sampled_on_processors(case: Case) -> Iterator[Finding]:
    if not case.cpu:
        return
    if case.engine == "vllm":
        yield _warning(
            "vLLM on a CPU writes wrong text at temperatures above 0 while it speculates (vllm#55005)",
            "serve greedy requests only, or see the documentation for a repair; `headstart audit` tells",
        )
    else:
        yield _warning(
            "SGLang on a CPU commits the likeliest token at every temperature while it speculates",
            "serve greedy requests only; `headstart audit` tells",
        )


def guesses_in_one_forward(case: Case) -> Iterator[Finding]:
    """P-EAGLE heads, and draft models with a mask token."""
    if case.parallel and case.engine == "sglang":
        yield _refused(
            "SGLang does not run drafters that guess all tokens in one forward",
            "use --engine vllm; a draft model drafts token by token once its config names no pard_token",
        )
    if case.parallel and case.dynamic:
        yield _refused("--dynamic is not for parallel drafters, whose forward is made for one K", "leave it out")


def parallel_drafters_run_in_part(case: Case) -> Iterator[Finding]:
    head = case.head
    if case.engine != "vllm" or not case.parallel:
        return
    yield _warning(
        "vLLM drafts in parallel in its first model runner only",
        "keep to that runner (VLLM_USE_V2_MODEL_RUNNER=0); on processors it is untested",
    )
    if head is not None and head.selector:
        yield _warning(
            "the head's selector is left out, because vLLM has none for EAGLE heads",
            "the acceptance that is promised here is that without it; headstart's own is higher where it helps",
        )


def suffix_needs_a_package(case: Case) -> Iterator[Finding]:
    if case.kind == "suffix":
        yield _warning(
            "vLLM's suffix drafts need the package arctic-inference beside it, and depend on what was served before",
            "install it in the engine's environment; take the measured acceptance as a rough guide",
        )


def draft_context_is_long_enough(case: Case) -> Iterator[Finding]:
    if case.kind == "draft_model" and case.draft_context is not None and case.draft_context < case.context:
        yield _warning(
            f"the draft model reads {case.draft_context} tokens, the target {case.context}",
            "texts are not drafted beyond that length",
        )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


RULES: Iterable[Rule] = (
    engine_has_the_method,
    eagle3_needs_states,
    only_eagle3,
    layer_ids_mean_the_same,
    head_fits_the_target,
    sglang_goes_on_before_the_norm,
    parallel_heads_are_read_whole,
    guesses_in_one_forward,
    sglang_has_one_layer,
    heads_enough,
    same_tokens,
    paths_are_whole,
    method_is_not_guessed,
    draft_length_by_batch,
    parameters_refused,
    processors_dropped,
    sampled_on_processors,
    parallel_drafters_run_in_part,
    suffix_needs_a_package,
    draft_context_is_long_enough,
)
