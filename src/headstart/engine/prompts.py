"""From a prompt to token ids: encoding, chat templates, and every check of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any

from headstart.base.errors import ContextExceeded, InvalidPrompt
from headstart.model.tokens.bounded import ids_unless_far_too_many

if TYPE_CHECKING:
    from headstart.base.prompt_sets import PromptItem

_ARTICLES = {"image": "an image", "video": "a video", "audio": "a sound"}
_CONTEXT = 16  # tokens before a text that decide how it is written

Message = Mapping[str, str]
"""{"role": "user", "content": "..."}, as chat templates take them."""
Prompt = str | Sequence[int] | Sequence[Message]
"""Text, token ids, or a conversation, which goes through the model's chat template."""


def encode(tokenizer: Any, prompt: Prompt, *, vocab_size: int, limit: int) -> tuple[int, ...]:
    """The token ids of a prompt, checked as those of a request are. tokenizer: None takes token ids only.

    limit: positions of the context, of which the prompt leaves at least one.

    Raises:
        InvalidPrompt: it is empty, no prompt at all, or names tokens outside the vocabulary.
        ContextExceeded: it leaves no position for a new token.
    """
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InvalidPrompt("this model has no tokenizer", hint="give the prompt as token ids")
        _check_text(prompt)
        # an empty text is an empty prompt, even where the tokenizer would put a BOS in front of it
        ids = within(lambda text: tokenizer(text)["input_ids"], prompt, limit) if prompt else ()
    elif is_listed(prompt) and len(prompt) and isinstance(prompt[0], Mapping):
        ids = encode_chat(tokenizer, prompt)  # type: ignore[arg-type]
    elif is_listed(prompt) and len(prompt) >= limit:
        raise too_long(f"{len(prompt)}", limit)  # before anything is made of it
    else:
        ids = _token_ids(prompt)
    if not ids:
        raise InvalidPrompt("the prompt is empty", hint="give at least one token to continue from")
    outside = [token for token in ids if not 0 <= token < vocab_size]
    if outside:
        raise InvalidPrompt(
            f"token id {outside[0]} is not in the vocabulary", hint=f"this target has the ids 0 to {vocab_size - 1}"
        )
    if len(ids) >= limit:
        raise too_long(f"{len(ids)}", limit)
    return ids


def refuse_media(ids: Sequence[int], media: Mapping[int, str]) -> None:
    """Refuse a prompt that holds an image, a sound or a video. media: their tokens.

    Raises:
        InvalidPrompt: it does.
    """
    found = next((token for token in ids if token in media), None) if media else None
    if found is not None:
        raise InvalidPrompt(
            f"the prompt holds token {found}, which stands for {_ARTICLES[media[found]]}: this engine runs text alone",
            hint="take it out of the prompt, or run the whole model with transformers",
        )


