"""A quantised checkpoint as `headstart.model.loading` needs it: on its codes, or as floats."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headstart.base.errors import UnsupportedModel
from headstart.model import native
from headstart.model.coded import chooses, empty, fits_kernels, joined_with, with_codes, without_memory
from headstart.model.decoders.grouped import GroupedExperts, GroupedLinear
from headstart.model.grouped import ChannelWeights, GroupedWeights, Rows, StoredWeights
from headstart.model.hub import folder_of
from headstart.model.quantised.layout import FLOATS, Layout, Outputs
from headstart.model.quantised.mxfp4 import ExpertsOfCodes, Mxfp4
from headstart.model.quantised.settings import layout_of
from headstart.model.quantised.tensors import Tensors
from headstart.model.recipes import find_recipe
from headstart.model.recipes.experts import Experts
from headstart.model.wrappers import names_of

__all__ = ["blocks", "check", "experts_bytes", "load_model", "load_packed", "must_be_asked", "packed_bytes"]

_AT_ONCE = 1 << 22
"""Numbers that are made at a time."""


class QuantisedCheckpoint:
    """The tensors of a checkpoint, compared with what the model needs before any memory is taken.

    Raises:
        DamagedModel: a tensor is missing, or of another shape or type.
        UnsupportedModel: one would be left over.
    """

    def __init__(self, folder: Path, config: Any) -> None:
        layout = layout_of(config)
        assert layout is not None, "a quantised checkpoint"
        self.layout: Layout = layout
        self.config = plain(config)
        self.tensors = tensors = Tensors(folder, names_of(config))
        text = self.config.get_text_config()
        last = f".{text.num_hidden_layers - 1}."
        if not any(last in name for name in tensors.names):
            raise tensors.damaged(f"it claims {text.num_hidden_layers} layers, and the last is missing")
        try:
            model = without_memory(self.config)
        except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise tensors.damaged(f"its config describes no model: {first}") from error
        self.shapes = {name: tuple(tensor.shape) for name, tensor in _stored(model)}
        linears = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        self._check(linears)

    def coded(self, module: str) -> bool:
        """Whether a module's matrix is stored in this layout."""
        name = f"{module}.{self.layout.mark}"
        types = self.layout.parts((1, 1))[self.layout.mark].types
        return name in self.tensors.names and self.tensors.dtype(name) in types

    def stays(self, module: str) -> bool:
        """Whether a module's matrix and all that are joined with it are codes, with their inputs in one order."""
        if chooses(self.config, module):
            return False
        together = joined_with(self.config, module)
        if not all(self.coded(each) for each in together):
            return False
        names = [f"{each}.{name}" for each in together for name in ("g_idx", "weight_g_idx")]
        orders = [self.tensors.read(name) for name in names if name in self.tensors.names]
        return all(torch.equal(each, orders[0]) for each in orders)

    def matrix(self, module: str) -> StoredWeights:
        """A coded matrix, read when it is needed."""
        shape = self._shape(module)

        def rows_of(rows: Rows) -> GroupedWeights | ChannelWeights:
            assert isinstance(rows, slice), "tokens' rows are no codes"
            first, end, _ = rows.indices(shape[0])
            return self.layout.codes(Outputs(self.tensors, module, shape, first, end))

        return StoredWeights(shape, self.layout.bits, rows_of, self.layout.by_output)

    def of_experts(self, parameter: str) -> bool:
        """Whether a parameter is experts in codes."""
        return f"{parameter}_blocks" in self.tensors.names

    def experts(self, parameter: str) -> ExpertsOfCodes:
        """Such experts."""
        return ExpertsOfCodes(self.tensors, parameter, self.shapes[parameter])

    def fill(self, model: nn.Module) -> None:
        """Read the parameters and stored buffers of a model on the CPU."""
        for name, parameter in _stored(model):
            module, _, kind = name.rpartition(".")
            if self.of_experts(name):
                self.experts(name).fill(parameter.data)
            elif kind == "weight" and self.coded(module):
                shape = self._shape(module)
                for first, end in _steps(*shape):
                    part = self.layout.numbers(Outputs(self.tensors, module, shape, first, end))
                    parameter.data[first:end] = part.to(parameter.dtype)
            elif name in self.tensors.names:
                parameter.data.copy_(self.tensors.read(name))

    def _shape(self, module: str) -> tuple[int, int]:
        outputs, inputs = self.shapes[f"{module}.weight"]
        return outputs, inputs

    def _check(self, linears: set[str]) -> None:
        tensors, left = self.tensors, set(self.tensors.names)
        for name, shape in self.shapes.items():
            module = name.rpartition(".")[0]
            if self.of_experts(name) and len(shape) == 3 and isinstance(self.layout, Mxfp4):
                left -= self.experts(name).names
                continue
            if name in linears and self.coded(module):
                left -= self._check_parts(module)
                continue
            if name not in tensors.names:
                raise tensors.damaged(f"tensor {name!r} is missing")
            if tensors.dtype(name) not in FLOATS or tensors.shape(name) != shape:
                what = f"{tensors.dtype(name)} {list(tensors.shape(name))}"
                raise tensors.damaged(f"tensor {name!r} is {what}, and floats {list(shape)} are needed")
            left.discard(name)
        for name in sorted(left):
            if not self._is_nothing(name):
                raise UnsupportedModel(
                    f"{tensors.label} holds {name!r}, which {self.config.model_type} models have not",
                    hint="give the original checkpoint",
                )

    def _check_parts(self, module: str) -> set[str]:
        """The names of a coded matrix's tensors."""
        found = set()
        for kind, part in self.layout.parts(self._shape(module)).items():
            name = f"{module}.{kind}"
            if name not in self.tensors.names:
                if part.needed:
                    raise self.tensors.damaged(f"tensor {name!r} is missing")
                continue
            shape, dtype = self.tensors.shape(name), self.tensors.dtype(name)
            if shape not in part.shapes or dtype not in part.types:
                wanted = f"{' or '.join(part.types)} {list(part.shapes[0])}"
                raise self.tensors.damaged(f"tensor {name!r} is {dtype} {list(shape)}, and {wanted} is needed")
            found.add(name)
        return found

    def _is_nothing(self, name: str) -> bool:
        """Whether a tensor that the model has no place for says nothing: a copy of the embedding, frequencies that the
        config gives, a bias of zeros."""
        if name.endswith("rotary_emb.inv_freq"):
            return True
        if name == "lm_head.weight" and self.config.get_text_config().tie_word_embeddings:
            return True
        if name.endswith(".bias") and self.tensors.dtype(name) in FLOATS and len(self.tensors.shape(name)) == 1:
            return not bool(self.tensors.read(name).any())
        return False


