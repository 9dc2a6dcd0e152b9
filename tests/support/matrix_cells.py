"""The exactness matrix: its rows (drafters) and columns (settings), and the table in docs/exactness-matrix.md.

A drafter is one entry: a name, a function that builds it for the tiny target, and how much it drafts. What a drafter
or an engine does not support is refused, and stands in the table with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import headstart as hs
from headstart.drafters import Drafter
from headstart.drafters.ahead import Ahead, AheadDrafter
from headstart.drafters.cascade import Cascade
from headstart.drafters.dflash import DFlashDrafter
from headstart.drafters.draft_model import DraftModel, ParallelDraft
from headstart.drafters.eagle import EagleDrafter
from headstart.drafters.early_exit import EarlyExitDrafter
from headstart.drafters.lookahead import LookaheadDrafter
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.drafters.matching.text_index import TextIndex
from headstart.drafters.medusa import MedusaDrafter
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.prediction import PredictionDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.drafters.trained_exit import TrainedExitDrafter
from headstart.drafters.translated import TranslatedDraft
from headstart.engine.guarded_drafter import attach
from headstart.engine.stacked import StackedDrafter
from headstart.loading.assembly import assemble
from headstart.model import int4
from headstart.model.heads.exit import Exit
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing import FixedPacing
from headstart.types import Drafting, EngineRule, Rule, Sampling, Structure
from support.matrix_distributions import EOS, LETTERS, VOCAB, Text, tokenizer
from support.matrix_targets import ARCHITECTURES, CONTEXT, HEADS, LLAMA, WIDTH, Architecture
from support.scripted_worker import scripted
from support.timeless import CHEAP, timeless

SLOTS = 40
"""Requests at a time, in the ragged batch."""
ALARM = 3e-7
"""p-values below this are faults. A run without any makes about 2,600: one of them is below it once in 1,300 runs."""
RULES: tuple[Rule, ...] = ("exact", "coupled")
PROMPTS: tuple[Text, ...] = (
    (4, 7, 4),
    (1, 3, 2, 1, 3),
    (0, 5, 6, 0, 5, 6, 0),
    (1, 3, 7, 3, 2, 1, 3, 7, 6, 3),
    (2, 2, 4, 1, 7, 4, 1, 6, 0, 4, 1, 7, 5, 4, 1),
)
"""Of five lengths; they repeat themselves, so that those who copy have something to say."""


# -- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A column. variants: requests take turns with them. stops: texts may end early here, so some must end within an
    accepted block. adaptive: pacing decides how much is drafted; else every step drafts what the row says."""

    name: str
    variants: tuple[Sampling, ...]
    stops: bool = False
    adaptive: bool = False

    @property
    def greedy(self) -> bool:
        return all(sampling.greedy for sampling in self.variants)


def _warm(**options: Any) -> Sampling:
    return Sampling(**{"max_tokens": 6, "temperature": 1.0, "ignore_eos": True, **options})


def _greedy(**options: Any) -> Sampling:
    return Sampling(**{"max_tokens": 14, "ignore_eos": True, **options})


_BIAS = {1: 1.0, 4: -1.5, 6: -100.0}

_STRUCTURES = (
    Structure("regex", "(ab?cde|[d-g]a|fg+b?){2,9}"),
    Structure("regex", "([a-c]d|ef?g)+", after=(6, 3), thinking=2),
)
"""Of the second, what is free ends in the middle of most texts, with "gd", if need be after two tokens."""

