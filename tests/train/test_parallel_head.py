"""Heads that guess several tokens in one forward: what each row sees, what is learnt, and what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from headstart.base.errors import InvalidOption
from headstart.model.heads import eagle_checkpoint
from headstart.train import Eagle3Training, Report, head_layer, train_eagle3
from headstart.train.eagle3 import Eagle3Student
from headstart.train.frequent_tokens import unused_token
from headstart.train.guess_loss import Blend, guess_loss
from headstart.train.harness import Material, load_target
from headstart.train.head_layer import HeadShape, rotate, rotation
from headstart.train.output_matrix import StateDistributions
from headstart.train.selector import CandidateSelector, Shortlists, selector_loss
from headstart.train.unrolled import nested, plain_attend
from headstart.train.unrolled_head import EagleHead
from headstart.train.windows import Windows

SHAPE = HeadShape(
    hidden=16, intermediate=24, heads=4, kv_heads=2, head_dim=4, draft_vocab=11, rope_theta=100.0, eps=1e-5, layers=2,
    parallel=True, selector_rank=3, selector_top_k=4, vocab=13,
)  # fmt: skip


@pytest.fixture
def options(target: Path, texts: Path, tmp_path: Path) -> Eagle3Training:
    """A run of a few seconds in float32."""
    return Eagle3Training(
        target=target, output=tmp_path / "head", data=(texts,), steps=8, batch_size=2, sequence_length=32,
        draft_vocab_size=40, validation=0.2, validation_windows=4, dtype="float32", device="cpu", layers=2, parallel=5,
        selector_rank=4, selector_top_k=6,
    )  # fmt: skip


def head_of(shape: HeadShape) -> EagleHead:
    torch.manual_seed(0)
    head = EagleHead(shape)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0, 0.4)
    return head


def forward(head: EagleHead, aux: Tensor, embedded: Tensor, begin: int, guesses: int) -> list[Tensor]:
    """One forward as a drafter makes it: the text's rows 0..begin, then masked rows, all in one causal sequence.

    aux [T, 3d], embedded [T, d]; written with nothing of the module but its weights.
    """
    masks = guesses - 1
    tokens = torch.cat([embedded[: begin + 1], head.mask_row.expand(masks, -1)])
    state = head.fc(torch.cat([aux[: begin + 1], head.mask_hidden[0].expand(masks, -1)]))
    cos, sin = rotation(len(state), head.shape, aux.device, aux.dtype)
    for number, layer in enumerate(head.stack()):
        if number:
            x = layer.input_layernorm(state)
        else:
            x = torch.cat([layer.input_layernorm(tokens), layer.hidden_norm(state)], -1)
        attention = layer.self_attn
        query, key, value = (
            project(x).view(len(x), -1, head.shape.head_dim).transpose(0, 1)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key, value = (
            rotate(query, cos, sin),
            *(e.repeat_interleave(2, 0) for e in (rotate(key, cos, sin), value)),
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        state = state + attention.o_proj(mixed.transpose(0, 1).flatten(1))
        normed, mlp = layer.post_attention_layernorm(state), layer.mlp
        state = state + mlp.down_proj(F.silu(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    return list(state[begin:])


# -- the rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 3])
@torch.no_grad()
def test_every_row_is_a_forward_that_begins_there(layers: int) -> None:
    head = head_of(replace(SHAPE, layers=layers))
    aux, embedded = torch.randn(2, 10, 48), torch.randn(2, 13, 16)
    kept = nested(10, (1.0, 0.7, 0.5, 0.3), torch.Generator().manual_seed(0))
    whole, some = head.unroll(aux, embedded, 4), head.unroll(aux, embedded, 4, kept)
    for begin in range(10):
        wanted = forward(head, aux[1], embedded[1], begin, 4)
        for depth, state in enumerate(wanted):
            torch.testing.assert_close(whole[depth][1, begin], state, atol=1e-4, rtol=1e-4)
            if begin in kept[depth]:
                at = kept[depth].tolist().index(begin)
                torch.testing.assert_close(some[depth][1, at], state, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("parallel", [False, True])
def test_gradients_are_those_of_plain_attention(parallel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    head = head_of(replace(SHAPE, parallel=parallel, selector_rank=0))
    aux, embedded = torch.randn(2, 10, 48), torch.randn(2, 13, 16)
    kept = nested(10, (0.9, 0.7, 0.5, 0.3), torch.Generator().manual_seed(0))
    parameters = [p for name, p in head.named_parameters() if "lm_head" not in name and name != "norm.weight"]

    def gradients() -> tuple[Tensor, ...]:
        states = head.unroll(aux, embedded, 4, kept)
        return torch.autograd.grad(sum((i + 1) * s.sin().sum() for i, s in enumerate(states)), parameters)  # type: ignore[arg-type]

    ours = gradients()
    monkeypatch.setattr(head_layer, "attend", plain_attend)
    for one, twin in zip(ours, gradients(), strict=True):
        torch.testing.assert_close(one, twin, atol=1e-4, rtol=1e-4)
        assert one.any()


@torch.no_grad()
def test_the_first_guess_of_a_head_of_one_layer_is_eagle3_s() -> None:
    head = head_of(replace(SHAPE, layers=1))
    plain = EagleHead(replace(SHAPE, layers=1, parallel=False, selector_rank=0))
    plain.load_state_dict(head.state_dict(), strict=False)
    aux, embedded = torch.randn(1, 10, 48), torch.randn(1, 13, 16)
    ours, theirs = head.unroll(aux, embedded, 3), plain.unroll(aux, embedded, 3)
    assert torch.equal(ours[0], theirs[0])
    assert not torch.allclose(ours[1], theirs[1], atol=1e-2)


# -- the selector -----------------------------------------------------------------------------------------------------


def test_the_selector_learns_from_true_probabilities_over_the_shortlist() -> None:
    torch.manual_seed(0)
    selector = CandidateSelector(SHAPE)
    with torch.no_grad():
        selector.successor_codebook.normal_()
    kept = nested(8, (1.0, 0.6), torch.Generator().manual_seed(0))
    last, output, matrix = torch.randn(2, 10, 16), torch.randn(13, 16), torch.randn(11, 16)
    logits = last @ output.T
    distributions = StateDistributions(last, logits.logsumexp(-1), lambda x: x @ output[:11].T)
    states = [torch.randn(2, len(rows), 16).requires_grad_() for rows in kept]
    before = [torch.randint(13, (2, len(rows))) for rows in kept]
    lists, blend = Shortlists(selector.top), Blend(0.5, 0.0, (1.0, 1.0))
    plain = guess_loss(states, kept, distributions, matrix, blend)[0]
    noted = guess_loss(states, kept, distributions, matrix, blend, lists)[0]
    assert plain.item() == noted.item()  # the base loss is that of the uncorrected logits
    ours = selector_loss(selector, states, before, lists)

    wanted = torch.zeros(())
    for depth, rows in enumerate(kept):
        p = logits.softmax(-1)[:, rows + 1 + depth][..., :11]
        q = states[depth].detach() @ matrix.T
        for window in range(2):
            for i in range(len(rows)):
                listed = {*q[window, i].topk(4).indices.tolist(), int(p[window, i].argmax())}
                candidates = torch.tensor(sorted(listed))
                codes = selector.predecessor_codebook[before[depth][window, i]]
                codes = codes * selector.hidden_projection(states[depth][window, i].detach())
                scores = q[window, i, candidates] + selector.successor_codebook[candidates] @ codes
                lost = -(p[window, i, candidates] * scores.log_softmax(-1)).sum()
                wanted = wanted + lost / (2 * len(rows)) / 2
    torch.testing.assert_close(ours, wanted)
    leaves = list(selector.parameters())
    for one, twin in zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(wanted, leaves), strict=True):
        torch.testing.assert_close(one, twin, atol=1e-6, rtol=1e-4)


@torch.no_grad()
def test_a_new_selector_changes_nothing_but_the_tail() -> None:
    selector = CandidateSelector(SHAPE)
    logits = torch.randn(6, 11)
    distributions = selector.distributions(logits, torch.randn(6, 16), torch.arange(6))
    shortlist = logits.topk(4).indices
    assert torch.equal(distributions.gather(-1, shortlist), logits.gather(-1, shortlist))
    assert (distributions.isinf().sum(-1) == 7).all()


# -- the run ----------------------------------------------------------------------------------------------------------


def student_of(options: Eagle3Training) -> Eagle3Student:
    target, tokenizer = load_target(options, torch.device("cpu"))
    windows = Windows.plain(torch.randint(200, (6, 32), generator=torch.Generator().manual_seed(0)).int())
    device = torch.device("cpu")
    return Eagle3Student(options, Material(target, tokenizer, windows, windows, device, torch.float32))


def test_further_layers_begin_as_the_identity(options: Eagle3Training) -> None:
    two, one = student_of(options), student_of(replace(options, layers=1))
    aux, embedded = torch.randn(1, 9, 192), torch.randn(1, 9, 64)
    with torch.no_grad():
        assert torch.equal(two.head.unroll(aux, embedded, 1)[0], one.head.unroll(aux, embedded, 1)[0])


def test_the_mask_is_a_token_that_the_text_does_not_have(options: Eagle3Training) -> None:
    student = student_of(options)
    assert student.mask_token == 256
    table = student._target.get_input_embeddings().weight
    assert torch.equal(student.head.mask_row, table[256])
    assert "mask_row" not in dict(student.named_parameters())
    assert "mask_row" in dict(student_of(replace(options, learn_mask=True)).named_parameters())
    assert unused_token(torch.tensor([[0, 1, 3, 3]]), 4) == 2
    assert unused_token(torch.tensor([[0, 1, 3, 3, 2]]), 4) == 2
    with pytest.raises(InvalidOption, match="the target has 257"):
        student_of(replace(options, mask_token=257))


def test_all_that_is_new_learns_and_guesses_get_better(options: Eagle3Training) -> None:
    losses: list[float] = []

    def observe(report: Report) -> None:
        if report.stage == "training":
            losses.append(report.loss)

    result = train_eagle3(replace(options, steps=40), observe=observe)
    assert losses[-1] < 0.95 * losses[0]
    assert len(result.acceptance.reached["0"]) == result.acceptance.guesses == 5
    begun = student_of(options).head.state_dict()
    stored = load_file(result.path / "model.safetensors") | load_file(result.path / "selector.safetensors")
    for name in ("mask_hidden", "layers.1.self_attn.o_proj.weight", "candidate_selector.successor_codebook"):
        assert not torch.equal(stored[name].float(), begun[name]), name


@pytest.mark.parametrize("layers", [1, 2])
def test_a_frozen_first_guess_stays_as_it_was(options: Eagle3Training, tmp_path: Path, layers: int) -> None:
    """To the bit, of a head of one layer and of several."""
    first = replace(options, steps=3, layers=layers, parallel=0, selector_rank=0, output=tmp_path / "first")
    begun = train_eagle3(first)
    more = replace(options, begin_with=begun.path, freeze_first=True, draft_vocab_size=None, layers=1)
    result = train_eagle3(more)
    before, after = (load_file(each.path / "model.safetensors") for each in (begun, result))
    for name, tensor in before.items():
        assert torch.equal(after[name.replace("midlayer.", "layers.0.") if layers > 1 else name], tensor), name
    assert after["mask_hidden"].any()
    old, new = (student_of(replace(more, begin_with=each.path, selector_rank=0)).head for each in (begun, result))
    ids = torch.randint(0, 256, (1, 24), generator=torch.Generator().manual_seed(1))
    (was, *_), (now, *later) = ([each.lm_head(each.norm(state)) for state in _passes(each, ids)] for each in (old, new))
    assert torch.equal(was, now)
    assert later


def _passes(head: EagleHead, ids: torch.Tensor) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    aux = torch.randn(1, ids.shape[1] - 1, 3 * head.shape.hidden, generator=generator)
    return head.unroll(aux, torch.randn(1, ids.shape[1] - 1, head.shape.hidden, generator=generator), 3)


def test_a_further_layer_would_change_a_frozen_first_guess(options: Eagle3Training, tmp_path: Path) -> None:
    begun = train_eagle3(replace(options, steps=1, layers=1, parallel=0, selector_rank=0, output=tmp_path / "first"))
    more = replace(options, begin_with=begun.path, freeze_first=True, draft_vocab_size=None, layers=2)
    with pytest.raises(InvalidOption, match="layers=2 would change it") as caught:
        student_of(more)
    assert "has 1" in caught.value.hint


@pytest.mark.parametrize("learn", [False, True])
def test_a_parallel_head_goes_on_where_it_ended(options: Eagle3Training, tmp_path: Path, learn: bool) -> None:
    begun = train_eagle3(replace(options, steps=3, learn_mask=learn))
    more = replace(options, output=tmp_path / "more", begin_with=begun.path, draft_vocab_size=None, layers=1)
    student = student_of(replace(more, selector_rank=0))
    stored = load_file(begun.path / "model.safetensors") | load_file(begun.path / "selector.safetensors")
    table = stored.pop("embed_tokens.weight", student._target.get_input_embeddings().weight)
    assert torch.equal(student.head.mask_row.bfloat16(), table[256].bfloat16())
    for name, tensor in student.head.state_dict().items():
        if name != "mask_row":
            assert torch.equal(tensor.bfloat16(), stored[name.replace("midlayer.", "layers.0.")]), name
    with pytest.raises(InvalidOption, match="several tokens in one forward") as caught:
        student_of(replace(more, parallel=0, selector_rank=0))
    assert "parallel=5" in caught.value.hint


def test_resume_equals_a_run_never_stopped(options: Eagle3Training, tmp_path: Path) -> None:
    options = replace(options, save_every=1e-9, learn_mask=True)
    whole = train_eagle3(replace(options, output=tmp_path / "whole"))

    def killed(report: Report) -> None:
        if report.stage == "training" and report.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_eagle3(options, observe=killed)
    again = train_eagle3(options)
    assert again.resumed_from == 4
    for name in ("model.safetensors", "selector.safetensors"):
        ours, theirs = load_file(again.path / name), load_file(whole.path / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


# -- the files --------------------------------------------------------------------------------------------------------

NEEDED = {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d", "mask_hidden", "layers.0.hidden_norm.weight"}


@pytest.mark.parametrize("learn", [False, True])
def test_what_is_written_reads_back(options: Eagle3Training, learn: bool) -> None:
    result = train_eagle3(replace(options, steps=1, format="both", learn_mask=learn))
    flat, nested_form = result.path, result.path / "speculators"
    stored = [load_file(folder / "model.safetensors") for folder in (flat, nested_form)]
    assert stored[0].keys() == stored[1].keys() >= NEEDED | {"layers.1.self_attn.q_proj.weight"}
    assert all(torch.equal(stored[0][name], stored[1][name]) for name in stored[0])
    assert ("embed_tokens.weight" in stored[0]) == learn
    assert stored[0]["mask_hidden"].shape == (1, 1, 192)
    assert stored[0]["layers.0.self_attn.q_proj.weight"].shape == (64, 128)
    assert stored[0]["layers.1.self_attn.q_proj.weight"].shape == (64, 64)
    for folder in (flat, nested_form):
        selector = load_file(folder / "selector.safetensors")
        assert selector["candidate_selector.predecessor_codebook"].shape == (257, 4)
        assert selector["candidate_selector.successor_codebook"].shape == (40, 4)
        assert selector["candidate_selector.hidden_projection.weight"].shape == (4, 64)
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert index["weight_map"] == dict.fromkeys(stored[0], "model.safetensors")


def test_configs_of_parallel_heads_say_what_readers_need(options: Eagle3Training) -> None:
    result = train_eagle3(replace(options, steps=1, format="both"))
    folders = result.path, result.path / "speculators"
    flat, nested_form = (json.loads((folder / "config.json").read_text()) for folder in folders)
    wanted = {"mask_token_id": 256, "selector_rank": 4, "selector_top_k": 6}
    assert wanted.items() <= flat.items()
    assert wanted.items() <= nested_form.items()
    assert flat["architectures"] == ["LlamaForCausalLMEagle3"]
    config = load_target(options, torch.device("cpu"))[0].config
    assert [eagle_checkpoint.read(folder, config).config.depth for folder in folders] == [5, 5]
    assert flat["num_hidden_layers"] == nested_form["transformer_layer_config"]["num_hidden_layers"] == 2
    assert nested_form["speculators_model_type"] == "peagle"
    method = nested_form["speculators_config"]["proposal_methods"][0]
    assert (method["speculative_tokens"], method["verifier_accept_k"]) == (5, 1)
    one = train_eagle3(replace(options, steps=1, layers=1, selector_rank=0, output=result.path.parent / "one"))
    names = load_file(one.path / "model.safetensors").keys()
    assert {"midlayer.hidden_norm.weight", "mask_hidden"} <= names
    assert {path.name for path in one.path.iterdir()} == {"config.json", "model.safetensors", "provenance.json"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"parallel": 1}, "no token beyond the first"),
        ({"learn_mask": True}, "one token at a time"),
        ({"selector_rank": 4}, "one token at a time"),
        ({"mask_token": 0}, "one token at a time"),
        ({"freeze_first": True}, "nothing to train"),
        ({"freeze_first": True, "begin_with": "head"}, "nothing to train"),
        ({"parallel": 8, "sequence_length": 8}, "too short for parallel=8"),
        ({"selector_top_k": 1}, "selector_top_k=1"),
    ],
)
def test_options_that_cannot_be_together_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        Eagle3Training(**{"target": "t", "output": "o", "data": "d", "steps": 1, **bad})
    assert caught.value.hint
