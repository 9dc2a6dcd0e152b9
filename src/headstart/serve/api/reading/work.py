"""`Work`: a request of any interface, as jobs for the engine and the form of their answers.

`/v1/chat/completions` and `/v1/completions` become Work here; another interface is one more function of this kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headstart.base.as_json import picked
from headstart.engine.prompts import encode_after
from headstart.model.tokens.bounded import CHARACTERS_PER_TOKEN
from headstart.serve.api.errors import invalid_value, unsupported
from headstart.serve.api.reading.conversations import conversation_of, prompt_of
from headstart.serve.api.reading.prompts import Encode, completion_prompts, prompt_text
from headstart.serve.api.reading.structures import structure_of
from headstart.serve.api.schemas.common import Common
from headstart.serve.api.schemas.parts import Defaults, Shown, StreamOptions
from headstart.serve.api.schemas.requests import ChatRequest, CompletionRequest
from headstart.serve.bridge import Job
from headstart.serve.conversation.detect import ChatForm
from headstart.serve.conversation.lark import ConstrainTools, constraint_of
from headstart.serve.conversation.reply import ReplyForm
from headstart.serve.conversation.turns import Conversation
from headstart.serve.conversation.twins import twins
from headstart.types import Sampling, Structure


@dataclass(frozen=True, slots=True)
class Model:
    """What reading a request needs to know of the model."""

    tokenizer: Any
    encode: Encode
    context: int
    """The most tokens of a prompt and its text together."""
    vocab_size: int
    defaults: Defaults
    sources: Mapping[str, str]
    """The drafters there are: what requests call them, and what the engine does."""
    recorded: bool = False
    """Whether the server writes its traffic down."""
    chat: ChatForm = ChatForm()
    """What its chat template does."""
    constrain_tools: ConstrainTools = "auto"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as that matters."""

    salt: str = ""
    """What requests must have in common to share a cache."""
    deadline: float | None = None
    """`time.monotonic()` seconds at which the request ends with what it has; None waits for ever."""

    def salted(self, cache_salt: str | None) -> str:
        """The salt of a request that names one of its own."""
        return f"{self.salt}/{cache_salt}" if cache_salt else self.salt


