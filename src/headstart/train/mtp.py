"""`train_mtp`: train the MTP head that a checkpoint holds beside its model, by the training-time test.

Published heads have learnt to guess the token after the next one, from the target's own states; in use they are fed
their own states as well. Here they learn from both (`unrolled_student`), `ttt_steps` guesses in a row. Only the head
learns: embedding and output matrix are the target's. What is written is a checkpoint of the target with the head in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.drafters.eagle.mtp import SHORTLIST
from headstart.model import loading
from headstart.model.gguf.files import is_gguf
from headstart.model.heads import mtp_checkpoint
from headstart.model.recipes import BUILDERS, recipe_of
from headstart.model.recipes.recipe import Attention, Layer, Recipe
from headstart.train import mtp_files
from headstart.train.eagle_start import final_gain, forecast
from headstart.train.frequent_tokens import by_frequency
from headstart.train.harness import Material, Observer, TrainingResult, train
from headstart.train.head_layer import HeadShape
from headstart.train.hidden import States, TargetStates, states_of
from headstart.train.options import MtpTraining
from headstart.train.unrolled_head import MtpHead, with_noise
from headstart.train.unrolled_student import UnrolledStudent

_OUTER = ("embedding_norm.weight", "hidden_norm.weight", "norm.weight")
"""The norms of a head beside its layer, which are stored like those of the layer, and read as gains."""


def train_mtp(options: MtpTraining, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train a head and write it to `options.output`, in a checkpoint of its target, with its provenance.

    Raises what `headstart.train.harness.train` raises, and before anything is written `UnsupportedModel` for a target
    that can hold no such head.
    """
    config = loading.load_config(str(folder_of(options)), trust_remote_code=False)
    _layer(recipe_of(config), config.get_text_config())
    return train(options, lambda material: MtpStudent(options, material), observe)


class MtpStudent(UnrolledStudent):
    """An MTP head that learns."""

    kind = "mtp"
    _options: MtpTraining
    head: MtpHead

    def __init__(self, options: MtpTraining, material: Material) -> None:
        target, text = material.target, material.target.config.get_text_config()
        super().__init__(options, material)
        self._folder = folder_of(options)
        recipe = recipe_of(target.config)
        self.layer = _layer(recipe, text)
        self.states = states_of(options, target, (), device=material.device, dtype=material.dtype)
        vocab_size = int(text.vocab_size)
        wanted = options.loss_tokens or (SHORTLIST if vocab_size > 2 * SHORTLIST else vocab_size)
        self._know(by_frequency(material.train.ids, vocab_size)[:wanted].sort().values, material)
        self._matrix: Tensor = target.get_output_embeddings().weight.detach()
        if len(self.kept) < vocab_size:
            self._matrix = self._matrix[self._kept]
        begun = _begun(options, self._folder, target.config)
        head = with_noise(MtpHead, _shape(text, self.layer, len(self.kept)), options.seed)
        if begun is not None:
            _go_on(head, begun, self.layer)
        self.head = self.module = head.to(material.device, material.dtype)
        if begun is None and options.init == "target":
            _forecast(head, self.states, material.train.ids, self._embedded, final_gain(target))

    def features(self, states: States) -> Tensor:
        return states.last

    @property
    def matrix(self) -> Tensor:
        return self._matrix

    def write(self, folder: Path) -> None:
        """A checkpoint of the target with the head in it."""
        tensors = {name.removeprefix("layer."): tensor for name, tensor in self.head.state_dict().items()}
        outer = 0.0 if self.layer.mlp_in is None else self.layer.mlp_in.offset
        for name, offset in (_offsets(self.layer) | dict.fromkeys(_OUTER, outer)).items():
            tensors[name] = tensors[name].float() - offset
        mtp_files.write(folder, self._folder, self._target.config, tensors)

    def used(self, folder: Path) -> tuple[str, str]:
        return str(folder), "mtp"

    def facts(self) -> dict[str, Any]:
        return {"loss_tokens": len(self.kept), **super().facts()}


def folder_of(options: MtpTraining) -> Path:
    """The directory of the target's checkpoint, beside whose weights the head is written.

    Raises:
        UnsupportedModel: the target is a GGUF file, into which no head can be written.
    """
    source = loading.resolve(options.target, "target")
    if is_gguf(source):
        problem = f"{source} is a GGUF file, and a trained MTP head is written into a checkpoint of safetensors"
        raise UnsupportedModel(problem, hint="train the head of the original checkpoint, and convert what is written")
    return loading.fetch(source)


