"""Runs a `ProducerCore` over a cluster's connections. Everything here runs on one event loop.

What has to wait (connections, metadata, a producer id, the coordinator) runs as a task each, one of a kind at a time;
each ends in `pump`, which sends what can be sent. Records and responses need no task.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from headrace.base.settings import INT_MAX
from headrace.client.cluster import ANY, Cluster, retry_backoff
from headrace.client.errors import ProducerFencedError, error_for, is_retriable
from headrace.client.producing import core
from headrace.client.producing.batch import Entry, Identity, ProducerBatch, ValueRun
from headrace.client.producing.core import ProducerCore, Result
from headrace.client.producing.queue import PartitionQueue, SendOutcome
from headrace.client.producing.transactions import INIT_PRODUCER_ID_VERSION, Transactions
from headrace.client.settings import Acks, ProducerSettings
from headrace.wire.batches import Compression
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.produce_response import ProduceResponse

logger = logging.getLogger("headrace.client")
CLOSED = "this producer is closed; make a new one"
ACKS = {Acks.ALL: -1, Acks.LEADER: 1, Acks.NONE: 0}


class ProducerDriver:
    """`on_outcomes` hears what became of records. Made and used on the loop that runs it."""

    def __init__(self, settings: ProducerSettings, on_outcomes: Callable[[list[SendOutcome]], None]) -> None:
        self.settings = settings
        self.core = ProducerCore(settings, random_below=random.randrange, fraction=random.random)
        self.cluster = Cluster(settings)
        self.transactions = Transactions(self) if settings.transactional_id else None
        self._on_outcomes = on_outcomes
        self.loop = asyncio.get_running_loop()
        self._compression = Compression[settings.compression_type.name]
        self._is_started = False
        self._start_error: KafkaError | None = None
        self.is_closed = False
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._waits: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._pumping: asyncio.Handle | None = None

    def put(self, entries: Iterable[Entry | ValueRun]) -> None:
        now_ms = self._now_ms()
        for entry in entries:
            self.core.put(entry, now_ms)

    def pump_soon(self) -> None:
        """Once for all records of this turn of the loop, so that they share batches."""
        if self._pumping is None:
            self._pumping = self.loop.call_soon(self.pump)

    def pump(self) -> None:
        """Sends what can be sent, reports what is done, and sees to what is missing."""
        if self._pumping is not None:
            self._pumping.cancel()
            self._pumping = None
        if self.is_closed:  # a record that was put after the last flush has no other way to get an outcome
            self.core.abandon(error_for(ErrorCode.NETWORK_EXCEPTION, CLOSED, about="producer"))
            self._report()
            return
        now_ms = self._now_ms()
        plan = self.core.plan(now_ms)
        if self._is_started:
            while sum(self._send(node_id, ready, now_ms) for node_id, ready in plan.items()):
                plan = self.core.plan(now_ms)
            if self.core.wants_identity and not self.settings.transactional_id:
                self._run("identity", self._identify)
            if self.transactions is not None and self.core.unregistered():
                self._run("register", self.transactions.register)
            if self.core.wants_metadata():
                self._run("metadata", self._refresh)
        elif not self.core.is_idle:
            self._run("start", self._start)
        self._report()
        self._arm(now_ms)

    async def flush(self) -> None:
        """Returns when every record put so far has an outcome."""
        number = self.core.flush()
        self.pump()
        await self._until(lambda: self.core.is_flushed(number))

    async def until_quiet(self) -> None:
        """Returns when no request is in flight, not even for records that have failed by their time."""
        await self._until(lambda: not self.core.has_requests)

    async def _until(self, is_reached: Callable[[], bool]) -> None:
        if not is_reached():
            done = self.loop.create_future()
            self._waits.append((is_reached, done))
            await done

    async def start(self) -> None:
        """Connects, if that has not been done."""
        while not self._is_started:
            task = self._run("start", self._start)
            await asyncio.shield(task)
            if self._start_error is not None:
                raise self._start_error

    async def partition_count(self, topic: str) -> int:
        """Waits for a topic that the brokers may be creating."""
        await self.start()
        until = self.loop.time() + core.TOPIC_WAIT_MS / 1000
        while True:
            await self.cluster.refresh([topic], creates=True)
            found = self.cluster.topic(topic)
            if found is not None and found.partitions:
                return len(found.partitions)
            code = self.cluster.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not is_retriable(code) or self.loop.time() >= until:
                self.cluster.forget_topics([topic])
                raise error_for(code, about=f"topic {topic!r}")

    async def close(self, timeout_s: float) -> None:
        """Sends what is buffered for as long as `timeout_s` allows, and fails the rest."""
        if self.is_closed:
            return
        try:
            async with asyncio.timeout(timeout_s):
                if self.transactions is not None:
                    await self.transactions.close()
                await self.flush()
        except ProducerFencedError:
            logger.info("a producer was closed after it was fenced by another one with its transactional.id")
        except KafkaError as error:
            logger.error("a producer was closed with an open transaction, which will time out: %s", error)
        except TimeoutError:
            logger.error("a producer was closed with records that are not acknowledged")
        finally:
            await self._end(timeout_s)

    async def _end(self, timeout_s: float) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.cluster.close()
        await asyncio.sleep(0)  # requests in flight fail now
        text = f"the producer was closed, and within {timeout_s:g} s the record was not acknowledged"
        self.core.abandon(error_for(ErrorCode.REQUEST_TIMED_OUT, text, about="producer"))
        self._report()

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something that nobody waits for."""
        self._kept = self.loop.create_task(work)

    def _run(self, kind: object, work: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        task = self._tasks.get(kind)
        if task is None:
            task = self._tasks[kind] = self.loop.create_task(work())
            task.add_done_callback(partial(self._ended, kind))
        return task

    def _ended(self, kind: object, task: "asyncio.Task[None]") -> None:
        del self._tasks[kind]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("a producer's task has failed", exc_info=error)
            self.core.abandon(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error), about="producer"))
        self.pump()

    async def _start(self) -> None:
        try:
            await self.cluster.start()
        except KafkaError as error:
            self._start_error = error
            self.cluster = Cluster(self.settings)
            self.core.abandon(error)
        else:
            self.cluster.on_refreshed = self._learn_all
            self._start_error = None
            self._is_started = True

    def _send(self, node_id: int, ready: list[PartitionQueue], now_ms: float) -> bool:
        """True when something was sent and there is more to send."""
        connection = self.cluster.open_connection(node_id)
        if connection is None:
            self._run(("connect", node_id), partial(self._connect, node_id))
            return False
        batches = self.core.take(node_id, ready)
        try:
            request = self._request(batches)
            if self.settings.acks is Acks.NONE:
                connection.tell(request)
                self._answered_unseen(node_id, batches, now_ms)
                return True
            heard = partial(self._heard, node_id, batches)
            is_posted = connection.post(request, heard, version_max=self._version_max)
        except KafkaError as error:
            self.core.not_sent(node_id, batches, error, now_ms)
            return False
        assert is_posted  # the connection was ready a moment ago
        return any(queue.has_waiting for queue in ready)

    @property
    def _version_max(self) -> int | None:
        return None if self.transactions is None else self.transactions.produce_version_max

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        is_transactional = bool(self.settings.transactional_id)
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            records = batch.encode(self._compression, is_transactional=is_transactional)
            topics.setdefault(batch.topic, []).append(
                PartitionProduceData(index=batch.partition, records=records)
            )
        return ProduceRequest(
            transactional_id=self.settings.transactional_id or None,
            acks=ACKS[self.settings.acks],
            timeout_ms=self.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=name, topic_id=self.core.topic_id(name), partition_data=data)
                for name, data in topics.items()
            ],
        )

    def _answered_unseen(self, node_id: int, batches: list[ProducerBatch], now_ms: float) -> None:
        written = {(batch.topic, batch.partition): Result(0) for batch in batches}
        self.core.answered(node_id, batches, written, now_ms)

    def _heard(
        self, node_id: int, batches: list[ProducerBatch], response: Any, error: KafkaError | None
    ) -> None:
        """Not within the transport's callback: to wake a sender's thread from there costs a third of the sends/s."""
        self.loop.call_soon(self._answered, node_id, batches, response, error)

    def _answered(
        self, node_id: int, batches: list[ProducerBatch], response: ProduceResponse, error: KafkaError | None
    ) -> None:
        now_ms = self._now_ms()
        if error is not None:
            self.core.lost(node_id, batches, error, now_ms)
        else:
            self.core.answered(node_id, batches, self._results(batches, response), now_ms)
        self.pump()

    def _results(
        self, batches: list[ProducerBatch], response: ProduceResponse
    ) -> dict[tuple[str, int], Result]:
        names = {self.core.topic_id(batch.topic): batch.topic for batch in batches}
        results: dict[tuple[str, int], Result] = {}
        moved: set[str] = set()
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for one in topic.partition_responses:
                results[name, one.index] = Result(one.error_code, one.error_message, one.base_offset)
                leader = one.current_leader
                if (
                    one.error_code
                    and leader.leader_id >= 0
                    and self.cluster.learn_leader(
                        self.core.topic_id(name),
                        one.index,
                        leader.leader_id,
                        leader.leader_epoch,
                        response.node_endpoints,
                    )
                ):
                    moved.add(name)
        for name in moved:
            self._learn(name)
        return results

    async def _connect(self, node_id: int) -> None:
        try:
            await self.cluster.question_connection(node_id)
        except KafkaError as error:
            self.core.unreachable(node_id, error)
            if not is_retriable(error.code):
                self.core.abandon(error)

    async def _refresh(self) -> None:
        names = self.core.wants_metadata()
        try:
            await self.cluster.refresh(names, creates=True)
        except KafkaError as error:
            for name in names:
                self.core.topic_failed(name, error, self._now_ms())
            return
        for name in names:
            self._learn(name)

    def _learn_all(self) -> None:
        for name in self.core.topic_names():
            if self.cluster.topic(name) is not None:
                self._learn(name)

    def _learn(self, name: str) -> None:
        topic = self.cluster.topic(name)
        if topic is not None and topic.partitions:
            leaders = {
                index: partition.leader_id if partition.leader_id in self.cluster.nodes else -1
                for index, partition in topic.partitions.items()
            }
            self.core.learn(name, topic.topic_id, leaders, self._now_ms())
        else:
            code = self.cluster.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.core.topic_failed(name, error_for(code, about=f"topic {name!r}"), self._now_ms())
            if name not in self.core.wants_metadata():
                self.cluster.forget_topics([name])

    async def _identify(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT_MAX)
        retry = retry_backoff(self.settings)
        while True:
            try:
                response: InitProducerIdResponse = await self.cluster.send(
                    ANY, request, version_max=INIT_PRODUCER_ID_VERSION
                )
            except KafkaError as error:
                refusal = error
            else:
                if not response.error_code:
                    self.core.identified(Identity(response.producer_id, response.producer_epoch))
                    return
                refusal = error_for(response.error_code, about="producer id")
            if not is_retriable(refusal.code):
                self.core.abandon(refusal)
                return
            await asyncio.sleep(retry.after_failure() / 1000)

    def _report(self) -> None:
        outcomes = self.core.pop_outcomes()
        if self.transactions is not None:
            outcomes += self.transactions.check(outcomes)
        if outcomes:
            self._on_outcomes(outcomes)
        for wait in [wait for wait in self._waits if wait[0]()]:
            self._waits.remove(wait)
            if not wait[1].done():
                wait[1].set_result(None)

    def _arm(self, now_ms: float) -> None:
        """A timer that comes too early does no harm, and setting one for every record would cost more."""
        deadline_ms = self.core.deadline_ms(now_ms)
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self.loop.call_later(max(0.0, deadline_ms - now_ms) / 1000, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        self.pump()

    def _now_ms(self) -> float:
        return self.loop.time() * 1000
