"""What is kept of a checkpoint, and what was: see `headstart.model.kept`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headstart.model import loading
from headstart.model.codes import is_quantised
from headstart.model.gguf.files import is_gguf
from headstart.model.kept import config as configs
from headstart.model.kept import store, tokenizer
from headstart.model.kept.weights import holds
from headstart.model.reading import first_line
from headstart.model.recipes import find_recipe
from headstart.model.tokens.tokenizers import load_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """What transformers made of a model."""

    config: Any
    tokenizer: Any
    generation: Mapping[str, Any]
    parameters: int


@dataclass(frozen=True)
class Kept:
    """Of the model in a directory or a GGUF file."""

    source: str
    facts: Mapping[str, Any] | None
    """None where nothing is kept."""

    @classmethod
    def of(cls, source: str) -> Kept:
        """What is kept of the model at a place; nothing of one that is on the hub."""
        if not (Path(source).is_dir() or is_gguf(source)):
            return cls(source, None)
        try:
            return cls(source, store.facts_of(source))
        except Exception as error:  # loading it will say what is wrong, if it is the model
            log.info("%s: nothing is kept of it (%s)", source, first_line(error))
            return cls(source, None)

    def keeps(self, config: Any) -> bool:
        """Whether anything can be kept of the model."""
        return self.facts is not None and not is_quantised(config)

    @cached_property
    def _found(self) -> store.Found | None:
        return None if self.facts is None else store.read_found({"of": "model", **self.facts})

    @property
    def config(self) -> configs.KeptConfig | None:
        """Its config."""
        found, source = self._found, self.source
        if found is None:
            return None
        make = lambda: loading.load_config(source, trust_remote_code=False)  # noqa: E731
        return configs.KeptConfig(found.config, found.recipe, make)

    @cached_property
    def known(self) -> tuple[Any, Any] | None:
        """Its config and its tokenizer, without transformers."""
        found, source = self._found, self.source
        if found is None:
            return None
        made = None
        if found.tokenizer is not None:
            made = tokenizer.kept_tokenizer(found.tokenizer, lambda: load_tokenizer(source, trust_remote_code=False))
            if made is None:
                return None
        return self.config, made

    @property
    def generation(self) -> Mapping[str, Any] | None:
        """Its generation config."""
        return None if self._found is None else self._found.generation

    @property
    def parameters(self) -> int | None:
        """How many numbers it has."""
        return None if self._found is None else self._found.parameters

    def passed(self, conditions: Mapping[str, Any]) -> store.Passed | None:
        """How it passed the probe under these conditions."""
        return None if self.facts is None else store.read_passed({"of": "probe", **self.facts, **conditions})

    def forget(self, conditions: Mapping[str, Any]) -> None:
        """Remove that."""
        if self.facts is not None:
            store.forget({"of": "probe", **self.facts, **conditions})

    def keep(self, conditions: Mapping[str, Any], passed: store.Passed, made: Made) -> None:
        """Keep that, and what the model is where that is not known yet."""
        if self.facts is None or not self.keeps(made.config) or not holds(self.source, made.config, passed):
            return
        if self.known is None and not self._keep_model(made):
            return
        store.write({"of": "probe", **self.facts, **conditions}, passed)

    def _keep_model(self, made: Made) -> bool:
        recipe, stated = find_recipe(made.config), configs.to_keep(made.config)
        if recipe is None or stated is None or self.facts is None:
            return False
        words, said = None, None
        with suppress(OSError, ValueError, TypeError):
            words = None if made.tokenizer is None else tokenizer.to_keep(made.tokenizer)
            said = json.loads(json.dumps(dict(made.generation)))
        if said is None or (words is None and made.tokenizer is not None):
            return False
        store.write({"of": "model", **self.facts}, store.Found(stated, recipe, said, words, made.parameters))
        return True


NOTHING_KEPT = Kept("", None)
