"""The whole of `train_medusa` on a tiny target: it learns, it resumes, and the engine drafts what was trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.divergence import plain_divergence
from support.training_models import byte_tokenizer, tiny_llama
from transformers import AutoModelForCausalLM

from headstart.base.errors import InvalidOption, TrainingFailed
from headstart.drafters.growing.ranks import WIDTH, grow
from headstart.drafters.medusa import MedusaDrafter, recognises
from headstart.loading.assembly import assemble
from headstart.model.heads.medusa import MedusaHeads, read_heads
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.train.harness import Material, Report
from headstart.train.medusa import (
    MedusaStudent,
    MedusaTraining,
    accepted_in_tree,
    forecasts,
    ranks,
    table,
    train_medusa,
)
from headstart.train.windows import Windows
from headstart.types import Sampling, Step

VOCAB = 257
WINDOW = torch.arange(3, 67, dtype=torch.int32) * 3


class Killed(BaseException):
    """What a kill looks like from inside."""


@pytest.fixture
def medusa(target: Path, texts: Path, tmp_path: Path) -> MedusaTraining:
    """A run of a few seconds in float32."""
    return MedusaTraining(
        target=target,
        output=tmp_path / "heads",
        data=(texts,),
        heads=3,
        steps=20,
        batch_size=4,
        sequence_length=32,
        validation=0.2,
        validation_windows=8,
        dtype="float32",
        device="cpu",
    )


def student(options: MedusaTraining) -> MedusaStudent:
    target = tiny_llama().requires_grad_(False)
    windows = Windows.plain(WINDOW[None])
    device = torch.device("cpu")
    return MedusaStudent(options, Material(target, byte_tokenizer(), windows, windows, device, torch.float32))


def test_loss_goes_down_and_the_directory_is_a_checkpoint_of_the_field(medusa: MedusaTraining) -> None:
    losses: list[float] = []
    result = train_medusa(
        replace(medusa, steps=80), observe=lambda r: losses.append(r.loss) if r.stage == "training" else None
    )
    assert losses[-1] < 0.8 * losses[0]
    assert result.tokens == 80 * 4 * 32
    names = sorted(p.name for p in result.path.iterdir())
    assert names == ["config.json", "medusa_lm_head.safetensors", "provenance.json"]
    tensors = load_file(result.path / "medusa_lm_head.safetensors")
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wanted = {"0.linear.weight": (64, 64), "0.linear.bias": (64,), "1.weight": (VOCAB, 64)}
    assert shapes == {f"{i}.{name}": shape for i in range(3) for name, shape in wanted.items()}
    assert all(tensor.dtype == torch.bfloat16 for tensor in tensors.values())
    config = json.loads((result.path / "config.json").read_text())
    assert (config["medusa_num_heads"], config["medusa_num_layers"]) == (3, 1)
    assert config["medusa_fc_bias"] is True
    assert config["base_model_name_or_path"] == str(medusa.target)
    assert recognises(result.path)
    record = json.loads((result.path / "provenance.json").read_text())
    assert record["kind"] == "headstart medusa"
    assert record["accuracies"] == config["headstart"]["accuracies"]
    lengths = [record["accepted_in_trees"][nodes] for nodes in ("16", "32", "63")]
    assert 0 < lengths[0] <= lengths[1] <= lengths[2] <= 3
    assert record["heldout"]["rate"] == result.acceptance.rate


@pytest.mark.parametrize("blocks", [1, 2])
def test_resume_equals_a_run_never_stopped(medusa: MedusaTraining, tmp_path: Path, blocks: int) -> None:
    options = replace(medusa, steps=12, save_every=1e-9, blocks=blocks, tv_weight=0.3)
    whole = train_medusa(replace(options, output=tmp_path / "whole"))
    twice = train_medusa(replace(options, output=tmp_path / "twice"))

    def kill(report: Report) -> None:
        if report.stage == "training" and report.step == 7:
            raise Killed

    with pytest.raises(Killed):
        train_medusa(options, observe=kill)
    with pytest.raises(TrainingFailed, match="head_decay"):
        train_medusa(replace(options, head_decay=0.5))
    again = train_medusa(options)
    assert again.resumed_from == 6
    ours, same, theirs = (load_file(r.path / "medusa_lm_head.safetensors") for r in (again, twice, whole))
    assert len(ours) == 3 * (2 * blocks + 1)
    assert all(torch.equal(ours[name], theirs[name]) and torch.equal(same[name], theirs[name]) for name in theirs)
    assert again.acceptance == whole.acceptance


def test_the_engine_drafts_what_the_trained_heads_say(medusa: MedusaTraining) -> None:
    """Of the very module that was trained, on the states of transformers' own model."""
    made: list[MedusaStudent] = []
    keep = MedusaStudent.write

    def write(self: MedusaStudent, folder: Path) -> None:
        keep(self, folder)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MedusaStudent, "write", write)
        result = train_medusa(replace(medusa, steps=40))
    (trained,) = made
    model = AutoModelForCausalLM.from_pretrained(medusa.target, dtype=torch.float32)
    runner = ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(medusa.target, dtype=torch.float32)))
    loaded = MedusaHeads(read_heads(result.path), dtype=torch.float32, device=torch.device("cpu"), quantize=None)
    states = torch.randn(5, 64)
    with torch.no_grad():
        want = torch.stack([head(states) for head in trained.heads])
    torch.testing.assert_close(loaded.logits(states), want, atol=1e-4, rtol=1e-4)

    drafter = MedusaDrafter.load(result.path, runner, quantize=None)
    engine = assemble(runner, drafter=drafter, num_speculative_tokens=12)
    steps: list[Step] = []
    engine.subscribe(steps.append)
    prompt = [ord(c) % VOCAB for c in "def f1(x):"]
    out = engine.generate(prompt, Sampling(max_tokens=16, ignore_eos=True))
    text = torch.tensor([[*prompt, *out.tokens]])
    order = grow(json.loads((result.path / "config.json").read_text())["headstart"]["accuracies"])
    with torch.no_grad():
        states = model(text, output_hidden_states=True).hidden_states[-1][0]
        drafted = [step for step in steps if len(step.draft)]
        assert len(drafted) > 2
        for step in drafted:
            guesses = [head(states[step.position - 2]).topk(WIDTH).indices.tolist() for head in trained.heads]
            places = order[: len(step.draft)]
            assert step.draft.tokens == tuple(guesses[place.head][place.rank] for place in places)
            assert step.draft.parents == tuple(place.parent for place in places)


