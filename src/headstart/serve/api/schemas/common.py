"""What chat and completion requests have in common: sampling, streaming, speculation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from headstart.serve.api.schemas.strict import Strict

MOST_CHOICES = 128
MOST_LOGPROBS = 20
MOST_STOPS = 64
INT64 = 2**63

_LATER = "grammars and tools are not served yet; ask for the form in the prompt"
_OTHER_SAMPLER = "samplers here are temperature, top_k, top_p, min_p and the three penalties"


class StreamOptions(Strict):
    """`stream_options` of OpenAI and vLLM."""

    place: ClassVar[str] = "stream_options."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {"include_obfuscation": ()}

    include_usage: bool | None = Field(default=None, description="One more chunk at the end, with the usage.")
    continuous_usage_stats: bool | None = Field(default=None, description="The usage so far on every chunk.")


class SpeculationField(Strict):
    """How this request may be drafted for; its text follows the same distribution whatever stands here."""

    place: ClassVar[str] = "speculation."

    enabled: bool | None = Field(default=None, description="Whether anything is drafted; true by default.")
    max_draft_tokens: int | None = Field(default=None, ge=0, description="The most nodes of a draft.")
    sources: list[str] | None = Field(default=None, description="The drafters that may be asked, by name.")
    metrics: Literal["none", "summary", "detailed"] | None = Field(
        default=None, description="How much `metrics` says; 'summary' by default."
    )
    trace: bool | None = Field(default=None, description="The answer carries its steps in the form of a trace file.")
    smooth: bool | None = Field(default=None, description="A stream's tokens come evenly, not in bursts.")


class TextPart(Strict):
    """A piece of text in a list of content parts."""

    place: ClassVar[str] = "content."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {"cache_control": (), "prompt_cache_breakpoint": ()}
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("image_url", "input_audio", "file", "video_url", "audio_url"), "this model reads text; send text parts"
    )

    type: Literal["text"]
    text: str


class PredictionField(Strict):
    """OpenAI's predicted output: what the answer is expected to contain, in this order."""

    place: ClassVar[str] = "prediction."

    type: Literal["content"]
    content: str | list[TextPart]


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
        "response_format": ({"type": "text"},),
        "samplers": (["penalties", "temperature", "top_k", "top_p", "min_p"],),
        "repeat_last_n": (-1,),
    }  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "tools", "functions", "tool_choice", "function_call", "response_format", "structured_outputs",
                "guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema", "grammar",
            ),
            _LATER,
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

    @property
    def count(self) -> int:
        """Choices for each prompt."""
        return self.n or 1
