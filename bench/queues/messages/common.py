"""What every client of a queue has in common: messages with a number, the journal, and the command line.

A consumer connects, prints a line, and waits for a line on standard input. Then it takes messages and acknowledges
them, and notes each batch in the journal when it has acknowledged it, until standard input ends. With clients whose
acknowledgements have no answer that is when the client has them: that all arrived is checked at the end.
"""

import argparse
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from bench.clients import RECORD_BYTES
from bench.clients.figures import Figures
from bench.queues.jobs.work import JOURNAL

AT_ONCE = 500
"""Messages in a batch, wherever a client has a say in it: Kafka's default of max.poll.records."""
CONSUMERS_MAX = 8
IDLE_S = 0.1
"""The longest wait for messages after which a consumer looks whether it is to stop."""
READY = "ready"
_NUMBER = struct.Struct("<q")
_PADDING = bytes(RECORD_BYTES - _NUMBER.size)


def message(number: int) -> bytes:
    return _NUMBER.pack(number) + _PADDING


def number_of(body: bytes) -> int:
    return int(_NUMBER.unpack_from(body)[0])


def batches(messages: int) -> Iterator[list[bytes]]:
    """The numbered messages, AT_ONCE to a batch."""
    for first in range(0, messages, AT_ONCE):
        yield [message(number) for number in range(first, min(first + AT_ONCE, messages))]


class Shift:
    """A consumer's time at work: from the driver's word until the end of its input."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._journal = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def begin(self) -> None:
        """Call it when connected: waits for all the others to be so too."""
        print(READY, flush=True)
        if sys.stdin.buffer.raw.read(1):  # type: ignore[attr-defined]
            threading.Thread(target=self._wait_for_end, daemon=True).start()
        else:
            self._is_over.set()

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def note(self, bodies: Iterable[bytes]) -> None:
        """One write for a batch that is acknowledged."""
        numbers, now_ns = [number_of(body) for body in bodies], time.monotonic_ns()
        entries = array("q", [now_ns]) * (2 * len(numbers))
        entries[::2] = array("q", numbers)
        os.write(self._journal, entries.tobytes())

    def _wait_for_end(self) -> None:
        while sys.stdin.buffer.raw.read(100):  # type: ignore[attr-defined]
            pass
        self._is_over.set()


def main(
    send: Callable[[int], Figures],
    consume: Callable[[Shift], None],
    left: Callable[[], int],
    arguments: Sequence[str] | None = None,
) -> None:
    """`send` prints how long it took until all messages were confirmed; `left` how many the queue holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["send", "consume", "left"])
    parser.add_argument("--messages", type=int, default=0)
    chosen = parser.parse_args(arguments)
    if chosen.command == "send":
        send(chosen.messages).print()
    elif chosen.command == "consume":
        consume(Shift())
    else:
        print(left())
