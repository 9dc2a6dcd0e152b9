"""What is true of a model, found out without reading its weights: what it is, what would run it, and what would not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headstart.base.errors import DamagedModel, HeadstartError, InvalidOption, UnsupportedModel
from headstart.base.lazy import transformers
from headstart.loading.checkpoint import Checkpoint, check_quantize, find_device
from headstart.loading.choice import MTP, SELF_INT4, choose, holds_mtp
from headstart.loading.known_heads import head_for
from headstart.loading.options import EngineOptions, InfoOptions, TargetOptions
from headstart.model import int4, loading, native
from headstart.model.cache import text_bytes
from headstart.model.coded import model_class, without_memory
from headstart.model.decoders import parts
from headstart.model.decoders.fused import FusedDecoder, not_run
from headstart.model.decoders.lean import LeanDecoder
from headstart.model.decoders.modules import ModulesDecoder
from headstart.model.gguf.files import is_gguf, open_gguf
from headstart.model.kept.config import real
from headstart.model.memory import free_bytes
from headstart.model.native.weights import why_not
from headstart.model.quantised.checkpoint import plain
from headstart.model.quantised.settings import layout_of
from headstart.model.reading import reading
from headstart.model.recipes import Recipe, recipe_of
from headstart.model.recipes.words import LayerKind, kinds_of, rest_of
from headstart.model.states import states_bytes
from headstart.model.stored import Held, check_amount, held_in
from headstart.model.wrappers import names_of, wrapper_of

DECODERS = {"fused": "row kernels", "lean": "tensor operations", "modules": "transformers' modules"}
"""The forwards in words, by their names."""

_BITS = {"int8": (8.0, 8.0), "int8-grouped": (8.5, 8.5), "int4": (int4.BITS_OF_A_WEIGHT, int4.BITS_OF_THE_HEAD)}
"""Memory of a weight of the layers, and of the output head."""


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which the weights can lie in memory."""

    name: str
    """In words: a dtype, "int8", or what the file's own codes are."""
    quantize: str | None
    """The option `quantize` that asks for it; None is the default."""
    decoder: str | None
    """The forward that runs it here: "fused", "lean" or "modules"; None where none does."""
    weights: int
    """Bytes in memory, within a few per cent; of codes and floats in the row kernels, as they count them."""
    why: str
    """Why nothing runs it, or nothing faster; empty for the row kernels."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """A drafter, and whether it can draft for the model."""

    name: str
    fits: bool
    why: str


@dataclass(frozen=True, slots=True)
class Info:
    """What is true of a model that can be loaded."""

    model: str
    model_type: str
    wrapper: str
    """The model type whose text model it is; empty where it is whole."""
    architecture: str
    """Its class in transformers."""
    stored: str
    """"safetensors", "GGUF", or the layout of its codes."""
    parameters: int
    """Of the model that runs: files may hold more, such as the tower of a model that sees."""
    file_bytes: int | None
    """Of the weights in the files; None where they are not on this machine."""
    types: Mapping[str, int]
    """Numbers in the files by their type, the most first."""
    vocabulary: int
    width: int
    layers: int
    context_limit: int
    kinds: tuple[LayerKind, ...]
    """The different layers; none where there is no recipe."""
    rest: str
    """What is before and after the layers, beside the usual."""
    ignored: tuple[str, ...]
    """What the config says that changes nothing here."""
    no_recipe: str
    """Why headstart's own decoders do not know the model; empty where they do."""
    device: str
    formats: tuple[Format, ...]
    """The first is the default."""
    context: int
    """Tokens for which the cache is counted."""
    slots: int
    cache: int
    """Bytes of a slot's cache."""
    states: int
    """Of these, what the states of recurrent layers take, with their logs and checkpoints."""
    rows: int
    """Bytes that a forward takes for its rows, of which the most are a piece of a prompt."""
    mapped: int
    """Of the weights as they are, those of experts that lie in a file and need not be in memory."""
    experts_file: str | None
    """Where that is, or will be after the first load; None where all weights are in memory."""
    free: int
    """Bytes that are free on the device now."""
    drafters: tuple[Guesses, ...]
    auto: tuple[str, ...]
    """What drafter "auto" takes where `headstart doctor` has left no answer."""
    auto_why: str

    @property
    def decoder(self) -> str | None:
        """The forward that would run the model as it is."""
        return self.formats[0].decoder

    @property
    def needed(self) -> int:
        """Bytes of memory without which it does not run: of the weights as they are, but for mapped ones, of the
        caches of all slots and of a forward's rows."""
        return self.formats[0].weights - self.mapped + self.slots * self.cache + self.rows


