"""`AsyncProducer`: a producer for asyncio.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        await producer.send("orders", b"two coffees", key=b"table 4")

It has no thread of its own: everything runs on the caller's event loop.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from headrace.client.delivery import TopicPartition
from headrace.client.errors import BufferFullError, IllegalStateError
from headrace.client.producing.batch import Entry, ValueRun
from headrace.client.producing.driver import CLOSED, ProducerDriver
from headrace.client.producing.many import Many, in_runs, settle_tokens
from headrace.client.producing.queue import SendOutcome
from headrace.client.producing.record import Data, EntryMaker, HeadersLike, ProducerRecord, RecordMetadata
from headrace.client.producing.transaction import Event
from headrace.client.producing.transactions import Transactions
from headrace.client.settings import ProducerSettings
from headrace.wire.errors import KafkaError


class AsyncProducer:
    """Sends records. Call its methods on one event loop; several tasks can share it.

    Settings have Kafka's names, as a mapping or as keyword arguments with underscores
    (docs/reference/client-settings.md lists them). Keys, values and headers are bytes or str; str is sent as UTF-8.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        self._set_up(ProducerSettings.parse(settings, **keywords))

    @classmethod
    def of(cls, settings: ProducerSettings) -> Self:
        """Creates a producer from parsed settings."""
        producer = cls.__new__(cls)
        producer._set_up(settings)
        return producer

    def _set_up(self, settings: ProducerSettings) -> None:
        self.settings = settings
        self._maker = EntryMaker(self.settings)
        self._driver: ProducerDriver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._is_closed = False
        self._buffered = 0
        self._unsent = 0
        """Bytes put since the loop had its last turn, at most."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Those who wait for room, and how much they want. Who is let go has it at once (`_let_in`)."""

    async def start(self) -> None:
        """Connects. The first `send` calls it."""
        await self._open().start()

    async def send(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Sends a record and returns its metadata when it is acknowledged. Raises KafkaError if it fails.

        Records of one task are written in the order of the calls. To have several in flight, use tasks, `send_many` or
        `send_soon`. A canceled call may still send its record.
        """
        return await (
            await self.send_soon(
                topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
            )
        )

    async def send_soon(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Like `send`, but only waits for space in the buffer. The future is done when the record is acknowledged."""
        driver = self._require_open()
        done: asyncio.Future[RecordMetadata] = driver.loop.create_future()
        entry = self._maker.make(topic, value, key, headers, partition, timestamp, done)
        if not self._take_room(entry.cost):
            await self._wait_for_room(entry.cost)
            try:
                driver = self._require_open()
            except BaseException:
                self._give_back(entry.cost)
                raise
        self._put(driver, entry)
        if self._unsent >= self.settings.batch_size:
            await self._let_go(driver)
        else:
            driver.pump_soon()
        return done

    async def send_many(self, topic: str, records: Iterable[ProducerRecord | Data]) -> list[RecordMetadata]:
        """Sends values or `ProducerRecord`s, and returns the metadata of each when all are acknowledged.

        Raises SomeNotSentError if some are not acknowledged. Its `sent` has the metadata of each record, or None.
        """
        driver = self._require_open()
        done = asyncio.Event()
        many = Many(done.set)
        for entry in in_runs(self._maker, topic, records, many):
            if not isinstance(entry, (Entry, ValueRun)):
                (_, place, count), refusal = entry
                many.fail(place, count, refusal)
                continue
            if self._is_closed:  # by another task, while this one waited
                _, place, count = entry.token
                many.fail(place, count, IllegalStateError(CLOSED))
                continue
            if not self._take_room(entry.cost):
                driver.pump()
                try:
                    await self._wait_for_room(entry.cost)
                except BufferFullError as error:
                    _, place, count = entry.token
                    many.fail(place, count, error)
                    continue
            self._put(driver, entry)
            if self._unsent >= self.settings.batch_size:
                await self._let_go(driver)
        many.complete()
        driver.pump()
        await done.wait()
        return many.result()

    async def flush(self) -> None:
        """Sends buffered records without waiting for linger.ms, and returns when each is acknowledged or has failed."""
        await self._require_open(is_sending=False).flush()

    async def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic. This creates the topic if the brokers have auto.create.topics.enable."""
        return await self._require_open(is_sending=False).partition_count(topic)

    async def begin(self) -> None:
        """Begins a transaction. The first one fences other producers of the same transactional.id."""
        await self._transactions().begin()

    async def commit(self) -> None:
        """Commits the transaction. The message of an error says whether to abort or to call `commit` again."""
        await self._transactions().commit()

    async def abort(self) -> None:
        """Aborts the transaction. Consumers that read committed records never get its records."""
        await self._transactions().abort()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        *,
        member_id: str = "",
        generation_id: int = -1,
    ) -> None:
        """Commits offsets of a consumer group with the transaction: for each partition, the next offset to read."""
        await self._transactions().send_offsets(
            offsets, group_id, member_id=member_id, generation_id=generation_id
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A context manager that begins a transaction, commits it at the end, and aborts it if the block raises."""
        await self.begin()
        try:
            yield self
        except BaseException:
            await self.abort()
            raise
        try:
            await self.commit()
        except KafkaError:
            if self._transactions().needs_abort:
                await self.abort()
            raise

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Sends buffered records for at most `timeout` seconds (delivery.timeout.ms), and disconnects.

        An open transaction is aborted.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._driver is not None:
                await self._driver.close(
                    self.settings.delivery_timeout_ms / 1000 if timeout is None else max(0.0, timeout)
                )
        finally:
            for _, waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open(self) -> ProducerDriver:
        if self._is_closed:
            raise IllegalStateError(CLOSED)
        if os.getpid() != self._pid:
            raise IllegalStateError(
                "this producer was made in another process (before a fork); make a new one in this process"
            )
        if self._driver is None:
            self._loop = asyncio.get_running_loop()
            self._driver = ProducerDriver(self.settings, self._settle)
        elif asyncio.get_running_loop() is not self._loop:
            raise IllegalStateError(
                "this producer belongs to another event loop; make one for each loop, or use Producer"
            )
        return self._driver

    def _require_open(self, *, is_sending: bool = True) -> ProducerDriver:
        driver = self._open()
        if is_sending and driver.transactions is not None:
            driver.transactions.transaction.move(Event.SEND)
        return driver

    def _transactions(self) -> Transactions:
        transactions = self._open().transactions
        if transactions is None:
            raise IllegalStateError("this producer has no transactions; make one with transactional_id=...")
        return transactions

    def _put(self, driver: ProducerDriver, entry: Entry | ValueRun) -> None:
        """What `_take_room` or `_wait_for_room` has made room for."""
        self._unsent += entry.cost
        driver.put((entry,))

    async def _let_go(self, driver: ProducerDriver) -> None:
        """One who sends without ever waiting must let the loop send, too."""
        self._unsent = 0
        driver.pump()
        await asyncio.sleep(0)

    def _take_room(self, cost: int) -> bool:
        if self._waiting or not self._fits(cost):
            return False
        self._buffered += cost
        return True

    def _fits(self, cost: int) -> bool:
        """A record that is larger than the whole buffer goes alone."""
        return not self._buffered or self._buffered + cost <= self.settings.buffer_memory

    async def _wait_for_room(self, cost: int) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((cost, waiter))
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self._give_back(cost)  # it was let in at the very moment
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove((cost, waiter))
                self._let_in()
            if isinstance(error, TimeoutError):
                raise buffer_full(self.settings) from None
            raise

    def _give_back(self, cost: int) -> None:
        self._buffered -= cost
        self._let_in()

    def _let_in(self) -> None:
        """Gives those who wait their room, in the order in which they came."""
        while self._waiting and self._fits(self._waiting[0][0]):
            cost, waiter = self._waiting.popleft()
            if not waiter.done():
                self._buffered += cost
                waiter.set_result(None)

    def _settle(self, outcomes: list[SendOutcome]) -> None:
        concerned: set[Many] = set()
        error: KafkaError | None = None

        def settle(token: "asyncio.Future[RecordMetadata]", metadata: RecordMetadata | None) -> None:
            if token.done():
                return  # its caller was canceled
            if metadata is not None:
                token.set_result(metadata)
            else:
                assert error is not None
                token.set_exception(error)

        for outcome in outcomes:
            self._buffered -= outcome.cost
            error = outcome.error
            concerned |= settle_tokens(outcome, settle)
        for many in concerned:
            many.check()
        self._let_in()


def buffer_full(settings: ProducerSettings) -> BufferFullError:
    return BufferFullError(
        f"no room in the buffer within max.block.ms={settings.max_block_ms}: "
        f"buffer.memory={settings.buffer_memory} bytes wait to be acknowledged. "
        "Send more slowly, raise buffer.memory, or see why the brokers do not keep up"
    )
