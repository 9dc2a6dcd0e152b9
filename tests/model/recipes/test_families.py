"""Each family of models by its recipe: logits of transformers' own modules, the same bits in any company, the text of
transformers' `generate`; and each field of the recipe is needed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from support import quantised
from support.families import FAMILIES, PUBLISHED, TOKENS, VOCAB, config_of, own, random_model
from torch import Tensor, nn

import headstart as hs
from headstart.base.errors import UnsupportedModel
from headstart.drafters.ngram import NgramDrafter
from headstart.loading.assembly import assemble
from headstart.model import int4, native
from headstart.model.decoders.experts import chosen_by
from headstart.model.decoders.fused import FusedDecoder, not_run
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.decoders.lean import LeanDecoder, TensorNorm
from headstart.model.decoders.linears import can_quantize, linear_of
from headstart.model.decoders.parts import embedding_factor, factor, gain_of, part
from headstart.model.loading import adopt
from headstart.model.longrope import fix_rotation
from headstart.model.packed import Packed, Segment
from headstart.model.recipes import BUILDERS, Recipe, recipe_of
from headstart.model.recipes.experts import Router
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.mixers import Recurrent
from headstart.model.recipes.recipe import Attention, Layer, Norm, Rope
from headstart.model.runner import ModelRunner
from headstart.model.threads import use_threads
from headstart.types import Draft

MOST = {torch.float32: 5e-6, torch.bfloat16: 0.05}
"""The largest error of a logit that is rounding, relative to the spread of the logits."""
CLEAR = 1e-4
"""An error in float32 that no rounding makes."""
LENGTH = 128

UNDRIVEN = ("falcon", "qwen2_moe")
"""Families whose modules do not hand their attention over, or not their windows: they run by their recipe or not at
all."""


@cache
def recipe_for(name: str) -> Recipe:
    return recipe_of(config_of(name))


needs_kernels = pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
every_family = pytest.mark.parametrize("name", FAMILIES)
RECURRENT = [name for name in FAMILIES if recipe_for(name).recurrent]
ON_ROW_KERNELS = [name for name in FAMILIES if not not_run(recipe_for(name))]


def tokens(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist())


TEXT = tokens(TOKENS)


@cache
def _model(name: str, dtype: torch.dtype) -> Any:
    return random_model(config_of(name), dtype)


def model_of(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model of one's own: decoders take the weights out of it."""
    return own(_model(name, dtype))


