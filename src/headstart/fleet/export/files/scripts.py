"""`serve-vllm.sh` and `serve-sglang.sh`: one engine on this machine."""

from __future__ import annotations

import shlex
from typing import Any

from headstart.fleet.export.files.deployment import Deployment, as_flags

_ALGORITHMS = {"eagle3": "EAGLE3", "draft_model": "STANDALONE", "ngram": "NGRAM"}
_HERE = 'here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)'
_SGLANG_NAMES = {"max-model-len": "context-length"}


def serve_vllm(one: Deployment) -> str:
    """A script that starts vLLM; more options may follow it. A folder that was moved keeps working."""
    lines = [
        "#!/usr/bin/env bash",
        "# Starts one vLLM engine with this export. Options of `vllm serve` may follow: ./serve-vllm.sh --port 8001",
        "set -euo pipefail",
        _HERE,
        'config="$here/vllm.yaml"',
    ]
    if one.has_drafter:
        lines += [
            f"written={shlex.quote(one.folder)}",
            'if [ "$here" != "$written" ]; then',
            "  # The folder was moved: the drafter that lies beside this script is meant.",
            '  config="$(mktemp -d)/vllm.yaml"',
            '  sed "s|$written/drafter|$here/drafter|" "$here/vllm.yaml" > "$config"',
            "fi",
        ]
    if one.cpu:
        lines.append('export VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-4}"  # GiB')
    return "\n".join([*lines, 'exec vllm serve --config "$config" "$@"', ""])


def sglang_flags(one: Deployment, drafter: str | None) -> list[str]:
    """Options of SGLang's server that mean what `values` mean. A chain of K tokens is K steps of one candidate each,
    and K + 1 tokens to verify: the pending one is counted."""
    depth = one.manifest.depth
    values: dict[str, Any] = {
        _SGLANG_NAMES.get(name, name): value
        for name, value in one.values.items()
        if name not in ("model", "speculative-config", "custom-histogram-buckets")
    }
    kind = one.manifest.drafter.kind
    words = ["--model-path", one.manifest.target.name, *as_flags(values)]
    words += ["--speculative-algorithm", _ALGORITHMS[kind]]
    if kind == "ngram":
        words += ["--speculative-ngram-max-bfs-breadth", "1"]
    else:
        words += ["--speculative-draft-model-path", drafter or one.speculation["model"]]
        words += ["--speculative-num-steps", str(depth), "--speculative-eagle-topk", "1"]
    return [*words, "--speculative-num-draft-tokens", str(depth + 1), "--enable-metrics"]


def serve_sglang(one: Deployment) -> str:
    """A script that starts SGLang; more options may follow it."""
    place = "@here@/drafter" if one.has_drafter else None
    words = [shlex.quote(word) for word in sglang_flags(one, place)]
    words = ['"$here"/drafter' if word == "@here@/drafter" else word for word in words]
    device = " --device cpu" if one.cpu else ""
    lines = [
        "#!/usr/bin/env bash",
        "# Starts one SGLang engine with this export. More options may follow: ./serve-sglang.sh --port 30001",
        "set -euo pipefail",
        _HERE,
        f"exec python3 -m sglang.launch_server{device} \\",
    ]
    pairs: list[str] = []
    for word in words:
        if word.startswith("--") or not pairs:
            pairs.append(word)
        else:
            pairs[-1] += f" {word}"
    return "\n".join([*lines, *(f"  {pair} \\" for pair in pairs), '  "$@"', ""])
