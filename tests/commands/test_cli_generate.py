"""`headstart generate` on a fake engine: every option arrives, every source is read, every ending is clean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_engine import FakeEngine
from typer.testing import CliRunner, Result

import headstart
from headstart.base.errors import InvalidPrompt, NonFiniteLogits, PickleCheckpoint
from headstart.base.options import values_of
from headstart.commands.cli import app
from headstart.commands.terminal import harmless
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.types import Sampling, Structure

DEFAULTS = values_of(TargetOptions()) | values_of(EngineOptions(max_batch_size=1))
"""What `headstart.load` is given beside target and drafter; there are no more slots than prompts."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setattr(headstart, "load", fake.load, raising=False)
    return fake


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["generate", *args], input=stdin)


# -- options ---------------------------------------------------------------------------------------------------------


def test_the_options_reach_load_and_the_request(engine: FakeEngine) -> None:
    words = "-m T -d D --device cuda:1 --rule coupled -k 3 --tree top-k --stop one --seed 11"
    result = run("prompt", *words.split())
    assert result.exit_code == 0, result.stderr
    given = {"device": "cuda:1", "rule": "coupled", "num_speculative_tokens": 3, "draft_tree": "top-k"}
    assert engine.loaded_with == {"target": "T", "drafter": "D"} | DEFAULTS | given
    assert engine.requests[0].sampling == Sampling(stop=("one",), seed=11)


def test_the_defaults_are_those_of_the_library(engine: FakeEngine) -> None:
    assert run("prompt").exit_code == 0
    assert engine.requests[0].sampling == Sampling()
    assert engine.loaded_with == {"target": "bundled", "drafter": "auto"} | DEFAULTS


def test_several_drafters_are_a_list(engine: FakeEngine) -> None:
    assert run("x", "-d", "ngram", "-d", "small-model").exit_code == 0
    assert engine.loaded_with["drafter"] == ["ngram", "small-model"]


@pytest.mark.parametrize(("asked", "slots"), [(["--max-batch-size", "2"], 2), ([], 3)])
def test_no_more_slots_than_prompts(engine: FakeEngine, tmp_path: Path, asked: list[str], slots: int) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n' * 3)
    assert run("--prompts", str(file), *asked).exit_code == 0
    assert engine.loaded_with["max_batch_size"] == slots


# -- where prompts come from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [[], ["-"]])
def test_a_prompt_from_standard_input(engine: FakeEngine, args: list[str]) -> None:
    assert run(*args, stdin="def f():\n    pass\n\n").exit_code == 0
    assert engine.requests[0].prompt == tuple(map(ord, "def f():\n    pass\n")), "one final newline is the shell's"


def test_an_argument_goes_before_standard_input(engine: FakeEngine) -> None:
    assert run("argument", stdin="piped").exit_code == 0
    assert engine.requests[0].prompt == tuple(map(ord, "argument"))