@cache
def theirs(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """The logits [TOKENS, V] of transformers' modules, with their own attention."""
    return _model(name, dtype)(torch.tensor([TEXT]), use_cache=False).logits[0].float()


@cache
def runner_of(name: str, dtype: torch.dtype, **options: Any) -> ModelRunner:
    return ModelRunner(adopt(model_of(name, dtype)), max_length=LENGTH, **options)


def logits_of(runner: ModelRunner) -> Tensor:
    cache = runner.new_cache(1)
    return runner.forward([Segment(cache.acquire(), TEXT, judged=TOKENS)], cache).logits.float()


def error(mine: Tensor, want: Tensor) -> float:
    """The largest one, relative to the spread of the logits."""
    return float((mine - want).abs().max() / (want.max() - want.min()))


def error_of(name: str, dtype: torch.dtype, mine: Tensor, want: Tensor) -> float:
    """The same; in bf16, of the middle row for a mixture of experts: a row whose scores are nearly alike takes another
    expert by rounding, with transformers' own modules too, and is then far off."""
    if dtype == torch.float32 or not recipe_for(name).experts:
        return error(mine, want)
    rows = (mine - want).abs().amax(-1) / (want.max() - want.min())
    return float(rows.median())


@cache
def most(name: str, dtype: torch.dtype) -> float:
    """The largest error that is rounding. Where storing the weights in bf16 alone changes the logits by more (a decay
    near 1 amplifies it: a third of the spread for OLMo Hybrid), a quarter of that change."""
    if dtype == torch.float32:
        return MOST[dtype]
    return max(MOST[dtype], error_of(name, dtype, theirs(name, dtype), theirs(name)) / 4)


DTYPE_OF = {name: tuple(MOST)[place % 2] for place, name in enumerate(FAMILIES)}
"""One type for each family, in turns, where both would say much the same: every part of a recipe is in several."""


# -- what a model computes --------------------------------------------------------------------------------------------


def test_every_builder_is_tested() -> None:
    assert {config_of(name).model_type for name in FAMILIES} == set(BUILDERS)


def slow_unless(fast: bool) -> Any:
    """The marks of a case."""
    return () if fast else pytest.mark.slow


COMPUTED = [
    *(pytest.param(name, "fused", torch.float32) for name in ON_ROW_KERNELS),
    # tensor operations take turns with the kernels in the fast suite
    *(
        pytest.param(name, "fused", torch.bfloat16, marks=slow_unless(DTYPE_OF[name] == torch.bfloat16))
        for name in ON_ROW_KERNELS
    ),
    *(
        pytest.param(
            name, "lean", torch.bfloat16,
            marks=slow_unless(name not in ON_ROW_KERNELS or DTYPE_OF[name] == torch.float32),
        )
        for name in FAMILIES
    ),
    *(pytest.param(name, "modules", dtype) for name, dtype in DTYPE_OF.items()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "decoder", "dtype"), COMPUTED, ids=str)
def test_logits_are_those_of_transformers(name: str, decoder: Any, dtype: torch.dtype) -> None:
    """Beyond the window, and beyond the length that a scaled rotation comes from; recurrent layers of transformers by
    their chunk rule. What tensor operations make of float32 is in `test_each_field_of_its_recipe_is_needed`."""
    if decoder == "fused" and not native.available():
        pytest.skip("no row kernels on this machine")
    if decoder == "modules" and (name.startswith(UNDRIVEN) or name in RECURRENT):
        with pytest.raises(UnsupportedModel, match=r"through|decoder does not take this"):
            runner_of(name, dtype, decoder=decoder)
        return
    runner = runner_of(name, dtype) if decoder == "fused" else runner_of(name, dtype, decoder=decoder)
    assert runner.decoder == decoder
    assert error_of(name, dtype, logits_of(runner), theirs(name, dtype)) < most(name, dtype)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=slow_unless(dtype == DTYPE_OF[name]))
        for name in RECURRENT
        for dtype in MOST
    ],
    ids=str,
)  # fmt: skip
def test_logits_are_those_of_transformers_token_by_token(name: str, dtype: torch.dtype) -> None:
    """With transformers' cache, which runs recurrent layers by their recurrent rule, and with ours."""
    model, past, want = model_of(name, dtype), None, []
    for place, token in enumerate(TEXT):
        given = {"input_ids": torch.tensor([[token]]), "position_ids": torch.tensor([[place]])}
        out = model(**given, past_key_values=past, use_cache=True)
        past = out.past_key_values
        want.append(out.logits[0, -1].float())
    assert past.get_seq_length() == TOKENS
    mine = one_by_one(runner_of(name, dtype), TEXT[:1], TEXT[1:]).float()
    assert error_of(name, dtype, mine, torch.stack(want[1:])) < most(name, dtype)


@pytest.mark.parametrize("name", [name for name in FAMILIES if recipe_for(name).inputs is None])
def test_its_first_layers_are_those_of_transformers(name: str) -> None:
    """The states between layers, and the logits of a model that ends after 2 of its layers. transformers' own table of
    the layers' inputs cannot be cut."""
    short = model_of(name)
    stack = part(short, recipe_for(name).stack)
    del stack[2:]
    short.config.num_hidden_layers = 2
    want = short(torch.tensor([TEXT]), use_cache=False, output_hidden_states=True)
    runner = runner_of(name, torch.float32)
    cache = runner.new_cache(1)
    segments = [Segment(cache.acquire(), TEXT, judged=TOKENS)]
    out = runner.forward(segments, cache, taps=(0, 1, 2), layers=2)
    assert error(out.logits, want.logits[0]) < MOST[torch.float32]
    for layer, states in out.hidden.items():
        assert error(states, want.hidden_states[layer][0]) < MOST[torch.float32], layer


def on_codes(name: str, quantize: str) -> Tensor:
    """Logits by transformers' modules on the numbers that codes in groups stand for."""
    model = model_of(name)
    int4.round_matrices(model, quantize)
    for owner in list(model.modules()):
        for path, child in owner.named_children():
            if isinstance(child, GroupedLinear):
                weight = torch.from_numpy(child.weights.dequantise())
                setattr(owner, path, linear_of(weight, child.bias))
    return model(torch.tensor([TEXT]), use_cache=False).logits[0]


