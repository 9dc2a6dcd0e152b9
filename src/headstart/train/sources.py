"""Texts to learn from: files, directories, JSONL and served traffic, each remembered with its hash.

A chat model can also write prompts itself: given its template up to where the user's words begin, it writes them
(Magpie, arXiv:2406.08464). A model writes the questions that it was tuned on, so these prompts are of the kind that its
drafter will meet; and no data is needed. Without an opening it writes the questions that it was tuned on most;
`OPENINGS` spread the prompts over what people use one for. They are ours, generic on purpose, and each is cut where the
model has everything still to choose.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidOption, TrainingFailed
from headstart.base.traffic import is_header
from headstart.types import Output, Sampling

SUFFIXES = frozenset(
    {".txt", ".md", ".rst", ".tex", ".html", ".css", ".toml", ".yaml", ".yml", ".jsonl", ".py", ".pyi", ".rb", ".php"}
    | {".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".rs", ".go", ".java", ".kt", ".swift", ".js", ".jsx", ".ts", ".tsx"}
    | {".sh", ".sql"}
)
"""What is read from a directory. A file named by itself is read whatever its suffix."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text, or a conversation that the target is to continue (`turns`: the user's messages, in order); or `tokens`,
    token ids that are learnt from as they are: the first `asked` of them a prompt, the others the target's answer."""

    text: str = ""
    turns: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    asked: int = 0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file that was read. Its path is kept as the user gave it."""

    path: str
    sha256: str
    documents: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """All documents, and the files they came from."""

    documents: tuple[Document, ...]
    files: tuple[SourceFile, ...]


def read(paths: Sequence[str | Path]) -> Corpus:
    """Read every path, in order; directories by sorted relative path.

    Raises:
        InvalidOption: a path does not exist, is not UTF-8, or a JSONL line has none of the known fields.
        TrainingFailed: nothing to learn from was found.
    """
    documents: list[Document] = []
    files: list[SourceFile] = []
    for path in _files(paths):
        raw = path.read_bytes()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidOption(f"{path} is not UTF-8 text", hint="convert it, or leave it out") from error
        found = list(_jsonl(path, text)) if path.suffix == ".jsonl" else [Document(text=text)]
        found = [d for d in found if d.text.strip() or d.turns or d.tokens]
        files.append(SourceFile(str(path), hashlib.sha256(raw).hexdigest(), len(found)))
        documents += found
    if not documents:
        hint = f"name files by themselves, or directories with {', '.join(sorted(SUFFIXES))}"
        raise TrainingFailed(f"no text in {', '.join(map(str, paths))}", hint=hint)
    return Corpus(tuple(documents), tuple(files))


def _files(paths: Sequence[str | Path]) -> Iterator[Path]:
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in SUFFIXES)
        elif path.is_file():
            yield path
        else:
            raise InvalidOption(f"data: {path} does not exist", hint="give a text file, a directory or a JSONL file")


def _jsonl(path: Path, text: str) -> Iterator[Document]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
        except ValueError as error:
            raise InvalidOption(f"{path}, line {number}: not JSON", hint="one JSON object per line") from error
        if not (number == 1 and is_header(record)):
            yield _document(record, f"{path}, line {number}")


def _document(record: Any, where: str) -> Document:
    """`turns` as in Spec-Bench and MT-Bench; `prompt` is a single turn; `text` is learnt from as it is, and so are
    `prompt` and `output` in token ids (`headstart.base.traffic`)."""
    fields = record if isinstance(record, dict) else {}
    ids = [fields.get("prompt"), fields.get("output")]
    if all(isinstance(part, list) and all(type(token) is int and token >= 0 for token in part) for part in ids):
        return Document(tokens=(*ids[0], *ids[1]), asked=len(ids[0]))  # type: ignore[misc, arg-type]
    turns = fields.get("turns", fields.get("prompt"))
    if isinstance(fields.get("text"), str):
        return Document(text=fields["text"])
    if isinstance(turns, str):
        return Document(turns=(turns,))
    if isinstance(turns, list) and turns and all(isinstance(turn, str) for turn in turns):
        return Document(turns=tuple(turns))
    raise InvalidOption(f"{where}: no text", hint='a line needs a string "text" or "prompt", or a list "turns"')


OPENINGS: dict[str, tuple[str, ...]] = {
    "open": ("",) * 12,
    "explain": ("Explain", "Explain why", "How does", "What is the difference between", "What happens when"),
    "code": (
        "Write a Python function that",
        "Write a program that",
        "Find the mistake in this code:\n\n",
        "Write an SQL query",
        "How do I write a test for",
    ),
    "translation": ("Translate into French:", "Translate into Spanish:", "Translate this into German:"),
    "summary": (
        "Summarise the following text",
        "What are the main points of this text?\n\n",
        "Shorten this paragraph:",
    ),
    "list": ("Give me five", "Make a list of", "Name three"),
    "maths": ("Calculate", "Solve", "A shop sells", "If a train"),
    "extraction": ("Extract the names and dates from", "Turn this into JSON:", "Sort the following into groups:"),
    "rewriting": ("Rewrite this politely:", "Correct the mistakes in", "Make this sentence shorter:"),
    "writing": ("Write a short story about", "Write an email", "Write a poem about", "Continue this story:"),
    "dialogue": ("Write a dialogue between", "Pretend that you are", "Let us play a game:"),
    "advice": ("How can I", "I would like to", "My friend", "What should I do if"),
    "facts": ("Who was", "When did", "Where is", "Why do"),
    "reading": ("Read the text and answer the question.\n\n", "True or false:"),
    "planning": ("Make a plan for", "Suggest", "Compare"),
}
"""By kind. The empty opening is repeated, so that it is about a fifth of all."""

ALL = tuple(opening for kind in OPENINGS.values() for opening in kind)


SENTINEL = "zqxsentinelxqz"
TEMPERATURES = (0.7, 0.85, 1.0)
TOP_P = 0.95
SHORTEST = 8  # characters of a prompt
_HINT = "give prompts as data, and --generations for the target's answers"


@dataclass(frozen=True, slots=True)
class UserTurn:
    """How a chat template wraps what the user says in a first message."""

    before: str
    """Everything up to where the user's words begin."""
    stop_ids: tuple[int, ...]
    """The special token that ends the turn, if one does."""
    stop: tuple[str, ...]
    """The text that ends it, where no special token does."""

    @classmethod
    def of(cls, tokenizer: Any) -> UserTurn:
        """That of a tokenizer's template: a made-up message is rendered, and what surrounds it is taken.

        Raises:
            InvalidOption: there is no template, it refuses a message, or it does not pass the message through as it is
                or mark where it ends.
        """
        if not tokenizer.chat_template:
            raise InvalidOption("self_prompts needs a chat template, and this target has none", hint=_HINT)
        answered, bare = (_rendered(tokenizer, SENTINEL, prompted=prompted) for prompted in (True, False))
        if answered.count(SENTINEL) != 1 or bare.count(SENTINEL) != 1:
            raise InvalidOption("the chat template does not pass a message through unchanged", hint=_HINT)
        before, _, after = answered.partition(SENTINEL)
        end = bare.partition(SENTINEL)[2].strip() or after.strip()
        if not end:
            raise InvalidOption("the chat template does not mark where the user's message ends", hint=_HINT)
        ids = tokenizer(end, add_special_tokens=False)["input_ids"]
        special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        stop_ids = tuple(token for token in ids if token in special)[:1]
        return cls(before, stop_ids, () if stop_ids else (end.splitlines()[0],))


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt that is to be written."""

    opening: str
    ids: tuple[int, ...]
    sampling: Sampling


def question(turn: UserTurn, tokenizer: Any, number: int, *, seed: int, tokens: int) -> Question:
    """The number-th prompt of a run with this seed; nothing else decides what it will be."""
    chance = random.Random(f"{seed} asks {number}")
    opening = chance.choice(ALL)
    sampling = Sampling(
        max_tokens=tokens,
        temperature=chance.choice(TEMPERATURES),
        top_p=TOP_P,
        seed=chance.getrandbits(31),
        stop=turn.stop,
        stop_token_ids=turn.stop_ids,
    )
    ids = tokenizer(turn.before + opening, add_special_tokens=False)["input_ids"]
    return Question(opening, tuple(ids), sampling)


def asked(question: Question, written: Output) -> str | None:
    """What the user says; None where it was cut off by its length, failed, or is too short to be a prompt."""
    if written.finish_reason != "stop":
        return None
    text = (question.opening + written.text).strip()
    return text if len(text) >= SHORTEST else None


def chat_ids(message: str, tokenizer: Any) -> list[int]:
    """The token ids of a first message, up to where the answer begins."""
    ids: list[int] = tokenizer(_rendered(tokenizer, message, prompted=True), add_special_tokens=False)["input_ids"]
    return ids


def _rendered(tokenizer: Any, message: str, *, prompted: bool) -> str:
    try:
        rendered: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=prompted
        )
    except Exception as error:  # a template is a program of the model's makers, and raises what it likes
        raise InvalidOption(f"the chat template refuses a single message: {error}", hint=_HINT) from error
    return rendered
