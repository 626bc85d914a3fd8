"""Sends a queue's records: one `Producer` for each queue, made with the first record, for any thread and any loop.

It differs from a producer of the user's in three things: errors are a queue's (`SendError`), brokers decide how large a
record may be, and it can be closed and used again.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

from headrace.client.errors import RecordTooLargeError, SomeNotSentError, UnknownTopicOrPartitionError
from headrace.client.forks import ForkSafeLock
from headrace.client.producing.record import ProducerRecord, RecordMetadata
from headrace.client.producing.sync import Producer
from headrace.client.settings import ProducerSettings
from headrace.wire.dead_letter import without_value
from headrace.wire.errors import KafkaError
from headrace.wire.records import NewRecord
from headrace.worker.bodies import Header
from headrace.worker.errors import QueueError, SendError, SomeTasksNotSentError

Sent = RecordMetadata
REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Above what brokers take, so that they decide (`max.message.bytes`) and not this producer."""
MANY_MAX = 1_000
"""Bodies that a `send_many_async` takes at a time."""


class TooLargeError(SendError):
    """The topic does not take a record of this size (`max.message.bytes`)."""


class Outbox:
    def __init__(self, settings: ProducerSettings) -> None:
        if settings.transactional_id:
            raise QueueError("a queue sends without transactions; leave transactional.id out")
        self._settings = settings
        self._lock = ForkSafeLock()
        self._producer: Producer | None = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        timeout: float | None = None,
    ) -> Sent:
        with _as_send_error(topic, timeout):
            sending = self._open().send(topic, value, key=key, headers=headers, partition=partition)
            return sending.result(timeout)

    async def send_async(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Sent:
        with _as_send_error(topic, timeout):
            async with asyncio.timeout(timeout):
                return await self._open().send(topic, value, key=key, headers=headers, partition=partition)

    def send_many(self, topic: str, records: Iterable[ProducerRecord]) -> list[Sent]:
        with _as_send_error(topic):
            return self._open().send_many(topic, records)

    async def send_many_async(self, topic: str, records: Iterable[ProducerRecord]) -> list[Sent]:
        """Records are taken on this thread, some at a time, and sent by another."""
        sent: list[Sent] = []
        remaining = iter(records)
        while some := list(islice(remaining, MANY_MAX)):
            try:
                sent += await asyncio.to_thread(self.send_many, topic, some)
            except SomeTasksNotSentError as error:
                error.sent = [*sent, *error.sent]
                raise
        return sent

    async def send_letter(self, topic: str, letter: NewRecord, partition: int | None) -> Sent:
        """A dead letter. If the topic does not take so much, it is sent without the value, then without the key."""
        while True:
            try:
                return await self.send_async(
                    topic, letter.value, key=letter.key, headers=tuple(letter.headers), partition=partition
                )
            except TooLargeError:
                smaller = without_value(letter)
                if smaller is None:
                    raise
                letter = smaller

    async def partitions(self, topic: str) -> int:
        """How many the topic has. It is created by this where the broker creates topics by themselves."""
        with _as_send_error(topic):
            return await asyncio.to_thread(self._open().partition_count, topic)

    def close(self) -> None:
        """Sends what is on its way and stops. A later `send` starts anew."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _open(self) -> Producer:
        with self._lock:
            if self._producer is None:
                producer = Producer.of(self._settings)
                if self._producer is None:  # else a signal handler has sent a record meanwhile
                    self._producer = producer
            return self._producer


def settings_for(given: "Mapping[str, object]", *, transactional_id: str | None = None) -> ProducerSettings:
    """A queue's client settings, as its producer takes them."""
    own: dict[str, object] = {} if transactional_id is None else {"transactional.id": transactional_id}
    return ProducerSettings.parse({"max.request.size": REQUEST_BYTES_MAX, **given, **own})


@contextmanager
def _as_send_error(topic: str, timeout: float | None = None) -> Iterator[None]:
    try:
        yield
    except SomeNotSentError as error:
        first = error.__cause__
        text = str(error)
        if isinstance(first, Exception):
            text = f"{text.partition('; the first: ')[0]}; the first: {_explain(topic, first)}"
        raise SomeTasksNotSentError(text, error.sent) from first
    except Exception as error:
        if isinstance(error, TimeoutError) and not isinstance(error, KafkaError):
            raise SendError(
                f"a record for topic {topic!r} was not acknowledged within {timeout} s; it may still be written"
            ) from error
        kind = TooLargeError if isinstance(error, RecordTooLargeError) else SendError
        raise kind(_explain(topic, error)) from error


def _explain(topic: str, error: Exception) -> str:
    if isinstance(error, UnknownTopicOrPartitionError):
        return f"there is no topic {topic!r}; create it first: headrace topic create {topic}"
    return f"a record for topic {topic!r} was not acknowledged: {error}"
