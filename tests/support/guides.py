"""The commands and programs that documents show, as a reader would type them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import typer.main
from markdown_it import MarkdownIt
from transformers import AutoModelForCausalLM, AutoTokenizer, MambaConfig, MixtralConfig

from headstart import SuffixStore
from headstart.base.extras import pair
from headstart.commands.cli import app
from support import hybrids, tiny
from support.gguf_files import Q, byte_level, write

ROOT = Path(__file__).parents[2]
PAIR = Path(pair("target")).parent
SHOWING = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of headstart that a document shows."""

    place: str
    """The document, and the line of the block."""
    words: tuple[str, ...]
    """What follows `headstart`, without redirections and what a pipe leads to."""


def blocks(path: Path) -> Iterator[tuple[int, str, str]]:
    """The blocks of code of a document: line, language and text."""
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            yield (token.map or [0])[0] + 1, token.info.strip(), token.content


def commands(path: Path) -> Iterator[Shown]:
    """The commands of headstart in blocks of code, each line that begins with one; lines that end in \\ go on."""
    for line, language, text in blocks(path):
        if language not in ("", "sh", "bash", "console"):
            continue
        for each in re.sub(r"\\\n\s*", "", text).splitlines():
            found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ |\S.* \| )?headstart(?= )(.*)$", each)
            if found and not each.startswith(("pip ", "headstart demo · ")):
                yield Shown(f"{path.relative_to(ROOT)}:{line}", tuple(_words(found[1])))


def _words(rest: str) -> list[str]:
    lexer = shlex.shlex(rest, posix=True, punctuation_chars="|><&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|><&;"):
            break
        words.append(word)
    return words


def furnish(made: Path) -> Path:
    """Fill a folder with what the documents name: the bundled pair as any model, small files as any file."""
    shutil.copytree(PAIR / "target", made / "chat")
    # Its user's words end with what the model writes often, so that it can write such messages itself.
    template = "{% for m in messages %}# {{ m.role }}: {{ m.content }}.\n{% endfor %}# assistant:"
    (made / "chat" / "chat_template.jinja").write_text(template)
    for name in ("my-model", "my/model", "path/to/model", "path/to/target", "MODEL", "Qwen/Qwen2.5-Coder-1.5B"):
        link(made / name, PAIR / "target")
    chats = ("my-chat-model", "path/to/chat-model", "HuggingFaceTB/SmolLM2-135M-Instruct", "path/to/Qwen3-8B-W8A8")
    for name in chats:
        link(made / name, made / "chat")
    link(made / "my-head", PAIR / "eagle3")
    for name in ("path/to/draft", "Qwen/Qwen2.5-Coder-0.5B", "NAME"):
        link(made / name, PAIR / "draft")
    _of_other_kinds(made)
    (made / "texts").mkdir()
    source = (ROOT / "src" / "headstart" / "rule" / "verify.py").read_text()
    (made / "texts" / "verify.txt").write_text(source * 16)
    for name in ("src", "docs"):
        (made / name).mkdir()
        (made / name / "a.py").write_text(source)
    prompts = "".join(json.dumps({"prompt": f"def f{i}(a, b):", "output": " return a"}) + "\n" for i in range(3))
    for name in ("my", "my-prompts", "prompts", "humaneval"):
        (made / f"{name}.jsonl").write_text(prompts)
    (made / "stock.py").write_text("def area(width, height):\n    return width * height\n")
    SuffixStore().save(made / "past.safetensors")
    (made / "questions.txt").write_text("Why?\n\nWhen?\n")
    (made / "keys.txt").write_text("a-key-of-some-length\n")
    (made / "words.lark").write_text('start: "yes" | "no"\n')
    (made / "book.json").write_text('{"type": "object", "properties": {"year": {"type": "integer"}}}')
    shutil.copy(ROOT / "src" / "headstart" / "learn" / "traces" / "draft-model.jsonl", made / "run.jsonl")
    return made


def _of_other_kinds(made: Path) -> None:
    """The pair as GGUF files, and tiny models with experts and with recurrent layers."""
    template = (made / "chat" / "chat_template.jinja").read_text()
    files = {
        "target": ("Qwen3-8B-Q4_K_M", "SmolLM2-135M-Instruct.Q4_1", "cut", "my-model-Q4_K_M"),
        "draft": ("Qwen3-0.6B-Q8_0",),
    }
    for half, names in files.items():
        tokenizer = byte_level(AutoTokenizer.from_pretrained(PAIR / half), chat_template=template)
        written = write(
            made / f"{half}.gguf", AutoModelForCausalLM.from_pretrained(PAIR / half), kind=Q.Q8_0, tokenizer=tokenizer
        )
        for name in names:
            (made / f"{name}.gguf").symlink_to(written)
    experts = made / "experts"
    config = MixtralConfig(
        vocab_size=258, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=2048,
    )  # fmt: skip
    tiny.drawn(config).save_pretrained(experts)
    tiny.byte_tokenizer().save_pretrained(experts)
    (experts / "chat_template.jinja").write_text(template)
    link(made / "a-mixture", experts)
    link(made / "a-model-of-qwen3.5", Path(hybrids.checkpoint(made, "qwen3_5", chat=True)))
    (made / "my" / "mamba").mkdir()
    (made / "my" / "mamba" / "config.json").write_text(
        MambaConfig(hidden_size=32, num_hidden_layers=2).to_json_string()
    )


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target, target_is_directory=True)


def parsed(words: tuple[str, ...]) -> Any:
    """The context of the innermost command; typer raises where there is no such option or value."""
    command: Any = typer.main.get_command(app)
    name, parent, rest = "headstart", None, list(words)
    while hasattr(command, "resolve_command") and rest and not rest[0].startswith("-"):
        parent = command.context_class(command, info_name=name, parent=parent)
        name, command, rest = command.resolve_command(parent, rest)
    return command.make_context(name, rest, parent=parent)
