"""Building a wheel compiles the kernels for every level of this architecture, by the code that compiles at first use.

An editable install compiles nothing, nor does one where there is no C++ compiler: the package is then pure Python, and
compiles for the one level of its processor when a kernel is first needed.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):
    """Puts the libraries into the wheel, and the platform into its name."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._made = Path(tempfile.mkdtemp(prefix="headstart-"))
        try:
            self._compile()
        except compiling_of(Path(self.root)).Unavailable as reason:
            self.app.display_warning(f"a wheel without kernels, which are compiled at first use: {reason}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"  # no Python is linked against: the kernels are plain C
        for path in self._made.iterdir():
            build_data["force_include"][str(path)] = f"headstart/prebuilt/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version != "editable":
            shutil.rmtree(self._made, ignore_errors=True)

    def _compile(self) -> None:
        package = Path(self.root) / "src" / "headstart"
        compiling = compiling_of(Path(self.root))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            tasks = [task for main in sorted(package.rglob("*.cpp")) for task in compiling.build_all(main, self._made)]
            for made in [pool.submit(task) for task in tasks]:
                try:
                    self.app.display_info(f"compiled {made.result().name}")
                except compiling.Unavailable as reason:  # an old compiler does not know the newest processors
                    self.app.display_warning(f"a level is left out: {reason}")
        if not any(path.name.startswith("decoder-generic-") for path in self._made.iterdir()):
            raise compiling.Unavailable("the compiler fails on the plainest level")


def platform_tag() -> str:
    """The platform that the libraries are for, as wheels name it."""
    found = sysconfig.get_platform().replace("universal2", platform.machine())  # one of the two, as the compiler's
    return found.replace("-", "_").replace(".", "_")


def compiling_of(root: Path) -> Any:
    """The package's own code that compiles. The package itself cannot be imported: it is not installed yet."""
    if "headstart" not in sys.modules:
        package = types.ModuleType("headstart")
        package.__path__ = [str(root / "src" / "headstart")]
        sys.modules["headstart"] = package
    from headstart.base import compiling

    return compiling
