"""Copy a trained target and draft into the package, and check that they belong there.

Both must be bfloat16 safetensors of one tokenizer, and everything together at most 45 MB. The tokenizer's class is
written under the name that transformers 4 knows too, so that other engines can read the pair.
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors import safe_open

FILES = ("config.json", "generation_config.json", "model.safetensors", "provenance.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
LIMIT = 45_000_000  # bytes


def copy(source: Path, out: Path) -> None:
    """One model's files, readable by all, with the portable tokenizer class."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (*FILES, *TOKENIZER):
        shutil.copyfile(source / name, out / name)
    config = json.loads((out / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for name in ("backend", "is_local", "local_files_only"):
        config.pop(name, None)
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def check(pair: Path) -> int:
    """Size in bytes; refuses another dtype, two tokenizers, or too much."""
    for role in ("target", "draft"):
        with safe_open(pair / role / "model.safetensors", "pt") as weights:
            kinds = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 (not a dict)
        if kinds != {"BF16"}:
            raise SystemExit(f"{role}: weights are {kinds}, not bfloat16")
    if (pair / "target" / TOKENIZER[0]).read_bytes() != (pair / "draft" / TOKENIZER[0]).read_bytes():
        raise SystemExit("target and draft have different tokenizers")
    size = sum(file.stat().st_size for file in pair.rglob("*") if file.is_file())
    if size > LIMIT:
        raise SystemExit(f"the pair takes {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}")
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True, help="folder written by tools/train_target.py")
    parser.add_argument("--draft", type=Path, required=True, help="folder written by headstart train draft")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of tools/corpus.py")
    parser.add_argument("--pair", type=Path, default=Path("src/headstart/pair"), help="where they go")
    options = parser.parse_args()
    copy(options.target, options.pair / "target")
    copy(options.draft, options.pair / "draft")
    shutil.copyfile(options.manifest, options.pair / "corpus.json")
    print(f"{check(options.pair) / 1e6:.1f} MB in {options.pair}")


if __name__ == "__main__":
    main()
