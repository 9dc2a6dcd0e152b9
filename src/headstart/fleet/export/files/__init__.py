"""The files of an export, each made from a `Deployment`; `all_files` names them.

Each is a template in `templates/`. Those of YAML and JSON are read again and written in one style: whatever stands
between braces there becomes a value of YAML, so that no name or path can break a file. Nothing here touches the folder
of the export. What is a path on the serving machine stands in `Deployment`; in clusters the same things lie below the
mount.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import yaml
from markupsafe import Markup

from headstart.fleet.export.architectures import VERSIONS
from headstart.fleet.export.files import queries
from headstart.fleet.export.files.alert_tests import rule_tests
from headstart.fleet.export.files.deployment import CLAIM, ENGINES, PORT, ROUTER, Deployment, as_yaml
from headstart.fleet.export.manifest import PositionRecord
from headstart.fleet.vllm import as_flags

_VLLM_HEAD = """For vLLM: vllm serve --config vllm.yaml. Keys are its long options.
`method` must stay: without it vLLM guesses it from the drafter's path."""
_SHARED = ("prometheus.yml", "prometheus-rules.yaml", "README.md")
_OF_LLAMACPP = ("serve-llama-server.sh", "README.md")
_OF_VLLM = ("serve-vllm.sh", "compose.yaml", "k8s/production-stack-values.yaml", "k8s/kserve.yaml", "ray-serve.yaml",
            "grafana.json")  # fmt: skip


def all_files(one: Deployment) -> dict[str, str]:
    """The text of every file but the drafter's, the manifest and the prompts, by its place in the folder. Scripts end
    in ".sh"."""
    if one.llamacpp:
        return {name: written(name, one) for name in _OF_LLAMACPP}
    own = {} if one.sglang else {"vllm.yaml": as_yaml(dict(one.values), _VLLM_HEAD)}
    names = (*(("serve-sglang.sh",) if one.sglang else _OF_VLLM), *_SHARED)
    found = own | {name: written(name, one) for name in names}
    alerts = yaml.safe_load(found["prometheus-rules.yaml"])["groups"][0]["rules"][1:]
    return {**found, "prometheus-rules-test.yaml": rule_tests(one, alerts)}


def written(name: str, one: Deployment) -> str:
    """One file, from its template."""
    environment = _VALUES if Path(name).suffix in (".yaml", ".yml", ".json") else _TEXT
    text = environment.get_template(name).render(
        one=one, manifest=one.manifest, target=one.manifest.target, expected=one.manifest.expected, bound=one.bound,
        claim=CLAIM, engines=ENGINES, port=PORT, router=ROUTER, version=VERSIONS["vllm"], rate=queries.rate,
        series=partial(queries.series, one), growth=partial(queries.growth, one), labels=partial(queries.labels, one),
        as_flags=as_flags,
    )  # fmt: skip
    if environment is _TEXT:
        return text
    values, head = yaml.safe_load(text), re.match(r"(?:# .*\n)*", text)
    if name.endswith(".json"):
        return json.dumps({**values, "panels": _placed(values["panels"])}, indent=1) + "\n"
    return as_yaml(values, "" if head is None else head[0].replace("# ", "", 1).replace("\n# ", "\n"))


def _placed(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Panels of Grafana with ids and places: three to a line, rows across."""
    x = y = 0
    for number, each in enumerate(panels, start=1):
        row = each["type"] == "row"
        if row or x == 24:
            y += 8 if x else 0
            x = 0
        each["id"] = number
        each["gridPos"] = {"h": 1 if row else 8, "w": 24 if row else 8, "x": x, "y": y}
        if row:
            y += 1
        else:
            x += 8
    return panels


class _Inline(yaml.SafeDumper):  # type: ignore[misc]  # the library has no types
    """Values on one line, texts in quotes."""


_Inline.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def _value(value: Any) -> Any:
    """A value of YAML, as it may stand anywhere; what is marked as safe, and what a macro makes, is taken as it is."""
    if isinstance(value, Markup):
        return value
    text = yaml.dump(
        [value], Dumper=_Inline, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    return Markup(text.strip()[1:-1])


def _share(each: PositionRecord) -> str:
    return "-" if each.value is None else f"{each.value:.0%}"


def _environment(**more: Any) -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **more,
    )
    found.filters |= {"quoted": shlex.quote, "share": _share}
    return found


_TEXT, _VALUES = _environment(), _environment(autoescape=True, finalize=_value)
