"""`Target` and `load`: from names to an engine, in one place.

A `Target` is a model whose weights are read once; it makes any number of engines. `load` is the two calls in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headstart.base.errors import InvalidOption
from headstart.base.options import reject_unknown
from headstart.drafters import Drafter
from headstart.engine.engine import Engine
from headstart.loading import advice
from headstart.loading.assembly import Assembly, check_store
from headstart.loading.checkpoint import Checkpoint, check_quantize, check_sizes, find_device
from headstart.loading.choice import SELF_INT4, Choice, DrafterName, choose
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.loading.stack import Stack
from headstart.model import loading, native
from headstart.model.memory import preflight
from headstart.model.runner import ModelRunner
from headstart.model.threads import use_in_process
from headstart.types import Rule

if TYPE_CHECKING:
    from headstart.drafters.matching.text_index import TextIndex

AnyDrafter = DrafterName | Drafter | Stack
"""A name, a path, a hub id, a stack, or a drafter of one's own."""


class Target:
    """A model whose distribution is kept. Config and tokenizer are read at once, the weights when the first engine is
    made.

    Args:
        source: a model directory, a .gguf file, a hub id, or "bundled".
        options: see `TargetOptions`.

    Raises:
        InvalidOption, ModelNotFound, UnsupportedModel (PickleCheckpoint, RemoteCodeRequired).
    """

    def __init__(self, source: str | Path = loading.BUNDLED, **options: Any) -> None:
        self.source = source
        self.options = TargetOptions(**options)
        use_in_process(self.options.threads)
        self.device = find_device(self.options.device)
        with native.using_level(self.options.cpu_level):
            check_quantize("quantize", self.options.quantize, self.device)
            self.checkpoint = self._checkpoint(source, "target")
        self._drafts: dict[tuple[str, torch.device], Checkpoint] = {}

    @property
    def name(self) -> str:
        return self.checkpoint.label

    @property
    def tokenizer(self) -> Any:
        """Of transformers; None where the model has none."""
        return self.checkpoint.tokenizer

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self.checkpoint.eos_token_ids

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """How the model's makers would sample; {} where they do not say."""
        return self.checkpoint.generation_config

    @property
    def usual_drafters(self) -> tuple[str, ...]:
        """What drafter "auto" takes where `headstart doctor` has left no answer."""
        return tuple(each.name for each in choose(self.source, "auto").drafters)

    @cached_property
    def runner(self) -> ModelRunner:
        """The weights, ready to run; read at first use.

        Raises:
            NotEnoughMemory: they do not fit.
        """
        with native.using_level(self.options.cpu_level):
            preflight([self.checkpoint.need(0, self.options.quantize)], self.device)
            return self.checkpoint.runner(self.options.quantize)

    def engine(self, drafter: AnyDrafter | Sequence[AnyDrafter] | None = "auto", **options: Any) -> Engine:
        """An engine on this target, with a cache of its own.

        Args:
            drafter: "auto" (what is recommended for the target, else what `headstart doctor` found out here, else
                "ngram" and the head that is bundled for SmolLM2-135M-Instruct, where that is the target, else "suffix"
                and "ngram"; never a second model that nothing has measured; `describe()` gives the reason), "none"
                or None, "ngram", "suffix", "early-exit" (the target's own first layers), "lookahead", "prediction" (the
                request's `Drafting.prediction`), the directory, .gguf file or hub id of a causal LM, "self-int4" (the
                target's own weights on 4 bits), the directory or hub id of a trained exit or of Medusa, EAGLE, P-EAGLE,
                DFlash or DSpark heads, "ahead:" before the name of a draft model or of early exit (it then drafts while
                the target verifies), "MODEL(DRAFTER, ...)" or a `headstart.Stack` (a draft model with drafters of its
                own), a `Drafter` of your own, or a list of these: per step, the first that has a draft
                drafts, unless a later one should do better; its last may be "auto". With the bundled target also
                "medusa" and "eagle3", with SmolLM2-135M-Instruct "eagle3".
            options: see `EngineOptions`.

        Raises:
            InvalidOption, ModelNotFound, UnsupportedModel (PickleCheckpoint, RemoteCodeRequired),
            IncompatibleTokenizer, NotEnoughMemory.
        """
        given = EngineOptions(**options)
        check_store(given.suffix_store)
        with native.using_level(self.options.cpu_level):
            place = self.device if given.draft_device is None else find_device(given.draft_device)
            if given.draft_quantize != "auto":
                check_quantize("draft_quantize", given.draft_quantize, place)
            last = drafter[-1:] if isinstance(drafter, Sequence) and not isinstance(drafter, str) else [drafter]
            choice = choose(self.source, drafter, advice.read(*self.advised_by) if list(last) == ["auto"] else None)
            drafts = {name: self.draft(name, place) for name in choice.models}
            return Assembly(
                self.checkpoint, self.options.quantize, self.device, choice, drafts, place, given,
                index=self._index(given, choice), fitting=self.options.max_length == "auto",
            ).engine()  # fmt: skip

    def _index(self, given: EngineOptions, choice: Choice) -> TextIndex | None:
        """The index of texts that drafters are to copy from; opened before weights are read.

        Raises:
            InvalidOption, DamagedStore: it cannot be used for this target, or none of the drafters would look into it.
        """
        if given.index is None:
            return None
        if not any(each.kind in ("ngram", "suffix") for each in choice.whole):
            raise InvalidOption("index: none of the drafters copies from one", hint="add 'ngram' or 'suffix' to them")
        from headstart.drafters.matching.text_index import TextIndex  # few engines have one

        if isinstance(given.index, TextIndex):
            return given.index
        if not isinstance(given.index, str | Path):
            raise InvalidOption(f"index={given.index!r} is no file", hint="name one that 'headstart index' has written")
        return TextIndex.open(given.index, self.tokenizer)

    def draft(self, name: str | Path, device: torch.device | None = None) -> Checkpoint:
        """A draft model for this target, read once for a device however many engines use it. device: None is the
        target's.

        Raises:
            IncompatibleTokenizer: its tokens cannot be compared with the target's.
        """
        key = str(name), self.device if device is None else device
        if key not in self._drafts:
            if name == SELF_INT4:
                self._check_own(key[1])
            found = self._checkpoint(*((self.source, "target") if name == SELF_INT4 else (name, "draft")), key[1])
            check_sizes(self.checkpoint, found)
            self._drafts[key] = found
        return self._drafts[key]

    def _check_own(self, device: torch.device) -> None:
        """Refuse the target's own copy on 4 bits where there can be none, or where the target is no larger."""
        check_quantize("drafter 'self-int4', quantize", "int4", device)
        if self.options.quantize == "int4":
            raise InvalidOption(
                "drafter='self-int4' drafts with the target's weights on 4 bits, and the target is on 4 bits itself",
                hint="run the target on 8 bits or in floats, or use another drafter",
            )

    def _checkpoint(self, source: str | Path, role: str, device: torch.device | None = None) -> Checkpoint:
        given = self.options
        return Checkpoint(
            source,
            role,
            dtype=given.dtype,
            device=self.device if device is None else device,
            max_length=given.max_length,
            trust_remote_code=given.trust_remote_code,
            probe=given.probe,
            packed_file=given.packed_file,
        )

    @property
    def advised_by(self) -> tuple[str, dict[str, Any], torch.dtype, torch.device, str | None]:
        """What advice is for: see `loading.advice.read`."""
        mine, quantize = self.checkpoint, self.options.quantize
        return mine.source, mine.config.to_dict(), mine.dtype, self.device, mine.precision(quantize)


