"""What llama.cpp is asked in order to compare headstart with it: tiny files of every architecture and of every type of
block, and a vocabulary that shows each cut of a text. What it answered is kept beside the tests of GGUF files.

`benchmarks/gguf_logits.py` asks a llama.cpp, and records its answers.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from headstart.model.gguf.splits import SPLITS
from support.gguf_files import TEXTS, Q, random_blocks, stored_matrices, write
from support.gguf_mixtures import MIXTURES
from support.gguf_models import KINDS, LENGTH, MODELS, family, made, mixture
from support.hybrids import HYBRIDS

RECORD = Path(__file__).parents[1] / "model" / "gguf" / "llamacpp.npz"
"""Arrays by the names of `FILES`, the logits of the last `JUDGED` tokens of `IDS`; and by those of `SPLITS` after
"cut ", the tokens of each text of `CUT`, with -1 after each."""
JUDGED = 6
NO_TOKENS = {"ggml.model": "no_vocab"}

# -- Logits -----------------------------------------------------------------------------------------------------------

_NO_BIAS = {"attention_bias": False}
_NO_BIASES = {"attention_bias": False, "mlp_bias": False}
_SQUARE = {"hidden_size": 128, "query_pre_attn_scalar": 32}
"""Of the sizes of Gemma whose scores are divided by width over heads: 32, where heads are 16 wide."""
_ROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75, "short_factor": [1.5] * 5 + [2.0],
    "long_factor": [4.0] * 6, "original_max_position_embeddings": 512,
}  # fmt: skip

_NOT_ASKED = ("granite4h, rotated", "qwen3_5, as many key heads")
"""The converter says of all hybrids of Granite that they have no positions, and the record has no room for both."""

FLOATS: dict[str, Callable[[], Any]] = {
    **{name: config for name, config in MODELS.items() if name not in _NOT_ASKED},
    "arcee": family("arcee", **_NO_BIASES),
    "cohere": family("cohere", tie_word_embeddings=True, **_NO_BIAS),
    "cohere, qk norm": family("cohere, qk norm", num_hidden_layers=64, tie_word_embeddings=True),
    "ernie4_5": family("ernie4_5", use_bias=False),
    "exaone4": family("exaone4", num_hidden_layers=64, layer_types=KINDS * 16),
    "falcon_h1": lambda: HYBRIDS["falcon_h1"](mamba_norm_before_gate=False, projectors_bias=False),
    "falcon_h1, not normed": lambda: HYBRIDS["falcon_h1"](mamba_rms_norm=False, projectors_bias=False),
    "granite4h": lambda: HYBRIDS["granite4h"](mamba_proj_bias=False, num_experts_per_tok=0),
    "lfm2": lambda: HYBRIDS["lfm2"](conv_bias=False),
    "nemotron_h": lambda: HYBRIDS["nemotron_h"](use_bias=False),
    "qwen3_5": lambda: HYBRIDS["qwen3_5"](linear_key_head_dim=32, rms_norm_eps=1e-6),
    "falcon": family("falcon", intermediate_size=None, ffn_hidden_size=96, bias=False),
    "gemma2, 46 layers": family("gemma2", num_hidden_layers=46, tie_word_embeddings=True, **_SQUARE),
    "gemma3, 62 layers": family(
        "gemma3_text", num_hidden_layers=62, layer_types=(["sliding_attention"] * 5 + KINDS[3:]) * 10 + KINDS[:2],
        **_SQUARE,
    ),
    "hunyuan": family("hunyuan_v1_dense", pad_token_id=None, **_NO_BIAS),
    "mistral": family("mistral", sliding_window=None),
    "olmo": family("olmo", **_NO_BIAS),
    "olmo2": family("olmo2", **_NO_BIAS),
    "phi3": family("phi3", sliding_window=LENGTH),
    "phi3, short": family(
        "phi3", sliding_window=LENGTH, original_max_position_embeddings=512, max_position_embeddings=1024,
        rope_parameters=_ROPE,
    ),
    "qwen3": family("qwen3", **_NO_BIAS),
    "seed_oss": family("seed_oss", attention_out_bias=False, mlp_bias=False),
    "smollm3": family("smollm3", use_sliding_window=False, sliding_window=None, **_NO_BIASES),
}  # fmt: skip
"""Models whose files hold floats: those of `MODELS`, without what llama.cpp does not run. It has no place for some
biases, which no published model has; it gives Mistral and Phi no windows (the texts are shorter here), and EXAONE 4
only where there are 64 layers."""

_NOT_MIXED = ("gpt_oss, yarn", "deepseek_v2, groups")
"""A rotation whose range llama.cpp rounds to whole numbers; and groups that it chooses by their two best experts."""

FLOATS |= {name: config for name, config in MIXTURES.items() if name not in _NOT_MIXED} | {
    # llama.cpp knows by the number of layers that queries are of full rank; and the original's norms within attention
    # have this epsilon, whatever the others have
    "deepseek_v2": mixture("deepseek_v2", num_hidden_layers=27, rms_norm_eps=1e-6),
    **{name: mixture(name, rms_norm_eps=1e-6) for name in ("deepseek_v3", "glm4_moe_lite", "mistral4", "youtu")},
    "kimi_linear": mixture(
        "kimi_linear", rms_norm_eps=1e-6, layer_types=["linear_attention", "full_attention", "linear_attention"]
    ),
}

_WIDE = {"hidden_size": 256, "intermediate_size": 512}
WIDE: dict[str, Callable[[], Any]] = {
    "llama": family("llama", **_WIDE, num_attention_heads=16, num_key_value_heads=16),
    "gemma4": family(
        "gemma4_text", **_WIDE, layer_types=KINDS * 2, num_attention_heads=16, num_key_value_heads=16,
        global_head_dim=32, hidden_size_per_layer_input=256,
    ),
    "granite": family("granite", **_WIDE, num_attention_heads=16, num_key_value_heads=16),
    "qwen3_moe": mixture(
        "qwen3_moe", **_WIDE, moe_intermediate_size=256, num_experts=4, num_experts_per_tok=4, num_attention_heads=16,
        num_key_value_heads=16,
    ),
}  # fmt: skip
"""Models whose rows hold blocks of 256. All experts are chosen, so that no rounding changes the choice."""

BLOCKS = (
    Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS, Q.MXFP4, Q.F16, Q.BF16, Q.Q2_K,
    Q.Q3_K,
)  # fmt: skip
_ASKED = {"qwen3_moe": (Q.Q4_0, Q.Q4_K, Q.MXFP4, Q.Q2_K, Q.Q3_K), "llama": BLOCKS}
"""The types that some models are tried with; others with all up to BF16."""
FILES = (*FLOATS, *(f"{name}, {kind.name}" for name in WIDE for kind in _ASKED.get(name, BLOCKS[:-2])))
"""The names of all files."""


def write_case(path: Path, name: str) -> Any:
    """The file of one of `FILES`, without a tokenizer. Returns the model, whose matrices are other ones where the file
    holds random blocks."""
    if name in FLOATS:
        model = made(FLOATS[name]())
        write(path, model, tokenizer=NO_TOKENS)
        return model
    called, _, kind = name.rpartition(", ")
    model = made(WIDE[called]())
    blocks = dict(_blocks(model, Q[kind])) if kind.endswith("_K") or kind.startswith("IQ") else {}
    write(path, model, kind=Q[kind], blocks=blocks, tokenizer=NO_TOKENS)
    return model


def _blocks(model: Any, kind: Q) -> Iterator[tuple[str, tuple[np.ndarray, Q]]]:
    rng = np.random.default_rng(0)
    for name, (*outputs, inputs) in stored_matrices(model):
        blocks = random_blocks(rng, kind, math.prod(outputs), inputs)
        yield name, (blocks.reshape(*outputs, -1), kind)


_OF_EXPERTS = ("n_group", "norm_topk_prob", "topk_group")


def published(config: dict[str, Any]) -> dict[str, Any]:
    """A config.json as the models' makers write it, where llama.cpp's converter needs what transformers does not
    write."""
    kind = config["model_type"]
    if kind == "cohere2":
        return {**config, "rotary_pct": 1.0}
    if kind == "falcon" and not config["new_decoder_architecture"]:
        return {**config, "num_kv_heads": 1}
    if kind == "hunyuan_v1_dense":
        return {**config, "max_position_embeddings": 32768}
    if kind == "granitemoehybrid":
        called = {"linear_attention": "mamba", "full_attention": "attention"}
        width = config["shared_intermediate_size"]
        return {**config, "layer_types": [called[each] for each in config["layer_types"]], "intermediate_size": width}
    if kind == "nemotron_h":
        pattern = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        mixed = "moe" in config["layers_block_type"]
        made = {
            name: value for name, value in config.items() if mixed or ("expert" not in name and name not in _OF_EXPERTS)
        }
        kinds = made.pop("layers_block_type")
        made |= {"hybrid_override_pattern": "".join(pattern[each] for each in kinds), "num_hidden_layers": len(kinds)}
        return {**made, "model_type": "published"}  # by its own type transformers would put the experts back
    if kind in ("deepseek_v3", "glm4_moe_lite"):
        dense = config.get("first_k_dense_replace", config.get("mlp_layer_types", []).count("dense"))
        return {**config, "first_k_dense_replace": dense, "scoring_func": "sigmoid"}
    if kind == "qwen3_5_text":
        return {**config, "full_attention_interval": 4}
    if kind == "ministral3":
        return {**config, "rope_parameters": {"mscale_all_dim": 0.0, **config["rope_parameters"]}}
    return config


def allowed(name: str) -> float:
    """The largest error on floats. llama.cpp looks GELU up in a table of half-precision numbers, and runs its
    approximation where GPT-NeoX and Falcon have the function itself; and its
    logits of Qwen3.5 are 1e-4 off those in float64, ten times as much as transformers' in float32."""
    if name == "qwen3_5_moe":  # the same, where a little more or less of each expert adds to it
        return 2e-3
    gelu = name.startswith(("gemma", "starcoder2", "gpt", "falcon")) or name == "phi"
    return 2e-3 if gelu else 2e-4 if name.startswith("qwen3_5") else 1e-5


