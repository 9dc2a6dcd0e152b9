"""What a config states, read field by field, so that nothing it says is passed over unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from headstart.base.errors import UnsupportedModel
from headstart.base.lazy import transformers

T = TypeVar("T")

LAYERS_AFTER = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
"""What configs call the number of layers after the last that guess further tokens."""

_SAYS_NOTHING = frozenset({
    "architectures", "attention_dropout", "attn_pdrop", "auto_map", "bos_token_id", "chunk_size_feed_forward",
    "decoder_start_token_id", "dtype", "embd_pdrop", "embedding_dropout", "embd_dropout", "eos_token_id",
    "hidden_dropout", "hidden_dropout_prob", "dropout", "id2label", "initializer_range", "initializer_factor",
    "is_encoder_decoder", "keys_to_ignore_at_inference", "label2id", "layerdrop", "max_position_embeddings",
    "model_type",
    "output_attentions", "output_hidden_states", "pad_token_id", "problem_type", "quantization_config", "resid_pdrop",
    "residual_dropout", "return_dict", "tie_word_embeddings", "torch_dtype", "transformers_version", "use_cache",
    "use_return_dict", "vocab_size", "unsloth_fixed", "unsloth_version", "classifier_dropout", "rope_theta",
    "rope_scaling", "rope_parameters", "output_router_logits", "router_aux_loss_coef", "n_positions", "n_ctx",
    "max_window_layers", "use_mamba_kernels", "pretraining_tp", "base_model_tp_plan", "base_model_pp_plan",
    "num_labels", "finetuning_task", "task_specific_params", "tokenizer_class", "prefix", "sep_token_id",
    "name_or_path", "inflated_from", *LAYERS_AFTER,
})  # fmt: skip
"""Fields that change no logits of a decoder that only runs, or that are read elsewhere: tokens, dtype, positions (by
the rotary module of transformers), how weights were drawn and are stored, and layers that only draft."""


FIXED_ROPE = frozenset({"default", "linear", "llama3", "longrope", "proportional", "yarn"})
"""Kinds of rotation whose angles depend on the position alone; those of longrope, on the longest text too: see
`model/longrope.py`."""

ROPE_FIELDS = frozenset({
    "attention_factor", "beta_fast", "beta_slow", "factor", "high_freq_factor", "long_factor", "low_freq_factor",
    "mscale", "mscale_all_dim", "original_max_position_embeddings", "partial_rotary_factor", "rope_theta", "rope_type",
    "short_factor", "truncate", "type",
})  # fmt: skip


class Stated:
    """A config whose fields are read by name; `check` refuses those that nobody read.

    Fields that start with an underscore are transformers' own.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self._read: set[str] = set()
        self.last = ""
        """The field that was read last."""

    def __getattr__(self, name: str) -> Any:
        """A field that must be there."""
        self._note(name)
        if not hasattr(self.config, name):
            raise UnsupportedModel(
                f"the config of this {self.config.model_type} has no {name}",
                hint="it may be of another version; the modules of transformers run it",
            )
        return getattr(self.config, name)

    def get(self, name: str, default: Any = None) -> Any:
        """A field that may be missing or None."""
        self._note(name)
        found = getattr(self.config, name, None)
        return default if found is None else found

    def _note(self, name: str) -> None:
        """A field was read, by the name that its class has for it or by another one."""
        self.last = name
        self._read |= {name, getattr(type(self.config), "attribute_map", {}).get(name, name)}

    def must_be(self, name: str, *values: Any) -> None:
        """Raise `UnsupportedModel` unless a field, if it is there, has one of these values."""
        found = self.get(name)
        if found is not None and found not in values:
            raise self.refused(name, found)

    def kinds(self, known: Mapping[str, T]) -> list[T]:
        """What each of the layers is by `layer_types`.

        Raises:
            UnsupportedModel: a kind is not known.
        """
        stated = self.layer_types[: self.num_hidden_layers]
        if unknown := set(stated) - known.keys():
            raise self.refused("layer_types", sorted(unknown)[0])
        return [known[kind] for kind in stated]

    def without_effect(self, *names: str) -> None:
        """Fields in files of this family that its class in transformers does not read."""
        self._read.update(names)

    def refused(self, name: str, found: object) -> UnsupportedModel:
        return UnsupportedModel(
            f"headstart's own decoder does not know {name}={found!r:.60} of a {self.config.model_type} config",
            hint="leave quantize out: the modules of transformers then run the model",
        )

    def rope(self, *more: str, table: str | None = None, kinds: frozenset[str] = FIXED_ROPE) -> dict[str, Any]:
        """What is stated of the rotation. table: of which kind of layer, where there are several. more: fields beside
        those that every rotary module of transformers reads itself. kinds: those whose angles are fixed.

        Raises:
            UnsupportedModel: angles depend on the length of the text, or a field is not known.
        """
        found = self.get("rope_parameters") or {}
        found = found.get(table) or {} if table is not None else found
        kind = found.get("rope_type", "default")
        if kind not in kinds:
            raise self.refused("rope_type", kind)
        for name in sorted(found.keys() - ROPE_FIELDS - set(more)):
            if found[name] not in (None, False):
                raise self.refused(f"rope_parameters.{name}", found[name])
        return dict(found)

    def by_layer(self, *names: str) -> Sequence[Any]:
        """The config of each layer, which may differ from that of the model in these fields alone."""
        self._read |= {"per_layer_config", *names}
        each: Sequence[Any] = self.config.per_layer_config
        differing = set(self.config.per_layer_attributes or ()) - set(names)
        if any(getattr(layer, "skip", None) for layer in each):
            differing.add("skip")
        if differing:
            raise self.refused("per_layer_config", sorted(differing))
        return each

    def check(self) -> None:
        """Raise `UnsupportedModel` for a field that was not read and whose value is not its class's default."""
        kind: Any = type(self.config)
        said, plain = self.config.to_dict(), _defaults(kind)
        for name in sorted(said.keys() - self._read - _SAYS_NOTHING):
            value = said[name]
            if name.startswith("_") or value == plain.get(name, False) or (value is None and name not in plain):
                continue
            raise self.refused(name, value)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """What a class of configs says by itself. Of some of its own defaults transformers warns, and nobody asked."""
    logging = transformers.utils.logging
    told = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        return {**transformers.PretrainedConfig().to_dict(), **kind().to_dict()}
    finally:
        logging.set_verbosity(told)
