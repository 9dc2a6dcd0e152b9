"""Train the bundled target: a Llama that writes Python, from scratch, on a CPU, within a number of minutes.

Pure bfloat16 weights with float32 masters, Muon and AdamW, torch.compile. Most of the run reads every source in windows
of 512 tokens; the last part reads the cleanest sources in windows of 1024. A document begins with the end-of-text
token, and some documents begin at a top-level def or class in the middle of a file, so that the model can start there.
Run it again with the same --work to resume. The result is a plain Hugging Face folder.
"""

import argparse
import json
import math
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from headstart.train.checkpoint import latest, save
from headstart.train.optimiser import Optimiser
from headstart.train.schedule import Budget, Clock, rate

# How often a source is read in one pass over the mixture. The big scientific packages are read in part.
WEIGHTS = {"stdlib": 2.0, "numpy": 0.8, "scipy": 0.4, "sympy": 0.35, "torch": 0.4, "transformers": 0.35, "mypy": 0.7}
ROUGH = set(WEIGHTS) - {"stdlib", "numpy"}  # left out of the last part
BOUNDARY = re.compile(r"^(?:@|def |class |async def )", re.MULTILINE)
SPLIT = 0.12  # chance that a document is cut in front of a top-level definition
CHUNK = 2048  # rows of logits held at once

Windows = NDArray[np.uint16]


@dataclass
class Text:
    """One corpus file: its source's short name and the text."""

    source: str
    text: str


def read(path: Path) -> list[Text]:
    """The files of a corpus written by tools/corpus.py."""
    records = map(json.loads, path.read_text().splitlines())
    return [Text(r["source"].split()[0], r["text"]) for r in records]


def documents(text: str, chance: random.Random) -> Iterator[str]:
    """The file cut in front of some of its top-level definitions."""
    cuts = [m.start() for m in BOUNDARY.finditer(text) if m.start() and chance.random() < SPLIT]
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        yield text[start:end]


def pack(texts: list[Text], tokenizer: object, length: int, weights: dict[str, float], seed: int) -> Windows:
    """One shuffled pass over the mixture as windows [n, length + 1].

    A document fills windows from its own start; what is left over shares windows with other left-overs.
    """
    chance = random.Random(seed)
    chosen = []
    for text in texts:
        weight = weights.get(text.source, 1.0)
        copies = int(weight) + (chance.random() < weight % 1)
        chosen += [d for _ in range(copies) for d in documents(text.text, chance)]
    chance.shuffle(chosen)
    windows, rest = [], np.empty(0, np.uint16)
    for i in range(0, len(chosen), 512):
        for ids in tokenizer(chosen[i : i + 512], verbose=False)["input_ids"]:  # type: ignore[operator]
            tokens = np.asarray(ids, np.uint16)
            while len(tokens) > length:
                windows.append(tokens[: length + 1])
                tokens = tokens[length:]
            rest = np.concatenate([rest, tokens])
            if len(rest) > length:
                windows.append(rest[: length + 1])
                rest = tokens[:0] if len(rest) - length < 64 else rest[length:]
    order = np.random.default_rng(seed).permutation(len(windows))
    return np.stack(windows)[order]


def loss_of(model: LlamaForCausalLM, body: torch.nn.Module, ids: Tensor, backward: bool) -> float:
    """Mean negative log-likelihood in nats of windows [n, length + 1]; the logits exist in chunks only."""
    hidden = body(ids[:, :-1], use_cache=False).last_hidden_state
    labels, count = ids[:, 1:].reshape(-1), ids[:, 1:].numel()
    flat = hidden.reshape(-1, hidden.shape[-1])
    leaf = flat.detach().requires_grad_(backward)
    total = 0.0
    for h, y in zip(leaf.split(CHUNK), labels.split(CHUNK), strict=True):
        part = chunk_loss(h, model.lm_head.weight, y) / count
        if backward:
            part.backward()
        total += part.item()
    if backward:
        flat.backward(leaf.grad)
    return total


