"""What the processes do that tests of recordings start: `python -m tests.ingest.recording_workers WHAT PATH ...`."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator

from tidewheel.ingest.message import Message
from tidewheel.ingest.replay.recorder import RecordingWriter


def numbered(number: int) -> Message:
    """A message that is easy to know again; every third one is not JSON, every fifth one no text."""
    payload = b'{"n":%d,"text":"%s"}' % (number, b"x" * (number % 50))
    if number % 3 == 0:
        payload = b"number %d" % number
    if number % 5 == 0:
        payload = b"\xff%d" % number
    return Message(f"numbers/{number}", payload, 1_700_000_000_000_000 + number)


def batches() -> Iterator[tuple[int, list[Message]]]:
    first = 0
    while True:
        size = 1 + first % 40
        yield first + size, [numbered(number) for number in range(first, first + size)]
        first += size


def write_for_ever(path: str) -> None:
    """Append batches and print how many messages are acknowledged after each."""
    with RecordingWriter(path) as writer:
        for acknowledged, messages in batches():
            writer.append(messages)
            print(acknowledged, flush=True)


def write_until_full(path: str, size: str) -> None:
    """Append batches to a file that cannot grow beyond a size, try again, and print how many are acknowledged."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with RecordingWriter(path) as writer:
        done = 0
        for acknowledged, messages in batches():
            if done == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
            try:
                writer.append(messages)
            except OSError:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                writer.append(messages)
                print("failed once,", acknowledged)
                return
            done = acknowledged


if __name__ == "__main__":
    {"for-ever": write_for_ever, "until-full": write_until_full}[sys.argv[1]](*sys.argv[2:])
