"""What is refused before anything is measured, and what is warned of: mistakes that an engine would not report.

An engine that reads the wrong layers or drops a bias serves correct text, only with few drafts accepted, and nothing
in its log says so. So each such fault is a rule here: a function from a `Case` to findings. Whatever a rule needs to
know is in the case, so that a test can make it up. A rule about one engine stands in that engine's file, and looks at
cases of that engine alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from headstart.base.errors import ExportRefused, HeadstartError
from headstart.fleet.export.architectures import EAGLE3_TARGETS, VERSIONS
from headstart.fleet.export.preflight import sglang, vllm
from headstart.fleet.export.preflight.facts import Case, Finding, Head, Rule, refused, warning
from headstart.train.eagle_formats import check_layer_ids

__all__ = ["Case", "Finding", "Head", "check", "findings", "rules_of"]

_OF_ENGINE = {"vllm": vllm.RULES, "sglang": sglang.RULES}


def rules_of(case: Case) -> tuple[Rule, ...]:
    """The rules that look at this case: those of its engine, then those of any."""
    return (*_OF_ENGINE[case.engine], *_OF_ANY)


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
    """What the rules find, refusals first."""
    found = [finding for rule in rules_of(case) for finding in rule(case)]
    return iter(sorted(found, key=lambda finding: finding.kind != "refused"))


_TRAIN = "train a head for this target with `headstart train`, or export a draft model or 'ngram'"


def eagle3_needs_states(case: Case) -> Iterator[Finding]:
    known = EAGLE3_TARGETS[case.engine]
    if case.kind == "eagle3" and case.architectures and not known & set(case.architectures):
        name = {"vllm": "vLLM", "sglang": "SGLang"}[case.engine]
        yield refused(
            f"{name} {VERSIONS[case.engine]} has no EAGLE-3 for {case.architectures[0]}: that model does not hand out "
            "states of its inner layers there",
            "export a draft model, Medusa heads or 'ngram' for it" if case.engine == "vllm" else
            "export a draft model or 'ngram' for it",
        )  # fmt: skip


def only_eagle3(case: Case) -> Iterator[Finding]:
    if case.head is not None and not case.head.third:
        yield refused("the head is of EAGLE-1 or -2, which export does not write", "train an EAGLE-3 head")


def layer_ids_mean_the_same(case: Case) -> Iterator[Finding]:
    if case.kind == "eagle3" and case.head is not None and case.head.third:
        try:
            check_layer_ids(case.head.layer_ids, case.layers)
        except HeadstartError as error:
            yield refused(error.message, error.hint)


def head_fits_the_target(case: Case) -> Iterator[Finding]:
    if case.head is None:
        return
    for name, theirs, ours in (
        ("hidden_size", case.head.hidden_size, case.hidden_size),
        ("vocab_size", case.head.vocab_size, case.vocab_size),
    ):
        if theirs != ours:
            yield refused(f"the head was made for another target: {name} is {theirs} there and {ours} here", _TRAIN)


def heads_enough(case: Case) -> Iterator[Finding]:
    if case.kind == "medusa" and case.head is not None and case.depth is not None and case.depth > case.head.count:
        yield refused(
            f"K={case.depth}, and the checkpoint has {case.head.count} Medusa heads",
            f"use --k {case.head.count} or less: each head drafts one token",
        )


def same_tokens(case: Case) -> Iterator[Finding]:
    if case.kind != "draft_model":
        return
    hint = "use a draft of the target's own family, or train one (headstart train draft)"
    if case.differences:
        yield refused(f"the draft model has another tokenizer than the target: {case.differences[0]}", hint)
    elif case.draft_vocab is not None and case.draft_vocab != case.vocab_size:
        yield refused(
            f"the draft model's vocabulary has {case.draft_vocab} entries, the target's {case.vocab_size}, and engines "
            "compare token ids",
            hint,
        )


def paths_are_whole(case: Case) -> Iterator[Finding]:
    for name, path in (("target", case.target_at), ("drafter", case.drafter_at)):
        if path is not None and not path.startswith("/") and (path.startswith((".", "~")) or path.count("/") > 1):
            yield refused(
                f"the {name} would be served from {path!r}, which depends on where the server is started",
                "give an absolute path or a hub id (--target-at names the target's place on the serving machine)",
            )


def draft_context_is_long_enough(case: Case) -> Iterator[Finding]:
    if case.kind == "draft_model" and case.draft_context is not None and case.draft_context < case.context:
        yield warning(
            f"the draft model reads {case.draft_context} tokens, the target {case.context}",
            "texts are not drafted beyond that length",
        )


_OF_ANY: tuple[Rule, ...] = (
    eagle3_needs_states,
    only_eagle3,
    layer_ids_mean_the_same,
    head_fits_the_target,
    heads_enough,
    same_tokens,
    paths_are_whole,
    draft_context_is_long_enough,
)
