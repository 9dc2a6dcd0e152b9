"""From what is exported to the `Case` that preflight's rules look at: configs and tokenizers are read, nothing runs."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from headstart.drafters.draft_model import mask_token
from headstart.fleet.export.gguf_drafter import read_drafter
from headstart.fleet.export.manifest import EngineName
from headstart.fleet.export.options import ExportOptions
from headstart.fleet.export.preflight import Case, Head
from headstart.fleet.export.subject import Subject
from headstart.model import loading
from headstart.model.heads import eagle_checkpoint
from headstart.model.heads.gguf_heads import without_form
from headstart.model.heads.medusa import read_heads
from headstart.model.loading import fetch
from headstart.model.tokens.tokenizers import differences, load_tokenizer

PROCESSORS = "vllm.logits_processors"
"""The group of entry points that vLLM loads logits processors from, except while it speculates."""


def case_of(
    subject: Subject,
    options: ExportOptions,
    *,
    target_at: str,
    drafter_at: str | None,
    processors: tuple[str, ...] | None = None,
) -> Case:
    """processors: those of the engine's environment; None looks into this one.

    Raises:
        UnsupportedModel (PickleCheckpoint), ModelNotFound: a head that cannot be read, or is damaged; a draft model's
            mask token that is none.
    """
    target = subject.target
    return Case(
        engine=options.engine,
        kind=subject.drafter.kind,
        architectures=target.architectures,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        layers=target.layers,
        target_at=target_at,
        drafter_at=drafter_at,
        context=options.max_model_len or loading.context_limit(target.config),
        head=_head(subject, options.engine),
        depth=options.num_speculative_tokens,
        dynamic=options.dynamic,
        costs_known=options.costs is not None,
        cpu=options.cpu,
        settings=dict(options.settings),
        processors=processors_here() if processors is None else processors,
        **_draft(subject),
    )


def processors_here() -> tuple[str, ...]:
    """Names of the logits processors that packages of this environment offer to vLLM."""
    return tuple(sorted(point.name for point in entry_points(group=PROCESSORS)))


def _head(subject: Subject, engine: EngineName) -> Head:
    drafter, target = subject.drafter, subject.target
    if engine == "llama.cpp":
        head = read_drafter(drafter, target.config)
        sizes, guesses = head.config, getattr(head.config, "guesses", 0)
        windows = any(getattr(sizes, "windows", ()))
        return Head(
            sizes.target_width,
            sizes.vocab_size,
            sizes.layer_ids,
            without_form=without_form(head),
            guesses=guesses,
            windows=windows,
        )
    if drafter.kind == "eagle3":
        config = eagle_checkpoint.read(fetch(drafter.source), target.config).config
        third = config.version == eagle_checkpoint.EAGLE3
        return Head(
            config.target_width,
            config.vocab_size,
            config.layer_ids,
            config.norm_before_residual,
            third,
            layers=config.layers,
            parallel=config.parallel,
            width=config.width,
            norms=tuple(name for name in ("norm_before_fc", "fc_norm") if getattr(config, name)),
            selector=config.selector_rank > 0,
        )
    if drafter.kind == "medusa":
        heads = read_heads(fetch(drafter.source))
        vocab_size, width = heads[0].output.shape
        return Head(width, vocab_size, count=len(heads))
    return Head()


def _draft(subject: Subject) -> dict[str, Any]:
    """A draft model's facts, as fields of `Case`; none for other drafters."""
    if subject.drafter.kind != "draft_model":
        return {}
    config = loading.load_config(subject.drafter.source, trust_remote_code=False)
    ours, theirs = (load_tokenizer(each.source, trust_remote_code=False) for each in (subject.target, subject.drafter))
    return {
        "draft_vocab": int(config.get_text_config().vocab_size),
        "draft_context": loading.context_limit(config),
        "draft_parallel": mask_token(config) is not None,
        "differences": () if ours is None or theirs is None else differences(ours, theirs),
    }
