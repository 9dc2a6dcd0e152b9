"""What vLLM 0.32 refuses late, reads wrong or drops in silence.

Sources: config/speculative.py, v1/sample/logits_processor/__init__.py, sampling_params.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from headstart.fleet.export.preflight.facts import Case, Finding, Rule, refused, warning

_GUESSED = ("eagle-", "eagle3", "dflash", "dspark")
"""Parts of a drafter's path from which vLLM guesses its method; for draft models and Medusa over the one given."""


def parallel_heads_are_read_whole(case: Case) -> Iterator[Finding]:
    """vLLM's class for them takes three states of the head's own width as `mask_hidden`, and norms none of them."""
    head = case.head
    if case.kind != "eagle3" or head is None or not head.parallel:
        return
    if head.norms:
        yield refused(
            f"the head norms the states it reads ({', '.join(head.norms)}), which vLLM leaves out for parallel heads",
            "train the head without these settings",
        )
    if len(head.layer_ids) != 3 or head.width not in (0, head.hidden_size):
        yield refused(
            f"vLLM reads three layers of the target into parallel heads of its width; this one reads "
            f"{len(head.layer_ids)} into a width of {head.width or head.hidden_size}",
            "train a head of the usual shape",
        )


def method_is_not_guessed(case: Case) -> Iterator[Finding]:
    part = next((part for part in _GUESSED if part in (case.drafter_at or "").lower()), None)
    if part is None:
        return
    if case.kind in ("medusa", "draft_model"):
        yield refused(
            f"vLLM takes a drafter for another kind if its path has {part!r} in it, whatever method is given: "
            f"{case.drafter_at}",
            "write the export to a folder of another name",
        )
    elif case.kind == "eagle3" and part == "eagle-":
        yield warning(
            f"the drafter's path has 'eagle-' in it ({case.drafter_at})",
            "vLLM takes it for EAGLE-1 as soon as `method` is missing; leave it in the configuration",
        )


def draft_length_by_batch(case: Case) -> Iterator[Finding]:
    if not case.dynamic:
        return
    if case.kind not in ("eagle3", "draft_model"):
        yield refused("--dynamic is for EAGLE-3 heads and draft models in vLLM", "leave it out: K is then fixed")
    elif _whole(case.settings.get("data-parallel-size")) > 1:
        yield refused("vLLM switches --dynamic off with data parallelism", "leave one of the two out")
    elif case.parallel:
        yield refused("--dynamic is not for parallel drafters, whose forward is made for one K", "leave it out")
    elif not case.costs_known:
        yield refused(
            "--dynamic needs what steps cost on the serving machine", "run `headstart doctor --json FILE` there, and "
            "give --costs FILE",
        )  # fmt: skip
    else:
        yield warning(
            "K changes with the number of requests", "experimental in vLLM: throughput can collapse where it does "
            "(vllm#49548); compare with a fixed K under your load",
        )  # fmt: skip


def parameters_refused(_: Case) -> Iterator[Finding]:
    yield warning(
        "vLLM refuses requests with min_p or logit_bias while it speculates",
        "send those to an engine without speculation",
    )


def processors_dropped(case: Case) -> Iterator[Finding]:
    if case.processors:
        yield warning(
            f"vLLM does not load the custom logits processors of its environment while it speculates "
            f"({', '.join(case.processors)}), and says nothing",
            "requests that rely on them get another text: serve those without speculation",
        )
    if case.settings.get("logits-processors"):
        yield refused("vLLM does not start with logits processors and speculation", "leave out --set logits-processors")


def sampled_on_processors(case: Case) -> Iterator[Finding]:
    if case.cpu:
        yield warning(
            "vLLM on a CPU writes wrong text at temperatures above 0 while it speculates (vllm#55005)",
            "serve greedy requests only, or see the documentation for a repair; `headstart audit` tells",
        )


def parallel_drafters_run_in_part(case: Case) -> Iterator[Finding]:
    if not case.parallel:
        return
    yield warning(
        "vLLM drafts in parallel in its first model runner only",
        "keep to that runner (VLLM_USE_V2_MODEL_RUNNER=0); on processors it is untested",
    )
    if case.head is not None and case.head.selector:
        yield warning(
            "the head's selector is left out, because vLLM has none for EAGLE heads",
            "the acceptance that is promised here is that without it; headstart's own is higher where it helps",
        )


def suffix_needs_a_package(case: Case) -> Iterator[Finding]:
    if case.kind == "suffix":
        yield warning(
            "vLLM's suffix drafts need the package arctic-inference beside it, and depend on what was served before",
            "install it in the engine's environment; take the measured acceptance as a rough guide",
        )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


RULES: tuple[Rule, ...] = (
    parallel_heads_are_read_whole,
    method_is_not_guessed,
    draft_length_by_batch,
    parameters_refused,
    processors_dropped,
    sampled_on_processors,
    parallel_drafters_run_in_part,
    suffix_needs_a_package,
)
