"""Medusa: the distribution is kept, drafts are what the heads say of the target's own states, and the tree is the best
one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from safetensors.torch import save_file
from support.greedy import prompts, reference
from support.rotation import rotated
from support.sampled_distribution import PROMPT, TOKENS, joint, model, p_value
from support.sampled_distribution import VOCAB as EIGHT
from support.tiny import VOCAB, checkpoint
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.errors import InvalidOption, ModelNotFound, PickleCheckpoint, UnsupportedModel
from headstart.drafters import Observation, Row
from headstart.drafters.growing.ranks import NODES, Experience, grow, sizes, usual_accuracies
from headstart.drafters.medusa import MedusaDrafter, recognises, tree
from headstart.engine.engine import Engine
from headstart.loading.assembly import assemble
from headstart.model import native
from headstart.model.decoders.linears import can_pack, can_quantize
from headstart.model.heads.medusa import HeadWeights, MedusaHeads, read_heads
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing.measuring import measure
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step

WIDTH = 32  # of the tiny models
NEW = 24
CPU = torch.device("cpu")


def weights(
    count: int = 3, *, vocab: int = VOCAB, width: int = WIDTH, blocks: int = 1, seed: int = 0, scale: float = 0.2
) -> list[HeadWeights]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return scale * torch.randn(*shape, generator=generator)

    return [
        HeadWeights(tuple((normal(width, width), normal(width)) for _ in range(blocks)), normal(vocab, width))
        for _ in range(count)
    ]


def tensors(heads: Sequence[HeadWeights], prefix: str = "") -> dict[str, torch.Tensor]:
    found = {}
    for i, head in enumerate(heads):
        for j, (weight, bias) in enumerate(head.blocks):
            found[f"{prefix}{i}.{j}.linear.weight"] = weight
            found[f"{prefix}{i}.{j}.linear.bias"] = bias
        found[f"{prefix}{i}.{len(head.blocks)}.weight"] = head.output
    return found


def save(folder: Path, found: dict[str, torch.Tensor], **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, folder / "medusa_lm_head.safetensors")
    named = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "target", **config}
    (folder / "config.json").write_text(json.dumps(named))
    return folder


def runner(path: str, **options: Any) -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)), **options)


@pytest.fixture
def made() -> Iterator[Callable[..., Engine]]:
    """made(target, folder or None, ...): an engine; its caches are checked afterwards."""
    engines: list[Engine] = []

    def make(path: str, folder: Path | None, *, budget: int | None = None, **options: Any) -> Engine:
        target = runner(path, max_length=options.pop("max_length", 128))
        drafter = None if folder is None else MedusaDrafter.load(folder, target, budget=budget, quantize=None)
        engines.append(assemble(target, drafter=drafter, eos_token_ids=options.pop("eos", frozenset({2})), **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.cache.check()
        assert engine.cache.free_slots == len(engine.cache.lengths)
        drafter = engine.drafter
        assert not isinstance(drafter, MedusaDrafter) or not drafter._memories, "a request was not let go"


def context(tokens: Sequence[int], budget: int = 16, request: int = 0, **options: Any) -> Row:
    distribution = SamplingState(Sampling(cache_salt=options.pop("salt", "")), (), VOCAB, frozenset())
    return Row(request, tuple(tokens), distribution, Noise(0), budget=Budget(budget), **options)


def observation(
    hidden: torch.Tensor,
    tokens: Sequence[int],
    *,
    layers: int = 4,
    draft: Draft = Draft(),  # noqa: B008 (frozen)
    path: tuple[int, ...] = (),
    emitted: tuple[int, ...] = (),
    start: int = 0,
) -> Observation:
    step = Step(0, 0, 0, draft, path, emitted, None, 1, 1, Seconds(), None, Speculation(True, "medusa"))
    return Observation(step, tuple(tokens), start, {layers: hidden})


# -- the claim --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2"])
def test_greedy_text_is_that_of_transformers_alone_and_in_a_ragged_batch(
    name: str, rule: Any, root: Path, tmp_path: Path, made: Callable[..., Engine]
) -> None:
    path = checkpoint(root, name)
    folder = save(tmp_path, tensors(weights()))
    # chunks of 8 make the longer prompts join in pieces; 3 slots make two requests wait for others to leave
    engine = made(path, folder, rule=rule, max_batch_size=3, prefill_chunk=8)
    single = engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW))
    assert single.tokens == reference(path, NEW)[1]
    batch = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in batch) == reference(path, NEW)
    assert all(out.stats.speculation.on for out in batch), batch[0].stats.speculation.reason
    assert sum(out.stats.drafted for out in batch) > 100


@pytest.mark.parametrize("budget", [0, 1, 2, 5, 63, 5000])
def test_any_budget(budget: int, root: Path, tmp_path: Path, made: Callable[..., Engine]) -> None:
    path = checkpoint(root, "llama")
    engine = made(path, save(tmp_path, tensors(weights())), num_speculative_tokens=budget)
    steps: list[Step] = []
    engine.subscribe(steps.append)
    outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=80))
    assert tuple(out.tokens for out in outs) == reference(path, 80)
    drafted = {len(step.draft) for step in steps[len(prompts()) :]}
    assert max(drafted) == min(budget, NODES)


SAMPLES = 1200


@pytest.mark.parametrize(
    ("rule", "temperature"), rotated([("exact", "coupled")], [(0.7,), (1.3,)], lambda rule: rule == "exact")
)
def test_sampled_text_follows_the_distribution(
    rule: Any, temperature: float, root: Path, tmp_path: Path, made: Callable[..., Engine]
) -> None:
    path = model(root, 0, 2)
    folder = save(tmp_path, tensors(weights(2, vocab=EIGHT, width=16, scale=0.5)))
    engine = made(path, folder, rule=rule, max_length=32, max_batch_size=50, num_speculative_tokens=6, eos=frozenset())
    samplings = [hs.Sampling(max_tokens=TOKENS + 2, temperature=temperature, seed=seed) for seed in range(SAMPLES)]
    outs = engine.generate([PROMPT] * SAMPLES, samplings)
    counts = Counter(out.tokens[:TOKENS] for out in outs)
    assert p_value(counts, joint(path, temperature, 1.0)) > 1e-3
    other = 1.3 if temperature == 0.7 else 0.7
    assert p_value(counts, joint(path, other, 1.0)) < 1e-6, "the sample would not show an error"
    assert 0 < sum(out.stats.accepted for out in outs) < sum(out.stats.drafted for out in outs)


def test_a_seed_gives_one_text_with_any_tree_or_none(root: Path, tmp_path: Path, made: Callable[..., Engine]) -> None:
    folder = save(tmp_path, tensors(weights()))
    sampling = hs.Sampling(max_tokens=NEW, temperature=1.0, seed=3)
    texts = set()
    for mine, budget, rule in ((None, 0, "exact"), (folder, 3, "exact"), (folder, 40, "exact"), (folder, 9, "coupled")):
        engine = made(checkpoint(root, "llama"), mine, rule=rule, num_speculative_tokens=budget)
        for _ in range(2):  # by the second time it has learnt from the first
            texts.add(engine.generate([5, 6], sampling).tokens)
    assert len(texts) == 1


def counting(root: Path) -> str:
    """A target that says n + 1 after n, whatever stood before, with states that are one-hot; VOCAB = WIDTH = 32."""
    config = tf.LlamaConfig(
        vocab_size=WIDTH, hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, bos_token_id=None, eos_token_id=None,
        tie_word_embeddings=False, head_dim=16,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(WIDTH))
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight.copy_(after(1))
    path = root / "counting"
    model.save_pretrained(path)
    return str(path)


def after(n: int) -> torch.Tensor:
    """[V, d]: from the one-hot state of a token to the token n further on."""
    return torch.eye(WIDTH).roll(n, dims=0)


def test_heads_that_are_right_are_accepted_whole(root: Path, tmp_path: Path, made: Callable[..., Engine]) -> None:
    """Were the alignment off by one place, nothing would be accepted."""
    heads = [HeadWeights(((torch.zeros(WIDTH, WIDTH), torch.zeros(WIDTH)),), after(k + 2)) for k in range(3)]
    engine = made(counting(root), save(tmp_path, tensors(heads)), eos=frozenset(), num_speculative_tokens=63)
    steps: list[Step] = []
    engine.subscribe(steps.append)
    (out, long) = engine.generate([[4], list(range(20))], hs.Sampling(max_tokens=41))
    assert out.tokens == tuple((5 + i) % WIDTH for i in range(41))
    assert long.tokens == tuple((20 + i) % WIDTH for i in range(41))
    full = [step for step in steps if len(step.draft) >= 20]  # at the end there is no room for a large tree
    assert len(full) == 2 * 5
    assert all(step.accepted == 3 and len(step.tokens) == 4 for step in full)


# -- what is drafted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 2])
def test_drafts_are_what_the_heads_say_of_transformers_own_states(
    blocks: int, root: Path, tmp_path: Path, made: Callable[..., Engine]
) -> None:
    heads = weights(blocks=blocks)
    folder = save(tmp_path, tensors(heads), medusa_num_layers=blocks)
    engine = made(checkpoint(root, "llama"), folder, num_speculative_tokens=12, prefill_chunk=4)
    steps: list[Step] = []
    engine.subscribe(steps.append)
    prompt = list(prompts()[2])
    out = engine.generate(prompt, hs.Sampling(max_tokens=12, ignore_eos=True))
    text = [*prompt, *out.tokens]
    model = AutoModelForCausalLM.from_pretrained(checkpoint(root, "llama"), dtype=torch.float32)
    with torch.no_grad():
        states = model(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]
    order = grow(usual_accuracies(3, 10))[:12]
    drafted = [step for step in steps if len(step.draft)]
    assert len(drafted) > 3
    for step in drafted:
        state = states[step.position - 2]  # of the token before the pending one
        guesses = []
        for head in heads:
            x = state
            for weight, bias in head.blocks:
                inside = weight @ x + bias
                x = x + inside * torch.sigmoid(inside)
            guesses.append((head.output @ x).topk(10).indices.tolist())
        want = tree(order[: len(step.draft)], guesses)
        assert (step.draft.tokens, step.draft.parents) == (want.tokens, want.parents)
        assert step.draft.q is None


def every_kind() -> list[tuple[str, torch.dtype, str | None]]:
    return [
        ("float32 rows", torch.float32, None),
        ("bfloat16 rows", torch.bfloat16, None),
        ("int8 rows", torch.float32, "int8"),
        ("int8 rows", torch.bfloat16, "auto"),
        ("packed", torch.bfloat16, None),
        ("int8", torch.float32, "int8"),
        ("stacked", torch.float32, None),
        ("stacked", torch.float64, "auto"),
    ]


@pytest.mark.parametrize(("kind", "dtype", "quantize"), every_kind())
def test_every_kind_of_layer_computes_the_same_heads(
    kind: str, dtype: torch.dtype, quantize: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kind.endswith("rows"):
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available() or ("int8" in kind and not native.kernels().supported(native.INT8)):
        pytest.skip("this machine has no such row kernels")
    if kind == "packed" and not can_pack(dtype, CPU):
        pytest.skip("this processor has no packed bf16")
    if kind == "int8" and not can_quantize(CPU):
        pytest.skip("this processor has no VNNI")
    given = weights(blocks=2)
    heads = MedusaHeads(given, dtype=dtype, device=CPU, quantize=quantize)
    assert heads.kind == kind
    states = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)
    got = heads.logits(states)
    assert got.shape == (3, 5, VOCAB)
    want = []
    for head in given:
        x = states.double()
        for weight, bias in head.blocks:
            x = x + torch.nn.functional.silu(x @ weight.double().T + bias.double())
        want.append(x @ head.output.double().T)
    close = 1e-4 if dtype == torch.float32 and quantize is None else 1e-6 if dtype == torch.float64 else 0.03
    spread = torch.stack(want).abs().max().item()
    assert (got.double() - torch.stack(want)).abs().max().item() < close * spread
    top = heads.likeliest(states, 4)
    assert [len(top), len(top[0]), len(top[0][0])] == [5, 3, 4]
    assert torch.tensor(top).transpose(0, 1).equal(got.topk(4, dim=-1).indices)
    if kind.endswith("rows"):
        alone = torch.cat([heads.logits(state[None]) for state in states], dim=1)
        assert torch.equal(got, alone), "a row's guesses must not depend on its company"


def test_nothing_is_drafted_before_the_prompt_is_read(root: Path, tmp_path: Path) -> None:
    target = runner(checkpoint(root, "llama"))
    drafter = MedusaDrafter.load(save(tmp_path, tensors(weights())), target)
    assert drafter.propose([context([3, 4, 5])])[0].tokens == ()
    drafter.observe(observation(torch.randn(2, WIDTH), [3, 4]))
    (draft, other) = drafter.propose([context([3, 4, 5], 7), context([3, 4, 5], 7, request=1)])
    assert len(draft) == 7
    assert other.tokens == ()
    # text that went on without its states
    assert drafter.propose([context([3, 4, 5, 6])])[0].tokens == ()
    drafter.observe(Observation(observation(torch.zeros(0, WIDTH), ()).step))  # as when a request is cancelled
    assert len(drafter.propose([context([3, 4, 5], 7)])[0]) == 7
    drafter.release(0)
    drafter.release(0)
    assert drafter.propose([context([3, 4, 5])])[0].tokens == ()


def test_its_cost_can_be_measured(root: Path, tmp_path: Path) -> None:
    """Adaptive pacing measures drafts of requests that never were: they must cost what others do."""
    target = runner(checkpoint(root, "llama"), max_length=128)
    drafter = MedusaDrafter.load(save(tmp_path, tensors(weights())), target)
    calls = []
    inner = drafter._heads.likeliest
    drafter._heads.likeliest = lambda *a: calls.append(1) or inner(*a)  # type: ignore[method-assign, func-returns-value]
    costs = measure(target, target.new_cache(4), [drafter], batch=4, seconds=0.01).costs
    assert "medusa" in costs.drafts
    assert calls
    assert not drafter._memories


# -- the tree ---------------------------------------------------------------------------------------------------------


def best_trees(accuracies: list[list[float]], nodes: int) -> float:
    """The largest sum of products over all connected trees of so many nodes, by trying every one of them."""
    found = 0.0
    seen = {frozenset[tuple[int, ...]]()}
    for _ in range(nodes):
        grown = set()
        for chosen in seen:
            for node in [(), *chosen]:
                if len(node) < len(accuracies):
                    for rank in range(len(accuracies[len(node)])):
                        if (child := (*node, rank)) not in chosen:
                            grown.add(chosen | {child})
        seen = grown
    for chosen in seen:
        total = 0.0
        for node in chosen:
            value = 1.0
            for head, rank in enumerate(node):
                value *= accuracies[head][rank]
            total += value
        found = max(found, total)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_is_the_best_of_all_trees(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    accuracies = (torch.rand(3, 3, generator=generator) / 2).tolist()  # not sorted, so ranks may be passed over
    order = grow(accuracies, 5)
    for nodes in range(1, 6):
        assert sum(place.chance for place in order[:nodes]) == pytest.approx(best_trees(accuracies, nodes))
    chances = [place.chance for place in order]
    assert chances == sorted(chances, reverse=True)


def test_every_prefix_of_the_order_is_a_tree() -> None:
    order = grow(usual_accuracies(5, 10))
    assert len(order) == NODES
    assert len({(place.parent, place.rank) for place in order}) == NODES, "no node stands twice"
    guesses = [[10 * head + rank for rank in range(10)] for head in range(5)]
    for nodes in range(NODES + 1):
        draft = tree(order[:nodes], guesses)  # Draft refuses a parent after its child
        assert [d - 1 for d in draft.depths] == [place.head for place in order[:nodes]]
    assert sizes(order)[-1] == (NODES, max(draft.depths))
    assert [nodes for nodes, _ in sizes(order[:5])] == [1, 2, 3, 4, 5]
    assert len(grow([[0.5, 0.2]])) == 2, "there is no more to guess"


def test_experience_moves_the_tree_towards_what_is_right() -> None:
    start = [[0.5, 0.1, 0.1], [0.4, 0.1, 0.1]]
    experience = Experience(start)
    first = experience.order
    guesses = [[1, 2, 3], [4, 5, 6]]
    for _ in range(320):  # head 0 is right with its third guess, head 1 is not seen right at all
        experience.learn(guesses, (3, 9), 1)
    assert experience.order != first
    assert experience.order[0].rank == 2
    table = experience.accuracies
    assert table[0][2] > 0.8 > 0.1 > table[0][0] > 0
    assert all(0 < value < 0.06 for value in table[1])
    experience.learn(guesses, (9, 4), 0)  # head 1 was not judged: its forerunner was wrong
    assert experience.accuracies[1] == table[1]


def test_experience_is_shared_by_salt_and_never_by_requests_that_stand_alone(root: Path, tmp_path: Path) -> None:
    target = runner(checkpoint(root, "llama"))
    drafter = MedusaDrafter.load(save(tmp_path, tensors(weights())), target)

    def drafted(request: int, **options: Any) -> tuple[int, ...]:
        made = observation(torch.ones(2, WIDTH), [3, 4])
        drafter.release(request)
        drafter.observe(Observation(replaced(made.step, request), made.tokens, 0, made.hidden))
        return drafter.propose([context([3, 4, 5], 8, request, **options)])[0].tokens

    def replaced(step: Step, request: int) -> Step:
        return Step(request, *(getattr(step, name) for name in list(Step.__dataclass_fields__)[1:]))

    before = drafted(0)
    assert drafted(1, salt="other") == drafted(2, reproducible=True) == before
    for _ in range(200):  # always the ninth guess of the first head
        (draft,) = drafter.propose([context([3, 4, 5], 8)])
        right = drafter._memories[0].guesses[0][8]
        drafter.observe(observation(torch.ones(1, WIDTH), [], draft=draft, emitted=(right,), start=2))
    assert drafted(0) != before, "it has learnt"
    assert drafted(1, salt="other") == drafted(2, reproducible=True) == before


# -- reading ----------------------------------------------------------------------------------------------------------


def test_heads_are_counted_by_their_tensors_and_accuracies_are_read(root: Path, tmp_path: Path) -> None:
    target = runner(checkpoint(root, "llama"))
    heads = weights(4, blocks=2)
    for prefix in ("", "medusa_head.", "medusa_heads."):
        folder = save(tmp_path / f"as {prefix}", tensors(heads, prefix) | {"model.norm.weight": torch.ones(3)})
        assert recognises(folder)
        read = read_heads(folder)
        assert len(read) == 4
        assert all(torch.equal(a.output, b.output) for a, b in zip(read, heads, strict=True))
        assert torch.equal(read[3].blocks[1][0], heads[3].blocks[1][0])
        assert MedusaDrafter.load(folder, target).limit == NODES
    accuracies = [[0.1, 0.6, 0.0], [0.0, 0.5, 0.0], [0.3, 0.2, 0.1], [0.3, 0.2, 0.1]]
    folder = save(tmp_path / "recorded", tensors(heads), headstart={"accuracies": accuracies})
    drafter = MedusaDrafter.load(folder, target, budget=3)
    assert drafter.default_budget == 3
    assert drafter.sizes[:4] == [(1, 1), (2, 2), (3, 2), (4, 3)]
    assert [place.rank for place in drafter._fixed[:2]] == [1, 1]


def test_what_recognises_and_what_is_not(root: Path, tmp_path: Path) -> None:
    assert not recognises(checkpoint(root, "llama"))
    assert not recognises(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("[not json")
    assert not recognises(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert not recognises(tmp_path)


def without(found: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {key: tensor for key, tensor in found.items() if key != name}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"norm.weight": torch.ones(3)}, "holds no Medusa heads"),
        (tensors(weights(width=48)), r"states of 48 numbers .* hidden size is 32"),
        (tensors(weights(vocab=90)), r"know 90 tokens, .* its vocabulary 97"),
        (without(tensors(weights()), "1.0.linear.bias"), "head 1 has no tensor 1.0.linear.bias"),
        (without(tensors(weights()), "2.1.weight"), "head 2 has no tensor 2.1.weight"),
        ({k: t for k, t in tensors(weights()).items() if not k.startswith("1.")}, r"heads \[0, 2\], but not \[1\]"),
        ({**tensors(weights()), "0.0.linear.weight": torch.ones(32, 16)}, r"shape \(32, 16\), not \(32, 32\)"),
        (tensors(weights(2)) | tensors(weights(3, vocab=96)[2:3], "x.") | {"2.0.weight": torch.ones(97, 32)}, "differ"),
    ],
    ids=["none", "width", "vocabulary", "no bias", "no output", "gap", "shape", "unlike"],
)
def test_what_does_not_fit_is_refused(found: dict[str, torch.Tensor], message: str, root: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=message) as error:
        MedusaDrafter.load(save(tmp_path, found), runner(checkpoint(root, "llama")))
    assert error.value.hint


@pytest.mark.parametrize("table", [[[0.5]], "x", [[0.5, 2.0]] * 3, [[]] * 3, [[0.1] * 98] * 3, [[0.5, "x"]] * 3])
def test_a_record_that_does_not_fit_is_refused(table: Any, root: Path, tmp_path: Path) -> None:
    folder = save(tmp_path, tensors(weights()), headstart={"accuracies": table})
    with pytest.raises(UnsupportedModel, match="recorded accuracies do not belong to 3 heads"):
        MedusaDrafter.load(folder, runner(checkpoint(root, "llama")))


def test_pickles_damaged_files_and_empty_directories(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no \*\.safetensors"):
        read_heads(tmp_path)
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"")
    with pytest.raises(PickleCheckpoint, match=r"medusa_lm_head\.pt"):
        read_heads(tmp_path)
    (tmp_path / "medusa_lm_head.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(UnsupportedModel, match="cannot be read"):
        read_heads(tmp_path)


def test_options(root: Path, tmp_path: Path) -> None:
    folder = save(tmp_path, tensors(weights()))
    target = runner(checkpoint(root, "llama"))
    with pytest.raises(InvalidOption, match="budget"):
        MedusaDrafter.load(folder, target, budget=-1)
    with pytest.raises(InvalidOption, match="int4"):
        MedusaDrafter.load(folder, target, quantize="int4")
