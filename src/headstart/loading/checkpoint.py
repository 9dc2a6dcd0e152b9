"""A model to be loaded: its config and tokenizer read and checked, its memory known, its weights still on disk."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from headstart.base.errors import InvalidOption, NotEnoughMemory, UnsupportedModel
from headstart.loading.kept import NOTHING_KEPT, Kept, Made
from headstart.model import generation, int4, loading, native
from headstart.model.codes import codes_of, is_quantised
from headstart.model.decoders.linears import can_quantize
from headstart.model.fingerprint import fingerprint
from headstart.model.kept.config import KeptConfig
from headstart.model.kept.store import Changed, Passed
from headstart.model.kept.weights import kept_model
from headstart.model.longrope import turns_by_length
from headstart.model.memory import MemoryNeed
from headstart.model.native.weights import why_not
from headstart.model.reading import first_line
from headstart.model.recipes import find_recipe
from headstart.model.runner import ModelRunner
from headstart.model.tokens.tokenizers import check_pair, load_tokenizer

if TYPE_CHECKING:
    from headstart.model.mapped import PackedFile

DEFAULT_LENGTH = 4096
WORTH_KEEPING = 2**21
"""Bytes of weights, so that what tests and lessons make is not kept."""
WORTH_MAPPING = 2**28
"""Bytes, in a file as the kernels read them, of experts and of weights that are rounded here. Fewer are laid out in
memory in a second or two."""
WORTH_MAPPING_AS_STORED = 2**31
"""The same of weights that are laid out as they are, of which a second makes several times as many."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Weights:
    """What a model's weights are to run as: as they are stored, as floats, or rounded."""

    stored: bool
    """On the checkpoint's own codes, where it has some that run here."""
    rounded: str | None
    """Otherwise: rounded to "int8", "int8-grouped" or "int4", or to what "auto" finds; None is floats in the dtype."""

    @classmethod
    def of(cls, quantize: str | None) -> Weights:
        """By the public option: None is the weights as they are, a file's codes where those can run; "none" floats in
        `dtype`; "int8", "int8-grouped" and "int4" integers; "auto" a file's codes, or 8-bit integers where the row
        kernels run them."""
        return cls(quantize in (None, "auto"), None if quantize == "none" else quantize)


AS_STORED = Weights.of(None)


