"""Sends records: aiokafka's idempotent producer, `acks=all`, on a background loop that any thread may use.

One for each queue, started with the first record. Its own loop keeps it out of the way of tasks that block theirs, and
makes `queue.send` possible without asyncio.

aiokafka numbers the records of a partition when it sends them. After one that a broker has refused, the numbers have a
hole, and the broker refuses whatever follows as out of order. So a producer that has failed once is replaced, and those
who only suffered from the hole are sent again by the next one.

Whether a topic is there is asked by our own client, before aiokafka hears of it: that one would look for it for as long
as a request may take, and log an error ten times a second.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    UnknownProducerId,
)

from headrace.client.background import BackgroundLoop
from headrace.client.cluster import ANY, Cluster
from headrace.client.errors import error_for, is_retriable
from headrace.client.security import tls_context
from headrace.client.settings import ClientSettings
from headrace.wire.errors import ErrorCode
from headrace.wire.errors import KafkaError as OurKafkaError
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse
from headrace.worker.bodies import Header
from headrace.worker.errors import SendError, SomeNotSentError

T = TypeVar("T")
REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Above what brokers take, so that they decide (`max.message.bytes`) and not this producer."""

MANY_MAX = 1_000
"""Records of one `send_many` that are on their way at a time."""
TOPIC_S_MAX = 5.0
"""How long a topic may take to be there, where the broker creates topics that are asked for."""
TOPIC_AGAIN_S = 0.1
AFTER_A_HOLE = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch)


class Sent(NamedTuple):
    """Where a record is now."""

    topic: str
    partition: int
    offset: int


class Outgoing(NamedTuple):
    """A record to be sent."""

    value: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]


class TooLargeError(SendError):
    """The topic does not take a record of this size (`max.message.bytes`)."""


