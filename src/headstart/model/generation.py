"""What a model's makers say about its texts: which ids end one, and how they would sample."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.base.errors import ModelNotFound, UnsupportedModel
from headstart.base.lazy import transformers
from headstart.model.gguf import checkpoint as gguf
from headstart.model.reading import reading


def eos_token_ids(
    source: str, config: Any, tokenizer: Any, generation: Mapping[str, Any] | None = None
) -> frozenset[int]:
    """Every id that ends a text: the generation config's if it names any, else the model's and the tokenizer's.

    generation: what the generation config says; None reads it.
    """
    named = (generation_config(source) if generation is None else generation).get("eos_token_id")
    if named is None:
        named = config.get_text_config().eos_token_id
    if named is None and tokenizer is not None:
        named = tokenizer.eos_token_id
    ids = [named] if isinstance(named, int) else (named or [])
    if not isinstance(ids, (list, tuple)) or not all(isinstance(token, int) for token in ids):
        raise UnsupportedModel(
            f"{source!r}: eos_token_id is {named!r}", hint="it is a token id, or a list of them: see its config files"
        )
    return frozenset(ids)


def generation_config(source: str) -> dict[str, Any]:
    """What the model's generation config says; {} where it has none."""
    if gguf.is_gguf(source):
        return gguf.generation_config(source)
    folder = Path(source)
    if folder.is_dir() and not (folder / "generation_config.json").is_file():
        return {}
    try:
        with reading(source):
            found: dict[str, Any] = transformers.GenerationConfig.from_pretrained(source).to_diff_dict()
            return found
    except ModelNotFound:
        if folder.is_dir():
            raise
        return {}
