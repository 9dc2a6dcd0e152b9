"""`README.md` of an export: what it is, how to start it, what to expect, and what to look after. In plain words."""

from __future__ import annotations

import shlex

from headstart.fleet.export.files.clusters import CLAIM
from headstart.fleet.export.files.deployment import Deployment
from headstart.fleet.export.manifest import Expected

_KINDS = {
    "eagle3": "an EAGLE-3 head",
    "medusa": "Medusa heads, each head's likeliest token",
    "draft_model": "a small draft model",
    "ngram": "matches in the text itself (n-grams)",
    "suffix": "matches in a suffix tree of past texts",
}


def readme(one: Deployment) -> str:
    manifest = one.manifest
    engine = {"vllm": "vLLM", "sglang": "SGLang"}[manifest.engine]
    kind = _KINDS[manifest.drafter.kind]
    parts = [
        f"# {one.name}, with speculation in {engine}",
        f"Written by `{manifest.command}` on {manifest.created[:10]}.",
        f"The target is `{manifest.target.name}` in {manifest.target.dtype}. Drafts come from {kind}, "
        f"K = {manifest.depth} tokens a step. Speculation changes how fast text comes, not what it says: {engine} "
        "keeps a drafted token only by an exact rule.",
        _warnings(one),
        _expected(one),
        _depths(one),
        _start(one),
        _files(one),
        _watching(one),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _warnings(one: Deployment) -> str:
    if not one.manifest.warnings:
        return ""
    return "## Know this first\n\n" + "\n".join(f"- {line}" for line in one.manifest.warnings)


def _expected(one: Deployment) -> str:
    expected = one.manifest.expected
    if expected is None:
        return (
            "## What to expect\n\nNothing was measured for this export, so it promises nothing and has no alarm for "
            "low acceptance. Write it again without `--no-measure`."
        )
    whole = expected.tokens_per_forward
    interval = "" if whole.low is None else f" ({whole.low:.2f} to {whole.high:.2f}, {whole.level:.0%} interval)"
    return (
        f"## What to expect\n\n{whole.value:.2f} tokens per forward of the target{interval}, counted as generated "
        "tokens over forwards that give a request tokens: G / (G - A) of the engine's counters. Measured "
        f"{_conditions(expected)}. Other prompts give other figures: measure on your own with `--prompts`."
        f"\n\n{_positions(expected)}"
    )


def _conditions(expected: Expected) -> str:
    how = "greedy" if expected.temperature == 0 else f"at temperature {expected.temperature:g}"
    chat = ", through the chat template" if expected.chat else ""
    return (
        f"with headstart's own engine on {expected.prompts.count} prompts ({expected.prompts.source}), {how}, "
        f"{expected.max_tokens} new tokens each{chat}"
    )


def _positions(expected: Expected) -> str:
    rows = [
        f"| {each.position} | {_share(each.value)} | {_share(each.low)} to {_share(each.high)} | {each.tested} |"
        for each in expected.by_position
    ]
    return "\n".join(["| position | accepted | 95% interval | tested |", "|---:|---:|---:|---:|", *rows])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _depths(one: Deployment) -> str:
    manifest = one.manifest
    table = manifest.depth_by_batch
    if not table:
        return ""
    source = f"Costs: {manifest.costs.source}."
    if manifest.costs.source.startswith("assumption"):
        advice = (
            "That is not your machine. Run `headstart doctor --target ... --drafter ... --json costs.json` on one that "
            "will serve, and export again with `--costs costs.json`."
        )
        return f"## K\n\n{source} {advice}"
    rows = [f"| {each.batch} | {each.depth or 'do not speculate'} | {each.speedup:.2f}x |" for each in table]
    off = (
        "Speculation pays at all of them."
        if manifest.off_from is None
        else f"From {manifest.off_from} requests at once guesses no longer pay: serve such load without speculation."
    )
    head = ["| requests at once | best K | predicted speedup |", "|---:|---:|---:|"]
    words = "Predictions, by the acceptance above and these costs; measure before you rely on them."
    return "\n".join([f"## K\n\n{source} {words} {off}\n", *head, *rows])


def _start(one: Deployment) -> str:
    if one.manifest.engine == "sglang":
        return "## Start it\n\n    ./serve-sglang.sh --port 30000"
    text = (
        "## Start it\n\n"
        f"    headstart launch {shlex.quote(one.folder)}\n"
        "    ./serve-vllm.sh --port 8000            # one engine\n"
        "    docker compose up                      # two engines, a router, Prometheus\n"
        "    helm install headstart vllm/vllm-stack -f k8s/production-stack-values.yaml\n"
        "    kubectl apply -f k8s/kserve.yaml\n"
        "    serve run ray-serve.yaml"
    )
    places = []
    if one.target_is_local:
        places.append(f"the target at `{one.manifest.target.name}` (clusters: `{one.mount}/target`)")
    if one.has_drafter:
        places.append(f"the drafter at `{one.speculation['model']}` (clusters: `{one.mount}/drafter`)")
    if places:
        text += (
            f"\n\nThe files expect {' and '.join(places)}. `serve-vllm.sh`, `compose.yaml` and `headstart launch` also "
            f"work where this folder was moved. In a cluster make a volume claim named `{CLAIM}` that holds both."
        )
    return text


def _files(one: Deployment) -> str:
    rows = {
        "manifest.json": "everything measured, hashes, versions, warnings; `headstart watch` compares with it",
        "prompts.jsonl": "the prompts that were measured, as token ids (your text, if you gave prompts of your own)",
        "drafter/": "the drafter, in a form that vLLM, SGLang and headstart read alike",
        "vllm.yaml": "for `vllm serve --config`",
        "serve-sglang.sh": "starts SGLang",
        "prometheus.yml, prometheus-rules.yaml": "what Prometheus asks, and alarms that say what to do",
        "prometheus-rules-test.yaml": "`promtool test rules` shows that each alarm works",
        "grafana.json": "a dashboard to import",
    }
    vllm = one.manifest.engine == "vllm"
    left_out = {"serve-sglang.sh"} if vllm else {"vllm.yaml", "grafana.json"}
    if not one.has_drafter:
        left_out.add("drafter/")
    if one.manifest.expected is None:
        left_out.add("prompts.jsonl")
    lines = [f"| `{name}` | {what} |" for name, what in rows.items() if name not in left_out]
    return "\n".join(["## Files", "", "| file | what it is |", "|---|---|", *lines])


def _watching(one: Deployment) -> str:
    text = (
        "## Keep watch\n\n    headstart watch http://ENGINE:8000 ...\n\nIf tokens per forward are far below the figure "
        "above from the first minute, the engine reads the drafter wrong, or your traffic is not like the prompts: "
        "`headstart export ... --verify` tells the one from the other. If they fall later, the traffic has changed: "
        "`headstart adapt` trains the drafter on it."
    )
    if one.manifest.engine == "sglang":
        return text.replace(" `headstart export ... --verify` tells the one from the other.", "")
    return text
