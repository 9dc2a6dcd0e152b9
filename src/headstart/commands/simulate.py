"""`headstart simulate`: what speculation would gain if acceptance, draft, machine, batch or temperature were so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.base.errors import InvalidOption
from headstart.base.options import option
from headstart.commands.options import command
from headstart.commands.terminal import messages, note, output, say
from headstart.learn.what_if.options import Question, SsdQuestion, flag, one_named

if TYPE_CHECKING:
    from headstart.base.web.report.page import Page

_OUT, _SCENARIOS = "Output", "Scenarios (simulated, with figures of their own)"
_AHEAD = "Drafting ahead, with --ssd (times in steps of the target alone)"


@command(
    "alpha num-speculative-tokens draft-cost verify-cost temperature batch bandwidth flops parameters draft-parameters "
    "ssd scenarios scenario html json"
)
def simulate(
    *,
    question: Question,
    ssd: bool = option(
        False,
        "Drafting ahead, while the target verifies: would it pay? Without figures: at some placements.",
        "--ssd",
        panel=_AHEAD,
    ),
    ahead: SsdQuestion,
    all_scenarios: bool = option(False, "Compare typical situations side by side.", "--scenarios", panel=_SCENARIOS),
    scenario: list[str] | None = option(None, "Simulate this one, by its name or a part of it.", panel=_SCENARIOS),
    html: Path | None = option(None, "Also write a page with plots.", panel=_OUT),
    as_json: bool = option(False, "Print the numbers as JSON.", "--json", panel=_OUT),
) -> None:
    """Predict what speculation would gain, before there is a draft model or a machine. No model is run.

    Prints one answer for each acceptance, the speedup at every draft length, and maps of where speculation pays. The
    figures of a machine add batch sizes; a temperature adds a toy pair; scenarios are simulated token by token.

    **Examples**

        headstart simulate --alpha 0.7 --c 0.1
        headstart simulate --alpha 0.6 --alpha 0.8 --k 5 --verify-cost 1:1,8:1.2,16:1.6
        headstart simulate --alpha 0.8 -T 0 -T 0.7 -T 1.5
        headstart simulate --scenarios
        headstart simulate --bandwidth 3350 --flops 800 --parameters 70B --draft-parameters 1B -b 1 -b 32 -b 256
        headstart simulate --alpha 0.7 --experts 128 --experts-per-token 8 --expert-share 0.6
        headstart simulate --ssd
        headstart simulate --ssd --alpha 0.8 -k 5 --draft-costs 1:0.19,18:0.21 --hits 0.6,0.75,0.85 --plain-ms 4.2
    """
    if scenario or all_scenarios:
        for name in (*question.given, *ahead.given, *(["ssd"] if ssd else [])):
            raise InvalidOption(f"{flag(name)} has no part in a scenario", hint="a scenario has its own figures")
        _scenarios(scenario or [], html, as_json=as_json)
        return
    if ssd:
        _drafting_ahead(question, ahead, html, as_json=as_json)
        return
    for name in ahead.given:
        raise InvalidOption(f"{flag(name)} is a question about drafting ahead", hint="add --ssd")
    from headstart.learn.views.answers import view
    from headstart.learn.what_if.question import ask, record

    found = ask(question)
    if html is not None:
        from headstart.learn.pages.simulate_page import simulate_page

        _write(simulate_page(found), html)
    if as_json:
        print(json.dumps(record(found)))
    else:
        view(output(), found)


def _drafting_ahead(question: Question, ahead: SsdQuestion, html: Path | None, *, as_json: bool) -> None:
    """Simulate rounds on two lanes, for the figures asked about or for all placements."""
    from headstart.learn.views.ssd import view_ssd
    from headstart.learn.what_if.ssd import ask_ssd, record_ssd

    with note(messages(), "simulating …"):
        found = ask_ssd(question, ahead)
    if html is not None:
        from headstart.learn.pages.ssd_page import ssd_page

        _write(ssd_page(found), html)
    if as_json:
        print(json.dumps(record_ssd(found)))
    else:
        view_ssd(output(), found)


def _scenarios(names: list[str], html: Path | None, *, as_json: bool) -> None:
    """Simulate these scenarios, or all, and put theory beside them."""
    from headstart.learn.simulate import run_scenario, scenarios
    from headstart.learn.views.answers import view_scenarios

    known = scenarios()
    chosen = [one_named(name, known, "scenario") for name in names] or list(known)
    with note(messages(), "simulating …"):
        results = [run_scenario(name) for name in chosen]
    if html is not None:
        from headstart.learn.pages.simulate_page import scenarios_page

        _write(scenarios_page(results), html)
    if as_json:
        print(json.dumps({"headstart_scenarios": 1, "scenarios": [result.record() for result in results]}))
    else:
        view_scenarios(output(), results)


def _write(page: Page, file: Path) -> None:
    page.write(file)
    say(messages(), f"wrote {file}")
