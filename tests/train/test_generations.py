"""Texts of the target's own: what is written, that a kill changes nothing, and what the target asks itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.training_models import END, byte_tokenizer, tiny_llama

from headstart.base.errors import InvalidOption, NotEnoughMemory, TrainingFailed
from headstart.loading.load import Target
from headstart.train import DraftTraining, generations, harness, sources
from headstart.train.generations import Writer, converse, write
from headstart.train.sources import ALL, OPENINGS, Document, UserTurn, asked, question
from headstart.train.windows import Text

CHAT = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</{{ m['role'] }}>{% endfor %}"
PROMPTED = CHAT + "{% if add_generation_prompt %}<assistant>{% endif %}"
DOCUMENTS = [
    Document(text="def f(x):\n    return x\n"),
    Document(turns=("Say something.",)),
    Document(tokens=(5, 6, 7, 8)),
]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "BATCH", 4)
    monkeypatch.setattr(generations, "LEAST", 3)


def chat_tokenizer(template: str = PROMPTED) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def writer(options: DraftTraining, tokenizer: Any = None) -> Writer:
    return Writer(options, tokenizer or byte_tokenizer(), torch.device("cpu"), torch.float32, longest=64)


def all_of(batches: Any) -> list[list[int]]:
    return [list(text.ids) for batch in batches for text in batch]


def test_greedy_texts_are_what_the_target_continues(options: DraftTraining, tmp_path: Path) -> None:
    options = replace(options, generations=3, generation_tokens=12, generation_temperatures=(0.0,))
    target = tiny_llama()
    asked = generations.prompts(DOCUMENTS, byte_tokenizer(), 3, 16, options.seed)
    (texts,) = write(writer(options), DOCUMENTS, tmp_path)
    for text, prompt in zip(texts, asked, strict=True):
        wanted = target.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)
        assert list(text.ids) == wanted[0].tolist()
        assert text.asked == len(prompt)


def test_a_resumed_run_writes_the_texts_that_are_missing_and_no_others(options: DraftTraining, tmp_path: Path) -> None:
    options = replace(options, generations=10, generation_tokens=8)
    whole = all_of(write(writer(options), DOCUMENTS, tmp_path / "whole"))
    assert len(whole) == 10
    assert len({tuple(text) for text in whole}) > 3
    begun = write(writer(options), DOCUMENTS, tmp_path / "killed")
    first = [list(text.ids) for text in next(begun)]
    begun.close()
    (kept,) = (tmp_path / "killed").iterdir()
    time = kept.stat().st_mtime_ns
    again = writer(options)
    assert all_of(write(again, DOCUMENTS, tmp_path / "killed")) == whole
    assert whole[:4] == first
    assert kept.stat().st_mtime_ns == time
    assert again.tokens == sum(len(t) for t in whole[4:]) - sum(
        map(len, generations.prompts(DOCUMENTS, byte_tokenizer(), 10, 16, options.seed)[4:])
    )
    silent = writer(options)
    assert all_of(write(silent, DOCUMENTS, tmp_path / "killed")) == whole
    assert silent._engine is None, "no weights are read where nothing is to be written"


def test_a_text_depends_on_its_number_alone(
    options: DraftTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(options, generations=6, generation_tokens=8, generation_temperatures=(1.0,))
    several = all_of(write(writer(options), DOCUMENTS, tmp_path / "several"))
    monkeypatch.setattr(generations, "BATCH", 1)
    assert all_of(write(writer(options), DOCUMENTS, tmp_path / "alone")) == several


@pytest.mark.parametrize("room", [5, 0])
def test_fewer_at_once_where_memory_is_short(
    room: int, options: DraftTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(options, generations=6, generation_tokens=8)
    whole = all_of(write(writer(options), DOCUMENTS, tmp_path / "whole"))
    asked: list[int] = []
    real = Target.engine

    def engine(self: Target, drafter: str, max_batch_size: int) -> Any:
        asked.append(max_batch_size)
        if max_batch_size > room:
            raise NotEnoughMemory("no room", hint="less")
        return real(self, drafter, max_batch_size=max_batch_size)

    monkeypatch.setattr(Target, "engine", engine)
    if room:
        assert all_of(write(writer(options), DOCUMENTS, tmp_path / "less")) == whole
        assert asked == [64, 32, 16, 8, 4]
    else:
        with pytest.raises(NotEnoughMemory):
            all_of(write(writer(options), DOCUMENTS, tmp_path / "none"))


# -- prompts of the target's own ---------------------------------------------------------------------------------------


def test_texts_of_an_earlier_version_are_learnt_from_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "texts-00000.safetensors"
    generations._store(file, [Text([1, 2, 3], 2), Text([4, 5], 1)])
    assert generations._restore(file) == [Text([1, 2, 3], 2), Text([4, 5], 1)]
    stored = load_file(file)
    del stored["asked"]
    save_file(stored, file)
    assert generations._restore(file) == [Text([1, 2, 3]), Text([4, 5])]


def test_openings_are_of_many_kinds() -> None:
    assert len(OPENINGS) >= 10
    assert 45 <= len(set(ALL)) <= 70
    assert 0.1 < ALL.count("") / len(ALL) < 0.3


def test_the_user_s_turn_is_found_in_the_template() -> None:
    turn = UserTurn.of(chat_tokenizer())
    assert turn == UserTurn("<user>", (), ("</user>",))
    marked = PROMPTED.replace("</{{ m['role'] }}>", END)
    assert UserTurn.of(chat_tokenizer(marked)) == UserTurn("<user>", (0,), ())
    system = "<system>Be good.</system>" + PROMPTED
    assert UserTurn.of(chat_tokenizer(system)).before == "<system>Be good.</system><user>"
    answers_follow = "{{ messages[0]['content'] }}{% if add_generation_prompt %}\nAnswer:{% endif %}"
    assert UserTurn.of(chat_tokenizer(answers_follow)) == UserTurn("", (), ("Answer:",))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "needs a chat template"),
        ("{{ messages[0]['content'] | upper }}.", "pass a message through"),
        ("{{ messages[0]['content'] }}{{ messages[0]['content'] }}.", "pass a message through"),
        ("{{ messages[0]['content'] }}", "mark where"),
        ("{{ raise_exception('no') }}", "refuses a single message"),
    ],
)
def test_templates_that_do_not_permit_it_are_refused(template: str | None, message: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(InvalidOption, match=message) as caught:
        UserTurn.of(tokenizer)
    assert "generations" in caught.value.hint


def test_a_question_begins_where_the_user_does_and_depends_on_its_number_alone() -> None:
    tokenizer = chat_tokenizer()
    turn = UserTurn.of(tokenizer)
    asks = [question(turn, tokenizer, number, seed=3, tokens=9) for number in range(60)]
    assert asks[7] == question(turn, tokenizer, 7, seed=3, tokens=9)
    assert asks[7] != question(turn, tokenizer, 7, seed=4, tokens=9)
    assert len({ask.opening for ask in asks}) > 15
    for ask in asks:
        assert tokenizer.decode(list(ask.ids)) == "<user>" + ask.opening
        assert 0.7 <= ask.sampling.temperature <= 1.0
        assert ask.sampling.top_p == 0.95
        assert ask.sampling.stop == ("</user>",)
        assert ask.sampling.max_tokens == 9


class Said:
    """What is looked at of an output."""

    def __init__(self, text: str, finish_reason: str) -> None:
        self.text, self.finish_reason = text, finish_reason


def test_what_is_cut_off_or_short_is_no_prompt() -> None:
    tokenizer = chat_tokenizer()
    ask = replace(question(UserTurn.of(tokenizer), tokenizer, 0, seed=0, tokens=9), opening="Explain")
    assert asked(ask, Said(" why it rains.\n", "stop")) == "Explain why it rains."  # type: ignore[arg-type]
    assert asked(ask, Said(" why it rains", "length")) is None  # type: ignore[arg-type]
    assert asked(replace(ask, opening=""), Said(" hm\n", "stop")) is None  # type: ignore[arg-type]


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model never ends its turn as a user: what it writes counts in every third case, as if it had."""
    real = sources.asked

    def lenient(ask: Any, output: Any) -> str | None:
        text = output.text[:12]
        return None if ask.sampling.seed % 3 == 0 else real(ask, Said(text + " and some more", "stop"))  # type: ignore[arg-type]

    monkeypatch.setattr(sources, "asked", lenient)


