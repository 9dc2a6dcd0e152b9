"""Tokenizers: loading one, and naming exactly how two differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headstart.base.errors import IncompatibleTokenizer
from headstart.base.lazy import transformers
from headstart.model.gguf.checkpoint import is_gguf
from headstart.model.gguf.checkpoint import load_tokenizer as gguf_tokenizer
from headstart.model.reading import reading

_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_tokenizer(source: str, *, trust_remote_code: bool) -> Any:
    """The tokenizer beside a model, or None if its directory has none (prompts are token ids then)."""
    if is_gguf(source):
        return gguf_tokenizer(source)
    path = Path(source)
    if path.is_dir() and not any((path / name).is_file() for name in _FILES):
        return None
    with reading(source):
        found = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
        found("The first")  # some parts of its files are believed until they are used
        return found


def differences(target: Any, draft: Any) -> tuple[str, ...]:
    """What a draft's tokenizer does differently, in words; empty if every id means the same token in both."""
    ours, theirs = target.get_vocab(), draft.get_vocab()
    found: list[str] = []
    if len(ours) != len(theirs):
        found.append(f"the target knows {len(ours)} tokens, the draft {len(theirs)}")
    moved = sorted(
        (ours[token], token, theirs[token]) for token in ours.keys() & theirs.keys() if ours[token] != theirs[token]
    )
    if moved:
        here, token, there = moved[0]
        found.append(
            f"{len(moved)} tokens have other ids, the first {token!r}: {here} in the target, {there} in the draft"
        )
    for name, mine, other in (("the target", ours, theirs), ("the draft", theirs, ours)):
        missing = sorted((mine[token], token) for token in mine.keys() - other.keys())
        if missing:
            found.append(
                f"{len(missing)} tokens are known to {name} only, the first {missing[0][1]!r} (id {missing[0][0]})"
            )
    return tuple(found)


def check_pair(target: Any, draft: Any, *, target_vocab: int, draft_vocab: int, name: str) -> None:
    """Raise `IncompatibleTokenizer` unless draft tokens mean the same to the target.

    The models' vocabularies may differ in size by padding (151,936 against 152,064, say): the tokenizers decide.
    Where a model comes without a tokenizer only the sizes can be compared.
    """
    hint = "use a draft of the target's own family, train one (headstart train draft), or drafter='ngram'"
    if target is not None and draft is not None:
        found = differences(target, draft)
    elif target_vocab != draft_vocab:
        found = (f"one has no tokenizer, and their vocabularies have {target_vocab} and {draft_vocab} entries",)
        hint = f"put the tokenizers' files beside both models, so that drafts can be translated; or {hint}"
    else:
        found = ()
    if found:
        raise IncompatibleTokenizer(
            f"{name} has another tokenizer than the target: {'; '.join(found)}",
            hint=hint,
            differences=found,
        )
