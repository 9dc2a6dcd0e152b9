"""The first weights of an EAGLE-3 head: the target's own, noise, or those of a head that was trained before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.model.heads.eagle_checkpoint import EAGLE3, EagleCheckpoint
from headstart.train.eagle_head import EagleHead
from headstart.train.head_layer import HeadShape
from headstart.train.head_selector import FIRST_CODES

BY_TOKEN = ("lm_head.weight", "candidate_selector.successor_codebook")
"""Tensors with a row for each token of the draft vocabulary."""


def build(shape: HeadShape, target: Any, kept: Tensor, *, init: str, seed: int) -> EagleHead:
    """A float32 head for this target; `kept` [draft vocabulary] are the target's ids of the tokens it may propose.

    With init "target" it begins as the target's last layer, which reads the highest of the three states and not yet
    the embedding, under the target's own final norm and output matrix, as far as shapes permit. Where there is text,
    `forecast` then puts a regression in place of that layer's attention and of `fc`.
    """
    torch.manual_seed(seed)
    head = EagleHead(shape)
    with torch.no_grad():
        for parameter in head.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        for layer in head.stack():
            for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
                torch.nn.init.zeros_(last.weight)  # a layer begins as the identity
        if shape.selector_rank:
            torch.nn.init.normal_(head.candidate_selector.predecessor_codebook, std=FIRST_CODES)
            torch.nn.init.zeros_(head.candidate_selector.successor_codebook)
        if init == "target":
            _inherit(head, target, kept)
    return head


@torch.no_grad()
def go_on(head: EagleHead, begun: EagleCheckpoint, kept: Tensor, layer_ids: tuple[int, ...]) -> None:
    """Take over the weights of a trained head, as far as both read the same layers and know the same tokens.

    Elsewhere the head keeps what it has: the target's output row of a token that is new to it; nothing of a layer.
    """
    own, given = head.state_dict(), begun.tensors
    for name, weight in own.items():
        source = given.get(name.removeprefix("midlayer."))
        if source is not None and name not in ("fc.weight", *BY_TOKEN):
            weight.copy_(source)
    width = head.shape.hidden
    known = {
        layer: given["fc.weight"][:, i * width : (i + 1) * width] for i, layer in enumerate(begun.config.layer_ids)
    }
    for i, layer in enumerate(layer_ids):
        block = own["fc.weight"][:, i * width : (i + 1) * width]
        block.copy_(known[layer]) if layer in known else block.zero_()
    rows = {token: row for row, token in enumerate(tokens_of(begun).tolist())}
    both = [(row, rows[token]) for row, token in enumerate(kept.tolist()) if token in rows]
    ours, theirs = torch.tensor(both, dtype=torch.long).view(-1, 2).unbind(1)
    for name in BY_TOKEN:
        if name in given and name in own:
            own[name][ours] = given[name][theirs].to(own[name])


def freeze(head: EagleHead, begun: EagleCheckpoint) -> None:
    """Leave everything that makes the first guess as it began: the masked rows and the selector alone learn.

    Raises:
        InvalidOption: the head has layers that `begun` lacks, which its first guess would pass through as well.
    """
    if head.shape.layers > begun.config.layers:
        raise InvalidOption(
            f"freeze_first keeps {begun.config.name}'s first guess, and layers={head.shape.layers} would change it",
            hint=f"leave layers out (that head has {begun.config.layers}), or freeze_first",
        )
    for part in (head.fc, head.norm, head.lm_head, *head.stack()):
        part.requires_grad_(False)


def tokens_of(begun: EagleCheckpoint) -> Tensor:
    """The target's ids of a head's tokens [draft vocabulary]."""
    return torch.arange(begun.config.vocab_size) if begun.token_ids is None else begun.token_ids


def shape_of(begun: EagleCheckpoint, shape: HeadShape) -> HeadShape:
    """`shape` with the sizes of a trained head.

    Raises:
        UnsupportedModel: it is of a kind that cannot be trained here; the message names it.
    """
    config = begun.config
    rope = dict(config.rope.rope_parameters or {})
    strange = {
        "is not an EAGLE-3 head": config.version != EAGLE3,
        "has norms before fc": config.fc_norm or config.norm_before_fc,
        "feeds back normed states": config.norm_output,
        "has a sliding window": config.window is not None,
        "has a width of its own": config.width != shape.hidden or config.target_width != shape.hidden,
        "scales its rotation": rope.get("rope_type", "default") != "default",
        "has a selector of another rank": config.selector_rank not in (0, shape.selector_rank or config.selector_rank),
        "has biases": any(name.endswith("bias") for name in begun.tensors),
        "reads another number of layers": len(config.layer_ids) != 3,
    }
    for what, found in strange.items():
        if found:
            raise UnsupportedModel(f"{config.name} {what}, and cannot be trained further", hint="leave begin_with out")
    if config.parallel and not shape.parallel:
        raise InvalidOption(
            f"{config.name} guesses several tokens in one forward", hint=f"add parallel={config.depth or 8}"
        )
    return replace(
        shape,
        intermediate=config.intermediate,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.dim,
        rope_theta=float(rope["rope_theta"]),
        eps=config.eps,
        norm_before_residual=config.norm_before_residual,
        layers=max(config.layers, shape.layers),
        selector_rank=config.selector_rank or shape.selector_rank,
        selector_top_k=shape.selector_top_k if shape.selector_rank else config.selector_top,
    )


def _inherit(head: EagleHead, target: Any, kept: Tensor) -> None:
    hidden = head.shape.hidden
    output = target.get_output_embeddings()
    if output is not None:
        head.lm_head.weight.copy_(output.weight[kept.to(output.weight.device)])
    head.fc.weight.zero_()
    head.fc.weight[:, 2 * hidden :].copy_(torch.eye(hidden))
    base = target.get_decoder()
    norm, layers = getattr(base, "norm", None), getattr(base, "layers", None)
    if norm is not None and getattr(norm, "weight", None) is not None and norm.weight.shape == head.norm.weight.shape:
        head.norm.weight.copy_(norm.weight)
    if not layers:
        return
    theirs = layers[-1].state_dict()
    for name, weight in head.midlayer.state_dict().items():
        source = theirs.get("input_layernorm.weight" if name == "hidden_norm.weight" else name)
        if source is None or name == "input_layernorm.weight":
            continue
        if source.shape == weight.shape:
            weight.copy_(source)
        elif source.shape[0] == weight.shape[0] and 2 * source.shape[1] == weight.shape[1]:
            weight[:, :hidden].zero_()
            weight[:, hidden:].copy_(source)
