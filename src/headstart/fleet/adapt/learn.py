"""Going on with the training of a deployed drafter, on traffic: the target's own words need not be made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.base.errors import InvalidOption
from headstart.base.traffic import write
from headstart.fleet.adapt.options import Learning
from headstart.fleet.adapt.split import Split
from headstart.loading.choice import choose
from headstart.loading.load import Target
from headstart.train import DraftTraining, Eagle3Training, train_draft, train_eagle3
from headstart.train.harness import Observer, TrainingResult

_WINDOWS = 16
"""The least number of windows that are worth a training run."""
_LONGEST, _SHORTEST = 512, 64
_SEVERAL = 4  # windows that a window of the validation part takes at least, since documents go there whole


def deployed(target: str, drafter: str) -> tuple[str, str]:
    """The drafter to train further: its kind (eagle3 or draft), and its directory or hub id.

    Raises:
        InvalidOption: a drafter without weights, Medusa heads, or several drafters.
        ModelNotFound: it leads to no model.
    """
    specs = choose(target, drafter).drafters
    if len(specs) == 1 and specs[0].kind == "eagle":
        return "eagle3", str(specs[0].source)
    if len(specs) == 1 and specs[0].kind == "draft":
        return "draft", specs[0].name
    raise InvalidOption(
        f"drafter={drafter!r} cannot be trained further",
        hint="EAGLE-3 heads and draft models can; --gate-only NEW compares any two drafters",
    )


def learn(
    target: Target,
    drafter: tuple[str, str],
    found: Split,
    output: Path,
    options: Learning,
    seed: int,
    observe: Observer,
) -> TrainingResult:
    """Train on the learnt side of the split and write the new drafter to `output`. drafter: see `deployed`.

    The traffic is copied to `output.parent / "learnt.jsonl"`, with mode 600, for as long as the run lasts: a run that
    was killed goes on from there.

    Raises what `headstart.train.harness.train` raises.
    """
    (kind, source), copy = drafter, output.parent / "learnt.jsonl"
    write(copy, found.learnt, target.checkpoint.fingerprint)
    shared: dict[str, Any] = {
        "target": target.checkpoint.source,
        "output": output,
        "data": (copy, *options.data),
        "minutes": 10.0 if options.minutes is None and options.steps is None else options.minutes,
        "steps": options.steps,
        "matrix_rate": options.matrix_rate,
        "other_rate": options.other_rate,
        "batch_size": options.batch_size,
        "seed": seed,
        "device": str(target.device),
        "dtype": target.options.dtype if target.options.dtype in ("float32", "bfloat16") else "auto",
        "begin_with": source,
        **_windows(found, target.checkpoint.length),
    }
    if kind == "eagle3":
        result = train_eagle3(Eagle3Training(**shared, format="hf"), observe=observe)
    else:
        result = train_draft(DraftTraining(**shared), observe=observe)
    copy.unlink()
    return result


def _windows(found: Split, context: int) -> dict[str, Any]:
    """The length of windows and the share held out for the trainer's own eye, as little traffic permits.

    Raises:
        InvalidOption: there is too little to learn from.
    """
    tokens = sum(len(one.prompt) + len(one.output) for one in found.learnt)
    length = min(_LONGEST, context)
    while length > _SHORTEST and tokens < 4 * _WINDOWS * length:
        length //= 2
    if tokens < _WINDOWS * length:
        raise InvalidOption(
            f"{tokens} tokens are too few to learn from", hint=f"record more traffic: {_WINDOWS * length} at least"
        )
    return {"sequence_length": length, "validation": min(0.5, max(0.05, _SEVERAL * length / tokens))}
