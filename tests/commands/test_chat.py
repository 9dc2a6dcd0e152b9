"""`headstart chat`: the conversation itself, its commands, a pipe, and a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer
from support.byte_models import CHAT_TEMPLATE, save_model
from support.families import FAMILIES, config_of, random_model, with_tokens
from support.tiny import byte_tokenizer
from typer.testing import CliRunner

import headstart as hs
from headstart.base.errors import ContextExceeded, InvalidFile, InvalidOption, InvalidPrompt
from headstart.base.extras import how_to_install
from headstart.commands.chat import _Front, _reader
from headstart.commands.cli import app
from headstart.commands.terminal import reported, unechoed
from headstart.model.loading import context_limit
from headstart.model.longrope import fix_rotation
from headstart.serve.chat.conversation import Conversation, ask_with_room
from headstart.serve.conversation.detect import ChatForm
from headstart.serve.conversation.formats import Think

GREEDY = hs.Sampling(max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("chat"), chat=True)


@pytest.fixture(scope="module")
def engine(model: Path) -> hs.Engine:
    return hs.load(str(model), "ngram", dtype="float32", pacing="fixed", max_batch_size=1, prefix_cache=True)


@pytest.fixture
def talk(engine: hs.Engine) -> Iterator[Conversation]:
    yield Conversation(engine, GREEDY)
    assert not engine.scheduler.requests(), "no request is left behind"
    engine.cache.check()


def say(talk: Conversation, text: str) -> str:
    return "".join(piece.text for piece in talk.ask(text))


def test_turns_are_those_of_the_library(talk: Conversation, engine: hs.Engine) -> None:
    first = say(talk, "Hello")
    assert first == engine.chat([{"role": "user", "content": "Hello"}], GREEDY).text
    second = say(talk, "And?")
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "And?"},
    ]
    assert second == engine.chat(messages, GREEDY).text
    assert talk.messages == [*messages, {"role": "assistant", "content": second}]


def test_pieces_say_what_was_guessed() -> None:
    """Against the engine's own events, on text in which every token decodes by itself."""
    engine = hs.load("bundled", "ngram", pacing="fixed", max_batch_size=1)
    engine.tokenizer.chat_template = CHAT_TEMPLATE
    talk = Conversation(engine, hs.Sampling(max_tokens=60, ignore_eos=True))
    expected: list[tuple[str, bool]] = []
    engine.subscribe(
        lambda step: expected.extend(
            (engine.tokenizer.decode([token]), place < len(step.path)) for place, token in enumerate(step.tokens)
        )
    )
    pieces = list(talk.ask("def add(a, b):\n    return a + b\n\ndef add(a, b):"))
    text = talk.messages[-1]["content"]
    assert "".join(p.text for p in pieces) == text == "".join(part for part, _ in expected)
    shown = [guessed for p in pieces for guessed in [p.guessed] * len(p.text)]
    assert shown == [guessed for part, guessed in expected for _ in part]
    assert {True, False} == set(shown), "else nothing is tested here"
    plain = Conversation(engine.plain(), talk.sampling)
    assert not any(p.guessed for p in plain.ask("def add(a, b):"))


