"""The weights of a transformers model, found by the names of its recipe and laid out as decoders want them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import UnsupportedModel
from headstart.model.cache import LayerShape
from headstart.model.decoders.grouped import GroupedLinear, joined_grouped
from headstart.model.decoders.linears import joined, lies_by_inputs, linear_of
from headstart.model.memory import release_copied
from headstart.model.planes import StateShape
from headstart.model.reading import first_line
from headstart.model.recipes import recipe_of
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.mixers import ChannelRule, DeltaRule, Mamba2, Recurrent
from headstart.model.recipes.recipe import Attention, Layer, Mlp, Norm, Recipe, Rope

_COMPARE = "compare config.json with the original's"


def part(owner: Any, name: str) -> Any:
    """The module or tensor below a module, by its path."""
    for each in name.split("."):
        owner = getattr(owner, each)
    return owner


def recipe_for(model: Any) -> Recipe:
    """The recipe of a transformers model whose modules are what it says.

    They need not be: the class of a model may pass over a field of its config that its recipe was made by.

    Raises:
        UnsupportedModel: there is no recipe, or modules have other sizes or turn other numbers. The model is as it was.
    """
    recipe = recipe_of(model.config)
    try:
        for rope in {attention.rope for attention in recipe.attentions}:
            if rope is not None:
                angles(model, recipe, rope, 1, model.device)
        for owner, layer in zip(part(model, recipe.stack), recipe.layers, strict=True):
            _check_modules(owner, layer)
    except (AttributeError, ValueError) as error:
        raise UnsupportedModel(
            f"the modules of this {model.config.model_type} are not those of its config: {first_line(error)}",
            hint=_COMPARE,
        ) from error
    return recipe


def _check_modules(owner: Any, layer: Layer) -> None:
    """Raise `UnsupportedModel` where modules of a layer have other sizes than its recipe says."""
    attention, recurrence = layer.attends, layer.recurs
    joined = [] if layer.dense is None else [_gate_up(layer.dense)]
    if layer.experts is not None:
        from headstart.model.decoders.experts import check_experts  # most models have none

        check_experts(owner, layer.experts)
    if attention is not None:
        joined += [(attention.outputs, attention.qkv), *((wanted, (name,)) for name, wanted in attention.inner.items())]
        for norm in (attention.q_norm, attention.k_norm):
            if norm is not None:
                head_gain(owner, norm, attention)
    if recurrence is not None:
        joined.append((recurrence.outputs, recurrence.inputs))
    for wanted, names in joined:
        check_outputs(sum(_outputs(part(owner, name)) for name in names), wanted, names)


def find_recipe_for(model: Any) -> Recipe | None:
    """The same, or None where there is none."""
    try:
        return recipe_for(model)
    except UnsupportedModel:
        return None


def tree(parts: Mapping[str, Any]) -> Any:
    """An object with these parts below it, by their paths: what stands for a module where there are tensors alone."""
    root = SimpleNamespace()
    for name, each in parts.items():
        *owners, last = name.split(".")
        owner = root
        for step in owners:
            if not hasattr(owner, step):
                setattr(owner, step, SimpleNamespace())
            owner = getattr(owner, step)
        setattr(owner, last, each)
    return root


def owner_of(layer: Layer, find: Callable[[str], Tensor | None]) -> Any:
    """What holds the weights of a layer with attention. find: a tensor, by its name below the layer."""
    attention, mlp, experts = layer.attention, layer.dense, layer.experts
    held: dict[str, Any] = {
        norm.name: SimpleNamespace(weight=find(f"{norm.name}.weight"))
        for norm in (
            layer.attention_in, layer.attention_out, layer.mlp_in, layer.mlp_out, attention.q_norm, attention.k_norm
        )
        if norm is not None and norm.name is not None
    }  # fmt: skip
    for name in (*attention.qkv, *attention.inner, attention.out, *((*mlp.gate_up, mlp.down) if mlp else ())):
        weight = find(f"{name}.weight")
        assert weight is not None, "checked when it was read"
        held[name] = linear_of(weight, find(f"{name}.bias"))
    parameters: tuple[str | None, ...] = ()
    if experts is not None:
        router = experts.router
        parameters = (*experts.parameters, router.weight, router.choice_bias, experts.shared_gate)
    held |= {name: find(name) for name in (*parameters, layer.factor) if name is not None}
    return tree(held)


def gain_of(owner: Any, norm: Norm) -> Tensor | None:
    """A norm's gain [d], or [heads, dim], in float32, with what is added to it; None where it has no weights."""
    if norm.name is None:
        return None
    module = part(owner, norm.name)
    if isinstance(module, nn.ModuleList):  # a norm for each head: StableLM
        weight: Tensor | None = torch.stack([part(each, "weight") for each in module])
    else:
        weight = module.weight
    if weight is None:
        return None
    return weight.detach().float() + norm.offset if norm.wide_gain else (weight.detach() + norm.offset).float()


