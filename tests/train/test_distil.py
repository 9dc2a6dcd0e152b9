"""The whole of `train_draft` on a tiny target: it learns, it resumes, it says where it came from."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from support.training_models import byte_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import headstart as hs
from headstart.base.errors import InvalidOption, ModelNotFound, TrainingFailed
from headstart.drafters.draft_model import ParallelDraft
from headstart.train import DraftTraining, Report, Shape, TrainingProgress, draft_start, generations, train_draft
from headstart.train.sources import Document


class Killed(BaseException):
    """What a kill looks like from inside."""


def test_loss_goes_down_and_the_directory_loads(options: DraftTraining) -> None:
    losses: list[float] = []
    result = train_draft(
        replace(options, steps=80), observe=lambda r: losses.append(r.loss) if r.stage == "training" else None
    )
    assert len(losses) == 80
    assert losses[-1] < 0.8 * losses[0]
    assert result.tokens == 80 * 4 * 32
    draft = AutoModelForCausalLM.from_pretrained(result.path)
    assert draft.dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(result.path).get_vocab() == byte_tokenizer().get_vocab()
    assert sorted(p.name for p in result.path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "provenance.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


@pytest.mark.parametrize("tv_weight", [0.0, 0.5])
def test_resume_equals_a_run_never_stopped(options: DraftTraining, tmp_path: Path, tv_weight: float) -> None:
    options = replace(options, steps=12, save_every=1e-9, tv_weight=tv_weight)
    whole = train_draft(replace(options, output=tmp_path / "whole"))

    def kill(report: Report) -> None:
        if report.stage == "training" and report.step == 7:
            raise Killed

    with pytest.raises(Killed):
        train_draft(options, observe=kill)
    again = train_draft(options)
    assert again.resumed_from == 6
    assert again.steps == 12
    ours, theirs = (load_file(r.path / "model.safetensors") for r in (again, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert again.acceptance == whole.acceptance


def test_masters_of_a_resumed_run_are_the_same_in_float32(options: DraftTraining, tmp_path: Path) -> None:
    options = replace(options, steps=12, save_every=1e-9)

    def kill_at(step: int) -> object:
        def observe(report: Report) -> None:
            if report.stage == "training" and report.step == step:
                raise Killed

        return observe

    for folder, kills in ((tmp_path / "a", (11,)), (tmp_path / "b", (4, 8, 11))):
        for step in kills:
            with pytest.raises(Killed):
                train_draft(replace(options, output=folder), observe=kill_at(step))  # type: ignore[arg-type]
    states = [load_file(tmp_path / f / "checkpoints" / "step-00000010" / "optimiser.safetensors") for f in "ab"]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_provenance_says_it_all(options: DraftTraining, texts: Path) -> None:
    result = train_draft(replace(options, steps=3))
    record = json.loads((result.path / "provenance.json").read_text())
    assert record["steps"] == 3
    assert record["tokens"] == 3 * 4 * 32
    assert record["options"]["tv_weight"] == 0.0
    assert record["target"]["weights_sha256"]["model.safetensors"]
    assert len(record["data"]) == 12
    assert record["data"][0]["path"] == str(texts / "0.py")
    assert record["heldout"]["rate"] == result.acceptance.rate
    assert {"torch", "transformers", "python"} <= record["versions"].keys()
    assert record["date"].endswith("+00:00")


def test_own_generations_are_used_and_survive_a_kill(options: DraftTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "BATCH", 32)
    options = replace(options, steps=2, generations=40, generation_tokens=24)

    def kill(report: Report) -> None:
        if report.stage == "generating" and report.progress >= 1:
            raise Killed

    with pytest.raises(Killed):
        train_draft(options, observe=kill)
    made = sorted((options.folder / "generations").iterdir())
    assert len(made) == 2
    before = [file.stat().st_mtime_ns for file in made]
    made[1].unlink()
    notes: list[str] = []

    def look(report: Report) -> None:
        if report.stage == "generating":
            notes.append(report.note.split(",")[0])
            assert made[0].stat().st_mtime_ns == before[0]

    train_draft(options, observe=look)
    assert notes == ["32 texts", "40 texts"]
    assert not (options.folder / "generations").exists()


def test_conversations_are_learnt_from_too(options: DraftTraining, tmp_path: Path) -> None:
    file = tmp_path / "bench.jsonl"
    file.write_text(
        "".join(json.dumps({"turns": [f"Write {i} words, please, and then some more."]}) + "\n" for i in range(40))
    )
    assert Document(turns=("x",)).text == ""
    assert train_draft(replace(options, data=(file,), steps=1)).steps == 1


def test_other_options_do_not_resume_and_a_finished_draft_is_safe(options: DraftTraining) -> None:
    options = replace(options, steps=3)

    def kill(report: Report) -> None:
        if report.stage == "training":
            raise Killed

    with pytest.raises(Killed):
        train_draft(options, observe=kill)
    with pytest.raises(TrainingFailed, match="tv_weight"):
        train_draft(replace(options, tv_weight=0.25))
    train_draft(options)
    with pytest.raises(TrainingFailed, match="finished"):
        train_draft(options)


def test_a_loss_that_is_not_finite_stops_the_run(options: DraftTraining) -> None:
    with pytest.raises(TrainingFailed, match="loss at step"):
        train_draft(replace(options, other_rate=1e38, matrix_rate=1e38))


def test_no_model_no_tokenizer_no_text(options: DraftTraining, tmp_path: Path, target: Path) -> None:
    with pytest.raises(ModelNotFound):
        train_draft(replace(options, target=tmp_path))
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((target / name).read_bytes())
    with pytest.raises(InvalidOption, match="tokenizer"):
        train_draft(replace(options, target=bare, output=tmp_path / "other"))
    (tmp_path / "short.txt").write_text("few")
    with pytest.raises(TrainingFailed, match="window"):
        train_draft(replace(options, data=(tmp_path / "short.txt",)))


def test_nothing_is_pickled(options: DraftTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a pickle")

    for name in ("dump", "load", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "save", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    train_draft(replace(options, steps=2, save_every=1e-9, generations=4, generation_tokens=8))


def test_progress_in_plain_text(options: DraftTraining) -> None:
    console = Console(record=True, width=160, force_terminal=False)
    with TrainingProgress(console, every=5) as show:
        train_draft(replace(options, steps=10, evaluate_every=5), observe=show)
    text = console.export_text()
    assert "step 5 50.0% loss" in text
    assert "of draft tokens accepted" in text


def test_a_draft_goes_on_from_another(options: DraftTraining, target: Path, tmp_path: Path) -> None:
    first = train_draft(replace(options, steps=8))
    begun = replace(options, steps=1, shape=Shape(), begin_with=first.path, output=tmp_path / "more")
    more = train_draft(begun)
    assert more.acceptance.kl < train_draft(replace(options, steps=1, output=tmp_path / "new")).acceptance.kl
    assert json.loads((more.path / "provenance.json").read_text())["begun_with"]
    with pytest.raises(InvalidOption, match="begin_with and a shape"):
        replace(options, begin_with=first.path)


# -- parallel drafts --------------------------------------------------------------------------------------------------


def test_a_parallel_draft_learns_its_masks_and_loads_as_published_ones_do(options: DraftTraining) -> None:
    options = replace(options, parallel=3)
    lengths = {}
    for steps, output in ((1, "one"), (90, "many")):
        result = train_draft(replace(options, steps=steps, output=options.folder.parent / output))
        lengths[steps] = result.acceptance.reached["0"]
        assert len(lengths[steps]) == 3
    assert lengths[90][1] > lengths[1][1] + 0.05
    config = json.loads((result.path / "config.json").read_text())
    assert (config["spd_type"], config["pard_token"]) == ("pard", 257)
    assert config["vocab_size"] == 258, "no id of the target's was free"
    engine = hs.load(options.target, str(result.path), dtype="float32", pacing="fixed", num_speculative_tokens=3)
    assert isinstance(engine.drafter, ParallelDraft)
    assert engine.drafter.mask == 257
    plain = hs.load(options.target, "none", dtype="float32")
    sampling = hs.Sampling(max_tokens=24, ignore_eos=True)
    out = engine.generate("def f3(x):", sampling)
    assert out.tokens == plain.generate("def f3(x):", sampling).tokens
    assert out.stats.drafted > out.stats.accepted > 0


def test_a_parallel_run_resumes(options: DraftTraining, tmp_path: Path) -> None:
    options = replace(options, steps=6, save_every=1e-9, parallel=4, row_share=0.5, loss_tokens=64)
    whole = train_draft(replace(options, output=tmp_path / "whole"))

    def kill(report: Report) -> None:
        if report.stage == "training" and report.step == 4:
            raise Killed

    with pytest.raises(Killed):
        train_draft(options, observe=kill)
    again = train_draft(options)
    assert again.resumed_from == 3
    ours, theirs = (load_file(r.path / "model.safetensors") for r in (again, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_distilled_draft_goes_on_in_parallel_and_keeps_its_mask(options: DraftTraining, tmp_path: Path) -> None:
    first = train_draft(replace(options, steps=30))
    begun = replace(options, steps=1, shape=Shape(), other_rate=1e-9, matrix_rate=1e-9)
    second = train_draft(replace(begun, begin_with=first.path, output=tmp_path / "second", parallel=2))
    assert second.acceptance.reached["0"][0] == pytest.approx(first.acceptance.reached["0"][0], abs=0.02)
    third = train_draft(replace(begun, begin_with=second.path, output=tmp_path / "third"))
    configs = [json.loads((result.path / "config.json").read_text()) for result in (second, third)]
    assert [config["pard_token"] for config in configs] == [257, 257]
    assert [config["vocab_size"] for config in configs] == [258, 258]
    assert len(third.acceptance.reached["0"]) == 4, "it has a mask, so it is trained on 8 guesses in a row"


def test_which_token_is_the_mask(target: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(target)
    tokenizer = byte_tokenizer()
    assert draft_start.mask_for(model, tokenizer) == 257
    tokenizer.add_tokens(["<|fim|>", "<|reserved_token_7|>", "<|reserved_token_8|>"], special_tokens=True)
    model.config.vocab_size = len(tokenizer)
    assert tokenizer.convert_ids_to_tokens(draft_start.mask_for(model, tokenizer)) == "<|reserved_token_7|>"
    model.config.vocab_size = 320
    assert draft_start.mask_for(model, tokenizer) == len(tokenizer), "the first id that only pads"


def test_options_of_parallel_drafts(options: DraftTraining) -> None:
    with pytest.raises(InvalidOption, match="too short for parallel=16"):
        replace(options, sequence_length=16, parallel=16)
    with pytest.raises(InvalidOption, match="parallel=17"):
        replace(options, parallel=17)