@dataclass(frozen=True, slots=True)
class Form:
    """How the answer is written."""

    shown: Shown
    stream: bool = False
    interval: int = 1
    """The least number of tokens in a chunk."""
    smooth: bool = False
    usage: bool = False
    usage_always: bool = False
    token_ids: bool = False
    numbered: bool = False
    """Tokens of log-probabilities as "token_id:123"."""
    logprobs: bool = False
    echo: tuple[str, ...] = ()
    """What the text of each choice begins with."""
    choices: int = 1
    """Of each prompt."""
    reasoning: bool = True
    """Whether reasoning is sent."""
    named_call: bool = False
    """Whether the request chose the function that is called: an answer with it ends with "stop"."""
    texts: frozenset[str] = frozenset()
    """Names of the tools that take a text: their calls have it alone, not the JSON that it stands in."""


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs, one for each choice, and the form of the answer."""

    jobs: tuple[Job, ...]
    form: Form
    sampling: Sampling
    """Of the first choice."""
    warnings: tuple[str, ...] = ()
    reply: ReplyForm = ReplyForm()
    """What the texts are read as, in a conversation."""
    stops: tuple[str, ...] = ()
    """The stop strings of the request; the form of a reply may add others."""


def chat_work(request: ChatRequest, ignored: Sequence[str], model: Model, caller: Caller) -> Work:
    """Raises: Refused, InvalidPrompt, InvalidOption."""
    form = replace(
        form_of(request), logprobs=bool(request.logprobs), reasoning=request.include_reasoning is not False,
        texts=frozenset(tool.custom.name for tool in request.tools or () if tool.custom is not None),
    )  # fmt: skip
    conversation, answer = conversation_of(request), structure_of(request)
    if conversation.continued and answer is not None:
        words = "continue_final_message and a form of the text exclude each other: the text has begun without the form"
        raise invalid_value("continue_final_message", words, "leave one of them out")
    return conversation_work(request, conversation, answer, form, ignored, model, caller, tag="chat")


def conversation_work(
    request: Common, conversation: Conversation, answer: Structure | None, form: Form, ignored: Sequence[str],
    model: Model, caller: Caller, *, tag: str,
) -> Work:  # fmt: skip
    """A conversation of whatever interface as work. request: says how it is sampled; answer: the form of the text.

    Raises: Refused, InvalidPrompt, InvalidOption.
    """
    rendered = prompt_of(model.tokenizer, conversation, model.chat, context=model.context)
    held = constraint_of(
        conversation, model.chat, model.tokenizer, thinking=rendered.thinking, answer=answer,
        constrain=model.constrain_tools,
    )  # fmt: skip
    tokens = rendered.tokens
    if held.opens:
        tokens += encode_after(model.tokenizer, tokens, held.opens)
    reply = ReplyForm(
        model.chat.format, model.chat.think, rendered.thinking or bool(held.opens), conversation.callable
    )  # fmt: skip
    work = _work(
        request, [model.encode(tokens)], replace(form, named_call=conversation.choice.one), ignored, model, caller,
        tag=tag, answer=held.structure,
    )  # fmt: skip

    def held_to(sampling: Sampling) -> Sampling:
        bias = {**sampling.logit_bias, **({} if held.forbidden is None else {held.forbidden: _NEVER})}
        return replace(
            sampling, stop=(*sampling.stop, *held.stop), logit_bias=bias,
            shown_special_tokens=reply.shown(model.chat.marks),
        )  # fmt: skip

    drafting = work.jobs[0].drafting
    if model.sources and drafting.enabled:
        drafting = replace(drafting, texts=twins(model.tokenizer, conversation, model.chat.format))
    jobs = tuple(replace(job, sampling=held_to(job.sampling), drafting=drafting) for job in work.jobs)
    warnings = (*work.warnings, *rendered.warnings, *held.warnings)
    return replace(
        work, jobs=jobs, sampling=jobs[0].sampling, warnings=warnings, reply=reply, stops=tuple(work.sampling.stop)
    )


_NEVER = -1e5
"""Added to the logit of a token that may not come; far below any logit."""


def completion_work(request: CompletionRequest, ignored: Sequence[str], model: Model, caller: Caller) -> Work:
    """Raises: Refused, InvalidPrompt, InvalidOption."""
    if request.best_of is not None and request.best_of != request.count:
        message = "best_of is not served: it would draw texts only to throw them away"
        raise unsupported("best_of", message, "leave it out, or ask for n choices")
    if request.echo and request.logprobs is not None:
        message = "echo with logprobs would need the log-probabilities of the prompt"
        raise unsupported("echo", message, "leave out one of them")
    given = completion_prompts(request.prompt)
    prompts = [model.encode(prompt) for prompt in given]
    texts = [prompt_text(model.tokenizer, prompt) for prompt in given] if request.echo else []
    form = replace(
        form_of(request),
        logprobs=request.logprobs is not None or bool(request.n_probs),
        echo=tuple(text for text in texts for _ in range(request.count)),
    )
    return _work(
        request, prompts, form, ignored, model, caller, tag="completions", answer=structure_of(request)
    )  # fmt: skip


def _work(
    request: Common,
    prompts: Sequence[tuple[int, ...]],
    form: Form,
    ignored: Sequence[str],
    model: Model,
    caller: Caller,
    *,
    tag: str,
    answer: Structure | None = None,
) -> Work:
    salt = caller.salted(request.cache_salt)
    predicted = request.predicted_text[: CHARACTERS_PER_TOKEN * model.context]  # no answer is longer
    # once: what stands before it changes its first token at most, and a request may have hundreds of prompts
    tokens = encode_after(model.tokenizer, prompts[0], predicted) if predicted else ()
    drafting = request.drafting(tokens, model.sources)
    user = request.user or request.safety_identifier or ""
    jobs: list[Job] = []
    for prompt in prompts:
        sampling = request.sampling(model.defaults, room=model.context - len(prompt), salt=salt)
        if answer is not None:
            sampling = replace(sampling, structure=answer)
        for param, named in (("stop_token_ids", sampling.stop_token_ids), ("logit_bias", sampling.logit_bias)):
            check_known(param, named, model.vocab_size, f"{param} names token {{}}")
        shared = Job(
            prompt, sampling, drafting, request.tag or tag, trace=form.shown.trace, user=user, store=request.store,
            deadline=caller.deadline,
        )  # fmt: skip
        jobs += [replace(shared, sampling=for_choice(sampling, choice)) for choice in range(request.count)]
    without = () if model.recorded else ("user", "safety_identifier", "store")
    idle = [*ignored, *(name for name in without if getattr(request, name) is not None)]
    warnings = tuple(f"{name} is accepted and does nothing here" for name in idle)
    return Work(tuple(jobs), form, jobs[0].sampling, warnings)


def form_of(request: Common) -> Form:
    """How the answer is written, as far as a request says it in fields that all interfaces share."""
    options = request.stream_options or StreamOptions()
    return Form(
        shown=request.shown,
        stream=bool(request.stream),
        interval=request.stream_interval or 1,
        smooth=request.speculation is not None and bool(request.speculation.smooth),
        usage=bool(options.include_usage),
        usage_always=bool(options.continuous_usage_stats),
        token_ids=bool(request.return_token_ids),
        numbered=bool(request.return_tokens_as_token_ids),
        choices=request.count,
    )


def check_known(param: str, tokens: Iterable[int], vocab_size: int, words: str) -> None:
    """Raises:
    Refused: a field names a token that does not exist. words: say so, with a place for the token.
    """
    outside = next((token for token in tokens if not 0 <= token < vocab_size), None)
    if outside is not None:
        raise invalid_value(param, words.format(outside), f"this model has the ids 0 to {vocab_size - 1}")


def for_choice(sampling: Sampling, choice: int) -> Sampling:
    """The sampling of choice 0, 1, ... of a prompt, with a seed of its own (see `seed_of`)."""
    return sampling if sampling.seed is None else replace(sampling, seed=seed_of(sampling.seed, choice))


def seed_of(seed: int, choice: int) -> int:
    """The seed of a choice: the request's own for choice 0, else 63 bits of SHA-256 of "seed:choice".

    So a choice depends neither on how many others there are nor on its place in a batch, and can be repeated alone.
    """
    if choice == 0:
        return seed
    digest = hashlib.sha256(f"{seed}:{choice}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def used(sampling: Sampling) -> dict[str, Any]:
    """What was used, for the answer: the fields that shape the distribution, and the limits."""
    return picked(
        sampling, "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "max_tokens", "min_tokens", "seed",
    )  # fmt: skip
