"""Every engine that loads a written head reads the same layers: the rules of the readers, written down once more.

Sources, by file: vLLM 0.32 `v1/worker/gpu_model_runner.py` (runner V1) and `v1/worker/gpu/spec_decode/eagle/
eagle3_utils.py` (runner V2), both of which sort the layers by reading them in order; SGLang 0.5.23
`spec_aux_hidden_state.py` with `models/llama.py`, which adds one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from headstart.base.errors import UnsupportedModel
from headstart.model.heads import eagle_checkpoint
from headstart.train import eagle_formats
from headstart.train.head_layer import HeadShape
from headstart.train.unrolled_head import EagleHead

TOP = "eagle_aux_hidden_state_layer_ids"
PAIR = Path(eagle_formats.__file__).parents[1] / "pair"
HEAD = HeadShape(
    hidden=16, intermediate=24, heads=4, kv_heads=2, head_dim=4, draft_vocab=11, rope_theta=100.0, eps=1e-5
)

Config = dict[str, Any]
Layers = tuple[int, ...]


def usual(layers: int) -> Layers:
    return 2, layers // 2, layers - 3


def vllm_v1(config: Config, layers: int) -> Layers:
    found = config.get(TOP) or (config.get("eagle_config") or {}).get(TOP)
    return tuple(sorted(set(found or usual(layers))))


def vllm_v2(config: Config, layers: int) -> Layers:
    found = config.get(TOP) or (config.get("eagle_config") or {}).get("layer_ids")
    return tuple(sorted(set(found or usual(layers))))


def sglang(config: Config, layers: int) -> Layers:
    found = (config.get("eagle_config") or {}).get(TOP)
    return tuple(i + 1 for i in found) if found else usual(layers)


FLAT: dict[str, Callable[[Config, int], Layers]] = {"vLLM V1": vllm_v1, "vLLM V2": vllm_v2, "SGLang": sglang}
NESTED = {name: FLAT[name] for name in ("vLLM V1", "vLLM V2")}  # SGLang has no loader for the speculators form


def target(layers: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=23, hidden_size=16, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip


def written(folder: Path, ids: Layers, layers: int) -> Path:
    head, kept = EagleHead(HEAD), torch.arange(11)
    folder.mkdir()
    eagle_formats.write(
        folder, head, kept, target(layers), layer_ids=ids, target_name="t", speculative_tokens=4, form="both"
    )  # type: ignore[arg-type]
    return folder


def config_of(folder: Path) -> Config:
    found: Config = json.loads((folder / "config.json").read_text())
    return found


@pytest.mark.parametrize(("ids", "layers"), [((2, 4, 5), 8), ((1, 4, 9), 12), ((2, 16, 29), 32), ((0, 3, 11), 12)])
def test_all_readers_of_a_new_folder_read_the_same_layers(tmp_path: Path, ids: Layers, layers: int) -> None:
    folder = written(tmp_path / "head", ids, layers)
    for name, rule in FLAT.items():
        assert rule(config_of(folder), layers) == ids, name
    for name, rule in NESTED.items():
        assert rule(config_of(folder / "speculators"), layers) == ids, name
    for each in (folder, folder / "speculators"):
        assert eagle_checkpoint.read(each, target(layers)).config.layer_ids == ids
        assert config_of(each)["norm_before_residual"] is False  # a reader's own default may be true


def test_all_readers_of_the_bundled_head_read_the_same_layers() -> None:
    config = config_of(PAIR / "eagle3")
    assert {name: rule(config, 8) for name, rule in FLAT.items()} == dict.fromkeys(FLAT, (2, 5, 7))


def test_without_the_key_at_the_top_vllm_reads_other_layers_than_sglang() -> None:
    """What configs of an earlier headstart do: this table is why the key is written."""
    old = {key: value for key, value in config_of(PAIR / "eagle3").items() if key != TOP}
    found = {name: rule(old, 8) for name, rule in FLAT.items()}
    assert found == {"vLLM V1": (1, 4, 6), "vLLM V2": (2, 4, 5), "SGLang": (2, 5, 7)}


CONTRADICTIONS: dict[str, Config] = {
    "the nested list names inputs": {"eagle_config": {TOP: [2, 5, 7]}},
    "the list at the top names outputs": {TOP: [1, 4, 6]},
    "headstart's own list is another": {"headstart": {"layer_ids": [2, 4, 7], "layer_ids_are": "inputs"}},
    "headstart's own list is of outputs": {"headstart": {"layer_ids": [2, 5, 7], "layer_ids_are": "outputs"}},
    "another order": {TOP: [7, 5, 2]},
}


@pytest.mark.parametrize("fault", CONTRADICTIONS)
def test_a_config_that_contradicts_itself_is_refused(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "head"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config_of(PAIR / "eagle3"), **CONTRADICTIONS[fault]}))
    (folder / "model.safetensors").symlink_to(PAIR / "eagle3" / "model.safetensors")
    with pytest.raises(UnsupportedModel, match="contradicts itself on the layers") as caught:
        eagle_checkpoint.read(folder, LlamaConfig.from_pretrained(PAIR / "target"))
    assert "outputs are one less" in caught.value.hint


@pytest.mark.parametrize("ids", [(5, 2, 7), (2, 2, 5), (2, 5, 8), (-1, 2, 5)])
def test_layers_that_engines_read_differently_are_refused(ids: Layers) -> None:
    eagle_formats.check_layer_ids((2, 5, 7), 8)
    with pytest.raises(UnsupportedModel):
        eagle_formats.check_layer_ids(ids, 8)


def test_vllm_finds_the_biases_and_the_sizes_of_medusa_heads() -> None:
    """`model_executor/models/medusa.py` makes layers without biases unless told; its config takes every key that holds
    "num" and "heads", or "num" and "layers", for the number of heads or blocks, so there may be one of each."""
    config = config_of(PAIR / "medusa")
    assert config["medusa_fc_bias"] is True
    assert [key for key in config if "num" in key and "heads" in key] == ["medusa_num_heads"]
    assert [key for key in config if "num" in key and "layers" in key] == ["medusa_num_layers"]
    assert {"hidden_size", "vocab_size"} <= config.keys()
