"""What is no prompt is refused with a typed error and a hint, before anything is generated."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import headstart as hs
from headstart.base.errors import InvalidOption, InvalidPrompt

NO_PROMPTS = [
    "\ud800", "a\udfffb", None, 5, 1.5, [None], [], "", [[]], [[None]], [5, None], [5, "a"], [1.5], [[1.5]],
    ["a", None], ["a", 5], [[5], None], [[[5]]], [["a"]], b"abc", {5, 6}, {"role": "user"}, object(), torch.tensor(5),
    torch.tensor([0.5]), torch.ones(1, 1, 1), np.array([0.5]), (n for n in (5, 6)), [{}], [{"role": 5}],
    [{"role": "user", "content": None}], [[{"role": "user", "content": 5}]], [10**30], [-1],
]  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> hs.Engine:
    return hs.load("bundled", "none")


@pytest.mark.parametrize("prompt", NO_PROMPTS, ids=lambda prompt: re.sub(r" at 0x\w+", "", ascii(prompt)))
def test_what_is_no_prompt_is_refused(prompt: Any, engine: hs.Engine) -> None:
    for ask in (engine.generate, engine.submit, engine.encode):
        with pytest.raises(InvalidPrompt) as caught:
            ask(prompt)
        assert caught.value.hint
        assert "\n" not in caught.value.message
    assert not engine.scheduler.requests()


def test_half_a_character_is_named(engine: hs.Engine) -> None:
    with pytest.raises(InvalidPrompt, match=r"half a character, '\\udfff', at 1"):
        engine.generate("a\udfffb")
    with pytest.raises(InvalidPrompt, match="half a character"):
        engine.encode_after([5], "\ud800")


@pytest.mark.parametrize(
    "prompt",
    [(5, 6), [np.int64(5), np.int32(6)], np.array([5, 6]), torch.tensor([5, 6]), [torch.tensor(5), 6]],
    ids=str,
)
def test_whole_numbers_of_any_kind_are_token_ids(prompt: Any, engine: hs.Engine) -> None:
    assert engine.encode(prompt) == (5, 6)
    assert engine.generate(prompt, hs.Sampling(max_tokens=1)).prompt_tokens == (5, 6)


@pytest.mark.parametrize("prompts", [["a", [5]], np.array([[5, 6], [7, 8]]), torch.tensor([[5], [6]])], ids=str)
def test_a_list_of_prompts_is_a_batch(prompts: Any, engine: hs.Engine) -> None:
    assert len(engine.generate(prompts, hs.Sampling(max_tokens=1))) == 2


@pytest.mark.parametrize("wrong", ["greedy", 5, {"temperature": 1}, [5], hs.Drafting()], ids=str)
def test_what_is_no_sampling_is_refused(wrong: Any, engine: hs.Engine) -> None:
    for ask in (engine.generate, engine.submit):
        with pytest.raises(InvalidOption, match="is no Sampling"):
            ask([5, 6], wrong)
    with pytest.raises(InvalidOption, match="is no Drafting"):
        engine.generate([5, 6], None, 5)  # type: ignore[call-overload]
