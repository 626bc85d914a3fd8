"""Records that are delivered later: a ladder of fixed waits, and where a record goes next. Pure.

Theory of operation. A topic has one partition for each step of the ladder; a record in step k waits 125 ms * 2^k. All
records of a step wait equally long, so the first one is always due first: no timers, no index, and no memory. A record
enters the longest step that is not longer than what is left of its delay. When it is due there, the forwarder
(`forwarder.py`) moves it to the longest step for the rest, and at its time to its own topic. So it makes as many moves
as the rest of its delay has binary ones, 24 at most and about half as many on average; longer delays go round in the
longest step. In the shortest step records wait for their own time, at most 250 ms.

The topic of a group is GROUP.later. GROUP.later.control, compacted, has the forwarder's positions, what is canceled,
and when periodic tasks were last sent. Both are written in the same transactions as the moves.
"""

import secrets
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headrace.wire.message import ZERO_UUID
from headrace.worker.bodies import Header

SHORTEST_MS = 125
STEPS = 24
DELAY_MS_MAX = 3660 * 86_400_000
"""Ten years."""
AHEAD_MS = 5_000
"""Clocks may differ by so much."""
AT_DIGITS_MAX = 14
"""Up to the year 5138. No datetime has much more."""
ID = "headrace.later.id"
AT = "headrace.later.at"
TOPIC = "headrace.later.topic"
_FOR_THE_WAY = (AT, TOPIC)
POSITIONS = b"positions"
CANCEL = b"cancel:"
EVERY = b"every:"
_NUMBER = struct.Struct(">q")
ID_BYTES = len(ZERO_UUID)


def later_topic(group_id: str) -> str:
    return f"{group_id}.later"


def control_topic(group_id: str) -> str:
    return f"{group_id}.later.control"


def wait_ms(step: int) -> int:
    return SHORTEST_MS << step


def step_of(left_ms: int) -> int:
    """The longest step that is not longer than what is left; the shortest for less than that."""
    return min(STEPS - 1, max(0, (left_ms // SHORTEST_MS).bit_length() - 1))


def due_ms(step: int, entered_ms: int, at_ms: int, now_ms: int) -> int:
    """When a record is to be moved. One whose clock is far ahead of ours is moved at once: it then has our time, and
    does not hold up those behind it."""
    if entered_ms > now_ms + AHEAD_MS:
        return min(at_ms, now_ms)
    return min(at_ms, entered_ms + wait_ms(max(1, step)))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a waiting record says of itself."""

    id: str
    at_ms: int
    topic: str


def waiting_of(headers: Iterable[Header]) -> Waiting | None:
    """None for a record that is no waiting one: somebody else has written to the topic."""
    found = {name: value or b"" for name, value in headers if name in (ID, AT, TOPIC)}
    at = found.get(AT, b"")
    if not at.isdigit() or len(at) > AT_DIGITS_MAX or not found.get(TOPIC):
        return None
    return Waiting(
        found.get(ID, b"").decode("utf-8", "replace"), int(at), found[TOPIC].decode("utf-8", "replace")
    )


def headers_for(waiting: Waiting, headers: Sequence[Header]) -> tuple[Header, ...]:
    return (
        *headers,
        (ID, waiting.id.encode()),
        (AT, str(waiting.at_ms).encode()),
        (TOPIC, waiting.topic.encode()),
    )


def own_headers(headers: Iterable[Header]) -> tuple[Header, ...]:
    """For the record's own topic. The id stays, for consumers that want to know a record again."""
    return tuple(header for header in headers if header[0] not in _FOR_THE_WAY)


def foreign_headers(headers: Iterable[Header]) -> tuple[Header, ...]:
    """Those that the sender gave."""
    return tuple(header for header in headers if header[0] not in (*_FOR_THE_WAY, ID))


def new_id(at_ms: int) -> str:
    """The time is in it, so that a cancellation can be forgotten when it is over."""
    return f"{at_ms:x}-{secrets.token_hex(8)}"


def time_in(id: str) -> int | None:
    head, dash, rest = id.partition("-")
    try:
        at_ms = int(head, 16) if dash and rest else -1
    except ValueError:
        return None
    return at_ms if 0 <= at_ms < 10**AT_DIGITS_MAX else None


def deadline_ms(delay: float | timedelta | None, at: datetime | None, now_ms: int) -> int:
    """The time that `delay=` or `at=` means. ValueError says what is wrong with them."""
    if (delay is None) == (at is None):
        raise ValueError("give either delay= or at=")
    if at is not None:
        if not isinstance(at, datetime) or at.tzinfo is None:
            raise ValueError(f"at must be a datetime with a time zone, such as datetime.now(UTC), got {at!r}")
        moment = max(0, round(at.timestamp() * 1000))
    else:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 <= seconds <= sys.float_info.max / 1000
        ):
            raise ValueError(f"delay must be a timedelta or seconds, >= 0, got {delay!r}")
        if seconds * 1000 > DELAY_MS_MAX:
            raise ValueError(f"the limit is ten years ahead, got delay={delay!r}")
        moment = now_ms + round(seconds * 1000)
    if moment - now_ms > DELAY_MS_MAX:
        raise ValueError(f"the limit is ten years ahead, got {(moment - now_ms) // 86_400_000} days")
    return moment


def as_datetime(moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class StepPositions:
    """How far each step of a topic has been read. A topic that is created again under the same name has another id."""

    topic_id: bytes = ZERO_UUID
    offsets: tuple[int, ...] = (0,) * STEPS

    def write(self) -> bytes:
        return self.topic_id + struct.pack(f">{len(self.offsets)}q", *self.offsets)

    @classmethod
    def read(cls, value: bytes) -> "StepPositions":
        """A step that is missing in the value has not been read."""
        count = max(0, min((len(value) - ID_BYTES) // 8, STEPS))
        found = struct.unpack_from(f">{count}q", value, ID_BYTES) if count else ()
        return cls(value[:ID_BYTES], (*found, *(0,) * (STEPS - count)))


def write_moment(moment_ms: int) -> bytes:
    return _NUMBER.pack(moment_ms)


def read_moment(value: bytes) -> int:
    moment: int = _NUMBER.unpack(value[:8])[0] if len(value) >= 8 else 0
    return moment
