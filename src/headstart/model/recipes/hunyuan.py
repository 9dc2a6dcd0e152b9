"""Hunyuan 1."""

from __future__ import annotations

from headstart.model.recipes.common import decoder, layer, rms, with_norms
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import FIXED_ROPE, Stated


def hunyuan_v1_dense(stated: Stated) -> Recipe:
    stated.must_be("num_experts", 1)
    return hunyuan_v1(stated)


def hunyuan_v1(stated: Stated) -> Recipe:
    """Queries and keys are normed after they turn. With `alpha`, the rotation that its files call "dynamic" has fixed
    angles."""
    stated.must_be("use_qk_norm", True)
    stated.must_be("use_cla", False)
    stated.must_be("use_rotary_pos_emb", True)
    stated.must_be("norm_type", "rms")
    stated.without_effect(
        "add_classification_head", "attention_head_dim", "cla_share_factor", "class_num", "dense_list", "eod_token_id",
        "im_end_id", "im_newline_id", "im_start_id", "mask_init_id", "org_vocab_size", "pad_id", "pool_type",
        "text_end_id", "text_start_id",
    )  # fmt: skip
    alpha = (stated.get("rope_parameters") or {}).get("alpha")
    plain = layer(stated, "alpha", kinds=FIXED_ROPE | {"dynamic"} if alpha else FIXED_ROPE)
    plain = with_norms(plain, rms(stated, "self_attn.query_layernorm"), rms(stated, "self_attn.key_layernorm"))
    plain = plain.attending(norm_after_rope=True)
    return decoder(stated, [plain] * stated.num_hidden_layers)
