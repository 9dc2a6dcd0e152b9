"""What the engine drafts with a head is what the training code says it drafts, on the same hidden states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.rule.drafted import drafted_distributions, whole
from headstart.train import Eagle3Training, train_eagle3
from headstart.train.head_layer import HeadShape
from headstart.train.hidden import TargetStates, choose_layers
from headstart.train.unrolled_head import EagleHead
from headstart.types import Step

K = 4
ROUNDING = 1e-5
"""Relative to logits of less than ten, and absolute of probabilities. Two computations in float32 differ by 1e-6 here;
where only one of them has embeddings that were rounded to bf16, by some 1e-4."""


class Reference:
    """The head as the training code has it, with the weights of the checkpoint."""

    def __init__(self, target: Path, folder: Path, options: Eagle3Training) -> None:
        self.target = AutoModelForCausalLM.from_pretrained(target).eval()
        config = self.target.config
        files = sorted(folder.glob("*.safetensors"))
        stored = {name.replace("layers.0.", "midlayer."): t for file in files for name, t in load_file(file).items()}
        offsets = stored.pop("d2t")
        stored.pop("t2d")
        self.ids = torch.arange(len(offsets)) + offsets
        shape = HeadShape.of(
            config, len(offsets), norm_before_residual=options.norm_before_residual, layers=options.layers,
            parallel=options.parallel > 0, selector_rank=options.selector_rank, selector_top_k=options.selector_top_k,
        )  # fmt: skip
        self.head = EagleHead(shape)
        # A head that learnt its mask is stored with a table of its own, rounded to bf16 as all its weights are
        self.table = stored.pop("embed_tokens.weight", self.target.get_input_embeddings().weight.detach()).float()
        if options.parallel:
            token = json.loads((folder / "config.json").read_text())["mask_token_id"]
            stored["mask_row"] = self.table[token]
        self.head.load_state_dict({name: t.float() for name, t in stored.items()})
        self.states = TargetStates(self.target, choose_layers(options.layer_ids, config.num_hidden_layers))

    @torch.no_grad()
    def distributions(self, text: list[int], drafted: list[int]) -> Tensor:
        """Logits [len(drafted), V] of each drafted token, given the text and those before it."""
        embedded = F.embedding(torch.tensor([*text[1:], *drafted]), self.table)[None]
        known, _ = self.states.read(torch.tensor([text[:-1]]))
        aux = F.pad(known, (0, 0, 0, len(drafted)))  # later rows, which nothing that is looked at can see
        passes = self.head.unroll(aux, embedded, len(drafted))
        states = self.head.norm(torch.stack([states[0, len(text) - 2] for states in passes]))
        logits = self.head.lm_head(states)
        if self.head.shape.selector_rank:
            before = torch.tensor([text[-1], *drafted[:-1]])
            logits = self.head.candidate_selector.distributions(logits, states, before)
        wide = torch.full((len(drafted), self.target.config.vocab_size), float("-inf"))
        return wide.index_copy_(1, self.ids, logits)


PARALLEL = {"parallel": K, "layers": 2, "learn_mask": True}


SELECTOR = {**PARALLEL, "selector_rank": 4, "selector_top_k": 7}


@pytest.mark.parametrize(
    ("form", "temperature", "more"),
    [
        ("hf", 0.0, {}),
        ("hf", 1.0, {}),
        ("speculators", 0.0, {}),
        ("speculators", 1.0, {}),
        ("speculators", 1.0, PARALLEL),
        ("hf", 0.0, SELECTOR),
        ("hf", 1.0, SELECTOR),
    ],
)
def test_drafts_are_those_of_the_training_code(
    target: Path, texts: Path, tmp_path: Path, form: str, temperature: float, more: dict[str, Any]
) -> None:
    options = Eagle3Training(
        target=target,
        output=tmp_path / "head",
        data=(texts,),
        steps=12,
        batch_size=4,
        sequence_length=32,
        draft_vocab_size=60,
        norm_before_residual=form == "speculators",
        validation=0.2,
        format=form,  # type: ignore[arg-type]
        dtype="float32",
        device="cpu",
        **more,
    )
    result = train_eagle3(options)
    reference = Reference(target, result.path, options)
    engine = hs.load(
        target, result.path, "cpu", "float32", num_speculative_tokens=K, pacing="fixed", draft_tree="none",
        rule="exact", draft_quantize=None, max_length=128,
    )  # fmt: skip
    steps: list[Step] = []
    engine.subscribe(steps.append)
    out = engine.generate("def f(x):", hs.Sampling(max_tokens=40, temperature=temperature, seed=3, ignore_eos=True))
    text = [*out.prompt_tokens, *out.tokens]
    compared = 0
    for step in steps:
        drafted = list(step.draft.tokens)
        if not drafted:
            continue
        logits = reference.distributions(text[: step.position], drafted)
        if temperature == 0:
            chosen = logits[torch.arange(len(drafted)), drafted]  # the likeliest, or as good as that
            torch.testing.assert_close(chosen, logits.amax(-1), atol=10 * ROUNDING, rtol=0)
        else:
            assert step.draft.q is not None
            wide = [
                torch.from_numpy(whole(distribution, logits.shape[-1]))
                for distribution in drafted_distributions(step.draft)
            ]
            torch.testing.assert_close(torch.stack(wide), logits.softmax(-1), atol=ROUNDING, rtol=0)
        compared += len(drafted)
    assert compared > 2 * K
