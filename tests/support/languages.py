"""Tokenizers made in the test, of the kinds that models come with, and models that speak them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch
import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

TEXT = (
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on. It isn't the first time: 1234 foxes came, "
    "and 12 of them stayed. Über den Fluß, naïve café. 日本語の文章 and 中文字符 side by side 😀😀🎉.\n"
    "def add(first, second):\n    return first + second\n\n\n"
    "class Fox:\n    def jump(self, over):\n        return over\n"
)


def byte_level(
    size: int = 340, *, marks: tuple[str, ...] = ("<eos>",), added: tuple[str, ...] = (), opening: bool = False
) -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2, Llama 3 and Qwen have it; the first mark ends a text (and, if `opening`, begins one)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size - len(marks), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    if opening:
        _open(tokenizer, marks[0])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=marks[0], bos_token=marks[0])


def pieces(size: int = 420, *, unigram: bool = False) -> PreTrainedTokenizerFast:
    """As SentencePiece makes them for Llama 2 and Mistral: spaces as U+2581, one before the text, bytes as <0xNN>."""
    marks = ["<unk>", "<s>", "</s>"]
    raw = [f"<0x{byte:02X}>" for byte in range(256)]
    learner = Tokenizer(models.Unigram() if unigram else models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    sizes = {"vocab_size": size - len(marks) - len(raw), "show_progress": False}
    plain = "".join(char for char in TEXT if char.isascii())
    if unigram:
        learner.train_from_iterator([plain], trainers.UnigramTrainer(unk_token="<unk>", **sizes))
        scores = dict(json.loads(learner.to_str())["model"]["vocab"])
        vocabulary = [*((mark, 0.0) for mark in marks), *((byte, 0.0) for byte in raw)]
        vocabulary += [(piece, score) for piece, score in scores.items() if piece not in marks]
        tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        learner.train_from_iterator([plain], trainers.BpeTrainer(**sizes))
        learned = json.loads(learner.to_str())["model"]
        words = [*marks, *raw, *sorted(learned["vocab"], key=learned["vocab"].__getitem__)]
        tokenizer = Tokenizer(
            models.BPE(
                {word: i for i, word in enumerate(words)},
                [tuple(merge) for merge in learned["merges"]],
                unk_token="<unk>",
                fuse_unk=True,
                byte_fallback=True,
            )
        )
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    _open(tokenizer, "<s>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def renumbered(tokenizer: PreTrainedTokenizerFast, *, seed: int = 0) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """The same tokenizer with other ids for the words it was trained to, and the order: token i became order[i]."""
    made = json.loads(tokenizer.backend_tokenizer.to_str())
    trained = made["model"]["vocab"]
    order = torch.randperm(len(trained), generator=torch.Generator().manual_seed(seed)).tolist()
    order += range(len(trained), len(tokenizer))
    made["model"]["vocab"] = {word: order[i] for word, i in trained.items()}
    for added in made["added_tokens"]:
        added["id"] = order[added["id"]]
    made["added_tokens"].sort(key=lambda added: added["id"])
    for mark in (made["post_processor"] or {}).get("special_tokens", {}).values():
        mark["ids"] = [order[i] for i in mark["ids"]]
    marks = {f"{role}_token": getattr(tokenizer, f"{role}_token") for role in ("bos", "eos", "unk")}
    inner = Tokenizer.from_str(json.dumps(made))
    return PreTrainedTokenizerFast(tokenizer_object=inner, **{k: v for k, v in marks.items() if v is not None}), order


def random_lm(vocab: int, *, seed: int = 0, noise: float = 0.0, context: int = 128, eos: int | None = None) -> Any:
    """A Llama with weights N(0, 0.2^2), perturbed by `noise`."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(_config(vocab, context, eos)).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for scale in (0.2, noise):
            for parameter in model.parameters():
                if parameter.dim() > 1 and scale:
                    fresh = scale * torch.randn(parameter.shape, generator=generator)
                    parameter.copy_(fresh if scale == 0.2 else parameter + fresh)
    return model


def with_ids(model: Any, order: list[int]) -> Any:
    """The same model for a vocabulary in another order: token i becomes order[i]."""
    with torch.no_grad():
        for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
            moved = torch.empty_like(layer.weight)
            moved[order] = layer.weight
            layer.weight.copy_(moved)
    return model


@cache
def taught(kind: str) -> tuple[PreTrainedTokenizerFast, Any]:
    """A tokenizer, and a model that has learnt `TEXT` by heart in its tokens."""
    tokenizer = {"byte level": byte_level, "pieces": pieces}[kind]()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(_config(len(tokenizer), 256, None))
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = model(ids, labels=ids).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return tokenizer, model.eval()


def _config(vocab: int, context: int, eos: int | None) -> Any:
    return tf.LlamaConfig(
        vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=context, bos_token_id=None, eos_token_id=eos,
    )  # fmt: skip


def _open(tokenizer: Tokenizer, mark: str) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{mark} $A", special_tokens=[(mark, tokenizer.token_to_id(mark))]
    )
