"""Copy a trained target, its draft and its heads into the package, and check that they belong there.

Weights must be bfloat16 safetensors, target and draft of one tokenizer, and all weights of the package together at most
64 MB. Medusa heads, which are mostly output matrices, are stored on int8, as the row kernels run them. The tokenizer's
class is written under the name that transformers 4 knows too, so that other engines can read the pair.
What is not given stays as it is.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from headstart.model.heads.stored_tensors import rounded

FILES = ("config.json", "generation_config.json", "model.safetensors", "provenance.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
HEADS = ("eagle3", "medusa")
ON_INT8 = "medusa"
KINDS = {"BF16", "I64", "BOOL"}
LIMIT = 64_000_000  # bytes


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


def copy_head(source: Path, out: Path) -> None:
    """A head's weights, config and provenance; in the latter, names of folders instead of where they were."""
    out.mkdir(parents=True, exist_ok=True)
    (weights,) = source.glob("*.safetensors")
    tensors = load_file(weights)
    save_file(rounded(tensors) if out.name == ON_INT8 else tensors, out / weights.name, {"format": "pt"})
    (out / weights.name).chmod(0o644)
    for name in ("config.json", "provenance.json"):
        record = named(json.loads((source / name).read_text()))
        (out / name).write_text(json.dumps(record, indent=2) + "\n")


def named(value: Any) -> Any:
    """The same, with paths reduced to their last part."""
    if isinstance(value, dict):
        return {key: named(each) for key, each in value.items()}
    if isinstance(value, list):
        return [named(each) for each in value]
    return Path(value).name if isinstance(value, str) and "/" in value and Path(value).exists() else value


def check(pair: Path) -> int:
    """Bytes of all weights of the package; refuses another dtype, two tokenizers, or too much."""
    for file in pair.rglob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            kinds = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 (not a dict)
        if not kinds <= (KINDS | {"I8", "F32"} if file.parent.name == ON_INT8 else KINDS):
            raise SystemExit(f"{file}: weights are {kinds}, not bfloat16")
    if (pair / "target" / TOKENIZER[0]).read_bytes() != (pair / "draft" / TOKENIZER[0]).read_bytes():
        raise SystemExit("target and draft have different tokenizers")
    package = pair.parent if (pair.parent / "__init__.py").is_file() else pair
    size = sum(file.stat().st_size for file in package.rglob("*.safetensors"))
    if size > LIMIT:
        raise SystemExit(f"the package's weights take {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}")
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, help="folder written by tools/train_target.py")
    parser.add_argument("--draft", type=Path, help="folder written by headstart train draft")
    for head in HEADS:
        parser.add_argument(f"--{head}", type=Path, help=f"folder written by headstart train {head}")
    parser.add_argument("--manifest", type=Path, help="manifest.json of tools/corpus.py")
    parser.add_argument("--pair", type=Path, default=Path("src/headstart/pair"), help="where they go")
    options = parser.parse_args()
    for role in ("target", "draft"):
        if getattr(options, role) is not None:
            copy(getattr(options, role), options.pair / role)
    for head in HEADS:
        if getattr(options, head) is not None:
            copy_head(getattr(options, head), options.pair / head)
    if options.manifest is not None:
        shutil.copyfile(options.manifest, options.pair / "corpus.json")
    print(f"{check(options.pair) / 1e6:.1f} MB of weights in {options.pair.parent}")


if __name__ == "__main__":
    main()
