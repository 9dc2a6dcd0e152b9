"""Every rule of preflight: a case that it finds, and the neighbour that it lets pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headstart.base.errors import ExportRefused
from headstart.fleet.export.architectures import EAGLE3_TARGETS
from headstart.fleet.export.preflight import RULES, Case, Head, check, findings

HEAD = Head(384, 6144, (2, 5, 7))
PARALLEL = replace(HEAD, parallel=True, layers=2, width=384)
EAGLE = Case("vllm", "eagle3", ("LlamaForCausalLM",), 384, 6144, 8, "/models/target", "/out/drafter", 2048, HEAD)
MEDUSA = replace(EAGLE, kind="medusa", head=Head(384, 6144, count=3))
DRAFT = replace(EAGLE, kind="draft_model", head=Head(), draft_vocab=6144, draft_context=2048)
NGRAM = replace(EAGLE, kind="ngram", head=Head(), drafter_at=None)
SGLANG = replace(EAGLE, engine="sglang")
LLAMACPP = replace(EAGLE, engine="llama.cpp", architectures=("llama",))
BLOCKS = replace(LLAMACPP, kind="dflash", head=replace(HEAD, layer_ids=(1, 3), guesses=7))
ALWAYS = "min_p or logit_bias"


def head(**changes: Any) -> Case:
    return replace(EAGLE, head=replace(HEAD, **changes))


REFUSED = [
    (replace(EAGLE, architectures=("GPT2LMHeadModel",)), "no EAGLE-3 for GPT2LMHeadModel"),
    (replace(EAGLE, architectures=("Gemma3ForCausalLM",)), "no EAGLE-3 for Gemma3ForCausalLM"),
    (replace(SGLANG, architectures=("OPTForCausalLM",)), "SGLang 0.5.23 has no EAGLE-3"),
    (head(layer_ids=(5, 2, 7)), "would read"),
    (head(layer_ids=(2, 2, 7)), "would read"),
    (head(layer_ids=(2, 5, 8)), "final norm"),
    (head(hidden_size=512), "hidden_size is 512 there and 384 here"),
    (head(vocab_size=32000), "vocab_size is 32000 there and 6144 here"),
    (head(third=False), "EAGLE-1"),
    (replace(SGLANG, head=replace(HEAD, norm_before_residual=True)), "norm_before_residual"),
    (replace(SGLANG, head=replace(PARALLEL, layers=1)), "guess all tokens in one forward"),
    (replace(SGLANG, head=replace(HEAD, layers=2)), "2 layers"),
    (replace(EAGLE, head=replace(PARALLEL, norms=("fc_norm",))), "fc_norm"),
    (replace(EAGLE, head=replace(PARALLEL, layer_ids=(2, 5))), "three layers"),
    (replace(EAGLE, head=replace(PARALLEL, width=512)), "into a width of 512"),
    (replace(EAGLE, head=PARALLEL, dynamic=True, costs_known=True), "not for parallel drafters"),
    (replace(DRAFT, draft_parallel=True, dynamic=True, costs_known=True), "not for parallel drafters"),
    (replace(DRAFT, draft_parallel=True, engine="sglang"), "guess all tokens in one forward"),
    (replace(MEDUSA, engine="sglang"), "SGLang does not run Medusa"),
    (replace(NGRAM, kind="suffix", engine="sglang"), "SGLang does not run"),
    (replace(MEDUSA, depth=4), "has 3 Medusa heads"),
    (replace(MEDUSA, head=Head(512, 6144, count=3)), "another target"),
    (replace(DRAFT, draft_vocab=6145), "vocabulary has 6145 entries"),
    (replace(DRAFT, differences=("3 tokens have other ids",)), "another tokenizer"),
    (replace(EAGLE, target_at="./target"), "depends on where the server is started"),
    (replace(EAGLE, target_at="models/my/target"), "depends on where"),
    (replace(EAGLE, drafter_at="../drafter"), "the drafter would be served"),
    (replace(DRAFT, drafter_at="/data/eagle3-export/drafter"), "'eagle3'"),
    (replace(MEDUSA, drafter_at="/data/Eagle-medusa/drafter"), "'eagle-'"),
    (replace(DRAFT, drafter_at="/data/dflash/drafter"), "'dflash'"),
    (replace(MEDUSA, dynamic=True, costs_known=True), "--dynamic is for"),
    (replace(SGLANG, dynamic=True, costs_known=True), "--dynamic is for"),
    (replace(EAGLE, dynamic=True), "needs what steps cost"),
    (replace(EAGLE, dynamic=True, costs_known=True, settings={"data-parallel-size": 2}), "data parallelism"),
    (replace(LLAMACPP, head=replace(HEAD, without_form="2 layers")), "no place for something .*: 2 layers"),
    (replace(LLAMACPP, architectures=("qwen2",)), "no states of inner layers of 'qwen2'"),
    (replace(BLOCKS, architectures=("gemma3",)), "no states of inner layers of 'gemma3'"),
    (replace(BLOCKS, head=replace(BLOCKS.head, vocab_size=32000)), "vocab_size is 32000"),
    (replace(LLAMACPP, head=replace(HEAD, layer_ids=(2, 5, 8))), "final norm"),
    (replace(LLAMACPP, dynamic=True, costs_known=True), "--dynamic is for"),
    (replace(EAGLE, settings={"logits-processors": "my.Processor"}), "does not start with logits processors"),
]
PASSED = [
    EAGLE,
    SGLANG,
    MEDUSA,
    DRAFT,
    NGRAM,
    LLAMACPP,
    BLOCKS,
    replace(LLAMACPP, head=replace(HEAD, layer_ids=(5, 2, 7))),
    replace(NGRAM, engine="sglang"),
    replace(NGRAM, architectures=("GPT2LMHeadModel",)),
    replace(DRAFT, architectures=("GPT2LMHeadModel",)),
    replace(EAGLE, architectures=()),
    replace(EAGLE, head=PARALLEL),
    replace(DRAFT, draft_parallel=True),
    head(layers=2),
    head(norms=("fc_norm",)),
    head(norm_before_residual=True),
    head(layer_ids=(0, 5, 7)),
    replace(MEDUSA, depth=3),
    replace(EAGLE, drafter_at="/data/eagle3/drafter"),
    replace(NGRAM, drafter_at="/data/eagle3/drafter"),
    replace(EAGLE, target_at="meta-llama/Llama-3.1-8B"),
    replace(EAGLE, target_at="gpt2"),
]
WARNED = [
    (replace(EAGLE, head=PARALLEL), "first model runner only"),
    (replace(DRAFT, draft_parallel=True), "first model runner only"),
    (replace(EAGLE, head=replace(PARALLEL, selector=True)), "selector is left out"),
    (EAGLE, ALWAYS),
    (replace(EAGLE, processors=("bias",)), "does not load the custom logits processors of its environment"),
    (replace(EAGLE, cpu=True), "vllm#55005"),
    (replace(SGLANG, cpu=True), "SGLang on a CPU commits the likeliest token"),
    (replace(EAGLE, drafter_at="/data/eagle-x/drafter"), "'eagle-'"),
    (replace(EAGLE, dynamic=True, costs_known=True), "vllm#49548"),
    (replace(NGRAM, kind="suffix"), "arctic-inference"),
    (replace(BLOCKS, depth=4), "blocks of 7 guesses"),
    (replace(BLOCKS, head=replace(BLOCKS.head, windows=True)), "counts from each row"),
    (replace(DRAFT, draft_context=512), "reads 512 tokens, the target 2048"),
]


@pytest.mark.parametrize(("case", "words"), REFUSED)
def test_what_is_refused(case: Case, words: str) -> None:
    with pytest.raises(ExportRefused, match=words) as refusal:
        check(case)
    assert refusal.value.hint


@pytest.mark.parametrize("case", PASSED)
def test_what_passes(case: Case) -> None:
    assert not [finding for finding in findings(case) if finding.kind == "refused"]


@pytest.mark.parametrize(("case", "words"), WARNED)
def test_what_is_warned_of(case: Case, words: str) -> None:
    assert any(words in line for line in check(case))


@pytest.mark.parametrize("case", [SGLANG, replace(NGRAM, engine="sglang"), LLAMACPP])
def test_nothing_is_warned_of_without_a_reason(case: Case) -> None:
    assert check(case) == []


def test_every_rule_has_a_case() -> None:
    cases = [case for case, _ in (*REFUSED, *WARNED)]
    assert [rule for rule in RULES if not any(rule.of(case) for case in cases)] == []


def test_the_lists_of_architectures() -> None:
    vllm, sglang = EAGLE3_TARGETS["vllm"], EAGLE3_TARGETS["sglang"]
    assert {"LlamaForCausalLM", "Qwen3ForCausalLM", "GptOssForCausalLM", "MistralForCausalLM"} <= vllm & sglang
    assert not {"MixtralForCausalLM", "OPTForCausalLM", "GPT2LMHeadModel", "GPTNeoXForCausalLM"} & vllm
    assert "Gemma3ForCausalLM" in sglang - vllm
