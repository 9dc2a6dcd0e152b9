"""The text of an answer read as the parts of a reply, with its tokens of reasoning counted."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.model.tokens.spelling import Spelling
from headstart.serve.api.answering.figures import Counts
from headstart.serve.api.answering.pieces import Piece
from headstart.serve.conversation.parts import Part
from headstart.serve.conversation.reply import Reply


def parts_of(piece: Piece, reply: Reply, counts: Counts, spelling: Spelling) -> list[Part]:
    """What a piece says; counts its tokens that are reasoning, where the model may reason."""
    before = reply.reasoning_characters
    found = reply.feed(piece.text)
    reasoned = reply.reasoning_characters - before
    if reasoned and counts.reasoning is not None:
        whole = reasoned >= len(piece.text)
        counts.reasoning += len(piece.tokens) if whole else _tokens_of(piece.tokens, reasoned, spelling)
    return found


def _tokens_of(tokens: Sequence[int], characters: int, spelling: Spelling) -> int:
    """How many of the tokens write the first so many characters."""
    count = 0
    for token in tokens:
        if characters <= 0:
            break
        characters -= len(spelling.text(token))
        count += 1
    return count