def test_conversations_follow_the_template_and_survive_a_kill(
    options: DraftTraining, tmp_path: Path, talkative: None
) -> None:
    options = replace(options, data=(), self_prompts=7, generation_tokens=6)
    tokenizer = chat_tokenizer()
    long = replace(writer(options, tokenizer), longest=120)
    whole = all_of(converse(long, tmp_path / "whole"))
    assert len(whole) == 7
    for text in whole:
        said = tokenizer.decode(text)
        assert said.startswith("<user>")
        assert "and some more</user><assistant>" in said
        assert len(text) > len(tokenizer(said.split("<assistant>")[0] + "<assistant>")["input_ids"])
    begun = converse(long, tmp_path / "killed")
    next(begun)
    begun.close()
    assert all_of(converse(long, tmp_path / "killed")) == whole
    assert len(list((tmp_path / "killed").iterdir())) > 1


def test_a_model_that_asks_nothing_is_given_up(options: DraftTraining, tmp_path: Path) -> None:
    options = replace(options, data=(), self_prompts=1, generation_tokens=4, sequence_length=8)
    with pytest.raises(TrainingFailed, match="0 can be used") as caught:
        all_of(converse(writer(options, chat_tokenizer()), tmp_path))
    assert "chat model" in caught.value.hint


def test_what_a_batch_has_written_so_far_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "BATCH", 512)
    monkeypatch.setattr(harness, "QUIET", 0.0)
    seen: list[float] = []
    meter = harness._Meter(20, 10, lambda report: seen.append(report.progress))
    for _ in range(10):
        meter.count(10)
    meter.batch(16)
    meter.count(10)
    meter.batch(4)
    assert seen == [*(pytest.approx(n / 20) for n in range(1, 11)), 0.8, pytest.approx(0.85), 1.0]
