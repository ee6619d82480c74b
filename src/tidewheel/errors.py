"""Every error that Tidewheel raises on purpose.

    TidewheelError
    ├── DefinitionError          what was asked for makes no sense (raised when it is defined, not when data comes)
    │   └── StatementError       a place in an SQL statement that makes no sense
    ├── MatchError               rows were matched in a way that leaves no place to go on from
    ├── LogError                 the log cannot do it
    │   ├── TopicNotFoundError
    │   ├── FencedError          another producer has taken over this name
    │   ├── DataLossError        the records asked for are no longer in the log
    │   ├── DamagedLogError      the log's file is not as it was written
    │   │   └── DamagedBlockError   records of a topic, at offsets that it names
    │   └── DiskFullError        there is no room for it on the disk
    ├── MalformedError           bytes that are not what they should be
    ├── UnknownTypeError         a message type that the registry does not know
    ├── CheckpointError          a checkpoint that does not fit the job
    ├── BackupError              a backup that cannot be made, is damaged, or cannot be put in place
    ├── PatternError             a match that its pattern's policy has no place for
    ├── JobError                 a running job failed
    │   └── FlowError            one of the jobs that share a query failed
    ├── PanicError               a native library broke off in the middle of a call
    └── SetupError               something the machine lacks: Java, a port, a package

What may be meant, but probably is not, is a `DefinitionWarning`, a `UserWarning` of Python's.

A message says what is wrong, where, what was found, and how to fix it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "BackupError",
    "CheckpointError",
    "DamagedBlockError",
    "DamagedLogError",
    "DataLossError",
    "DefinitionError",
    "DefinitionWarning",
    "DiskFullError",
    "FencedError",
    "FlowError",
    "JobError",
    "LogError",
    "MalformedError",
    "MatchError",
    "PanicError",
    "PatternError",
    "SetupError",
    "StatementError",
    "TidewheelError",
    "TopicNotFoundError",
    "UnknownTypeError",
    "panics_as_errors",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


_SHOWN = 60
"""Letters of a line before and after a place that are shown."""


class TidewheelError(Exception):
    """The root of the tree: catch this to catch all that Tidewheel raises on purpose."""


class DefinitionError(TidewheelError, ValueError):
    """An invalid definition, raised when it is defined."""


class DefinitionWarning(UserWarning):
    """A definition that is valid, but probably not what was meant; the text says how to write the other."""


class StatementError(DefinitionError):
    """A place in an SQL statement that makes no sense: `line` and `column` count from 1, the text shows it.

    >>> print(StatementError("expected a name", text="SELECT *\\nFROM 7", start=14))
    expected a name, at line 2, column 6:
      FROM 7
           ^
    """

    def __init__(self, message: str, *, text: str, start: int, end: int | None = None) -> None:
        start = min(max(start, 0), len(text))
        self.line = text.count("\n", 0, start) + 1
        begin = text.rfind("\n", 0, start) + 1
        self.column = start - begin + 1
        stop = text.find("\n", start)
        shown = text[begin : stop if stop >= 0 else len(text)]
        width = max(1, min(end if end is not None else start + 1, begin + len(shown)) - start)
        # A long line is shown around the place, not whole.
        left = max(0, start - begin - _SHOWN) if len(shown) > 2 * _SHOWN else 0
        window = ("…" if left else "") + shown[left : left + 2 * _SHOWN]
        gap = "".join("\t" if letter == "\t" else " " for letter in shown[left : start - begin]) + (" " if left else "")
        caret = "^" * min(width, _SHOWN)
        super().__init__(f"{message}, at line {self.line}, column {self.column}:\n  {window}\n  {gap}{caret}")
        self._given = (message, text, start, end)

    def __reduce__(self) -> tuple[Any, ...]:
        return _statement_error, self._given


def _statement_error(message: str, text: str, start: int, end: int | None) -> StatementError:
    return StatementError(message, text=text, start=start, end=end)


class MatchError(TidewheelError):
    """Rows were matched in a way that leaves no place to go on from; the text names the rows."""


class LogError(TidewheelError):
    """The log cannot do what was asked."""


class TopicNotFoundError(LogError, KeyError):
    """The log has no topic of that name."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would print the message quoted


class FencedError(LogError):
    """Another producer has taken over this producer's name; this one must stop."""


class DataLossError(LogError):
    """The records asked for are not in the log: they have left by retention before they were read, or it is older than
    the position."""


class DamagedLogError(LogError):
    """The log's file is not as it was written; the text says what of it is damaged."""


class DamagedBlockError(DamagedLogError):
    """Records of a block cannot be read, because the file is not as it was written.

    Args:
        topic: The topic.
        partition: The partition.
        first_offset: The first offset of the block.
        next_offset: The first offset after it. Compaction may have taken some of those between away.
        reason: What is wrong with it.

    >>> error = DamagedBlockError("input.arrival", 0, 100, 200, "it is missing")
    >>> str(error).partition(". ")[0]
    "'input.arrival' partition 0: the block of offsets 100 to 199 is damaged: it is missing"
    >>> error.next_offset - error.first_offset
    100
    """

    def __init__(self, topic: str, partition: int, first_offset: int, next_offset: int, reason: str) -> None:
        self.topic = topic
        self.partition = partition
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.reason = reason
        super().__init__(
            f"{topic!r} partition {partition}: the block of offsets {first_offset} to {next_offset - 1} is damaged: "
            f"{reason}. Restore a backup of the log, or go on without these records with --skip-damaged "
            "(skip_damaged=True), which reports them in a dead letter"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return DamagedBlockError, (self.topic, self.partition, self.first_offset, self.next_offset, self.reason)


class DiskFullError(LogError):
    """There is no room on the disk for what was to be written; what was written before is safe."""


class MalformedError(TidewheelError, ValueError):
    """Bytes that are not what they should be; the text is the reason for the dead letter."""


class UnknownTypeError(TidewheelError, KeyError):
    """A message type that the registry does not know."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class CheckpointError(TidewheelError):
    """A checkpoint that does not fit the job that was started on it."""


class BackupError(TidewheelError):
    """A backup that cannot be made, is damaged, or cannot be put in place."""


class PatternError(TidewheelError):
    """A match that the pattern's policy rejects with an error."""


class JobError(TidewheelError):
    """A running job failed; the text says what broke it, the cause is Spark's own report."""


class FlowError(JobError):
    """One of the jobs that share a query failed: `flow` is its name, `reason` what broke it."""

    def __init__(self, message: str, *, flow: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.flow = flow
        self.reason = reason


class PanicError(TidewheelError):
    """A native library (polars, ptars) broke off in the middle of a call; nothing came of that call."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of a library written in Rust into a `PanicError`.

    A panic comes to Python as a `BaseException`, so that it passes every `except Exception`, as Ctrl-C must, and ends
    threads and processes over one bad value. Put this around a call whose failure somebody below handles.
    """
    try:
        yield
    except BaseException as error:
        # Each library has a class of its own, and none can be imported.
        if isinstance(error, Exception) or type(error).__name__ != "PanicException":
            raise
        raise PanicError(f"a native library broke off: {error}") from error


class SetupError(TidewheelError):
    """Something that this machine lacks; the text says how to get it."""
