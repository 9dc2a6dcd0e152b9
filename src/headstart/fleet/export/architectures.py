"""Targets that a head can draft for in other engines, by engine: `architectures.yaml` says how they are known.

A test compares the list of vLLM with a vLLM that is installed.
"""

from __future__ import annotations

from pathlib import Path

import yaml

EAGLE3_TARGETS: dict[str, frozenset[str]] = {
    engine: frozenset(names)
    for engine, names in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
}
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "llama.cpp": "ggml 0.25.3"}
"""Whose sources the lists were read from, llama.cpp's as llama-cpp-python 0.3.36 carries them; vLLM's and llama.cpp's
are also those that the written files were tested with."""
