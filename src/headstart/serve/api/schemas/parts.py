"""The objects that stand in requests, and what they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from pydantic import Field

from headstart.serve.api.schemas.strict import Strict


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a request does not say: of the model's generation config, else of OpenAI's interface."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Defaults:
        """Those that a generation config has. Whether it says `do_sample` does not matter: requests sample."""
        named = {field.name: config.get(field.name) for field in fields(cls)}
        return cls(**{name: value for name, value in named.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer tells about its drafts."""

    metrics: Literal["none", "summary", "detailed"] = "summary"
    trace: bool = False
    predicted: bool = False
    """Whether the request had a `prediction`: only then does the usage count its tokens."""


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

    @property
    def text(self) -> str:
        """The predicted output."""
        return text_of(self.content)


def text_of(content: str | Sequence[TextPart] | None) -> str:
    """The text of a content field; parts stand on lines of their own."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content)
