"""The whole of `train_eagle3` on a tiny target: it learns, it resumes, and what it writes is what the field reads."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.base.errors import InvalidOption, TrainingFailed, UnsupportedModel
from headstart.model.heads import eagle_checkpoint, stored_tensors
from headstart.train import Eagle3Training, Report, checkpoint, eagle_start, train_eagle3
from headstart.train.eagle3 import Eagle3Student
from headstart.train.frequent_tokens import draft_vocabulary
from headstart.train.harness import Material, dtype_of, load_target
from headstart.train.head_layer import HeadShape, rotate, rotation
from headstart.train.student import weights_sha256
from headstart.train.unrolled_head import EagleHead
from headstart.train.windows import Windows

SHAPE = HeadShape(
    hidden=16, intermediate=24, heads=4, kv_heads=2, head_dim=4, draft_vocab=11, rope_theta=100.0, eps=1e-5
)
LAYER = (
    *("hidden_norm", "input_layernorm", "post_attention_layernorm"),
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)


class Killed(BaseException):
    """What a kill looks like from inside."""


@pytest.fixture
def options(target: Path, texts: Path, tmp_path: Path) -> Eagle3Training:
    """A run of a few seconds in float32."""
    return Eagle3Training(
        target=target,
        output=tmp_path / "head",
        data=(texts,),
        steps=30,
        batch_size=4,
        matrix_rate=0.02,
        sequence_length=32,
        draft_vocab_size=40,
        validation=0.2,
        validation_windows=8,
        dtype="float32",
        device="cpu",
    )


def material(options: Eagle3Training, windows: Tensor) -> Material:
    device = torch.device("cpu")
    target, tokenizer = load_target(options, device)
    found = Windows.plain(windows.int())
    return Material(target, tokenizer, found, found, device, dtype_of(options, device))


def kill_at(step: int) -> Any:
    def observe(report: Report) -> None:
        if report.stage == "training" and report.step == step:
            raise Killed

    return observe


# -- the head ---------------------------------------------------------------------------------------------------------


def one_by_one(head: EagleHead, aux: Tensor, embedded: Tensor, begin: int, steps: int) -> list[Tensor]:
    """The states of one chain as a drafter makes them: rows 0..begin of the text, then its own states, row by row.

    aux [T, 3d], embedded [T, d]; written with nothing of the module but its weights.
    """
    layer, dim = head.midlayer, head.shape.head_dim
    keys: list[Tensor] = []
    values: list[Tensor] = []
    cos, sin = rotation(64, head.shape, aux.device, aux.dtype)
    states: list[Tensor] = []
    for row in range(begin + steps):
        state = head.fc(aux[row]) if row <= begin else states[-1]
        both = torch.cat([layer.input_layernorm(embedded[row]), layer.hidden_norm(state)])
        query, key, value = (
            project(both).view(-1, dim)
            for project in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        )
        keys.append(rotate(key, cos[row], sin[row]).repeat_interleave(2, 0))
        values.append(value.repeat_interleave(2, 0))
        query = rotate(query, cos[row], sin[row])
        distribution = (torch.einsum("hd,shd->hs", query, torch.stack(keys)) * dim**-0.5).softmax(-1)
        mixed = torch.einsum("hs,shd->hd", distribution, torch.stack(values))
        x = state + layer.self_attn.o_proj(mixed.flatten())
        mlp = layer.mlp
        normed = layer.post_attention_layernorm(x)
        x = x + mlp.down_proj(F.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed))
        states.append(x)
    return states[begin:]


@torch.no_grad()
def test_every_row_is_a_chain_that_begins_there() -> None:
    torch.manual_seed(0)
    head = EagleHead(SHAPE)
    for parameter in head.parameters():
        parameter.normal_(0, 0.4)
    aux, embedded = torch.randn(10, 48), torch.randn(10, 16)
    passes = head.unroll(aux[None], embedded[None], 4)
    assert [tuple(states.shape) for states in passes] == [(1, 10 - i, 16) for i in range(4)]
    for begin in range(7):
        for i, wanted in enumerate(one_by_one(head, aux, embedded, begin, 4)):
            torch.testing.assert_close(passes[i][0, begin], wanted, atol=1e-4, rtol=1e-4)


def test_the_residual_can_be_normed() -> None:
    torch.manual_seed(0)
    plain, normed = EagleHead(SHAPE), EagleHead(replace(SHAPE, norm_before_residual=True))
    normed.load_state_dict(plain.state_dict())
    aux, embedded = torch.randn(1, 5, 48), torch.randn(1, 5, 16)
    difference = plain.unroll(aux, embedded, 1)[0] - normed.unroll(aux, embedded, 1)[0]
    assert difference.abs().max() > 0.1


@pytest.mark.parametrize("init", ["target", "random"])
def test_first_weights(options: Eagle3Training, init: Any) -> None:
    windows = torch.randint(257, (6, 32), generator=torch.Generator().manual_seed(0))
    made = material(options, windows)
    student = Eagle3Student(replace(options, init=init), made)
    last = made.target.model.layers[-1]
    ours, theirs = student.head.midlayer.mlp.up_proj.weight, last.mlp.up_proj.weight
    assert torch.equal(ours, theirs) == (init == "target")
    assert torch.equal(student.head.lm_head.weight, made.target.lm_head.weight[student.kept]) == (init == "target")
    assert "embed_tokens" not in "".join(name for name, _ in student.named_parameters())


def test_a_head_goes_on_where_it_ended(options: Eagle3Training, tmp_path: Path) -> None:
    first = train_eagle3(replace(options, steps=20, norm_before_residual=True))
    again = replace(options, output=tmp_path / "again", begin_with=first.path, draft_vocab_size=None)
    windows = torch.randint(257, (6, 32), generator=torch.Generator().manual_seed(0))
    made = material(again, windows)
    student = Eagle3Student(again, made)
    stored = load_file(first.path / "model.safetensors")
    assert student.kept.tolist() == (torch.arange(40) + stored["d2t"]).tolist()
    assert all(torch.equal(t.bfloat16(), stored[name]) for name, t in student.head.state_dict().items())
    assert student.head.shape.norm_before_residual
    # The same head, with a larger vocabulary and other layers
    wider = Eagle3Student(replace(again, draft_vocab_size=257, begin_with=first.path), made)
    rows = wider.head.lm_head.weight
    assert torch.equal(rows[student.kept].bfloat16(), stored["lm_head.weight"])
    other = next(token for token in range(257) if token not in student.kept)
    assert torch.equal(rows[other], made.target.lm_head.weight[other])
    begun = eagle_checkpoint.read(first.path, made.target.config)
    begun = replace(begun, config=replace(begun.config, layer_ids=(0, 2, 3)))
    eagle_start.go_on(wider.head, begun, wider.kept, (0, 1, 2))
    fuse, old = wider.head.fc.weight, stored["fc.weight"].float()
    assert torch.equal(fuse, torch.cat([old[:, :64], torch.zeros(64, 64), old[:, 64:128]], 1))
    record = json.loads((train_eagle3(replace(again, steps=1)).path / "provenance.json").read_text())
    assert record["begun_with"]["model.safetensors"] == weights_sha256(str(first.path))["model.safetensors"]


@pytest.mark.parametrize(
    ("strange", "message"),
    [
        ({"fc_norm": True}, "norms before fc"),
        ({"norm_output": True}, "normed states"),
        ({"version": eagle_checkpoint.EAGLE1}, "not an EAGLE-3 head"),
        ({"window": 8}, "sliding window"),
    ],
)
def test_other_kinds_of_heads_are_not_trained(options: Eagle3Training, strange: dict[str, Any], message: str) -> None:
    first = train_eagle3(replace(options, steps=1))
    target, _ = load_target(options, torch.device("cpu"))
    begun = eagle_checkpoint.read(first.path, target.config)
    shape = HeadShape.of(target.config, 40)
    assert eagle_start.shape_of(begun, shape) == shape
    with pytest.raises(UnsupportedModel, match=message):
        eagle_start.shape_of(replace(begun, config=replace(begun.config, **strange)), shape)


# -- the loss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [40, 257])
def test_loss_is_what_its_definition_says(options: Eagle3Training, size: int) -> None:
    options = replace(
        options, draft_vocab_size=size, ttt_steps=3, tv_weight=0.25, depth_keep=1.0, row_share=1.0, cache_hidden=0.0
    )
    windows = torch.randint(257, (5, 32), generator=torch.Generator().manual_seed(1))
    made = material(options, windows)
    student = Eagle3Student(options, made)
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "norm" not in name:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    ids = windows[:2]
    found = student.loss(Windows.plain(ids), torch.tensor([0, 1]), 0)
    rows = [(window, begin) for window in range(2) for begin in range(29)]

    with torch.no_grad():
        out = made.target(ids, output_hidden_states=True)
        aux = torch.cat([out.hidden_states[i] for i in student.layer_ids], -1)
        embedding = made.target.get_input_embeddings().weight
        total = torch.zeros(3)
        for window, begin in rows:
            chain = one_by_one(student.head, aux[window], embedding[ids[window, 1:]], begin, 3)
            for i, state in enumerate(chain):
                p = out.logits[window, begin + 1 + i].softmax(-1)[student.kept]
                q = student.head.lm_head(student.head.norm(state)).softmax(-1)
                covered = p.sum()
                kl = (p * (p / covered / q).log()).sum()
                total[i] += 0.75 * kl + 0.25 * (1 - torch.minimum(p, q).sum())
        weights = torch.tensor([1.0, 0.8, 0.64])
        wanted = (weights * total / len(rows)).sum() / weights.sum()
    torch.testing.assert_close(found.detach(), wanted, atol=1e-4, rtol=1e-4)


def test_a_frozen_output_matrix_stays_as_it_begins(options: Eagle3Training) -> None:
    result = train_eagle3(replace(options, steps=3, freeze_output=True))
    stored = load_file(result.path / "model.safetensors")
    target, _ = load_target(options, torch.device("cpu"))
    kept = torch.arange(40) + stored["d2t"]
    assert torch.equal(stored["lm_head.weight"], target.lm_head.weight[kept].bfloat16())


def test_the_rejection_rate_comes_in_step_by_step(options: Eagle3Training) -> None:
    windows = torch.randint(257, (5, 32), generator=torch.Generator().manual_seed(1))
    student = Eagle3Student(replace(options, tv_weight=0.8, tv_warmup=4), material(options, windows))
    first = Windows.plain(windows[:1])
    losses = [student.loss(first, torch.tensor([0]), step).item() for step in (0, 2, 4, 400)]
    plain = Eagle3Student(replace(options, tv_weight=0.0), material(options, windows))
    assert losses[0] == plain.loss(first, torch.tensor([0]), 0).item()
    assert [student._blend(step).tv_weight for step in (2, 4, 400)] == [0.4, 0.8, 0.8]


def test_a_share_of_rows_is_drawn_by_the_seed(options: Eagle3Training) -> None:
    windows = torch.randint(257, (5, 32), generator=torch.Generator().manual_seed(1))
    student = Eagle3Student(replace(options, row_share=0.3, draft_vocab_size=257), material(options, windows))
    two, places = Windows.plain(windows[:2]), torch.tensor([0, 1])
    first, again, later = (student.loss(two, places, step).item() for step in (0, 0, 1))
    assert first == again != later


def test_the_draft_vocabulary_is_the_most_frequent_tokens_and_the_end() -> None:
    windows = torch.tensor([5, 5, 5, 5, 7, 7, 7, 1, 2, 2])
    config = SimpleNamespace(vocab_size=10, eos_token_id=9)
    assert draft_vocabulary(windows, config, 3).tolist() == [5, 7, 9]
    assert draft_vocabulary(windows, config, 4).tolist() == [2, 5, 7, 9]
    assert len(draft_vocabulary(windows, config, None)) == 10
    config.vocab_size = 60_000
    frequent = torch.arange(20_000).repeat(20)
    rare = torch.arange(30_000, 40_000)
    assert len(draft_vocabulary(torch.arange(4000)[None], config, None)) == 8_192
    assert len(draft_vocabulary(torch.cat([frequent, rare[:100]])[None], config, None)) == 19_456
    assert len(draft_vocabulary(torch.cat([frequent, rare])[None], config, None)) == 20_480
    assert len(draft_vocabulary(torch.arange(50_000)[None], config, None)) == 32_768
    config.vocab_size = 10
    config.eos_token_id = [8, 9]
    assert draft_vocabulary(windows, config, 3).tolist() == [5, 8, 9]


# -- the run ----------------------------------------------------------------------------------------------------------


def test_loss_goes_down_and_acceptance_goes_up(options: Eagle3Training) -> None:
    losses: list[float] = []
    measured: list[float] = []

    def observe(report: Report) -> None:
        if report.stage == "training":
            losses.append(report.loss)
        if report.stage == "measuring" and report.acceptance is not None:
            measured.append(report.acceptance.length["0"])

    noise = replace(options, steps=120, evaluate_every=10, init="random")  # where there is most to learn
    result = train_eagle3(noise, observe=observe)
    assert losses[-1] < 0.8 * losses[0]
    assert result.acceptance.length["0"] > measured[0]
    depths = result.acceptance.reached["0"]
    assert len(depths) == 4
    assert list(depths) == sorted(depths, reverse=True)
    assert sum(depths) == pytest.approx(result.acceptance.length["0"])


@pytest.mark.parametrize("more", [{"tv_warmup": 9}, {"row_share": 0.5, "cache_hidden": 0.0002, "generations": 4}])
def test_resume_equals_a_run_never_stopped(options: Eagle3Training, tmp_path: Path, more: dict[str, Any]) -> None:
    options = replace(options, steps=12, save_every=1e-9, generation_tokens=24, **more)
    whole = train_eagle3(replace(options, output=tmp_path / "whole"))
    for step in (4, 9):
        with pytest.raises(Killed):
            train_eagle3(options, observe=kill_at(step))
    again = train_eagle3(options)
    assert again.resumed_from == 8
    ours, theirs = (load_file(r.path / "model.safetensors") for r in (again, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert again.acceptance == whole.acceptance
    assert {p.name for p in again.path.iterdir()} == {"config.json", "model.safetensors", "provenance.json"}


def test_a_full_disk_leaves_the_last_checkpoint(options: Eagle3Training, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(options, steps=6, save_every=1e-9)
    save, written = save_file, []

    def filling(tensors: Any, path: Path) -> None:
        written.extend([path] if path.stem == "optimiser" else [])  # not the states of windows
        save(tensors, path)
        if len(written) == 4:
            path.write_bytes(path.read_bytes()[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", filling)
    with pytest.raises(TrainingFailed, match=r"No space left.*checkpoint of step 3 is whole") as caught:
        train_eagle3(options)
    assert "same command again" in caught.value.hint
    assert [p.name for p in (options.folder / "checkpoints").iterdir()] == ["step-00000003"]
    assert train_eagle3(options).resumed_from == 3


def test_a_disk_full_at_the_end_costs_no_step(options: Eagle3Training, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(options, steps=3)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stored_tensors, "save_file", full)
    with pytest.raises(TrainingFailed, match="checkpoint of step 3 is whole"):
        train_eagle3(options)
    assert {p.name for p in options.folder.iterdir()} == {"checkpoints", "hidden", "phases.json", "run.json"}
    monkeypatch.undo()
    trained: list[int] = []
    result = train_eagle3(options, observe=lambda r: trained.append(r.step) if r.stage == "training" else None)
    assert (result.resumed_from, trained) == (3, [])
    assert (result.path / "model.safetensors").exists()


@pytest.mark.parametrize("form", ["hf", "speculators", "both"])
@pytest.mark.parametrize("size", [40, None])
def test_formats(options: Eagle3Training, form: Any, size: int | None) -> None:
    result = train_eagle3(replace(options, steps=1, format=form, draft_vocab_size=size))
    width = 257 if size is None else size
    folders = {"hf": ("", None), "speculators": (None, ""), "both": ("", "speculators")}[form]
    for folder, prefix in zip(folders, ("midlayer.", "layers.0."), strict=True):
        if folder is None:
            continue
        tensors = load_file(result.path / folder / "model.safetensors")
        names = {"fc.weight", "norm.weight", "lm_head.weight", *(f"{prefix}{name}.weight" for name in LAYER)}
        assert tensors.keys() == names | ({"d2t", "t2d"} if size else set())
        assert {tensors[name].dtype for name in names} == {torch.bfloat16}
        assert tensors["fc.weight"].shape == (64, 192)
        assert tensors[f"{prefix}self_attn.q_proj.weight"].shape == (64, 128)
        assert tensors["lm_head.weight"].shape == (width, 64)
        if size:
            assert (tensors["d2t"].dtype, tensors["t2d"].dtype) == (torch.int64, torch.bool)
            ids = torch.arange(size) + tensors["d2t"]
            assert torch.equal(ids, tensors["t2d"].nonzero()[:, 0])
    record = json.loads((result.path / "provenance.json").read_text())
    assert record["kind"] == "headstart eagle3"
    assert record["layer_ids"] == [0, 1, 2]
    assert record["heldout"]["reached"].keys() == {"0", "0.7", "1"}


def test_configs_say_what_readers_need(options: Eagle3Training) -> None:
    result = train_eagle3(replace(options, steps=1, format="both"))
    config = json.loads((result.path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["draft_vocab_size"], config["vocab_size"], config["num_hidden_layers"]) == (40, 257, 1)
    assert config["headstart"]["layer_ids"] == [0, 1, 2]
    assert config["headstart"]["layer_ids_are"] == "inputs"
    assert config["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]
    assert config["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [-1, 0, 1], "use_aux_hidden_state": True}
    nested = json.loads((result.path / "speculators" / "config.json").read_text())
    assert nested["speculators_model_type"] == "eagle3"
    assert nested["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]
    assert nested["transformer_layer_config"]["num_hidden_layers"] == 1
    method = nested["speculators_config"]["proposal_methods"][0]
    assert (method["verifier_accept_k"], method["accept_tolerance"]) == (1, 0.0)
    assert nested["speculators_config"]["verifier"]["architectures"] == ["LlamaForCausalLM"]


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"ttt_steps": 0},
        {"step_decay": 0.0},
        {"row_share": 0.0},
        {"row_share": 1.5},
        {"depth_keep": 0.0},
        {"depth_floor": 1.5},
        {"depth_weights": "all"},
        {"tv_warmup": -1},
        {"draft_vocab_size": 0},
        {"cache_hidden": -1.0},
        {"format": "onnx"},
        {"layer_ids": (1, 2)},
        {"layer_ids": (1, 2, 2)},
        {"layer_ids": (-1, 2, 3)},
        {"ttt_steps": 7, "sequence_length": 8},
        {"tv_weight": 2.0},
        {"steps": None},
        {"heads": 3},
    ],
)
def test_bad_options_are_refused_with_a_hint(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        Eagle3Training(**{"target": "t", "output": "o", "data": "d", "steps": 1, **bad})
    assert caught.value.hint


def test_windows_beyond_the_target_s_context_are_refused(options: Eagle3Training) -> None:
    with pytest.raises(InvalidOption, match="sequence_length=512 is longer than the target's context of 256"):
        train_eagle3(replace(options, sequence_length=512))


def test_no_text_and_bad_lines_are_refused(options: Eagle3Training, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrainingFailed, match="no text"):
        train_eagle3(replace(options, data=(tmp_path / "empty",)))
    (tmp_path / "bad.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    with pytest.raises(InvalidOption, match=r"bad\.jsonl, line 2: not JSON"):
        train_eagle3(replace(options, data=(tmp_path / "bad.jsonl",)))
