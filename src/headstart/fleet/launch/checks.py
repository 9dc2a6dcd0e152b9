"""The checks of a fleet before it serves: that it answers, accepts as many drafts as its drafter deserves, and writes
what the model would write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.base.errors import CheckFailed, UnsupportedModel
from headstart.base.options import check_fields, option, strict
from headstart.base.words import counted
from headstart.fleet.http import HTTPError, ask
from headstart.fleet.launch.engine import Engine
from headstart.fleet.launch.fleet import Fleet
from headstart.fleet.launch.served import Served

if TYPE_CHECKING:
    from headstart.fleet.parity import ParityReport
    from headstart.fleet.parity.reference import Reference
    from headstart.measure.audit.certificate import Certificate

Progress = Callable[[str, int, int], None]
"""Called with what is being checked, and with how much of it is done, of how much."""

SMOKE_PROMPT = "def add(a, b):"
SMOKE_TOKENS = 24
_SECONDS = 120.0

_check = partial(option, panel="Checks")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What is checked before the fleet serves. A check that fails ends it."""

    parity: bool = _check(
        True,
        "Compare what each engine accepts of its drafts with what headstart's own engine accepts of them.",
        "--parity/--no-parity",
    )
    parity_prompts: int = _check(4, "Prompts of that comparison.", low=1, high=12)
    audit: bool = _check(
        True, "Audit the text that comes through the router against the weights of the target.", "--audit/--no-audit",
    )  # fmt: skip
    audit_samples: int = _check(400, "Texts that the audit samples.", low=50)
    greedy_only: bool = _check(False, "Audit greedy text only.", "--greedy-only")
    reference_device: str = _check(
        "auto", "Where headstart runs the target for these checks: 'auto', 'cpu', 'cuda', 'cuda:3'.", metavar="DEVICE"
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass
class Checks:
    """The checks of one fleet. Give `admit` to `Fleet.start`, and call `through_router` once it has started.

    lines: what was found so far, a sentence for each check.
    """

    options: CheckOptions
    progress: Progress = lambda _what, _done, _count: None
    lines: list[str] = field(default_factory=list)
    _texts: dict[Path, str] = field(default_factory=dict)
    _kept: tuple[Served, Reference] | None = None
    """The reference of the last parity, and what it is of: the same folder may hold another export by now."""

    def admit(self, engine: Engine) -> None:
        """Check one engine, before it gets other requests.

        Raises:
            CheckFailed: it writes other text than the engine before it, or accepts other drafts than it should.
            EndpointFailed: it does not answer.
        """
        text = smoke(engine.url, engine.served.name)
        first = self._texts.setdefault(engine.served.config, text)
        if text != first:
            raise _differs(engine.name, "the engine before it", text, first, engine.log)
        if self.options.parity:
            self._parity(engine)

    def through_router(self, fleet: Fleet) -> None:
        """Check the whole fleet, through its router.

        Raises:
            CheckFailed: it writes other text than its engines, or text that the model would not write.
            EndpointFailed: it does not answer.
        """
        served = fleet.engines[0].served
        text = smoke(fleet.url, served.name)
        first = self._texts.get(served.config, text)
        if text != first:
            raise _differs("the router", "the engines", text, first, served.folder)
        names = ", ".join(engine.name for engine in fleet.engines)
        through = "" if fleet.router is None else ", and through the router"
        self.lines.insert(0, f"answers: one greedy text, the same from {names}{through}")
        if self.options.audit:
            certificate = self._audit(fleet.url, served)
            if certificate.verdict == "not lossless":
                raise _not_lossless(certificate, fleet)
            self.lines.append(f"audit: {certificate.verdict}; {'; '.join(certificate.reasons[:2])}")

    def _parity(self, engine: Engine) -> None:
        from headstart.fleet.parity import parity
        from headstart.fleet.parity.plan import PROMPTS

        try:
            reference = self._reference(engine.served)
        except UnsupportedModel as error:
            self.lines.append(f"parity: not shown; {error.message}")
            return
        what = f"parity of {engine.name}"
        count = self.options.parity_prompts
        length = min(96, (engine.served.length or 512) // 2)
        report = parity(
            engine.url, reference, prompts=PROMPTS[:count], max_tokens=length, model=engine.served.name,
            progress=lambda done, of: self.progress(what, done, of),
        )  # fmt: skip
        if not report.passed:
            raise CheckFailed(
                f"{engine.name} does not accept what headstart accepts: {'; '.join(report.reasons)}",
                hint="the text is still exact, but slower than it should be; write the export again, or start the fleet"
                " nevertheless with --no-parity",
            )
        self.lines.append(_parity_line(engine.name, report))

    def _reference(self, served: Served) -> Reference:
        if self._kept is None or self._kept[0] != served:
            from headstart.fleet.parity.reference import Reference
            from headstart.fleet.parity.verify import read_plan

            self._kept = None  # two would not always fit
            self.progress("loading the target for the checks", 0, 1)
            plan = read_plan(served.folder, device=self.options.reference_device)
            self._kept = served, Reference(plan)
        return self._kept[1]

    def _audit(self, url: str, served: Served) -> Certificate:
        from headstart.fleet.audit.endpoint import EndpointSubject
        from headstart.fleet.audit.run import audit_endpoint
        from headstart.loading.load import Target
        from headstart.measure.audit.plan import AuditPlan
        from headstart.measure.samples import sample_prompts

        self._kept = None  # the audit loads the target alone; both would not always fit
        self.progress("loading the target for the audit", 0, 1)
        dtype = "auto" if served.manifest is None else served.manifest.target.dtype
        engine = Target(served.target, device=self.options.reference_device, dtype=dtype).engine("none")
        prompts = [list(engine.encode(str(item.prompt))) for item in sample_prompts()[:4]]
        plan = AuditPlan(
            max_samples=self.options.audit_samples, sampled=not self.options.greedy_only, effect=0.15, power=0.5
        )
        with EndpointSubject(
            url, model=served.name, tokenizer=engine.tokenizer, vocab_size=engine.target.vocab_size,
            ends=engine.eos_token_ids,
        ) as subject:  # fmt: skip
            return audit_endpoint(
                subject, engine, prompts, plan,
                lambda part, done, most, _words="": self.progress(f"audit: {part}", done, most),
            )  # fmt: skip


def smoke(url: str, model: str) -> str:
    """One greedy completion.

    Raises:
        CheckFailed: the server answers with an error, or with something else than a completion.
    """
    body = {"model": model, "prompt": SMOKE_PROMPT, "max_tokens": SMOKE_TOKENS, "temperature": 0}
    hint = "look into the log of the engine"
    try:
        answer = ask("POST", f"{url}/v1/completions", json=body, seconds=_SECONDS)
    except HTTPError as error:
        raise CheckFailed(f"{url} does not answer: {error}", hint=hint) from error
    if answer.status_code != 200:
        raise CheckFailed(f"{url} answered {answer.status_code}: {answer.text.strip()[:300]}", hint=hint)
    try:
        return str(answer.json()["choices"][0]["text"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise CheckFailed(f"{url} answered no completion: {answer.text.strip()[:300]}", hint=hint) from error


def _differs(name: str, other: str, text: str, first: str, where: Path) -> CheckFailed:
    return CheckFailed(
        f"{name} writes other greedy text than {other}: {text!r}, and not {first!r}",
        hint=f"do they run the same weights with the same options? See {where}",
    )


def _parity_line(name: str, report: ParityReport) -> str:
    ours, theirs = report.ours, report.theirs
    return (
        f"parity: {name} took {counted(theirs.forwards, 'forward')} for {counted(theirs.generated, 'token')}, "
        f"headstart {ours.forwards}; "
        f"counters equal in {report.equal} of {counted(len(report.compared), 'prompt')}"
    )


def _not_lossless(certificate: Certificate, fleet: Fleet) -> CheckFailed:
    hint = "start the fleet nevertheless with --no-audit, and say so to its users"
    if fleet.installation.cpu:
        hint = (
            "vLLM without Triton on a CPU samples drafted tokens at temperatures that it does not know (vllm#55005, in "
            f"0.32): repair it, or serve greedy text only and audit that with --greedy-only; or {hint}"
        )
    return CheckFailed(f"the text is not the model's: {'; '.join(certificate.reasons[:3])}", hint=hint)
