"""Texts that the target writes itself: what the drafter will meet in use, which no corpus shows exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.files import replacing
from headstart.training import checkpoint
from headstart.training.options import Training
from headstart.training.sources import Document

BATCH = 32


def prompts(documents: Sequence[Document], tokenizer: Any, count: int, longest: int, seed: int) -> list[list[int]]:
    """`count` prompts in token ids: conversations through the chat template, texts cut at a random place."""
    generator = torch.Generator().manual_seed(seed)
    picked = torch.randint(len(documents), (count,), generator=generator).tolist()
    return [_prompt(documents[i], tokenizer, longest, generator) for i in picked]


def _prompt(document: Document, tokenizer: Any, longest: int, generator: torch.Generator) -> list[int]:
    if document.turns:
        return turn_ids(document, tokenizer)[-longest:]
    tokens = list(document.tokens) or tokenizer(document.text, verbose=False)["input_ids"]
    end = int(torch.randint(1, max(2, min(len(tokens), longest)), (), generator=generator))
    return tokens[:end]


def turn_ids(document: Document, tokenizer: Any) -> list[int]:
    """A conversation as the model would be asked it; without a chat template, its turns one below another."""
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": turn} for turn in document.turns[:1]]
        ids: list[int] = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        return ids
    plain: list[int] = tokenizer("\n\n".join(document.turns), verbose=False)["input_ids"]
    return plain


def write(
    target: Any, tokenizer: Any, documents: Sequence[Document], options: Training, folder: Path
) -> Iterator[list[list[int]]]:
    """Yield batches of texts (prompt and continuation, in token ids), reading back those a killed run had made.

    Each batch is one file, seeded by its number, so that a resumed run makes the rest as it would have been.
    """
    folder.mkdir(parents=True, exist_ok=True)
    longest = max(1, options.sequence_length // 2)
    asked = prompts(documents, tokenizer, options.generations, longest, options.seed)
    temperatures = options.generation_temperatures
    for number, start in enumerate(range(0, len(asked), BATCH)):
        file = folder / f"texts-{number:05d}.safetensors"
        if not file.exists():
            temperature = temperatures[number % len(temperatures)]
            texts = _continue(
                target, asked[start : start + BATCH], options.generation_tokens, temperature, options.seed + number
            )
            _store(file, texts)
        yield _restore(file)


@torch.no_grad()
def _continue(target: Any, asked: list[list[int]], tokens: int, temperature: float, seed: int) -> list[list[int]]:
    """Prompts with the target's continuations, at most `tokens` long each, cut after the end of text."""
    device = next(target.parameters()).device
    config = target.config.get_text_config()
    width = max(map(len, asked))
    ids = torch.zeros(len(asked), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(asked):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    end = config.eos_token_id
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        out = target.generate(
            ids.to(device), attention_mask=mask.to(device), max_new_tokens=tokens, pad_token_id=0, **sampling
        )
    ends = set(end) if isinstance(end, list) else {end}
    written = []
    for prompt, row in zip(asked, out[:, width:].tolist(), strict=True):
        stop = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        written.append(prompt + row[:stop])
    return written


def _store(file: Path, texts: list[list[int]]) -> None:
    flat = torch.tensor([token for text in texts for token in text], dtype=torch.int32)
    with checkpoint.writing(file, checkpoints=file.parent), replacing(file) as partial:
        save_file({"tokens": flat, "lengths": torch.tensor([len(text) for text in texts])}, partial)


def _restore(file: Path) -> list[list[int]]:
    stored: dict[str, Tensor] = load_file(file)
    return [part.tolist() for part in torch.split(stored["tokens"], stored["lengths"].tolist())]
