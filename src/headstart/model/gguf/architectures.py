"""What each architecture of GGUF files is: a config of transformers, and what its files do otherwise than others.

Keys and the names of tensors from gguf-py (gguf/constants.py of ggml-org/llama.cpp); what files do not state from
src/llama-model.cpp and src/models/ there, and how tensors are changed from its convert_hf_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from headstart.model.gguf import gemma
from headstart.model.gguf.description import Description


@dataclass(frozen=True)
class Architecture:
    """How the files of an architecture are read."""

    config: Callable[[Description], Any]
    """From what a file states to a config of transformers."""
    keys: frozenset[str] = frozenset()
    """The keys below its name that others do not have."""
    neighbours: bool = False
    """Whether the rows of queries and keys that turn together lie beside each other, where transformers has them half a
    head apart."""
    part: bool = False
    """Whether a part of each head may turn."""
    frequencies: bool = False
    """Whether its files may hold `rope_freqs.weight`, what each frequency of the rotation is divided by."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What it calls tensors that others call otherwise: see `names`."""


_PATTERN = "attention.sliding_window_pattern"


def _windowless(described: Description) -> dict[str, Any]:
    """What `Description.rms` gives, of an architecture that has no windows."""
    if (window := described.window()) is not None:
        raise described.file.not_run(f"attention.sliding_window is {window}, which does not say in which layers")
    return described.rms()


def llama(described: Description) -> Any:
    """Also Mistral, whose files are of architecture llama and state a window."""
    window = described.window()
    if window is not None:
        return MistralConfig(**described.rms(), sliding_window=window)
    return LlamaConfig(
        **described.rms(),
        attention_bias=described.has("attn_q.bias"),
        mlp_bias=described.has("ffn_gate.bias"),
    )


def qwen2(described: Description) -> Any:
    return Qwen2Config(**_windowless(described), use_sliding_window=False)


def qwen3(described: Description) -> Any:
    bias = described.has("attn_q.bias")
    return Qwen3Config(**_windowless(described), use_sliding_window=False, attention_bias=bias)


ARCHITECTURES = {
    "gemma": Architecture(gemma.gemma),
    "gemma2": Architecture(gemma.gemma2, frozenset({"attn_logit_softcapping", "final_logit_softcapping", _PATTERN})),
    "gemma3": Architecture(gemma.gemma3, frozenset({"final_logit_softcapping", "rope.freq_base_swa", _PATTERN})),
    "llama": Architecture(llama, neighbours=True, frequencies=True),
    "qwen2": Architecture(qwen2, frequencies=True),
    "qwen3": Architecture(qwen3, frequencies=True),
}
"""By `general.architecture`. Mistral models are of architecture llama."""
