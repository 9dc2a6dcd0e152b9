"""`headstart audit`: exit codes, what is printed and written, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from support.byte_models import save_model
from support.serving import Replies, serving
from typer.testing import CliRunner, Result

import headstart as hs
from headstart.commands.audit import audit

app = typer.Typer()
app.command()(audit)
QUICK = ("--dtype", "float32", "--device", "cpu", "--effect", "0.3", "--power", "0.8", "--max-samples", "300")
QUICK += ("--sample-tokens", "6", "--greedy-tokens", "16", "--limit", "2")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("target")))


@pytest.fixture(scope="module")
def engine(target: str) -> hs.Engine:
    return hs.load(target, "ngram", dtype="float32", pacing="fixed")


def run(*args: str) -> Result:
    result = CliRunner().invoke(app, list(args))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_our_own_engine_is_lossless(target: str, tmp_path: Path) -> None:
    out = tmp_path / "certificate.json"
    result = run("--target", target, "--drafter", "ngram", *QUICK, "-o", str(out))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Lossless within the stated power")
    assert "greedy: all" in result.stdout
    record = json.loads(out.read_text())
    assert record["verdict"] == "lossless"
    assert set(record["parts"]) == {"sampling", "greedy", "behaviour"}
    assert record["settings"]["effect"] == 0.3
    assert record["settings"]["prompts"] == 2
    assert str(out) in result.stderr


def test_the_options_choose_the_parts(target: str, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    common = ("--target", target, "--drafter", "none", *QUICK, "-o", str(out), "--no-behaviour")
    assert run(*common, "--no-sampled").exit_code == 0
    assert set(json.loads(out.read_text())["parts"]) == {"greedy"}
    assert run(*common, "--no-greedy", "--temperature", "0.8", "--top-p", "0.9").exit_code == 0
    record = json.loads(out.read_text())
    assert set(record["parts"]) == {"sampling"}
    assert record["settings"]["sampling"]["top_p"] == 0.9


def test_too_few_samples_decide_nothing_and_say_how_many_it_takes(target: str) -> None:
    few = ("--max-samples", "20", "--effect", "0.05", "--no-behaviour", "--no-greedy")
    result = run("--target", target, "--drafter", "ngram", *QUICK, *few)
    assert result.exit_code == 2
    assert result.stdout.startswith("Could not decide")
    assert "completions" in result.stdout
    assert "power of 0.8 takes" in result.stdout


def test_a_server_and_a_broken_one(target: str, engine: hs.Engine, tmp_path: Path) -> None:
    common = ("--target", target, *QUICK, "--no-behaviour", "--no-sampled")
    with serving(engine) as url:
        result = run(*common, "--endpoint", url)
        assert result.exit_code == 0, result.output

    def after(engine: hs.Engine, ids: list[int], out: hs.Output, sampling: hs.Sampling) -> tuple[tuple[int, ...], str]:
        return (*out.tokens[:3], 66, *out.tokens[4:]), out.finish_reason

    out = tmp_path / "c.json"
    with serving(engine, Replies(after=after)) as url:
        result = run(*common, "--endpoint", url, "-o", str(out))
    assert result.exit_code == 1
    assert result.stdout.startswith("Not lossless")
    assert json.loads(out.read_text())["parts"]["greedy"]["bugs"] >= 2


def test_two_servers_need_no_weights(engine: hs.Engine) -> None:
    with serving(engine) as one, serving(engine) as other:
        result = run("--endpoint", one, "--against", other, "--no-sampled", "--limit", "2", "--no-behaviour")
    assert result.exit_code == 0, result.output
    assert "all 2 greedy texts are equal" in result.stdout


def test_a_page(target: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("--target", target, "--drafter", "ngram", *QUICK, "--html", str(page))
    assert result.exit_code == 0, result.output
    html = page.read_text()
    for words in ("Losslessness certificate", "Lossless within the stated power", "Sampled text", "Greedy text"):
        assert words in html


def test_a_page_of_every_part(tmp_path: Path) -> None:
    from headstart.measure.pages.audit_page import audit_page

    sampling = {"temperature": 0.7, "top_k": 5, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    sampling |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "min_tokens": 0, "ignore_eos": False}
    settings = {"sampling": sampling | {"logit_bias": {"5": 1.0}}, "prompts": 1, "level": 0.01}
    difference = {"prompt": 0, "position": 3, "margin": None, "a": "<script>alert(1)</script>", "b": "y"}
    comparison = {
        "verdict": "undecided", "reasons": ["they differ"], "a": {"name": "A"}, "b": {"name": "B"}, "pairs": 10,
        "e_value_by_pairs": [[5, 0.5], [10, 0.0]], "settings": settings, "greedy_differences": [difference],
        "total_variation": [{"prompt": 0, "first_token": 0.1, "noise_floor": 0.2}],
    }  # fmt: skip
    tie = {"prompt": 0, "position": 4, "verdict": "near-tie", "margin": 0.01}
    tie |= {"best_text": " a", "second_text": "\n", "said_text": "b"}
    greedy = {
        "verdict": "lossless", "reasons": ["fine"], "rounding": {"how": "measured so", "margin": 0.02}, "notes": ["n"],
        "where": [tie], "divergences": 1, "positions": 60,
    }  # fmt: skip
    check = {"name": "seeds", "status": "noted", "cases": 2, "detail": "differs", "failures": ["one"]}
    record = {
        "verdict": "undecided", "reasons": ["comparison: they differ"], "notes": ["text only"], "settings": settings,
        "subject": {"name": "A", "url": "http://h/v1/completions"}, "reference": {"name": "B"},
        "parts": {"comparison": comparison, "greedy": greedy, "behaviour": {"checks": [check]}},
        "provenance": {"command": "headstart audit", "versions": {"headstart": "0.1"}, "gpu": None},
    }  # fmt: skip
    html = audit_page(json.loads(json.dumps(record))).html()
    assert "near-tie" in html
    assert "top k 5" in html
    assert "<script>alert(1)" not in html


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--against", "http://h/v1"], "--against needs --endpoint"),
        (["--endpoint", "nonsense"], "not the URL"),
        (["--endpoint", "http://127.0.0.1:9/v1", "--endpoint-model", "m", "--timeout", "2"], "no connection"),
        (["--endpoint", "http://h/v1", "--api-key-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE"),
        (["--no-sampled", "--no-behaviour", "--no-greedy"], "nothing is left"),
        (["--temperature", "0"], "temperature 0"),
        (["--significance", "2"], "level"),
        (["--prompts", "/no/such/file"], "/no/such/file"),
        (["--effect", "0"], "effect"),
        (["--limit", "0"], "--limit"),
        (["-o", "/proc/none/a.json"], "cannot write /proc/none/a.json"),
        (["--html", "/proc/none/a.html"], "cannot write /proc/none/a.html"),
    ],
)
def test_bad_input_could_not_decide(target: str, args: list[str], message: str) -> None:
    result = run("--target", target, *args)
    assert result.exit_code == 2
    assert "error: " in result.stderr
    assert message in result.stderr
    assert "hint: " in result.stderr


def test_a_malformed_prompt_names_its_line(target: str, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "ok"}\n{"prompt": \n')
    result = run("--target", target, "--prompts", str(file))
    assert result.exit_code == 2
    assert "line 2" in result.stderr