@needs_kernels
@pytest.mark.parametrize(
    ("name", "quantize"),
    [
        pytest.param(name, quantize, marks=slow_unless(quantize == "int8" or place % 4 in (0, 1)))
        for place, name in enumerate(ON_ROW_KERNELS)
        for quantize in ("int8", ("int8-grouped", "int4")[place % 2])
    ],
)
def test_rounded_weights_give_nearly_the_same_logits(name: str, quantize: str) -> None:
    """Those of the model on its rounded weights: rows are rounded to int8 as well, which codes of 4 bits hide."""
    if not can_quantize(torch.device("cpu")) or not int4.can_run(torch.device("cpu")):
        pytest.skip("this processor has no products of whole numbers")
    runner = runner_of(name, torch.float32, quantize=quantize)
    assert (runner.decoder, runner.quantize) == ("fused", quantize.removesuffix("-grouped"))
    want = theirs(name) if quantize == "int8" else on_codes(name, quantize)
    off = float((logits_of(runner) - want).norm() / want.norm())
    # A state carries on what is rounded; and where a row of a mixture is rounded, a near choice may fall otherwise.
    most = 0.2 if name in RECURRENT or recipe_for(name).experts else 0.1
    assert 1e-4 < off < most, off
    if quantize == "int4":
        assert float((want - theirs(name)).norm() / theirs(name).norm()) > 0.05


CHECKPOINTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gptq": (quantised.Matrices().gptq, quantised.GPTQ),
    "w8a8": (quantised.Matrices(8).channels, quantised.W8A8),
}
OF_WORDS = [name for name in ON_ROW_KERNELS if config_of(name).model_type != "gpt2"]
"""GPT-2's matrices lie in layers of its own, which quantisers of checkpoints do not take."""


@needs_kernels
@pytest.mark.parametrize(
    ("place", "name"),
    # codes of each family are among the tests of rounded weights, too
    [pytest.param(place, name, marks=slow_unless(place % 3 == 0)) for place, name in enumerate(OF_WORDS)],
)
def test_quantised_checkpoints_run_on_their_codes(place: int, name: str, tmp_path: Path) -> None:
    """Random codes are further from floats than those of a real model; a wrong order of inputs is beyond 1."""
    if not can_quantize(torch.device("cpu")) or not int4.can_run(torch.device("cpu")):
        pytest.skip("this processor has no products of whole numbers")
    config = config_of(name)
    config.tie_word_embeddings = False  # the head stays floats, and is written
    model = random_model(config)
    # in turns, where codes of 4 bits can be packed: by eight outputs
    odd = any(each.out_features % 8 for each in model.modules() if isinstance(each, nn.Linear))
    layout = "w8a8" if odd or place % 2 else "gptq"
    twin = quantised.write(tmp_path, model, *CHECKPOINTS[layout])
    want = twin(torch.tensor([TEXT]), use_cache=False).logits[0]
    runner = hs.Target(tmp_path, dtype="float32", max_length=LENGTH).runner
    assert (runner.decoder, runner.quantize) == ("fused", "int4" if layout == "gptq" else "int8")
    assert 1e-4 < float((logits_of(runner) - want).norm() / want.norm()) < 0.3


# -- the same bits in any company -------------------------------------------------------------------------------------


def one_by_one(runner: ModelRunner, prompt: tuple[int, ...], text: tuple[int, ...]) -> Tensor:
    """The logits after each token of `text`, each alone in its forward; the prompt is read at once."""
    cache, rows = runner.new_cache(1), []
    slot = cache.acquire()
    for piece in (prompt, *((token,) for token in text)):
        rows.append(runner.forward([Segment(slot, piece)], cache).logits[0])
        cache.keep(slot, len(piece))
    return torch.stack(rows[1:])


