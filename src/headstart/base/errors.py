"""Every error headstart raises on purpose: one tree, each with a message and a hint that says what to do.

Catch `HeadstartError` for all of them. Where a built-in type fits (a bad value, a missing file), the error
is that type too, so that code which knows nothing of headstart still catches it.
"""

from __future__ import annotations

CONTAINED = (Exception, SystemExit)
"""What is contained of somebody's own drafter, pacing or listener. `SystemExit` too: `sys.exit` in a drafter must not
end a server. `KeyboardInterrupt` goes through."""


class HeadstartError(Exception):
    """Base class of every error that headstart raises on purpose.

    message: what is wrong.
    hint: what to do about it.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class InvalidOption(HeadstartError, ValueError):
    """An option that does not exist, or a value outside its range."""


class InvalidGrammar(InvalidOption):
    """A schema, regular expression or grammar that cannot be followed: it has an error, asks for what is not supported,
    is too costly, or nothing can be written by it."""


class InvalidFile(HeadstartError, ValueError):
    """A result that cannot be read: not JSON, of another kind, or of a version this one does not know."""


class ExportRefused(HeadstartError, ValueError):
    """An export that an engine would load and silently run wrong; the message gives the reason."""


class EndpointFailed(HeadstartError, ConnectionError):
    """A server that is audited or watched refuses, times out, or answers what it should not."""


class InvalidPrompt(HeadstartError, ValueError):
    """What is no prompt, an empty one, half a character in it, or token ids that are not in the vocabulary."""


class ContextExceeded(InvalidPrompt):
    """The prompt leaves no room for a single new token in the context."""


class InvalidBatch(HeadstartError, ValueError):
    """Rows that a forward cannot run: a token, position or place that does not exist. Nothing was written. Only a
    drafter that runs forwards of its own can cause it, or a bug of headstart's."""


class ModelNotFound(HeadstartError, FileNotFoundError):
    """The path or hub id does not lead to a model."""


class UnsupportedModel(HeadstartError):
    """The model cannot be run exactly by this engine; the message gives the reason."""


class DamagedModel(HeadstartError, ValueError):
    """A file of weights that is cut short, or contradicts itself."""


class PickleCheckpoint(UnsupportedModel):
    """The weights exist only as a pickle, which can run code when it is read."""


class RemoteCodeRequired(UnsupportedModel):
    """The model needs Python code from its own repository, and the user has not allowed that."""


class IncompatibleTokenizer(HeadstartError, ValueError):
    """Draft and target do not speak the same tokens. `differences` lists what differs."""

    def __init__(self, message: str, *, hint: str, differences: tuple[str, ...]) -> None:
        super().__init__(message, hint=hint)
        self.differences = differences


class NotEnoughMemory(HeadstartError, MemoryError):
    """Weights and caches would not fit in the memory that is free."""


class NonFiniteLogits(HeadstartError, ArithmeticError):
    """The target produced NaN or infinite logits for a request; that request ended, the others went on."""


class GrammarFailed(HeadstartError, RuntimeError):
    """A request's text came to a place from which its grammar cannot go on, or a limit of the grammar's was reached;
    that request ended with the text it had, the others went on."""


class DamagedStore(HeadstartError, ValueError):
    """A file of past outputs that cannot be read, or was written for another model."""


class DrafterFailed(HeadstartError, RuntimeError):
    """The drafter raised, or its draft was refused; the request went on with the target alone. It is raised only while
    an engine is made, with a drafter that raises then."""


class PacingFailed(HeadstartError, RuntimeError):
    """The pacing raised; requests went on with the target alone."""


class TrainingFailed(HeadstartError, RuntimeError):
    """Training cannot start or go on: no text, another run in the directory, a loss that is not finite."""


class Overloaded(HeadstartError):
    """A server's queue is full. `retry_after` is the number of seconds after which room is likely."""

    def __init__(self, message: str, *, hint: str, retry_after: float) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class ServerStopping(HeadstartError):
    """A server that is being stopped takes no more requests."""


class EngineFailed(HeadstartError, RuntimeError):
    """A step of the engine raised, which no request should be able to cause; the requests that ran have ended."""


class EngineNotFound(HeadstartError, FileNotFoundError):
    """No installation of another engine, vLLM say, where one was looked for."""


class CheckFailed(HeadstartError):
    """A server that was started and checked writes, or accepts of its drafter, what it should not."""


class ServerFailed(HeadstartError, RuntimeError):
    """A server of another project, started by headstart, died or never became ready. The message has the last lines
    of its log."""