def load(
    target: str | Path = loading.BUNDLED,
    drafter: AnyDrafter | Sequence[AnyDrafter] | None = "auto",
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    quantize: str | None = None,
    rule: Rule = "exact",
    **options: Any,
) -> Engine:
    """Load a target and a drafter, and return the engine that runs them: `Target(target, ...).engine(drafter, ...)`.

    Args:
        target: a model directory, a .gguf file, a hub id, or "bundled".
        drafter: see `Target.engine`.
        device, dtype, quantize: see `TargetOptions`.
        rule: "exact" or "coupled"; see docs/concepts/rule.md.
        options: the others of `TargetOptions` and of `EngineOptions`.

    Raises:
        InvalidOption, ModelNotFound, UnsupportedModel (PickleCheckpoint, RemoteCodeRequired),
        IncompatibleTokenizer, NotEnoughMemory.
    """
    target_names = [field.name for field in fields(TargetOptions)]
    engine_names = [field.name for field in fields(EngineOptions)]
    reject_unknown(options, ["target", "drafter", *target_names, *engine_names], "load")
    of_target = {name: options.pop(name) for name in target_names if name in options}
    EngineOptions(rule=rule, **options)  # a mistake should not cost the reading of a model
    with native.using_level(of_target.get("cpu_level")):  # a target that has no engine leaves nothing behind
        made = Target(target, device=device, dtype=dtype, quantize=quantize, **of_target)
        return made.engine(drafter, rule=rule, **options)
