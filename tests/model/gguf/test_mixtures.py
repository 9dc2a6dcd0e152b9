"""Files of mixtures of experts, written as llama.cpp's converter writes them, against the models that they were made
of."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from support.gguf_files import write
from support.gguf_mixtures import MIXTURES
from support.gguf_models import made

from headstart.base.errors import DamagedModel, UnsupportedModel
from headstart.model.gguf.config import make_config
from headstart.model.gguf.files import open_gguf

_NOT_STATED = (
    "architectures", "dtype", "head_dim", "initializer_range", "max_position_embeddings", "mtp_num_hidden_layers",
    "num_nextn_predict_layers", "pad_token_id", "bos_token_id", "eos_token_id", "vocab_size_per_layer_input",
)  # fmt: skip
_BY_NEXT = ("model_type", "norm_topk_prob", "decoder_sparse_step", "intermediate_size", "mlp_only_layers")
"""What Qwen3-Next's config says and that of Qwen3.5, whose models its files are read as, does not."""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same(value, other.get(key)) for key, value in one.items())
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)


@pytest.mark.parametrize("name", MIXTURES)
def test_the_config_is_the_originals(name: str, tmp_path: Path) -> None:
    model = made(MIXTURES[name]())
    found = make_config(open_gguf(write(tmp_path / "m.gguf", model))).to_dict()
    original = model.config.to_dict()
    left_out = _NOT_STATED + (_BY_NEXT if name == "qwen3_next" else ())
    assert {key for key in original.keys() - set(left_out) if not _same(original[key], found.get(key))} == set()


@pytest.mark.parametrize(
    ("name", "said", "error", "message"),
    [
        ("qwen3_moe", {"expert_count": None}, DamagedModel, "'blk.0.ffn_down.weight' is missing"),
        ("lfm2_moe", {"expert_count": None}, DamagedModel, "'blk.1.ffn_down.weight' is missing"),
        ("qwen3_moe", {"expert_count": 9}, DamagedModel, r"'blk.0.ffn_down_exps.weight' is \[8, 64, 32\], and \[9,"),
        ("qwen3_moe", {"expert_count": 2**31 - 1}, DamagedModel, "and \\[2147483647, 64, 32\\] is needed"),
        ("qwen3_moe", {"expert_used_count": 9}, DamagedModel, "9 of 8 experts are used"),
        ("qwen3_moe", {"expert_used_count": 0}, DamagedModel, "is 0, not a whole number above 0"),
        ("qwen3_moe", {"expert_feed_forward_length": 48}, DamagedModel, r"and \[8, 64, 48\] is needed"),
        ("qwen3_moe", {"expert_gating_func": 2}, UnsupportedModel, "qwen3moe.expert_gating_func is 2"),
        ("glm4_moe", {"expert_gating_func": 1}, UnsupportedModel, "expert_gating_func is 1, and 2 is known"),
        ("glm4_moe", {"expert_group_count": 3}, DamagedModel, "8 experts in 3 groups"),
        ("glm4_moe", {"leading_dense_block_count": 3}, DamagedModel, "in all but 3 of 3 layers"),
        ("ernie4_5_moe", {"interleave_moe_layer_step": 2}, UnsupportedModel, "interleave_moe_layer_step is 2"),
        ("gpt_oss", {"expert_feed_forward_length": 16}, DamagedModel, r"and \[8, 64, 16\] is needed"),
        ("granitemoe", {"rope.scaling.finetuned": False}, UnsupportedModel, "it has no positions"),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, said: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "m.gguf", made(MIXTURES[name]()), metadata=said)
    with pytest.raises(error, match=message):
        make_config(open_gguf(path))
