"""Medusa heads: more output layers on the target's last hidden state, each for a token further ahead.

The state h [d] after the final norm gives, by the target's own head, the pending token x0. Head k (from 0) reads the
same h and scores the token k + 1 places after x0: W_k r(h) with r(x) = x + silu(A x + b), once or several times over.
No head sees what another guessed, so all of them are one small forward for all requests.

On a CPU the M products with [V, d] are the whole cost, and they are limited by reading the weights: row kernels or
packed layers take them, in int8 where they can. Rounding a drafter costs acceptance at most. Elsewhere the heads are
stacked and multiplied at once; that is also the plain twin.

Sources: Medusa (arXiv:2401.10774). Tensors `{i}.{j}.linear.weight`, `{i}.{j}.linear.bias` for block j of head i and
`{i}.{blocks}.weight` for its output, perhaps after `medusa_head.`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.model import native
from headstart.model.decoders.linears import Int8Linear, PackedLinear, PreparedLinear, can_pack, can_quantize, linear_of
from headstart.model.heads.stored_tensors import SCALE, read_tensors
from headstart.model.memory import bytes_of
from headstart.model.native.weights import NativeWeights, kind_of
from headstart.model.threads import threads

_NAME = re.compile(r"(?:medusa_heads?\.)?(\d+)\.(\d+)\.(linear\.weight|linear\.bias|weight)")
_CONVERT = "safetensors.torch.save_file(torch.load(path, weights_only=True), new)"


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """One head. blocks: weight [d, d] and bias [d] of each residual block; output: [V, d]."""

    blocks: tuple[tuple[Tensor, Tensor], ...]
    output: Tensor


def read_heads(folder: Path) -> list[HeadWeights]:
    """The heads of a checkpoint, counted by its tensors: configs have been seen to name fewer than there are.

    Raises:
        ModelNotFound, PickleCheckpoint: there are no safetensors.
        UnsupportedModel: they hold no heads, or incomplete ones.
    """
    found: dict[tuple[int, int, str], Tensor] = {}
    for name, tensor in read_tensors(folder, _known_as, _CONVERT).items():
        head, block, kind = _NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        found[int(head), int(block), kind] = tensor
    numbers = sorted({head for head, _, _ in found})
    if not numbers:
        raise UnsupportedModel(
            f"{folder} holds no Medusa heads", hint="its safetensors should have tensors such as 0.0.linear.weight"
        )
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(numbers[-1])) - set(numbers))
        raise UnsupportedModel(
            f"{folder} has the Medusa heads {numbers}, but not {missing}",
            hint="heads are numbered from 0 without gaps: a part of the checkpoint is missing",
        )
    return [_head(found, number, folder) for number in numbers]


def _known_as(name: str) -> str | None:
    """The same name, of a head's tensor or of the scales of one on int8 (`stored_tensors.rounded`)."""
    return name if _NAME.fullmatch(name.removesuffix(SCALE)) else None


def _head(found: dict[tuple[int, int, str], Tensor], number: int, folder: Path) -> HeadWeights:
    blocks = 1 + max((j for head, j, kind in found if head == number and kind != "weight"), default=-1)
    wanted = [(number, j, kind) for j in range(blocks) for kind in ("linear.weight", "linear.bias")]
    wanted.append((number, blocks, "weight"))
    lacking = [".".join(map(str, name)) for name in wanted if name not in found]
    if lacking:
        raise UnsupportedModel(
            f"{folder}: Medusa head {number} has no tensor {lacking[0]}",
            hint="a head is residual blocks 0, 1, ... and then one output without bias",
        )
    output = found[wanted[-1]]
    width = output.shape[-1]
    for name in wanted:
        shape = {"linear.weight": (width, width), "linear.bias": (width,), "weight": (len(output), width)}[name[2]]
        if tuple(found[name].shape) != shape:
            raise UnsupportedModel(
                f"{folder}: {'.'.join(map(str, name))} has the shape {tuple(found[name].shape)}, not {shape}",
                hint="all layers of a head have the target's hidden size",
            )
    pairs = ((found[number, j, "linear.weight"], found[number, j, "linear.bias"]) for j in range(blocks))
    return HeadWeights(tuple(pairs), output)