def _stored(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What checkpoints hold of a model: its parameters, and buffers such as the numbers of an xIELU activation."""
    yield from model.named_parameters()
    kept = model.state_dict()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def plain(config: Any) -> Any:
    """The config of the same model in floats."""
    config = copy.deepcopy(config)
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config
    return config


def check(source: str, config: Any) -> None:
    """Refuse what cannot be read, by the config and, in a directory, by the heads of its files."""
    layout_of(config)
    if Path(source).is_dir():
        QuantisedCheckpoint(Path(source), config)


def blocks(source: str, config: Any, dtype: torch.dtype, device: torch.device) -> tuple[str, ...]:  # noqa: ARG001
    """What the model's matrices are where it runs on its codes here; nothing if it cannot."""
    layout = layout_of(config)
    assert layout is not None, "a quantised checkpoint"
    kind = native.INT8 if layout.by_output else native.GROUPED4
    fits = layout.kind is not None and fits_kernels(config, dtype, device, kind)
    return (f"{layout.name}; rows rounded to {layout.kind}",) if fits else ()


def must_be_asked(config: Any) -> str | None:
    """The name of a layout that runs only as floats, and is made into them only if the user says so."""
    layout = layout_of(config)
    return layout.name if layout is not None and layout.kind is None else None


def load_model(source: str | Path, config: Any, dtype: torch.dtype) -> Any:
    """The model on the CPU in floats: the numbers that its codes stand for, rounded to `dtype`."""
    read = QuantisedCheckpoint(folder_of(source), config)
    model = empty(read.config, dtype)
    read.fill(model)
    return model.eval()


def load_packed(source: str | Path, config: Any, dtype: torch.dtype) -> Any:
    """The model, its coded matrices layers of codes that are read when a decoder lays them out."""
    read = QuantisedCheckpoint(folder_of(source), config)

    def coded(name: str, module: nn.Module) -> GroupedLinear | None:
        if not isinstance(module, nn.Linear) or not read.stays(name):
            return None
        return GroupedLinear(read.matrix(name), None if module.bias is None else read.tensors.floats(f"{name}.bias"))

    def experts(name: str, of: Experts) -> GroupedExperts | None:
        if not read.of_experts(name):
            return None
        twined = of.interleaved and name.rpartition(".")[2] != of.down.rpartition(".")[2]
        held = read.experts(name).matrices(interleaved=twined)
        return GroupedExperts(held, dtype, transposed=of.transposed, interleaved=twined)

    model = with_codes(read.config, dtype, coded, experts)
    read.fill(model)
    return model.eval()


def packed_bytes(source: str, config: Any, dtype: torch.dtype, *, read: bool = False) -> int:
    """Bytes of the model's weights as they will lie in memory, at most. read: only of those that a forward of one row
    reads."""
    layout = layout_of(config)
    assert layout is not None, "a quantised checkpoint"
    model = without_memory(plain(config))
    tied = bool(config.get_text_config().tie_word_embeddings)
    wide, total = float(torch.finfo(dtype).bits), 0.0
    known = QuantisedCheckpoint(Path(source), config) if Path(source).is_dir() else None
    mixtures = recipe.experts if (recipe := find_recipe(plain(config))) is not None else []
    read_of = max((each.router.chosen / each.count for each in mixtures), default=1.0)
    for name, parameter in model.named_parameters():
        if read and not tied and "embed_tokens" in name:
            continue
        module = name.rpartition(".")[0]
        if known is not None:
            coded = known.coded(module) and known.stays(module)
        else:
            coded = parameter.dim() == 2 and ".layers." in name and not chooses(config, module)
        part = 1.0
        if isinstance(layout, Mxfp4):
            coded = known.of_experts(name) if known is not None else parameter.dim() == 3
            part = read_of if coded and read else 1.0
        total += part * parameter.numel() * (layout.bits_of_a_weight if coded else wide) / 8
    return int(total)


def experts_bytes(source: str, config: Any) -> int:  # noqa: ARG001
    """Bytes of the experts, where they are matrices of codes in one parameter."""
    layout = layout_of(config)
    recipe = find_recipe(plain(config))
    if not isinstance(layout, Mxfp4) or recipe is None:
        return 0
    numbers = sum(count * inputs * outputs for count, inputs, outputs in recipe.expert_matrices)
    return int(numbers * layout.bits_of_a_weight / 8)


def _steps(rows: int, inputs: int) -> Iterator[tuple[int, int]]:
    step = max(8, _AT_ONCE // inputs // 8 * 8)
    return ((first, min(first + step, rows)) for first in range(0, rows, step))
