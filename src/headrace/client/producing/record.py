"""What an application sends, and where it is afterward."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.arguments import is_int
from headrace.client.errors import error_for
from headrace.client.producing.batch import RECORD_OVERHEAD, Entry, ValueRun, record_cost, run_cost
from headrace.client.settings import ProducerSettings
from headrace.wire.batches import HEADER_SIZE
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Headers

Data = bytes | bytearray | memoryview | str | None
"""Bytes, or text, which is sent as UTF-8. None as a value is a tombstone."""
RUN_COST_MAX = 96 * 1024
HeadersLike = Mapping[str, Data] | Iterable[tuple[str, Data]]


class ProducerRecord(NamedTuple):
    """A record for `send_many` with a key, headers, a partition or a timestamp."""

    value: Data
    key: Data = None
    headers: HeadersLike = ()
    partition: int | None = None
    timestamp: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written. `offset` is -1 with acks=0, because the broker does not respond."""

    topic: str
    partition: int
    offset: int


class EntryMaker:
    """Checks what an application gives to `send`."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._size_max = settings.max_request_size
        self.run_cost_max = min(RUN_COST_MAX, settings.buffer_memory)
        """How much of a `send_many` is handed over at a time, about."""

    def make(
        self,
        topic: str,
        value: Data,
        key: Data,
        headers: HeadersLike,
        partition: int | None,
        timestamp: int | None,
        token: Any,
    ) -> Entry:
        if type(value) is not bytes and value is not None:
            value = _to_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = _to_bytes("key", key)
        pairs = _to_headers(headers) if headers else ()
        if timestamp is None:
            timestamp = int(time.time() * 1000)
        elif not is_int(timestamp) or timestamp < 0:
            raise ValueError(f"timestamp must be milliseconds since 1970 as an int >= 0, got {timestamp!r}")
        if partition is not None and (not is_int(partition) or partition < 0):
            raise ValueError(f"partition must be an int >= 0 or None, got {partition!r}")
        if type(topic) is not str or not topic:
            raise ValueError(f"topic must be a non-empty string, got {topic!r}")
        cost = record_cost(key, value, pairs)
        if cost - RECORD_OVERHEAD + HEADER_SIZE > self._size_max:
            size = cost - RECORD_OVERHEAD
            text = f"a record of {size} bytes is larger than max.request.size={self._size_max}"
            error = error_for(ErrorCode.MESSAGE_TOO_LARGE, text, about=f"topic {topic!r}")
            error.cure = (
                "Send less at once, or raise max.request.size, and the topic's max.message.bytes if need be."
            )
            raise error
        return Entry(topic, partition, key, value, pairs, timestamp, token, cost)

    def can_run(self, topic: str, values: list[bytes]) -> bool:
        """Whether there is nothing to refuse."""
        return type(topic) is str and bool(topic) and max(map(len, values)) + HEADER_SIZE <= self._size_max

    def make_run(self, topic: str, values: list[bytes], token: tuple[Any, int, int]) -> ValueRun:
        return ValueRun(topic, values, int(time.time() * 1000), token, run_cost(values))

    def make_of(self, topic: str, record: "ProducerRecord | Data", token: Any) -> Entry:
        if isinstance(record, ProducerRecord):
            value, key, headers, partition, timestamp = record
            return self.make(topic, value, key, headers, partition, timestamp, token)
        return self.make(topic, record, None, (), None, None, token)


def _to_bytes(what: str, given: Any) -> bytes:
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(f"{what} must be bytes, str or None, got {type(given).__name__}; encode it first")


def _to_headers(given: HeadersLike) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given
    headers = []
    for name, content in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be str, got {type(name).__name__}")
        headers.append((name, None if content is None else _to_bytes(f"header {name!r}", content)))
    return tuple(headers)
