"""Copy a head that was trained for a public model into the package, on int8, and say which models it belongs to.

    python tools/install_head.py HEAD --target MODEL --name smollm2-135m-instruct

HEAD is what `headstart train eagle3` wrote, MODEL the directory of its target. The head is stored at half its size
(`stored_tensors.rounded`) and is refused above 12 MB. `headstart.load` offers it to every target whose config has the
fields that are recorded here.
"""

import argparse
import json
import shutil
from pathlib import Path

from install_pair import named
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from headstart.loading.known_heads import FOLDER, TARGET
from headstart.model.heads.stored_tensors import rounded

LIMIT = 12_000_000  # bytes
FIELDS = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size", "rope_theta", "eos_token_id"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("head", type=Path)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--name", required=True, help="of the directory in the package")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    out = options.out / options.name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    save_file(rounded(load_file(options.head / "model.safetensors")), out / "model.safetensors", {"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    target = AutoConfig.from_pretrained(options.target).to_dict()
    target |= target.get("rope_parameters") or {}
    for name in ("config.json", "provenance.json"):
        record = named(json.loads((options.head / name).read_text()))
        if name == "config.json":
            record["headstart"] |= {"target": options.name, TARGET: {field: target[field] for field in FIELDS}}
        (out / name).write_text(json.dumps(record, indent=2) + "\n")
    size = sum(file.stat().st_size for file in out.iterdir())
    if size > LIMIT:
        shutil.rmtree(out)
        raise SystemExit(f"the head takes {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}")
    print(f"{size / 1e6:.1f} MB in {out}")


if __name__ == "__main__":
    main()
