"""Make trained heads (EAGLE-3 in the HF form, or Medusa) fit an inflated target, guessing what they guessed before.

    python benchmarks/inflate_head.py SOURCE OUT --target INFLATED

The same idea as `inflate.py`: the source fills the first corner of every weight, and what is added cannot write. The
target's added channels are zero, and so the head's must stay; everything else added is random. An EAGLE layer gets as
many heads, and so wide an MLP, as a layer of the inflated target has. Layer ids stay, since the layers that inflation
adds come last and add nothing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from inflate import STD
from safetensors.torch import load_file, save_file
from torch import Tensor


def grown(
    small: Tensor, shape: tuple[int, ...], generator: torch.Generator, *, silent: bool, blocks: int = 1
) -> Tensor:
    """`small` in the first corner of each of `blocks` equal ranges of columns; beside it zeros (silent) or noise."""
    large = torch.zeros(shape, dtype=torch.bfloat16)
    if not silent:
        large.normal_(std=STD, generator=generator)
    if small.dim() == 1:
        large[: len(small)] = small
        return large
    old, new = small.shape[1] // blocks, shape[1] // blocks
    for block in range(blocks):
        large[: small.shape[0], block * new : block * new + old] = small[:, block * old : (block + 1) * old]
    return large


def eagle(
    source: dict[str, Tensor], config: dict[str, Any], target: dict[str, Any], seed: int
) -> Iterator[tuple[str, Tensor]]:
    """The weights of the larger head. Rows that would write into added channels are zero."""
    generator = torch.Generator().manual_seed(seed)
    wide, dim = target["hidden_size"], target["head_dim"]
    queries, keys = target["num_attention_heads"] * dim, target["num_key_value_heads"] * dim
    inner = target["intermediate_size"]
    shapes = {
        "fc.weight": ((wide, 3 * wide), True, 3),
        "midlayer.self_attn.q_proj.weight": ((queries, 2 * wide), False, 2),
        "midlayer.self_attn.k_proj.weight": ((keys, 2 * wide), False, 2),
        "midlayer.self_attn.v_proj.weight": ((keys, 2 * wide), False, 2),
        "midlayer.self_attn.o_proj.weight": ((wide, queries), True, 1),
        "midlayer.mlp.gate_proj.weight": ((inner, wide), False, 1),
        "midlayer.mlp.up_proj.weight": ((inner, wide), False, 1),
        "midlayer.mlp.down_proj.weight": ((wide, inner), True, 1),
    }
    for name, small in source.items():
        if name.endswith("norm.weight"):
            gains = torch.rand(wide, generator=generator) + 0.5
            gains[: len(small)] = small.float() * math.sqrt(config["hidden_size"] / wide)
            yield name, gains
        elif name == "lm_head.weight":
            yield name, grown(small, (len(small), wide), generator, silent=False)
        elif name in shapes:
            shape, silent, blocks = shapes[name]
            yield name, grown(small, shape, generator, silent=silent, blocks=blocks)
        elif name in ("d2t", "t2d"):
            yield name, small
        else:
            raise ValueError(f"{name} is not a tensor of an EAGLE-3 head in the HF form")


def medusa(source: dict[str, Tensor], wide: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """The weights of the larger heads."""
    generator = torch.Generator().manual_seed(seed)
    for name, small in source.items():
        if name.endswith(".linear.bias"):
            yield name, grown(small, (wide,), generator, silent=True)
        elif name.endswith(".linear.weight"):
            yield name, grown(small, (wide, wide), generator, silent=True)
        else:
            yield name, grown(small, (len(small), wide), generator, silent=False)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path, help="directory of the trained head")
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--target", type=Path, required=True, help="directory of the inflated target")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights that are added")
    args = parser.parse_args(argv)
    config = json.loads((args.source / "config.json").read_text())
    target = json.loads((args.target / "config.json").read_text())
    (file,) = args.source.glob("*.safetensors")
    source = load_file(file)
    if "fc.weight" in source:
        weights = dict(eagle(source, config, target, args.seed))
        config |= {
            "rms_norm_eps": config["rms_norm_eps"] * config["hidden_size"] / target["hidden_size"],
            **{k: target[k] for k in ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")},
        }
    else:
        weights = dict(medusa(source, target["hidden_size"], args.seed))
    config["hidden_size"] = target["hidden_size"]
    if "target_hidden_size" in config:
        config["target_hidden_size"] = target["hidden_size"]
    config["inflated_from"] = str(args.source.resolve().name)
    args.out.mkdir(parents=True, exist_ok=True)
    save_file({name: weight.contiguous() for name, weight in weights.items()}, args.out / "model.safetensors")
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(json.dumps({"parameters": sum(w.numel() for w in weights.values() if w.is_floating_point())}))


if __name__ == "__main__":
    main()
