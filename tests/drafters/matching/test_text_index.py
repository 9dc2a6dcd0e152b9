"""The index of texts against a direct search, its file, and drafters that copy from it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support.tiny import byte_tokenizer
from typer.testing import CliRunner

import headstart as hs
from headstart.base.errors import DamagedStore, InvalidOption
from headstart.commands.cli import app
from headstart.drafters import Drafter, Row
from headstart.drafters.matching.ngram_index import COMPARED
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.drafters.matching.text_index import COUNTED, FACTOR, FEW, SURE, TextIndex, vocabulary_hash
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.loading import indexing
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Drafting, Sampling

texts_ = st.lists(st.lists(st.integers(0, 2), max_size=60), max_size=6)
TOKENIZER = byte_tokenizer()


def occurrences(texts: Sequence[Sequence[int]], pattern: Sequence[int]) -> list[tuple[int, ...]]:
    """What follows each place at which a text has these tokens, by searching."""
    n = len(pattern)
    return [
        tuple(text[at + n :]) for text in texts for at in range(len(text) - n + 1) if list(text[at : at + n]) == pattern
    ]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(texts=texts_, query=st.lists(st.integers(0, 3), max_size=40), least=st.integers(0, 8), most=st.integers(1, 9))
def test_what_is_found_is_what_a_search_finds(texts: list[list[int]], query: list[int], least: int, most: int) -> None:
    index = TextIndex.of(texts)
    copied = index.after(query, least, most)
    least = max(least, SURE)
    lengths = [n for n in range(least, min(len(query), COMPARED) + 1) if occurrences(texts, query[-n:])]
    if not lengths:
        assert copied is None
        return
    if copied is not None:
        found, matched = list(copied.tokens), copied.match.matched
        assert least <= matched <= max(lengths)
        after = occurrences(texts, query[-matched:])
        assert matched == max(lengths) or len(after) > FEW, "where few places match, it is the longest match"
        assert any(list(rest[: len(found)]) == found for rest in after), "it is copied from one place"
        if len(after) <= COUNTED:
            first = [rest[:1] for rest in after]
            assert first.count((found[0],)) == max(first.count(each) for each in first)
        assert 0 < copied.expected <= len(found) <= min(most, FACTOR * matched)
        assert list(index.tokens[copied.match.place :][: len(found)]) == found
    else:
        assert () in occurrences(texts, query[-max(lengths) :]) or len(occurrences(texts, query[-least:])) > FEW


def test_places_are_in_order() -> None:
    generator = np.random.default_rng(0)
    index = TextIndex.of([generator.integers(0, 3, 500).tolist(), [1] * 200, [], [2]])
    tokens, order = (each.tolist() for each in index._arrays)
    assert sorted(order) == list(range(len(tokens)))
    suffixes = [tokens[place : place + 48] for place in order]
    assert suffixes == sorted(suffixes)


def test_a_token_may_be_as_large_as_a_vocabulary_is_ever() -> None:
    index = TextIndex.of([[262_143, 1, 262_143, 5, 9, 262_143]])
    copied = index.after([1, 262_143, 5, 9], 4, 3)
    assert copied is not None
    assert (copied.tokens, copied.match.matched, copied.expected) == ([262_143], 4, 1.0)
    with pytest.raises(InvalidOption, match="too large"):
        TextIndex.of([[1 << 30]])


# -- its file ---------------------------------------------------------------------------------------------------------


def saved(path: Path, texts: Sequence[Sequence[int]] = ((5, 6, 7, 8, 9),)) -> Path:
    TextIndex.of(texts).save(path, TOKENIZER)
    return path


def test_a_saved_index_comes_back_without_being_read(tmp_path: Path) -> None:
    texts = [[token % 200 for token in range(n, n + 3000)] for n in range(50)]
    path = saved(tmp_path / "code.index", texts)
    index = TextIndex.open(path, TOKENIZER)
    assert len(index) == 150_050
    copied, same = (each.after([5, 6, 7, 8], 4, 2) for each in (index, TextIndex.of(texts)))
    assert copied is not None
    assert copied == same
    mapped = Path("/proc/self/maps")
    if mapped.exists():
        assert str(path) in mapped.read_text()


def test_an_index_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "code.index")
    other = byte_tokenizer()
    other.add_tokens(["def "])
    with pytest.raises(InvalidOption, match="another model") as error:
        TextIndex.open(path, other)
    assert "headstart index" in error.value.hint
    with pytest.raises(InvalidOption, match="no tokenizer"):
        TextIndex.open(path, None)
    with pytest.raises(InvalidOption, match="there is no index"):
        TextIndex.open(tmp_path / "nowhere", TOKENIZER)


def test_files_that_are_cut_or_lie_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "code.index")
    whole, tensors = path.read_bytes(), load_file(path)
    huge = json.dumps({"tokens": {"dtype": "I32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    broken = [whole[:-4], whole[:20], b"", b"no index at all", whole.replace(b"index 1", b"index 9")]
    broken += [len(huge).to_bytes(8, "little") + huge, (1 << 62).to_bytes(8, "little") + b"{"]
    for each in broken:
        path.write_bytes(each)
        with pytest.raises(DamagedStore) as error:
            TextIndex.open(path, TOKENIZER)
        assert "headstart index" in error.value.hint
    metadata = {"format": "headstart index 1", "vocabulary": vocabulary_hash(TOKENIZER)}
    order, tokens = tensors["order"], tensors["tokens"]
    for lie in (
        {"order": order + 1}, {"order": order - 1}, {"order": order[:-1]}, {"order": order.float()},
        {"tokens": tokens - 9}, {"tokens": tokens + 300}, {"tokens": tokens + 1},
        {"tokens": tokens[None], "order": order[None]},
    ):  # fmt: skip
        save_file({**tensors, **{name: each.contiguous() for name, each in lie.items()}}, path, metadata)
        with pytest.raises(DamagedStore):
            TextIndex.open(path, TOKENIZER)


# -- drafters ---------------------------------------------------------------------------------------------------------


def row(tokens: Sequence[int], budget: int = 4, *, drafting: Drafting = Drafting()) -> Row:  # noqa: B008
    state = SamplingState(Sampling(), (), 100, frozenset())
    return Row(0, tuple(tokens), state, Noise(0), drafting=drafting, budget=Budget(budget))


INDEX = TextIndex.of([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])


@pytest.mark.parametrize("drafter", [NgramDrafter, SuffixDrafter])
def test_the_longest_match_is_copied_wherever_it_is(drafter: type[Any]) -> None:
    def drafted(tokens: Sequence[int], **options: Any) -> tuple[int, ...]:
        made: Drafter = drafter(index=INDEX)
        return made.propose([row(tokens, **options)])[0].tokens

    assert drafted([0, 3, 4, 5, 6]) == (7, 8, 9, 10), "nothing follows the end of a text"
    assert drafted([0, 4, 5, 6]) == (), "three tokens are too few"
    assert drafted([3, 4, 5, 6, 0, 0, 3, 4, 5, 6])[:2] == (0, 0), "its own text matches as much"
    assert drafted([4, 5, 6, 0, 0, 3, 4, 5, 6]) == (7, 8, 9, 10)
    twin = Drafting(texts=((2, 3, 4, 5, 6, 11, 12, 13, 14),))
    assert drafted([2, 3, 4, 5, 6], drafting=twin) == (11, 12, 13, 14), "so does a text of the request's"
    assert drafted([1, 2, 3, 4, 5, 6], drafting=twin) == (7, 8, 9, 10)


@pytest.mark.parametrize("drafter", [NgramDrafter, SuffixDrafter])
def test_what_follows_certain_tokens_is_copied_too(drafter: type[Any]) -> None:
    made = drafter(index=INDEX)
    assert made.beyond(row([0, 3, 4]), (5, 6), 3).tokens == (7, 8, 9)
    assert made.beyond(row([0, 3, 4]), (6, 5), 3).tokens == ()


# -- from files to text -----------------------------------------------------------------------------------------------


def test_what_git_ignores_and_what_is_no_text_is_left_out(tmp_path: Path) -> None:
    def put(name: str, content: bytes) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    for name in ("a.py", "deep/b.py", "secret.env", ".hidden", "node_modules/c.js"):
        put(name, f"text of {name}\n".encode())
    put("copy.py", b"text of a.py\n")
    put("binary", b"\xff\xfe\0")
    put("zero", b"a\0b")
    put("large.txt", b"word " * 1000)
    put(".gitignore", b"*.env\nnode_modules\n")
    (tmp_path / "link").symlink_to("/etc/passwd")
    store = SuffixStore()
    store.add([1, 2, 3])
    store.add([4, 5, 6], salt="of another tenant")
    store.save(tmp_path / "past.safetensors")

    def taken() -> set[str]:
        files = indexing.files_of([tmp_path])
        reading = indexing.read(
            files, TOKENIZER, most_bytes=2000, most_tokens=10_000, observe=lambda count: counted.append(count)
        )
        assert sum(counted) == len(files)
        counted.clear()
        assert [1, 2, 3] in reading.texts
        assert [4, 5, 6] not in reading.texts
        return {TOKENIZER.decode(ids).strip() for ids in reading.texts if len(ids) > 3}

    counted: list[int] = []
    assert taken() == {f"text of {name}" for name in ("a.py", "deep/b.py", "secret.env")}
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert taken() == {"*.env\nnode_modules", *(f"text of {name}" for name in ("a.py", "deep/b.py", ".hidden"))}
    few = indexing.read(
        indexing.files_of([tmp_path]), TOKENIZER, most_bytes=2000, most_tokens=20, observe=lambda _: None
    )
    assert few.tokens <= 20
    assert few.left_out["beyond the most tokens"] > 0
    both = indexing.read(
        [tmp_path / "a.py"], TOKENIZER, most_bytes=99, most_tokens=99, escaped=True, observe=lambda _: None
    )
    assert [TOKENIZER.decode(ids) for ids in both.texts] == ["text of a.py\n", "text of a.py\\n"]
    with pytest.raises(InvalidOption, match="there is no"):
        indexing.files_of([tmp_path / "nowhere"])
    with pytest.raises(InvalidOption, match="no text"):
        indexing.read([tmp_path / "zero"], TOKENIZER, most_bytes=9, most_tokens=9, observe=lambda _: None)


def test_the_command_writes_what_load_takes_and_no_text_changes(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    plain = hs.load("bundled", "none", max_length=256, dtype="float32")
    sampling = hs.Sampling(max_tokens=60)
    written = plain.generate("def parse_line(", sampling)
    (code / "known.py").write_text("def parse_line(" + written.text, encoding="utf-8")
    output = tmp_path / "code.index"
    result = CliRunner().invoke(app, ["index", str(code), "--output", str(output)])
    assert result.exit_code == 0, result.output
    assert "1 text," in result.stdout

    def steps(**options: Any) -> int:
        engine = hs.load("bundled", "ngram", max_length=256, dtype="float32", pacing="fixed", **options)
        found = engine.generate("def parse_line(", sampling)
        assert found.text == written.text
        return found.stats.target_forwards

    assert steps(index=output) < 0.6 * steps()
