"""Train a small hybrid with its MTP head, on a CPU, within a number of minutes, out of a small Llama.

It has the layers of Qwen3.5: three of four keep a recurrent state (the gated delta rule), the fourth has attention. The
embedding and the MLPs begin as those of the Llama, and the hybrid is distilled from it, as the few minutes are too few
to learn to write from nothing (compare arXiv:2408.15237). Beside the layers one more learns to guess the token after
the next (MTP): its loss is added to the model's own, times `--mtp-weight` (arXiv:2412.19437, section 2.2). The result
is a plain Hugging Face folder that holds both, in which headstart finds the head: `drafter="mtp"`, and `prompts.jsonl`,
which begins functions of the held-out text, to measure on.

    python tools/corpus.py --out corpus
    python tools/train_hybrid.py --corpus corpus --teacher src/headstart/pair/target --out hybrid --minutes 40

Any other text will do: `--corpus` reads `train.jsonl` and `heldout.jsonl`, lines of {"source", "path", "text"}.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from measure_pair import beginnings
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from train_target import CHUNK, WEIGHTS, Feed, Text, bits_per_byte, export, read
from transformers import AutoTokenizer, LlamaForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

from headstart.train.optimiser import Optimiser
from headstart.train.schedule import Budget, Clock, rate

STEPS = (1e-3, 0.1)
"""Time steps of the recurrent heads at first, from the shortest to the longest."""
LENGTH = 64
"""Tokens of a chunk of the recurrence."""


def delta_rule(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **_: object) -> tuple[Tensor, None]:
    """The gated delta rule in chunks (arXiv:2412.06464, section 3.3), as transformers computes it, but for training.

    query, key [n, T, H', k]; value [n, T, H, v]; g, beta [n, T, H]. Returns [n, T, H, v]. transformers' own writes into
    slices, whose gradients are tensors of zeros but for a chunk; that takes a third of a step on a CPU.
    """
    count, group = key.shape[1], value.shape[2] // key.shape[2]
    query, key = (F.normalize(x.float(), dim=-1).repeat_interleave(group, 2) for x in (query, key))
    parts = (query * query.shape[-1] ** -0.5, key, key * beta[..., None], value.float() * beta[..., None], g[..., None])
    query, key, keyed, valued, decay = (
        F.pad(x.float().transpose(1, 2), (0, 0, 0, -count % LENGTH)).unflatten(2, (-1, LENGTH)) for x in parts
    )
    gone = decay.cumsum(3)  # [n, H, chunks, LENGTH, 1], a logarithm
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    between = (gone - gone.mT).masked_fill(later, -math.inf).exp()
    system, within = (keyed @ key.mT) * between, (query @ key.mT) * between
    both = torch.cat([valued, keyed * gone.exp()], -1)
    values, reads = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True).split(
        [value.shape[-1], key.shape[-1]], -1
    )
    last = gone[..., -1:, :]
    chunks = zip(
        *(x.unbind(2) for x in (values, reads, query * gone.exp(), within, key * (last - gone).exp(), last.exp())),
        strict=True,
    )
    state, outputs = torch.zeros(()).expand(*key.shape[:2], key.shape[-1], value.shape[-1]), []
    for new, read_by, asked, seen, written, kept in chunks:
        fresh = new - read_by @ state
        outputs.append(asked @ state + seen @ fresh)
        state = state * kept + written.mT @ fresh
    return torch.cat(outputs, 2)[:, :, :count].transpose(1, 2).to(value.dtype), None


class Mtp(nn.Module):
    """The head, under the names that Qwen's checkpoints give its tensors below `mtp.`."""

    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(width, eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(width, eps)
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.layers = nn.ModuleList([Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))])
        self.norm = Qwen3_5RMSNorm(width, eps)

    def forward(self, embedded: Tensor, states: Tensor, turned: tuple[Tensor, Tensor]) -> Tensor:
        """The head's states [n, T, d] of pairs: the token after t, embedded, and the model's state of t."""
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(states)], dim=-1))
        return self.norm(self.layers[0](x, position_embeddings=turned, attention_mask=None))  # type: ignore[no-any-return]


