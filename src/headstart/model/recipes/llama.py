"""Llama, Mistral, Qwen and Seed-OSS: what differs are windows, biases and norms of queries and keys."""

from __future__ import annotations

from headstart.model.recipes.common import decoder, layer, rms, windowed, windows, with_norms
from headstart.model.recipes.recipe import Recipe
from headstart.model.recipes.stated import Stated


def llama(stated: Stated) -> Recipe:
    """Also what transformers runs by Llama's class: InternLM 3, IQuest-Coder."""
    return decoder(stated, [layer(stated)] * stated.num_hidden_layers)


def mistral(stated: Stated) -> Recipe:
    """One window for all layers; `layer_types` are not read by transformers either."""
    return decoder(stated, [windowed(layer(stated), stated.get("sliding_window"))] * stated.num_hidden_layers)


def qwen2(stated: Stated) -> Recipe:
    """Windows by `layer_types`. Also Ministral."""
    stated.get("use_sliding_window")  # `layer_types` says what comes of it
    plain = layer(stated)
    return decoder(stated, [windowed(plain, window) for window in windows(stated)])


def qwen3(stated: Stated) -> Recipe:
    """Each head's queries and keys are normed."""
    q, k = rms(stated, "self_attn.q_norm"), rms(stated, "self_attn.k_norm")
    return decoder(stated, [with_norms(each, q, k) for each in qwen2(stated).layers])


def ministral3(stated: Stated) -> Recipe:
    """Mistral whose queries grow with their position."""
    found = stated.rope("llama_4_scaling_beta", "max_position_embeddings")  # the latter is the config's own again
    beta, origin = found["llama_4_scaling_beta"], found["original_max_position_embeddings"]
    plain = windowed(layer(stated, "llama_4_scaling_beta", "max_position_embeddings"), stated.get("sliding_window"))
    plain = plain.attending(query_beta=beta, query_origin=origin)
    return decoder(stated, [plain] * stated.num_hidden_layers)


def seed_oss(stated: Stated) -> Recipe:
    stated.get("attention_out_bias")
    return llama(stated)
