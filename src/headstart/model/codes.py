"""`Codes`: what the engine asks of a checkpoint whose weights are stored as codes instead of floats."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from headstart.model.gguf import checkpoint as gguf


class Codes(Protocol):
    """One kind of such checkpoints. A module implements it: `gguf.checkpoint`, `quantised.checkpoint`."""

    def must_be_asked(self, config: Any) -> str | None:
        """The name of a layout that runs only as floats, and is made into them only if the user says so."""
        ...

    def blocks(self, source: str, config: Any, dtype: torch.dtype, device: torch.device) -> tuple[str, ...]:
        """What the model runs on here, the codes of the most weights first; none if it cannot run on them."""
        ...

    def packed_bytes(self, source: str, config: Any, dtype: torch.dtype, *, read: bool = False) -> int:
        """Bytes of the weights as they lie in memory on their codes. read: only those that a forward of one row
        reads."""
        ...

    def experts_bytes(self, source: str, config: Any) -> int:
        """Of these, the bytes of experts that not every token reads."""
        ...

    def load_packed(self, source: str, config: Any, dtype: torch.dtype) -> Any:
        """The model on its codes, which must be able to run (see `blocks`)."""
        ...

    def load_model(self, source: str, config: Any, dtype: torch.dtype) -> Any:
        """The model on the CPU in floats: the numbers that its codes stand for, rounded to `dtype`."""
        ...


def codes_of(source: str, config: Any) -> Codes | None:
    """What a checkpoint's own codes are; None where it holds floats."""
    if gguf.is_gguf(source):
        return gguf
    if not is_quantised(config):
        return None
    from headstart.model.quantised import checkpoint  # 800 lines that few models need

    return checkpoint


def is_quantised(config: Any) -> bool:
    """Whether a config names a quantisation."""
    return getattr(config, "quantization_config", None) is not None
