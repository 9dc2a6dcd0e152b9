"""Make a small trained Llama as large, and as slow, as a real one without changing what it says.

    python benchmarks/inflate.py SOURCE OUT --hidden 2048 --layers 16 --intermediate 8192 --heads 32 --kv-heads 16

The source fills the first corner of every weight. What is added may compute, but cannot write: the embedding and
the output projections (o_proj, down_proj) are zero there, so the added channels of the residual stream stay zero
and the added layers add nothing. Everything else added is random, so that nothing can be skipped. RMSNorm averages
over H channels instead of h, which its gains (times sqrt(h/H)) and its eps (times h/H) undo. Query heads share KV
heads as before, so each of the source's heads keeps its own.

The result costs what a model of its size costs and accepts drafts as the source does. It is not a model of that
quality: label every figure made with it as inflated (`inflated_from` in its config says so).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.utils import logging

TOLERANCE = 1e-4
STD = 0.02
SAMPLE = """def mean(values):
    \"\"\"Arithmetic mean of a non-empty list of numbers.\"\"\"
    return sum(values) / len(values)


class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)
"""


@dataclass(frozen=True, slots=True)
class Size:
    """The dimensions of a Llama that inflation may change. `heads` are query heads."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int

    @classmethod
    def of(cls, config: Any) -> Size:
        return cls(
            config.hidden_size,
            config.num_hidden_layers,
            config.intermediate_size,
            config.num_attention_heads,
            config.num_key_value_heads,
        )

    def check_from(self, source: Size) -> None:
        """Raise `ValueError` unless a model of size `source` fits into this one."""
        for name, wanted in asdict(self).items():
            have = getattr(source, name)
            if wanted < have:
                raise ValueError(f"{name}={wanted} is below the source's {have}: inflation only adds")
        if self.hidden % self.heads:
            raise ValueError(f"hidden={self.hidden} is not a multiple of heads={self.heads}, as a LlamaConfig wants")
        if self.heads * source.kv_heads != source.heads * self.kv_heads:
            ratio = f"{source.heads}:{source.kv_heads}"
            raise ValueError(
                f"heads={self.heads}, kv_heads={self.kv_heads}: the source's ratio of query to KV heads, {ratio}, "
                "must be kept"
            )


def inflate(source: dict[str, Tensor], old: Any, size: Size, seed: int = 0, device: str = "cpu") -> dict[str, Tensor]:
    """The weights of the larger Llama: bf16, but norm gains float32, for sqrt(h/H) need not be a bf16 number.

    source: the small model's state dict; old: its `LlamaConfig`. A tied lm_head is left out, as in the source. device:
    where they are made; the random numbers are of its kind.
    """
    size.check_from(Size.of(old))
    generator = torch.Generator(device).manual_seed(seed)
    gain_scale = math.sqrt(old.hidden_size / size.hidden)
    weights: dict[str, Tensor] = {}
    for name, shape in _shapes(size, old.vocab_size, old.head_dim, tied=old.tie_word_embeddings):
        small = source.get(name)
        if name.endswith("norm.weight"):
            gains = torch.rand(shape, generator=generator, device=device) + 0.5
            if small is not None:
                gains[: len(small)] = small.float() * gain_scale
            weights[name] = gains
            continue
        silent = name.endswith(("embed_tokens.weight", "o_proj.weight", "down_proj.weight"))
        large = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        if not silent:
            large.normal_(std=STD, generator=generator)
        if small is not None:
            large[: small.shape[0], : small.shape[1]] = small
        weights[name] = large
    return weights


