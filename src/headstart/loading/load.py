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
from headstart.types import EngineRule

if TYPE_CHECKING:
    from headstart.drafters.matching.text_index import TextIndex

AnyDrafter = DrafterName | Drafter | Stack
"""A name, a path, a hub id, a stack, or a drafter of one's own."""


class Target:
    """A model that is read once, and makes any number of engines.

    Config and tokenizer are read at once, the weights when the first engine is made.

    Args:
        source: a model directory, a .gguf file, a hub id, or "bundled" (default).
        options: by name, of these (`headstart.loading.options.TargetOptions` says more of each):
            device: "auto" (default: a GPU if there is one), "cpu", "cuda", "cuda:1".
            dtype: "auto" (default: the checkpoint's), "float32", "bfloat16", "float16", or a torch.dtype.
            quantize: None (default: as the files are), "int8", "int8-grouped", "int4", or "none" (floats).
            max_length: the most tokens of prompt and text together, or "auto" for as many as fit into memory. Default:
                the model's limit, at most 4096.
            threads: threads that compute. Default: one for each core.
            cpu_level: the instructions that the kernels use, such as "avx2". Default: the best that the processor has.
            packed_file: whether large weights are kept in a file of the cache directory as the kernels read them.
                Default: True.
            kv_cache_dtype: "auto" (default: the dtype), or "int8" for keys and values rounded to 8 bits.
            probe: "kept" (default) checks the kernels against transformers once for the same files, "always" each time.
            trust_remote_code: whether Python code of the model's repository may run. Default: False.

    Raises:
        InvalidOption: an option does not exist, or has a value outside its range.
        ModelNotFound: the path or hub id leads to no model.
        UnsupportedModel: the model cannot be run exactly, and the message says why.

    Examples:
        Two engines on one copy of the weights:

        >>> import headstart as hs
        >>> target = hs.Target("bundled", dtype="float32")
        >>> plain, ngram = target.engine("none"), target.engine("ngram")
        >>> sampling = hs.Sampling(max_tokens=16)
        >>> plain.generate("x = [0, 0,", sampling).text == ngram.generate("x = [0, 0,", sampling).text
        True
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
        """The model as it was named."""
        return self.checkpoint.label

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers; None if the model has none."""
        return self.checkpoint.tokenizer

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The ids of all tokens that end a text."""
        return self.checkpoint.eos_token_ids

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """The sampling parameters of the model's generation_config.json, by name; {} if it has none."""
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
        """Make an engine on this target, with a cache of its own.

        Args:
            drafter: one of the following, or a list of them. In a list the first drafter that has a draft drafts in
                each step, unless a later one should do better; its last name may be "auto".
                "auto" (default) is what is recommended for the target; else what `headstart doctor` found out here;
                else n-gram lookup with the head that is bundled for SmolLM2-135M-Instruct or that the checkpoint
                holds; else "suffix" and "ngram". It is never a second model that nothing has measured. `describe()`
                says why.
                "none" or None drafts nothing.
                "ngram", "suffix", "lookahead", "prediction" (the request's `Drafting.prediction`), "early-exit" (the
                target's own first layers), "self-int4" (its own weights on 4 bits) and "mtp" (the head in its
                checkpoint) need no other files.
                The directory, .gguf file or hub id of a causal LM is a draft model; that of Medusa, EAGLE, P-EAGLE,
                DFlash or DSpark heads, or of a trained exit, is a head. Bundled heads are "medusa" and "eagle3" for the
                bundled target, and "eagle3" for SmolLM2-135M-Instruct.
                "ahead:" before the name of a draft model or of "early-exit" drafts while the target verifies.
                "MODEL(DRAFTER, ...)" or a `headstart.Stack` is a draft model with drafters of its own.
                A `Drafter` of your own is taken as it is.
            options: by name, of these (`headstart.loading.options.EngineOptions` says more of each):
                rule: "exact" (accepts the most drafts), "coupled" (a seed gives one text with any drafter, or none), or
                    "auto" (default: "coupled" for requests with a seed, "exact" for all others).
                num_speculative_tokens: the most tokens drafted in a step. Default: as pacing and drafter decide.
                pacing: "adaptive" (default: as many as should be fastest, possibly none), "fixed", or a `Pacing`.
                max_batch_size: the most requests that run at once. Default: 8.
                prefill_chunk: the most tokens of prompts that are read in a step. Default: 512.
                prefix_cache: whether texts are kept for requests that begin alike. Default: False.
                draft_tree: "auto" (default), "none" (chains), "top-k", "sampled" or "mixed".
                draft_quantize: "auto" (default), "int8", "int8-grouped", "int4" or None, for the drafter's weights.
                draft_device: where draft models run. Default: where the target runs.
                ahead: whether the drafter drafts while the target verifies. Default: False.
                draft_threads: cores of a drafter that drafts ahead. Default: 1.
                draft_residual: factor, above 0 and at most 1, for the draft model's likeliest tokens when it draws,
                    for drafting ahead. Default: none.
                index: a file of `headstart index`, from which "ngram" and "suffix" copy too. Default: none.
                suffix_store: past outputs for "suffix": "auto" (default: an empty store), a `SuffixStore`, or None.

        Returns:
            The engine. The target's weights are shared by all of its engines.

        Raises:
            InvalidOption: an option does not exist, has a value outside its range, or does not go with the model.
            ModelNotFound: a path or hub id leads to no model.
            UnsupportedModel: the model cannot be run exactly, and the message says why. `PickleCheckpoint` and
                `RemoteCodeRequired` are kinds of it.
            IncompatibleTokenizer: the tokens of a draft model cannot be compared with the target's.
            NotEnoughMemory: weights and caches do not fit into the memory that is free.
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
            kv_cache_dtype=given.kv_cache_dtype if role == "target" else "auto",
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
    rule: EngineRule = "auto",
    **options: Any,
) -> Engine:
    """Load a model and a drafter, and return the engine that runs them.

    `load(target, drafter, ...)` is short for `Target(target, ...).engine(drafter, ...)`.

    Args:
        target: the model whose text you want: a directory with config.json and safetensors, a .gguf file, a hub id, or
            "bundled", a small model of Python code. Default: "bundled".
        drafter: what guesses the next tokens: "auto" (default), "none", "ngram", "suffix", the path or hub id of a
            small model or of a trained head, a `Drafter` of your own, or a list of these. See `Target.engine`.
        device: "auto" (default: a GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "auto" (default: the checkpoint's), "float32", "bfloat16", "float16", or a torch.dtype.
        quantize: None (default: as the files are), "int8", "int8-grouped", "int4", or "none" (floats).
        rule: "exact" (accepts the most drafts), "coupled" (a seed gives one text with any drafter, or none), or "auto"
            (default: "coupled" for requests with a seed, "exact" for all others).
        options: any other field of `TargetOptions` and `EngineOptions`, by name. The usual ones are `max_length` (the
            most tokens of prompt and text together; default: the model's limit, at most 4096), `max_batch_size`
            (requests that run at once; 8), `num_speculative_tokens` (the most tokens drafted in a step), `pacing`
            ("adaptive" or "fixed"), `prefix_cache` (False), `threads`, and `trust_remote_code` (False).

    Returns:
        An engine with a cache of its own. Its first load of a pair measures costs for about a second.

    Raises:
        InvalidOption: an option does not exist, has a value outside its range, or does not go with the model.
        ModelNotFound: a path or hub id leads to no model.
        UnsupportedModel: the model cannot be run exactly, and the message says why. `PickleCheckpoint` and
            `RemoteCodeRequired` are kinds of it.
        IncompatibleTokenizer: the tokens of a draft model cannot be compared with the target's.
        NotEnoughMemory: weights and caches do not fit into the memory that is free.

    Examples:
        >>> import headstart as hs
        >>> engine = hs.load()  # the bundled model
        >>> engine.generate("def add(a, b):", hs.Sampling(max_tokens=8)).finish_reason
        'length'

        A model of your own with a draft model, in float32, for one request at a time:

        >>> engine = hs.load("path/to/target", "path/to/draft", dtype="float32", max_batch_size=1)
        >>> engine.drafter_name
        'path/to/draft'

        Options that do not exist are refused, with a hint:

        >>> hs.load(max_lenght=512)
        Traceback (most recent call last):
        headstart.base.errors.InvalidOption: ...
    """
    target_names = [field.name for field in fields(TargetOptions)]
    engine_names = [field.name for field in fields(EngineOptions)]
    reject_unknown(options, ["target", "drafter", *target_names, *engine_names], "load")
    of_target = {name: options.pop(name) for name in target_names if name in options}
    EngineOptions(rule=rule, **options)  # a mistake should not cost the reading of a model
    with native.using_level(of_target.get("cpu_level")):  # a target that has no engine leaves nothing behind
        made = Target(target, device=device, dtype=dtype, quantize=quantize, **of_target)
        return made.engine(drafter, rule=rule, **options)
