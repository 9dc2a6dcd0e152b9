"""`load`: from names to an engine."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.engine.engine import Engine
from headstart.errors import InvalidOption
from headstart.loading import advice
from headstart.loading.checkpoint import Checkpoint, LoadPlan, check_quantize, check_sizes, find_device
from headstart.loading.choice import choose
from headstart.loading.drafters import Means, make
from headstart.loading.pacing import check_pacing, make_pacing
from headstart.model import loading
from headstart.model.memory import preflight
from headstart.options import check_number, reject_unknown
from headstart.types import Rule

TREES = ("auto", "none", "mixed", "top-k", "sampled")


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
    draft_tree: str = "auto",
    draft_quantize: str | None = "auto",
    suffix_store: SuffixStore | Literal["auto"] | None = "auto",
    trust_remote_code: bool = False,
    **unknown: Any,
) -> Engine:
    """Load a target and a drafter, and return the engine that runs them.

    Args:
        target: a model directory, a hub id, or "bundled".
        drafter: "auto" (what is recommended for the target or what `headstart doctor` found out here, else "suffix" and
            "ngram"; `describe()` says why), "none",
            "ngram", "suffix", "early-exit" (the target's own first layers), "lookahead", the directory or hub id of a
            causal LM or of Medusa or EAGLE heads, or a list of these: per step, the first that has something to say
            drafts, unless a later one should do better. With the bundled target also "medusa" and "eagle3".
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
        draft_tree: how draft models and EAGLE heads guess: "none" (chains), "top-k" (trees of the likeliest
            continuations), "sampled" (trees drawn without replacement, in the shape that measured acceptance calls
            for), "mixed" (the first for greedy requests, the second for others); "auto" is "mixed" for heads of
            targets that are not tiny, chains for everything else. Medusa heads always guess trees.
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
    if draft_tree not in TREES:
        raise InvalidOption(f"draft_tree={draft_tree!r} does not exist", hint=f"it is one of {', '.join(TREES)}")
    place = find_device(device)
    check_quantize("quantize", quantize, place)
    if suffix_store not in (None, "auto") and not isinstance(suffix_store, SuffixStore):
        raise InvalidOption(
            f"suffix_store={suffix_store!r} is not a SuffixStore",
            hint="SuffixStore.load(path) reads one from a file; 'auto' begins with an empty one, None has none",
        )
    if draft_quantize != "auto":
        check_quantize("draft_quantize", draft_quantize, place)
    plan = LoadPlan(dtype, place, max_batch_size, max_length, trust_remote_code)

    ours = Checkpoint(target, "target", plan)
    found = advice.read(ours.source, ours.config.to_dict(), ours.dtype, place, quantize) if drafter == "auto" else None
    choice = choose(target, drafter, found)
    if draft_tree == "auto":
        draft_tree = choice.tree
    if pacing == "fixed" and num_speculative_tokens is None and choice.drafters:
        num_speculative_tokens = choice.k
    drafts = {each.name: Checkpoint(each.name, "draft", plan) for each in choice.drafters if each.kind == "draft"}
    for draft in drafts.values():
        check_sizes(ours, draft)
    preflight([model.need for model in (ours, *drafts.values())], place)
    runner = ours.runner(quantize)
    given = {"budget": num_speculative_tokens, "tree": None if draft_tree == "auto" else draft_tree}
    means = Means(
        target=ours,
        runner=runner,
        drafts=drafts,
        slots=max_batch_size,
        quantize=draft_quantize,
        store=SuffixStore() if suffix_store == "auto" else suffix_store,
        options={name: value for name, value in given.items() if value is not None},
    )
    made = make(choice.drafters, means)
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
        reason=choice.reason,
    )
    facts = {
        "models": {name: model.config.to_dict() for name, model in {"": ours, **drafts}.items()},
        "drafters": [each.name for each in choice.drafters],
        "tree": draft_tree,
        "quantize": [quantize, draft_quantize],
        "decoder": runner.decoder,
        "headstart": version("headstart"),
    }
    engine.pacing = make_pacing(pacing, runner, engine.cache, made, num_speculative_tokens, facts)
    return engine