# -- Tokens -----------------------------------------------------------------------------------------------------------

CUT = (
    *TEXTS, "I'LL pay 12345 Ⅷ naïve\n\n", "a/\n漢字かな\u0301x", "Ünï ÄÖ ßtraße ÉCOLE élan", "Привет МИР как дела",
    "ABCdef ABCDEFghi iPhone XMLHttpRequest", "x = {'a': [1, 2.5e-10]};\r\n\t\t// c/*d*/\n",
    "日本語のテキスト、한국어 텍스트。", "hello\u00a0world", "\u2003wide\u3000space", "   \n   \n\n\t\tfoo   bar\n \n",
    "'S 'T 'RE 's't're 've'm'll'd \u2019s", "100,000.00 1234567 12 345 \uff16\uff17\uff18",
    "foo_bar::baz->qux!=quux&&corge||x", "👍🏽👨\u200d👩\u200d👧", "مرحبا بالعالم ١٢٣٤٥", "हिन्दी में नमस्ते",
    "ภาษาไทย", "\u0301a\u0301\u0302", "A\u030angstro\u0308m", "\u00e9 composed", "\u0301\u00e1\u0302",
    "\u00c5ngstr\u00f6m", "...!!!???---***///\n\n//\n/", " leading", "trailing ", "\n", "\t", "  \n",
    "a  b   c    d", "don't can't I'd've", "é'S", "\uff46\uff55\uff4c\uff4c \uff21\uff22\uff23",
    "€100 £5 ¥3 ±∞≠", "①②③ ½¼", "line1\rline2\r\rline3", "tab\tsep\t\tx", "ǅungla ǈ ʰʷ ªº",
)  # fmt: skip
"""Texts that are cut in each place where some model's tokenizer cuts."""