def test_the_loss_is_the_weighted_divergence_at_the_right_places(medusa: MedusaTraining) -> None:
    mine = student(replace(medusa, head_decay=0.5, init="random"))
    ids = torch.randint(VOCAB, (2, 12))
    with torch.no_grad():
        out = tiny_llama()(ids, output_hidden_states=True)
        want = 0.0
        for k, head in enumerate(mine.heads):
            # rows that every head can be judged at: the distributions of tokens 4 to 12
            pairs = [(out.logits[:, r], head(out.hidden_states[-1][:, r - 1 - k])) for r in range(3, 12)]
            theirs, ours = (torch.cat(side) for side in zip(*pairs, strict=True))
            want += 0.5**k / 1.75 * plain_divergence(theirs, ours, 0.0).item()
    loss = mine.loss(Windows.plain(ids), torch.tensor([0, 1]), 0)
    assert loss.item() == pytest.approx(want, rel=1e-4)
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for _, p in mine.named_parameters())


def test_forecasts_find_a_linear_distribution_of_motion() -> None:
    """States that turn by the same orthogonal matrix at every step can be forecast without an error."""
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(16, 16, generator=generator))[0]
    windows = []
    for _ in range(20):
        states = [torch.randn(16, generator=generator)]
        for _ in range(11):
            states.append(turn @ states[-1])
        windows.append(torch.stack(states))
    found = forecasts(iter(windows), 3)
    for k, matrix in enumerate(found):
        torch.testing.assert_close(matrix, torch.linalg.matrix_power(turn, k + 1), atol=0.02, rtol=0)


def test_heads_begin_as_forecasts_under_the_targets_output_matrix(medusa: MedusaTraining) -> None:
    medusa = replace(medusa, sequence_length=64, cache_hidden=0.0)  # unrounded states of the one window
    mine, again = student(medusa), student(medusa)
    target = tiny_llama()
    with torch.no_grad():
        states = [target(WINDOW[None].long(), output_hidden_states=True).hidden_states[-1][0]]
        for head, same, matrix in zip(mine.heads, again.heads, forecasts(states, 3), strict=True):
            want = states[0] @ matrix.T @ target.lm_head.weight.T
            torch.testing.assert_close(head(states[0]), want, atol=1e-3, rtol=1e-3)
            assert torch.equal(head(states[0]), same(states[0]))
    names = {name for name, _ in mine.named_parameters()}
    assert names == {f"{i}.{name}" for i in range(3) for name in ("0.linear.weight", "0.linear.bias", "lm_head")}


def test_heads_that_say_what_the_target_will_are_measured_as_right(medusa: MedusaTraining) -> None:
    """Logits made up so that head k's guess of rank k is the target's token."""
    theirs = torch.nn.functional.one_hot(torch.randint(VOCAB, (50,)), VOCAB).float()
    aimed = []
    for k in range(3):
        above = torch.stack([torch.randperm(VOCAB)[:k] for _ in range(50)])
        ours = theirs.clone()
        for row, tokens in enumerate(above.tolist()):
            spare = [token for token in tokens if not theirs[row, token]]
            ours[row, spare] = 2.0 + torch.arange(len(spare))
        aimed.append((theirs[: 50 - k], ours[: 50 - k]))
    found = ranks(aimed)
    assert found.shape == (3, 48)
    assert found[0].tolist() == [0] * 48
    assert found[1].float().mean() > 0.9
    assert set(found[2].tolist()) <= {0, 1, 2}
    assert table(found, 4)[0] == [1.0, 0.0, 0.0, 0.0]


def test_accuracies_count_where_earlier_heads_had_the_token(medusa: MedusaTraining) -> None:
    none = WIDTH
    found = torch.tensor([[0, 1, none, 0], [2, 2, 0, none], [0, none, 0, 0]])
    assert table(found, 3) == [[0.5, 0.25, 0.0], [0.0, 0.0, 0.66667], [0.5, 0.0, 0.0]]
    order = grow([[0.5, 0.2, 0.0], [0.1, 0.0, 0.9], [0.5, 0.1, 0.0]], 4)
    assert [(place.parent, place.head, place.rank) for place in order] == [(-1, 0, 0), (0, 1, 2), (1, 2, 0), (-1, 0, 1)]
    # paths: 0-2-0 is whole in the tree; 1 has no child; none; 0, then nothing
    assert accepted_in_tree(order, found) == pytest.approx((3 + 1 + 0 + 1) / 4)
    assert accepted_in_tree(order[:1], found) == pytest.approx(2 / 4)
    assert accepted_in_tree((), found) == 0


@pytest.mark.parametrize(
    "wrong", [{"heads": 0}, {"heads": 31}, {"blocks": 0}, {"head_decay": 0.0}, {"head_decay": 1.5}, {"steps": None}]
)
def test_options_check_themselves(medusa: MedusaTraining, wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        replace(medusa, **wrong)
