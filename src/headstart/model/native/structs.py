"""The structures that are handed to the kernels: the mirrors of those in decoder.cpp and the headers.

A field that is added on one side alone would make the kernels read something else in silence. The library therefore
says how its structures lie in memory, and `difference` compares that with these once, when the library is loaded.
"""

from __future__ import annotations

import ctypes

_pointer, _number, _real, _flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int32


class Product(ctypes.Structure):
    """struct Product of products.h."""

    _fields_ = (
        *((name, _pointer) for name in ("weights", "scale", "shift", "bias")),
        *((name, _number) for name in ("inputs", "outputs", "kind", "group", "scales", "minimum")),
        *((name, _pointer) for name in ("order", "table")),
        ("results", _number),
        ("more", _pointer),
    )


class BlockMatrix(ctypes.Structure):
    """struct BlockMatrix of blocks.h."""

    _fields_ = (
        ("product", ctypes.POINTER(Product)),
        ("type", _number),
        *((name, _pointer) for name in ("rows", "to")),
        ("damaged", _number),
    )


class Norm(ctypes.Structure):
    """struct Norm of decoder.cpp. Made without arguments it is no norm."""

    _fields_ = (("gain", _pointer), ("bias", _pointer), ("eps", _real), ("kind", _flag))


NO_NORM, RMS, LAYER = range(3)
"""What `Norm.kind` may be; the enum NormKind."""

ACTIVATIONS = ("silu", "gelu_tanh", "gelu", "relu", "relu2", "xielu", "clamped")
"""In the order of the enum Activation."""


ATTENTION, SHORT_CONV, DELTA_RULE, MAMBA2, CHANNEL_RULE = range(5)
"""What `Mixer.kind` may be; the enum MixerKind."""

MOST_TAPS = 16
"""Of a convolution; as in mixers.h."""


class Mixer(ctypes.Structure):
    """struct Mixer of mixers.h. Made without arguments it is none: the layer attends alone, or is an MLP alone."""

    _fields_ = (
        *((name, _pointer) for name in ("taps", "conv_bias", "decay", "step_bias", "skip")),
        ("norm", Norm),
        *((name, _number) for name in ("channels", "gates", "heads", "groups", "key_dim", "value_dim", "kind")),
        *((name, _real) for name in ("written", "gate_factor", "step_factor")),
        ("norm_first", _flag),
    )


class Latent(ctypes.Structure):
    """struct Latent of latent.h. Made without arguments it is none."""

    _fields_ = (
        ("query", Product),
        *((name, ctypes.POINTER(Product)) for name in ("keys", "values")),
        *((name, _number) for name in ("rank", "nope", "value_dim")),
    )


class Gate(ctypes.Structure):
    """struct Gate of activations.h."""

    _fields_ = (
        *((name, _flag) for name in ("activation", "gated")),
        ("factor", _real),
        ("numbers", _pointer),
    )


SCORES = ("softmax", "sigmoid", "chosen")
"""In the order of the enum Score."""


class Experts(ctypes.Structure):
    """struct Experts of experts.h."""

    _fields_ = (
        *((name, _pointer) for name in ("gate_up", "down")),
        ("router", Product),
        *((name, Norm) for name in ("router_norm", "input_norm", "output_norm", "shared_norm")),
        *((name, _pointer) for name in ("choice_bias", "expert_factors")),
        ("gate", Gate),
        *((name, _number) for name in ("count", "chosen", "groups", "groups_kept", "group_best")),
        *((name, _real) for name in ("least_sum", "factor")),
        *((name, _flag) for name in ("score", "normalised", "shared", "shared_gated", "mapped")),
    )


class Layer(ctypes.Structure):
    """struct Layer of decoder.cpp."""

    _fields_ = (
        ("latent", Latent),
        ("mixer", Mixer),
        *(
            (name, Norm)
            for name in ("attention_in", "attention_out", "mlp_in", "mlp_out", "q_norm", "k_norm", "v_norm")
        ),
        *((name, Product) for name in ("qkv", "out", "beside_out", "gate_up", "down", "mixer_decays", "mixer_gate")),
        *((name, Product) for name in ("input_gate", "input_out")),
        ("input_norm", Norm),
        ("experts", _pointer),
        *((name, _pointer) for name in ("cosine", "sine", "query_factors", "sinks", "activation_numbers")),
        *((name, _number) for name in ("heads", "kv_heads", "dim", "rotary", "keys_of", "window", "mixer_from")),
        *((name, _real) for name in ("scaling", "softcap", "mixer_factor", "beside_factor", "mlp_factor")),
        *((name, _real) for name in ("gate_factor", "layer_factor")),
        *((name, _flag) for name in ("activation", "gated")),
        *((name, _flag) for name in ("norm_over_all", "gain_by_head")),
        *((name, _flag) for name in ("norm_after_rotation", "value_is_key", "parallel", "attention_gated")),
    )