class Outbox:
    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._background: BackgroundLoop | None = None
        self._producer: AIOKafkaProducer | None = None
        self._cluster: Cluster | None = None
        self._known: set[str] = set()
        """Topics that were there when something was sent to them."""
        self._starting: asyncio.Lock | None = None
        self._busy: set[asyncio.Task[Any]] = set()
        self._ending: set[asyncio.Task[None]] = set()

    def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, headers: tuple[Header, ...] = ()
    ) -> Sent:
        return self._loop().run(self._noted(partial(self._send, topic, value, key, headers)))

    async def send_async(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, headers: tuple[Header, ...] = ()
    ) -> Sent:
        return await self._elsewhere(partial(self._send, topic, value, key, headers))

    def send_many(self, topic: str, records: Iterable[Outgoing]) -> list[Sent]:
        sent: list[Sent] = []
        for some in _batched(records):
            sent += self._loop().run(self._noted(partial(self._send_some, topic, some, sent)))
        return sent

    async def send_many_async(self, topic: str, records: Iterable[Outgoing]) -> list[Sent]:
        sent: list[Sent] = []
        for some in _batched(records):
            sent += await self._elsewhere(partial(self._send_some, topic, some, sent))
        return sent

    async def send_beside(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: tuple[Header, ...],
        partition: int,
    ) -> Sent:
        """To the partition that KIP-1191 gives the dead letters of a source partition."""
        if value is None and key is None:
            value = b""  # aiokafka sends no record that has neither
        return await self._elsewhere(partial(self._send, topic, value, key, headers, partition))

    async def partitions(self, topic: str) -> int:
        """How many the topic has. It is created by this where the broker creates topics by themselves."""
        return await self._elsewhere(partial(self._places, topic))

    def close(self) -> None:
        """Sends what is on its way and stops. A later `send` starts anew."""
        with self._lock:
            background, self._background = self._background, None
        if background is not None:
            try:
                background.run(self._stop())
            finally:
                background.close()

    def _loop(self) -> BackgroundLoop:
        with self._lock:
            if self._background is None:
                self._background = BackgroundLoop("headrace-send")
                self._starting = asyncio.Lock()
            return self._background

    async def _elsewhere(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        noted = self._noted(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(noted, self._loop().loop))

    async def _noted(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """`close` waits for what goes on, also for what was cancelled and is about to end."""
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            return await work()
        finally:
            self._busy.discard(task)

    async def _send_some(self, topic: str, records: list[Outgoing], before: list[Sent]) -> list[Sent]:
        """The first alone: it makes the topic known, or shows that it is not there. Then the others, in few batches."""
        answers = await self._send_together(topic, records[:1])
        if isinstance(answers[0], Sent | TooLargeError):
            answers += await self._send_together(topic, records[1:])
        for index, answer in enumerate(answers):
            if isinstance(answer, TooLargeError):  # all of its batch were refused
                answers[index : index + 1] = await self._send_together(topic, [records[index]])
        sent = [answer if isinstance(answer, Sent) else None for answer in answers]
        for answer in answers:
            if isinstance(answer, BaseException):
                count = len(records) - len(sent) + sent.count(None)
                raise SomeNotSentError(
                    f"{count} of {len(records)} records were not acknowledged; the first: {answer}",
                    [*before, *sent],
                ) from answer
        return [answer for answer in answers if isinstance(answer, Sent)]

    async def _send_together(self, topic: str, records: list[Outgoing]) -> list[Sent | BaseException]:
        return await asyncio.gather(
            *(self._send(topic, *record) for record in records), return_exceptions=True
        )

    async def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: tuple[Header, ...],
        beside: int | None = None,
    ) -> Sent:
        for is_last in (False, False, True):
            try:
                return await self._try(topic, value, key, headers, beside)
            except AFTER_A_HOLE as error:
                if is_last:
                    raise _send_error(topic, error) from error
            except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
                raise TooLargeError(
                    f"topic {topic!r} does not take a record of {len(value or b'')} bytes: {error}; "
                    "send less, or raise the topic's max.message.bytes"
                ) from error
            except KafkaError as error:
                raise _send_error(topic, error) from error
        raise AssertionError("the last try returns or raises")

    async def _try(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: tuple[Header, ...],
        beside: int | None,
    ) -> Sent:
        partition = None
        if beside is not None:
            partition = beside % await self._places(topic)
        elif topic not in self._known:
            await self._places(topic)
        producer = await self._started()
        try:
            written = await producer.send_and_wait(
                topic, value, key=key, headers=list(headers), partition=partition
            )
        except KafkaError:
            self._known.discard(topic)
            await self._replace(producer)
            raise
        return Sent(topic, written.partition, written.offset)

    async def _replace(self, broken: AIOKafkaProducer) -> None:
        if self._producer is broken:  # else somebody else has
            self._producer = None
            await self._end(broken)

    async def _places(self, topic: str) -> int:
        """The topic's partitions; SendError when it is not there."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
        now = asyncio.get_running_loop().time
        deadline = now() + TOPIC_S_MAX
        while True:
            try:
                response: MetadataResponse = await (await self._asked()).send(ANY, request)
            except OurKafkaError as error:
                raise SendError(f"topic {topic!r} cannot be written to: {error}") from error
            (found,) = response.topics
            if not found.error_code:
                self._known.add(topic)
                return len(found.partitions)
            if now() >= deadline or not is_retriable(found.error_code):
                raise _no_topic(topic, found.error_code)
            await asyncio.sleep(TOPIC_AGAIN_S)

    async def _asked(self) -> Cluster:
        """Our own client, for questions."""
        assert self._starting is not None
        async with self._starting:
            if self._cluster is None:
                cluster = Cluster(self._settings)
                await cluster.start()
                self._cluster = cluster
            return self._cluster

    async def _started(self) -> AIOKafkaProducer:
        assert self._starting is not None
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(**producer_options(self._settings))
                try:
                    await producer.start()
                except BaseException:
                    await self._end(producer)
                    raise
                self._producer = producer
            return self._producer

    async def _stop(self) -> None:
        if self._busy:
            await asyncio.wait(self._busy, timeout=self._settings.request_timeout_ms / 1000)
        producer, self._producer = self._producer, None
        if producer is not None:
            await self._end(producer)
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _end(self, producer: AIOKafkaProducer) -> None:
        """In a task of its own: whoever waits for it may be cancelled, and its connections must end all the same."""
        ending: asyncio.Task[None] = asyncio.create_task(producer.stop())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)


def _batched(records: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Never more on their way than this, however many there are."""
    iterator = iter(records)
    while some := list(islice(iterator, MANY_MAX)):
        yield some


def _no_topic(topic: str, code: int) -> SendError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return SendError(f"there is no topic {topic!r}; create it first: headrace topic create {topic}")
    return SendError(f"nothing can be sent: {error_for(code, about=f'topic {topic!r}')}")


def _send_error(topic: str, error: KafkaError) -> SendError:
    return SendError(f"a record for topic {topic!r} was not acknowledged: {error!r}")


def producer_options(settings: ClientSettings) -> dict[str, Any]:
    """Our client's settings in aiokafka's words."""
    options: dict[str, Any] = {
        "bootstrap_servers": [str(address) for address in settings.bootstrap_servers],
        "client_id": settings.client_id,
        "enable_idempotence": True,
        "acks": "all",
        "request_timeout_ms": settings.request_timeout_ms,
        "metadata_max_age_ms": settings.metadata_max_age_ms,
        "retry_backoff_ms": settings.retry_backoff_ms,
        "max_request_size": REQUEST_BYTES_MAX,
        "security_protocol": settings.security_protocol.value,
    }
    if settings.security_protocol.has_tls:
        options["ssl_context"] = tls_context(settings)
    if settings.security_protocol.has_sasl:
        options |= {
            "sasl_mechanism": settings.sasl_mechanism.value,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": settings.sasl_password,
        }
    return options