def bias_of(owner: Any, norm: Norm) -> Tensor | None:
    """A norm's bias [d] in float32, or None."""
    found = None if norm.name is None else getattr(part(owner, norm.name), "bias", None)
    return None if found is None else found.detach().float()


def side_by_side(linears: Sequence[nn.Module]) -> Any:
    """One layer that computes several of the same input."""
    if len(linears) == 1:
        return plain(linears[0])
    grouped = [linear for linear in linears if isinstance(linear, GroupedLinear)]
    if len(grouped) == len(linears):
        return joined_grouped(grouped)
    return joined([plain(linear) for linear in linears])


def plain(linear: Any) -> Any:
    """A linear layer as `nn.Linear` has it, or a grouped one; GPT-2's keep their matrices the other way round."""
    if lies_by_inputs(linear):
        return linear_of(linear.weight.detach().T.contiguous(), linear.bias.detach())
    return linear


def queries_keys_values(owner: Any, attention: Attention) -> Any:
    """One layer that computes queries, keys and values, its outputs in this order, and the gate of queries after them.

    Numbers that turn in pairs are put so that each turns with the one half of a head further on, as decoders do it.
    """
    linear = side_by_side([part(owner, name) for name in attention.qkv])
    check_outputs(linear.out_features, attention.outputs, attention.qkv)
    order = _order(attention, linear.out_features)
    return linear if order is None else reordered(linear, order)


def head_gain(owner: Any, norm: Norm, attention: Attention) -> Tensor | None:
    """The gain of a norm of queries or keys, in the order of `queries_keys_values`."""
    gain, order = gain_of(owner, norm), _turned(attention)
    if gain is not None and gain.numel() not in attention.gains:
        raise UnsupportedModel(
            f"{norm.name} has {gain.numel()} numbers, which do not fit heads of {attention.dim} by the config",
            hint=_COMPARE,
        )
    if gain is None or order is None:
        return gain
    heads = torch.arange(gain.numel()).view(-1, attention.dim)  # one head, or all of them
    return gain.reshape(-1)[heads[:, order].reshape(-1)].reshape(gain.shape)


def _turned(attention: Attention) -> Tensor | None:
    """The order of a head's numbers in which pairs lie a half apart; None where they do already."""
    return None if isinstance(attention, Latent) else halves_of_pairs(attention.rope, attention.dim)


def halves_of_pairs(rope: Rope | None, dim: int) -> Tensor | None:
    """The same of `dim` numbers, the first of which turn."""
    if rope is None or not rope.pairs:
        return None
    order = torch.arange(dim)
    order[: rope.rotary] = order[: rope.rotary].view(-1, 2).T.reshape(-1)
    return order


def _order(attention: Attention, outputs: int) -> Tensor | None:
    """Which output of the stored layer each output of ours is; None for the same."""
    if isinstance(attention, Latent):
        return _latent_order(attention)
    dim, turned = attention.dim, _turned(attention)
    if attention.order == "parts" and turned is None and not attention.gated:
        return None
    by_head = attention.heads if attention.gate_by_head else 0
    rows, group = torch.arange(outputs - by_head).view(-1, dim), attention.heads // attention.kv_heads
    if by_head:  # as many numbers for each head as it has, all the same
        rows = torch.cat([rows, torch.arange(outputs - by_head, outputs)[:, None].expand(-1, dim)])
    elif attention.gated:  # a head's queries and its gate lie beside each other
        queries = rows[: 2 * attention.heads]
        rows = torch.cat([queries[::2], rows[2 * attention.heads :], queries[1::2]])
    if attention.order != "parts":
        each = rows.view(-1, (group if attention.order == "groups" else 1) + 2, dim)
        rows = torch.cat([each[:, :-2].reshape(-1, dim), each[:, -2], each[:, -1]])
    if turned is not None:
        turning = attention.heads + (attention.kv_heads if attention.keys_of is None else 0)
        rows = torch.cat([rows[:turning][:, turned], rows[turning:]])
    return rows.reshape(-1)


def _latent_order(latent: Latent) -> Tensor | None:
    turned = halves_of_pairs(latent.rope, latent.turning)
    if turned is None:
        return None
    rows = torch.arange(latent.outputs)
    queries, row, key = torch.split(rows, [latent.outputs - latent.dim, latent.rank, latent.turning])
    if latent.q_rank is None:
        queries = query_order(latent)
    return torch.cat((queries, row, key[turned]))