class Hybrid(nn.Module):
    """The model and its head; the embedding and the output matrix, which are one, are shared."""

    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        self.model = Qwen3_5ForCausalLM(config)
        self.mtp = Mtp(config)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Of windows [n, T + 1]: the model's states of the first T tokens, and the head's of the first T - 1."""
        body = self.model.model
        states = body(ids[:, :-1], use_cache=False).last_hidden_state
        pairs, places = states[:, :-1], torch.arange(states.shape[1] - 1)
        turned = body.rotary_emb(pairs, places.expand(3, len(ids), -1))
        return states, self.mtp(body.embed_tokens(ids[:, 1:-1]), pairs, turned)


def build(teacher: LlamaForCausalLM, seed: int) -> Hybrid:
    """A bfloat16 hybrid of the Llama's sizes, whose recurrent layers add nothing at first."""
    torch.manual_seed(seed)
    theirs = teacher.config
    config = Qwen3_5TextConfig(
        vocab_size=theirs.vocab_size,
        hidden_size=theirs.hidden_size,
        num_hidden_layers=theirs.num_hidden_layers,
        intermediate_size=theirs.intermediate_size,
        num_attention_heads=theirs.num_attention_heads,
        num_key_value_heads=theirs.num_key_value_heads,
        head_dim=theirs.head_dim,
        linear_num_key_heads=theirs.num_key_value_heads,
        linear_num_value_heads=theirs.num_attention_heads,
        linear_key_head_dim=theirs.head_dim,
        linear_value_head_dim=theirs.head_dim,
        max_position_embeddings=theirs.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        dtype="bfloat16",
        mtp_num_hidden_layers=1,
    )
    hybrid = Hybrid(config)
    for name, parameter in hybrid.named_parameters():
        if name.endswith("out_proj.weight") or (name.startswith("mtp.") and name.endswith("o_proj.weight")):
            nn.init.zeros_(parameter)
        elif name.startswith("mtp.") and name.endswith("proj.weight"):
            nn.init.normal_(parameter, std=config.initializer_range)
        elif name.endswith("dt_bias"):  # the inverse of softplus
            low, high = map(math.log, STEPS)
            step = torch.empty_like(parameter).uniform_(low, high).exp()
            parameter.data.copy_(step + (-(-step).expm1()).log())
    transplant(hybrid, teacher)
    return hybrid.to(torch.bfloat16)


@torch.no_grad()
def transplant(hybrid: Hybrid, teacher: LlamaForCausalLM) -> None:
    """Give the hybrid what fits of the Llama: a norm's gain has an offset of 1 here, and a query has a gate, which
    begins as a half."""
    ours, theirs = hybrid.model.model, teacher.model
    ours.embed_tokens.weight.copy_(theirs.embed_tokens.weight)
    ours.norm.weight.copy_(theirs.norm.weight - 1)
    for layer, other in zip([*ours.layers, *hybrid.mtp.layers], [*theirs.layers, theirs.layers[-1]], strict=True):
        layer.mlp.load_state_dict(other.mlp.state_dict())
        layer.input_layernorm.weight.copy_(other.input_layernorm.weight - 1)
        layer.post_attention_layernorm.weight.copy_(other.post_attention_layernorm.weight - 1)
        attention = other.self_attn
        if layer.block_type == "full_attention":
            own = layer.self_attn
            query = attention.q_proj.weight.unflatten(0, (-1, own.head_dim))
            own.q_proj.weight.copy_(torch.cat([query, torch.zeros_like(query)], 1).flatten(0, 1))
            own.k_proj.weight.copy_(attention.k_proj.weight)
            own.v_proj.weight.copy_(attention.v_proj.weight)
            own.o_proj.weight.copy_(2 * attention.o_proj.weight)
        else:
            size, group = attention.head_dim, attention.num_key_value_groups
            query = attention.q_proj.weight.unflatten(0, (-1, group, size))[:, 0].flatten(0, 1)
            value = attention.v_proj.weight.unflatten(0, (-1, size)).repeat_interleave(group, 0).flatten(0, 1)
            layer.linear_attn.in_proj_qkv.weight.copy_(torch.cat([query, attention.k_proj.weight, value]))


def learn(hybrid: Hybrid, teacher: LlamaForCausalLM, ids: Tensor, mtp_weight: float) -> tuple[float, float]:
    """Gradients of one batch; returns what the model and its head lose to the Llama's distribution, in nats."""
    states, guessed = hybrid(ids)
    with torch.no_grad():
        taught = teacher.model(ids[:, :-1], use_cache=False).last_hidden_state
    found, leaves = [], []
    # the head's row t guesses the token after t + 1, of which the Llama knows at t + 1
    for hidden, known, weight in ((states, taught, 1.0), (guessed, taught[:, 1:], mtp_weight)):
        leaf = hidden.detach().flatten(0, 1).requires_grad_()
        total = 0.0
        for own, other in zip(leaf.split(CHUNK), known.flatten(0, 1).split(CHUNK), strict=True):
            wanted = (other @ teacher.lm_head.weight.T).float().log_softmax(-1)
            made = (own @ hybrid.model.lm_head.weight.T).float().log_softmax(-1)
            part = F.kl_div(made, wanted, log_target=True, reduction="sum") / len(leaf)
            (weight * part).backward()
            total += part.item()
        found.append(total)
        leaves.append(leaf.grad.view_as(hidden))
    torch.autograd.backward([states, guessed], leaves)
    return found[0], found[1]