class Checkpoint:
    """A causal LM of transformers in a directory or on the hub. role: "target" or "draft", for messages."""

    def __init__(
        self,
        source: str | Path,
        role: str,
        *,
        device: torch.device,
        dtype: str | torch.dtype = "auto",
        max_length: int | Literal["auto"] | None = None,
        trust_remote_code: bool = False,
        probe: Literal["kept", "always"] = "kept",
        packed_file: bool = True,
        kv_cache_dtype: str = "auto",
    ) -> None:
        self.source = loading.resolve(source, role)
        self.label = str(source) if str(source) != loading.BUNDLED else f"bundled {role}"
        known = Kept.of(self.source)
        self._facts = known.facts
        self._kept = known if probe == "kept" and not trust_remote_code else NOTHING_KEPT
        if (found := self._kept.known) is not None:
            self.config, self.tokenizer = found
        else:
            self.config = loading.load_config(self.source, trust_remote_code=trust_remote_code)
            self.tokenizer = load_tokenizer(self.source, trust_remote_code=trust_remote_code)
        self.dtype = loading.choose_dtype(dtype, self.config, device)
        self.cache_dtype = loading.choose_cache_dtype(kv_cache_dtype, self.config, self.dtype, device)
        """Of keys and values."""
        self.limit = loading.context_limit(self.config)
        self.length = self._length(max_length, role)
        """Tokens of a prompt and its text together, at most."""
        self._codes = codes_of(self.source, self.config)
        self._device = device
        self._trust = trust_remote_code
        self._maps = packed_file
        self._runners: dict[str | None, ModelRunner] = {}

    @property
    def vocab_size(self) -> int:
        return int(self.config.get_text_config().vocab_size)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends a text, by generation config, model config or tokenizer."""
        return generation.eos_token_ids(self.source, self.config, self.tokenizer, self.generation_config)

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """How the model's makers would sample; {} where they do not say."""
        kept = self._kept.generation
        return generation.generation_config(self.source) if kept is None else kept

    @cached_property
    def weight_bytes(self) -> int:
        """Of all weights in their dtype, from the config alone."""
        if self._kept.parameters is not None:
            return self._kept.parameters * self.dtype.itemsize
        return loading.weight_bytes(self.source, self.config, self.dtype)

    @property
    def fingerprint(self) -> str:
        """Tells models apart: see `headstart.model.fingerprint`."""
        return fingerprint(self.source)

    def blocks(self, quantize: str | None) -> tuple[str, ...]:
        """What a GGUF file or a quantised checkpoint runs on: the types of its blocks, that of the most weights first,
        or its layout; none for a model in floats, or whose weights are rounded again. quantize: see `runner`."""
        if self._codes is None or not Weights.of(quantize).stored:
            return ()
        return self._codes.blocks(self.source, self.config, self.dtype, self._device)

    def precision(self, quantize: str | None) -> str | None:
        """What tells weights of this quantisation from others of the same config: for costs and advice."""
        return " ".join((str(quantize), *self.blocks(quantize))) if self.blocks(quantize) else quantize

    def bytes_read(self, quantize: str | None) -> int | None:
        """Bytes of weights that a forward of one row reads, of a model on its file's blocks; None for others."""
        if self._codes is None or not self.blocks(quantize):
            return None
        return self._codes.packed_bytes(self.source, self.config, self.dtype, read=True)

    def need(self, slots: int, quantize: str | None, rows: int = 0) -> MemoryNeed:
        """Memory for a cache of so many slots, for a forward of so many rows, and for the weights where they are still
        to be read."""
        weights = in_file = 0
        if not self._runners and self._codes is not None and self.blocks(quantize):
            weights = self._codes.packed_bytes(self.source, self.config, self.dtype)
        elif not self._runners:
            weights = self.weight_bytes  # of which the floats of experts that are streamed are never all in memory
            weights += self._streamed_bytes(self._rounded(quantize)) - self._streamed_bytes(None)
        packed = None if self._runners else self._packed(quantize)
        if packed is not None and packed.spares_memory and packed.can_be():
            in_file = packed.bytes
        cache, states = (
            sizes(self.config, self.cache_dtype, slots=slots, length=self.length)
            for sizes in (loading.cache_bytes, loading.state_bytes)
        )
        own = 0
        if rows:
            own = loading.forward_bytes(self.config, self.dtype, self._device, rows=rows, length=self.length)
        return MemoryNeed(self.label, weights - in_file, cache, states, in_file, own)

    def runner(self, quantize: str | None) -> ModelRunner:
        """The model, ready to run. Its weights are read once.

        quantize: see `Weights.of`.

        Raises:
            UnsupportedModel: a layout that runs only as floats, and these were not asked for.
        """
        wanted = Weights.of(quantize)
        asked = self._codes.must_be_asked(self.config) if self._codes is not None and wanted == AS_STORED else None
        if asked is not None:
            raise UnsupportedModel(
                f"{self.label} is {asked}, which does not run as it is", hint="quantize='none' makes floats of it"
            )
        if quantize not in self._runners:
            blocks = self.blocks(quantize)
            rounded = self._rounded(quantize)
            packed = self._packed(quantize)
            made = self._kept_runner(rounded, blocks, packed) or self._probed_runner(rounded, blocks, packed)
            self._runners[quantize] = made
            if packed is not None and not packed.believed and self._kept.passed(self._conditions(rounded, blocks)):
                packed.keep(made.laid_out)
        return self._runners[quantize]

    def _rounded(self, quantize: str | None) -> str | None:
        """What its weights are rounded to: see `runner`."""
        return None if self.blocks(quantize) else Weights.of(quantize).rounded

    def _streamed_bytes(self, rounded: str | None) -> int:
        """Bytes, laid out, of experts that are floats in the checkpoint and are read one after the other; 0 for others.
        rounded: see `runner`; None for the same in floats."""
        if self._codes is not None or self._trust or not loading.streams(self.config, self.dtype, self._device):
            return 0
        from headstart.model.streamed import laid_out_bytes  # most models have no experts

        return laid_out_bytes(self.config, self.dtype, rounded)

    def _packed(self, quantize: str | None) -> PackedFile | None:
        """Where the weights of a model, or the experts of a mixture, may lie in a file as the kernels read them; None
        where that is not worth it."""
        blocks, rounded = self.blocks(quantize), self._rounded(quantize)
        experts = self._streamed_bytes(rounded)
        if blocks and self._codes is not None:
            experts = self._codes.experts_bytes(self.source, self.config)
        size = experts or self._laid_out_bytes(rounded, blocks)
        if not self._maps or size < (WORTH_MAPPING if experts or rounded else WORTH_MAPPING_AS_STORED):
            return None
        if self._facts is None and experts and (folder := loading.config_folder(self.source)) is not None:
            found = Kept.of(str(folder)).facts  # of the hub's, as it lies on this machine
            if found is None or not found.get("weights"):
                return None  # they are still to be fetched: which file will be theirs is not known yet
            self._facts = found
        if self._facts is None:
            return None
        from headstart.model import mapped  # small models need none

        kind = mapped.MappedExperts if experts else mapped.MappedWeights
        facts = {"of": "experts" if experts else "weights", **self._facts, **self._conditions(rounded, blocks)}
        return kind(self.label, {**facts, "length": None}, size)

    def _laid_out_bytes(self, rounded: str | None, blocks: tuple[str, ...]) -> int:
        """Bytes of the weights of a model without experts, of which can be kept how it passed the probe, as the kernels
        read them; 0 for others. rounded: see `runner`."""
        recipe = find_recipe(self.config)
        if recipe is None or recipe.experts or is_quantised(self.config):
            return 0
        if why_not(self.dtype, self._device, recipe.widths) is not None:
            return 0
        if blocks and self._codes is not None:
            return self._codes.packed_bytes(self.source, self.config, self.dtype)
        return int(self.weight_bytes / self.dtype.itemsize * int4.bits_of(rounded, self.dtype) / 8)

    def packed_file(self, quantize: str | None) -> str | None:
        """The file in which weights, or the experts of a mixture, are, or will be after the first load; None where they
        are in memory."""
        packed = self._packed(quantize)
        return str(packed.path) if packed is not None and packed.can_be() else None

    def _probed_runner(self, rounded: str | None, blocks: tuple[str, ...], packed: PackedFile | None) -> ModelRunner:
        """Made of the modules of transformers, and probed; where that fails with a file of an earlier start, once more
        with one that is made now."""
        if packed is not None and not packed.spares_memory:
            packed = None  # the probe sees less than the comparison with what was kept
        try:
            return self._new_runner(rounded, blocks, packed)
        except UnsupportedModel as error:
            if packed is None or not packed.believed:
                raise
            why = first_line(error)
        # outside of the handler, whose error holds the first model and its file in memory
        log.warning("%s: %s; it is made again (%s)", self.label, packed.path, why)
        packed.forget()
        return self._new_runner(rounded, blocks, packed)

    def _new_runner(self, rounded: str | None, blocks: tuple[str, ...], packed: PackedFile | None) -> ModelRunner:
        model = loading.load_weights(
            self.source,
            self.config,
            self.dtype,
            self._device,
            trust_remote_code=self._trust,
            packed=bool(blocks),
        )
        keeps = self._kept.keeps(self.config)
        made = ModelRunner(
            model, max_length=self.length, quantize=rounded, blocks=blocks, listing=keeps, packed=packed,
            cache_dtype=self.cache_dtype,
        )  # fmt: skip
        if keeps and made.passed is not None and made.memory() >= WORTH_KEEPING:
            self._keep(self._conditions(rounded, blocks), made.passed)
        return made

    def _keep(self, conditions: Mapping[str, Any], passed: Passed) -> None:
        """Keep how it passed the probe, if possible."""
        try:
            numbers = self.weight_bytes // self.dtype.itemsize
            of = Made(self.config, self.tokenizer, self.generation_config, numbers)
            self._kept.keep(conditions, passed, of)
        except Exception as error:  # whatever it is, the model itself is well
            log.info("%s: nothing is kept of it (%s)", self.label, first_line(error))

    def _kept_runner(
        self, rounded: str | None, blocks: tuple[str, ...], packed: PackedFile | None
    ) -> ModelRunner | None:
        """Made without them, of what was kept; None where nothing was, or where it is not true any more."""
        if self._device.type != "cpu" or not isinstance(self.config, KeptConfig):
            return None
        conditions = self._conditions(rounded, blocks)
        passed = self._kept.passed(conditions)
        if passed is None or passed.length < self.length:
            return None
        try:
            model = kept_model(self.source, self.config, self.dtype, passed)
            return ModelRunner(
                model, max_length=self.length, quantize=rounded, blocks=blocks, passed=passed, packed=packed,
                cache_dtype=self.cache_dtype,
            )  # fmt: skip
        except NotEnoughMemory:
            raise
        except MemoryError as error:
            raise NotEnoughMemory(f"there is no memory for {self.label}", hint="load a smaller model") from error
        except Exception as error:  # whatever it is, the model is loaded as it was the first time, which says why
            log.warning("%s: what was kept of it cannot be used (%s)", self.label, first_line(error))
            self._kept.forget(conditions)
            if isinstance(error, Changed | ValueError | KeyError | TypeError) and packed and packed.believed:
                packed.forget()
            return None

    def _conditions(self, rounded: str | None, blocks: tuple[str, ...]) -> dict[str, Any]:
        """What the way in which it passed the probe depends on, beside the model."""
        return {
            "dtype": str(self.dtype),
            "quantize": rounded,
            "blocks": blocks,
            "length": self.length if turns_by_length(self.config) else None,
            "kernels": native.kernels().name if native.available() else None,
            "tiles": native.available() and bool(native.kernels().rows_of_keys(32)),  # a sandbox may forbid them
        }

    def some_text(self) -> list[int]:
        """A few tokens to begin a text with."""
        return [0] if self.tokenizer is None else list(self.tokenizer("The first")["input_ids"]) or [0]

    def shorten(self, length: int) -> None:
        """Take contexts of so many tokens, or of the model's limit where that is less; no weight has been read yet."""
        assert not self._runners, "a model that has been read keeps its length"
        self.length = min(length, self.limit)

    @property
    def is_read(self) -> bool:
        """Whether its weights are in memory."""
        return bool(self._runners)

    def _length(self, asked: int | Literal["auto"] | None, role: str) -> int:
        limit = self.limit
        if asked is None or asked == "auto":
            return min(limit, DEFAULT_LENGTH)
        if asked > limit and role == "target":
            raise InvalidOption(
                f"max_length={asked} is above the {limit} positions {self.label} was built for",
                hint=f"use max_length={limit} or less",
            )
        return min(asked, limit)


