"""An agent that edits files, teacher-forced: tokens per target forward of the copying drafters, with twins and without.

    python benchmarks/agents.py --tokenizer DIR

A conversation of turns: a tool shows a file of this repository, with numbers of lines as agents show it or without, and
the reply calls `edit` with some lines of it as `old_string` and the same lines with a name changed as `new_string`. The
replies are given, so no model is needed: each draft is judged by the reply's own tokens, as a target at temperature 0
that writes this reply would. What that says of a model: how many tokens it would write per forward if it made these
edits; not whether it makes them, and nothing of prose.

Drafters are the server's own, asked alone, with a fixed budget. The first draft of a turn indexes what the drafter has
not kept of the turn before, and the twins.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from headstart.drafters import Drafter, Row
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.serve.conversation.formats import BY_NAME, Format
from headstart.serve.conversation.turns import Assistant, Call, Conversation, Tool, ToolResult, Turn, User
from headstart.serve.conversation.twins import twins
from headstart.types import Budget, Drafting, Sampling

ROOT = Path(__file__).parents[1]
FILES = (
    "src/headstart/types/draft.py", "src/headstart/drafters/prediction.py", "src/headstart/rule/row.py",
    "src/headstart/serve/conversation/turns.py", "src/headstart/drafters/cascade.py",
    "src/headstart/serve/conversation/formats.py", "src/headstart/drafters/suffix.py",
    "src/headstart/engine/prompts.py", "src/headstart/types/sampling.py", "src/headstart/drafters/ngram.py",
)  # fmt: skip
LINES = (3, 6, 10)
"""Of the edits of a file."""
BUDGET = 16
_NAME = re.compile(r"[A-Za-z_]{4,}")


@dataclass(frozen=True, slots=True)
class Figure:
    """drafter, form, shown: what was drafted for; twins: whether there were any. seconds: of a turn's first draft."""

    drafter: str
    form: str
    shown: str
    twins: bool
    tokens: int
    forwards: int
    turns: int
    first_seconds: float
    later_seconds: float
    prompt_tokens: int

    @property
    def per_forward(self) -> float:
        return self.tokens / self.forwards


def edits(text: str) -> Iterator[tuple[str, str]]:
    """Some passages of a file, and what they become: their commonest name gets another."""
    lines = text.splitlines()
    for place, count in enumerate(LINES, start=1):
        start = len(lines) * place // (len(LINES) + 1)
        old = "\n".join(lines[start : start + count])
        names = Counter(_NAME.findall(old)).most_common(1)
        if names:
            yield old, re.sub(rf"\b{names[0][0]}\b", f"new_{names[0][0]}", old)


def conversation(shown: str) -> list[tuple[list[Turn], Assistant]]:
    """What was said before each reply, and the reply."""
    said: list[Turn] = [User("Rename the names that I told you about, file by file, passage by passage.")]
    found: list[tuple[list[Turn], Assistant]] = []
    for name in FILES:
        text = (ROOT / name).read_text(encoding="utf-8")
        if shown == "numbered":
            given = "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(text.splitlines(), start=1))
        else:
            given = text
        read = Assistant(f"Next is {name}.", calls=(Call("read", json.dumps({"path": name})),))
        said += [read, ToolResult(given, name="read")]
        for old, new in edits(text):
            arguments = {"file_path": name, "old_string": old, "new_string": new}
            reply = Assistant(calls=(Call("edit", json.dumps(arguments, ensure_ascii=False)),))
            found.append((list(said), reply))
            said += [reply, ToolResult("The file has been changed.", name="edit")]
    return found


def written(turn: Turn, form: Format) -> str:
    """A turn in ChatML."""
    match turn:
        case Assistant(text=text, calls=calls):
            return f"<|im_start|>assistant\n{text}{form.written(calls)}<|im_end|>\n"
        case ToolResult(text=text):
            return f"<|im_start|>user\n<tool_response>\n{text}\n</tool_response><|im_end|>\n"
        case _:
            return f"<|im_start|>user\n{turn.text}<|im_end|>\n"