def save(hybrid: Hybrid, tokenizer: object, out: Path, provenance: dict[str, object]) -> None:
    """The model's folder, and the head's tensors in the same file, where Qwen's checkpoints have them."""
    export(hybrid.model, tokenizer, out, provenance)  # type: ignore[arg-type]
    file = out / "model.safetensors"
    tensors = load_file(file) | {f"mtp.{name}": tensor.contiguous() for name, tensor in hybrid.mtp.state_dict().items()}
    save_file(tensors, file, metadata={"format": "pt"})


def drawn(texts: list[Text], megabytes: float, seed: int) -> list[Text]:
    """Some of the corpus, in proportion to the weight of each source."""
    chance, left, found = random.Random(seed), megabytes * 1e6, []
    kept = [text for text in texts if chance.random() < WEIGHTS.get(text.source, 1.0) / max(WEIGHTS.values())]
    chance.shuffle(kept)
    for text in kept:
        if left > 0:
            found.append(text)
            left -= len(text.text)
    return found


def write_prompts(file: Path, heldout: list[Text], seed: int) -> None:
    """Heads of held-out functions and classes, to measure on."""
    found = beginnings([text.text for text in heldout], 16, seed)
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder written by tools/corpus.py")
    parser.add_argument("--teacher", type=Path, required=True, help="folder of a Llama with at most 65,536 tokens")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--megabytes", type=float, default=8.0, help="of the corpus, drawn by its sources' weights")
    parser.add_argument("--tokens", type=int, default=2048, help="per step")
    parser.add_argument("--mtp-weight", type=float, default=0.3, help="of the head's loss beside the model's")
    parser.add_argument("--matrix-rate", type=float, default=0.01)
    parser.add_argument("--other-rate", type=float, default=3e-3)
    parser.add_argument("--last", type=float, default=0.2, help="share of the run in windows of 1024 tokens")
    parser.add_argument("--every", type=float, default=600, help="seconds between copies of the model")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    modeling_qwen3_5.torch_chunk_gated_delta_rule = delta_rule
    tokenizer = AutoTokenizer.from_pretrained(options.teacher)
    teacher = LlamaForCausalLM.from_pretrained(options.teacher, dtype=torch.bfloat16).requires_grad_(False)
    heldout = read(options.corpus / "heldout.jsonl")
    feed = Feed(
        drawn(read(options.corpus / "train.jsonl"), options.megabytes, options.seed),
        tokenizer,
        options.tokens,
        options.seed,
    )
    hybrid = build(teacher, options.seed)
    optimiser = Optimiser(hybrid.named_parameters(), matrix_rate=options.matrix_rate, other_rate=options.other_rate)
    count = sum(parameter.numel() for parameter in hybrid.model.parameters())
    head = sum(parameter.numel() for parameter in hybrid.mtp.parameters())
    print(f"{count:,} parameters, and {head:,} of the head", flush=True)
    feed.batch(0)
    budget, clock, step, tokens = Budget(minutes=options.minutes), Clock(), 0, 0
    arguments = {name: value for name, value in vars(options).items() if not isinstance(value, Path)}

    def copy() -> None:
        hybrid.eval()
        bpb = bits_per_byte(hybrid.model, tokenizer, heldout, 512)  # type: ignore[arg-type]
        hybrid.train()
        print(f"step {step} held out {bpb:.4f} bits per byte", flush=True)
        record = {"step": step, "tokens": tokens, "heldout_bits_per_byte": bpb, "torch": torch.__version__}
        save(hybrid, tokenizer, options.out, {**record, "options": arguments, "seconds": clock.seconds})

    hybrid.train()
    saved, since, recent = 0.0, (time.monotonic(), 0), []
    while (progress := budget.progress(step, clock.seconds)) < 1:
        recent.append(learn(hybrid, teacher, feed.batch(int(progress > 1 - options.last)), options.mtp_weight))
        optimiser.step(rate(progress, step))
        step, tokens = step + 1, tokens + options.tokens
        if step % 10 == 0:
            speed = (tokens - since[1]) / (time.monotonic() - since[0])
            own, mtp = (sum(losses) / len(recent) for losses in zip(*recent, strict=True))
            print(f"step {step} {progress:.1%} loss {own:.4f}, head {mtp:.4f}, {speed:.0f} tokens/s", flush=True)
            since, recent = (time.monotonic(), tokens), []
        if clock.seconds - saved > options.every:
            copy()
            saved = clock.seconds
    copy()
    write_prompts(options.out / "prompts.jsonl", heldout, options.seed)


if __name__ == "__main__":
    main()
