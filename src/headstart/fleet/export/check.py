"""Asking a vLLM that is installed: whether it takes `vllm.yaml`, what it would drop, and whether it runs it right.

vLLM builds its whole configuration from the options alone, so what it refuses at a start it refuses here, in the time
that importing it takes. Only a verification starts it, with weights.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.base.errors import ExportRefused, ServerFailed
from headstart.base.files import replacing
from headstart.base.prompt_sets import read_prompt_set
from headstart.fleet.export.case import PROCESSORS
from headstart.fleet.export.manifest import NAME, Manifest, read_values
from headstart.fleet.vllm import Installation, environment

if TYPE_CHECKING:
    from headstart.fleet.parity.report import ParityReport
    from headstart.fleet.parity.verify import Progress

SECONDS = 600.0
VERIFIED = 12
"""Prompts of the export's own that an engine is verified with."""
_MARK = "headstart-answer:"

_ASK = f"""
import json, sys
from vllm.engine.arg_utils import EngineArgs
try:
    config = EngineArgs(**json.load(sys.stdin)).create_engine_config()
    speculation = config.speculative_config
    found = {{"method": speculation.method, "depth": speculation.num_speculative_tokens}}
    draft = getattr(speculation.draft_model_config, "hf_config", None)
    found["layer_ids"] = list(getattr(draft, "eagle_aux_hidden_state_layer_ids", None) or [])
    found["fc_bias"] = getattr(draft, "medusa_fc_bias", None)
    found["dtype"] = str(config.model_config.dtype).removeprefix("torch.")
except Exception as error:
    found = {{"error": f"{{type(error).__name__}}: {{error}}"}}
print("{_MARK}" + json.dumps(found))
"""
_POINTS = f"""
import json
from importlib.metadata import entry_points
print("{_MARK}" + json.dumps(sorted(point.name for point in entry_points(group="{PROCESSORS}"))))
"""


def engine_arguments(folder: Path) -> dict[str, Any]:
    """The options of `vllm.yaml` as `EngineArgs` takes them; those of the server alone are left out.

    A drafter that lies in the folder is named there, wherever the folder is now.
    """
    values = read_values(folder)
    found = {name.replace("-", "_"): value for name, value in values.items() if name not in ("host", "port")}
    if (folder / "drafter").is_dir():
        found["speculative_config"]["model"] = str((folder / "drafter").absolute())
    return found


def accepted(installation: Installation, folder: Path) -> dict[str, Any]:
    """What this vLLM understood: method, depth, layer ids, dtype.

    Raises:
        ExportRefused: it refuses the configuration, with its own words.
        ServerFailed: its Python could not be run.
    """
    found = _ask(installation, _ASK, json.dumps(engine_arguments(folder)))
    if "error" in found:
        raise ExportRefused(
            f"vLLM {installation.version} does not take the export: {found['error']}",
            hint="change the option that it names, or export for the version you have",
        )
    return dict(found)


def processors_of(installation: Installation) -> tuple[str, ...]:
    """Names of the logits processors that packages of its environment offer."""
    return tuple(_ask(installation, _POINTS, ""))


def verified(folder: Path, manifest: Manifest, installation: Installation, progress: Progress) -> ParityReport:
    """Whether this vLLM runs the export as headstart does, in float32; the result goes into its manifest.

    Raises: as `headstart.fleet.parity.verify_export`.
    """
    from headstart.fleet.parity.plan import PROMPTS
    from headstart.fleet.parity.verify import verify_export

    own = folder / "prompts.jsonl"
    prompts = [item.prompt for item in read_prompt_set(own)[:VERIFIED]] if own.is_file() else PROMPTS
    report = verify_export(folder, installation, prompts=prompts, dtype="float32", progress=progress)
    record_verification(folder, manifest, {"vllm": installation.version, **report.as_json()})
    return report


def record_verification(folder: Path, manifest: Manifest, report: dict[str, Any]) -> Manifest:
    """Write the result of a verification into the manifest of a folder."""
    found = replace(manifest, verified=report)
    with replacing(folder / NAME) as part:
        part.write_text(found.text(), encoding="utf-8")
        part.chmod(0o644)
    return found


def _ask(installation: Installation, program: str, given: str) -> Any:
    hint = "is the environment whole? Try: python -c 'import vllm' in it"
    try:
        done = subprocess.run(
            [str(installation.python), "-c", program], input=given, capture_output=True, encoding="utf-8",
            timeout=SECONDS, env=environment(installation), cwd="/", check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerFailed(f"{installation.python} could not be run: {error}", hint=hint) from error
    line = next((line for line in done.stdout.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        end = "\n".join(done.stderr.splitlines()[-5:])
        raise ServerFailed(f"vLLM in {installation.python} ended before it answered:\n{end}", hint=hint)
    return json.loads(line.removeprefix(_MARK))
