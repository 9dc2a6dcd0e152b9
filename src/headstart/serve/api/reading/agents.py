"""Requests of `/v1/messages` and `/v1/responses` as `Work`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headstart.base.errors import InvalidGrammar
from headstart.rule import grammar_limits
from headstart.serve.api.errors import Refused, invalid_value
from headstart.serve.api.reading.conversations import prompt_of
from headstart.serve.api.reading.structures import structure_of
from headstart.serve.api.reading.work import Caller, Model, Work, conversation_work, form_of
from headstart.serve.api.schemas.common import Common
from headstart.serve.api.schemas.messages import CountRequest, MessagesRequest
from headstart.serve.api.schemas.responses import Item, Named, ResponsesRequest, asked
from headstart.types import Structure


class _Options(Common):
    """How an answer is sampled, in the fields that all interfaces share."""

    def limit(self) -> int | None:
        return self.max_tokens

    def alternatives(self) -> int | None:
        return None


def messages_work(request: MessagesRequest, ignored: Sequence[str], model: Model, caller: Caller) -> Work:
    """Raises: Refused, InvalidPrompt, InvalidOption."""
    options = _Options(**request.options(), max_tokens=request.max_tokens)
    form = request.output_config.format if request.output_config else None
    answer = None
    if form is not None:
        try:
            answer = Structure.schema(form.json_schema, lenient=True)
            grammar_limits.check(answer)
        except InvalidGrammar as error:
            param = "output_config.format.schema"
            raise Refused(error.message, hint=error.hint, code="invalid_json_schema", param=param) from error
    left_out = [*ignored, *(f"the tool {name}" for name in request.dropped)]
    return conversation_work(
        options, request.conversation(), answer, form_of(options), left_out, model, caller, tag="messages"
    )


def count(request: CountRequest, _ignored: Sequence[str], model: Model) -> int:
    """The tokens of a prompt: those that a request with the same fields would read.

    Raises: Refused, InvalidPrompt.
    """
    return len(prompt_of(model.tokenizer, request.conversation(), model.chat, context=model.context).tokens)


@dataclass(frozen=True, slots=True)
class ResponsesWork:
    """Work, and what the response says of its request.

    shown: the fields of the request that a response repeats.
    names: of functions that are called otherwise in the interface than in the prompt.
    items: the conversation as items, with all that came before it.
    kept: whether the response is to be kept.
    """

    work: Work
    shown: Mapping[str, Any]
    names: Mapping[str, Named]
    items: tuple[Item, ...]
    kept: bool


def responses_work(
    request: ResponsesRequest,
    ignored: Sequence[str],
    model: Model,
    caller: Caller,
    before: Callable[[str], Sequence[Item] | None],
) -> ResponsesWork:
    """before: the items up to the end of a response of this caller, by its id; None where there is none.

    Raises: Refused, InvalidPrompt, InvalidOption.
    """
    earlier: Sequence[Item] = ()
    if (previous := request.previous_response_id) is not None:
        found = before(previous)
        if found is None:
            raise Refused(
                f"there is no response {previous[:80]}", hint="send the whole conversation as input",
                code="previous_response_not_found", param="previous_response_id",
            )  # fmt: skip
        earlier = found
    if request.top_logprobs:
        hint = "log-probabilities are in /v1/chat/completions"
        raise invalid_value("top_logprobs", "top_logprobs is not served here", hint)
    read = asked(request, earlier)
    options = _Options(**request.options())
    form = replace(form_of(options), usage=True)
    work = conversation_work(
        options, read.conversation, structure_of(options), form, [*ignored, *read.ignored], model, caller,
        tag="responses",
    )  # fmt: skip
    return ResponsesWork(
        work, _shown(request), read.names, (*earlier, *request.items), kept=request.store is not False
    )  # fmt: skip


def _shown(request: ResponsesRequest) -> dict[str, Any]:
    text = request.text.model_dump(exclude_none=True) if request.text else {}
    reasoning = request.reasoning
    return {
        "instructions": request.instructions,
        "previous_response_id": request.previous_response_id,
        "tools": [_tool(tool) for tool in request.tools or ()],
        "tool_choice": request.tool_choice or "auto",
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": None,
        "text": {"format": {"type": "text"}, **text},
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "top_logprobs": 0,
        "store": request.store is not False,
        "metadata": request.metadata or {},
        "user": request.user,
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": None,
    }


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as a response repeats it: what a function leaves out is null."""
    if tool.get("type") != "function":
        return dict(tool)
    return {"description": None, "parameters": None, "strict": None} | dict(tool)