def describe(source: str | Path, loaded: TargetOptions | None = None, asked: InfoOptions | None = None) -> Info:
    """What is true of a model. Its config, its tokenizer and the heads of its files are read, and no weight.

    Args:
        source: a model directory, a .gguf file, a hub id, or "bundled".
        loaded: its device, dtype and whether code from its repository may run; `quantize` and `max_length` change
            nothing.
        asked: what memory is counted for.

    Raises:
        InvalidOption, ModelNotFound, UnsupportedModel, DamagedModel: what `load` would raise.
    """
    loaded, asked = loaded or TargetOptions(), asked or InfoOptions()
    with native.using_level(loaded.cpu_level):
        return _described(source, loaded, asked)


def _described(source: str | Path, loaded: TargetOptions, asked: InfoOptions) -> Info:
    device = find_device(loaded.device)
    checkpoint = Checkpoint(
        source, "target", device=device, dtype=loaded.dtype, max_length=asked.context,
        trust_remote_code=loaded.trust_remote_code, probe="always",
    )  # fmt: skip
    config = real(checkpoint.config)  # that of a kept model does not tell its class, of which modules are made
    text, modules = config.get_text_config(), _modules(config, checkpoint.source)
    recipe, no_recipe = _recipe(config, modules)
    held = _held(checkpoint.source)
    counted = None if modules is None else _Counted.of(modules)
    floats = not is_gguf(checkpoint.source) and layout_of(config) is None
    if floats and counted is not None and Path(checkpoint.source).is_dir():
        check_amount(Path(checkpoint.source), counted.parameters, names_of(config))
    found = _Formats(checkpoint, recipe, no_recipe, device, counted).all()
    choice, need = choose(source, "auto"), checkpoint.need(1, None, EngineOptions().prefill_chunk + asked.slots)
    return Info(
        model=checkpoint.label,
        model_type=str(text.model_type),
        wrapper=wrapper_of(config),
        architecture=_architecture(config),
        stored=_stored(checkpoint),
        parameters=counted.parameters if counted is not None else held.numbers if held is not None else 0,
        file_bytes=None if held is None else held.bytes,
        types={} if held is None else held.types,
        vocabulary=checkpoint.vocab_size,
        width=int(text.hidden_size),
        layers=int(text.num_hidden_layers),
        context_limit=loading.context_limit(config),
        kinds=() if recipe is None else kinds_of(recipe),
        rest="" if recipe is None else rest_of(recipe),
        ignored=() if recipe is None else recipe.ignored,
        no_recipe=no_recipe,
        device=str(device),
        formats=found,
        context=checkpoint.length,
        slots=asked.slots,
        cache=need.cache,
        states=0 if recipe is None else _states(recipe, checkpoint),
        rows=need.rows,
        mapped=need.mapped,
        experts_file=checkpoint.experts_file(None) if need.mapped else None,
        free=free_bytes(device),
        drafters=tuple(_drafters(source, found, layers=int(text.num_hidden_layers))),
        auto=tuple(each.name for each in choice.drafters),
        auto_why=choice.reason,
    )


def _modules(config: Any, source: str) -> Any:
    """The model without its weights; None for one whose class is in its own repository."""
    config = plain(config)
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    with reading(source):
        return without_memory(config)


