#!/usr/bin/env bash
# Starts one SGLang engine with this export. More options may follow: ./serve-sglang.sh --port 30001
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec python3 -m sglang.launch_server{{ " --device cpu" if one.cpu }} \
{% for option in sglang_options(one) %}
  {{ option }} \
{% endfor %}
  "$@"
