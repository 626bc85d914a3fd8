"""`Producer`: a producer without asyncio, for any number of threads.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"two coffees", key=b"table 4").result()

An asyncio loop on a background thread does the work. A record costs its sender a lock and a place in a list; the loop
is woken once for all records that came since it last looked.
"""

import atexit
import contextlib
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.client.background import WAKE_S, BackgroundLoop
from headrace.client.delivery import TopicPartition
from headrace.client.errors import BufferFullError, IllegalStateError, SomeNotSentError, error_for
from headrace.client.producing.aio import buffer_full
from headrace.client.producing.batch import Entry, ValueRun
from headrace.client.producing.driver import CLOSED, ProducerDriver
from headrace.client.producing.future import SendFuture
from headrace.client.producing.many import Many, in_runs, settle_tokens
from headrace.client.producing.queue import SendOutcome
from headrace.client.producing.record import Data, EntryMaker, HeadersLike, ProducerRecord, RecordMetadata
from headrace.client.producing.transaction import Event
from headrace.client.producing.transactions import Transactions
from headrace.client.settings import ProducerSettings
from headrace.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
CHUNK_ENTRIES, CHUNK_BYTES = 500, 256 * 1024
"""How much of a `send_many` is handed over at a time."""
FAILED_MAX = 1_000
STOP_S = 5.0


