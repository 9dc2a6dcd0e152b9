"""A tiny random target with a byte tokenizer, and a tiny text, shared by the tests of training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headstart.training import DraftTraining, Shape

END = "<|endoftext|>"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, and the end of text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={END: 0, **{c: i + 1 for i, c in enumerate(letters)}}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def tiny_llama(*, hidden: int = 64, layers: int = 2, seed: int = 0) -> LlamaForCausalLM:
    """A random Llama whose laws are far from flat, so that there is something to learn."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny target."""
    folder = tmp_path_factory.mktemp("target")
    tiny_llama().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a few short text files."""
    folder = tmp_path_factory.mktemp("texts")
    for i in range(12):
        lines = "".join(f"def f{j}(x):\n    return x + {i * j}\n\n" for j in range(6))
        (folder / f"{i}.py").write_text(lines)
    return folder


@pytest.fixture
def options(target: Path, texts: Path, tmp_path: Path) -> DraftTraining:
    """A run of a few seconds in float32."""
    return DraftTraining(
        target=target,
        output=tmp_path / "draft",
        data=(texts,),
        shape=Shape(hidden=32, layers=1, intermediate=64, heads=2, kv_heads=1),
        steps=40,
        batch_size=4,
        sequence_length=32,
        validation=0.2,
        validation_windows=8,
        dtype="float32",
        device="cpu",
    )
