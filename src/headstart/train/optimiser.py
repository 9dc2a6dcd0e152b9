"""Muon for the matrices inside the blocks, AdamW for everything else, with float32 masters under low-precision weights.

Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers") replaces a matrix's momentum by the nearest
semi-orthogonal matrix, found with five Newton-Schulz steps. Weights may live in bfloat16: each update is made on a
float32 master and then rounded into the weight, so that small updates are not lost.

torch.optim.Muon keeps no masters, and orthogonalises one matrix at a time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
BETAS = (0.9, 0.95)
ALIKE: Mapping[str, Tensor] = MappingProxyType({})
"""The lengths of inputs that are all about as long."""
QUINTIC = (3.4445, -4.7750, 2.0315)  # the coefficients of the paper: fast, and only roughly orthogonal


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """The semi-orthogonal factor of each matrix in a stack [n, rows, columns], approximately.

    In bfloat16 where it is multiplied natively; elsewhere it would take several times as long as float32.
    """
    a, b, c = QUINTIC
    tall = matrices.shape[-2] > matrices.shape[-1]
    native = matrices.device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()
    x = (matrices.mT if tall else matrices).to(torch.bfloat16 if native else torch.float32)
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


class Optimiser:
    """Updates named parameters in place. `rate` in [0, 1] is the schedule; the two learning rates are the peaks.

    lengths: of matrices that read inputs of very different lengths, the root mean square of each input [columns]. Such
    a matrix is updated as if its inputs had been divided by these and its columns multiplied: Muon's steps are as large
    in every column, and where a channel is a thousand times as long as others, its step would drown all the rest.

    State is a flat name -> tensor mapping (`tensors`, `load`), fit for safetensors.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        matrix_rate: float = 0.02,
        other_rate: float = 3e-3,
        lengths: Mapping[str, Tensor] = ALIKE,
    ) -> None:
        self.parameters = dict(parameters)
        self.lengths = lengths
        self.matrix_rate, self.other_rate = matrix_rate, other_rate
        self.steps = 0
        self.masters = {name: p.detach().float().clone() for name, p in self.parameters.items()}
        self.first = {name: torch.zeros_like(m) for name, m in self.masters.items()}
        inside = {n for n, p in self.parameters.items() if p.ndim == 2 and "embed" not in n and "lm_head" not in n}
        self.second = {name: torch.zeros_like(m) for name, m in self.masters.items() if name not in inside}
        self.shapes: dict[torch.Size, list[str]] = defaultdict(list)
        for name in sorted(inside):
            self.shapes[self.parameters[name].shape].append(name)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update from the parameters' gradients, which are then cleared."""
        self.steps += 1
        for names in self.shapes.values():
            self._muon(names, rate * self.matrix_rate)
        for name in self.second:
            self._adamw(name, rate * self.other_rate)
        for name, parameter in self.parameters.items():
            parameter.copy_(self.masters[name])
            parameter.grad = None

    def _gradient(self, name: str) -> Tensor:
        gradient = self.parameters[name].grad
        return torch.zeros_like(self.masters[name]) if gradient is None else gradient.float()

    def _muon(self, names: list[str], rate: float) -> None:
        """All matrices of one shape at once: Newton-Schulz on a stack costs far less than one by one."""
        directions = []
        for name in names:
            gradient = self._gradient(name)
            if name in self.lengths:
                gradient = gradient / self.lengths[name]
            self.first[name].lerp_(gradient, 1 - MOMENTUM)
            directions.append(gradient.lerp(self.first[name], MOMENTUM))  # Nesterov
        updates = orthogonalise(torch.stack(directions)).float()
        rows, columns = updates.shape[-2:]
        scale = max(1.0, rows / columns) ** 0.5
        for name, update in zip(names, updates, strict=True):
            if name in self.lengths:
                update = update / self.lengths[name]
            self.masters[name].add_(update, alpha=-rate * scale)

    def _adamw(self, name: str, rate: float) -> None:
        """Kingma and Ba 2015, with bias correction and without weight decay."""
        gradient, (b1, b2) = self._gradient(name), BETAS
        first = self.first[name].lerp_(gradient, 1 - b1)
        second = self.second[name].mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        scale = second.sqrt().mul_((1 - b2**self.steps) ** -0.5).add_(1e-8)
        self.masters[name].addcdiv_(first, scale, value=-rate / (1 - b1**self.steps))

    def tensors(self) -> dict[str, Tensor]:
        """The whole state but the weights themselves, which are the masters rounded."""
        kinds = (("master", self.masters), ("first", self.first), ("second", self.second))
        state = {f"{kind}.{name}": tensor for kind, tensors in kinds for name, tensor in tensors.items()}
        return {**state, "steps": torch.tensor(self.steps)}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave, and the parameters with it."""
        self.steps = int(state["steps"])
        for kind, tensors in (("master", self.masters), ("first", self.first), ("second", self.second)):
            for name, tensor in tensors.items():
                tensor.copy_(state[f"{kind}.{name}"])
        for name, parameter in self.parameters.items():
            parameter.copy_(self.masters[name])
