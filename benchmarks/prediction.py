"""Predicted output: a file of 150 lines with one name changed, which the request predicts as the file that it was.

    python benchmarks/prediction.py                                  # the bundled pair, the answer forced upon it
    python benchmarks/prediction.py --target DIR --drafter DIR       # a chat model's own answer

A chat model is asked for the file with the name changed, and answers as it likes. Another model would not know what is
wanted: there a processor allows no token but the right one, as a grammar would, and what is measured is how well a true
answer is drafted. Tokens per target forward, with the prediction and without, alone and before what else drafts; the
texts must be the same. The prompt holds the file where the context is long enough for both, so that n-gram lookup can
copy it too; that of the bundled pair is not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from provenance import Provenance
from rich.console import Console
from rich.table import Table

import headstart as hs
from headstart.engine.engine import Engine
from headstart.engine.prompts import has_chat_template
from headstart.rule.distribution import SamplingState
from headstart.rule.processors import Processor

FILE = Path(__file__).parent / "prompts" / "stock.py.txt"
OLD, NEW = "amount", "quantity"
ASK = (
    f"Rename `{OLD}` to `{NEW}` everywhere in this file, and change nothing else. Answer with the whole new file and "
    "nothing more, without a code fence."
)


@dataclass(frozen=True)
class Forced(Processor):
    """Allows the tokens of one text alone, in their order; then `end`."""

    text: tuple[int, ...]
    end: int
    at: int = 0
    """Tokens of it that have been written; negative where something else was."""

    def after(self, tokens: Sequence[int]) -> Forced:
        right = self.at >= 0 and tuple(tokens) == self.text[self.at : self.at + len(tokens)]
        return Forced(self.text, self.end, self.at + len(tokens) if right else -1)

    def edit(self, x: NDArray[np.float32]) -> None:
        if self.at < 0:
            return
        token = self.end if self.at >= len(self.text) else self.text[self.at]
        score = x[token]
        x[:] = -np.inf
        x[token] = score


class Task:
    """What is asked of one target."""

    def __init__(self, engine: Engine) -> None:
        before = FILE.read_text(encoding="utf-8")
        self.answer = before.replace(OLD, NEW)
        self.forced = not has_chat_template(engine.tokenizer)
        talk = [{"role": "user", "content": f"{ASK}\n\n{before}"}]
        note = f"# {OLD} -> {NEW}\n"
        self.prompt = engine.encode(f"{before}\n{note}" if self.forced else talk)
        self._wanted = engine.encode_after(self.prompt, self.answer)
        if len(self.prompt) + len(self._wanted) >= engine.target.max_length:
            if not self.forced:
                raise SystemExit(f"the context of {engine.target.max_length} tokens is too short; give --max-length")
            self.prompt = engine.encode(note)
        self.prediction = engine.encode_after(self.prompt, before)
        self._end = min(engine.eos_token_ids)

    def run(self, engine: Engine, *, predicted: bool) -> hs.Output:
        sampling = hs.Sampling(max_tokens=min(len(self._wanted) + 64, engine.target.max_length - len(self.prompt)))
        drafting = hs.Drafting(prediction=self.prediction if predicted else ())
        request = engine.submit(self.prompt, sampling, drafting)
        if self.forced:
            stops = frozenset({self._end})
            forced = Forced(self._wanted, self._end)
            request.distribution = SamplingState(
                sampling, self.prompt, engine.target.vocab_size, stops, processors=(forced,)
            )
        while request.finish_reason is None:
            engine.step()
        return request.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="bundled")
    parser.add_argument("--drafter", default=None, help="a draft model; with the bundled target its own")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--max-length", type=int, default=None)
    args = parser.parse_args()
    console = Console()
    provenance = Provenance.now()
    target = hs.Target(args.target, dtype=args.dtype, max_length=args.max_length)
    draft = args.drafter or (args.target if args.target == "bundled" else None)
    lists: list[list[str]] = [[], ["ngram"], *([["ngram", draft]] if draft else [])]
    figures: list[dict[str, Any]] = []
    texts = []
    for members in lists:
        engine = target.engine(["prediction", *members], max_batch_size=1)
        task = Task(engine)
        for predicted in (False, True):
            out = task.run(engine, predicted=predicted)
            texts.append(out.tokens)
            figures.append(figure(out, members, predicted=predicted))
    figures = [each for each in figures if each["drafters"]]
    right = texts[0] and target.tokenizer.decode(texts[0], skip_special_tokens=True).strip() == task.answer.strip()
    show(console, figures)
    console.print(
        f"prompt {len(task.prompt)} tokens, prediction {len(task.prediction)}, answer {len(texts[0])}", end=""
    )
    console.print(f"; the answer is {'as asked' if right else 'not what was asked for'}", end="")
    console.print(", forced" if task.forced else "")
    same = len(set(texts)) == 1
    console.print(f"all texts are {'the same' if same else 'NOT the same'}; width-invariant forward: ", end="")
    console.print(str(target.runner.width_invariant))
    for line in provenance.lines():
        console.print(line, style="dim", highlight=False)


def figure(out: hs.Output, members: Sequence[str], *, predicted: bool) -> dict[str, Any]:
    stats = out.stats
    return {
        "drafters": [*(["prediction"] if predicted else []), *(Path(name).name for name in members)],
        "tokens": stats.tokens,
        "forwards": stats.target_forwards,
        "tokens/forward": stats.tokens_per_forward,
        "tokens/s": stats.tokens / (stats.total_seconds - stats.seconds_to_first_token),
        "accepted": stats.accepted_by_source.get("prediction", 0),
        "refused": stats.refused_by_source.get("prediction", 0),
    }


def show(console: Console, figures: Sequence[dict[str, Any]]) -> None:
    table = Table("drafters", *(name for name in figures[0] if name != "drafters"))
    for each in figures:
        values = [value for name, value in each.items() if name != "drafters"]
        table.add_row(" + ".join(each["drafters"]), *(f"{v:.2f}" if isinstance(v, float) else str(v) for v in values))
    console.print(table)


if __name__ == "__main__":
    main()