class TokenInputs(ctypes.Structure):
    """struct TokenInputs of decoder.cpp. Made without arguments there are no such inputs."""

    _fields_ = (
        ("table", _pointer),
        *((name, Product) for name in ("codes", "projection")),
        ("norm", Norm),
        ("width", _number),
        *((name, _real) for name in ("factor", "projection_factor", "sum_factor")),
    )


class Model(ctypes.Structure):
    """struct Model of decoder.cpp."""

    _fields_ = (
        ("layers", ctypes.POINTER(Layer)),
        *((name, _number) for name in ("layer_count", "width")),
        *((name, _pointer) for name in ("embedding", "places")),
        *((name, Norm) for name in ("embedding_norm", "final_norm")),
        *((name, Product) for name in ("head", "table")),
        ("inputs", TokenInputs),
        *((name, _real) for name in ("embedding_factor", "logit_factor", "logit_softcap")),
        ("bf16", _flag),
    )


class Visible(ctypes.Structure):
    """struct Visible of attention.h."""

    _fields_ = tuple((name, _pointer) for name in ("first", "last", "extra_begin", "extra"))


class Walks(ctypes.Structure):
    """struct Walks of mixers.h."""

    _fields_ = (
        *((name, _pointer) for name in ("planes", "kept", "log")),
        *((name, _number) for name in ("slots", "log_rows", "taps")),
        *((name, _pointer) for name in ("sources", "logged_begin", "logged", "visit_begin", "inputs", "depths")),
        *((name, _pointer) for name in ("store_begin", "store_visits", "store_planes", "store_inputs")),
        *((name, _pointer) for name in ("write_begin", "write_rows", "write_places")),
        *((name, _number) for name in ("segments", "deepest")),
    )


class DraftHead(ctypes.Structure):
    """struct DraftHead of decoder.cpp."""

    _fields_ = (
        ("fuse", Product),
        *((name, Norm) for name in ("state_norm", "embedding_norm")),
        *((name, _flag) for name in ("state_first", "residual_normed", "output_normed")),
    )


class Batch(ctypes.Structure):
    """struct Batch of decoder.cpp."""

    _fields_ = (
        ("count", _number),
        *((name, _pointer) for name in ("ids", "positions", "slots", "places", "segments")),
        ("segment_count", _number),
        ("visible", ctypes.POINTER(Visible)),
        *((name, _pointer) for name in ("keys", "values")),
        ("capacity", _number),
        ("judged", _pointer),
        ("judged_count", _number),
        *((name, _pointer) for name in ("logits", "taps")),
        ("threads", _number),
        ("draft_head", ctypes.POINTER(DraftHead)),
        *((name, _pointer) for name in ("states", "features", "output_states")),
        ("walks", ctypes.POINTER(Walks)),
        ("experts_touched", _pointer),
        ("coded", _flag),
    )


MIRRORS: tuple[type[ctypes.Structure], ...] = (
    Product, BlockMatrix, Norm, Latent, Mixer, Gate, Experts, Layer, TokenInputs, Model, Visible, Walks, DraftHead,
    Batch,
)  # fmt: skip


def difference(library: str) -> str | None:
    """Where a library's own layout (see `headstart_layout`) differs from the mirrors', in words; None if nowhere.

    library: a line for each structure, "Name bytes field offset+bytes ...".
    """
    theirs = {line.split()[0]: line for line in library.splitlines()}
    ours = {mirror.__name__: _layout(mirror) for mirror in MIRRORS}
    for name in ours.keys() | theirs.keys():
        if ours.get(name) != theirs.get(name):
            return f"struct {name} is [{theirs.get(name)}] in the library and [{ours.get(name)}] in Python"
    return None


def _layout(mirror: type[ctypes.Structure]) -> str:
    fields = (f"{name} {at.offset}+{at.size}" for name, *_ in mirror._fields_ if (at := getattr(mirror, name)))
    return " ".join((mirror.__name__, str(ctypes.sizeof(mirror)), *fields))
