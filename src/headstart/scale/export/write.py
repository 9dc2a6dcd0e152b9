"""`export`: find target and drafter, check, measure, choose K, and write the folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headstart.insight.provenance import Provenance
from headstart.insight.samples import sample_prompts
from headstart.prompt_sets import PromptItem, read_prompt_set
from headstart.scale.export import depth, drafter_folder, vllm_file
from headstart.scale.export.expected import Bench, Measurement, Prompts, expected
from headstart.scale.export.folder import hashes, whole_folder
from headstart.scale.export.manifest import NAME, DrafterRecord, Expected, Manifest, TargetRecord
from headstart.scale.export.options import ExportOptions
from headstart.scale.export.subject import Subject, find
from headstart.types import Sampling

Progress = Callable[[str, float], None]
"""Told what is being done, and which share of it is done."""
SAMPLES = "sample prompts"


@dataclass(frozen=True, slots=True)
class Places:
    """Where things lie on the serving machine. drafter: None where nothing is loaded."""

    target: str
    drafter: str | None
    folder: str


def export(
    target: str, drafter: str, out: Path, options: ExportOptions, *, force: bool = False, progress: Progress
) -> Manifest:
    """Write the folder, and return its manifest.

    Raises:
        ExportRefused: an engine would load it and run it wrong.
        InvalidOption: the folder is not empty, or an option does not fit.
        HeadstartError: what loading or measuring raises.
    """
    out = out.expanduser().absolute()
    with whole_folder(out, force=force) as fresh:
        progress("reading configs", 0.0)
        subject = find(target, drafter)
        return _Export(subject, fresh, out, options, progress).write()


class _Export:
    """One export under way. fresh: the folder that is written; out: what it will be called."""

    def __init__(self, subject: Subject, fresh: Path, out: Path, options: ExportOptions, progress: Progress) -> None:
        self._subject, self._fresh, self._out = subject, fresh, out
        self._options, self._progress = options, progress
        self._warnings: list[str] = []
        self._sampling = Sampling(max_tokens=options.max_tokens, temperature=options.temperature)

    def write(self) -> Manifest:
        subject, options = self._subject, self._options
        layer_ids = None
        folder = self._fresh / drafter_folder.NAME
        if subject.drafter.local is not None or subject.drafter.kind in ("eagle3", "medusa"):
            self._progress("writing the drafter", 0.0)
            layer_ids = drafter_folder.write_drafter(folder, subject)
        promised, plan, costs = self._measured(folder)
        manifest = Manifest(
            engine=options.engine,
            **_provenance(),
            target=self._target_record(),
            drafter=DrafterRecord(
                kind=subject.drafter.kind,
                folder=drafter_folder.NAME if folder.is_dir() else None,
                origin=subject.drafter.asked,
                sha256=hashes(folder) if folder.is_dir() else {},
                layer_ids=layer_ids,
            ),
            depth=plan.depth,
            expected=promised,
            depth_by_batch=plan.by_batch,
            off_from=plan.off_from,
            costs=costs.record(),
            tested={"vllm": vllm_file.TESTED},
            warnings=tuple(self._warnings),
        )
        self._write_files(manifest)
        return manifest

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _measured(self, folder: Path) -> tuple[Expected | None, depth.Plan, depth.Costs]:
        subject, options = self._subject, self._options
        fixed = options.num_speculative_tokens
        kind = subject.drafter.kind
        costs = depth.assumed(kind) if options.costs is None else depth.read_costs(options.costs, kind, "")
        if not options.measure:
            return None, depth.plan((), costs, longest=1, batch=options.batch, fixed=fixed or 3), costs
        self._progress(f"loading {subject.target.asked}", 0.0)
        taken = str(folder) if folder.is_dir() else subject.drafter.source or kind
        bench = Bench(subject.target.source, kind, taken, options.dtype, self._sampling)
        prompts = bench.prompts(*self._items())
        longest = fixed or bench.longest
        found = self._complete(bench, prompts, longest)
        plan = depth.plan(found.acceptance(), costs, longest=longest, batch=options.batch, fixed=fixed)
        if plan.depth != longest:
            found = self._complete(bench, prompts, plan.depth)
        (self._fresh / "prompts.jsonl").write_text(prompts.lines(), encoding="utf-8")
        return expected(prompts, found, self._sampling), plan, costs

    def _items(self) -> tuple[Sequence[PromptItem], str]:
        options = self._options
        if options.prompts is None:
            return sample_prompts()[: options.limit], SAMPLES
        return read_prompt_set(options.prompts)[: options.limit], str(options.prompts)

    def _complete(self, bench: Bench, prompts: Prompts, k: int) -> Measurement:
        def tick(done: int, count: int) -> None:
            self._progress(f"measuring acceptance, K={k}", done / count)

        return bench.measure(prompts, k, tick)

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def _places(self) -> Places:
        target, drafter = self._subject.target, self._subject.drafter
        here = self._options.target_at or (target.source if target.local is None else str(target.local))
        folder = self._fresh / drafter_folder.NAME
        taken = str(self._out / drafter_folder.NAME) if folder.is_dir() else drafter.source or None
        return Places(here, taken, str(self._out))

    def _target_record(self) -> TargetRecord:
        target = self._subject.target
        dtype = target.stored_dtype if self._options.dtype == "auto" else self._options.dtype
        return TargetRecord(
            name=self._places.target,
            path=None if target.local is None else str(target.local),
            revision=target.revision,
            sha256={} if target.local is None else hashes(target.local),
            dtype=dtype,
            vocab_size=target.vocab_size,
            layers=target.layers,
        )

    def _write_files(self, manifest: Manifest) -> None:
        self._progress("writing", 1.0)
        places, options, drafter = self._places, self._options, self._subject.drafter
        speculation = vllm_file.speculative_config(
            drafter.kind,
            places.drafter,
            manifest.depth,
            drawn=options.temperature > 0,
            revision=None if drafter.local is not None else drafter.revision,
        )
        values = vllm_file.vllm_values(
            places.target, served_name(self._subject, options), manifest.target.dtype, speculation, options,
            manifest.target.revision,
        )  # fmt: skip
        (self._fresh / "vllm.yaml").write_text(as_yaml(values), encoding="utf-8")
        (self._fresh / NAME).write_text(manifest.text(), encoding="utf-8")


def served_name(subject: Subject, options: ExportOptions) -> str:
    """The model's name for clients: what was asked for, of a path its last part."""
    target = subject.target
    if options.name is not None:
        return options.name
    return target.asked if target.local is None or target.asked == "bundled" else target.local.name


def as_yaml(values: Mapping[str, Any]) -> str:
    """YAML in the given order, lists of numbers on one line."""
    text: str = yaml.safe_dump(json.loads(json.dumps(values)), sort_keys=False, default_flow_style=None, width=1000)
    return text


def _provenance() -> dict[str, Any]:
    found = Provenance.now()
    return {"created": found.date, "command": found.command, "versions": dict(found.versions)}
