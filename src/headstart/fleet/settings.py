"""`--set KEY=VALUE`: options of an engine that headstart has no option of its own for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from headstart.base.errors import InvalidOption


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """The command line's KEY=VALUE, ... as a mapping; values are read as YAML.

    Raises:
        InvalidOption: a pair has no key or no value, or its value is no YAML.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().lstrip("-").replace("_", "-")
        hint = "for example --set max-num-seqs=64"
        if not equals or not name:
            raise InvalidOption(f"--set {pair!r} is not KEY=VALUE", hint=hint)
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InvalidOption(f"--set {pair!r}: the value cannot be read as YAML", hint=hint) from error
    return found