def test_reasoning_is_told_from_the_answer(engine: hs.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("llguidance")
    words = hs.Structure("lark", 'start: "<think>\\nHm, <b>\\n</think>\\n\\nYes."')
    form = ChatForm(think=Think("<think>", "</think>"))
    talk = Conversation(engine, hs.Sampling(max_tokens=80, structure=words), form=form)
    pieces = list(talk.ask("Hello"))
    assert "".join(piece.text for piece in pieces if piece.reasoning) == "Hm, <b>"
    assert "".join(piece.text for piece in pieces if not piece.reasoning) == "Yes."
    assert all(piece.guessed for piece in pieces[1:-1]), "what the grammar decides is drafted"
    assert talk.messages[-1] == {"role": "assistant", "content": "Yes."}
    for shown, expected in ((True, "Hm, <b>\n\nYes.\n"), (False, "Yes.\n")):
        _Front(talk, colors=False, stats=False, reasoning=shown).answer("And?")
        assert capsys.readouterr().out == expected
    plain = Conversation(engine, talk.sampling)
    assert say(plain, "Hello") == "<think>\nHm, <b>\n</think>\n\nYes.", "no form: all is the answer"


def test_a_format_that_does_not_exist(model: Path) -> None:
    run = CliRunner().invoke(app, ["chat", "--target", str(model), "--chat-format", "hermess", "Hello"])
    assert run.exit_code == 2
    assert "hermes, qwen-xml" in " ".join(run.stderr.split())


def test_a_second_turn_reads_only_what_is_new(talk: Conversation) -> None:
    say(talk, "Hello, how are you today?")
    say(talk, "And?")
    first, second = talk.stats
    assert first.cached_tokens == 0
    assert second.cached_tokens >= first.prompt_tokens, "the answer is text that may be written with other tokens"


def test_closing_an_answer_keeps_what_there_is(talk: Conversation) -> None:
    pieces = talk.ask("Hello")
    first = next(pieces)
    pieces.close()
    assert talk.messages[-1]["role"] == "assistant"
    assert talk.messages[-1]["content"].startswith(first.text)


def test_the_oldest_turns_make_room(engine: hs.Engine) -> None:
    talk = Conversation(engine, GREEDY)
    for _ in range(12):
        pieces, dropped = ask_with_room(talk, "x" * 40)
        list(pieces)
        if dropped:
            break
    assert dropped > 0
    assert len(talk.messages) % 2 == 0
    before = list(talk.messages)
    with pytest.raises(ContextExceeded):
        ask_with_room(Conversation(engine, GREEDY), "y" * 300)
    assert talk.messages == before


def test_a_refused_conversation_loses_nothing(talk: Conversation) -> None:
    say(talk, "Hello")
    before = list(talk.messages)
    talk.system = "be kind"  # this template knows no system message
    with pytest.raises(InvalidPrompt):
        say(talk, "And?")
    assert talk.messages == before


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("temperature", "0.7", 0.7), ("max-tokens", "5", 5), ("seed", "none", None), ("seed", "3", 3),
     ("stop", "END", ("END",)), ("stop", '["a", "b"]', ("a", "b")), ("stop", "", ()), ("top_p", "none", 1.0)],
)  # fmt: skip
def test_set(talk: Conversation, name: str, value: str, expected: object) -> None:
    assert talk.set(name, value) == expected


@pytest.mark.parametrize(
    ("name", "value"), [("temprature", "1"), ("temperature", "-1"), ("seed", "x"), ("logprobs", "3")]
)
def test_what_cannot_be_set(talk: Conversation, name: str, value: str) -> None:
    before = talk.sampling
    with pytest.raises(InvalidOption):
        talk.set(name, value)
    assert talk.sampling == before


def test_saved_and_loaded(talk: Conversation, tmp_path: Path) -> None:
    say(talk, "Hello")
    talk.save(tmp_path / "talk.jsonl")
    other = Conversation(talk._engine, GREEDY)
    other.load(tmp_path / "talk.jsonl")
    assert other.messages == talk.messages
    assert say(other, "And?") == say(talk, "And?")
    (tmp_path / "bad").write_text("{")
    kept = list(other.messages)
    with pytest.raises(InvalidFile):
        other.load(tmp_path / "bad")
    assert other.messages == kept


