"""Medusa: extra heads on the target's last hidden state guess the tokens after the next one, all in one small forward.

The state of the last token in the cache gave the pending x0; head k guesses the token k + 1 places after x0. As no
head knows what the others guess, the draft is a tree of their likeliest tokens, static but for its size: which
ranks of which heads get a node depends on how often they are right (`growing.ranks`). Its nodes are point masses,
judged by the walk rule at any temperature; typical acceptance, which changes the distribution, is not built.

Source: Medusa (arXiv:2401.10774).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.base.options import check_number
from headstart.drafters import BuildContext, Drafter, Observation, Row, Weights
from headstart.drafters.growing.last_states import LastStates
from headstart.drafters.growing.ranks import WIDTH, Accuracies, Experience, Place, grow, sizes, usual_accuracies
from headstart.model.heads.medusa import MedusaHeads, read_heads
from headstart.model.reading import object_in
from headstart.model.runner import ModelRunner
from headstart.types import Draft

WEIGHTS: Weights = "head"

BUDGET = 16
_SALTS = 64  # whose experience is kept; the oldest goes


def recognises(folder: str | Path) -> bool:
    """Whether the directory's config is that of Medusa heads."""
    return "medusa_num_heads" in object_in(Path(folder) / "config.json")


class MedusaDrafter(Drafter):
    """Trees of the heads' guesses.

    Args:
        heads: ready to run.
        layers: the number of the target's layers; its final state is tapped.
        accuracies: how often each rank of each head is right, [heads][ranks]; None takes what is usual. They are
            refined by what requests of the same salt show, except for requests whose text a seed promises.
        budget: nodes where the user chooses no number.
    """

    name = "medusa"
    draws = False

    def __init__(
        self,
        heads: MedusaHeads,
        *,
        layers: int,
        accuracies: Accuracies | None = None,
        budget: int | None = None,
        name: str = "medusa",
    ) -> None:
        self.name = name
        self.default_budget = BUDGET if budget is None else budget
        check_number("budget", self.default_budget, low=0, integer=True)
        self.taps = (layers,)
        self._heads = heads
        if accuracies is None:
            accuracies = usual_accuracies(heads.count, min(WIDTH, heads.vocab_size))
        self._accuracies = accuracies
        self._guesses = max(map(len, accuracies))
        self._fixed = grow(accuracies)
        self._experience: dict[str, Experience] = {}
        self._memories: dict[int, _Memory] = {}
        self._last = LastStates(layers)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        runner: ModelRunner,
        *,
        budget: int | None = None,
        quantize: str | None = "auto",
        name: str = "medusa",
    ) -> MedusaDrafter:
        """Read a checkpoint's heads for this target. quantize: see `MedusaHeads`.

        Raises:
            ModelNotFound, PickleCheckpoint: there are no safetensors.
            UnsupportedModel: no heads, incomplete ones, or heads of another target.
        """
        folder = Path(folder)
        weights = read_heads(folder)
        vocab_size, width = weights[0].output.shape
        ours = int(runner.config.get_text_config().hidden_size)
        if (width, vocab_size) != (ours, runner.vocab_size):
            raise UnsupportedModel(
                f"the Medusa heads read states of {width} numbers and know {vocab_size} tokens, but the target's "
                f"hidden size is {ours} and its vocabulary {runner.vocab_size}",
                hint="heads belong to the model they were trained on: choose it as target, or train heads for this one",
            )
        heads = MedusaHeads(weights, dtype=runner.dtype, device=runner.device, quantize=quantize)
        recorded = _recorded(folder, heads)
        return cls(heads, layers=runner.layers, accuracies=recorded, budget=budget, name=name)

    @property
    def limit(self) -> int:
        return len(self._fixed)

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """Prefixes of one greedy order."""
        return sizes(self._fixed)

    def weights(self) -> Iterable[Tensor]:
        return self._heads.weights()

    @property
    def weights_in_words(self) -> str:
        return self._heads.weights_in_words

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        memories = [self._memory(row) for row in rows]
        known = [self._last.before(row) for row in rows]
        states = [state for state in known if state is not None]
        guesses = iter(self._heads.likeliest(torch.stack(states), self._guesses) if states else ())
        return [
            Draft() if state is None else self._draft(memory, row, next(guesses))
            for memory, row, state in zip(memories, rows, known, strict=True)
        ]

    def observe(self, observation: Observation) -> None:
        if not self._last.observe(observation):
            return
        step = observation.step
        memory = self._memories.setdefault(step.request, _Memory())
        if memory.sent and step.draft.tokens == memory.sent and memory.experience is not None:
            memory.experience.learn(memory.guesses, step.tokens, len(step.path))
        memory.sent = ()

    def release(self, request: int) -> None:
        self._memories.pop(request, None)
        self._last.release(request)

    def _memory(self, row: Row) -> _Memory:
        memory = self._memories.setdefault(row.request, _Memory())
        if memory.experience is None:
            memory.experience = self._experience.get(row.sampling.cache_salt)
        if memory.experience is None:
            memory.experience = self._experience[row.sampling.cache_salt] = Experience(self._accuracies)
            if len(self._experience) > _SALTS:
                del self._experience[next(iter(self._experience))]
        return memory

    def _draft(self, memory: _Memory, row: Row, guesses: list[list[int]]) -> Draft:
        assert memory.experience is not None, "given by `_memory`"
        order = self._fixed if row.reproducible else memory.experience.order
        draft = tree(order[: row.budget.nodes], guesses)
        memory.sent, memory.guesses = draft.tokens, guesses
        return draft


def build(context: BuildContext) -> MedusaDrafter:
    return MedusaDrafter.load(
        context.source, context.target, quantize=context.quantize, name=context.name, budget=context.budget
    )


class _Memory:
    """One request: whose experience it shares, and what it was last given."""

    __slots__ = ("experience", "guesses", "sent")

    def __init__(self) -> None:
        self.experience: Experience | None = None
        self.sent: tuple[int, ...] = ()
        self.guesses: list[list[int]] = []


def tree(order: Sequence[Place], guesses: Sequence[Sequence[int]]) -> Draft:
    """The draft that takes these places among the guesses [head][rank]."""
    return Draft(tuple(guesses[place.head][place.rank] for place in order), tuple(place.parent for place in order))


def _recorded(folder: Path, heads: MedusaHeads) -> Accuracies | None:
    """The accuracies in the config's field `headstart`, where there are any."""
    field = object_in(folder / "config.json").get("headstart")
    table = field.get("accuracies") if isinstance(field, dict) else None
    if table is None:
        return None
    rows = table if isinstance(table, list) else []
    widths = {len(row) if isinstance(row, list) else 0 for row in rows}
    numbers = [number for row in rows if isinstance(row, list) for number in row]
    if (
        len(rows) != heads.count
        or not all(0 < width <= heads.vocab_size for width in widths)
        or not all(isinstance(number, int | float) and 0 <= number <= 1 for number in numbers)
    ):
        raise UnsupportedModel(
            f"{folder}: the recorded accuracies do not belong to {heads.count} heads",
            hint='remove "headstart" from its config.json; accuracies are then learned from use',
        )
    return rows
