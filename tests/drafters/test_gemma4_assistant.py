"""Gemma 4's assistant: computed as transformers computes it, on the target's own keys, and drafting exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from support.families import EPS, WINDOW, config_of, random_model
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, joint, p_value
from torch import Tensor

import headstart as hs
from headstart.base.errors import ModelNotFound, UnsupportedModel
from headstart.drafters import Row
from headstart.drafters.gemma4_assistant import WIDTH, AssistantDrafter, recognises
from headstart.loading.assembly import assemble
from headstart.model import native
from headstart.model.heads.gemma4_assistant import TextSeen
from headstart.model.heads.gemma4_assistant_checkpoint import attending, read
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

VOCAB, LENGTH = 97, 30
DECODERS = ["lean", pytest.param("fused", marks=pytest.mark.skipif(not native.available(), reason="no row kernels"))]


# transformers 5.23 cannot make its own assistants: `kv_sharing_modes` of their text config raises where every layer
# shares its keys, although `validate_architecture` wants just that. `written` states what it should answer.
def written(
    folder: Path, *, vocab: int = VOCAB, centroids: int = 0, family: str = "gemma4_text"
) -> tuple[Path, Path, Any]:
    """A tiny Gemma 4 and its assistant, a directory each, as published; and transformers' own module of the latter."""
    own = config_of(family)
    name, unified = own.model_type, own.model_type != "gemma4_text"
    own.vocab_size = vocab
    text: dict[str, Any] = {
        "vocab_size": vocab, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
        "sliding_window": WINDOW, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rms_norm_eps": EPS, "num_kv_shared_layers": 3, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "max_position_embeddings": 256,
    }  # fmt: skip
    if own.attention_k_eq_v:
        text |= {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    if not unified:
        own.vocab_size_per_layer_input = vocab
        text |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    random_model(own).save_pretrained(folder / "target")
    config = (tf.Gemma4UnifiedAssistantConfig if unified else tf.Gemma4AssistantConfig)(
        text_config={"model_type": name, **text}, backbone_hidden_size=48, use_ordered_embeddings=bool(centroids),
        num_centroids=centroids or 2048, centroid_intermediate_top_k=2,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        modes = property(lambda self: ["reuse"] * len(self.layer_types))
        patch.setattr(type(config.text_config), "kv_sharing_modes", modes)
        assistant = random_model(config)
    if centroids:
        order = torch.randperm(vocab, generator=torch.Generator().manual_seed(2))
        assistant.masked_embedding.token_ordering.copy_(order)
    assistant.save_pretrained(folder / "assistant")
    return folder / "target", folder / "assistant", assistant


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    return written(tmp_path_factory.mktemp("gemma"))


@pytest.fixture(scope="module")
def pair(made: tuple[Path, Path, Any]) -> tuple[Path, Path]:
    return made[:2]


class Transformers:
    """The steps of a round by transformers alone, after a text of which the last token is pending."""

    @torch.no_grad()
    def __init__(self, assistant: Any, target: Any, text: Sequence[int]) -> None:
        self._assistant, self._embed = assistant, target.get_input_embeddings()
        cache = tf.DynamicCache()  # without a config, so that layers with windows keep everything
        read = target(torch.tensor([text[:-1]]), output_hidden_states=True, past_key_values=cache)
        kinds = target.config.layer_types[: len(cache.layers)]
        last = {kind: len(kinds) - 1 - kinds[::-1].index(kind) for kind in set(kinds)}
        self._keys = {kind: (cache.layers[i].keys, cache.layers[i].values) for kind, i in last.items()}
        self._text, self._state = text, read.hidden_states[-1][:, -1:]

    @torch.no_grad()
    def logits(self, path: Sequence[int] = ()) -> Tensor:
        """[V] after the pending token and these draft tokens."""
        state = self._state
        for token in (self._text[-1], *path):
            output = self._assistant(
                inputs_embeds=torch.cat((self._embed(torch.tensor([[token]])), state), -1),
                position_ids=torch.tensor([[len(self._text) - 1]]),
                shared_kv_states=self._keys,
            )
            state = output.last_hidden_state
        found: Tensor = output.logits[0, 0]
        return found


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("family", "vocab", "centroids"),
    [
        ("gemma4_text", VOCAB, 0),
        ("gemma4_text", 96, 12),
        ("gemma4_text, keys as values", VOCAB, 0),
        ("gemma4_unified_text", VOCAB, 0),
    ],
)
def test_steps_are_those_of_transformers(tmp_path: Path, decoder: Any, family: str, vocab: int, centroids: int) -> None:
    folder, path, assistant = written(tmp_path, vocab=vocab, centroids=centroids, family=family)
    text = torch.randint(vocab, (LENGTH + 1,), generator=torch.Generator().manual_seed(5)).tolist()
    theirs = Transformers(assistant, tf.AutoModelForCausalLM.from_pretrained(folder), text)
    runner = ModelRunner(tf.AutoModelForCausalLM.from_pretrained(folder), max_length=64, decoder=decoder)
    cache = runner.new_cache(1)
    slot = cache.acquire()
    hidden = runner.forward([Segment(slot, tuple(text[:-1]))], cache, taps=(runner.layers,)).hidden[runner.layers]
    cache.keep(slot, LENGTH)
    head = AssistantDrafter.load(path, runner).head
    seen, state, token, path = TextSeen(cache, torch.float32), hidden[-1:], text[-1], list[int]()
    for _ in range(3):
        output, wanted = head.run([(slot, token)], state, seen), theirs.logits(path)
        known = output.logits[0] > -torch.inf
        assert int(known.sum()) == (2 * vocab // centroids if centroids else vocab)
        spread = wanted[known].max() - wanted[known].min()
        assert (output.logits[0] - wanted)[known].abs().max() < 1e-5 * spread
        assert (wanted[~known] < wanted[known].min()).all()
        state, token = output.states, int(output.logits.argmax())
        path.append(token)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("tree", ["none", "mixed"])
def test_the_text_is_that_of_plain_decoding(pair: tuple[Path, Path], decoder: Any, tree: Any) -> None:
    folder, path = pair
    prompts = [list(range(3, 40)), [5, 6, 7], [9]]
    asked = hs.Sampling(max_tokens=40, ignore_eos=True)
    runner = ModelRunner(tf.AutoModelForCausalLM.from_pretrained(folder), max_length=128, decoder=decoder)
    wanted = assemble(runner).generate(prompts, asked)
    drafter = AssistantDrafter.load(path, runner, tree=tree, budget=6)
    found = assemble(runner, drafter=drafter, prefill_chunk=8, prefix_cache=True)
    for _ in range(2):  # the second time the cache holds the texts already
        outs = found.generate(prompts, asked)
        assert [out.tokens for out in outs] == [out.tokens for out in wanted]
        assert sum(out.stats.drafted for out in outs) > 100


class Recorded(AssistantDrafter):
    """Keeps what it proposed."""

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        drafts = super().propose(rows)
        self.made = [
            *getattr(self, "made", []),
            *((row.tokens, draft) for row, draft in zip(rows, drafts, strict=True)),
        ]
        return drafts


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("tree", ["none", "top-k"])
def test_drafts_are_the_likeliest_by_transformers(made: tuple[Path, Path, Any], decoder: Any, tree: Any) -> None:
    """Also after rounds that were accepted in part: state, keys and position are those of the text."""
    folder, path, assistant = made
    target = tf.AutoModelForCausalLM.from_pretrained(folder)
    runner = ModelRunner(tf.AutoModelForCausalLM.from_pretrained(folder), max_length=64, decoder=decoder)
    drafter = Recorded.load(path, runner, tree=tree, budget=5 if tree == "none" else 12)
    assemble(runner, drafter=drafter).generate(
        [[3, 4, 5], list(range(9, 27))], hs.Sampling(max_tokens=9, ignore_eos=True)
    )
    drafts = [(tokens, draft) for tokens, draft in drafter.made if len(draft)]
    assert len(drafts) > 8
    width = 1 if tree == "none" else WIDTH
    for tokens, draft in drafter.made:
        theirs = Transformers(assistant, target, tokens)
        for node, parent in enumerate(draft.parents):
            above = [draft.tokens[i] for i in draft.path(parent)] if parent >= 0 else []
            assert draft.tokens[node] in theirs.logits(above).topk(width).indices.tolist()


LAWS = [
    (rule, centroids, tree) for rule in ("exact", "coupled") for centroids in (0, 4) for tree in ("none", "sampled")
]
FAST = (("exact", 0, "none"), ("coupled", 4, "sampled"))


@pytest.mark.parametrize(
    ("rule", "centroids", "tree"),
    [pytest.param(*law, marks=() if law in FAST else pytest.mark.slow) for law in LAWS],
)
def test_sampled_text_follows_the_targets_distribution(tmp_path: Path, rule: Any, centroids: int, tree: str) -> None:
    """With centroids, half of the vocabulary is guessed."""
    folder, path, _ = written(tmp_path, vocab=8, centroids=centroids)
    engine = hs.load(
        folder, drafter=path, dtype="float32", max_length=32, max_batch_size=50, rule=rule, num_speculative_tokens=3,
        pacing="fixed", draft_tree=tree,
    )  # fmt: skip
    asked = [hs.Sampling(max_tokens=TOKENS + 2, temperature=1.0, seed=seed, ignore_eos=True) for seed in range(SAMPLES)]
    outs = engine.generate([PROMPT] * SAMPLES, asked)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(str(folder), 1.0, 1.0)) > 1e-3
    accepted = sum(out.stats.accepted for out in outs)
    assert 0 < accepted < sum(out.stats.drafted for out in outs)


def test_a_directory_is_known_by_its_config(pair: tuple[Path, Path]) -> None:
    folder, path = pair
    assert recognises(path)
    assert not recognises(folder)
    assert hs.load(folder, drafter=path, dtype="float32", max_length=64).drafter.taps == (8,)


def test_the_published_shape_attends_to_the_last_layers_that_store(tmp_path: Path) -> None:
    """E2B's, whose config states what does not apply as null. Its tensors are not made: they are what is missed."""
    kinds = ["sliding_attention"] * 4 + ["full_attention"]
    sizes = {"hidden_size": 1536, "num_hidden_layers": 35, "num_key_value_heads": 1, "num_kv_shared_layers": 20}
    target = tf.Gemma4TextConfig(**sizes, layer_types=kinds * 7)
    text: dict[str, Any] = {
        "attention_bias": False, "attention_k_eq_v": False, "final_logit_softcapping": None, "global_head_dim": 512,
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 256, "hidden_size_per_layer_input": 0,
        "intermediate_size": 2048, "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "max_position_embeddings": 131072, "model_type": "gemma4_text", "moe_intermediate_size": None,
        "num_attention_heads": 4, "num_experts": None, "num_global_key_value_heads": None, "num_hidden_layers": 4,
        "num_key_value_heads": 1, "num_kv_shared_layers": 4, "rms_norm_eps": 1e-06, "sliding_window": 512,
        "top_k_experts": None, "use_bidirectional_attention": None, "use_double_wide_mlp": False,
        "vocab_size": 262144, "vocab_size_per_layer_input": 0, "enable_moe_block": False,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        },
    }  # fmt: skip
    stated = {"model_type": "gemma4_assistant", "backbone_hidden_size": 1536, "text_config": text}
    more = {"num_centroids": 2048, "centroid_intermediate_top_k": 32, "use_ordered_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(stated | more))
    recipe = attending(tmp_path, target)
    assert [layer.attention.keys_of for layer in recipe.layers] == [13, 13, 13, 14]
    assert [layer.attention.window for layer in recipe.layers] == [512, 512, 512, None]


def changed(path: Path, folder: Path, config: dict[str, Any] | None = None, tensors: Any = None) -> Path:
    """A copy of an assistant with another config, or other tensors."""
    stated = json.loads((path / "config.json").read_text())
    for name, value in (config or {}).items():
        (stated["text_config"] if name in stated["text_config"] else stated)[name] = value
    (folder / "config.json").write_text(json.dumps(stated))
    save_file(load_file(path / "model.safetensors") if tensors is None else tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"backbone_hidden_size": 64}, "was made for another target: hidden_size is 64 there and 48 here"),
        ({"vocab_size": 90}, "was made for another target: vocab_size is 90 there and 97 here"),
        ({"head_dim": 32}, r"attends to 2 heads of 32, and the target's keys have 2 of 16"),
        ({"intermediate_size": 96}, r"down_proj\.weight has the shape"),
        ({"hidden_size_per_layer_input": 16}, "hidden_size_per_layer_input must be 0"),
        ({"hidden_activation": "tanh"}, "hidden_activation='tanh'"),
        ({"use_ordered_embeddings": True}, r"lacks tensors masked_embedding"),
    ],
)
def test_other_configs_are_refused(pair: tuple[Path, Path], tmp_path: Path, config: dict[str, Any], said: str) -> None:
    folder, path = pair
    with pytest.raises(UnsupportedModel, match=said):
        read(changed(path, tmp_path, config), tf.AutoConfig.from_pretrained(folder))


