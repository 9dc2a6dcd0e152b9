"""A GGUF file as a checkpoint: the functions that `headstart.model.loading` needs of a model's source.

What reads the file is imported where it is needed, so that models of other kinds load without it.
"""

from __future__ import annotations

from typing import Any

import torch

from headstart.model.gguf.files import is_gguf, open_gguf, parts

__all__ = [
    "SUFFIX", "architecture", "blocks", "experts_bytes", "generation_config", "is_gguf", "load_config", "load_model",
    "load_packed", "load_tokenizer", "must_be_asked", "packed_bytes", "parts",
]  # fmt: skip

SUFFIX = ".gguf"

_SAMPLING = {"temp": "temperature", "top_p": "top_p", "min_p": "min_p"}


def load_config(source: str) -> Any:
    """The config, after all of the file's head was checked against it; raises before any weight is read."""
    from headstart.model.gguf import weights
    from headstart.model.gguf.config import make_config

    file = open_gguf(source)
    config = make_config(file)
    weights.check_tensors(file, config)
    return config


def architecture(source: str) -> str:
    """What the file says that it holds; "" where it says nothing, which loading will explain."""
    found: str = open_gguf(source).metadata.text("general.architecture", "")
    return found


def load_model(source: str, config: Any, dtype: torch.dtype) -> Any:
    """See `weights.load`."""
    from headstart.model.gguf import weights

    return weights.load(open_gguf(source), config, dtype)


def load_packed(source: str, config: Any, dtype: torch.dtype) -> Any:
    """See `packed.load`."""
    from headstart.model.gguf import packed

    return packed.load(open_gguf(source), config, dtype)


def must_be_asked(config: Any) -> str | None:  # noqa: ARG001
    """None: every file that can be read runs as it is, or as floats."""
    return None


def packed_bytes(source: str, config: Any, dtype: torch.dtype, *, read: bool = False) -> int:
    """See `packed.memory`."""
    from headstart.model.gguf import packed

    return packed.memory(open_gguf(source), config, dtype, read=read)


def experts_bytes(source: str, config: Any) -> int:
    """See `packed.experts_memory`."""
    from headstart.model.gguf import packed

    return packed.experts_memory(open_gguf(source), config)


def blocks(source: str, config: Any, dtype: torch.dtype, device: torch.device) -> tuple[str, ...]:
    """The types of the blocks that the model runs on here, that of the most weights first; none if it cannot run on
    them."""
    from headstart.model.gguf import packed

    file = open_gguf(source)
    return tuple(packed.types(file)) if packed.can_run(file, config, dtype, device) else ()


def load_tokenizer(source: str) -> Any:
    """See `tokenizer.load_tokenizer`."""
    from headstart.model.gguf import tokenizer

    return tokenizer.load_tokenizer(open_gguf(source))


def generation_config(source: str) -> dict[str, Any]:
    """How the model's makers would sample, under transformers' names; {} where the file does not say."""
    metadata = open_gguf(source).metadata
    keys = {f"general.sampling.{key}": name for key, name in _SAMPLING.items()}
    found: dict[str, Any] = {name: metadata.number(key) for key, name in keys.items() if key in metadata}
    return {"do_sample": True, **found} if found else {}
