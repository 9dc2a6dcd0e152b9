"""What SGLang 0.5.23 does not run, or reads wrong.

Sources: models/llama_eagle3.py, speculative/eagle_utils.py, arg_groups/speculative_hook.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from headstart.fleet.export.architectures import VERSIONS
from headstart.fleet.export.preflight.facts import Case, Finding, Rule, refused, warning


def engine_has_the_method(case: Case) -> Iterator[Finding]:
    if case.kind in ("medusa", "suffix"):
        what = "Medusa heads" if case.kind == "medusa" else "drafts from a suffix tree"
        yield refused(f"SGLang does not run {what}", "use --engine vllm, or another drafter")


def residual_is_before_the_norm(case: Case) -> Iterator[Finding]:
    if case.kind == "eagle3" and case.head is not None and case.head.norm_before_residual:
        yield refused(
            "the head was trained with norm_before_residual, and SGLang always goes on with the state before that norm",
            "use --engine vllm, or train a head without it",
        )


def drafters_guess_one_token(case: Case) -> Iterator[Finding]:
    if case.parallel:
        yield refused(
            "SGLang does not run drafters that guess all tokens in one forward",
            "use --engine vllm; a draft model drafts token by token once its config names no pard_token",
        )


def heads_have_one_layer(case: Case) -> Iterator[Finding]:
    if case.head is not None and case.head.layers > 1:
        yield refused(
            f"the head has {case.head.layers} layers, and SGLang {VERSIONS['sglang']} reads the first alone",
            "use --engine vllm, or a head of one layer",
        )


def draft_length_is_fixed(case: Case) -> Iterator[Finding]:
    if case.dynamic:
        yield refused("--dynamic is for EAGLE-3 heads and draft models in vLLM", "leave it out: K is then fixed")


def draws_on_processors(case: Case) -> Iterator[Finding]:
    if case.cpu:
        yield warning(
            "SGLang on a CPU commits the likeliest token at every temperature while it speculates",
            "serve greedy requests only; `headstart audit` tells",
        )


RULES: tuple[Rule, ...] = (
    engine_has_the_method,
    residual_is_before_the_norm,
    drafters_guess_one_token,
    heads_have_one_layer,
    draft_length_is_fixed,
    draws_on_processors,
)
