"""Recurrent layers in tensor operations: what `recipes/mixers.py` says, along the walks of `States`, in float32.

A row's result is a function of its path: each application takes one row's numbers and one state, in one order. Rows run
one after the other, so this is the plain twin of the row kernels and what runs where they do not, not a fast scan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.model.decoders import parts
from headstart.model.decoders.linears import PackedLinear, PlainLinear
from headstart.model.decoders.operations import normed
from headstart.model.recipes.mixers import ChannelRule, DeltaRule, Mamba2, Recurrent, ShortConv
from headstart.model.states import States
from headstart.model.walks import Walk


class IndexedWalk:
    """A walk with its numbers as tensors, which all layers share."""

    def __init__(self, walk: Walk, device: torch.device) -> None:
        self.walk = walk
        self.rows = slice(*walk.rows)
        self.logged = torch.tensor(walk.logged, dtype=torch.long, device=device)
        self.inputs = torch.tensor(walk.inputs, dtype=torch.long, device=device).view(len(walk.depths), -1)
        """[visits, taps]: what the convolution of each visit sums, its own input last."""
        of = {number: visit for visit, number in enumerate(self.inputs[:, -1].tolist())}
        self.visit_of = torch.tensor([of[row] for row in range(walk.fed)], device=device)
        """[rows]: the visit that has each row's output."""
        self.written = slice(walk.written.start, walk.written.stop)
        self.places = torch.tensor(walk.places, dtype=torch.long, device=device)