def query_order(latent: Latent) -> Tensor:
    """Which output of the layer that makes its queries each number of them is."""
    turned = halves_of_pairs(latent.rope, latent.turning)
    rows = torch.arange(latent.query_outputs).view(latent.heads, -1)
    nope, turning = torch.split(rows, [latent.nope, latent.turning], 1)
    return torch.cat((nope, turning if turned is None else turning[:, turned]), 1).reshape(-1)


def reordered(linear: Any, order: Tensor) -> Any:
    """A layer whose outputs are those of another one in this order."""
    if isinstance(linear, GroupedLinear):
        bias = None if linear.bias is None else linear.bias[order]
        return GroupedLinear(linear.weights.read(order.numpy()), bias)
    bias = None if linear.bias is None else linear.bias.detach()[order]
    return linear_of(linear.weight.detach()[order], bias)


def mixer_inputs(owner: Any, mixer: Recurrent) -> Any:
    """One layer that computes what a recurrent layer reads, in the order that its class says."""
    linear = side_by_side([part(owner, name) for name in mixer.inputs])
    check_outputs(linear.out_features, mixer.outputs, mixer.inputs)
    if isinstance(mixer, DeltaRule) and mixer.by_key_head:
        return reordered(linear, _by_part(mixer))
    return linear


def _by_part(mixer: DeltaRule) -> Tensor:
    """Which output of the stored layers, which lie by key heads, each output of ours is."""
    heads, each = mixer.key_heads, mixer.heads // mixer.key_heads
    sizes = (mixer.key_dim, mixer.key_dim, each * mixer.value_dim, each * mixer.value_dim)
    wide = torch.split(torch.arange(heads * sum(sizes)).view(heads, -1), list(sizes), 1)
    gates = heads * sum(sizes) + torch.arange(2 * mixer.heads).view(heads, 2, each)
    return torch.cat([rows.reshape(-1) for rows in (*wide, gates[:, 0], gates[:, 1])])


def convolution(owner: Any, mixer: Recurrent) -> tuple[Tensor, Tensor | None]:
    """A recurrent layer's taps [taps, channels], the row's own last, and bias [channels], in float32. Factors of the
    inputs are in the taps."""
    conv = part(owner, mixer.conv)
    taps = conv.weight.detach().float()[:, 0].T.contiguous()
    check_shape(mixer.conv, taps.shape, (mixer.taps, mixer.channels))
    if isinstance(mixer, Mamba2):
        group = mixer.groups * mixer.state
        widths = torch.tensor((mixer.width, group, group))
        taps = taps * torch.tensor(mixer.factors[1:4]).repeat_interleave(widths).to(taps.device)
    return taps, None if conv.bias is None else conv.bias.detach().float()


def inner(owner: Any, mixer: ChannelRule) -> tuple[Any, Any]:
    """The layers that make decays and gates of what is of low rank."""
    for name, outputs in mixer.inner.items():
        check_outputs(part(owner, name).out_features, outputs, (name,))
    return part(owner, mixer.decays), part(owner, mixer.gate)


def of_heads(owner: Any, name: str, heads: int) -> Tensor:
    """A recurrent layer's parameter with a number for each head, or more, in float32."""
    found: Tensor = part(owner, name).detach().float()
    found = found.reshape(-1) if found.shape == (1, 1, heads, 1) else found  # Kimi Linear
    check_shape(name, found.shape, (heads,))
    return found


def recurrent_gain(owner: Any, mixer: DeltaRule | Mamba2) -> Tensor | None:
    """Of the norm of its output: of one head, or of all groups; None without a norm."""
    if mixer.norm is None:
        return None
    gain = gain_of(owner, mixer.norm)
    assert gain is not None, "the norm of a recurrence has a gain"
    wanted = mixer.value_dim if isinstance(mixer, DeltaRule) else mixer.width
    check_shape(str(mixer.norm.name), gain.shape, (wanted,))
    return gain


def check_shape(name: str, found: Sequence[int], wanted: Sequence[int]) -> None:
    """Raise `UnsupportedModel` where a parameter has another shape than its config says."""
    if tuple(found) != tuple(wanted):
        raise UnsupportedModel(
            f"{name} is {list(found)}, and by the config {list(wanted)}", hint="compare config.json with the original's"
        )


def gate_up(owner: Any, mlp: Mlp) -> Any:
    """One layer that computes gate and up, or `up` alone."""
    linear = side_by_side([part(owner, name) for name in mlp.gate_up])
    check_outputs(linear.out_features, *_gate_up(mlp))
    return linear


def _gate_up(mlp: Mlp) -> tuple[int, Sequence[str]]:
    return mlp.width * (2 if mlp.gated else 1), mlp.gate_up


def _outputs(linear: Any) -> int:
    return int(linear.nf if lies_by_inputs(linear) else linear.out_features)


