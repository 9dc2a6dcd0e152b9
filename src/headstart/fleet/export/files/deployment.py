"""What every file of an export is made from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from headstart.fleet.export.architectures import VERSIONS
from headstart.fleet.export.manifest import Manifest

PORT = 8000
ROUTER = "vllm-router==0.1.17"
ENGINES = ("engine-1", "engine-2")
"""Of the compose file."""
CLAIM = "headstart-models"
"""The name of the claim of a cluster's volume, which the user makes."""
_LEAST = 1.02
"""A bound below this is hardly above plain decoding, and falling below it no sign of anything."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One export.

    name: the model's, for clients. folder: of the export, where it was written. values: of `vllm.yaml`. mount: where a
    cluster's volume is mounted. cpu: engines run on processors. tpot: seconds per output token whose P99 is too slow;
    None compares with the day before.
    """

    manifest: Manifest
    name: str
    folder: str
    values: Mapping[str, Any]
    mount: str
    cpu: bool
    tpot: float | None

    @property
    def sglang(self) -> bool:
        """Whether SGLang runs it, and not vLLM."""
        return self.manifest.engine == "sglang"

    @property
    def llamacpp(self) -> bool:
        """Whether llama-server runs it."""
        return self.manifest.engine == "llama.cpp"

    @property
    def bound(self) -> float | None:
        """The least tokens per forward to expect; None where nothing was measured, or hardly more than one."""
        expected = self.manifest.expected
        low = None if expected is None else expected.tokens_per_forward.low
        return low if low is not None and low >= _LEAST else None

    @property
    def speculation(self) -> dict[str, Any]:
        return dict(self.values["speculative-config"])

    @property
    def target_is_local(self) -> bool:
        """Whether the target is a folder of the serving machine, not a hub id."""
        return self.manifest.target.name.startswith("/")

    @property
    def has_drafter(self) -> bool:
        """Whether there is a folder `drafter/`."""
        return self.manifest.drafter.folder is not None

    @property
    def image(self) -> str:
        return f"vllm/vllm-openai-cpu:v{VERSIONS['vllm']}" if self.cpu else f"vllm/vllm-openai:v{VERSIONS['vllm']}"

    @property
    def gpus(self) -> int:
        """Of one engine."""
        found = 1
        for name in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
            value = self.values.get(name, 1)
            found *= value if isinstance(value, int) else 1
        return 0 if self.cpu else found

    def in_cluster(self, target: str | None = None, drafter: str | None = None) -> dict[str, Any]:
        """The values of `vllm.yaml` with the places of a cluster: by default target/ and drafter/ below the mount."""
        found = json.loads(json.dumps(self.values))
        if self.target_is_local:
            found["model"] = target or f"{self.mount}/target"
        if self.has_drafter:
            found["speculative-config"]["model"] = drafter or f"{self.mount}/drafter"
        return dict(found)

    def on_volume(self, *, mounted: bool) -> str:
        """A comment about what a cluster's volume holds; empty where that is nothing. mounted: and where it is."""
        parts = (["target/"] if self.target_is_local else []) + (["drafter/"] if self.has_drafter else [])
        place = f"is mounted at {self.mount} and " if mounted else ""
        return f'# The volume of the claim "{CLAIM}" {place}holds {" and ".join(parts)}.' if parts else ""

    @property
    def slug(self) -> str:
        """The name as Kubernetes and compose take names: small letters, digits and dashes."""
        found = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40].strip("-")
        return found if found and found[0].isalpha() else f"model-{found}".rstrip("-")


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # the library has no types
    """Block style with indented lists, which people expect."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _numbers(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    flat = all(isinstance(each, int | float) for each in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flat)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _numbers)


def as_yaml(values: Any, head: str = "") -> str:
    """YAML in the given order. head: comment lines before it, without their marks."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=1000)
    return "".join(f"# {line}\n".replace("# \n", "#\n") for line in head.splitlines()) + text