def test_a_jsonl_file_in_each_shape(engine: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines: list[dict[str, Any]] = [
        {"question_id": 1, "turns": ["first", "not this one"]},
        {"prompt": "a\u2028b"},
        {"text": "c"},
        {"prompt": [100, 101]},
    ]
    file.write_text("\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", encoding="utf-8")
    assert run("--prompts", str(file)).exit_code == 0
    assert [r.prompt for r in engine.requests] == [
        *(tuple(map(ord, t)) for t in ("first", "a\u2028b", "c")),
        (100, 101),
    ]


def test_any_other_file_is_one_prompt(engine: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "prompt.py"
    file.write_text('{"prompt": 1}\n{}\n')
    result = run("--prompts", str(file))
    assert result.stdout == " hello\n"
    assert engine.requests[0].prompt == tuple(map(ord, '{"prompt": 1}\n{}'))


# -- what comes out --------------------------------------------------------------------------------------------------


def test_the_text_and_nothing_but_the_text(engine: FakeEngine) -> None:
    result = run("prompt")
    assert (result.stdout, result.stderr, result.exit_code) == (" hello\n", "", 0)
    assert engine.requests[0].finish_reason == "length"


@pytest.mark.usefixtures("engine")
def test_json_has_the_whole_result() -> None:
    result = run("ab", "--json", "--logprobs", "1", "--seed", "5")
    line = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert set(line) == {
        "text", "tokens", "finish_reason", "stop", "prompt_tokens", "seed", "logprobs", "stats", "error",
    }  # fmt: skip
    assert (line["text"], line["tokens"]) == (" hello", list(map(ord, " hello")))
    assert (line["finish_reason"], line["prompt_tokens"], line["seed"]) == ("length", [97, 98], 5)
    assert line["logprobs"][0] == {"token": 32, "logprob": -0.5, "top": {"32": -0.5, "0": -1.5}}
    stats = line["stats"]
    assert set(stats) == {*headstart.Stats.__dataclass_fields__, "tokens_per_second", "tokens_per_forward"}
    assert (stats["tokens"], stats["target_forwards"], stats["tokens_per_forward"]) == (6, 3, 2.0)
    assert stats["seconds"] == {"plan": 0.05, "draft": 0.1, "verify": 0.6, "sample": 0.1, "commit": 0.1}
    assert stats["speculation"] == {
        "on": True, "drafter": "fake", "reason": "as asked", "error": None, "not_guessing": "",
    }  # fmt: skip


@pytest.mark.usefixtures("engine")
def test_several_prompts_as_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}')
    result = run("--prompts", str(file), "--json")
    assert [json.loads(line)["prompt_tokens"] for line in result.stdout.splitlines()] == [[97], [98]]
    assert result.stderr == "", "no bar without a terminal"


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_a_bar_on_the_terminal_leaves_the_output_alone(tmp_path: Path) -> None:
    """Standard error is a terminal, standard output a pipe: the commonest use of --json."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}')
    script = (
        "import headstart; from support.fake_engine import FakeEngine; from headstart.commands.cli import main;"
        "headstart.load = FakeEngine('x' * 200).load; main()"
    )
    command = [sys.executable, "-c", script, "generate", "--prompts", str(file), "--json"]
    main, secondary = os.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "60"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=secondary, cwd=Path(__file__).parents[1], env=environment, check=True
    )
    os.close(secondary)
    shown = os.read(main, 1 << 16)
    os.close(main)
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["x" * 200] * 2
    assert b"tokens/s" in shown
    assert b'"text"' not in shown


@pytest.mark.usefixtures("engine")
def test_several_prompts_as_text(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}')
    assert run("--prompts", str(file)).stdout == "--- prompt 1 ---\n hello\n--- prompt 2 ---\n hello\n"


@pytest.mark.usefixtures("engine")
def test_stats_go_to_standard_error() -> None:
    result = run("prompt", "--stats")
    assert result.stdout == " hello\n"
    for words in ("first token after", "0.250 s", "tokens per target forward", "2.00", "3 of 3", "on, drafter fake"):
        assert words in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert harmless("a\tb\nc\x1b[2Jd\x9be\x7f\r") == "a\tb\nc\u241b[2Jd\ufffde\u2421\u240d"


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["x", "--temperature", "-1"], "--temperature=-1.0 is out of range"),
        (["x", "--temperature", "nan"], "--temperature=nan"),
        (["x", "--top-p", "0"], "--top-p=0.0"),
        (["x", "--top-p", "1.5"], "--top-p=1.5"),
        (["x", "--max-tokens", "0"], "--max-tokens=0"),
        (["x", "--min-tokens", "9", "--max-tokens", "3"], "--min-tokens=9 is above --max-tokens=3"),
        (["x", "--logit-bias", "seven=1"], "--logit-bias 'seven=1' is not ID=VALUE"),
        (["x", "--logit-bias", "7"], "--logit-bias '7' is not ID=VALUE"),
        (["x", "--logprobs", "3"], "--logprobs needs --json"),
        (["-p", "x", "--prompts", "file.txt"], "both a prompt and --prompts"),
        (["--prompts", "missing.jsonl"], "cannot read missing.jsonl"),
        ([""], "the prompt is empty"),
        (["-"], "standard input is empty"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(engine: FakeEngine, args: list[str], message: str) -> None:
    result = run(*args, stdin="")
    assert result.exit_code == 2
    assert f"error: {message}" in result.stderr
    assert "\nhint: " in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not engine.loaded_with


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no prompt"),
        (b"\n \n", "holds no prompt"),
        (b'{"prompt": "a"}\n{"prompt":', "line 2: not JSON"),
        (b'["a"]', "line 1: not a JSON object"),
        (b'{"prompt": ""}', "line 1 is empty"),
        (b'{"prompt": []}', "line 1 is empty"),
        (b'{"turns": []}', "line 1: no prompt in it"),
        (b'{"prompt": 5}', "line 1: no prompt in it"),
        (b'{"prompt": [1, true]}', "line 1: no prompt in it"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(engine: FakeEngine, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(content)
    result = run("--prompts", str(file))
    assert result.exit_code == 2
    assert message in result.stderr
    assert "\nhint: " in result.stderr
    assert not engine.loaded_with


def test_no_prompt_at_a_terminal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from headstart.commands import prompts

    monkeypatch.setattr(prompts.sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(InvalidPrompt, match="there is no prompt"):
        prompts.read_prompts(None, None)


# -- conversations, and files of several prompts -----------------------------------------------------------------------


def _template(messages: list[dict[str, str]], **options: Any) -> list[int]:
    assert options == {"add_generation_prompt": True, "return_dict": False}
    return [ord(char) for message in messages for char in f"<{message['role']}>{message['content']}"]


def asked(engine: FakeEngine) -> list[str]:
    return ["".join(map(chr, request.prompt)) for request in engine.requests]


@pytest.fixture
def chat_model(engine: FakeEngine) -> FakeEngine:
    engine.tokenizer.chat_template = "..."
    engine.tokenizer.apply_chat_template = _template
    return engine


def test_chat_asks_through_the_template(chat_model: FakeEngine) -> None:
    result = run("Hi", "--chat")
    assert result.exit_code == 0, result.stderr
    assert asked(chat_model) == ["<user>Hi"]


def test_turns_and_messages_of_a_file_go_through_the_template(chat_model: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(
        '{"turns": ["A", "B"]}\n{"prompt": "raw"}\n'
        '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "C"}]}\n'
    )
    result = run("--prompts", str(file))
    assert asked(chat_model) == ["<user>A", "raw", "<system>S<user>C"]
    assert "1 later turn not asked" in result.stderr
    run("--prompts", str(file), "--chat")
    assert asked(chat_model)[3:] == ["<user>A", "<user>raw", "<system>S<user>C"]


def test_a_model_without_a_template(engine: FakeEngine, tmp_path: Path) -> None:
    result = run("Hi", "--chat")
    assert result.exit_code == 2
    assert "no chat template" in result.stderr
    assert "\nhint: " in result.stderr
    file = tmp_path / "p.jsonl"
    file.write_text('{"turns": ["A"]}\n')
    result = run("--prompts", str(file))
    assert (result.exit_code, asked(engine)) == (0, ["A"])
    assert "no chat template: the turns of 1 prompt are sent as plain text" in result.stderr


def test_a_text_of_several_prompts_is_said_to_be_one_or_split(engine: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("one\nmore\n\ntwo\n")
    result = run("--prompts", str(file))
    assert asked(engine) == ["one\nmore\n\ntwo"]
    assert "p.txt: its 4 lines are one prompt; --split makes 2 prompts of it, at its blank lines" in result.stderr
    result = run("--prompts", str(file), "--split")
    assert asked(engine)[1:] == ["one\nmore", "two"]
    assert "one prompt" not in result.stderr
    run("--split", stdin="three\n\nfour")
    assert asked(engine)[3:] == ["three", "four"]
    file.write_text("one\ntwo\n")
    assert "p.txt: its 2 lines are one prompt\n" in run("--prompts", str(file)).stderr
    file.write_text("one\n")
    assert "one prompt" not in run("--prompts", str(file)).stderr


def test_an_argument_is_not_split(engine: FakeEngine) -> None:
    result = run("one", "--split")
    assert result.exit_code == 2
    assert "--split is for files and standard input" in result.stderr


def test_an_error_of_the_library_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PickleCheckpoint("the weights are a [pickle]", hint="convert them to safetensors")

    monkeypatch.setattr(headstart, "load", refuse, raising=False)
    result = run("prompt")
    assert result.exit_code == 2
    assert result.stderr == "error: the weights are a [pickle]\nhint: convert them to safetensors\n"
    shown = run("prompt", "--traceback")
    assert shown.exit_code == 2
    assert "Traceback" in shown.stderr
    assert "in refuse" in shown.stderr


def test_a_bad_prompt_in_a_file_is_named(engine: FakeEngine, tmp_path: Path) -> None:
    engine.refuse = InvalidPrompt("token id 9 is not in the vocabulary", hint="use the ids below 9")
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": [9]}\n{"prompt": "b"}')
    result = run("--prompts", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: prompt 1: token id 9")


def test_one_failed_request_leaves_the_others(engine: FakeEngine, tmp_path: Path) -> None:
    engine.spoil[0] = NonFiniteLogits("the target gave NaN", hint="use float32")
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}')
    result = run("--prompts", str(file), "--json")
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["error"] == {"type": "NonFiniteLogits", "message": "the target gave NaN", "hint": "use float32"}
    assert (second["text"], second["error"]) == (" hello", None)
    assert result.exit_code == 2
    assert "error: the target gave NaN" in result.stderr


def test_an_interrupt_keeps_what_was_printed(engine: FakeEngine) -> None:
    engine.fail_at_step = KeyboardInterrupt()
    result = run("prompt")
    assert result.exit_code == 130
    assert (result.stdout, result.stderr) == (" h\n", "")
    assert engine.requests[0].finish_reason == "cancelled"
    engine.requests.clear()
    assert "tokens per target forward" in run("prompt", "--stats").stderr


def test_a_bug_keeps_its_traceback(engine: FakeEngine) -> None:
    engine.fail_at_step = ZeroDivisionError()
    assert isinstance(run("prompt").exception, ZeroDivisionError)


def test_a_closed_pipe_is_quiet() -> None:
    script = (
        "import headstart; from support.fake_engine import FakeEngine; from headstart.commands.cli import main;"
        "headstart.load = FakeEngine('x' * 10**6).load; main()"
    )
    command = [sys.executable, "-c", script, "generate", "prompt", "--max-tokens", "1000000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(3)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


# -- the form of the text ----------------------------------------------------------------------------------------------


def test_a_schema_a_regex_or_a_grammar_reaches_the_request(engine: FakeEngine, tmp_path: Path) -> None:
    schema, lark, gbnf = tmp_path / "book.json", tmp_path / "words.lark", tmp_path / "words.gbnf"
    schema.write_text('{"type": "object"}')
    lark.write_text('start: "a"')
    gbnf.write_text('root ::= "a"')
    wanted = {
        ("--json-schema", str(schema)): Structure("schema", '{"type": "object"}'),
        ("--regex", "a+"): Structure("regex", "a+"),
        ("--grammar", str(lark)): Structure("lark", 'start: "a"'),
        ("--grammar", str(gbnf)): Structure("gbnf", 'root ::= "a"'),
    }
    for words, structure in wanted.items():
        assert run("prompt", *words).exit_code == 0
        assert engine.requests[-1].sampling == Sampling(structure=structure)
    empty = tmp_path / "empty"
    empty.write_text(" ")
    for words, problem in (
        (["--regex", "a", "--json-schema", str(schema)], "--json-schema and --regex exclude each other"),
        (["--grammar", str(empty)], "is empty"),
        (["--grammar", str(tmp_path / "none")], "cannot be read"),
        (["--regex", "a", "--min-tokens", "2"], "--min-tokens and structure exclude each other"),
    ):
        result = run("prompt", *words)
        assert result.exit_code == 2
        assert problem in " ".join(result.stderr.split())