class Producer:
    """Sends records. Several threads can share a producer.

    Settings have Kafka's names, as a mapping or as keyword arguments with underscores
    (docs/reference/client-settings.md lists them). Keys, values and headers are bytes or str; str is sent as UTF-8.
    After a fork, the child's copy has an empty buffer and opens its own connections, and the parent sends the records
    that were buffered.
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
        self._is_closed = False
        self._engines: dict[int, _Engine] = {}
        """By process. The first thread that sends after a fork adds one; those of processes before it are never freed:
        ending their loops here would reach into the parent's."""
        self._made_by = self._engine.pid
        _OPEN.add(self)

    @property
    def _engine(self) -> "_Engine":
        """The one of this process. `setdefault` is atomic: threads and signal handlers that come at the same time all
        get the same, and an engine that nobody gets has no thread yet."""
        pid = os.getpid()
        return self._engines.get(pid) or self._engines.setdefault(pid, _Engine(self.settings))

    def send(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> SendFuture:
        """Buffers a record and returns a future, whose `result()` waits for the acknowledgement.

        If the buffer is full, waits for at most max.block.ms and then raises BufferFullError. Records that one thread
        sends to one partition are written in the order of the calls. If you do not check a future that fails, `flush`
        or `close` raises its error.
        """
        engine = self._require_engine()
        future = SendFuture(engine)
        entry = self._maker.make(topic, value, key, headers, partition, timestamp, future)
        engine.offer([entry], entry.cost)
        return future

    def send_many(self, topic: str, records: Iterable[ProducerRecord | Data]) -> list[RecordMetadata]:
        """Sends values or `ProducerRecord`s, and returns the metadata of each when all are acknowledged.

        Raises SomeNotSentError if some are not acknowledged. Its `sent` has the metadata of each record, or None.
        """
        engine = self._require_engine()
        engine.refuse_own_thread()
        bell = threading.Event()
        many = Many(bell.set)
        chunk: list[Entry | ValueRun] = []
        cost = 0
        for entry in in_runs(self._maker, topic, records, many):
            if not isinstance(entry, (Entry, ValueRun)):
                (_, place, count), error = entry
                engine.fail_later(many, place, count, error)
                continue
            chunk.append(entry)
            cost += entry.cost
            if len(chunk) >= CHUNK_ENTRIES or cost >= CHUNK_BYTES or type(entry) is ValueRun:
                engine.offer_some(chunk, cost)
                chunk, cost = [], 0
        if chunk:
            engine.offer_some(chunk, cost)
        engine.call(many.complete)
        while not bell.wait(WAKE_S):
            engine.require_alive()
        return many.result()

    def flush(self, timeout: float | None = None) -> None:
        """Sends buffered records without waiting for linger.ms, and returns when each is acknowledged or has failed.

        Raises SomeNotSentError if records failed whose futures you have not checked, and TimeoutError after `timeout`
        seconds.
        """
        self._require_engine(is_sending=False).flush(timeout)

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic. This creates the topic if the brokers have auto.create.topics.enable."""
        engine = self._require_engine(is_sending=False)
        count: int = engine.run(engine.driver.partition_count(topic))
        return count

    def begin(self) -> None:
        """Begins a transaction. The first one fences other producers of the same transactional.id."""
        self._transact(Transactions.begin)

    def commit(self) -> None:
        """Commits the transaction. The message of an error says whether to abort or to call `commit` again."""
        self._transact(Transactions.commit)

    def abort(self) -> None:
        """Aborts the transaction. Consumers that read committed records never get its records."""
        self._transact(Transactions.abort)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        *,
        member_id: str = "",
        generation_id: int = -1,
    ) -> None:
        """Commits offsets of a consumer group with the transaction: for each partition, the next offset to read."""
        self._transact(
            lambda transactions: transactions.send_offsets(
                offsets, group_id, member_id=member_id, generation_id=generation_id
            )
        )

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A context manager that begins a transaction, commits it at the end, and aborts it if the block raises."""
        self.begin()
        try:
            yield self
        except BaseException:
            self.abort()
            raise
        try:
            self.commit()
        except KafkaError:
            if self._require_transactions().needs_abort:
                self.abort()
            raise

    def close(self, timeout: float | None = None) -> None:
        """Sends buffered records for at most `timeout` seconds (delivery.timeout.ms), and disconnects.

        An open transaction is aborted. Raises SomeNotSentError if records failed whose futures you have not checked.
        """
        if self._is_closed:
            return
        engine = self._engine
        engine.refuse_own_thread()
        self._is_closed = True
        _OPEN.discard(self)
        engine.close(self.settings.delivery_timeout_ms / 1000 if timeout is None else max(0.0, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(SomeNotSentError):  # the block's own error says more
                self.close()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        engines: dict[int, _Engine] = getattr(self, "_engines", {})
        engine = engines.pop(os.getpid(), None)
        _LEFT_TO_PARENT.extend(engines.values())
        if engine is not None and not self._is_closed and engine.is_running:
            _warn(
                f"unclosed {self!r}; call close(), or use it in a with statement",
                ResourceWarning,
                source=self,
            )
            engine.abandon()

    def _require_engine(self, *, is_sending: bool = True) -> "_Engine":
        if self._is_closed:
            raise IllegalStateError(CLOSED)
        engine = self._engine
        if self.settings.transactional_id:
            if engine.pid != self._made_by:
                raise IllegalStateError(
                    "this producer was made in another process (before a fork), and a transactional.id belongs to one "
                    "producer; make one with another transactional.id in this process"
                )
            if is_sending:
                self._require_transactions().transaction.move(Event.SEND)
        return engine

    def _require_transactions(self) -> Transactions:
        if not self.settings.transactional_id:
            raise IllegalStateError("this producer has no transactions; make one with transactional_id=...")
        transactions = self._require_engine(is_sending=False).driver.transactions
        assert transactions is not None
        return transactions

    def _transact(self, what: Callable[[Transactions], Any]) -> None:
        transactions = self._require_transactions()
        self._engine.run(what(transactions))


class _Engine:
    """The background loop, and the way of records to it and back.

    A signal handler may interrupt a sender anywhere, and send, flush or close itself. So the loop's thread takes no
    lock: what both sides change is either a deque, or a number that one side alone writes.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self.pid = os.getpid()
        self._lock = threading.RLock()
        """Of those who send. It is never held while something is waited for."""
        self._offered = 0
        self._settled = 0
        """In bytes. What is between the two is in the buffer."""
        self._bells: deque[Any] = deque()
        """Of those who wait for room."""
        self._inbox: deque[Entry | ValueRun] = deque()
        self._collects = 0
        """How often the loop has begun to take what is in the inbox."""
        self._collects_to_come = 0
        """So many at least, once what was asked for has begun: see `_wake`."""
        self._has_ended = False
        """Nothing takes records from the inbox any more."""
        self._failed: deque[SendFuture] = deque(maxlen=FAILED_MAX)
        self._failures = self._failures_told = 0
        self._raised: deque[BaseException] = deque(maxlen=FAILED_MAX)
        """By callbacks, to end more than themselves (SystemExit). The next call raises it on a thread of the
        application."""
        self._starting = threading.RLock()
        self._background: BackgroundLoop | None = None
        self._driver: ProducerDriver | None = None

    @property
    def is_running(self) -> bool:
        return self._background is not None

    @property
    def driver(self) -> ProducerDriver:
        if self._driver is None:
            with self._starting:
                if self._driver is None:
                    self._begin()
        assert self._driver is not None
        return self._driver

    def _begin(self) -> None:
        background = BackgroundLoop("headrace-producer")
        try:
            driver = background.run(self._make_driver())
            if self._has_ended:  # before this, or in a signal handler while this waited
                raise IllegalStateError(CLOSED)
        except BaseException:
            background.close()
            raise
        if self._driver is None:
            self._background, self._driver = background, driver
        else:  # a signal handler has sent a record meanwhile
            background.close()

    async def _make_driver(self) -> ProducerDriver:
        return ProducerDriver(self._settings, self._settle)

    def offer(self, entries: list[Entry | ValueRun], cost: int) -> None:
        driver = self._driver or self.driver
        if self._raised:
            raise self._raised.popleft()
        until: float | None = None
        while True:
            with self._lock:
                if self._has_ended:
                    raise IllegalStateError(CLOSED)
                if self._has_room(cost):
                    self._offered += cost
                    self._inbox.extend(entries)
                    if self._collects >= self._collects_to_come:
                        self._wake(driver)
                    break
            until = until or time.monotonic() + self._settings.max_block_ms / 1000
            self._wait_for_room(cost, until)
        if self._has_ended:  # a signal handler has closed the producer
            self._fail_late_records()

    def _has_room(self, cost: int) -> bool:
        """A record that is larger than the whole buffer goes alone."""
        buffered = self._offered - self._settled
        return not buffered or buffered + cost <= self._settings.buffer_memory

    def _wake(self, driver: ProducerDriver) -> None:
        """Counted afterward: if a signal handler raises in here, the next sender wakes the loop."""
        collects = self._collects
        with contextlib.suppress(RuntimeError):  # just closed: `close` fails what is left in the inbox
            driver.loop.call_soon_threadsafe(self._collect)
        self._collects_to_come = collects + 1

    def offer_some(self, entries: list[Entry | ValueRun], cost: int) -> None:
        """Those of a `send_many`: a full buffer fails these records only."""
        try:
            self.offer(entries, cost)
        except BufferFullError as error:
            for many, place, count in (entry.token for entry in entries):
                self.fail_later(many, place, count, error)

    def _wait_for_room(self, cost: int, until: float) -> None:
        """The producer's own thread, in a callback, does not wait: it makes the room."""
        background = self._background
        assert background is not None
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        try:
            while not self._has_room(cost) and not self._has_ended:
                left = until - time.monotonic()
                if left <= 0 or background.is_this_thread:
                    raise buffer_full(self._settings)
                if bell.acquire(timeout=min(left, WAKE_S)):
                    self._bells.append(bell)
        finally:
            with contextlib.suppress(ValueError):
                self._bells.remove(bell)

    def _collect(self) -> None:
        assert self._driver is not None
        if self._driver.is_closed:
            return  # `close` fails what came too late
        self._collects += 1  # before the look: who comes behind it wakes the loop again
        self._driver.put(self._empty_inbox())
        self._driver.pump()

    def _empty_inbox(self) -> list[Entry | ValueRun]:
        inbox = self._inbox
        return [inbox.popleft() for _ in range(len(inbox))]

    def _fail_late_records(self) -> None:
        """Those of threads that sent while another thread closed the producer."""
        with self._lock:
            self._has_ended = True
            entries = self._empty_inbox()
        error = error_for(
            ErrorCode.REQUEST_TIMED_OUT,
            "the producer was closed before the record was sent",
            about="producer",
        )
        self._settle(
            [SendOutcome(entry.topic, -1, [entry.token], entry.cost, {}, -1, error) for entry in entries]
        )

    def _settle(self, outcomes: list[SendOutcome]) -> None:
        freed = 0
        callbacks: list[tuple[Callable[[SendFuture], object], SendFuture]] = []
        concerned: set[Many] = set()
        error: KafkaError | None = None

        def settle(token: SendFuture, metadata: RecordMetadata | None) -> None:
            token._settle(metadata, error)
            if token._callbacks is not None:
                callbacks.extend((callback, token) for callback in token._pop_callbacks())
            if error is not None and not token._is_seen and not self._settings.transactional_id:
                self._failed.append(token)
                self._failures += 1

        for outcome in outcomes:
            freed += outcome.cost
            error = outcome.error
            concerned |= settle_tokens(outcome, settle)
        self._settled += freed
        for _ in range(len(self._bells)):
            with contextlib.suppress(IndexError):  # who waited has given up
                self._bells.popleft().release()
        for many in concerned:
            many.check()
        for callback, future in callbacks:
            try:
                callback(future)
            except Exception as error:
                assert self._driver is not None
                self._driver.loop.call_exception_handler(
                    {"message": f"a delivery callback of a producer has failed: {error}", "exception": error}
                )
            except BaseException as error:
                self._raised.append(error)

    def fail_later(self, many: Many, place: int, count: int, error: Exception) -> None:
        self.call(many.fail, place, count, error)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self.driver.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            raise IllegalStateError(CLOSED) from None

    def run(self, coroutine: Any, timeout: float | None = None) -> Any:
        assert self._background is not None
        return self._background.run(coroutine, timeout)

    def require_alive(self) -> None:
        assert self._background is not None
        self._background.require_usable()

    def refuse_own_thread(self) -> None:
        """A callback cannot wait for the thread that it runs on."""
        if self.is_running and self._background is not None and self._background.is_this_thread:
            self._background.require_usable()

    def flush(self, timeout: float | None) -> None:
        if self._driver is not None:
            self.call(self._collect)
            self.run(self._driver.flush(), timeout)
        self._raise_unseen()

    def close(self, timeout_s: float) -> None:
        with self._starting:
            if self._background is None or self._driver is None:
                self._has_ended = True
                return
        try:
            self.call(self._collect)
            self.run(self._driver.close(timeout_s), timeout_s + STOP_S)
        finally:
            self._background.close()
            self._fail_late_records()
        self._raise_unseen()

    def abandon(self) -> None:
        """Sends what is buffered without anybody waiting for it, then ends the thread."""
        driver, background = self._driver, self._background
        if driver is not None and background is not None:
            with contextlib.suppress(RuntimeError):
                background.loop.call_soon_threadsafe(_close_later, driver, background)

    def _raise_unseen(self) -> None:
        with self._lock:
            failures = self._failures
            failed = [self._failed.popleft() for _ in range(len(self._failed))]
            count, self._failures_told = failures - self._failures_told, failures
        unseen = [future for future in failed if not future._is_seen]
        count = max(count - (len(failed) - len(unseen)), len(unseen))
        if self._raised:
            raise self._raised.popleft()
        if unseen:
            error = unseen[0].exception()
            raise SomeNotSentError(f"{count} records were not acknowledged; the first: {error}") from error


def _close_later(driver: ProducerDriver, background: BackgroundLoop) -> None:
    async def close() -> None:
        await driver.close(driver.settings.delivery_timeout_ms / 1000)
        background.close()

    driver.keep(close())


def _close_all() -> None:
    """A program that ends without `close` loses nothing that it has sent."""
    for producer in list(_OPEN):
        with contextlib.suppress(SomeNotSentError, TimeoutError):
            producer.close()


_OPEN: "weakref.WeakSet[Producer]" = weakref.WeakSet()
_LEFT_TO_PARENT: list[_Engine] = []
"""Engines of before a fork, of producers that are gone."""
atexit.register(_close_all)