def test_commands_of_the_terminal(engine: hs.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(
        ["/set temperature 0", "/set nothing 3", "/what", "Hello", "/stats", "/show", "/colors", '"""one', 'two"""',
         f"/save {tmp_path / 'a.jsonl'}", "/reset", f"/load {tmp_path / 'a.jsonl'}", "/save", "/system", "", "/bye"]
    )  # fmt: skip
    talk = Conversation(engine, GREEDY)
    _Front(talk, colors=False, stats=False).converse(lambda: next(lines))
    out, err = capsys.readouterr()
    assert [m["content"] for m in talk.messages if m["role"] == "user"] == ["Hello", "one\ntwo"]
    assert out.splitlines()[0] == talk.messages[1]["content"].splitlines()[0]
    for words in (
        "nothing cannot be set",
        "/what is no command",
        "tokens per target forward",
        "4 messages",
        "no file was",
    ):
        assert words in err
    assert json.loads((tmp_path / "a.jsonl").read_text())["messages"] == talk.messages


def test_a_pipe_gets_the_answer_alone(model: Path, engine: hs.Engine) -> None:
    line = [
        "chat",
        "--target",
        str(model),
        "--drafter",
        "ngram",
        "--dtype",
        "float32",
        "-T",
        "0",
        "-n",
        "12",
        "--ignore-eos",
    ]
    line.remove("--ignore-eos")
    run = CliRunner().invoke(app, line, input="Hello")
    assert run.exit_code == 0, run.stderr
    assert run.stdout == engine.chat([{"role": "user", "content": "Hello"}], hs.Sampling(max_tokens=12)).text + "\n"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("gemma4_text", "phi3", "gpt2") else pytest.mark.slow)
        for name in FAMILIES
    ],
)
def test_a_model_of_every_family(name: str, tmp_path: Path) -> None:
    """With the drafter and the pacing that a user gets; the answer is that of transformers' `generate`."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    made = random_model(with_tokens(config_of(name), len(tokenizer), eos=tokenizer.eos_token_id, pad=257))
    made.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    run = CliRunner().invoke(
        app, ["chat", "--target", str(tmp_path), "--dtype", "float32", "-T", "0", "-n", "24", "Hello, hello"]
    )
    assert run.exit_code == 0, run.stderr
    fix_rotation(made, context_limit(made.config))
    said = tokenizer.apply_chat_template([{"role": "user", "content": "Hello, hello"}], tokenize=False)
    ids = torch.tensor([tokenizer(said + "a:").input_ids])
    out = made.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
    assert run.stdout == tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True) + "\n"


def test_a_model_without_a_template_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hs.Target, "engine", None)  # which reads the weights
    run = CliRunner().invoke(app, ["chat", "bundled", "Hello", "--drafter", "none"])
    assert run.exit_code == 2
    assert "no chat template" in run.stderr
    assert "instruction-tuned" in run.stderr


def test_a_terminal(model: Path, tmp_path: Path) -> None:
    """A command and the end of the input, in a real pseudo-terminal; what was typed is remembered."""
    parent, child = pty.openpty()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    command = [sys.executable, "-m", "headstart", "chat", "--target", str(model), "--drafter", "none", "-n", "200"]
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True
    )
    os.close(child)
    seen = ""

    def wait(words: str, count: int = 1) -> None:
        nonlocal seen
        end = time.monotonic() + 120
        while seen.count(words) < count:
            assert time.monotonic() < end, f"no {words!r} in {seen!r}"
            if select.select([parent], [], [], 1.0)[0]:
                seen += os.read(parent, 4096).decode(errors="replace")

    try:
        wait(">>>")
        seen = ""
        os.write(parent, b"/set max_tokens 3\r")
        wait("max_tokens is 3")
        seen = ""
        wait(">>>")
        os.write(parent, b"\x04")  # Ctrl-D
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    assert "/set max_tokens 3" in (tmp_path / "headstart" / "chat" / "history").read_text()


def test_without_the_package_that_edits_lines_a_hint_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    with pytest.raises(typer.Exit), reported(show_traceback=False):
        _reader(history=False)
    assert how_to_install("serve") in capsys.readouterr().err


def test_what_is_typed_while_the_model_loads_is_kept_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    typist, terminal = os.openpty()
    with os.fdopen(terminal, encoding="utf-8") as read:
        monkeypatch.setattr(sys, "stdin", read)
        with unechoed():
            os.write(typist, b"too early\n")
            assert read.readline() == "too early\n"
        os.write(typist, b"now\n")
        assert read.readline() == "now\n"
        assert os.read(typist, 100) == b"now\r\n", "only what is typed afterwards is shown"
    os.close(typist)
