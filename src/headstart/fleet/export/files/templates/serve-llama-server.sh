#!/usr/bin/env bash
# Starts llama-server with this export. More options may follow: ./serve-llama-server.sh --port 8081
# LLAMA_SERVER names the program where it is not on the PATH.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec "${LLAMA_SERVER:-llama-server}"{{ " --device none --spec-draft-device none" if one.cpu }} \
  --model {{ target.name | quoted }} \
{# What speaks of numbers or of vLLM's metrics is no option here. #}
{% set others = ("model", "dtype", "speculative-config", "custom-histogram-buckets") %}
{% set names = {"max-model-len": "ctx-size", "served-model-name": "alias"} %}
{% for name, value in one.values.items() if name not in others and value is not none %}
  {{ as_flags({ names.get(name, name): value }) | map("quoted") | join(" ") }} \
{% endfor %}
  --spec-draft-model "$here"/drafter/head.gguf \
  --spec-type draft-{{ manifest.drafter.kind }} \
  --spec-draft-n-max {{ manifest.depth }} \
  --metrics \
  "$@"