SETTINGS = (
    Setting(
        "greedy",
        (
            _greedy(),
            _greedy(repetition_penalty=1.3),
            _greedy(frequency_penalty=0.8, presence_penalty=0.4),
            _greedy(logit_bias=_BIAS),
            _greedy(stop=("ca", "f")),
            _greedy(ignore_eos=False, min_tokens=2, frequency_penalty=0.8),
        ),
    ),
    Setting("T=1", (_warm(),)),
    Setting("T=0.7, top-p 0.9", (_warm(temperature=0.7, top_p=0.9),)),
    Setting("min-p", (_warm(temperature=1.2, min_p=0.08),)),
    Setting("penalties", (_warm(repetition_penalty=1.4, presence_penalty=0.9, frequency_penalty=0.6),)),
    Setting("logit bias", (_warm(logit_bias=_BIAS),)),
    Setting("stop strings", (_warm(stop=("ca", "f")),), stops=True),
    Setting(
        "logprobs",
        (
            _warm(temperature=0.8, top_k=5, logprobs=2, logprobs_mode="raw"),
            _warm(temperature=0.8, top_k=5, logprobs=8, logprobs_mode="processed"),
        ),
    ),
    Setting(
        "EOS in a block",
        (_warm(ignore_eos=False, logit_bias={EOS: 0.5}), _warm(ignore_eos=False, logit_bias={EOS: 1.0}, min_tokens=2)),
        stops=True,
    ),
    Setting("greedy, grammar", tuple(_greedy(ignore_eos=False, structure=each) for each in _STRUCTURES)),
    Setting("T=1, grammar", tuple(_warm(ignore_eos=False, structure=each) for each in _STRUCTURES)),
    Setting("greedy, adaptive pacing", (_greedy(max_tokens=24), _greedy(repetition_penalty=1.3)), adaptive=True),
    Setting("T=1, adaptive pacing", (_warm(),), adaptive=True),
)

ACROSS = (
    Setting("greedy, any architecture", (_greedy(), _greedy(max_tokens=20, frequency_penalty=0.8))),
    Setting("T=1, any architecture", (_warm(),)),
)
"""Of every architecture: greedy texts, some of them kept from repeating one token; then sampled ones, of those where
distributions are looked at. What else a request may ask for is done with logits, whatever they come from."""


# -- rows -------------------------------------------------------------------------------------------------------------


