"""Early exit through a trained exit: the target's first layers draft, through a norm and a map that learnt to.

As in early exit no second model is run and no second cache kept: keys and values are the target's own. The way out is
the exit's (`headstart train exit`): its gain, its map, and the target's output matrix, all of it or the frequent tokens
alone. Beginning as the target's own way out, it can only have become better at guessing what the target will say.

Sources: LayerSkip (arXiv:2404.16710) for early exit; a linear map between layers' states: Tuned Lens (2303.08112).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from headstart.drafters import BuildContext, Weights
from headstart.drafters.growing.first_layers import FirstLayersAhead, FirstLayersDrafter, check_exit, placed
from headstart.drafters.growing.grow import Residual
from headstart.model.cache import Slots
from headstart.model.heads.borrowed import stored_output
from headstart.model.heads.exit import Exit, read
from headstart.model.heads.exit import is_exit as recognises
from headstart.model.loading import fetch
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import TreeKind

__all__ = ["WEIGHTS", "TrainedExitDrafter", "build", "recognises"]

WEIGHTS: Weights = "head"


class TrainedExitDrafter(FirstLayersDrafter):
    """Chains drawn from the target's first layers and a trained exit, or trees.

    Args:
        exit_: of the checkpoint.
        matrix: the target's output matrix [V, d].
        budget: nodes where the user chooses no number; None is a chain of 4, or a tree of 16.
        quantize: of map and output matrix: None for the target's numbers, "int8", or "auto" for int8 where the row
            kernels run it.
        tree, width, depth, residual: as of a draft model.
    """

    def __init__(
        self,
        exit_: Exit,
        matrix: Tensor,
        *,
        name: str = "exit",
        budget: int | None = None,
        quantize: str | None = "auto",
        tree: TreeKind = "none",
        width: int = 8,
        depth: int | None = None,
        residual: Residual | None = None,
    ) -> None:
        super().__init__(budget=budget, tree=tree, width=width, depth=depth, residual=residual)
        self.name = name
        self.layer = exit_.layers
        self._exit, self._matrix, self._quantize = exit_, matrix, quantize
        self._first: ModelRunner | None = None
        self._vocab_size = len(matrix)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        runner: ModelRunner,
        *,
        target_folder: str | Path,
        name: str = "exit",
        budget: int | None = None,
        quantize: str | None = "auto",
        tree: TreeKind = "none",
        residual: Residual | None = None,
    ) -> TrainedExitDrafter:
        """Read a checkpoint for this target. target_folder: where its safetensors are, if its output matrix is not its
        embedding.

        Raises:
            ModelNotFound, PickleCheckpoint, UnsupportedModel: see `headstart.model.heads.exit.read`.
        """
        text = runner.config.get_text_config()
        found = read(folder, layers=runner.layers, width=int(text.hidden_size), vocab_size=runner.vocab_size)
        matrix = getattr(runner.model.get_input_embeddings(), "weight", None) if text.tie_word_embeddings else None
        if matrix is None:
            matrix = stored_output(fetch(str(target_folder)), runner.config)
        matrix = matrix.detach().to(runner.device, runner.dtype)
        return cls(found, matrix, name=name, budget=budget, quantize=quantize, tree=tree, residual=residual)

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        check_exit(target, self.layer)
        self._cache = cache
        self._first = target.first_layers(
            self.layer, self._exit.gain, self._exit.output(self._matrix), quantize=self._quantize
        )

    def weights(self) -> Iterable[Tensor]:
        return () if self._first is None else self._first.decoder_weights()

    def logits(self, segments: Sequence[Segment], cache: Slots) -> Tensor:
        assert self._first is not None, "a drafter is attached before it drafts"
        logits = self._first.forward(segments, cache).logits
        ids = self._exit.token_ids
        if ids is None:
            return logits
        wide = logits.new_full((len(logits), self._vocab_size), -math.inf)
        return wide.index_copy_(1, ids.to(logits.device), logits)


def build(context: BuildContext) -> TrainedExitDrafter | FirstLayersAhead:
    made = TrainedExitDrafter.load(
        context.source,
        context.target,
        target_folder=context.target_source,
        name=context.name,
        quantize=context.quantize,
        budget=context.budget,
        tree=context.tree or "none",
        residual=context.residual,
    )
    return placed(made, context)
