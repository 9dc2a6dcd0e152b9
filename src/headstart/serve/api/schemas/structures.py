"""The form that an answer's text must have, as OpenAI, vLLM and llama.cpp ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from headstart.serve.api.schemas.strict import Strict


class JsonSchemaField(Strict):
    """A schema with a name, as OpenAI wraps it."""

    place: ClassVar[str] = "response_format.json_schema."

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = Field(default=None, description="The schema is enforced whole, or refused.")


class ResponseFormatField(Strict):
    """`response_format` of OpenAI. llama.cpp writes the schema beside the type."""

    place: ClassVar[str] = "response_format."

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaField | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema", description="llama.cpp's place of it.")


class StructuredField(Strict):
    """`structured_outputs` of vLLM: one of its forms."""

    place: ClassVar[str] = "structured_outputs."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = dict.fromkeys(
        ("disable_fallback", "disable_additional_properties", "backend"), ()
    )
    refused: ClassVar[Mapping[str, str]] = {
        "structural_tag": "give tools, or a grammar in the syntax of Lark",
        "whitespace_pattern": "disable_any_whitespace leaves the white space out",
    }

    json_: dict[str, Any] | str | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = Field(default=None, description="In the syntax of Lark or GBNF.")
    json_object: bool | None = None
    disable_any_whitespace: bool | None = None
    spelling: Literal["canonical", "free"] | None = Field(
        default=None, description="How forced text is spelled; see the documentation of grammars."
    )