def _recipe(config: Any, modules: Any) -> tuple[Recipe | None, str]:
    """The recipe, or why there is none: of the modules where they are known, since a class may ignore its config."""
    try:
        return recipe_of(config) if modules is None else parts.recipe_for(modules), ""
    except UnsupportedModel as error:
        return None, error.message


def _states(recipe: Recipe, checkpoint: Checkpoint) -> int:
    """Bytes of a slot's states."""
    return states_bytes(
        parts.states(recipe), saved=text_bytes(parts.shapes(recipe), checkpoint.length, checkpoint.dtype)
    )


def _architecture(config: Any) -> str:
    if type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return str(model_class(config).__name__)
    return str((getattr(config, "architectures", None) or ["of its repository"])[0])


def _stored(checkpoint: Checkpoint) -> str:
    if is_gguf(checkpoint.source):
        return "GGUF"
    layout = layout_of(checkpoint.config)
    return "safetensors" if layout is None else f"safetensors, {layout.name}"


def _held(source: str) -> Held | None:
    """What the files hold; None where they are not on this machine."""
    if is_gguf(source):
        tensors = open_gguf(source).tensors.values()
        return Held.of((each.type.name, each.count, each.data.nbytes) for each in tensors)
    folder = Path(source)
    if not folder.is_dir():
        config = loading.config_folder(source)
        if config is None or not any(config.glob("*.safetensors")):
            return None
        folder = config
    return held_in(folder)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The parameters of the model that a config describes."""

    parameters: int
    matrices: int
    """Numbers of the linear layers, the output head apart."""
    outputs: int
    """Rows of the linear layers, the output head's too."""
    head: int
    """Numbers of the output head."""
    tied: bool
    """Whether these are the embedding's, too."""

    @classmethod
    def of(cls, model: Any) -> _Counted:
        head = model.get_output_embeddings()
        linears = [each.weight for each in model.modules() if isinstance(each, nn.Linear)]
        own = getattr(head, "weight", None)
        return cls(
            parameters=sum(each.numel() for each in set(model.parameters())),
            matrices=sum(each.numel() for each in linears if each is not own),
            outputs=sum(len(each) for each in linears),
            head=0 if own is None else own.numel(),
            tied=own is not None and own is model.get_input_embeddings().weight,
        )