@needs_kernels
@every_family
def test_a_row_has_the_same_bits_in_any_company(name: str) -> None:
    """In a chain, in a tree, after a prompt in pieces, in a batch, with 1 and 2 threads. In tensor operations, whose
    matrix products depend on how many rows there are, the same logits but for rounding."""
    dtype = DTYPE_OF[name]
    runner = runner_of(name, dtype)
    assert runner.decoder == ("fused" if name in ON_ROW_KERNELS else "lean")
    bits = runner.decoder == "fused"

    def same(mine: Tensor, want: Tensor) -> bool:
        return torch.equal(mine, want) if bits else error_of(name, dtype, mine.float(), want.float()) < MOST[dtype]

    prompt, text = TEXT[:20], TEXT[20:28]
    alone = one_by_one(runner, prompt, text)
    slots = runner.new_cache(4)

    def read(*pieces: int) -> int:
        slot, begin = slots.acquire(), 0
        for piece in pieces:
            runner.forward([Segment(slot, prompt[begin : begin + piece])], slots)
            slots.keep(slot, piece)
            begin += piece
        return slot

    whole, pieces = read(20), read(1, 3, 16)
    chain = Draft.chain(text[1:])
    # the true path, each of its nodes behind one that is wrong; a child of a wrong one at the end
    nodes = [node for token in text[1:] for node in ((token + 1) % VOCAB, token)]
    parents = [-1, -1, *(parent for depth in range(len(text) - 2) for parent in (2 * depth + 1,) * 2)]
    tree = Draft((*nodes, 5), (*parents, 0))
    path = [0, *range(2, 2 * len(text), 2)]
    segments = [
        Segment(whole, text[:1], chain, judged=8),
        Segment(slots.acquire(), tokens(33, 9), judged=0),
        Segment(pieces, text[:1], tree, judged=16),
    ]
    for slot in (whole, pieces):
        got = runner.forward([Segment(slot, text[:1], chain, judged=8)], slots).logits
        assert same(got, alone), "a chain"
    assert same(runner.forward(segments[2:], slots).logits[path], alone), "a tree"
    for count in (1, 2):
        use_threads(count)
        try:
            got = runner.forward(segments, slots).logits
        finally:
            use_threads(None)
        assert same(got[:8], alone), "a batch"
        assert same(got[8:][path], alone), "a batch"


# -- the text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=slow_unless(place % 2 == 0)) for place, name in enumerate(FAMILIES)]
)
def test_greedy_text_is_that_of_generate(name: str) -> None:
    """With a drafter, by requests side by side."""
    model = model_of(name)
    fix_rotation(model, LENGTH)
    model.generation_config.eos_token_id = None
    prompts = [list(tokens(length, length)) for length in (3, 21)]
    want = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
        want.append(tuple(out[0, len(prompt) :].tolist()))
    engine = assemble(runner_of(name, torch.float32), drafter=NgramDrafter())
    outs = engine.generate(prompts, hs.Sampling(max_tokens=16, ignore_eos=True))
    assert [out.tokens for out in outs] == want
    assert any(out.stats.drafted for out in outs)
    engine.cache.check()


# -- each field is needed ---------------------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {"eps": 100.0, "activation": "silu", "gated": True}
"""Values of fields that have no default, which a recipe could have been given by mistake."""
STRUCTURE = {"heads", "kv_heads", "dim", "width", "vocabulary", "layers", "ignored"}
"""Fields that say how large the weights are: a decoder refuses others at load."""
RECURRENCES = get_args(Recurrent)
"""Sizes of these are set to half and to twice what they are: not every one of them shows in the sizes of weights."""
ROUNDING = {"wide_gain", "embedding_factor_rounded", "factor_rounded", "wide"}
"""Fields that change nothing in float32, with tests of their own below."""
Flip = tuple[str, Any]


def _turns_by_it(layer: Layer) -> bool:
    """Whether a layer turns by the rotary module that the recipe names."""
    return isinstance(layer.mixer, Attention) and layer.mixer.rope is not None and layer.mixer.rope.module is None