def forced(
    drafter: Drafter, prompt: Sequence[int], reply: Sequence[int], drafting: Drafting
) -> tuple[int, list[float]]:
    """Let a drafter draft for a reply that is given. Returns the target's forwards, and the seconds of each draft.

    The first token comes of the prompt's own forward, which is not counted.
    """
    state = SamplingState(Sampling(), (), 1 << 20, frozenset())
    tokens, end = [*prompt, reply[0]], len(prompt) + len(reply)
    whole = (*prompt, *reply)
    forwards, seconds = 0, []
    while len(tokens) < end:
        row = Row(
            0, tuple(tokens), state, Noise(0), prompt_tokens=len(prompt), drafting=drafting, budget=Budget(BUDGET)
        )
        begun = time.perf_counter()
        (draft,) = drafter.propose([row])
        seconds.append(time.perf_counter() - begun)
        right = 0
        while right < len(draft) and draft.tokens[right : right + 1] == whole[len(tokens) + right :][:1]:
            right += 1
        tokens += whole[len(tokens) : len(tokens) + right + 1]
        forwards += 1
    drafter.release(0)
    return forwards, seconds


def drafters() -> dict[str, Drafter]:
    """As the server builds them: alone, and before another drafter."""
    return {
        "n-gram": NgramDrafter(budget=BUDGET),
        "n-gram, sure": NgramDrafter(longest=5, shortest=3, budget=BUDGET),
        "suffix": SuffixDrafter(budget=BUDGET),
    }


def measure(tokenizer: Any, form: Format, shown: str, only: Sequence[str] | None = None) -> list[Figure]:
    """All drafters, with twins and without, over one conversation."""
    tools = (Tool("read"), Tool("edit"))
    prompts, replies, extra = [], [], []
    for said, reply in conversation(shown):
        before = "".join(written(turn, form) for turn in said) + "<|im_start|>assistant\n"
        after = written(reply, form).removeprefix("<|im_start|>assistant\n").removesuffix("\n")
        prompts.append(tokenizer(before, add_special_tokens=False)["input_ids"])
        replies.append(tokenizer(after, add_special_tokens=False)["input_ids"])
        extra.append(twins(tokenizer, Conversation(tuple(said), tools), form))
    found = []
    for name, drafter in drafters().items():
        if only and name not in only:
            continue
        for given in (False, True):
            forwards, first, later = 0, [], []
            for prompt, reply, texts in zip(prompts, replies, extra, strict=True):
                count, seconds = forced(drafter, prompt, reply, Drafting(texts=texts if given else ()))
                forwards += count
                first.append(seconds[0])
                later += seconds[1:]
            tokens = sum(len(reply) - 1 for reply in replies)
            found.append(
                Figure(
                    name, form.name, shown, given, tokens, forwards, len(replies), statistics.median(first),
                    statistics.median(later), len(prompts[-1]),
                )
            )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="a directory, or a hub id")
    parser.add_argument("--only", nargs="*", default=None, help="names of drafters; all of them by default")
    parser.add_argument("--output", type=Path, default=None, help="a folder for the figures as JSON")
    args = parser.parse_args()
    provenance, console = Provenance.now("transformers"), Console()
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    figures = []
    for form, shown in (("hermes", "numbered"), ("hermes", "as it is"), ("qwen-xml", "numbered")):
        figures += measure(tokenizer, BY_NAME[form], shown, args.only)
    console.width = max(console.width, 100)
    table = Table("drafter", "form", "file", "twins", "tokens per forward", "first draft, ms", "later, µs")
    for each in figures:
        table.add_row(
            each.drafter, each.form, each.shown, "yes" if each.twins else "no", f"{each.per_forward:.2f}",
            f"{1e3 * each.first_seconds:.0f}", f"{1e6 * each.later_seconds:.0f}",
        )  # fmt: skip
    console.print(table)
    console.print(f"{figures[0].turns} turns, the last prompt has {figures[0].prompt_tokens} tokens")
    if args.output is not None:
        content = {**provenance.rows(), "figures": [{**asdict(e), "per_forward": e.per_forward} for e in figures]}
        path = results_file(args.output, "agents")
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {path.name}")


if __name__ == "__main__":
    main()