@dataclass(frozen=True, slots=True)
class _Formats:
    """Which forward takes which weights: what `ModelRunner` would find out with the weights in hand."""

    checkpoint: Checkpoint
    recipe: Recipe | None
    no_recipe: str
    device: torch.device
    counted: _Counted | None

    def all(self) -> tuple[Format, ...]:
        """The default first."""
        found = [self._rounded(kind) for kind in _BITS]
        if self._has_codes:
            return (self._as_stored(), self._floats("none"), *found)
        return (self._floats(None), *found)

    @property
    def _has_codes(self) -> bool:
        return is_gguf(self.checkpoint.source) or layout_of(self.checkpoint.config) is not None

    @property
    def _kernels(self) -> str:
        """Why the row kernels do not run the model; empty where they do."""
        if self.recipe is None:
            return self.no_recipe
        if unknown := not_run(self.recipe):
            return f"the row kernels do not run {unknown}"
        why = why_not(self.checkpoint.dtype, self.device, self.recipe.widths)
        return f"the row kernels do not run it: {why}" if why else ""

    def _as_stored(self) -> Format:
        """On the file's own codes; where they cannot run they become floats, or the user is asked."""
        mine = self.checkpoint
        if blocks := mine.blocks(None):
            need = mine.need(0, None)
            weights = need.weights + need.mapped
            return Format(" ".join(blocks).partition(";")[0], None, FusedDecoder.name, weights, "")
        asked = None if is_gguf(mine.source) else layout_of(mine.config)
        if asked is not None and asked.kind is None:
            return Format(asked.name, None, None, 0, "it does not run as it is; quantize='none' makes floats of it")
        floats = self._floats(None)
        why = self._kernels or "the row kernels have no products of these codes here"
        return Format(floats.name, None, floats.decoder, floats.weights, f"not on its own codes: {why}")

    def _floats(self, quantize: str | None) -> Format:
        dtype = str(self.checkpoint.dtype).removeprefix("torch.")
        decoder = self._decoder()
        extra = 0
        if self.counted is not None and self.counted.tied and decoder == FusedDecoder.name:
            extra = self.counted.head * self.checkpoint.dtype.itemsize  # laid out twice: for products, and by token
        return Format(dtype, quantize, decoder, self.checkpoint.weight_bytes + extra, self._kernels)

    def _rounded(self, kind: str) -> Format:
        weights = self._bytes(kind)
        try:
            check_quantize("quantize", kind, self.device)
        except InvalidOption as error:
            return Format(kind, kind, None, weights, error.message.partition(" needs ")[2] or error.message)
        if self.recipe is not None and self.recipe.recurrent and self._kernels:
            return Format(kind, kind, None, weights, self._kernels)
        if kind in int4.KINDS:
            slower = ModulesDecoder.name if self.recipe is not None else None
            return Format(kind, kind, slower if self._kernels else FusedDecoder.name, weights, self._kernels)
        if not self._kernels and native.kernels().supported(native.INT8):
            return Format(kind, kind, FusedDecoder.name, weights, "")
        return Format(kind, kind, ModulesDecoder.name, weights, self._kernels or "the row kernels have no int8 here")

    def _decoder(self) -> str:
        if not self._kernels:
            return FusedDecoder.name
        return LeanDecoder.name if self.recipe is not None else ModulesDecoder.name

    def _bytes(self, kind: str) -> int:
        counted, wide = self.counted, self.checkpoint.dtype.itemsize
        if counted is None:
            return 0
        bits, of_head = _BITS[kind]
        experts, outputs = (0, 0) if self.recipe is None or self._kernels else _experts(self.recipe)
        rest = counted.parameters - counted.matrices - experts - (0 if counted.tied else counted.head)
        by_output = 8 * (counted.outputs + outputs) if kind == "int8" else 0
        return int(((counted.matrices + experts) * bits + counted.head * of_head) / 8 + rest * wide + by_output)


def _experts(recipe: Recipe) -> tuple[int, int]:
    """Numbers of all experts that are no linear layers in transformers, and how many outputs they have."""
    numbers = sum(count * inputs * outputs for count, inputs, outputs in recipe.expert_matrices)
    return numbers, sum(count * outputs for count, _, outputs in recipe.expert_matrices)


def _drafters(source: str | Path, formats: tuple[Format, ...], layers: int) -> list[Guesses]:
    """The drafters that need nothing but the model, those that come with headstart, and those that can be trained."""
    runs, found = formats[0].decoder, []
    for name in ("ngram", "suffix", "prediction"):
        found.append(Guesses(name, True, "guesses from text"))
    found.append(Guesses("lookahead", True, "its own guesses"))
    why = "" if runs in (FusedDecoder.name, LeanDecoder.name) else "a forward of headstart's own is needed"
    early = why or ("" if layers > 1 else "it has one layer")
    found.append(Guesses("early-exit", not early, early or f"its first layers, of {layers}"))
    on_four = next(each for each in formats if each.quantize == "int4")
    own = on_four.decoder is not None
    found.append(Guesses(SELF_INT4, own, "itself on 4 bits" if own else on_four.why))
    if str(source) == loading.BUNDLED:
        found += [Guesses(name, True, "comes with it") for name in (loading.BUNDLED, "medusa", "eagle3")]
    elif head_for(str(source)) is not None:
        found.append(Guesses("eagle3", True, "a head for this model comes with headstart"))
    if holds_mtp(str(source)):
        found.append(Guesses(MTP, True, "a head in the checkpoint, trained with it"))
    return [*found, Guesses("a small model, or heads", True, "by path or hub id; headstart train makes them")]


def refusal(error: HeadstartError) -> bool:
    """Whether an error says that a model cannot run, and not that there is none or that the question was wrong."""
    return isinstance(error, (UnsupportedModel, DamagedModel))
