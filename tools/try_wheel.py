"""Build the wheel in a clean environment, install it where there is no compiler, and run it there.

    python tools/try_wheel.py [PACKAGES]

PACKAGES is a site-packages folder with what headstart needs; by default that of the Python which runs this. The wheel
must hold the kernels of every level of this architecture and not much else, and what runs must be these: the new
environment has no compiler on its PATH and an empty cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from headstart.base.levels import VARIABLE, architecture, levels_of

ROOT = Path(__file__).resolve().parents[1]
PAIR = ROOT / "src" / "headstart" / "pair"
MOST_BYTES = 20_000_000
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


class Failed(Exception):
    """What is wrong with the wheel."""


def build(folder: Path) -> Path:
    """The wheel, built as pip builds it: in an environment of its own."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """A platform in its name, the libraries of every level, and no models of 59 MB."""
    if not re.search(r"-py3-none-(?!any)\w+\.whl$", wheel.name):
        raise Failed(f"{wheel.name} is for no platform: there were no kernels to put into it")
    if (size := wheel.stat().st_size) > MOST_BYTES:
        raise Failed(f"{wheel.name} has {size:,} bytes, which is more than {MOST_BYTES:,}")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    for level in levels_of(architecture()):
        for library in ("decoder", "race", "mask"):
            if not any(f"prebuilt/{library}-{level.name}-" in name for name in names):
                raise Failed(f"{wheel.name} has no {library} for the level {level.name}")
    if pair := [name for name in names if name.startswith("headstart/pair/")]:
        raise Failed(f"{wheel.name} holds {pair[0]}")
    print(f"{wheel.name}: {size / 1e6:.1f} MB, {sum('prebuilt/' in name for name in names) - 1} libraries")


class Installed:
    """An environment with the wheel, the packages of another one, no compiler and an empty cache."""

    def __init__(self, folder: Path, wheel: Path, packages: Path) -> None:
        self.folder = folder
        self.python = folder / SCRIPTS / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--no-index", str(wheel)], check=True)
        own = subprocess.run(
            [self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        (Path(own) / "of_another.pth").write_text(f"{packages}\n", encoding="utf-8")
        self.cache = folder / "cache"
        kept = {name: value for name, value in os.environ.items() if name in ("LANG", "SYSTEMROOT", "TMPDIR", "TEMP")}
        self.environment = {
            **kept, "PATH": str(folder / SCRIPTS), "HOME": str(folder), "XDG_CACHE_HOME": str(self.cache),
            "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        for name in ("c++", "g++", "clang++"):
            if compiler := shutil.which(name, path=self.environment["PATH"]):
                raise Failed(f"there is a compiler: {compiler}")

    def run(self, *words: str, level: str = "") -> str:
        """What `headstart WORDS` prints."""
        environment = {**self.environment, **({VARIABLE: level} if level else {})}
        command = [str(self.folder / SCRIPTS / "headstart"), *words]
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def kernels(self, level: str = "") -> dict[str, Any]:
        """What `headstart info` says of the kernels."""
        found: dict[str, Any] = json.loads(self.run("info", "--json", level=level))["kernels"]
        if not found["prebuilt"]:
            raise Failed(f"the kernels are not those of the wheel: {found}")
        return found


def main() -> None:
    packages = Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("purelib"))
    with tempfile.TemporaryDirectory(prefix="headstart-wheel-") as scratch:
        start = time.perf_counter()
        wheel = build(Path(scratch))
        check_contents(wheel)
        built = time.perf_counter()
        installed = Installed(Path(scratch) / "environment", wheel, packages)
        here = installed.kernels()
        if here["level"] != here["levels"][0]:
            raise Failed(f"the level is {here['level']}, and the best here is {here['levels'][0]}")
        if (worst := installed.kernels(here["levels"][-1])["level"]) != here["levels"][-1]:
            raise Failed(f"the level {here['levels'][-1]} was forced, and {worst} was taken")
        models = ("--target", str(PAIR / "target"), "--drafter", str(PAIR / "draft"))
        text = installed.run("generate", "def add(a, b):", "--max-tokens", "32", "--temperature", "0.8", *models)
        if not text.strip():
            raise Failed("the model wrote nothing")
        if compiled := list(installed.cache.rglob("kernels/*")):
            raise Failed(f"something was compiled: {compiled[0]}")
        print(f"level {here['level']}, prebuilt by {here['compiler']}; no compiler there, and text was written")
        print(f"built in {built - start:.0f} s, tried in {time.perf_counter() - built:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except Failed as problem:
        sys.exit(f"error: {problem}")
