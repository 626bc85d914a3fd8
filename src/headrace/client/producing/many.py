"""The records of one `send_many`: where each of them is, or that some are not."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Any

from headrace.client.errors import SomeNotSentError
from headrace.client.producing.batch import RECORD_OVERHEAD, Entry, ValueRun
from headrace.client.producing.queue import SendOutcome
from headrace.client.producing.record import Data, EntryMaker, ProducerRecord, RecordMetadata
from headrace.wire.errors import KafkaError

Token = tuple["Many", int, int]
"""Of a record, or of some that follow each other: whose, the place of the first, and how many."""


class Many:
    """`on_done` is called once, when no record is outstanding and none will come.

    One thread may add while another settles; `complete` belongs to the latter.
    """

    def __init__(self, on_done: Callable[[], None]) -> None:
        self._on_done = on_done
        self._sent: list[RecordMetadata | None] = []
        self._settled = 0
        self._is_complete = False
        self._error: Exception | None = None
        self._failures = 0

    def add(self, count: int = 1) -> Token:
        """Counts more records."""
        token = (self, len(self._sent), count)
        self._sent.extend(repeat(None, count))
        return token

    def fail(self, place: int, count: int, error: Exception) -> None:
        self.note_failed(place, count, error)
        self.check()

    def note_failed(self, place: int, count: int, error: Exception) -> None:
        """`fail` for some of several; `check` must follow."""
        self._failures += count
        self._error = self._error or error
        self._settled += count

    def note_sent(self, place: int, sent: list[RecordMetadata]) -> None:
        """Where records are that follow each other; `check` must follow."""
        self._sent[place : place + len(sent)] = sent
        self._settled += len(sent)

    def complete(self) -> None:
        """No more records will be added."""
        self._is_complete = True
        self.check()

    def result(self) -> list[RecordMetadata]:
        if self._error is not None:
            count = len(self._sent)
            raise SomeNotSentError(
                f"{self._failures} of {count} records were not acknowledged; the first: {self._error}",
                self._sent,
            ) from self._error
        return [metadata for metadata in self._sent if metadata is not None]

    def check(self) -> None:
        """Calls `on_done` when all are settled."""
        if self._is_complete and self._settled == len(self._sent):
            self._on_done()


def in_runs(
    maker: EntryMaker, topic: str, records: Iterable[ProducerRecord | Data], many: Many
) -> Iterator[Entry | ValueRun | tuple[Token, KafkaError]]:
    """What to send, in order: values that are bytes in runs, all else one by one; and what cannot be sent."""
    values: list[bytes] = []
    cost, cost_max = 0, maker.run_cost_max
    for record in records:
        if type(record) is bytes:
            values.append(record)
            cost += len(record) + RECORD_OVERHEAD
            if cost < cost_max:
                continue
        if values:
            yield from _run(maker, topic, values, many)
            values, cost = [], 0
        if type(record) is not bytes:
            yield _one(maker, topic, record, many)
    if values:
        yield from _run(maker, topic, values, many)


def _run(
    maker: EntryMaker, topic: str, values: list[bytes], many: Many
) -> Iterator[Entry | ValueRun | tuple[Token, KafkaError]]:
    if len(values) > 1 and maker.can_run(topic, values):
        yield maker.make_run(topic, values, many.add(len(values)))
    else:
        for value in values:
            yield _one(maker, topic, value, many)


def _one(
    maker: EntryMaker, topic: str, record: ProducerRecord | Data, many: Many
) -> Entry | tuple[Token, KafkaError]:
    token = many.add()
    try:
        return maker.make_of(topic, record, token)
    except KafkaError as error:
        return token, error


_new_metadata: Callable[[tuple[str, int, int]], RecordMetadata]
_new_metadata = partial(tuple.__new__, RecordMetadata)
"""`RecordMetadata._make` without a call in Python, for many."""


def settle_tokens(
    outcome: SendOutcome, settle_one: Callable[[Any, RecordMetadata | None], None]
) -> set[Many]:
    """Tells each record what became of it: by `settle_one`, or its `Many`, which must be checked afterward."""
    topic, partition, tokens, _, _, offset, error = outcome
    concerned: set[Many] = set()
    for token in tokens:
        if type(token) is tuple:
            many, place, count = token
            if error is not None:
                many.note_failed(place, count, error)
            else:
                offsets = repeat(-1, count) if offset < 0 else range(offset, offset + count)
                fields = zip(repeat(topic), repeat(partition), offsets)  # ends with the offsets
                many.note_sent(place, list(map(_new_metadata, fields)))
            concerned.add(many)
        else:
            count = 1
            settle_one(token, RecordMetadata(topic, partition, offset) if error is None else None)
        if offset >= 0:
            offset += count
    return concerned
