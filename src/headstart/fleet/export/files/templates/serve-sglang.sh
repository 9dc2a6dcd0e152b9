#!/usr/bin/env bash
# Starts one SGLang engine with this export. More options may follow: ./serve-sglang.sh --port 30001
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec python3 -m sglang.launch_server{{ " --device cpu" if one.cpu }} \
  --model-path {{ target.name | quoted }} \
{# Options that mean what those of vLLM mean. #}
{% set others = ("model", "speculative-config", "custom-histogram-buckets") %}
{% for name, value in one.values.items() if name not in others and value is not none %}
  {{ as_flags({ {"max-model-len": "context-length"}.get(name, name): value }) | map("quoted") | join(" ") }} \
{% endfor %}
  --speculative-algorithm {{ {"eagle3": "EAGLE3", "draft_model": "STANDALONE", "ngram": "NGRAM"}[manifest.drafter.kind] }} \
{# A chain of K tokens is K steps of one candidate each, and K + 1 tokens to verify: the pending one is counted. #}
{% if manifest.drafter.kind == "ngram" %}
  --speculative-ngram-max-bfs-breadth 1 \
{% else %}
  --speculative-draft-model-path {% if one.has_drafter %}"$here"/drafter{% else %}{{ one.speculation["model"] | quoted }}{% endif %} \
  --speculative-num-steps {{ manifest.depth }} \
  --speculative-eagle-topk 1 \
{% endif %}
  --speculative-num-draft-tokens {{ manifest.depth + 1 }} \
  --enable-metrics \
  "$@"