def test_another_family_of_targets_is_refused(pair: tuple[Path, Path]) -> None:
    llama = tf.LlamaConfig(hidden_size=48, vocab_size=VOCAB, num_attention_heads=4, head_dim=16)
    with pytest.raises(UnsupportedModel, match="attends to a layer with a sliding window, which the target lacks"):
        read(pair[1], llama)


def test_tensors_must_be_there(pair: tuple[Path, Path], tmp_path: Path) -> None:
    folder, path = pair
    target = tf.AutoConfig.from_pretrained(folder)
    tensors = load_file(path / "model.safetensors")
    del tensors["post_projection.weight"], tensors["model.layers.1.layer_scalar"]
    with pytest.raises(
        UnsupportedModel, match=r"lacks tensors post_projection\.weight, model\.layers\.1\.layer_scalar"
    ):
        read(changed(path, tmp_path, tensors=tensors), target)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound):
        read(tmp_path, target)


def test_an_order_that_names_a_token_twice_is_refused(tmp_path: Path) -> None:
    folder, path, _ = written(tmp_path, vocab=96, centroids=12)
    tensors = load_file(path / "model.safetensors")
    tensors["masked_embedding.token_ordering"][3] = tensors["masked_embedding.token_ordering"][4]
    (tmp_path / "other").mkdir()
    with pytest.raises(UnsupportedModel, match="does not name each of 96 tokens once"):
        read(changed(path, tmp_path / "other", tensors=tensors), tf.AutoConfig.from_pretrained(folder))
    with pytest.raises(UnsupportedModel, match="13 of 12 centroids"):
        read(
            changed(path, tmp_path / "other", {"centroid_intermediate_top_k": 13}),
            tf.AutoConfig.from_pretrained(folder),
        )