class Workshop:
    """The tiny target and what drafters for it are made of, in a directory.

    target: its runner, shared by all engines. path: its checkpoint. keeps_texts: whether engines have a prefix cache.
    device: where all of it runs; what is expected is computed on the CPU. architecture: the target's.
    """

    keeps_texts = False

    def __init__(self, root: Path, device: str = "cpu", architecture: Architecture = LLAMA) -> None:
        self._root = root
        self.device = device
        self._architecture = architecture
        root.mkdir(exist_ok=True)
        self.path = self.checkpoint()
        plain = hs.load(self.path, "none", dtype="float32", max_length=CONTEXT, max_batch_size=1, device=device)
        self.target, self.tokenizer, self.eos = plain.target, plain.tokenizer, plain.eos_token_ids
        assert self.eos == {EOS}, "the target's config names its EOS"
        self.width = int(self.target.config.hidden_size)
        self.slots = 1

    def engine(self, entry: Entry, rule: EngineRule, slots: int, *, adaptive: bool = False) -> hs.Engine:
        """A new engine for so many requests at a time. It drafts what the entry says in every step, or as pacing
        decides."""
        self.slots = slots
        drafter = entry.make(self) if entry.make is not None else None
        return assemble(
            self.target,
            self.tokenizer,
            drafter,
            rule=rule,
            pacing=timeless(drafter, 1e-7, min(entry.nodes, 8), CHEAP) if adaptive and drafter is not None else None,
            num_speculative_tokens=entry.nodes,
            max_batch_size=slots,
            eos_token_ids=self.eos,
            prefix_cache=self.keeps_texts,
        )

    def checkpoint(self, *, near: bool = False) -> str:
        """The target, or one that is slightly off."""
        path = self._root / ("near" if near else "target")
        if not path.exists():
            made = self._architecture.model()
            if near:
                for matrix in (parameter.data for parameter in made.parameters() if parameter.dim() > 1):
                    matrix += self._architecture.noise * torch.randn_like(matrix)
            made.save_pretrained(path)
            tokenizer(tuple(LETTERS)).save_pretrained(path)
        return str(path)

    @cache  # noqa: B019 -- a workshop lives as long as the tests
    def runner(self, path: str) -> ModelRunner:
        made = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(self.device)
        return ModelRunner(adopt(made), max_length=CONTEXT)

    def draft(self, **options: Any) -> DraftModel:
        """A draft LM that is nearly the target."""
        runner = self.runner(self.checkpoint(near=True))
        return DraftModel(runner, name="draft", vocab_size=VOCAB, slots=self.slots, **options)

    def self_int4(self, **options: Any) -> DraftModel:
        """The target itself with its weights on 4 bits, as many as go into groups, where products for them can run."""
        options = {"copy": True, **options}
        return DraftModel(self._rounded(), name="self-int4", vocab_size=VOCAB, slots=self.slots, **options)

    @cache  # noqa: B019
    def _rounded(self) -> ModelRunner:
        made = AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32).to(self.device)
        quantize = "int4" if int4.can_run(torch.device(self.device)) else None
        return ModelRunner(adopt(made), max_length=CONTEXT, quantize=quantize)

    def stacked(
        self, model: ModelRunner, drafter: Drafter, name: str = "stack", *, copy: bool = False
    ) -> StackedDrafter:
        """A draft LM for which another drafter guesses, three tokens or nodes in each of its steps."""
        cache = model.new_cache(self.slots)
        inner = drafter if isinstance(drafter, Cascade) else Cascade([drafter])
        attach(inner, model, cache)
        return StackedDrafter(model, cache, inner, FixedPacing(3), name=name, vocab_size=VOCAB, copy=copy)

    def near(self) -> ModelRunner:
        return self.runner(self.checkpoint(near=True))

    def deep(self) -> StackedDrafter:
        """The 4-bit copy, for which a draft LM guesses, for which a list guesses: n-gram and the 4-bit copy."""
        middle = self.stacked(self.near(), Cascade([NgramDrafter(shortest=2), self.self_int4(copy=False)]), "middle")
        return self.stacked(self._rounded(), middle)

    def parallel(self, **options: Any) -> ParallelDraft:
        """The same with a mask token, which it was not trained with: the later guesses are poor."""
        runner = self.runner(self.checkpoint(near=True))
        return ParallelDraft(runner, name="parallel", mask=5, vocab_size=VOCAB, slots=self.slots, **options)

    def ahead(self, **options: Any) -> AheadDrafter:
        """The same ahead of the target: some drafts are ready, in part or whole, and others are not."""
        how = Ahead(self.draft(**options), branches=3, always=True, partial=True)
        return AheadDrafter(how, scripted((2, 0, 3, 1, 4)))

    def translated(self, way: Any) -> TranslatedDraft:
        """The same of ten tokens, of which eight write what the target's do, in another order."""
        words = (*reversed(LETTERS), "ab", "ca")
        path = self._root / "other-tokenizer"
        if not path.exists():
            near = AutoModelForCausalLM.from_pretrained(self.checkpoint(near=True))
            last = torch.tensor([LETTERS.index(word[-1]) for word in words])
            by_token = [near.get_output_embeddings(), *(x for x in near.modules() if isinstance(x, torch.nn.Embedding))]
            for weight in {id(x.weight): x.weight for x in by_token if len(x.weight) == VOCAB}.values():
                weight.data = weight.data[last]
            for name in ("vocab_size", "vocab_size_per_layer_input"):
                if hasattr(near.config, name):
                    setattr(near.config, name, len(words))
            near.save_pretrained(path)
            tokenizer(words).save_pretrained(path)
        return TranslatedDraft(
            self.runner(str(path)), name="other tokenizer", vocab_size=VOCAB, slots=self.slots,
            target_tokenizer=self.tokenizer, draft_tokenizer=tf.AutoTokenizer.from_pretrained(path), method=way,
        )  # fmt: skip

    def exit(self, **options: Any) -> TrainedExitDrafter:
        """The target's own way out, slightly off, that knows seven of the eight tokens."""
        width = self.width
        off = torch.eye(width) + 0.1 * torch.randn(width, width, generator=torch.Generator().manual_seed(4))
        made = Exit(1, torch.ones(width), off, torch.tensor([0, 1, 2, 3, 4, 5, 7]))
        head = AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32).get_output_embeddings()
        return TrainedExitDrafter(made, head.weight.detach().to(self.device), **options)

    def medusa(self) -> MedusaDrafter:
        folder = self._root / "medusa"
        if not folder.exists():
            generator, width = torch.Generator().manual_seed(4), self.width
            tensors = {}
            for head in range(3):
                tensors[f"{head}.0.linear.weight"] = 0.3 * torch.randn(width, width, generator=generator)
                tensors[f"{head}.0.linear.bias"] = 0.3 * torch.randn(width, generator=generator)
                tensors[f"{head}.1.weight"] = 0.5 * torch.randn(VOCAB, width, generator=generator)
            self.folder("medusa", tensors, {"medusa_num_heads": 3, "medusa_num_layers": 1})
        return MedusaDrafter.load(folder, self.target)

    def eagle(self, version: int, tree: Any) -> EagleDrafter:
        folder = self._root / f"eagle-{version}"
        if not folder.exists():
            self.folder(folder.name, *_eagle(version, self.width))
        return EagleDrafter.load(folder, self.target, target_folder=self.path, slots=self.slots, tree=tree)

    def peagle(self, tree: Any, *, rank: int = 0) -> EagleDrafter:
        folder = self._root / f"peagle-{rank}"
        if not folder.exists():
            self.folder(folder.name, *_parallel(rank, self.width))
        return EagleDrafter.load(folder, self.target, target_folder=self.path, slots=self.slots, tree=tree)

    def dflash(self, tree: Any, *, kind: str | None = None) -> DFlashDrafter:
        folder = self._root / f"dflash-{kind}"
        if not folder.exists():
            self.folder(folder.name, *_block(kind, self.width))
        return DFlashDrafter.load(folder, self.target, target_folder=self.path, slots=self.slots, tree=tree)

    def folder(self, name: str, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> Path:
        """A checkpoint of a head."""
        folder = self._root / name
        folder.mkdir()
        save_file(dict(tensors), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def listed(self) -> Cascade:
        return Cascade([NgramDrafter(shortest=2), self.draft()])


@cache
def _index() -> TextIndex:
    """Of a text in which most strings of four tokens are: it is often copied from, and sometimes right."""
    return TextIndex.of([torch.randint(VOCAB, (8000,), generator=torch.Generator().manual_seed(5)).tolist()])


def _eagle(version: int, width: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A random EAGLE head; that of version 3 knows six of the eight tokens."""
    generator = torch.Generator().manual_seed(version)

    def normal(*shape: int) -> torch.Tensor:
        return 0.35 * torch.randn(*shape, generator=generator)

    third = version == 3
    into, prefix = (2 * width, "midlayer.") if third else (width, "layers.0.")
    tensors = {"fc.weight": normal(width, (3 if third else 2) * width)}
    for name, shape in {
        "self_attn.q_proj": (width, into), "self_attn.k_proj": (width // 2, into),
        "self_attn.v_proj": (width // 2, into), "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (2 * width, width), "mlp.up_proj": (2 * width, width), "mlp.down_proj": (width, 2 * width),
    }.items():  # fmt: skip
        tensors[f"{prefix}{name}.weight"] = normal(*shape)
    tensors[f"{prefix}post_attention_layernorm.weight"] = torch.ones(width)
    config: dict[str, Any] = {
        "hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": HEADS, "num_hidden_layers": 1,
        "num_key_value_heads": 1, "vocab_size": VOCAB, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6,
        "architectures": ["LlamaForCausalLMEagle3" if third else "LlamaForCausalLMEagle"],
    }  # fmt: skip
    if third:
        tensors |= {f"{prefix}{name}.weight": torch.ones(width) for name in ("hidden_norm", "input_layernorm")}
        known = torch.tensor([0, 1, 2, 4, 5, 7])
        marked = torch.zeros(VOCAB, dtype=torch.bool)
        marked[known] = True
        tensors |= {
            "norm.weight": torch.ones(width), "lm_head.weight": normal(len(known), width),
            "d2t": known - torch.arange(len(known)), "t2d": marked,
        }  # fmt: skip
        config["draft_vocab_size"] = len(known)
    return tensors, config


def _parallel(rank: int, width: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The same of two layers that guesses all tokens at once; with a rank, a selector among four candidates."""
    tensors, config = _eagle(3, width)
    generator = torch.Generator().manual_seed(14)  # its trees meet many ends within accepted blocks

    def normal(*shape: int) -> torch.Tensor:
        return 0.35 * torch.randn(*shape, generator=generator)

    for name in [name for name in tensors if name.startswith("midlayer.")]:
        out, *into = tensors[name].shape
        if "hidden_norm" not in name:
            plain = [width] if into == [2 * width] and "down_proj" not in name else into
            tensors[name.replace("midlayer", "layers.1")] = normal(out, *plain) if into else torch.ones(out)
    tensors["mask_hidden"] = normal(1, 1, 3 * width)
    config |= {"num_hidden_layers": 2, "mask_token_id": 3}
    if rank:
        selector = {"predecessor_codebook": (VOCAB, rank), "successor_codebook": (6, rank)}
        selector["hidden_projection.weight"] = (rank, width)
        tensors |= {f"candidate_selector.{name}": 3 * normal(*shape) for name, shape in selector.items()}
        config |= {"selector_rank": rank, "selector_top_k": 4}
    return tensors, config


def _block(kind: str | None, width: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A random DFlash head; with a kind of Markov head, DSpark's. It knows six of the eight tokens."""
    generator = torch.Generator().manual_seed(21)

    def normal(*shape: int) -> torch.Tensor:
        return 0.35 * torch.randn(*shape, generator=generator)

    third, config = _eagle(3, width)
    tensors = {name: third[name] for name in ("norm.weight", "lm_head.weight", "d2t", "t2d")}
    tensors |= {"fc.weight": normal(width, 2 * width), "hidden_norm.weight": torch.ones(width)}
    for layer in range(2):
        for name in [name for name in third if name.startswith("midlayer.") and "hidden_norm" not in name]:
            out, *into = third[name].shape
            plain = [width] if into == [2 * width] and "down_proj" not in name else into
            stored = name.replace("midlayer", f"layers.{layer}")
            tensors[stored] = normal(out, *plain) if into else torch.ones(out)
        for name in ("q_norm", "k_norm"):
            tensors[f"layers.{layer}.self_attn.{name}.weight"] = torch.ones(width // HEADS)
    config |= {
        "architectures": ["DFlashSpeculator"], "speculators_model_type": "dflash", "num_hidden_layers": 2,
        "block_size": 5, "mask_token_id": 3, "aux_hidden_state_layer_ids": [1, 2],
    }  # fmt: skip
    if kind is not None:
        rank = 3
        tensors["markov_head.markov_w1.weight"] = 4 * normal(VOCAB, rank)
        tensors["markov_head.markov_w2.weight"] = 4 * normal(6, rank)
        if kind == "rnn":
            tensors["markov_head.joint_proj.weight"] = normal(3 * rank, 2 * rank + width)
            tensors["markov_head.joint_proj.bias"] = normal(3 * rank)
        config |= {"speculators_model_type": "dspark", "markov_rank": rank, "markov_head_type": kind}
        config |= {"sample_from_anchor": True}
    return tensors, config


@dataclass(frozen=True)
class Entry:
    """A row. make: builds the drafter; None is plain decoding. nodes: of its drafts. longer: tokens by which its
    sampled texts are longer, where it needs a few steps to have something to say; there are fewer of them then, by
    `share`. predicted: its requests bring a prediction. seeds: requests of a cell for each prompt, as many as the wrong
    rules of `test_matrix` are found with; more where few of them end within a block. quick: whether it is in the fast
    suite, with a third of the settings."""

    name: str
    make: Callable[[Workshop], Drafter] | None
    nodes: int = 3
    longer: int = 0
    share: float = 1.0
    predicted: bool = False
    seeds: int = 16
    quick: bool = True

    @property
    def native(self) -> bool:
        """Whether the target must run on headstart's own decoders: to be left early, or on 4 bits."""
        return "exit" in self.name or "4-bit" in self.name

    def drafting(self, prompt: Text) -> Drafting:
        """A prediction that is right at times: what follows in the prompt's own manner."""
        return Drafting(prediction=(*prompt, *prompt[1:], *prompt[2:], *prompt) if self.predicted else ())

    def sampling(self, sampling: Sampling, seed: int) -> Sampling:
        more = 0 if sampling.greedy else self.longer
        return replace(sampling, seed=seed, max_tokens=sampling.max_tokens + more)


ENTRIES = (
    Entry("none", None, quick=False),
    Entry("n-gram", lambda _: NgramDrafter()),
    Entry("predicted output", lambda _: PredictionDrafter(), predicted=True, seeds=32, quick=False),
    Entry("suffix, chain", lambda _: SuffixDrafter(), quick=False),
    Entry("suffix, chain, past outputs", lambda _: SuffixDrafter(store=SuffixStore()), quick=False),
    Entry("n-gram, an index", lambda _: NgramDrafter(longest=5, shortest=3, index=_index()), quick=False),
    Entry("early exit, chain", lambda _: EarlyExitDrafter(layer=1), quick=False),
    Entry("early exit, tree top-k", lambda _: EarlyExitDrafter(layer=1, tree="top-k"), nodes=6, quick=False),
    Entry("early exit, tree sampled", lambda _: EarlyExitDrafter(layer=1, tree="sampled"), nodes=6, quick=False),
    Entry("trained exit, chain", lambda shop: shop.exit(), quick=False),
    Entry("trained exit, tree sampled", lambda shop: shop.exit(tree="sampled"), nodes=6, quick=False),
    Entry("lookahead", lambda _: LookaheadDrafter(), nodes=12, longer=6, share=0.7, quick=False),
    Entry("draft LM, chain", lambda shop: shop.draft()),
    Entry("draft LM, tree top-k", lambda shop: shop.draft(tree="top-k"), nodes=6, quick=False),
    Entry("draft LM, tree sampled", lambda shop: shop.draft(tree="sampled"), nodes=6),
    Entry("the target's own 4-bit copy, chain", lambda shop: shop.self_int4(), seeds=32, quick=False),
    Entry(
        "the target's own 4-bit copy, tree sampled",
        lambda shop: shop.self_int4(tree="sampled"),
        nodes=6,
        seeds=32,
        quick=False,
    ),
    Entry("stack: draft LM (n-gram)", lambda shop: shop.stacked(shop.near(), NgramDrafter())),
    Entry(
        "stack: 4-bit copy (draft LM, chain)",
        lambda shop: shop.stacked(shop._rounded(), shop.draft(), copy=True),
        seeds=32,
    ),
    Entry(
        "stack: draft LM (4-bit copy, tree sampled)",
        lambda shop: shop.stacked(shop.near(), shop.self_int4(tree="sampled", copy=False)),
        quick=False,
    ),
    Entry(
        "stack: 4-bit copy (draft LM (n-gram, 4-bit copy))", lambda shop: shop.deep(), nodes=4, seeds=32, quick=False
    ),
    Entry("parallel draft LM, chain", lambda shop: shop.parallel(), quick=False),
    Entry("parallel draft LM, tree top-k", lambda shop: shop.parallel(tree="top-k"), nodes=6, quick=False),
    Entry("parallel draft LM, tree sampled", lambda shop: shop.parallel(tree="sampled"), nodes=6, quick=False),
    Entry("draft LM ahead, chain", lambda shop: shop.ahead(), quick=False),
    Entry("draft LM ahead, tree sampled", lambda shop: shop.ahead(tree="sampled"), nodes=6, quick=False),
    Entry("other tokenizer, shared tokens", lambda shop: shop.translated("intersection"), quick=False),
    Entry("other tokenizer, through text", lambda shop: shop.translated("text")),
    Entry("Medusa", lambda shop: shop.medusa(), nodes=8, quick=False),
    Entry("EAGLE-1, chain", lambda shop: shop.eagle(1, "none"), quick=False),
    Entry("EAGLE-1, tree sampled", lambda shop: shop.eagle(1, "sampled"), nodes=8, quick=False),
    Entry("EAGLE-2, dynamic tree", lambda shop: shop.eagle(1, "top-k"), nodes=8, seeds=32, quick=False),
    Entry("EAGLE-3, chain", lambda shop: shop.eagle(3, "none"), quick=False),
    Entry("EAGLE-3, dynamic tree", lambda shop: shop.eagle(3, "top-k"), nodes=8),
    Entry("EAGLE-3, tree sampled", lambda shop: shop.eagle(3, "sampled"), nodes=8, quick=False),
    Entry("P-EAGLE, chain", lambda shop: shop.peagle("none"), seeds=32, quick=False),
    Entry("P-EAGLE, dynamic tree", lambda shop: shop.peagle("top-k"), nodes=8, seeds=32, quick=False),
    Entry("P-EAGLE with a selector, chain", lambda shop: shop.peagle("none", rank=3), seeds=32, quick=False),
    Entry(
        "P-EAGLE with a selector, dynamic tree",
        lambda shop: shop.peagle("top-k", rank=3),
        nodes=8,
        seeds=32,
        quick=False,
    ),
    Entry(
        "P-EAGLE with a selector, tree sampled",
        lambda shop: shop.peagle("sampled", rank=3),
        nodes=8,
        seeds=32,
        quick=False,
    ),
    Entry("DFlash, chain", lambda shop: shop.dflash("none"), seeds=32, quick=False),
    Entry("DFlash, dynamic tree", lambda shop: shop.dflash("top-k"), nodes=8, seeds=32, quick=False),
    Entry("DSpark, chain", lambda shop: shop.dflash("none", kind="vanilla"), seeds=32, quick=False),
    Entry("DSpark, dynamic tree", lambda shop: shop.dflash("top-k", kind="rnn"), nodes=8, seeds=32, quick=False),
    Entry("DSpark, tree sampled", lambda shop: shop.dflash("sampled", kind="rnn"), nodes=8, seeds=32, quick=False),
    Entry("list, best of", lambda shop: shop.listed()),
)


# -- what is refused --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """Something that would not be exact, or cannot be done. attempt: must raise `error`, and its message hold
    `reason`."""

    what: str
    error: type[hs.errors.HeadstartError]
    reason: str
    attempt: Callable[[Workshop], object]


def _lossy_head(shop: Workshop) -> object:
    tensors, config = _eagle(3, WIDTH)
    method = {"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 3}
    folder = shop.folder("lossy", tensors, {**config, "speculators_config": {"proposal_methods": [method]}})
    return EagleDrafter.load(folder, shop.target, target_folder=shop.path, slots=1)


def _head_of_another(shop: Workshop) -> object:
    tensors, config = _eagle(1, WIDTH)
    folder = shop.folder("another", tensors, {**config, "vocab_size": 2 * VOCAB})
    return EagleDrafter.load(folder, shop.target, target_folder=shop.path, slots=1)


def _left_early(shop: Workshop) -> object:
    config = tf.PersimmonConfig(  # of which there is no recipe
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=CONTEXT,
    )  # fmt: skip
    runner = ModelRunner(adopt(AutoModelForCausalLM.from_config(config)), max_length=CONTEXT)
    return assemble(runner, drafter=EarlyExitDrafter(layer=1))


def _spelled_otherwise(shop: Workshop) -> object:
    wordpiece = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    wordpiece.decoder = decoders.WordPiece()
    return TranslatedDraft(
        shop.target, name="wordpiece", vocab_size=VOCAB, slots=1,
        target_tokenizer=shop.tokenizer, draft_tokenizer=PreTrainedTokenizerFast(tokenizer_object=wordpiece),
    )  # fmt: skip


REFUSALS = (
    Refusal(
        'rule="typical", or any other that is not exact',
        hs.errors.InvalidOption,
        "rule='typical' does not exist",
        lambda shop: assemble(shop.target, rule="typical"),  # type: ignore[arg-type]
    ),
    Refusal(
        "a head whose checkpoint asks for lossy acceptance",
        hs.errors.UnsupportedModel,
        "lossy verification",
        _lossy_head,
    ),
    Refusal("a head of another target", hs.errors.UnsupportedModel, "made for another target", _head_of_another),
    Refusal(
        "early exit from an architecture that runs through transformers' own modules",
        hs.errors.UnsupportedModel,
        "cannot be left early",
        _left_early,
    ),
    Refusal(
        "a draft LM whose tokens cannot be written as bytes",
        hs.errors.IncompatibleTokenizer,
        "cannot be written as bytes",
        _spelled_otherwise,
    ),
    Refusal(
        "stop strings for a model without tokenizer",
        hs.errors.InvalidOption,
        "stop strings need a tokenizer",
        lambda shop: assemble(shop.target).generate([1], Sampling(stop=("a",))),
    ),
)


# -- the table --------------------------------------------------------------------------------------------------------

COMMAND = "python -m pytest -n 2 tests/engine/test_matrix.py"
WRITER = "python tools/exactness_matrix.py"

_PAGE = """\
# The exactness matrix

headstart writes the text that the target alone would write, with every drafter, under both rules, with every sampling
parameter, and in both batch shapes. Each cell of the tables below is a test. The tests run in float32 with

    {command}

`{writer}` writes this page from `tests/support/matrix_cells.py`.
A test fails if the page is not up to date.

- **identity**: greedy texts equal those of transformers' `generate`, token for token: plain, and with penalties, bias,
  stop strings, EOS and `min_tokens`.
- **distribution**: every sampled token is compared with its own distribution, which transformers' forward and
  processors compute from the text before it. (Presence and frequency penalties, which transformers does not have, are
  computed separately.) Chi-square tests group the tokens by context, by rank, by what a copy of the text would write,
  by the token before, and by what the drafter favoured. A cell fails at p < 3·10⁻⁷, or if a token of probability 0 ever
  comes.
- **ends**: each text also ends exactly where it must, with the right reason and the right text. This has to happen in
  the middle of an accepted block too.
- **values**: log-probabilities, raw and processed, are also those of transformers.

Each test runs a ragged batch of up to {slots} requests, with prompts of {lengths} tokens and all settings
mixed. It then runs the requests one at a time, and the same seeds must give the same tokens. In every cell some guesses
of the drafter were accepted and some rejected. The last two columns run under adaptive pacing, the default of
`headstart.load`; in the others every step drafts as much as it can.

The tests are tested too. Wrong rules that engines have had are planted and must be found: resampling from p, typical
acceptance, penalties that do not see the draft, ends overlooked in a block, and others.

{tables}## Rule "auto"

Under the default rule a request with a seed is judged by "coupled" and one without by "exact". Both kinds come in turns
in the same batches here, and each cell is tested as in the tables above. The settings are {mixed}.
The drafters are {quick}.

## Every architecture

The target in the tables above is a tiny Llama. Each drafter is also tested with each of the targets below, in both
batch shapes, and under one of the two rules in turn. The texts are greedy, plain and with a frequency penalty; if the
last column says *distribution*, they are also sampled at temperature 1. Draft models have the target's own
architecture. All targets but the last run on headstart's own decoders. Attention windows have 7 or 8 tokens, rotations
are scaled from 16, and the longest texts have 35 tokens.

| Architecture | What is special about it | Drafters | What is tested |
| --- | --- | --- | --- |
{architectures}

## Refused

No cell is empty. A combination that is not in the tables, because it would not be exact or is not possible, raises a
typed error with the reason. These errors are tested as well.

| What | Error | Its message says |
| --- | --- | --- |
{refusals}
"""


MIXED = ("greedy", "T=1", "penalties", "EOS in a block", "T=1, adaptive pacing")
"""Settings whose requests run under rule "auto", too."""


def table() -> str:
    """The page."""
    lengths = ", ".join(str(len(prompt)) for prompt in PROMPTS[:-1]) + f" and {len(PROMPTS[-1])}"
    tables = ""
    for rule in RULES:
        header = " | ".join(("drafter", *(setting.name for setting in SETTINGS)))
        tables += f'## Rule "{rule}"\n\n| {header} |\n| --- |{" :---: |" * len(SETTINGS)}\n'
        for entry in ENTRIES:
            cells = " | ".join(f"✓ {_how(setting)}" for setting in SETTINGS)
            tables += f"| {entry.name} | {cells} |\n"
        tables += "\n"
    refusals = "\n".join(f"| {each.what} | `{each.error.__name__}` | ... {each.reason} ... |" for each in REFUSALS)
    return _PAGE.format(
        command=COMMAND,
        writer=WRITER,
        slots=SLOTS,
        lengths=lengths,
        tables=tables,
        mixed=", ".join(f'"{name}"' for name in MIXED),
        quick=", ".join(f'"{entry.name}"' for entry in ENTRIES if entry.quick),
        architectures="\n".join(map(_row, ARCHITECTURES)),
        refusals=refusals,
    )


def _row(architecture: Architecture) -> str:
    """What is found of an architecture, and with how many drafters."""
    count = sum(architecture.native or not entry.native for entry in ENTRIES)
    found = "identity, distribution" if architecture.sampled else "identity"
    return f"| `{architecture.name}` | {architecture.what} | {count} of {len(ENTRIES)} | ✓ {found} |"


def _how(setting: Setting) -> str:
    if setting.greedy:
        return "identity"
    if setting.stops:
        return "distribution, ends"
    return "distribution, values" if any(sampling.logprobs for sampling in setting.variants) else "distribution"
