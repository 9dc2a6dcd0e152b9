"""The repair as a folder for PYTHONPATH, for a vLLM whose own environment has no headstart.

Putting headstart's own folder there would put everything beside it there too, another torch for one. So the one file
goes alone, with the metadata by which vLLM finds it.
"""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

from headstart.fleet import vllm_repair

PLUGIN = "headstart_repair_55005"
"""Its name in VLLM_PLUGINS."""
_MODULE = "headstart_vllm_repair"


def write_plugin(folder: Path) -> Path:
    """Write the plugin into `folder`, which is made if need be, and return it.

    ``environment(installation) | {"PYTHONPATH": str(write_plugin(folder))}`` starts a vLLM that loads it.
    """
    information = folder / f"{_MODULE}-{version('headstart')}.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(vllm_repair.__file__, folder / f"{_MODULE}.py")
    metadata = f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: {version('headstart')}\n"
    (information / "METADATA").write_text(metadata)
    (information / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{PLUGIN} = {_MODULE}:repair\n")
    return folder
