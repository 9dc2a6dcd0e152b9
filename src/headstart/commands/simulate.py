"""`headstart simulate`: what speculation would bring if acceptance, draft, machine, batch or temperature were so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.commands.terminal import Traceback, messages, note, output, reported
from headstart.errors import InvalidOption

if TYPE_CHECKING:
    from headstart.insight.report.page import Page

_PAIR, _MACHINE, _OUT = "Draft and target", "Machine (gives c and v(n) at each batch size)", "Output"
_SCENARIOS = "Scenarios (simulated, with figures of their own)"
DEFAULT_ALPHA, DEFAULT_C, DEFAULT_MOST = 0.7, 0.1, 16


def simulate(
    alpha: Annotated[
        list[float] | None,
        typer.Option(
            "--alpha",
            "-a",
            metavar="A",
            rich_help_panel=_PAIR,
            help=f"Share of draft tokens that are accepted; repeat to compare. Default: {DEFAULT_ALPHA}.",
        ),
    ] = None,
    by_position: Annotated[
        str | None,
        typer.Option(
            "--by-position",
            metavar="A1,A2,...",
            rich_help_panel=_PAIR,
            help="Instead: the conditional acceptance of each position, as `headstart bench` reports it.",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", metavar="N", rich_help_panel=_PAIR, help="Draft length. Default: the best one."),
    ] = None,
    c: Annotated[
        float | None,
        typer.Option(
            "--c",
            "-c",
            metavar="C",
            rich_help_panel=_PAIR,
            help=f"A draft step's time over a plain target step's. Default: {DEFAULT_C}.",
        ),
    ] = None,
    verify_cost: Annotated[
        str | None,
        typer.Option(
            "--verify-cost",
            metavar="ROWS:COST,...",
            rich_help_panel=_PAIR,
            help="v(n): what a target forward of several rows costs, as in '1:1,8:1.2,16:1.6'. "
            "Default: the same as one of 1 row.",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most",
            metavar="N",
            rich_help_panel=_PAIR,
            help=f"The longest draft considered. Default: {DEFAULT_MOST}.",
        ),
    ] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option(
            "--temperature",
            "-T",
            metavar="T",
            rich_help_panel=_PAIR,
            help="What this temperature would do to alpha, on a toy pair that has --alpha at 1; repeat to compare.",
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            "--batch", "-b", metavar="N", rich_help_panel=_MACHINE, help="Requests in a batch; repeat to compare."
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option("--bandwidth", metavar="GB/S", rich_help_panel=_MACHINE, help="Memory that is read per second."),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option("--flops", metavar="TFLOP/S", rich_help_panel=_MACHINE, help="Arithmetic per second."),
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option("--parameters", metavar="N", rich_help_panel=_MACHINE, help="Of the target, as in 8B or 350M."),
    ] = None,
    draft_parameters: Annotated[
        str | None,
        typer.Option(
            "--draft-parameters", metavar="N", rich_help_panel=_MACHINE, help="Of the draft; gives c in place of --c."
        ),
    ] = None,
    bytes_per_weight: Annotated[
        float | None,
        typer.Option(
            "--bytes-per-weight", metavar="N", rich_help_panel=_MACHINE, help="1 for int8. Default: 2, as in bf16."
        ),
    ] = None,
    kv_bytes: Annotated[
        float | None,
        typer.Option(
            "--kv-bytes-per-token",
            metavar="N",
            rich_help_panel=_MACHINE,
            help="The target's cache: 2 x layers x KV heads x head size x bytes. Default: 0.",
        ),
    ] = None,
    context: Annotated[
        float | None,
        typer.Option(
            "--context", metavar="N", rich_help_panel=_MACHINE, help="Cached tokens of each request. Default: 0."
        ),
    ] = None,
    all_scenarios: Annotated[
        bool, typer.Option("--scenarios", rich_help_panel=_SCENARIOS, help="Compare what people meet, side by side.")
    ] = False,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario", metavar="NAME", rich_help_panel=_SCENARIOS, help="One of them, or part of its name; repeat."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", rich_help_panel=_OUT, help="Also write a page with plots.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", rich_help_panel=_OUT, help="Print the numbers as JSON.")] = False,
    traceback: Traceback = False,
) -> None:
    """Ask what speculation would bring, before there is a draft or a machine. No model is run.

    One answer for each acceptance, the speedup of every K, and maps of where it would pay. A machine's figures add the
    batch sizes, temperatures a toy; scenarios are simulated token by token.

    **Examples**

        headstart simulate --alpha 0.7 --c 0.1
        headstart simulate --alpha 0.6 --alpha 0.8 --k 5 --verify-cost 1:1,8:1.2,16:1.6
        headstart simulate --alpha 0.8 -T 0 -T 0.7 -T 1.5
        headstart simulate --scenarios
        headstart simulate --bandwidth 3350 --flops 800 --parameters 70B --draft-parameters 1B -b 1 -b 32 -b 256
    """
    figures = {
        "--bandwidth": bandwidth, "--flops": flops, "--parameters": parameters, "--draft-parameters": draft_parameters,
        "--bytes-per-weight": bytes_per_weight, "--kv-bytes-per-token": kv_bytes, "--context": context,
        "--batch": batch or None,
    }  # fmt: skip
    with reported(traceback):
        if scenario or all_scenarios:
            own = {
                "--alpha": alpha or None, "--by-position": by_position, "--k": k, "--c": c, "--most": most,
                "--verify-cost": verify_cost, "--temperature": temperature or None,
            }  # fmt: skip
            _refuse_beside_scenarios(own | figures)
            _scenarios(scenario or [], html, as_json=as_json)
            return
        from headstart.commands.assumptions import acceptances, costs_of
        from headstart.commands.simulate_view import view
        from headstart.insight.what_if import record, what_if

        longest = DEFAULT_MOST if most is None else most
        found = what_if(
            acceptances(alpha, by_position, asks_more=bool(temperature) or bool(batch)) or [[DEFAULT_ALPHA]],
            costs_of(figures, c, verify_cost, default_c=DEFAULT_C),
            k=k,
            most=longest,
            sizes=batch or (),
            heat=temperature or (),
        )
        if html is not None:
            from headstart.insight.report.simulate_page import simulate_page

            _write(simulate_page(found), html)
        if as_json:
            print(json.dumps(record(found)))
        else:
            view(output(), found)


def _scenarios(names: list[str], html: Path | None, *, as_json: bool) -> None:
    """Simulate these scenarios, or all, and put theory beside them."""
    from headstart.commands.scenario_view import named, view
    from headstart.simulate import run_scenario, scenarios

    chosen = [named(name) for name in names] or list(scenarios())
    with note(messages(), "simulating …"):
        results = [run_scenario(name) for name in chosen]
    if html is not None:
        from headstart.insight.report.scenarios_page import scenarios_page

        _write(scenarios_page(results), html)
    if as_json:
        print(json.dumps({"headstart_scenarios": 1, "scenarios": [result.record() for result in results]}))
    else:
        view(output(), results)


def _write(page: Page, file: Path) -> None:
    page.write(file)
    messages().print(f"wrote {file}", soft_wrap=True)


def _refuse_beside_scenarios(given: dict[str, Any]) -> None:
    for option, value in given.items():
        if value is not None:
            raise InvalidOption(f"{option} has no part in a scenario", hint="a scenario brings its own figures")
