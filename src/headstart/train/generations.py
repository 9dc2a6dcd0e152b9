"""Texts that the target writes itself: what the drafter will meet in use, which no corpus shows exactly.

They are written by headstart's own engine, many at once; each text is drawn with a seed of its own, so that it depends
on its number alone. A batch of them is one file, and a run that was killed goes on with the first that is missing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.base.errors import NotEnoughMemory, TrainingFailed
from headstart.base.files import replacing
from headstart.loading.load import Target
from headstart.train import checkpoint, sources
from headstart.train.options import Training
from headstart.train.sources import Document
from headstart.train.windows import Text
from headstart.types import Output, Sampling

AT_ONCE = 64  # texts that are written side by side
BATCH = 512  # texts of a file: several times as many, because texts end one by one
LEAST = 16  # and of one at the end, where few are wanted
TRIES = 8  # prompts that the target writes for each that is wanted, before the run gives up

Written = Callable[[int], None]
"""Given the number of tokens written since it was called last."""


@dataclass
class Writer:
    """The target's engine, made when the first text is missing, and let go by `close`.

    It runs without a drafter. With 64 texts side by side a forward on a CPU has all the rows that it can use, so that
    a guess costs as much as a token and is right less often; and what is drafted cannot change how a forward rounds.
    """

    options: Training
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype
    written: Written = lambda _: None
    longest: int = 0
    """The most tokens of a prompt and its text together."""
    tokens: int = 0
    """Written so far, by this process."""
    _engine: Any = field(default=None, init=False)

    def __call__(self, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling]) -> list[Output]:
        """Continue the prompts, each by its own sampling.

        Raises:
            TrainingFailed: the target's logits were not finite.
        """
        if not prompts:
            return []
        if self._engine is None:
            options = {"quantize": self.options.generation_quantize, "max_length": self.longest + 1}
            target = Target(self.options.target, device=self.device, dtype=self.dtype, **options)
            self._engine = _engine(target, AT_ONCE)
            self._engine.subscribe(self._count)
        outputs: list[Output] = self._engine.generate([list(prompt) for prompt in prompts], list(samplings))
        for output in outputs:
            if output.error is not None:
                raise TrainingFailed(f"the target cannot write: {output.error}", hint="try --dtype float32")
        return outputs

    def _count(self, step: Any) -> None:
        self.tokens += len(step.tokens)
        self.written(len(step.tokens))

    def close(self) -> None:
        """Give back the memory of weights and cache."""
        self._engine = None


def _engine(target: Target, at_once: int) -> Any:
    """An engine for so many texts, or for half as many where their keys and values find no memory; the texts are the
    same."""
    try:
        return target.engine("none", max_batch_size=at_once)
    except NotEnoughMemory:
        if at_once == 1:
            raise
        return _engine(target, at_once // 2)


def prompts(documents: Sequence[Document], tokenizer: Any, count: int, longest: int, seed: int) -> list[list[int]]:
    """`count` prompts in token ids: conversations through the chat template, texts cut at a random place.

    Documents are taken in a random order, none for a second time before each was taken once.
    """
    generator = torch.Generator().manual_seed(seed)
    picked: list[int] = []
    while len(picked) < count:
        picked += torch.randperm(len(documents), generator=generator).tolist()
    return [_prompt(documents[i], tokenizer, longest, generator) for i in picked[:count]]


def _prompt(document: Document, tokenizer: Any, longest: int, generator: torch.Generator) -> list[int]:
    if document.turns:
        return turn_ids(document, tokenizer)[-longest:]
    tokens = list(document.tokens) or tokenizer(document.text, verbose=False)["input_ids"]
    end = int(torch.randint(1, max(2, min(len(tokens), longest)), (), generator=generator))
    return tokens[:end]


def turn_ids(document: Document, tokenizer: Any) -> list[int]:
    """A conversation as the model's prompt; without a chat template, its turns one below another."""
    if tokenizer.chat_template:
        return sources.chat_ids(document.turns[0], tokenizer)
    plain: list[int] = tokenizer("\n\n".join(document.turns), verbose=False)["input_ids"]
    return plain


