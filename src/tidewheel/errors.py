"""Every error that Tidewheel raises on purpose.

    TidewheelError
    ├── DefinitionError          what was asked for makes no sense (raised when it is defined, not when data comes)
    ├── LogError                 the log cannot do it
    │   ├── TopicNotFoundError
    │   ├── FencedError          another producer has taken over this name
    │   └── DataLossError        the records asked for are no longer in the log
    ├── MalformedError           bytes that are not what they should be
    ├── UnknownTypeError         a message type that the registry does not know
    ├── CheckpointError          a checkpoint that does not fit the job
    ├── PatternError             a match that its pattern's policy has no place for
    ├── JobError                 a running job failed
    │   └── FlowError            one of the jobs that share a query failed
    └── SetupError               something the machine lacks: Java, a port, a package

A message says what is wrong, where, what was found, and how to mend it.
"""

__all__ = [
    "CheckpointError",
    "DataLossError",
    "DefinitionError",
    "FencedError",
    "FlowError",
    "JobError",
    "LogError",
    "MalformedError",
    "PatternError",
    "SetupError",
    "TidewheelError",
    "TopicNotFoundError",
    "UnknownTypeError",
]


class TidewheelError(Exception):
    """The root of the tree: catch this to catch all that Tidewheel raises on purpose."""


class DefinitionError(TidewheelError, ValueError):
    """What was asked for makes no sense; raised when it is defined."""


class LogError(TidewheelError):
    """The log cannot do what was asked."""


class TopicNotFoundError(LogError, KeyError):
    """The log has no topic of that name."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would print the message quoted


class FencedError(LogError):
    """Another producer has taken over this producer's name; this one must stop."""


class DataLossError(LogError):
    """The records asked for have left the log by retention before they were read."""


class MalformedError(TidewheelError, ValueError):
    """Bytes that are not what they should be; the text is the reason for the dead letter."""


class UnknownTypeError(TidewheelError, KeyError):
    """A message type that the registry does not know."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class CheckpointError(TidewheelError):
    """A checkpoint that does not fit the job that was started on it."""


class PatternError(TidewheelError):
    """A match that its pattern's policy has no place for, and was told to fail on."""


class JobError(TidewheelError):
    """A running job failed; the text says what broke it, the cause is Spark's own report."""


class FlowError(JobError):
    """One of the jobs that share a query failed; the message begins with its name."""


class SetupError(TidewheelError):
    """Something that this machine lacks; the text says how to get it."""