def flips(node: Any, tables: frozenset[str]) -> Iterator[Flip]:
    """The same node of a recipe with one field at a time set back to what is plain: what field, and the node."""
    for field in fields(node):
        value, name = getattr(node, field.name), field.name
        if isinstance(node, RECURRENCES) and field.type == "int":
            yield from ((f"{name}={other}", replace(node, **{name: other})) for other in (value // 2, 2 * value))
            continue
        if name in STRUCTURE | ROUNDING or (isinstance(node, Latent) and name == "gated"):  # it has no gate
            continue
        if name == "least_sum" and value <= 1e-6:  # see `test_weights_that_are_all_nothing_stay_so`
            continue
        plain = [] if field.default is MISSING else [field.default]
        if name in PLAIN:
            plain = [PLAIN[name]]
        elif name == "scaling":
            plain = [node.dim**-0.5]
        elif name == "rope":
            plain = [Rope(node.dim) if value is None else replace(value, rotary=node.dim), None]
        elif name == "name":
            plain = [None]
        elif isinstance(node, Recipe) and name == "rotary" and not any(_turns_by_it(layer) for layer in node.layers):
            plain = []
        elif name == "table":
            plain = [None, *sorted(tables)]
        elif is_dataclass(value) and field.default is MISSING:
            plain = [Norm(None, value.eps)] if isinstance(value, Norm) else []
        for other in plain:
            if other != value:
                yield f"{name}={other}", replace(node, **{name: other})
        if is_dataclass(value):
            for path, changed in flips(value, tables):
                if name == "shared" and path.startswith("activation="):  # that of the experts beside it
                    continue
                yield f"{name}.{path}", replace(node, **{name: changed})


def flipped(recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """Every recipe that differs from this in one field, which is plain there."""
    tables = frozenset(each.rope.table for each in recipe.attentions if each.rope and each.rope.table)
    yield from flips(recipe, tables)
    for number, (_, kind) in enumerate(recipe.kinds):
        for path, changed in flips(kind, tables):
            layers = tuple(changed if layer == kind else layer for layer in recipe.layers)
            yield f"layers {number}: {path}", replace(recipe, layers=layers)


def logits_by(recipe: Recipe, model: Any) -> Tensor:
    """What a recipe makes of a model in float32, which is used up, by the lean forward: it raises where the kernels
    would read what is not there."""
    adopt(model)
    fix_rotation(model, LENGTH)
    decoder = LeanDecoder(model, recipe, LENGTH)
    cache = decoder.new_cache(1, LENGTH)
    with torch.inference_mode():
        return decoder.run(
            Packed([Segment(cache.acquire(), TEXT, judged=TOKENS)], cache, model.dtype, model.device)
        ).logits


THIRDS = [
    pytest.param(name, third, marks=slow_unless(place % 3 == third))
    for place, name in enumerate(FAMILIES)
    for third in range(3)
]
"""Every third field of each family is in the fast suite, beginning with its first, its second or its third."""


@pytest.mark.parametrize(("name", "third"), THIRDS)
def test_each_field_of_its_recipe_is_needed(name: str, third: int) -> None:
    """Set back to what is plain, the logits are others, or the weights do not fit."""
    recipe = recipe_for(name)
    assert error(logits_by(recipe, model_of(name)), theirs(name)) < MOST[torch.float32]
    unseen = []
    for path, changed in [*flipped(recipe)][third::3]:
        try:
            off = error(logits_by(changed, model_of(name)), theirs(name))
        except (AttributeError, AssertionError, IndexError, KeyError, RuntimeError, TypeError, UnsupportedModel):
            continue
        if not off > CLEAR:
            unseen.append(f"{path}: {off:.1e}")
    assert not unseen


def test_weights_that_are_all_nothing_stay_so() -> None:
    """DeepSeek adds 1e-20 to the sum that weights are divided by, and ERNIE divides by 1e-12 at least, which shows
    where they are all 0."""
    router = Router(2, "sigmoid", normalised=True, least_sum=1e-20)
    logits = torch.full((1, 8), -200.0)
    assert chosen_by(logits, router, None)[1].tolist() == [[0.0, 0.0]]
    assert chosen_by(logits, replace(router, least_sum=0.0), None)[1].isnan().all()
    (ernie,) = {experts.router for experts in recipe_of(config_of("ernie4_5_moe")).experts}
    biased = torch.ones(len(logits[0])).index_fill(0, torch.tensor([0]), 0.0)
    sure = torch.zeros(1, 8).index_fill(1, torch.tensor([0]), 200.0)  # all of the softmax, but for 0, is the first's
    assert chosen_by(sure, replace(ernie, chosen=2), 2 * biased)[1].tolist() == [[0.0, 0.0]]


@every_family
def test_norms_round_as_those_of_transformers(name: str) -> None:
    """In bfloat16, bit for bit; with the gain on the other side of the rounding they would not. PyTorch sums the
    squares of a LayerNorm in another order, which turns the last bit of a few numbers."""
    recipe, model = recipe_for(name), model_of(name, torch.bfloat16)
    owners = [(model, recipe.final_norm), (model, recipe.embedding_norm)]
    for owner, layer in zip(part(model, recipe.stack), recipe.layers, strict=True):
        norms = [layer.attention_in, layer.attention_out, layer.mlp_in, layer.mlp_out]
        if isinstance(layer.mixer, Attention):  # recurrent layers are computed in float32
            norms += [layer.mixer.q_norm, layer.mixer.k_norm]
        owners += [(owner, norm) for norm in norms]
    for owner, norm in owners:
        if norm is None or norm.name is None:
            continue
        gain = gain_of(owner, norm)
        assert gain is not None
        x = torch.randn(200, *gain.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        module = part(owner, norm.name)
        by_head = isinstance(module, torch.nn.ModuleList)
        want = torch.stack([each(x[:, i]) for i, each in enumerate(module)], 1) if by_head else module(x)

        def turned(by: Norm, owner: Any = owner, x: Tensor = x, want: Tensor = want) -> float:
            """The part of the numbers that are others."""
            return float((TensorNorm(owner, by, torch.bfloat16)(x) != want).float().mean())

        other = replace(norm, wide_gain=not norm.wide_gain)
        if norm.kind == "rms":
            assert turned(norm) == 0.0 < turned(other), norm
        else:
            assert turned(norm) < 0.005, norm
            assert norm.offset == 0.0 or turned(other) > 0.05, norm


SCALED = [
    name for name in FAMILIES if recipe_for(name).embedding_factor != 1.0 and recipe_for(name).embedding_norm is None
]


@pytest.mark.parametrize("name", SCALED)
def test_embeddings_are_scaled_as_by_transformers(name: str) -> None:
    """In bfloat16, bit for bit: the factor itself is rounded first, or is not."""
    recipe, model = recipe_for(name), model_of(name, torch.bfloat16)
    states = model(torch.tensor([TEXT]), use_cache=False, output_hidden_states=True).hidden_states[0][0]
    plain = torch.nn.functional.embedding(torch.tensor(TEXT), part(model, recipe.embedding).weight)
    assert torch.equal(plain * embedding_factor(recipe, torch.bfloat16), states)
    if recipe.embedding_factor_rounded:
        other = replace(recipe, embedding_factor_rounded=False)
        assert not torch.equal(plain * embedding_factor(other, torch.bfloat16), states)


@pytest.mark.parametrize("name", [name for name in FAMILIES if recipe_for(name).inputs is not None])
def test_inputs_of_layers_are_scaled_as_by_transformers(name: str) -> None:
    """In bfloat16, bit for bit: the factor of their table is rounded first."""
    inputs, model = recipe_for(name).inputs, model_of(name, torch.bfloat16)
    assert inputs is not None
    table, ids = part(model, inputs.table), torch.tensor(TEXT)
    plain = torch.nn.functional.embedding(ids, table.weight)
    scaled = [plain * factor(inputs.factor, torch.bfloat16, rounded=rounded) for rounded in (True, False)]
    assert inputs.factor_rounded
    assert [torch.equal(each, table(ids)) for each in scaled] == [True, False]


# -- what a config says and no builder reads --------------------------------------------------------------------------

STATED: dict[str, Any] = {
    "attention_multiplier": 0.3, "attn_logit_softcapping": 1.5, "clip_qkv": 0.3, "embedding_multiplier": 3.0,
    "final_logit_softcapping": 1.5, "layer_types": ["full_attention", "sliding_attention"] * 2, "logit_scale": 0.3,
    "logits_scaling": 3.0, "mlp_bias": True, "no_rope_layers": [0, 1, 0, 1], "norm_type": "layer",
    "num_kv_shared_layers": 2, "num_local_experts": 8, "partial_rotary_factor": 0.5, "query_pre_attn_scalar": 7,
    "residual_multiplier": 0.3, "sliding_window": 5, "use_cla": True, "use_qk_norm": False, "use_sliding_window": True,
    "attn_output_gate": False, "conv_L_cache": 3, "linear_conv_kernel_dim": 2, "linear_key_head_dim": 32,
    "linear_num_key_heads": 4, "mamba_conv_bias": False, "mamba_d_state": 16, "mamba_n_groups": 1,
    "position_embedding_type": "rope", "time_step_limit": (0.01, 0.02),
}  # fmt: skip
"""Fields of some family, which another one has not or has with another value."""


@pytest.mark.parametrize(("name", "third"), THIRDS)
def test_what_a_config_states_has_the_effect_it_has_in_transformers(name: str, third: int) -> None:
    """Whatever a config.json says, the logits are those of transformers. A field that the family's class does not
    have is refused by its name, whatever the class makes of it: its modules run then, as they are, which is tried with
    Llama."""
    wrong = []
    for field, value in [*STATED.items()][third::3]:
        config = config_of(name)
        known = hasattr(config, field)
        try:
            config = type(config).from_dict({**config.to_dict(), field: value})
        except Exception:  # transformers does not run it either
            continue
        recipe = None
        try:
            recipe = recipe_of(config)
        except UnsupportedModel as refused:
            if field not in str(refused):
                wrong.append(f"{field} is not named: {refused}")
        if recipe is None and not known and name != "llama":
            continue
        try:
            model = random_model(config)
            want = model(torch.tensor([TEXT]), use_cache=False).logits[0]
        except Exception:  # transformers does not run it either
            continue
        if recipe == recipe_for(name) and torch.equal(want, theirs(name)):
            continue
        try:
            off = error(logits_of(ModelRunner(adopt(model), max_length=LENGTH)), want)
        except UnsupportedModel as refused:
            if not name.startswith(UNDRIVEN) and name not in RECURRENT:  # whose modules keep no states for us
                wrong.append(f"{field}: {refused}")
            continue
        if not off < MOST[torch.float32]:
            wrong.append(f"{field}: {off:.1e}")
    assert not wrong


@pytest.mark.parametrize("name", PUBLISHED)
def test_fields_of_published_files_change_nothing(name: str) -> None:
    config = config_of(name)
    config = type(config).from_dict({**config.to_dict(), **PUBLISHED[name]})
    assert recipe_of(config) == recipe_for(name)


@every_family
def test_an_invented_field_is_refused(name: str) -> None:
    config = config_of(name)
    config.invented_field = 3
    with pytest.raises(UnsupportedModel, match="invented_field=3"):
        recipe_of(config)


@every_family
def test_an_invented_kind_of_rotation_is_refused(name: str) -> None:
    if not any(attention.rope for attention in recipe_for(name).attentions):
        pytest.skip("nothing turns")
    config = config_of(name)
    stated = config.rope_parameters
    for each in stated.values() if "rope_theta" not in stated else [stated]:
        each["invented"] = 3.0
    with pytest.raises(UnsupportedModel, match=r"rope_parameters\.invented=3"):
        recipe_of(config)


@every_family
def test_a_config_of_no_model_is_one_typed_error_or_read(name: str) -> None:
    """Before a list of 10^9 layers is made."""
    for field in ("num_hidden_layers", "num_attention_heads", "hidden_size"):
        for value in (0, "many", None, [4], 10**9):
            config = config_of(name)
            object.__setattr__(config, type(config).attribute_map.get(field, field), value)  # past its class's checks
            if getattr(config, field) != value:
                continue  # its class has its own answer: Nemotron-H counts its layers
            message = ""
            try:
                recipe_of(config)
            except UnsupportedModel as refused:
                message = refused.message
            assert not message or "config" in message, (field, value)
            assert field != "num_hidden_layers" or field in message, value


# -- weights that are not as the config says --------------------------------------------------------------------------

LIES: dict[str, Callable[[Layer], Layer]] = {
    "more keys": lambda layer: layer.attending(kv_heads=4),
    "no values": lambda layer: layer.attending(value_is_key=True),
    "another width": lambda layer: replace(layer, feed_forward=replace(layer.mlp, width=96)),
    "no gate": lambda layer: replace(layer, feed_forward=replace(layer.mlp, gated=False)),
    "half of a head turns": lambda layer: layer.attending(rope=Rope(8)),
}


@needs_kernels
@pytest.mark.parametrize("decoder", [FusedDecoder, LeanDecoder])
@pytest.mark.parametrize("lie", LIES)
def test_weights_that_do_not_fit_their_recipe_are_refused(lie: str, decoder: Any) -> None:
    """Kernels would read what is not there."""
    recipe, model = recipe_for("llama"), adopt(model_of("llama"))
    recipe = replace(recipe, layers=tuple(LIES[lie](layer) for layer in recipe.layers))
    with pytest.raises(UnsupportedModel, match="by the config"):
        decoder(model, recipe, LENGTH, *([native.FLOAT32] if decoder is FusedDecoder else []))
