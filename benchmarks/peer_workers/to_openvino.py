"""A Hugging Face checkpoint as OpenVINO IR, with weights in 16 bits or compressed to int8 or int4.

    python to_openvino.py SOURCE OUT --precision bf16|int8|int4 [--group 32] [--head]      (in OpenVINO's environment)

An inflated checkpoint has layers whose output projections are all zero. OpenVINO keeps equal constants once, so it
would read fewer bytes than a model of that size has; here each copy gets one tiny value of its own first.

--head: SOURCE is an EAGLE-3 head in the flat layout, the folder `drafter` that `headstart export` writes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino as ov
from optimum.exporters.openvino import main_export
from optimum.intel import OVConfig

TINY = 2.0**-14  # the smallest normal number of fp16; below what bf16 can add to an activation


def make_distinct(model: Any) -> int:
    """Set one element in each repeated matrix, another one each time. Returns how many there were."""
    seen: dict[int, int] = {}
    for node in model.get_ops():
        if node.get_type_name() != "Constant" or len(node.shape) != 2 or node.get_element_type() != ov.Type.f16:
            continue
        key = hash(node.data.tobytes())
        copies = seen[key] = seen.get(key, -1) + 1
        if copies:
            data = np.array(node.data)
            data[-1, copies] += np.float16(TINY)
            replacement = ov.opset13.constant(data, dtype=np.float16, name=node.get_friendly_name() + "/distinct")
            for reader in list(node.output(0).get_target_inputs()):
                reader.replace_source_output(replacement.output(0))
    return sum(seen.values())


def convert(source: Path, out: Path, precision: str, group: int, head: bool = False) -> None:
    """int8: 8-bit weights, a scale for each output channel. int4: a scale for each `group` inputs; embedding and head
    stay 8-bit, as is nncf's default. Activations are quantised while the model runs."""
    with tempfile.TemporaryDirectory() as plain:
        task = "text-generation-with-past"
        # The class of a head is optimum-intel's own, which it loads as it loads code of others
        more = {"trust_remote_code": True} if head else {"convert_tokenizer": True}
        main_export(str(source), plain, task=task, ov_config=OVConfig(dtype="fp16"), **more)
        model = ov.Core().read_model(Path(plain) / "openvino_model.xml")
        print(f"{make_distinct(model)} repeated matrices made distinct", flush=True)
        if precision == "int8":
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        if precision == "int4":
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT4_SYM, group_size=group, ratio=1.0)
        out.mkdir(parents=True, exist_ok=True)
        ov.save_model(model, out / "openvino_model.xml", compress_to_fp16=False)
        for file in Path(plain).iterdir():
            if not file.name.startswith("openvino_model"):
                (out / file.name).write_bytes(file.read_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--precision", choices=["bf16", "int8", "int4"], required=True)
    parser.add_argument("--group", type=int, default=32, help="inputs of a scale, for int4 (%(default)s)")
    parser.add_argument("--head", action="store_true", help="SOURCE is an EAGLE-3 head")
    args = parser.parse_args()
    convert(args.source, args.out, args.precision, args.group, args.head)
