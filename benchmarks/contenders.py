"""Who takes part in a paired benchmark: one `complete` each, over the same weights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.drafters.cascade import Cascade
from headstart.drafters.ngram import NgramDrafter
from headstart.loading.assembly import assemble
from headstart.model.recorded.graphs import Recorder

PLAIN, ASSISTED = "transformers generate", "transformers assisted"
OURS, DRAFTED, NGRAM = "headstart plain", "headstart draft LM", "headstart ngram"
BOTH = "headstart ngram, then draft LM"


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion: its new tokens, wall-clock seconds, and the target forwards it took (prefill included)."""

    tokens: tuple[int, ...]
    seconds: float
    forwards: int


class Contender(Protocol):
    name: str

    def complete(self, ids: list[int], new_tokens: int) -> Sample: ...


class Transformers:
    """transformers' `generate`, plain or assisted."""

    def __init__(self, name: str, model: Any, assistant: Any = None, k: int = 0) -> None:
        self.name = name
        self.model = model
        self.options = {} if assistant is None else {"assistant_model": assistant}
        self.forwards = 0
        model.register_forward_pre_hook(self._count)
        for each in (model, assistant):
            if each is not None:
                each.generation_config.eos_token_id = None  # a fixed number of tokens on both sides
        if assistant is not None:
            assistant.generation_config.num_assistant_tokens = k
            assistant.generation_config.num_assistant_tokens_schedule = "constant"
            assistant.generation_config.assistant_confidence_threshold = 0.0

    def _count(self, *_: Any) -> None:
        self.forwards += 1

    def complete(self, ids: list[int], new_tokens: int) -> Sample:
        prompt = torch.tensor([ids], device=self.model.device)
        before = self.forwards
        start = _clock(self.model.device)
        out = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new_tokens,
            do_sample=False,
            **self.options,
        )
        seconds = _clock(self.model.device) - start
        return Sample(tuple(out[0, len(ids) :].tolist()), seconds, self.forwards - before)


class Headstart:
    """An engine; its drafter, or none, makes the difference."""

    def __init__(self, name: str, engine: hs.Engine, device: torch.device) -> None:
        self.name = name
        self.engine = engine
        self.device = device

    def complete(self, ids: list[int], new_tokens: int) -> Sample:
        sampling = hs.Sampling(max_tokens=new_tokens, ignore_eos=True)
        start = _clock(self.device)
        out = self.engine.generate(ids, sampling)
        seconds = _clock(self.device) - start
        state = out.stats.speculation
        if out.error is not None or state.error is not None:  # a figure of a fallback would be of something else
            raise RuntimeError(f"{self.name} did not run as asked") from (out.error or state.error)
        return Sample(out.tokens, seconds, out.stats.target_forwards + out.stats.prefill_forwards)


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def contenders_for(target: str, drafter: str, *, k: int, dtype: str, device: str) -> tuple[list[Contender], Any, Any]:
    """The five contenders, and transformers' target and draft; both sides read the same files in the same dtype."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device(device)
    paths = directory(target, "target"), directory(drafter, "draft")
    model, assistant = (AutoModelForCausalLM.from_pretrained(p, dtype=dtype).to(place).eval() for p in paths)
    speculative = hs.load(*paths, device=place, dtype=model.dtype, num_speculative_tokens=k, max_batch_size=1)
    # One copy of the target serves all four engines: at a real size a second would not fit everywhere.
    plain = assemble(speculative.target, speculative.tokenizer, max_batch_size=1)
    ngram = assemble(speculative.target, speculative.tokenizer, NgramDrafter(), max_batch_size=1)
    # The two in a list, as headstart.load makes them; the draft LM is the very one of the other engine.
    list_of_two = Cascade([NgramDrafter(longest=5, shortest=3), speculative.drafter])
    both = assemble(speculative.target, speculative.tokenizer, list_of_two, max_batch_size=1)
    sides: list[Contender] = [
        Transformers(PLAIN, model),
        Transformers(ASSISTED, model, assistant, k),
        Headstart(OURS, plain, place),
        Headstart(DRAFTED, speculative, place),
        Headstart(NGRAM, ngram, place),
        Headstart(BOTH, both, place),
    ]
    return sides, model, assistant


def more_contenders(
    target: str, drafter: str, head: str, *, k: int, dtype: str, device: torch.device
) -> list[Contender]:
    """Engines of headstart alone, on one more copy of the target: drafts of always K tokens and paced ones. On a GPU
    some of them again whose kernels are launched one by one."""
    made: list[Contender] = []
    fixed = {"pacing": "fixed", "num_speculative_tokens": k, "draft_tree": "none"}
    ways: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("plain", "none", {}),
        (f"ngram, K={k}", "ngram", {**fixed, "draft_tree": "auto"}),
        ("ngram, paced", "ngram", {}),
        (f"draft LM, K={k}", drafter, fixed),
        ("draft LM, paced", drafter, {}),
        (f"EAGLE-3, K={k}", head, fixed),
        ("EAGLE-3, paced", head, {}),
        ("auto", "auto", {}),
    )
    for launched in (False, True) if device.type == "cuda" else (False,):
        with launched_one_by_one() if launched else nullcontext():
            model = hs.Target(directory(target, "target"), device=device, dtype=dtype)
            for name, drafts, options in ways:
                if not launched or name == "plain" or name.endswith(f"K={k}"):
                    engine = model.engine(drafts, max_batch_size=1, **options)
                    label = f"headstart {name}{LAUNCHED if launched else ''}"
                    made.append(Headstart(label, engine, device))
    return made


LAUNCHED = ", launched one by one"


@contextmanager
def launched_one_by_one() -> Iterator[None]:
    """Within, models are loaded whose forwards are not recorded."""
    kept = Recorder.__dict__["on"]
    Recorder.on = classmethod(lambda _cls, _device: None)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Recorder.on = kept  # type: ignore[method-assign]


def directory(name: str, role: str) -> str:
    """A path or hub id as it is; "bundled" is the package's own pair."""
    return str(resources.files("headstart") / "pair" / role) if name == "bundled" else name