def write(writer: Writer, documents: Sequence[Document], folder: Path) -> Iterator[list[Text]]:
    """Yield batches of texts, prompt and continuation, that continue prompts from the documents."""
    options = writer.options
    wanted = prompts(documents, writer.tokenizer, options.generations, longest_prompt(options), options.seed)
    for number, start in enumerate(range(0, len(wanted), BATCH)):
        file = folder / f"texts-{number:05d}.safetensors"
        if not file.exists():
            part = wanted[start : start + BATCH]
            outputs = writer(part, [_sampling(options, "texts", start + i) for i in range(len(part))])
            _store(file, [_answered(prompt, output) for prompt, output in zip(part, outputs, strict=True)])
        yield _restore(file)


def converse(writer: Writer, folder: Path) -> Iterator[list[Text]]:
    """Yield batches of conversations, `options.self_prompts` in all: the target writes both sides.

    Raises:
        InvalidOption: the target has no chat template that permits it.
        TrainingFailed: hardly anything that it writes as a user is a prompt.
    """
    options, tokenizer = writer.options, writer.tokenizer
    turn = sources.UserTurn.of(tokenizer)
    kept = tried = number = 0
    while kept < options.self_prompts:
        file = folder / f"conversations-{number:05d}.safetensors"
        size = min(BATCH, max(LEAST, options.self_prompts - kept))
        if not file.exists():
            _store(file, _conversations(writer, turn, range(tried, tried + size)))
        found = _restore(file)[: options.self_prompts - kept]
        kept, tried, number = kept + len(found), tried + size, number + 1
        yield found
        if tried >= max(BATCH, TRIES * options.self_prompts) and kept < options.self_prompts:
            hint = "is it a chat model? give prompts as data, and --generations for its answers"
            raise TrainingFailed(f"of {tried} prompts that the target wrote as a user, {kept} can be used", hint=hint)


def _conversations(writer: Writer, turn: sources.UserTurn, numbers: range) -> list[Text]:
    """The prompts of these numbers, answered, less those that are none."""
    options, tokenizer = writer.options, writer.tokenizer
    longest = longest_prompt(options)
    questions = [sources.question(turn, tokenizer, n, seed=options.seed, tokens=longest) for n in numbers]
    outputs = writer([q.ids for q in questions], [q.sampling for q in questions])
    messages = [sources.asked(*each) for each in zip(questions, outputs, strict=True)]
    asked = [
        (number, sources.chat_ids(message, tokenizer))
        for number, message in zip(numbers, messages, strict=True)
        if message is not None
    ]
    asked = [(number, ids) for number, ids in asked if len(ids) < writer.longest]
    answers = writer([ids for _, ids in asked], [_sampling(options, "answers", number) for number, _ in asked])
    return [_answered(ids, answer) for (_, ids), answer in zip(asked, answers, strict=True)]


def longest_prompt(options: Training) -> int:
    """Tokens of a prompt at most: half a window."""
    return max(1, options.sequence_length // 2)


def _sampling(options: Training, kind: str, number: int) -> Sampling:
    """Of the text of this number: the temperatures in turn, and a seed that depends on nothing else."""
    temperatures = options.generation_temperatures
    return Sampling(
        max_tokens=options.generation_tokens,
        temperature=temperatures[number % len(temperatures)],
        seed=random.Random(f"{options.seed} {kind} {number}").getrandbits(31),
    )


def _answered(prompt: Sequence[int], output: Output) -> Text:
    return Text([*prompt, *output.tokens], len(prompt))


def _store(file: Path, texts: Sequence[Text]) -> None:
    stored = {
        "tokens": torch.tensor([token for text in texts for token in text.ids], dtype=torch.int32),
        "lengths": torch.tensor([len(text) for text in texts], dtype=torch.int64),
        "asked": torch.tensor([text.asked for text in texts], dtype=torch.int64),
    }
    with checkpoint.writing(file, checkpoints=file.parent), replacing(file) as partial:
        save_file(stored, partial)


def _restore(file: Path) -> list[Text]:
    stored: dict[str, Tensor] = load_file(file)
    if not len(stored["lengths"]):
        return []
    parts = torch.split(stored["tokens"], stored["lengths"].tolist())
    prompts = stored.get("asked", torch.zeros(len(parts), dtype=torch.int64))  # not in the files of earlier versions
    return [Text(part.tolist(), asked) for part, asked in zip(parts, prompts.tolist(), strict=True)]
