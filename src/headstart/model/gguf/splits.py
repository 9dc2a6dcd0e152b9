"""How text is cut up before its bytes are merged, by the name that a file gives.

The wrong cut gives other tokens than the model was trained on, and nothing fails: so a name that is not in this table
is refused. Names from src/llama-vocab.cpp of ggml-org/llama.cpp; patterns from the tokenizers of the models themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, pre_tokenizers

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CLITIC = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CLITIC}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CLITIC}?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35 = (
    rf"{_CLITIC}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SEED = (
    rf"{_CLITIC}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")


@dataclass(frozen=True, slots=True)
class Split:
    """A way to cut text up."""

    patterns: tuple[str, ...] = ()
    """Cut at the matches of each, one after the other."""
    gpt2: bool = False
    """Then as GPT-2 does."""
    digits: bool = False
    """Before all else every digit by itself."""
    whole_words: bool = False
    """A piece that is a token is that token, whatever the merges say."""
    begins: bool = False
    """Texts begin with the first token, unless the file says otherwise."""
    composed: bool = False
    """Characters are composed before (NFC)."""

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if self.digits else []
        steps += [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.gpt2)])


_OF_LLAMA3 = Split((_LLAMA3,), whole_words=True, begins=True)
_OF_DIGITS = Split(gpt2=True, digits=True)

SPLITS = {
    "gpt-2": Split(gpt2=True),
    "phi-2": Split(gpt2=True),
    "llama-bpe": _OF_LLAMA3,
    "llama3": _OF_LLAMA3,
    "llama-v3": _OF_LLAMA3,
    "lfm2": _OF_LLAMA3,
    "qwen2": Split((_QWEN2,), composed=True),
    "deepseek-r1-qwen": Split((_QWEN2,)),
    "deepseek-coder": Split(_DEEPSEEK_CODER),
    "tekken": Split((_TEKKEN,), whole_words=True, begins=True),
    "smollm": _OF_DIGITS,
    "starcoder": _OF_DIGITS,
    "refact": _OF_DIGITS,
    "command-r": Split(gpt2=True, digits=True, composed=True),
    "dbrx": Split((_LLAMA3,)),
    "smaug-bpe": Split((_LLAMA3,)),
    "glm4": Split((_LLAMA3,), whole_words=True),
    "exaone4": Split(gpt2=True),
    "gpt-4o": Split((_GPT4O,)),
    "qwen35": Split((_QWEN35,), composed=True),
    "seed-coder": Split((_SEED,)),
    "deepseek-v3": Split(_DEEPSEEK3),
    "hunyuan-dense": Split(_DEEPSEEK3),
}
"""By `tokenizer.ggml.pre`."""
