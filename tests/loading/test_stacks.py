"""Stacks by name: how they are written, what is refused, and that they draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import headstart as hs
from headstart.base.errors import IncompatibleTokenizer, InvalidOption
from headstart.loading.choice import choose
from headstart.loading.stack import Stack, as_stack
from headstart.model.cache import Slots
from headstart.model.packed import Forward, Segment


def test_brackets_and_commas_are_read() -> None:
    assert as_stack("self-int4") is None
    found = as_stack("self-int4( ngram, small(suffix , ngram) )")
    assert found == Stack("self-int4", ["ngram", Stack("small", ["suffix", "ngram"])])
    assert found is not None
    assert found.label == "self-int4(ngram, small(suffix, ngram))"


def test_a_path_with_brackets_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "model (1)"
    path.mkdir()
    assert as_stack(str(path)) is None
    assert as_stack(f"{path}(ngram)") == Stack(str(path), ["ngram"])


@pytest.mark.parametrize(
    "name", ["self-int4(", "self-int4)", "self-int4()", "(ngram)", "self-int4(ngram,)", "a(b))", "a(b)c"]
)
def test_what_is_no_stack_is_refused(name: str) -> None:
    if name == "self-int4)":
        assert as_stack(name) is None, "without a bracket that opens it is a name, which leads nowhere"
        return
    with pytest.raises(InvalidOption, match="is no stack of drafters"):
        as_stack(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ngram(suffix)", "no model that can have a drafter"),
        ("self-int4(ahead:bundled)", "nothing drafts ahead"),
        ("self-int4(none)", "has no drafter"),
        ("self-int4(ngram, ngram)", "names one twice"),
    ],
)
def test_what_cannot_be_stacked_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        choose("bundled", name)


def test_a_stack_is_found_whole() -> None:
    choice = choose("bundled", ["ngram", "self-int4(bundled(ngram), suffix)"])
    assert [each.label for each in choice.drafters] == ["ngram", "self-int4(bundled(ngram), suffix)"]
    assert choice.models == ["self-int4", "bundled"]
    assert [each.kind for each in choice.whole] == ["ngram", "stack", "stack", "ngram", "suffix"]


def test_it_drafts_and_keeps_the_text() -> None:
    target = hs.Target(dtype="float32")
    sampling = hs.Sampling(max_tokens=40)
    plain = target.engine(None).generate("def add(a, b):", sampling)
    engine = target.engine(hs.Stack("self-int4", ["ngram", "bundled"]), pacing="fixed", num_speculative_tokens=6)
    out = engine.generate("def add(a, b):", sampling)
    assert out.tokens == plain.tokens
    assert out.stats.tokens_per_forward > 4
    assert engine.describe()["drafter"] == "self-int4(ngram, bundled)"
    assert out.stats.accepted_by_source.keys() == {"self-int4(ngram, bundled)"}


def test_adaptive_pacing_measures_a_stack_and_what_is_inside(tiny: Callable[..., str]) -> None:
    engine = hs.load(tiny("llama"), "self-int4(ngram)", dtype="float32")
    out = engine.generate([1, 2, 3, 1, 2, 3, 1, 2], hs.Sampling(max_tokens=20))
    assert out.stats.speculation.error is None
    assert engine.describe()["pacing"] == "adaptive"
    assert engine.drafter._loop.pacing.pacing.name == "adaptive"  # type: ignore[attr-defined]


def test_a_model_with_other_tokens_has_no_drafter_of_its_own(tiny: Callable[..., str]) -> None:
    from support.tiny import ARCHITECTURES  # noqa: F401 -- the checkpoints are made there

    with pytest.raises((IncompatibleTokenizer, InvalidOption)):
        hs.load("bundled", f"{tiny('llama')}(ngram)")


@pytest.mark.parametrize("drafter", ["self-int4", "self-int4(ngram)"])
def test_a_copy_of_the_target_reads_no_prompt(drafter: str) -> None:
    """It takes over what the target has read, and drafts from the second step on."""
    target = hs.Target(dtype="float32")
    prompt = "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return"
    sampling = hs.Sampling(max_tokens=40)
    plain = target.engine(None).generate(prompt, sampling)
    engine = target.engine(drafter, pacing="fixed", num_speculative_tokens=6)
    copy = target.draft("self-int4").runner("int4")
    rows: list[int] = []
    forward = copy.forward

    def counted(segments: Sequence[Segment], cache: Slots, **options: object) -> Forward:
        rows.append(sum(map(len, segments)))
        return forward(segments, cache, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(copy, "forward", counted)
        out = engine.generate(prompt, sampling)
    assert out.tokens == plain.tokens
    assert max(rows) <= 16 < len(out.prompt_tokens)
    assert out.stats.tokens_per_forward > 4, "what it took over is as good as what it would have read"
