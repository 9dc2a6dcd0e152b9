#!/usr/bin/env bash
# Starts one vLLM engine with this export. Options of `vllm serve` may follow: ./serve-vllm.sh --port 8001
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
config="$here/vllm.yaml"
{% if one.has_drafter %}
written={{ one.folder | quoted }}
if [ "$here" != "$written" ]; then
  # The folder was moved: the drafter that lies beside this script is meant.
  config="$(mktemp -d)/vllm.yaml"
  sed "s|$written/drafter|$here/drafter|" "$here/vllm.yaml" > "$config"
fi
{% endif %}
{% if one.cpu %}
export VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-4}"  # GiB
{% endif %}
exec vllm serve --config "$config" "$@"
