"""Pages built from modules: what is imported is inside, what is not there is an error, and they open from a file."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from support.browser import opened

from headstart.base.web import build

MODULES = files("headstart.base.web").joinpath("modules")
ALL = sorted(str(path.relative_to(str(MODULES)))[:-3] for path in Path(str(MODULES)).rglob("*.js"))


def test_modules_find_what_they_import_and_import_by_bare_names_only() -> None:
    for name in ALL:
        found = build.modules(name)
        assert list(found)[-1] == name
        imported = re.findall(
            r'(?:^\s*(?:import|export)\b[^;"\']*?from|^\s*import|\bimport\()\s*["\']([^"\']+)',
            found[name],
            re.MULTILINE,
        )
        assert all(each.startswith("hs/") for each in imported), (name, imported)
        assert set(re.findall(r'["\']hs/([\w/-]+)["\']', found[name])) <= {*found}, name


def test_no_template_runs_over_several_lines() -> None:
    """Pages leave out indentation and lines that begin like comments."""
    for name in ALL:
        source = build._COMMENT.sub("", build._read(f"modules/{name}.js"))
        for line in source.splitlines():
            assert line.replace("\\`", "").count("`") % 2 == 0, (name, line)


def test_the_type_face_is_in_every_page_small_and_with_its_licence(tmp_path: Path) -> None:
    fonts = files("headstart.base.web").joinpath("fonts")
    assert len(fonts.joinpath("inter.woff2").read_bytes()) < 60_000
    assert "SIL OPEN FONT LICENSE" in fonts.joinpath("OFL.txt").read_text(encoding="utf-8")
    path = tmp_path / "page.html"
    path.write_text(build.page("base/theme", "A page", body="<p>Words in αβγ: 1 → 2</p>"), encoding="utf-8")
    with opened() as browser:
        page = browser.new_context(offline=True).new_page()
        page.goto(path.as_uri())
        assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('17px Inter'))")
        assert page.evaluate("[...document.fonts].map((face) => face.status)") == ["loaded"]


def planted(monkeypatch: pytest.MonkeyPatch, sources: dict[str, str]) -> None:
    real = build._read

    def read(path: str) -> str:
        name = path.removeprefix("modules/").removesuffix(".js")
        return sources[name] if name in sources else real(path)

    monkeypatch.setattr(build, "_read", read)


def test_modules_in_a_circle_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, {"a": 'import { b } from "hs/b";', "b": 'export { c } from "hs/c";', "c": 'import "hs/a";'})
    with pytest.raises(ValueError, match="a -> b -> c -> a"):
        build.modules("a")


def test_a_module_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"modules/no/such.js"):
        build.modules("no/such")


def test_a_page_runs_from_a_file_and_no_datum_can_leave_its_element(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted(
        monkeypatch,
        {
            "trial/main": """
                import { data, h, signal, watch } from "hs/base/dom";
                import { one } from "hs/trial/one";
                const count = signal(one);
                const words = h("p#words", { data: { last: data("long").at(-1) } });
                watch([count], (n) => (words.textContent = `${n} ${data("evil").text}`));
                count.value = 2;
                document.body.append(words);
            """,
            "trial/one": "export const one = 1; // ünïcode ✓",
        },
    )
    evil = "</script><script>document.title = 'broken'</script>\u2028<!--"
    path = tmp_path / "trial.html"
    data = {"evil": {"text": evil}, "long": [f"{n} é" for n in range(9000)]}
    path.write_text(build.page("trial/main", "A <trial>", data=data), encoding="utf-8")
    beside = len(build.page("trial/main", "A <trial>", data=data | {"long": []}).encode())  # mostly the type face
    assert path.stat().st_size - beside < 40_000 < len(json.dumps(data["long"])), "what is long is packed"
    errors: list[str] = []
    with opened() as browser:
        page = browser.new_context(offline=True).new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        assert page.locator("#words").inner_text().replace("\u2028", "") == f"2 {evil}".replace("\u2028", "")
        assert page.locator("#words").get_attribute("data-last") == "8999 é"
        assert page.title() == "A <trial>"
        refused = page.evaluate("fetch('https://example.com').then(() => 'asked', () => 'refused')")
        assert refused == "refused"
    assert all("Content Security Policy" in error or "violates" in error for error in errors), errors