class MedusaHeads:
    """All heads, ready to run. They must be of one shape.

    quantize: None, "int8", or "auto" for int8 where the row kernels run it. `kind` says which layers were taken.
    """

    def __init__(
        self,
        heads: Sequence[HeadWeights],
        *,
        dtype: torch.dtype,
        device: torch.device,
        quantize: str | None = "auto",
    ) -> None:
        if len({(head.output.shape, len(head.blocks)) for head in heads}) != 1:
            raise UnsupportedModel(
                "the Medusa heads differ in shape", hint="all heads have one vocabulary and one number of blocks"
            )
        self.count = len(heads)
        self.vocab_size, self.width = heads[0].output.shape
        self.dtype, self.device = dtype, device
        self.kind, make = _choose(self.width, dtype, device, quantize)
        blocks = zip(*(head.blocks for head in heads), strict=True)
        self._blocks = [make(self._linears(*zip(*block, strict=True))) for block in blocks]
        self._output = make(self._linears([head.output for head in heads]))

    def _linears(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None] | None = None) -> list[nn.Linear]:
        wanted = self.device, self.dtype
        pairs = zip(weights, biases or [None] * len(weights), strict=True)
        return [linear_of(weight.to(*wanted), None if bias is None else bias.to(*wanted)) for weight, bias in pairs]

    def weights(self) -> Iterable[Tensor]:
        """All tensors the heads hold."""
        return (tensor for layer in (*self._blocks, self._output) for tensor in layer.weights())

    @property
    def weights_in_words(self) -> str:
        """What the weights are, for people."""
        return "int8" if self.kind.startswith("int8") else str(self.dtype).removeprefix("torch.")

    def memory(self) -> int:
        """Bytes of the heads' weights, as they lie in memory."""
        return bytes_of(self.weights())

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """[M, N, V]: the logits of each of the M heads for each of the states [N, d]."""
        x = states.to(self.device, self.dtype).expand(self.count, *states.shape)
        for block in self._blocks:
            x = x + F.silu(block(x))
        return self._output(x)

    def likeliest(self, states: Tensor, count: int) -> list[list[list[int]]]:
        """For each of the states [N, d] and each head its `count` likeliest tokens, the likeliest first."""
        top = self.logits(states).topk(count, dim=-1).indices
        return top.transpose(0, 1).tolist()


class Layer(Protocol):
    """The layers at one place of all M heads."""

    def __call__(self, x: Tensor) -> Tensor:
        """[M, N, inputs] to [M, N, outputs]."""

    def weights(self) -> Iterable[Tensor]:
        """The tensors it holds."""


def _choose(
    width: int, dtype: torch.dtype, device: torch.device, quantize: str | None
) -> tuple[str, Callable[[list[nn.Linear]], Layer]]:
    """The best layers for these weights here, and what they are called."""
    if quantize not in (None, "int8", "auto"):
        raise InvalidOption(f"quantize={quantize!r} does not exist", hint="it is None, 'int8' or 'auto'")
    kind = kind_of(dtype, device, (width,), quantize)
    if kind is not None:
        numbers = {native.INT8: "int8", native.FLOAT32: "float32"}.get(kind, "bfloat16")
        return f"{numbers} rows", partial(_RowLayers, kind=kind)
    if quantize == "int8":
        if not can_quantize(device):
            raise InvalidOption(
                f"quantize='int8' needs a CPU, and the row kernels or VNNI instructions; this is {device}",
                hint="leave it out; the heads run in the target's dtype",
            )
        return "int8", partial(_Separate, Int8Linear)
    if can_pack(dtype, device):
        return "packed", partial(_Separate, PackedLinear)
    return "stacked", _Stacked


class _Stacked:
    """One batched product of plain tensors."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self._weight = torch.stack([linear.weight for linear in linears]).transpose(1, 2)
        first = linears[0].bias
        self._bias = None if first is None else torch.stack([linear.bias for linear in linears])[:, None]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self._weight) if self._bias is None else torch.baddbmm(self._bias, x, self._weight)

    def weights(self) -> Iterable[Tensor]:
        return (self._weight,) if self._bias is None else (self._weight, self._bias)


class _Separate:
    """One prepared layer for each head."""

    def __init__(self, layer: type[PreparedLinear], linears: Sequence[nn.Linear]) -> None:
        self._layers = [layer(linear) for linear in linears]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.stack([layer(rows) for layer, rows in zip(self._layers, x, strict=True)])

    def weights(self) -> Iterable[Tensor]:
        return (tensor for layer in self._layers for tensor in layer.weights())


class _RowLayers:
    """The row kernels' products: float32 rows in and out, and a row's result is the same beside any other rows."""

    def __init__(self, linears: Sequence[nn.Linear], *, kind: int) -> None:
        self._weights = NativeWeights(kind)
        self._products = [self._weights.product(linear) for linear in linears]

    def __call__(self, x: Tensor) -> Tensor:
        rows, kernels = x.float().contiguous(), native.kernels()
        out = torch.empty(len(rows), rows.shape[1], self._products[0].outputs)
        for product, mine, y in zip(self._products, rows, out, strict=True):
            kernels.multiply(product, mine.data_ptr(), len(mine), y.data_ptr(), threads())
        return out

    def weights(self) -> Iterable[Tensor]:
        return self._weights.tensors
