"""From a file of traffic to a verdict, on tiny models: it learns, judges, reports without a text, and refuses."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training_models import byte_tokenizer, tiny_llama
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

from headstart import Target
from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.traffic import Exchange, write
from headstart.commands.cli import app
from headstart.fleet.adapt.learn import deployed
from headstart.fleet.adapt.options import GateOptions
from headstart.fleet.adapt.run import material

SECRET = "lantern"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A target, a draft that is the target with a little noise, one with some, and one with much."""
    root = tmp_path_factory.mktemp("models")
    for name, noise in (("target", 0.0), ("good", 0.01), ("worn", 0.05), ("bad", 0.2)):
        model = tiny_llama(hidden=32, layers=1)
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += noise * torch.randn(parameter.shape)
        model.save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    return {name: str(root / name) for name in ("target", "good", "worn", "bad")}


@pytest.fixture(scope="session")
def traffic(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the target writes after 120 prompts, as a server would have recorded it."""
    target = LlamaForCausalLM.from_pretrained(models["target"])
    torch.manual_seed(0)
    prompts = torch.randint(1, 257, (120, 12))
    prompts[:, :3] = torch.tensor(byte_tokenizer()(SECRET)["input_ids"][:3])
    with torch.no_grad():
        mask = torch.ones_like(prompts)
        texts = target.generate(prompts, attention_mask=mask, max_new_tokens=20, do_sample=False, pad_token_id=0)
    exchanges = [Exchange(tuple(text[:12]), tuple(text[12:]), user="ab") for text in texts.tolist()]
    path = tmp_path_factory.mktemp("traffic") / "traffic.jsonl"
    write(path, exchanges, Target(models["target"]).checkpoint.fingerprint)
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["adapt", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def usual(models: dict[str, str], old: str, *more: object) -> Sequence[object]:
    gate = ("--gate-tokens", 8, "--k", 3, "--held-out", 0.3, "--gate-prompts", 40)
    return ("--target", models["target"], "--dtype", "float32", "--drafter", models[old], *gate, *more)


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [("bad", "good", 0, "better"), ("good", "bad", 1, "worse: refused"), ("good", "good", 1, "no gain proved")],
)
def test_the_gate_alone(
    models: dict[str, str], traffic: Path, tmp_path: Path, old: str, new: str, code: int, words: str
) -> None:
    found = run(traffic, *usual(models, old, "--gate-only", models[new], "-o", tmp_path))
    assert found[0] == code, found
    assert words in found[1]
    report = tmp_path / "report.json"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    record = json.loads(report.read_text())
    assert record["gain"]["passed"] == (code == 0)
    assert len(record["pairs"]) == record["gain"]["prompts"] >= 20
    assert record["training"] is None
    held = sum(pair["new"]["tokens"] for pair in record["pairs"]) / sum(p["new"]["forwards"] for p in record["pairs"])
    assert record["gain"]["new"]["value"] == pytest.approx(held)
    assert SECRET not in report.read_text()


def test_it_learns_from_the_traffic_and_judges(models: dict[str, str], traffic: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, said, _ = run(traffic, *usual(models, "worn", "--steps", 30, "--batch-size", 4, "-o", out))
    record = json.loads((out / "report.json").read_text())
    assert code == (0 if record["gain"]["passed"] else 1)
    assert record["gain"]["difference"]["value"] > 0, "it learned something"
    assert record["training"]["steps"] == 30
    assert not (out / "learnt.jsonl").exists(), "the copy of the traffic is gone"
    provenance = json.loads((out / "drafter" / "provenance.json").read_text())
    assert provenance["options"]["begin_with"] == models["worn"]
    assert list(provenance["begun_with"]) == ["model.safetensors"]
    for words in ("120 exchanges", "held out", "tokens per forward", "report", "verdict"):
        assert words in said
    again = run(traffic, *usual(models, "worn", "--steps", 30, "-o", out))
    assert again[0] == 2
    assert "holds a finished drafter" in again[2]


def test_what_cannot_be_is_refused(models: dict[str, str], traffic: Path, tmp_path: Path) -> None:
    for arguments, words in (
        ((traffic, "--target", models["target"], "-o", tmp_path), "--drafter"),
        ((traffic, *usual(models, "bad")), "--output"),
        ((tmp_path / "none", *usual(models, "bad", "-o", tmp_path)), "cannot read"),
        ((traffic, "--target", models["good"], "-d", "x", "-o", tmp_path), "another model"),
        ((traffic, *usual(models, "bad", "-o", tmp_path, "--steps", 1, "--minutes", 1)), "give one"),
    ):
        code, _, said = run(*arguments)
        assert code == 2
        assert words in said
    with pytest.raises(InvalidOption, match="cannot be trained further"):
        deployed(models["target"], "ngram")
    with pytest.raises(InvalidOption, match="cannot be trained further"):
        deployed("bundled", "medusa")
    assert deployed("bundled", "eagle3")[0] == "eagle3"
    assert deployed("bundled", "bundled")[0] == "draft"


def test_plain_texts_and_token_ids_beyond_the_vocabulary(models: dict[str, str], tmp_path: Path) -> None:
    target, path = Target(models["target"]), tmp_path / "plain.jsonl"
    lines = [{"prompt": f"question number {n * 7919}{'?' * (n % 20)}", "output": f"answer {n}"} for n in range(100)]
    path.write_text("\n".join(map(json.dumps, lines)))
    found = material(path, target, GateOptions(held_out=0.4))
    assert found.counts["exchanges"] == 100
    assert found.counts["held_out"] >= 20
    long = material(path, Target(models["target"], max_length=45), GateOptions(held_out=0.5, gate_tokens=4))
    assert long.counts["too_long"] + long.counts["held_out"] > 30
    assert long.counts["too_long"] > 0
    path.write_text('{"prompt": [1], "output": [257]}\n')
    with pytest.raises(InvalidFile, match="beyond"):
        material(path, target, GateOptions())


def test_a_user_is_forgotten(tmp_path: Path) -> None:
    from headstart.base.traffic import TrafficWriter

    path = tmp_path / "t.jsonl"
    writer = TrafficWriter(path, "t", limit=10_000)
    writer.append([Exchange((1,), (2,), user=writer.pseudonym("ann"))])
    writer.close()
    assert run(path, "--forget", "ann")[:2] == (0, f"1 exchange removed from {path}\n")


def test_what_passed_is_exported_as_the_old_one_was_and_handed_to_the_fleet(
    models: dict[str, str], traffic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headstart.fleet.export import options as of_export
    from headstart.fleet.export import write

    launched, out = tmp_path / "launched", tmp_path / "out"
    launched.mkdir()
    (out / "export").mkdir(parents=True)  # of the last time, which the fleet may run
    old = of_export.ExportOptions(dtype="float32", name="mine", num_speculative_tokens=3)
    monkeypatch.setattr(of_export, "same_options", lambda folder: old)
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(write, "export", lambda *given, **more: asked.append(given))
    common = ("-o", out, "--fleet", launched)
    assert run(traffic, *usual(models, "good", "--gate-only", models["bad"], *common))[0] == 1
    assert not asked, "what was refused goes nowhere"
    code, said, _ = run(traffic, *usual(models, "bad", "--gate-only", models["good"], *common))
    assert code == 0, said
    ((target, drafter, folder, options),) = asked
    assert (target, drafter, folder, options) == (models["target"], models["good"], out / "export-2", old)
    assert json.loads((launched / "rollout.json").read_text())["export"] == str(out / "export-2")
    assert run(traffic, *usual(models, "bad", "--gate-only", models["good"], "--fleet", launched))[0] == 2
