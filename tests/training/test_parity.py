"""What the engine drafts with a head is what the training code says it drafts, on the same hidden states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.training import Eagle3Training, train_eagle3
from headstart.training.eagle_head import EagleHead
from headstart.training.head_shape import HeadShape
from headstart.training.hidden import TargetStates, choose_layers
from headstart.types import Step

K = 4


class Reference:
    """The head as the training code has it, with the weights of the checkpoint."""

    def __init__(self, target: Path, folder: Path, options: Eagle3Training, prefix: str) -> None:
        self.target = AutoModelForCausalLM.from_pretrained(target).eval()
        config = self.target.config
        stored = {name.replace(prefix, "midlayer."): t for name, t in load_file(folder / "model.safetensors").items()}
        offsets = stored.pop("d2t")
        stored.pop("t2d")
        self.ids = torch.arange(len(offsets)) + offsets
        shape = HeadShape.of(config, len(offsets), norm_before_residual=options.norm_before_residual)
        self.head = EagleHead(shape)
        self.head.load_state_dict({name: t.float() for name, t in stored.items()})
        self.states = TargetStates(self.target, choose_layers(options.layer_ids, config.num_hidden_layers))

    @torch.no_grad()
    def laws(self, text: list[int], drafted: list[int]) -> Tensor:
        """Logits [len(drafted), V] of each drafted token, given the text and those before it."""
        embedded = F.embedding(torch.tensor([*text[1:], *drafted]), self.target.get_input_embeddings().weight)[None]
        known, _ = self.states.read(torch.tensor([text[:-1]]))
        aux = F.pad(known, (0, 0, 0, len(drafted)))  # later rows, which nothing that is looked at can see
        passes = self.head.unroll(aux, embedded, len(drafted))
        logits = self.head.logits(torch.stack([states[0, len(text) - 2] for states in passes]))
        wide = torch.full((len(drafted), self.target.config.vocab_size), float("-inf"))
        return wide.index_copy_(1, self.ids, logits)


@pytest.mark.parametrize("form", ["hf", "speculators"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_are_those_of_the_training_code(
    target: Path, texts: Path, tmp_path: Path, form: str, temperature: float
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
    )
    result = train_eagle3(options)
    reference = Reference(target, result.path, options, "midlayer." if form == "hf" else "layers.0.")
    engine = hs.load(
        target, result.path, "cpu", "float32", num_speculative_tokens=K, pacing="fixed", draft_tree="none",
        draft_quantize=None, max_length=128,
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
        logits = reference.laws(text[: step.position], drafted)
        if temperature == 0:
            assert drafted == logits.argmax(-1).tolist()
        else:
            assert step.draft.q is not None
            torch.testing.assert_close(step.draft.q, logits.softmax(-1), atol=1e-4, rtol=1e-3)
        compared += len(drafted)
    assert compared > 2 * K
