"""The targets of the exactness matrix: a tiny Llama, and a tiny model of each structure that architectures have.

Each has the matrix's vocabulary and its EOS. Windows and the lengths that rotations were trained for are those of
`families`: shorter than the matrix's texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers as tf
from transformers import AutoModelForCausalLM

from support import families, tiny
from support.matrix_distributions import EOS, VOCAB

CONTEXT, WIDTH, HEADS = 48, 16, 2


@dataclass(frozen=True)
class Architecture:
    """A column. what: of its structure is here and in no column before. model: makes it. noise: added to its matrices,
    it gives a draft whose guesses are right at times. sampled: whether distributions are looked at, too. native:
    whether it runs on headstart's own decoders."""

    name: str
    what: str
    model: Callable[[], Any]
    noise: float
    sampled: bool = False
    native: bool = True


def _llama() -> Any:
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=2,
        num_attention_heads=HEADS, num_key_value_heads=1, max_position_embeddings=CONTEXT,
        bos_token_id=None, eos_token_id=EOS, pad_token_id=None,
    )  # fmt: skip
    made = AutoModelForCausalLM.from_config(config)
    for parameter in made.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.35)
    return made


LLAMA = Architecture("llama", "what all other tables here are about", _llama, 0.12, sampled=True)
"""Of all tables of the matrix but that of architectures."""


def _random(config: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return families.random_model(families.with_tokens(config(), VOCAB, eos=EOS))


def _family(name: str, what: str, noise: float = 0.03, *, sampled: bool = False) -> Architecture:
    return Architecture(name, what, partial(_random, partial(families.config_of, name)), noise, sampled)


ARCHITECTURES = (
    _family("gemma2", "norms before and after, capped scores and logits, windows in turns", 0.1),
    _family("gemma3_text", "another rotation in layers with a window"),
    _family(
        "gemma4_text", "keys and values of earlier layers, an input for each layer, two sizes of heads", sampled=True
    ),
    _family("gemma4_text, keys as values", "keys that are the values"),
    _family("phi3", "longrope on a part of a head, joined matrices, a window in all layers", sampled=True),
    _family("cohere2", "attention and MLP in parallel, layers with a window alone turn", sampled=True),
    _family("smollm3", "layers without positions"),
    _family("olmo2", "norms after alone, queries and keys normed over all heads"),
    _family("exaone4", "norms by head before the rotation, windows in turns"),
    _family("granite", "factors of embeddings, residuals, scores and logits"),
    _family("apertus", "xIELU"),
    _family("ministral3", "queries that grow with their position"),
    _family("starcoder2", "layer norms with biases, an MLP without a gate, a window"),
    _family("stablelm, parallel", "a norm of its own for each head"),
    _family("gpt_neox", "one matrix by heads, two norms in parallel, a quarter turns"),
    _family("falcon, groups", "one matrix by groups; its modules do not run here"),
    _family("gpt2", "learned positions", 0.15),
    _family("qwen3_moe", "experts"),
    _family("gpt_oss", "sinks in attention; experts with biases, whose gates are bounded", sampled=True),
    _family("glm4_moe_lite", "latent attention; a bias of the choice of experts, and experts that all rows take"),
    Architecture(
        "persimmon",
        "transformers' modules",
        partial(_random, tiny.ARCHITECTURES["persimmon"]),
        0.05,
        sampled=True,
        native=False,
    ),
    _family(
        "kimi_linear",
        "a delta rule that decays by channel, beside latent attention without positions and experts",
        sampled=True,
    ),
)
