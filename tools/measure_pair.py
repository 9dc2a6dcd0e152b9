"""Measure a target and its draft: bits per byte on held-out files, and how often drafts are accepted.

Prints JSON with three blocks:
    bits_per_byte    both models on whole held-out files (tools/corpus.py), by window length
    on_heldout       acceptance on windows of those files, the text given (sum_v min(p_v, q_v), and 4 in a row)
    in_use           acceptance while the engine writes: held-out prompts (or --prompts, a JSONL with `turns` or
                     `prompt`), by temperature: share of draft tokens accepted, tokens per target forward

    python tools/measure_pair.py --target src/headstart/pair/target --draft src/headstart/pair/draft \
        --corpus corpus > pair.json
"""

import argparse
import json
import math
import random
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

import headstart as hs
from headstart.train import sources, windows
from headstart.train.acceptance import measure

TEMPERATURES = (0.0, 0.7, 1.0)


@torch.no_grad()
def bits_per_byte(model: Any, tokenizer: Any, texts: list[str], length: int) -> float:
    """Over whole files, in windows of `length` tokens, each read without what came before it."""
    nats, size = 0.0, 0
    for text in texts:
        ids = torch.tensor(tokenizer(text, verbose=False)["input_ids"])
        size += len(text.encode())
        for start in range(0, len(ids) - 1, length):
            window = ids[start : start + length + 1]
            logits = model(window[None, :-1], use_cache=False).logits[0].float()
            nats += F.cross_entropy(logits, window[1:], reduction="sum").item()
    return nats / math.log(2) / size


def beginnings(texts: list[str], count: int, seed: int) -> list[str]:
    """The heads of functions and classes in held-out files, each with its signature and docstring line."""
    found = []
    for text in texts:
        lines = text.split("\n")
        starts = [i for i, line in enumerate(lines) if line.startswith(("def ", "class ")) and line.endswith(":")]
        found += ["\n".join(lines[i : i + 2]) + "\n" for i in starts]
    return random.Random(seed).sample(found, min(count, len(found)))


def in_use(options: argparse.Namespace, prompts: list[str]) -> dict[str, Any]:
    """What the engine counts while it completes the prompts, by temperature."""
    engine = hs.load(options.target, drafter=options.draft, num_speculative_tokens=options.k, rule="exact")
    result: dict[str, Any] = {"prompts": len(prompts), "k": options.k, "max_tokens": options.max_tokens}
    for temperature in TEMPERATURES:
        sampling = [
            hs.Sampling(max_tokens=options.max_tokens, temperature=temperature, seed=i, ignore_eos=True)
            for i in range(len(prompts))
        ]
        outputs = engine.generate(prompts, sampling)
        stats = [output.stats for output in outputs]
        known = [
            sum(s.drafted_per_position[i] for s in stats if i < len(s.drafted_per_position)) for i in range(options.k)
        ]
        taken = [
            sum(s.accepted_per_position[i] for s in stats if i < len(s.accepted_per_position)) for i in range(options.k)
        ]
        result[f"T={temperature:g}"] = {
            "accepted_of_drafted": sum(s.accepted for s in stats) / max(1, sum(s.drafted for s in stats)),
            "acceptance_by_position": [round(t / n, 4) if n else None for t, n in zip(taken, known, strict=True)],
            "tokens_per_target_forward": sum(s.tokens for s in stats) / sum(s.target_forwards for s in stats),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="directory of the target")
    parser.add_argument("--draft", required=True, help="directory of the draft")
    parser.add_argument("--corpus", type=Path, required=True, help="folder written by tools/corpus.py")
    parser.add_argument("--prompts", type=Path, help="JSONL to complete; default: held-out functions and classes")
    parser.add_argument("--count", type=int, default=24, help="prompts")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--k", type=int, default=4, help="draft tokens per step")
    parser.add_argument("--windows", type=int, default=64, help="held-out windows of 512 tokens for acceptance")
    options = parser.parse_args()

    texts = [json.loads(line)["text"] for line in (options.corpus / "heldout.jsonl").read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    target, draft = (
        AutoModelForCausalLM.from_pretrained(p, dtype=torch.bfloat16).eval() for p in (options.target, options.draft)
    )
    tokens = [tokenizer(text, verbose=False)["input_ids"] for text in texts]
    held = windows.pack(map(windows.Text, tokens), 512, what="held-out")
    chosen = held[torch.randperm(len(held), generator=torch.Generator().manual_seed(0))[: options.windows]]
    if options.prompts:
        prompts = [d.text or "\n\n".join(d.turns) for d in sources.read([options.prompts]).documents][: options.count]
    else:
        prompts = beginnings(texts, options.count, seed=0)
    report = {
        "versions": {"torch": torch.__version__, "headstart": hs.__version__},
        "heldout": {"files": len(texts), "bytes": sum(len(t.encode()) for t in texts), "tokens": sum(map(len, tokens))},
        "bits_per_byte": {
            name: {f"{n} tokens": round(bits_per_byte(model, tokenizer, texts, n), 4) for n in (512, 1024)}
            for name, model in (("target", target), ("draft", draft))
        },
        "on_heldout": measure(target, draft, chosen, TEMPERATURES).record(),
        "in_use": in_use(options, prompts),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