def _check_text(text: str) -> None:
    """Refuse halves of characters, which no tokenizer takes. JSON and surrogateescape can leave them in a text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidPrompt(
            f"the text has half a character, {text[error.start]!r}, at {error.start}",
            hint="decode it again, or drop such halves: text.encode(errors='replace').decode()",
        ) from error


def is_listed(given: Any) -> bool:
    """Whether it is a list of something: a sequence that is no text, an array, or a tensor."""
    if isinstance(given, Sequence):
        return not isinstance(given, (str, bytes, bytearray))
    return getattr(given, "ndim", 0) > 0


def _token_ids(given: Any) -> tuple[int, ...]:
    """The whole numbers of a list."""
    if not is_listed(given):
        raise _no_prompt(given)
    try:
        return tuple(map(index, given))
    except TypeError:
        wrong = next((each for each in given if not hasattr(each, "__index__")), given)
        raise _no_prompt(wrong) from None


def _no_prompt(given: Any) -> InvalidPrompt:
    return InvalidPrompt(
        f"a {type(given).__name__} is no prompt and no token id",
        hint="a prompt is text, a list of token ids (whole numbers), or a list of messages",
    )


def within(ids: Callable[[str], Sequence[int]], text: str, limit: int) -> tuple[int, ...]:
    """The token ids of a text for a context of so many tokens.

    Raises:
        ContextExceeded: it is far too long; only its beginning has been tokenized then.
    """
    found = ids_unless_far_too_many(ids, text, limit)
    if found is None:
        raise too_long(f"more than {2 * limit}", limit)
    return found


def too_long(tokens: str, limit: int) -> ContextExceeded:
    """The error that says it. tokens: how many there are, in words."""
    return ContextExceeded(
        f"the prompt has {tokens} tokens and the context holds {limit}",
        hint="shorten the prompt, or raise max_length up to what the model was built for",
    )


def encode_after(tokenizer: Any, before: Sequence[int], text: str) -> tuple[int, ...]:
    """The token ids of a text where it follows these tokens, as a model would write it there: a tokenizer that is given
    the text alone may put a space or a special token in front of it.

    Raises:
        InvalidPrompt: there is no tokenizer, or the text has half a character.
    """
    if tokenizer is None:
        raise InvalidPrompt("this model has no tokenizer", hint="give the text as token ids")
    _check_text(text)

    def ids(of: str) -> list[int]:
        return list(tokenizer(of, add_special_tokens=False)["input_ids"]) if of else []

    # It cannot merge with tokens that are there already: where it would, a line break stands in for them
    for context in (tokenizer.decode(list(before[-_CONTEXT:]), skip_special_tokens=False), "\n"):
        alone, whole = ids(context), ids(context + text)
        if whole[: len(alone)] == alone:
            return tuple(whole[len(alone) :])
    return tuple(ids(text))


def has_chat_template(tokenizer: Any) -> bool:
    """Whether conversations have a form that the model was trained on; not without a tokenizer."""
    return bool(getattr(tokenizer, "chat_template", None))


def encode_chat(tokenizer: Any, messages: Sequence[Message]) -> tuple[int, ...]:
    """The token ids of a conversation through the tokenizer's chat template, up to where the model's answer begins.

    messages: {"role": "user", "content": "..."}, the last one not the assistant's.

    Raises:
        InvalidPrompt: a message is malformed, the model has no chat template, or the template refuses the messages.
    """
    from headstart.base.prompt_sets import check_messages

    found = check_messages(messages)
    if not has_chat_template(tokenizer):
        raise InvalidPrompt(
            "this model has no chat template",
            hint="give the prompt as text, in the form that the model was trained on; "
            "instruction-tuned models have a template",
        )
    try:
        # the template writes the special tokens itself, and transformers adds none to what it has written
        ids = tokenizer.apply_chat_template([dict(one) for one in found], add_generation_prompt=True, return_dict=False)
    except Exception as error:  # a template is a program: it raises what it likes
        raise InvalidPrompt(
            f"the model's chat template refuses the conversation: {error}",
            hint="many templates want user and assistant in turn, and some know no system message",
        ) from error
    return tuple(ids)


def templated(tokenizer: Any, item: PromptItem, *, chat: bool = False) -> PromptItem:
    """The item as it is sent to the model: of a conversation the token ids, or its text where there is no template.

    chat: a text is sent as a conversation too, and a template must be there.

    Raises:
        InvalidPrompt: see `encode_chat`.
    """
    from headstart.base.prompt_sets import Chat

    conversation = item.chat
    if chat and conversation is None and isinstance(item.prompt, str):
        conversation = Chat(({"role": "user", "content": item.prompt},))
    if conversation is None:
        return item
    if not chat and not has_chat_template(tokenizer):
        return replace(item, form="turns raw")
    try:
        return replace(item, prompt=list(encode_chat(tokenizer, conversation.messages)), form="template")
    except InvalidPrompt as error:
        error.message = f"{item.name or 'the prompt'}: {error.message}"
        raise