def check_sizes(target: Checkpoint, draft: Checkpoint) -> None:
    """Refuse a draft of another vocabulary size than the target's, where one of them has no tokenizer.

    Raises:
        IncompatibleTokenizer: the sizes differ, so the tokens cannot be the same.
    """
    if target.tokenizer is None or draft.tokenizer is None:
        check_pair(
            target.tokenizer,
            draft.tokenizer,
            target_vocab=target.vocab_size,
            draft_vocab=draft.vocab_size,
            name=f"draft {draft.label}",
        )


def check_quantize(name: str, quantize: str | None, device: torch.device) -> None:
    """Refuse what cannot be computed with on this device."""
    if quantize not in (None, "none", "int8", *int4.KINDS):
        raise InvalidOption(
            f"{name}={quantize!r} does not exist", hint="it is None, 'int8', 'int8-grouped', 'int4' or 'none'"
        )
    if quantize in int4.KINDS and not int4.can_run(device):
        raise InvalidOption(
            f"{name}={quantize!r} needs the row kernels and a CPU, and this is {device}",
            hint="use 'int8', or leave it out; weights run in their dtype",
        )
    if quantize == "int8" and not can_quantize(device) and not int4.can_run(device):
        raise InvalidOption(
            f"{name}='int8' needs a CPU, and the row kernels or VNNI instructions; this is {device}",
            hint="leave it out; weights run in their dtype",
        )


def find_device(device: str | torch.device) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InvalidOption(f"device={device!r} is not known", hint="use 'auto', 'cpu' or 'cuda'") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidOption("device='cuda', but this PyTorch sees no CUDA device", hint="use device='cpu' or 'auto'")
    return place