def shape_of(owner: Any, names: Sequence[str]) -> tuple[int, int]:
    """Inputs and outputs of the layer that computes several linear layers of the same input."""
    linears = [part(owner, name) for name in names]
    first = linears[0]
    return int(first.nx if lies_by_inputs(first) else first.in_features), sum(map(_outputs, linears))


def check_outputs(found: int, wanted: int, names: Sequence[str]) -> None:
    """Kernels would read what is not there."""
    if found != wanted:
        raise UnsupportedModel(f"{' and '.join(names)} have {found} outputs, and by the config {wanted}", hint=_COMPARE)


def angles(
    model: Any, recipe: Recipe, rope: Rope, length: int, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """Cosine and sine [length, rotary / 2] in float32 of each angle, from the model's rotary module."""
    module = rope.module or recipe.rotary
    assert module is not None, "a recipe with rotation names its module"
    cos, sin = rotation(
        part(model, module), length, device, table=rope.table, pairs=rope.table_pairs, once=rope.table_once
    )
    if 2 * cos.shape[-1] != rope.rotary:
        raise UnsupportedModel(
            f"{2 * cos.shape[-1]} numbers of a head turn, and by the config {rope.rotary}",
            hint=_COMPARE,
        )
    return cos, sin


def rotation(
    rotary: Any,
    length: int,
    device: torch.device | None = None,
    *,
    table: str | None = None,
    pairs: bool = False,
    once: bool = False,
) -> tuple[Tensor, Tensor]:
    """Cosine and sine [length, dim / 2] in float32, of a rotary module of transformers. table, pairs, once: see
    `Rope`."""
    given = (torch.empty(1, device=device), torch.arange(length, device=device)[None])
    found = rotary(*given) if table is None else rotary(*given, table)
    if isinstance(found, Tensor):  # complex numbers, one for each angle: DeepSeek V2
        return found.real[0].float().contiguous(), found.imag[0].float().contiguous()
    cos, sin = found
    half = slice(None, None, 2) if pairs else slice(None) if once else slice(cos.shape[-1] // 2)
    return cos[0, :, half].float().contiguous(), sin[0, :, half].float().contiguous()


def query_factors(attention: Attention, length: int) -> Tensor | None:
    """What queries at each position [length] are multiplied by, or None."""
    if not attention.query_beta:
        return None
    return 1 + attention.query_beta * torch.log1p(torch.floor(torch.arange(length) / attention.query_origin))


def xielu_numbers(module: Any) -> Tensor:
    """The numbers of an xIELU activation [4], in float32: the factors of both sides and of x, and the largest exponent.
    Source: arXiv:2411.13010."""
    beta, eps = module.beta.float(), module.eps.float()
    sides = (F.softplus(each.detach().float()).reshape(()) for each in (module.alpha_p, module.alpha_n))
    positive, negative = sides
    return torch.stack((positive, beta + negative, beta, eps))


def shapes(recipe: Recipe) -> dict[int, LayerShape]:
    """What each layer that has keys and values of its own stores."""
    return {i: LayerShape(*each.kept) for i, each in recipe.stored.items()}


def states(recipe: Recipe) -> dict[int, StateShape]:
    """What each recurrent layer keeps of a text."""
    return {i: StateShape(each.channels, each.taps, each.gates, each.numbers) for i, each in recipe.recurrent.items()}


def embedding_factor(recipe: Recipe, dtype: torch.dtype) -> float:
    """What embeddings of this dtype are multiplied by."""
    return factor(recipe.embedding_factor, dtype, rounded=recipe.embedding_factor_rounded)


def factor(value: float, dtype: torch.dtype, *, rounded: bool) -> float:
    """A factor of rows of this dtype, rounded to it if so."""
    return float(torch.tensor(value, dtype=dtype)) if rounded else value


def release(owner: Any, layer: Layer, files: Sequence[tuple[int, int]] = ()) -> None:
    """Drop the matrices of a layer: their copies live elsewhere now, and two would not fit. files: see
    `release_linears`."""
    release_linears(owner, layer.linears, files)
    for name in () if layer.experts is None else layer.experts.parameters:
        path, _, last = name.rpartition(".")
        delattr(part(owner, path) if path else owner, last)


def release_linears(owner: Any, names: Sequence[str], files: Sequence[tuple[int, int]] = ()) -> None:
    """The same of linear layers below a module. files: mappings whose pages go with them, see `mapped_checkpoints`."""
    for name in names:
        path, _, last = name.rpartition(".")
        holder = part(owner, path) if path else owner
        if files and isinstance(linear := getattr(holder, last), nn.Linear):
            release_copied(linear.weight, files)
        setattr(holder, last, nn.Identity())