def _shapes(size: Size, vocab_size: int, head_dim: int, *, tied: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every weight of a Llama of this size."""
    wide, queries, keys = size.hidden, size.heads * head_dim, size.kv_heads * head_dim
    yield "model.embed_tokens.weight", (vocab_size, wide)
    for i in range(size.layers):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (wide,)
        yield f"{layer}.self_attn.q_proj.weight", (queries, wide)
        yield f"{layer}.self_attn.k_proj.weight", (keys, wide)
        yield f"{layer}.self_attn.v_proj.weight", (keys, wide)
        yield f"{layer}.self_attn.o_proj.weight", (wide, queries)
        yield f"{layer}.post_attention_layernorm.weight", (wide,)
        yield f"{layer}.mlp.gate_proj.weight", (size.intermediate, wide)
        yield f"{layer}.mlp.up_proj.weight", (size.intermediate, wide)
        yield f"{layer}.mlp.down_proj.weight", (wide, size.intermediate)
    yield "model.norm.weight", (wide,)
    if not tied:
        yield "lm_head.weight", (vocab_size, wide)


def inflated_config(old: Any, size: Size, label: str) -> LlamaConfig:
    """The larger model's config; `inflated_from` records what it was made from."""
    fields = old.to_dict()
    fields |= {
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "intermediate_size": size.intermediate,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": old.head_dim,
        "rms_norm_eps": old.rms_norm_eps * old.hidden_size / size.hidden,
        "dtype": "bfloat16",
        "inflated_from": {"name": label, **asdict(Size.of(old))},
    }
    return LlamaConfig(**fields)


def inflate_checkpoint(source: Path, out: Path, size: Size, seed: int = 0, device: str = "cpu") -> tuple[int, float]:
    """Read `source`, write `out`, and return the number of parameters and the largest difference of the logits.

    The difference is between float32 forwards of the two *written* checkpoints over a piece of code. Raises
    `ValueError` for a model or a size that cannot be inflated and `ArithmeticError` if the difference is above 1e-4.
    """
    model = (
        AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").to(device).eval()
    )
    old = model.config
    if old.model_type != "llama" or old.attention_bias or old.mlp_bias:
        raise ValueError(f"{source} is a {old.model_type}; only Llama models without biases can be inflated")
    stored = model.state_dict()
    for name, weight in stored.items():
        if not name.endswith("norm.weight") and not torch.equal(weight, weight.bfloat16().float()):
            raise ValueError(f"{name} is not exact in bf16: save the source in bf16 first")
    weights = inflate(stored, old, size, seed, device)
    parameters = sum(weight.numel() for weight in weights.values())

    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.save_pretrained(out)
    inflated_config(old, size, source.resolve().name).save_pretrained(out)
    model.generation_config.save_pretrained(out)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    del weights

    difference = logits_difference(model, out, torch.tensor([tokenizer(SAMPLE)["input_ids"]], device=device))
    if not difference <= TOLERANCE:
        raise ArithmeticError(f"the inflated logits differ from the source's by {difference:.1e}, above {TOLERANCE}")
    return parameters, difference


@torch.inference_mode()
def logits_difference(model: Any, out: Path, ids: Tensor) -> float:
    """Largest absolute difference between the logits of `model` and of the checkpoint in `out`, both float32."""
    large = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")
    large = large.to(ids.device).eval()
    found: Tensor = large(ids).logits
    return float((found - model(ids).logits).abs().max())


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path, help="directory of a small Llama checkpoint")
    parser.add_argument("out", type=Path, help="directory to write; must not hold a model yet")
    for name in ("hidden", "layers", "intermediate", "heads", "kv-heads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the random weights that are added")
    parser.add_argument("--device", default="cpu", help="where it is made: a GPU makes large ones sooner (%(default)s)")
    args = parser.parse_args(argv)
    if (args.out / "config.json").exists():
        parser.error(f"{args.out} already holds a model")
    logging.disable_progress_bar()
    size = Size(args.hidden, args.layers, args.intermediate, args.heads, args.kv_heads)
    try:
        parameters, difference = inflate_checkpoint(args.source, args.out, size, args.seed, args.device)
    except (OSError, ValueError, ArithmeticError) as error:
        parser.error(str(error))
    print(json.dumps({"parameters": parameters, **asdict(size), "largest_logit_difference": difference}))


if __name__ == "__main__":
    main()
