"""What chat and completion requests have in common: sampling, streaming, speculation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from pydantic import Field

from headstart.serve.api.errors import invalid_value
from headstart.serve.api.schemas.parts import Defaults, PredictionField, Shown, SpeculationField, StreamOptions
from headstart.serve.api.schemas.strict import Strict
from headstart.serve.api.schemas.structures import ResponseFormatField, StructuredField
from headstart.types import Drafting, Sampling

MOST_CHOICES = 128
MOST_LOGPROBS = 20
MOST_STOPS = 64
INT64 = 2**63
_SEEDS = 2**63

_AS_THEY_ARE = (
    "temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "min_tokens", "stop_token_ids",
    "ignore_eos",
)  # fmt: skip
"""Fields that `Sampling` has under the same name, with the same meaning."""
_ELSEWHERE = "tools and tool_choice are fields of /v1/chat/completions"
_OTHER_SAMPLER = "samplers here are temperature, top_k, top_p, min_p and the three penalties"


class Common(Strict):
    """The fields of both interfaces. Names and meanings are those of OpenAI, then vLLM, then llama.cpp."""

    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {
        **dict.fromkeys(
            (
                "metadata", "service_tier", "prompt_cache_key", "prompt_cache_options",
                "prompt_cache_retention", "verbosity", "parallel_tool_calls",
                "reasoning_effort", "cache_prompt", "include_reasoning", "spaces_between_special_tokens",
            ),
            (),
        ),
        "modalities": (["text"],),
        "skip_special_tokens": (True,),
        "include_stop_str_in_output": (False,),
        "use_beam_search": (False,),
        "length_penalty": (1, 1.0),
        "typical_p": (1, 1.0),
        "mirostat": (0,),
        "tools": ([],),
        "functions": ([],),
        "tool_choice": ("none", "auto"),
        "function_call": ("none", "auto"),
        "samplers": (["penalties", "temperature", "top_k", "top_p", "min_p"],),
        "repeat_last_n": (-1,),
    }  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "tools", "functions", "tool_choice", "function_call",
            ),
            _ELSEWHERE,
        ),
        **dict.fromkeys(
            ("use_beam_search", "length_penalty", "typical_p", "mirostat", "dynatemp_range", "xtc_probability",
             "dry_multiplier", "top_n_sigma", "samplers", "logits_processors"),
            _OTHER_SAMPLER,
        ),
        "modalities": "this server writes text only",
        "audio": "this server writes text only",
        "web_search_options": "this server does not search",
        "moderation": "this server does not moderate",
        "chat_template": "the tokenizer's own template is used; chat_template_kwargs may be given",
        "prompt_logprobs": "log-probabilities are of the text that is written; leave it out",
        "skip_special_tokens": "special tokens are left out of texts; return_token_ids has them",
        "repeat_last_n": "penalties look at the whole text: give -1 or leave it out",
    }  # fmt: skip

    model: str | None = None
    n: int | None = Field(default=None, ge=1, le=MOST_CHOICES)
    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int | None = Field(default=None, ge=0)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, description="0 and -1 keep all tokens.")
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = Field(default=None, gt=0)
    repeat_penalty: float | None = Field(default=None, gt=0, description="llama.cpp's name of repetition_penalty.")
    logit_bias: dict[str, float] | None = Field(default=None, description="Token ids, as text, to numbers.")
    seed: int | None = Field(default=None, ge=-INT64, lt=INT64)
    stop: str | list[str] | None = Field(default=None, description="The text ends before the first of these.")
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stream_interval: int | None = Field(default=None, ge=1, description="The least number of tokens in a chunk.")
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = Field(
        default=None, description='Tokens of log-probabilities are written as "token_id:123".'
    )
    cache_salt: str | None = Field(default=None, max_length=256, description="Only requests of one salt share a cache.")
    tag: str | None = Field(
        default=None, max_length=64, description="The kind of work; acceptance is counted for each."
    )
    user: str | None = Field(default=None, description="Whom the client asks for; kept as a salted hash, if at all.")
    safety_identifier: str | None = Field(default=None, description="OpenAI's newer name of user.")
    store: bool | None = Field(
        default=None, description="False: the texts are never written down, also where the server records its traffic."
    )
    speculation: SpeculationField | None = None
    speculative_n_max: int | None = Field(
        default=None, ge=0, alias="speculative.n_max", description="llama.cpp's name."
    )
    prediction: PredictionField | None = None
    response_format: ResponseFormatField | None = None
    structured_outputs: StructuredField | None = None
    guided_json: dict[str, Any] | str | bool | None = Field(default=None, description="vLLM's older name.")
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = Field(default=None, description="llama.cpp's name of a schema.")
    grammar: str | None = Field(default=None, description="llama.cpp's grammar, in the syntax of GBNF.")

    @property
    def count(self) -> int:
        """Choices for each prompt."""
        return self.n or 1

    def limit(self) -> int | None:
        """The most tokens to write; None for as many as the context holds."""
        raise NotImplementedError

    def alternatives(self) -> int | None:
        """How many alternatives come with each token's log-probability; None for no log-probabilities.

        Raises:
            Refused: fields that contradict each other.
        """
        raise NotImplementedError

    def sampling(self, defaults: Defaults, *, room: int, salt: str) -> Sampling:
        """The sampling of the first choice; the seed is None if the request names none.

        room: tokens that the context holds beside the prompt.
        salt: what requests must have in common to share a cache.

        Raises:
            Refused, InvalidOption: values that contradict each other, or cannot be.
        """
        if None not in (both := {self.repetition_penalty, self.repeat_penalty}) and len(both) > 1:
            problem = "repetition_penalty and repeat_penalty differ"
            raise invalid_value("repeat_penalty", problem, "they are one thing: give one of them")
        given = {name: getattr(self, name) for name in _AS_THEY_ARE}
        given["repetition_penalty"] = next(iter(both - {None}), None)
        chosen = asdict(defaults) | {name: value for name, value in given.items() if value is not None}
        return Sampling(
            **chosen | {"top_k": max(0, chosen["top_k"])},
            max_tokens=max(1, room) if (limit := self.limit()) is None else limit,
            logit_bias=_bias(self.logit_bias or {}),
            seed=None if self.seed is None else self.seed % _SEEDS,
            stop=_stops(self.stop),
            logprobs=self.alternatives(),
            cache_salt=salt,
        )

    @property
    def shown(self) -> Shown:
        """What the client wants to see of drafts."""
        asked = self.speculation or SpeculationField()
        return Shown(asked.metrics or "summary", bool(asked.trace), self.prediction is not None)

    @property
    def predicted_text(self) -> str:
        """The predicted output; "" where the request has none."""
        found: str | PredictionField = self.prediction or ""
        return found if isinstance(found, str) else found.text

    def drafting(self, prediction: Sequence[int], known: Mapping[str, str]) -> Drafting:
        """How the request may be drafted for.

        prediction: its predicted output as token ids.
        known: the drafters there are: what requests call them, and what the engine does.

        Raises:
            Refused: a source that is not there.
        """
        asked = self.speculation or SpeculationField()
        unknown = next((name for name in asked.sources or () if name not in known), None)
        if unknown is not None:
            raise invalid_value(
                "speculation.sources",
                f"speculation.sources names {json.dumps(unknown[:60])}, and nothing here drafts by that name",
                f"this server has {', '.join(known)}",
            )
        return Drafting(
            enabled=asked.enabled is not False,
            max_draft_tokens=self.speculative_n_max if asked.max_draft_tokens is None else asked.max_draft_tokens,
            sources=None if asked.sources is None else tuple(known[name] for name in asked.sources),
            prediction=tuple(prediction),
        )


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MOST_STOPS:
        raise invalid_value("stop", f"{len(strings)} stop strings", f"give at most {MOST_STOPS}")
    if not all(strings):
        raise invalid_value("stop", "a stop string is empty", "leave it out")
    return strings


def _bias(pairs: Mapping[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in pairs.items()}
    except ValueError:
        raise invalid_value(
            "logit_bias", "a key of logit_bias is no token id", 'for example {"42": -100} forbids token 42'
        ) from None