class TensorMixer(ABC):
    """A recurrent layer of a recipe. Subclasses say what is made of the convolution's outputs."""

    def __init__(self, owner: Any, mixer: Recurrent, linear: type[PackedLinear] | type[PlainLinear]) -> None:
        self._taps, self._bias = parts.convolution(owner, mixer)
        self._inputs = linear(parts.mixer_inputs(owner, mixer))
        self._mixer = mixer

    def __call__(self, z: Tensor, states: States, layer: int, walks: Sequence[IndexedWalk]) -> Tensor:
        """z [M, d] in any dtype; returns what goes into the output layer [M, width], in the same."""
        projected = self._projected(z).float()
        fed, gates = self._fed(projected)
        found = torch.cat([self._walk(fed, gates, states, layer, walk) for walk in walks])
        return self._out(found, projected).to(z.dtype)

    def _projected(self, z: Tensor) -> Tensor:
        """The outputs of the input layers, in the order that the recipe says."""
        found: Tensor = self._inputs(z)
        return found

    def _walk(self, fed: Tensor, gates: Tensor, states: States, layer: int, indexed: IndexedWalk) -> Tensor:
        walk, channels = indexed.walk, self._mixer.channels
        log, kept, planes = states.log[layer][walk.slot], states.kept[layer], states.planes[layer]
        logged = log[indexed.logged]
        if walk.source is None:
            before, state = kept.new_zeros(kept.shape[-2:]), planes.new_zeros(planes.shape[-1])
        else:
            before, state = kept[walk.source, walk.slot], planes[walk.source, walk.slot]
        pool = torch.cat((fed[indexed.rows], logged[:, :channels], before))
        all_gates = torch.cat((gates[indexed.rows], logged[:, channels:]))
        summed = self._taps[0] * pool[indexed.inputs[:, 0]]
        for tap in range(1, len(self._taps)):
            summed = summed + self._taps[tap] * pool[indexed.inputs[:, tap]]
        if self._bias is not None:
            summed = summed + self._bias
        stored, outputs = self._recur(summed, all_gates[indexed.inputs[:, -1]], state, walk)
        for store, plane in zip(walk.stores, stored, strict=True):
            planes[store.plane, walk.slot] = plane
            kept[store.plane, walk.slot] = pool[list(store.before)]
        log[indexed.places] = torch.cat((pool[indexed.written], all_gates[indexed.written]), -1)
        return outputs[indexed.visit_of]

    @abstractmethod
    def _fed(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        """The convolution's inputs [M, channels] and the gates [M, gates] of rows [M, outputs]."""

    @abstractmethod
    def _recur(self, summed: Tensor, gates: Tensor, state: Tensor, walk: Walk) -> tuple[list[Tensor], Tensor]:
        """summed [visits, channels], gates [visits, gates]: of each visit; state [numbers]: of the source. Returns the
        states of the walk's stores and the outputs [visits, width]."""

    @abstractmethod
    def _out(self, outputs: Tensor, projected: Tensor) -> Tensor:
        """What goes into the output layer [M, width]."""

    def weights(self) -> Iterable[Tensor]:
        yield from self._inputs.weights()
        yield self._taps
        if self._bias is not None:
            yield self._bias


class TensorShortConv(TensorMixer):
    def _fed(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        b, _, x = projected.chunk(3, -1)
        return b * x, projected[:, :0]

    def _recur(self, summed: Tensor, gates: Tensor, state: Tensor, walk: Walk) -> tuple[list[Tensor], Tensor]:  # noqa: ARG002
        return [state] * len(walk.stores), summed

    def _out(self, outputs: Tensor, projected: Tensor) -> Tensor:
        return projected.chunk(3, -1)[1] * outputs


class _TensorRecurrence(TensorMixer):
    """A state behind the convolution."""

    def __init__(self, owner: Any, mixer: DeltaRule | Mamba2, linear: type[PackedLinear] | type[PlainLinear]) -> None:
        super().__init__(owner, mixer, linear)
        self._decay = -parts.of_heads(owner, mixer.decay, mixer.heads).exp()
        self._step = parts.of_heads(owner, mixer.bias, mixer.steps)
        self._gain, self._eps = parts.recurrent_gain(owner, mixer), mixer.norm.eps if mixer.norm else 0.0

    def _through(self, walk: Walk, state: Tensor, step: Any) -> tuple[list[Tensor], list[Tensor]]:
        """step(visit's number, state) gives the next state and the visit's output."""
        by_depth, stored, outputs, stores = {0: state}, [], [], {store.visits for store in walk.stores}
        for number, depth in enumerate(walk.depths):
            by_depth[depth], output = step(number, by_depth[max(0, depth - 1)])
            outputs.append(output)
            if number + 1 in stores:
                stored.append(by_depth[0].reshape(-1))
        return stored, outputs

    def weights(self) -> Iterable[Tensor]:
        yield from super().weights()
        yield from (each for each in (self._decay, self._step, self._gain) if each is not None)


class TensorDeltaRule(_TensorRecurrence):
    _mixer: DeltaRule

    def _fed(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        mixer = self._mixer
        return projected[:, : mixer.channels], projected[:, -mixer.gates :]

    def _recur(self, summed: Tensor, gates: Tensor, state: Tensor, walk: Walk) -> tuple[list[Tensor], Tensor]:
        mixer, mixed = self._mixer, F.silu(summed)
        keys = mixer.key_heads * mixer.key_dim
        q, k = (mixed[:, at : at + keys].view(-1, mixer.key_heads, mixer.key_dim) for at in (0, keys))
        v = mixed[:, 2 * keys :].view(-1, mixer.heads, mixer.value_dim)
        shared = mixer.heads // mixer.key_heads
        q, k = (_unit(x).repeat_interleave(shared, 1) for x in (q, k))
        q = q * mixer.key_dim**-0.5
        beta, kept = self._gates(gates)

        def step(i: int, s: Tensor) -> tuple[Tensor, Tensor]:
            s = s * kept[i, :, :, None]
            delta = (v[i] - torch.bmm(k[i, :, None], s)[:, 0]) * beta[i, :, None]
            s = s + k[i, :, :, None] * delta[:, None]
            return s, torch.bmm(q[i, :, None], s)[:, 0]

        stored, outputs = self._through(walk, state.view(mixer.heads, mixer.key_dim, mixer.value_dim), step)
        return stored, torch.stack(outputs)

    def _gates(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        """How much is written [visits, heads], and how much stays [visits, heads, 1 or channels of a key]."""
        b, a = gates.chunk(2, -1)
        kept = (self._decay * F.softplus(a + self._step)).exp()
        return b.sigmoid() * self._mixer.beta_factor, kept[..., None]

    def _out(self, outputs: Tensor, projected: Tensor) -> Tensor:
        mixer = self._mixer
        z = projected[:, mixer.channels : mixer.channels + mixer.width].view(outputs.shape)
        return (normed(outputs, self._gain, None, self._eps, centred=False) * self._activated(z)).flatten(1)

    def _activated(self, z: Tensor) -> Tensor:
        return F.silu(z)


class TensorChannelRule(TensorDeltaRule):
    _mixer: ChannelRule

    def __init__(self, owner: Any, mixer: ChannelRule, linear: type[PackedLinear] | type[PlainLinear]) -> None:
        super().__init__(owner, mixer, linear)
        self._decays, self._gate = map(linear, parts.inner(owner, mixer))

    def _projected(self, z: Tensor) -> Tensor:
        """[q k v | z | a | b]."""
        mixer = self._mixer
        widths = [mixer.channels, mixer.rank, mixer.rank, mixer.heads]
        mixed, f, g, b = torch.split(self._inputs(z), widths, -1)
        return torch.cat((mixed, self._gate(g), self._decays(f), b), -1)

    def _gates(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        mixer = self._mixer
        a, b = gates[:, : mixer.steps], gates[:, mixer.steps :]
        steps = F.softplus(a + self._step).view(-1, mixer.heads, mixer.key_dim)
        return b.sigmoid() * mixer.beta_factor, (self._decay[:, None] * steps).exp()

    def _activated(self, z: Tensor) -> Tensor:
        return z.sigmoid()

    def weights(self) -> Iterable[Tensor]:
        yield from super().weights()
        yield from (*self._decays.weights(), *self._gate.weights())


class TensorMamba2(_TensorRecurrence):
    _mixer: Mamba2

    def __init__(self, owner: Any, mixer: Mamba2, linear: type[PackedLinear] | type[PlainLinear]) -> None:
        super().__init__(owner, mixer, linear)
        self._skip = parts.of_heads(owner, mixer.skip, mixer.heads)

    def _fed(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        mixer = self._mixer
        return projected[:, mixer.width : mixer.width + mixer.channels], projected[:, -mixer.gates :]

    def _recur(self, summed: Tensor, gates: Tensor, state: Tensor, walk: Walk) -> tuple[list[Tensor], Tensor]:
        mixer, mixed = self._mixer, F.silu(summed)
        x = mixed[:, : mixer.width].view(-1, mixer.heads, mixer.dim)
        group = mixer.groups * mixer.state
        b, c = (
            mixed[:, at : at + group]
            .view(-1, mixer.groups, mixer.state)
            .repeat_interleave(mixer.heads // mixer.groups, 1)
            for at in (mixer.width, mixer.width + group)
        )
        steps = F.softplus(gates * mixer.factors[-1] + self._step)
        kept = (steps * self._decay).exp()

        def step(i: int, s: Tensor) -> tuple[Tensor, Tensor]:
            s = s * kept[i, :, None, None] + (steps[i, :, None] * x[i])[:, :, None] * b[i, :, None]
            return s, torch.bmm(s, c[i, :, :, None])[..., 0] + self._skip[:, None] * x[i]

        stored, outputs = self._through(walk, state.view(mixer.heads, mixer.dim, mixer.state), step)
        return stored, torch.stack(outputs).flatten(1)

    def _out(self, outputs: Tensor, projected: Tensor) -> Tensor:
        mixer = self._mixer
        gate = F.silu(projected[:, : mixer.width] * mixer.factors[0])
        if self._gain is None:
            return outputs * gate
        by_group = (outputs if mixer.norm_first else outputs * gate).view(len(outputs), mixer.groups, -1)
        made = normed(by_group, self._gain.view(mixer.groups, -1), None, self._eps, centred=False).flatten(1)
        return made * gate if mixer.norm_first else made

    def weights(self) -> Iterable[Tensor]:
        yield from super().weights()
        yield self._skip


def tensor_mixer(owner: Any, mixer: Recurrent, linear: type[PackedLinear] | type[PlainLinear]) -> TensorMixer:
    """The mixer of a recipe, with the weights below `owner`."""
    if isinstance(mixer, ShortConv):
        return TensorShortConv(owner, mixer, linear)
    if isinstance(mixer, ChannelRule):
        return TensorChannelRule(owner, mixer, linear)
    if isinstance(mixer, DeltaRule):
        return TensorDeltaRule(owner, mixer, linear)
    return TensorMamba2(owner, mixer, linear)


def _unit(x: Tensor) -> Tensor:
    """Rows [.., d] of length 1."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