_WHOLE = ("Ġcomposed", "HTTPServer", "camelCase", "leading", "iPhone", "world")
"""Tokens that no merge makes."""


def crossing(pre: str) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer in whose vocabulary every two to four neighbours of a text are a token, so
    that a cut in another place gives other tokens."""
    spelled = ["".join(piece for piece, _ in _BYTES.pre_tokenize_str(text)) for text in CUT]
    found = {text[at : at + size] for text in spelled for size in (2, 3, 4) for at in range(len(text) - size + 1)}
    made_of = sorted(found, key=lambda token: (len(token), token))
    tokens = [*sorted(ByteLevel.alphabet()), *made_of, *_WHOLE, "<eos>", "<|im_start|>", "<|im_end|>"]
    return {
        "ggml.model": "gpt2",
        "ggml.pre": pre,
        "ggml.tokens": tokens,
        "ggml.token_type": [int(gguf.TokenType.NORMAL)] * (len(tokens) - 3) + [int(gguf.TokenType.CONTROL)] * 3,
        "ggml.merges": [f"{token[:-1]} {token[-1]}" for token in made_of],
        "ggml.eos_token_id": len(tokens) - 3,
        "ggml.bos_token_id": len(tokens) - 2,
    }


_BYTES = ByteLevel(add_prefix_space=False, use_regex=False)

_MARKS = {
    "e\u0301 composed", "a/\n漢字かな\u0301x", "हिन्दी में नमस्ते", "\u0301a\u0301\u0302", "A\u030angstro\u0308m",
    "\u0301\u00e1\u0302",
}  # fmt: skip
OTHERWISE = {"tekken": _MARKS | {"Ünï ÄÖ ßtraße ÉCOLE élan"}, "gpt-4o": _MARKS}
"""Texts that llama.cpp cuts otherwise than the tokenizers of the models themselves, which headstart follows: it leaves
marks out of words there, and knows the case of ASCII letters alone."""


def same_tokens(pre: str, text: str) -> bool:
    """Whether llama.cpp is asked for the same tokens; it does not compose characters, which some tokenizers do."""
    composed = unicodedata.normalize("NFC", text)
    return text not in OTHERWISE.get(pre, ()) and (text == composed or not SPLITS[pre].composed)
