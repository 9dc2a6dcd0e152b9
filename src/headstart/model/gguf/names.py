"""What a file calls the weights of a model: by their roles in its recipe, which transformers names by family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headstart.model.gguf.architectures import ARCHITECTURES, Architecture
from headstart.model.gguf.files import GgufFile
from headstart.model.recipes import recipe_of
from headstart.model.recipes.recipe import Layer, Norm, Recipe


class Names:
    """The names of a file's tensors, by those of the parameters of transformers' model."""

    def __init__(self, recipe: Recipe, architecture: Architecture) -> None:
        self.recipe, self.architecture = recipe, architecture
        self._layers = {layer: _of_layer(layer, architecture.names) for _, layer in recipe.kinds}
        outer = {recipe.embedding: "token_embd", recipe.head: "output"}
        if recipe.places is not None:
            outer[recipe.places] = "position_embd"
        if recipe.final_norm is not None and recipe.final_norm.name is not None:
            outer[recipe.final_norm.name] = "output_norm"
        if (inputs := recipe.inputs) is not None:
            outer |= {inputs.table: "per_layer_token_embd", inputs.projection: "per_layer_model_proj"}
            if inputs.norm.name is not None:
                outer[inputs.norm.name] = "per_layer_proj_norm"
        self._outer = outer
        self._prefix = f"{recipe.stack}."

    @classmethod
    def of(cls, file: GgufFile, config: Any) -> Names:
        """Those of a file, for the model with this config.

        Raises:
            UnsupportedModel: the config has no recipe.
        """
        return cls(recipe_of(config), ARCHITECTURES[file.metadata.text("general.architecture")])

    def tensor(self, parameter: str) -> str:
        """What the file calls a parameter; "" for one that files have no tensor for."""
        index, inner = self._place(parameter)
        if index is None:
            module, _, kind = parameter.rpartition(".")
            return f"{self._outer[module]}.{kind}"
        names, layer = self._layers[self.recipe.layers[index]], self.recipe.layers[index]
        if inner == layer.attention.sinks:
            return f"blk.{index}.attn_sinks.weight"
        if inner == layer.factor:
            return f"blk.{index}.layer_output_scale.weight"
        module, _, kind = inner.rpartition(".")
        return "" if module == layer.mlp.numbers else f"blk.{index}.{names[module]}.{kind}"

    def matrices(self) -> Iterator[tuple[str, str]]:
        """The modules that hold matrices, each with what the file calls its weight."""
        inputs = self.recipe.inputs
        for module in {self.recipe.embedding, self.recipe.head}:
            yield module, self.tensor(f"{module}.weight")
        for module in () if inputs is None else (inputs.table, inputs.projection):
            yield module, self.tensor(f"{module}.weight")
        for index, layer in enumerate(self.recipe.layers):
            for name in layer.linears:
                module = f"{self._prefix}{index}.{name}"
                yield module, self.tensor(f"{module}.weight")

    def together(self, module: str) -> list[str]:
        """The file's names of the matrices that are joined with this one, itself among them."""
        return [self.tensor(f"{each}.weight") for each in self.recipe.joined_with(module)]

    def added(self, parameter: str) -> float:
        """What files add to a norm's gain: what the model adds to it when it runs."""
        index, inner = self._place(parameter)
        module, _, kind = inner.rpartition(".")
        norms = [self.recipe.final_norm] if index is None else [norm for _, norm in _norms(self.recipe.layers[index])]
        found = [norm.offset for norm in norms if norm is not None and norm.name == module]
        return found[0] if found and kind == "weight" else 0.0

    def interleaved(self, parameter: str) -> int:
        """Heads of a parameter whose rows that turn together lie beside each other in the file, and half a head apart
        in transformers; 0 for any other."""
        index, inner = self._place(parameter)
        if index is None or not self.architecture.neighbours:
            return 0
        attention = self.recipe.layers[index].attention
        if len(attention.qkv) == 1 or (attention.rope is not None and attention.rope.pairs):
            return 0
        counts = dict(zip(attention.qkv, (attention.heads, attention.kv_heads), strict=False))
        return counts.get(inner.rpartition(".")[0], 0)

    def unused(self) -> set[str]:
        """Tensors that files may hold and no model reads: keys and values of layers that attend to those of another,
        which checkpoints of Gemma 4 have."""
        shared = [index for index, layer in enumerate(self.recipe.layers) if layer.attention.keys_of is not None]
        return {f"blk.{index}.{name}.weight" for index in shared for name in ("attn_k", "attn_v", "attn_k_norm")}

    def may_be_missing(self, parameter: str) -> bool:
        """Whether a file may leave this out, which is zero then: the bias of an attention's output."""
        index, inner = self._place(parameter)
        return index is not None and inner == f"{self.recipe.layers[index].attention.out}.bias"

    def _place(self, parameter: str) -> tuple[int | None, str]:
        """The number of a layer and a name below it; None and a name below the model outside of layers."""
        if not parameter.startswith(self._prefix):
            return None, parameter
        index, _, inner = parameter.removeprefix(self._prefix).partition(".")
        return int(index), inner


def _norms(layer: Layer) -> Iterator[tuple[str, Norm | None]]:
    attention = layer.attention
    yield from zip(
        ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm", "post_norm"),
        (
            layer.attention_in, layer.attention_out, layer.mlp_in, layer.mlp_out, attention.q_norm, attention.k_norm,
            layer.input and layer.input.norm,
        ),
        strict=True,
    )  # fmt: skip


def _of_layer(layer: Layer, called: Mapping[str, str]) -> dict[str, str]:
    """What a file calls the modules of a layer."""
    attention, mlp = layer.attention, layer.mlp
    apart = ("attn_q", "attn_k", "attn_v")
    joined = len(attention.qkv) == 1 and attention.keys_of is None
    found = {attention.out: "attn_output", mlp.down: "ffn_down"}
    found |= dict(zip(attention.qkv, ("attn_qkv",) if joined else apart, strict=False))
    found |= dict(zip(mlp.gate_up, ("ffn_gate", "ffn_up")[-len(mlp.gate_up) :], strict=True))
    if (own := layer.input) is not None:
        found |= {own.gate: "inp_gate", own.out: "proj"}
    for role, norm in _norms(layer):
        if norm is not None and norm.name is not None:
            found.setdefault(norm.name, called.get(role, role))  # a parallel layer has one norm for both
    return found