@torch.compile(dynamic=False)
def chunk_loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Summed cross-entropy of one chunk of rows, in float32 from bfloat16 logits."""
    return F.cross_entropy((hidden @ weight.T).float(), labels, reduction="sum")


@torch.no_grad()
def bits_per_byte(model: LlamaForCausalLM, tokenizer: object, texts: list[Text], length: int) -> float:
    """Bits per byte of whole files, in windows of `length` tokens without a context before them."""
    nats, size = 0.0, 0
    for text in texts:
        ids = torch.tensor(tokenizer(text.text, verbose=False)["input_ids"])  # type: ignore[operator]
        size += len(text.text.encode())
        for i in range(0, len(ids) - 1, length):
            window = ids[i : i + length + 1]
            logits = model(window[None, :-1], use_cache=False).logits[0].float()
            nats += F.cross_entropy(logits, window[1:], reduction="sum").item()
    return nats / math.log(2) / size


def export(model: LlamaForCausalLM, tokenizer: object, out: Path, provenance: dict[str, object]) -> None:
    """Write a Hugging Face folder; its files appear one by one, each complete."""
    out.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)  # type: ignore[attr-defined]
    (out / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n")


def build(layers: int, vocabulary: int, seed: int) -> LlamaForCausalLM:
    """A fresh bfloat16 model; the residual outputs start at zero, so that the first steps are those of a bigram."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=384,
        num_hidden_layers=layers,
        intermediate_size=1024,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=64,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
        dtype="bfloat16",
    )
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            torch.nn.init.zeros_(parameter)
    return model.to(torch.bfloat16)


@dataclass
class Feed:
    """Batches for the two parts of the run; part and place are all that a resume needs."""

    texts: list[Text]
    tokenizer: object
    tokens: int  # per batch
    seed: int
    part: int = -1
    taken: int = 0

    def batch(self, part: int) -> Tensor:
        """The next batch of part 0 (512 tokens, everything) or part 1 (1024 tokens, the cleanest sources)."""
        length = (512, 1024)[part]
        if part != self.part:
            weights = {**WEIGHTS, **(dict.fromkeys(ROUGH, 0.0) if part else {})}
            self.windows = pack(self.texts, self.tokenizer, length, weights, self.seed + part)
            self.part, self.taken = part, 0
            print(f"part {part}: {len(self.windows)} windows of {length} tokens", flush=True)
        size = self.tokens // length
        rows = [(self.taken + i) % len(self.windows) for i in range(size)]
        self.taken += size
        return torch.from_numpy(self.windows[rows].astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder written by tools/corpus.py")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder written by tools/train_tokenizer.py")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model; refreshed at each checkpoint")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=4096, help="per step")
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--other-rate", type=float, default=3e-3)
    parser.add_argument("--last", type=float, default=0.2, help="share of the run spent on the last part")
    parser.add_argument("--every", type=float, default=300, help="seconds between checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    train, heldout = read(options.corpus / "train.jsonl"), read(options.corpus / "heldout.jsonl")
    model = build(options.layers, len(tokenizer), options.seed)
    body = torch.compile(model.model, dynamic=False)
    optimiser = Optimiser(model.named_parameters(), matrix_rate=options.matrix_rate, other_rate=options.other_rate)
    feed, step, spent, tokens = Feed(train, tokenizer, options.tokens, options.seed), 0, 0.0, 0
    if found := latest(options.work):
        state = found.state()
        optimiser.load(found.tensors("optimiser"))
        step, spent, tokens = found.step, state["seconds"], state["tokens"]
        feed.batch(state["part"])
        feed.taken = state["taken"]
    budget, clock = Budget(minutes=options.minutes), Clock(spent)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, from step {step}", flush=True)

    def checkpoint() -> None:
        model.eval()
        bpb = bits_per_byte(model, tokenizer, heldout, 512)
        model.train()
        print(f"step {step} held out {bpb:.4f} bits per byte", flush=True)
        state = {"seconds": clock.seconds, "tokens": tokens, "part": feed.part, "taken": feed.taken, "bpb": bpb}
        save(options.work, step, {"optimiser": optimiser.tensors()}, state)
        provenance = {"step": step, "tokens": tokens, "heldout_bits_per_byte": bpb, "torch": torch.__version__}
        arguments = {k: v for k, v in vars(options).items() if not isinstance(v, Path)}
        export(model, tokenizer, options.out, {**provenance, "options": arguments, "seconds": clock.seconds})

    model.train()
    saved = clock.seconds
    recent: list[float] = []
    since = time.monotonic(), tokens
    while (progress := budget.progress(step, clock.seconds)) < 1:
        ids = feed.batch(int(progress > 1 - options.last))
        recent.append(loss_of(model, body, ids, backward=True))
        optimiser.step(rate(progress, step))
        step, tokens = step + 1, tokens + options.tokens
        if step % 20 == 0:
            speed = (tokens - since[1]) / (time.monotonic() - since[0])
            since = time.monotonic(), tokens
            loss = sum(recent) / len(recent)
            print(f"step {step} {progress:.1%} loss {loss:.4f} {tokens / 1e6:.2f}M {speed:.0f} tok/s", flush=True)
            recent.clear()
        if clock.seconds - saved > options.every:
            checkpoint()
            saved = clock.seconds
    checkpoint()


if __name__ == "__main__":
    main()