def _layer(recipe: Recipe, text: Any) -> Layer:
    """The head's: as the target's last one with full attention.

    Raises:
        UnsupportedModel: checkpoints of this family are not known to hold such a head, or it cannot be trained.
    """
    forms = mtp_checkpoint.FORMS.items()
    kinds = sorted(kind for kind, form in forms if form.prefix == mtp_files.PREFIX and kind in BUILDERS)
    kinds.remove("qwen3_5_moe_text")  # whose head has experts
    if text.model_type not in kinds:
        raise UnsupportedModel(
            f"checkpoints of {text.model_type} hold no MTP head that headstart can train",
            hint=f"for {', '.join(kinds)} one can be trained; for any other target, train an EAGLE-3 head",
        )
    rope = getattr(text, "rope_parameters", None) or {}
    if getattr(text, "attention_bias", False) or rope.get("rope_type", "default") != "default":
        problem = f"a {text.model_type} with biases or a scaled rotation has a head that cannot be trained"
        raise UnsupportedModel(problem, hint="train an EAGLE-3 head instead")
    for layer in reversed(recipe.layers):
        if isinstance(layer.mixer, Attention):
            return replace(layer, input=None)
    raise UnsupportedModel("the target has no layer with attention", hint="train an EAGLE-3 head instead")


def _shape(text: Any, layer: Layer, tokens: int) -> HeadShape:
    """Of a head with this layer, for so many tokens."""
    attention, norm = layer.attention, layer.mlp_in
    return HeadShape(
        hidden=int(text.hidden_size),
        intermediate=layer.mlp.width,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.dim,
        draft_vocab=tokens,
        rope_theta=float((getattr(text, "rope_parameters", None) or {}).get("rope_theta", 10000.0)),
        eps=1e-6 if norm is None else norm.eps,
        rotary=0 if attention.rope is None else attention.rope.rotary,
        head_norms=attention.q_norm is not None,
        gated=attention.gated,
    )


def _offsets(layer: Layer) -> dict[str, float]:
    """By the name of a norm's tensor in the layer, how much less than the gain its stored numbers are."""
    norms = (layer.attention_in, layer.mlp_in, layer.attention.q_norm, layer.attention.k_norm)
    return {f"{norm.name}.weight": norm.offset for norm in norms if norm is not None}


def _begun(options: MtpTraining, folder: Path, config: Any) -> mtp_checkpoint.EagleCheckpoint | None:
    """The head to begin with: the one that is asked for, or else the target's own, if it has one."""
    if options.begin_with is not None:
        source = str(options.begin_with)
        return mtp_checkpoint.read(loading.fetch(source), loading.load_config(source, trust_remote_code=False))
    own = options.init == "target" and mtp_checkpoint.has_head(folder)
    return mtp_checkpoint.read(folder, config) if own else None


@torch.no_grad()
def _go_on(head: MtpHead, begun: mtp_checkpoint.EagleCheckpoint, layer: Layer) -> None:
    """Take over the weights of a trained head.

    Raises:
        UnsupportedModel: it has other tensors, or other sizes.
    """
    offsets = _offsets(layer)
    for name, weight in head.state_dict().items():
        bare = name.removeprefix("layer.")
        source = begun.tensors.get(bare)
        if source is None or source.shape != weight.shape:
            has = f"no {bare}" if source is None else f"{bare} of the shape {list(source.shape)}"
            raise UnsupportedModel(
                f"{begun.config.name} has {has}, and this target's head one of {list(weight.shape)}",
                hint="begin with a head of the same target",
            )
        weight.copy_(source.float() + offsets.get(bare, 0.0))


@torch.no_grad()
def _forecast(
    head: MtpHead, states: TargetStates, windows: Tensor, embedded: Callable[[Tensor], Tensor], gain: Tensor | None
) -> None:
    """Let `fc` begin as the regression of the target's next state on what it joins, see `eagle_start`, in front of the
    target's own final norm; the layer adds nothing yet."""
    assert gain is not None, "a target whose head is known has one"
    eps = head.shape.eps

    def normed(read: States) -> Tensor:
        return F.rms_norm(read.last.float(), read.last.shape[-1:], eps=eps)

    found = forecast(states, windows, embedded, gain.to(head.norm.weight.device), eps, normed)
    head.fc.weight.copy_(torch.cat([found.embedding, found.states]).mT)
    head.norm.weight.copy_(gain)
