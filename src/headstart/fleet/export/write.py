"""`export`: find target and drafter, check, measure, choose K, and write the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headstart.base.prompt_sets import read_prompt_set
from headstart.base.words import counted
from headstart.fleet.export import depth, drafter_folder, gguf_drafter, preflight
from headstart.fleet.export.architectures import VERSIONS
from headstart.fleet.export.case import case_of
from headstart.fleet.export.expected import Bench, Measurement, Prompts, expected
from headstart.fleet.export.files import all_files, engines
from headstart.fleet.export.files.deployment import Deployment
from headstart.fleet.export.folder import hashes, whole_folder
from headstart.fleet.export.manifest import NAME, DrafterRecord, Expected, Manifest, TargetRecord
from headstart.fleet.export.options import ExportOptions
from headstart.fleet.export.preflight import Case
from headstart.fleet.export.subject import Subject, find
from headstart.fleet.vllm import Installation
from headstart.measure.provenance import Provenance
from headstart.measure.samples import sample_prompts
from headstart.model.loading import BUNDLED
from headstart.types import Sampling

Progress = Callable[[str, float], None]
"""Called with what is being done, and with the share of it that is done."""
SAMPLES = "sample prompts"
UNMEASURED = 3
"""K where nothing is measured and none is given."""
LONGEST, LONGEST_COPY = 8, 16
"""K up to which acceptance is measured, of drafters with weights and of those that copy text."""


def export(
    target: str,
    drafter: str,
    out: Path,
    options: ExportOptions,
    *,
    force: bool = False,
    installation: Installation | None = None,
    check: bool = False,
    progress: Progress = lambda _what, _share: None,
) -> Manifest:
    """Write the folder, and return its manifest.

    installation: the vLLM that will run it, where that is known: its custom logits processors are looked at, and with
    `check` it is asked whether it takes the configuration; if not, nothing is left behind.

    Raises:
        ExportRefused: an engine would load it and run it wrong.
        InvalidOption: the folder is not empty, or an option does not fit.
        HeadstartError: what loading or measuring raises.
    """
    from headstart.fleet.export.check import accepted, processors_of

    out = out.expanduser().absolute()
    processors = None if installation is None else processors_of(installation)
    with whole_folder(out, force=force) as fresh:
        progress("reading configs", 0.0)
        manifest = _Export(find(target, drafter, options.engine), fresh, out, options, progress).write(processors)
        if check and installation is not None:
            progress("asking vLLM", 0.0)
            accepted(installation, fresh)
        return manifest


class _Export:
    """One export under way. fresh: the folder that is written; out: what it will be called."""

    def __init__(self, subject: Subject, fresh: Path, out: Path, options: ExportOptions, progress: Progress) -> None:
        self._subject, self._fresh, self._out = subject, fresh, out
        self._options, self._progress = options, progress
        self._sampling = Sampling(max_tokens=options.max_tokens, temperature=options.temperature)
        self._folder = fresh / drafter_folder.NAME
        self._copied = subject.drafter.local is not None or subject.drafter.kind in ("eagle3", "medusa")
        self._llamacpp = options.engine == "llama.cpp"
        target = subject.target
        # Where the engine finds them; no drafter where nothing is loaded
        self._target_at = options.target_at or (target.source if target.local is None else str(target.local))
        self._drafter_at = str(out / drafter_folder.NAME) if self._copied else subject.drafter.source or None
        self._dtype = target.stored_dtype if options.dtype == "auto" else options.dtype
        self._parallel = False  # known once the drafter's config has been read

    def write(self, processors: tuple[str, ...] | None) -> Manifest:
        subject, options = self._subject, self._options
        case = case_of(subject, options, target_at=self._target_at, drafter_at=self._drafter_at, processors=processors)
        warnings = preflight.check(case)
        layer_ids = None
        if self._copied:
            self._progress("writing the drafter", 0.0)
            if self._llamacpp:
                layer_ids = gguf_drafter.write_drafter(self._folder, subject, options.dtype)
            else:
                layer_ids = drafter_folder.write_drafter(self._folder, subject)
        self._parallel = case.parallel
        kind, parallel = subject.drafter.kind, self._parallel
        costs = (
            depth.assumed(kind, parallel=parallel)
            if options.costs is None
            else depth.read_costs(options.costs, kind, subject.drafter.names, parallel=parallel)
        )
        promised, plan, more = self._measured(case, costs)
        made = Provenance.now()
        manifest = Manifest(
            engine=options.engine,
            created=made.date,
            command=made.command,
            versions=dict(made.versions),
            target=self._target_record(),
            drafter=self._drafter_record(layer_ids),
            depth=plan.depth,
            expected=promised,
            depth_by_batch=plan.by_batch,
            off_from=plan.off_from,
            costs=costs.record(),
            tested={options.engine: VERSIONS[options.engine]} if options.engine != "sglang" else {},
            warnings=(*warnings, *more, *self._doubts(plan, costs)),
        )
        self._write_files(manifest)
        return manifest

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _measured(self, case: Case, costs: depth.Costs) -> tuple[Expected | None, depth.Plan, list[str]]:
        """What to expect, K, and warnings."""
        subject, options = self._subject, self._options
        fixed, kind = options.num_speculative_tokens, subject.drafter.kind
        longest = fixed or (LONGEST_COPY if kind in ("ngram", "suffix") else LONGEST)
        if kind == "medusa":
            longest = min(longest, case.head.count)
        if guesses := case.head.guesses:  # blocks are fed whole
            fixed = longest = min(fixed or guesses, guesses)
        if not options.measure:
            return None, depth.Plan(fixed or min(UNMEASURED, longest), (), None), []
        self._progress(f"loading {subject.target.name}", 0.0)
        written = self._copied and not self._llamacpp
        drafter = str(self._folder) if written else subject.drafter.source or None
        bench = Bench(
            subject.target.source,
            kind,
            drafter,
            options.dtype,
            self._sampling,
            longest=longest,
            parallel=self._parallel,
        )
        items = sample_prompts() if options.prompts is None else read_prompt_set(options.prompts)
        prompts = bench.prompts(items[: options.limit], SAMPLES if options.prompts is None else options.prompts.name)
        found = self._complete(bench, prompts, longest)
        plan = depth.plan(found.acceptance(), costs, longest=longest, batch=options.batch, fixed=fixed)
        if plan.depth != longest:
            found = self._complete(bench, prompts, plan.depth)
        (self._fresh / "prompts.jsonl").write_text(prompts.lines(), encoding="utf-8")
        return expected(prompts, found, self._sampling), plan, self._measured_otherwise(bench)

    def _measured_otherwise(self, bench: Bench) -> list[str]:
        found = []
        if bench.dtype != self._dtype:
            found.append(
                f"acceptance was measured in {bench.dtype} and will be served in {self._dtype}: near ties can fall "
                "otherwise; --dtype sets both"
            )
        if self._options.prompts is None and self._subject.target.name != BUNDLED:
            found.append(
                "acceptance was measured on a few lines of Python, not on your traffic: --prompts FILE measures yours, "
                "and that is what counts"
            )
        return found

    def _doubts(self, plan: depth.Plan, costs: depth.Costs) -> list[str]:
        found = []
        if costs.assumed and self._options.num_speculative_tokens is None:
            found.append(
                f"K={plan.depth} rests on an assumption about costs ({costs.source.removeprefix('assumption: ')}): run "
                "`headstart doctor --output FILE` on the machine that will serve, and give --costs FILE"
            )
        if not costs.assumed and any(one.batch == self._options.batch and not one.depth for one in plan.by_batch):
            found.append(
                f"by these costs no draft pays at {counted(self._options.batch, 'request')} at once: "
                "serve that load without speculation"
            )
        return found

    def _complete(self, bench: Bench, prompts: Prompts, k: int) -> Measurement:
        return bench.measure(
            prompts, k, lambda done, count: self._progress(f"measuring acceptance, K={k}", done / count)
        )

    # -- writing ------------------------------------------------------------------------------------------------------

    def _target_record(self) -> TargetRecord:
        target = self._subject.target
        self._progress("reading the target's files for their hashes", 0.0)
        return TargetRecord(
            name=self._target_at,
            path=None if target.local is None else str(target.local),
            revision=target.revision,
            sha256={} if target.local is None else hashes(target.local),
            dtype=self._dtype,
            vocab_size=target.vocab_size,
            layers=target.layers,
        )

    def _drafter_record(self, layer_ids: tuple[int, ...] | None) -> DrafterRecord:
        return DrafterRecord(
            kind=self._subject.drafter.kind,
            folder=drafter_folder.NAME if self._copied else None,
            origin=self._subject.drafter.name,
            sha256=hashes(self._folder) if self._copied else {},
            layer_ids=layer_ids,
        )

    def _write_files(self, manifest: Manifest) -> None:
        self._progress("writing", 1.0)
        options, drafter = self._options, self._subject.drafter
        speculation = engines.speculative_config(
            drafter.kind,
            self._drafter_at,
            manifest.depth,
            drawn=options.temperature > 0,
            revision=None if self._copied else drafter.revision,
            parallel=self._parallel,
        )
        if options.dynamic:
            speculation["num_speculative_tokens_per_batch_size"] = engines.schedule(manifest.depth_by_batch)
        name = served_name(self._subject, options)
        values = engines.vllm_values(self._target_at, name, self._dtype, speculation, options, manifest.target.revision)
        one = Deployment(manifest, name, str(self._out), values, options.mount, options.cpu, options.tpot_p99)
        for place, text in all_files(one).items():
            path = self._fresh / place
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if path.suffix == ".sh":
                path.chmod(path.stat().st_mode | 0o111)
        (self._fresh / NAME).write_text(manifest.text(), encoding="utf-8")


def served_name(subject: Subject, options: ExportOptions) -> str:
    """The model's name for clients: what was asked for, of a path its last part."""
    target = subject.target
    if options.name is not None:
        return options.name
    return target.name if target.local is None or target.name == BUNDLED else target.local.name
