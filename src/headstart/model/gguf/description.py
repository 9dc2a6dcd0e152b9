"""What a file's metadata states of its model, as the functions of single architectures read it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headstart.model.gguf.blocks import floats
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.metadata import Metadata

LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
"""What the frequencies of a rotation are divided by in texts beyond the length that was trained first, and up to it."""

FREQUENCIES = "rope_freqs.weight"
"""What each frequency of the rotation is divided by: how files of Llama 3.1 and later say their rope scaling."""

KV = "attention.head_count_kv"
LOCAL_BASE = "rope.freq_base_swa"
PATTERN = "attention.sliding_window_pattern"
INNER = "feed_forward_length"
EXPERTS_INNER = "expert_feed_forward_length"
SHARED_INNER = "expert_shared_feed_forward_length"
DENSE = "leading_dense_block_count"
SCALE_BY_PLACE = "attention.temperature_scale"
"""By how much queries grow with the logarithm of their position, in lengths that the rotation was trained for."""
LENGTH_OF_SCALE = "attention.temperature_length"
"""Such a length, where it is stated apart."""
DRAFTING = "nextn_predict_layers"
"""How many of the blocks, the last ones, are heads that draft."""


Part = Literal["attention", "recurrence", "mlp"]
"""What a layer is; the first two mostly with an MLP after it."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """The experts of a model."""

    count: int
    chosen: int
    """Of each token."""
    width: int
    """Of each expert."""
    dense: int
    """How many layers, the first ones, have an MLP instead."""


@dataclass(frozen=True, slots=True)
class Description:
    """A file, its metadata below the architecture's name, and what every config has under the same name."""

    file: GgufFile
    stated: Metadata
    common: dict[str, Any]
    """Sizes, tokens, dtype; neither norms nor rotation."""
    rotary: int
    """Numbers of a head that turn."""
    value_dim: int
    """Numbers of a head's value."""
    parts: tuple[Part, ...]
    """By layer."""
    mixture: Mixture | None = None

    @property
    def experts(self) -> Mixture:
        """Of an architecture whose models all have them.

        Raises:
            DamagedModel: this one has none.
        """
        if self.mixture is None:
            raise self.file.damaged("it does not say how many experts it has (expert_count)")
        return self.mixture

    @property
    def layers(self) -> int:
        return int(self.common["num_hidden_layers"])

    @property
    def dim(self) -> int:
        """Numbers of a head."""
        return int(self.common["head_dim"])

    def has(self, tensor: str) -> bool:
        """Whether the first layer with attention has this tensor."""
        return self.has_in("attention", tensor)

    def has_in(self, part: Part, tensor: str) -> bool:
        """Whether the first layer that is this has this tensor."""
        return part in self.parts and f"blk.{self.parts.index(part)}.{tensor}" in self.file.tensors

    def rms(self) -> dict[str, Any]:
        """`common`, the rotation, and the norms' epsilon as most configs call it."""
        eps = self.stated.positive("attention.layer_norm_rms_epsilon")
        return {**self.common, "rms_norm_eps": eps, "rope_parameters": self.rope()}

    def windowless(self) -> dict[str, Any]:
        """What `rms` gives, of an architecture that has no windows."""
        if (window := self.window()) is not None:
            raise self.file.not_run(f"attention.sliding_window is {window}, which does not say in which layers")
        return self.rms()

    def multipliers(self) -> dict[str, float]:
        """Granite's factors of scores, of the embedding, of what a layer adds, and of the logits."""
        return {
            "attention_multiplier": self.stated.number("attention.scale", 0.0) or self.dim**-0.5,
            "embedding_multiplier": self.stated.number("embedding_scale", 0.0) or 1.0,
            "residual_multiplier": self.stated.number("residual_scale", 0.0) or 1.0,
            "logits_scaling": self.stated.positive("logit_scale", 1.0),
        }

    def centred(self, name: str) -> dict[str, Any]:
        """The same for norms that take the mean off, whose epsilon the config calls otherwise."""
        eps = self.stated.positive("attention.layer_norm_epsilon")
        return {**self.common, name: eps, "rope_parameters": self.rope()}

    def window(self) -> int | None:
        """The sliding window; None without one."""
        return self.stated.whole("attention.sliding_window", 0) or None

    def local_base(self, default: float) -> float:
        """The base of the rotation in layers with a window."""
        return float(self.stated.positive(LOCAL_BASE, default))

    def one_base(self) -> None:
        """Raise `UnsupportedModel` if layers with a window turn by another base than others."""
        base = self.stated.positive("rope.freq_base", 10000.0)
        if self.local_base(base) != base:
            raise self.file.not_run(f"{LOCAL_BASE} is {self.local_base(base):g}, and rope.freq_base {base:g}")

    def kinds(self, period: int) -> list[str]:
        """The kind of each layer's attention: every period-th is full. A file may state the period, or each layer."""
        each = self.stated.get(PATTERN)
        if isinstance(each, np.ndarray):
            if len(each) != self.layers or each.dtype != bool:
                raise self.file.damaged(f"its sliding_window_pattern has {len(each)} entries for {self.layers} layers")
            return ["sliding_attention" if slides else "full_attention" for slides in each.tolist()]
        period = self.stated.whole(PATTERN, period)
        return ["sliding_attention" if not period or (i + 1) % period else "full_attention" for i in range(self.layers)]

    def rope(self) -> dict[str, Any]:
        """The rotation as transformers' configs state it. What `rope_freqs.weight` does to it is no part of a config:
        see `weights`."""
        part = {} if self.rotary == self.dim else {"partial_rotary_factor": part_of(self.rotary, self.dim)}
        return {**self._scaling(), "rope_theta": self.stated.positive("rope.freq_base", 10000.0), **part}

    def _scaling(self) -> dict[str, Any]:
        stated = self.stated
        kind = stated.text("rope.scaling.type", None)
        factor = stated.number("rope.scaling.factor", 0.0) or stated.number("rope.scale_linear", 0.0)
        if LONG_FACTORS in self.file.tensors or SHORT_FACTORS in self.file.tensors:
            return self._of_length(kind)
        if kind is None:
            kind = "linear" if factor else "none"
        if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
            return {"rope_type": "default"}
        if factor <= 0 or kind not in ("linear", "yarn"):
            raise self.file.not_run(
                f"rope.scaling.type is {kind!r} with the factor {factor:g}, which is not known here"
            )
        if kind == "linear":
            return {"rope_type": "linear", "factor": factor}
        if stated.number("rope.scaling.attn_factor", 1.0) != 1.0:
            raise self.file.not_run(f"rope.scaling.attn_factor is {stated.number('rope.scaling.attn_factor'):g}")
        more: dict[str, Any] = {}
        if "rope.scaling.yarn_attn_factor" in stated:
            more["attention_factor"] = stated.positive("rope.scaling.yarn_attn_factor")
        elif multiplier := stated.number("rope.scaling.yarn_log_multiplier", 0.0):
            # llama.cpp divides what it multiplies queries and keys by anyway by the same with this multiplier
            more |= {"mscale": 1.0, "mscale_all_dim": multiplier}
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": stated.count("rope.scaling.original_context_length"),
            "beta_fast": stated.number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": stated.number("rope.scaling.yarn_beta_slow", 1.0),
            **more,
        }

    def _of_length(self, kind: str | None) -> dict[str, Any]:
        """A rotation with factors for short and for long texts. Older files call it yarn, or nothing."""
        if kind not in (None, "none", "longrope", "yarn"):
            raise self.file.not_run(f"rope.scaling.type is {kind!r}, and the file has {LONG_FACTORS}")
        return {
            "rope_type": "longrope",
            "long_factor": self._factors(LONG_FACTORS),
            "short_factor": self._factors(SHORT_FACTORS),
            "attention_factor": self.stated.positive("rope.scaling.attn_factor", 1.0),
            "original_max_position_embeddings": self.stated.count("rope.scaling.original_context_length"),
        }

    def _factors(self, name: str) -> list[float]:
        tensor = self.file.tensors.get(name)
        if tensor is None or tensor.shape != (self.rotary // 2,):
            found = "missing" if tensor is None else f"{list(tensor.shape)}, and {[self.rotary // 2]} is needed"
            raise self.file.damaged(f"tensor {name!r} is {found}")
        return [float(value) for value in factors_of(self.file, name)]


def factors_of(file: GgufFile, name: str) -> NDArray[np.float32]:
    """The positive numbers of a tensor that the file holds.

    Raises:
        DamagedModel: some are not positive, or not finite.
    """
    values: NDArray[np.float32] = floats(file.tensors[name])[0]
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise file.damaged(f"{name} holds numbers that are not positive")
    return values


def by_layer(stated: Metadata, key: str, layers: int, *default: int) -> list[int]:
    """A whole number for each of so many layers, behind which a file may have some of heads that draft."""
    value = stated.get(key)
    more = stated.whole(DRAFTING, 0) if isinstance(value, np.ndarray) else 0
    return stated.wholes(key, layers + more, *default)[:layers]


def part_of(rotary: int, dim: int) -> float:
    """The share of a head that turns, such that the whole part of its product with `dim` is `rotary`."""
    part = rotary / dim
    return part if int(dim * part) == rotary else math.nextafter(part, 1.0)
