"""Applications on the nodes: they use the public faces of client and worker as programs do, well and badly."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow

from headrace.client.aio import AsyncShareConsumer
from headrace.client.batches import DeliveryBatch
from headrace.client.core.member import Commands
from headrace.client.delivery import Delivery
from headrace.client.errors import IllegalStateError
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ClientSettings
from headrace.wire.errors import KafkaError
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.worker.backoff import Backoff
from headrace.worker.batch import Batch
from headrace.worker.bodies import ContentType, Header
from headrace.worker.group_facts import prepare_group
from headrace.worker.outbox import Outbox, Sent, _as_send_error, settings_for
from headrace.worker.outcomes import Reject, Retry
from headrace.worker.runner import TaskRunner
from headrace.worker.task import Task, build_options
from tests.simulation.path.model import ACCEPT, DEAD_LETTERS, REJECT, RELEASE, RENEW, Acquisition
from tests.simulation.scenario import SHARE_GROUPS, TOPICS
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.path.node import Node

LINES_MAX = 600


class Alarm(Exception):
    """Raised by a signal handler of the application."""


class Application:
    """A program: `main` is its whole life. All choices come from `self.rng`."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.world = node.world
        self.model = node.world.path
        self.is_stopping = False
        self.group_id = self.rng.choice(SHARE_GROUPS)
        self._interruption: tuple[type[Exception], int] | None = None
        self._stop: tuple[int, bool] | None = None

    @property
    def rng(self) -> Random:
        return self.world.rng

    async def main(self) -> None:
        raise NotImplementedError

    def please_stop(self) -> None:
        self.is_stopping = True

    def interrupt_soon(self) -> None:
        self.world.stats.faults["poll interrupted"] += 1
        kind = self.rng.choice((Alarm, TimeoutError, MemoryError))
        self._interruption = kind, self.rng.randrange(LINES_MAX)

    def stop_soon(self, ms: int, *, stands_still: bool) -> None:
        self._stop = ms, stands_still

    def settings(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "bootstrap.servers": "127.0.0.1:9092",
            "client.id": self.node.name,
            "group.id": self.group_id,
            "request.timeout.ms": rng.choice((2_000, 5_000, 30_000)),
            "default.api.timeout.ms": rng.choice((5_000, 20_000)),
            "fetch.max.wait.ms": rng.choice((50, 500, 2_000)),
            "max.poll.records": rng.choice((1, 3, 10, 500)),
            "max.poll.interval.ms": rng.choice((3_000, 300_000, 300_000)),
            "share.acquire.mode": rng.choice(("batch_optimized", "batch_optimized", "record_limit")),
        }

    async def work(self) -> None:
        """Takes its time, at times longer than a lock."""
        if self._stop is not None:
            (ms, stands_still), self._stop = self._stop, None
            self.node.stop(ms, stands_still=stands_still)
        elif not self.world.is_calm and self.rng.random() < self.world.scenario.drowsiness:
            self.world.stats.faults["node suspended in a batch"] += 1
            ms = self.world.scenario.lock_ms * self.rng.choice((11, 12, 20)) // 10
            self.node.stop(ms, stands_still=self.rng.random() < 0.7)
            await asyncio.sleep(0)
            return
        await asyncio.sleep(self.rng.choice((0, 0, 0, 0.01, 0.3, 0.9, 1.2, 4.9)))

    # Watching a consumer

    def guard(self, check: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return check(*arguments, **named)
        except Violation as violation:
            self.world.report(violation)
            return None

    def watch(self, consumer: AsyncShareConsumer) -> None:
        """Lets the model see what goes in and out of it. Nothing is changed on the way."""
        member, consumption, model = consumer._member, consumer._consumption, self.model
        core = member.core
        model.members.add(member.member_id)
        respond, take, begin = core.responded, consumption.take, consumption.begin
        command, wait, asked_ms = core.commands, consumer._wait, 0

        def responded(node_id: int, response: Any, *, now_ms: int) -> None:
            respond(node_id, response, now_ms=now_ms)
            self.guard(model.responded, self.node, core, node_id, response)

        def settled(answers: Any) -> None:
            self.guard(model.settled, answers)
            consumption.settled(answers)

        def lost(losses: Any) -> None:
            self.guard(model.lost, losses)
            consumption.lost(losses)

        def commands(*, now_ms: int) -> Commands:
            nonlocal asked_ms
            given = command(now_ms=now_ms)
            if any(isinstance(send.request, ShareFetchRequest) for send in given.sends):
                asked_ms = now_ms
            return given

        async def waited(started_ms: int, *given: Any) -> list[Any]:
            found = await wait(started_ms, *given)
            if not found:
                self.guard(model.waited, self.node, core, started_ms, asked_ms)
            return found

        core.responded = responded  # type: ignore[method-assign]
        core.commands = commands  # type: ignore[method-assign]
        consumer._wait = waited  # type: ignore[method-assign]
        member.listen(settled, lost)
        consumption.take = lambda **given: self._interrupted(take, **given)  # type: ignore[method-assign]
        consumption.begin = lambda: self._interrupted(begin)  # type: ignore[method-assign]
        take_batch, take_unseen_batch = consumption.take_batch, consumption.take_unseen_batch
        consumption.take_batch = lambda **given: self._interrupted(take_batch, **given)  # type: ignore[method-assign]
        consumption.take_unseen_batch = lambda **given: self._interrupted(  # type: ignore[method-assign]
            take_unseen_batch, **given
        )

    def _interrupted(self, function: Callable[..., Any], **given: Any) -> Any:
        """At times an exception comes out of the middle of it, at any line of the client."""
        if self._interruption is None:
            return function(**given)
        (kind, left), self._interruption = self._interruption, None

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if "headrace/client" not in frame.f_code.co_filename:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise kind("out of a signal handler")
            return trace

        sys.settrace(trace)
        try:
            return function(**given)
        finally:
            sys.settrace(None)
            if left >= 0:
                self._interruption = kind, left


class Consuming(Application):
    """What the consumers have in common: they come, poll for a while, and go."""

    mode = "explicit"

    async def main(self) -> None:
        while not self.is_stopping:
            consumer = AsyncShareConsumer(self.consumer_settings())
            self.watch(consumer)
            self.ones: dict[Acquisition, Any] = {}
            """What polls have returned."""
            try:
                self.subscribe(consumer)
                await self.consume(consumer)
            except KafkaError as error:
                self.world.trail.note(f"{self.node.name}: {type(error).__name__}")
            await self.close(consumer)
            if self.rng.random() < 0.3:
                return
            await asyncio.sleep(self.rng.choice((0, 0.1, 1)))

    def consumer_settings(self) -> dict[str, Any]:
        return self.settings() | {"share.acknowledgement.mode": self.mode}

    def subscribe(self, consumer: AsyncShareConsumer) -> None:
        count = self.rng.choice((1, 2, 3))
        consumer.subscribe(self.rng.sample(TOPICS, count))

    async def consume(self, consumer: AsyncShareConsumer) -> None:
        for _ in range(self.rng.choice((3, 30, 300))):
            if self.is_stopping:
                return
            deliveries = await self.poll(consumer)
            await self.handle(consumer, deliveries)
            if self.rng.random() < 0.2:
                await self.commit(consumer)
            if self.rng.random() < 0.02:
                self.give_back()
                self.subscribe(consumer)

    async def handle(self, consumer: AsyncShareConsumer, deliveries: Sequence[Delivery]) -> None:
        raise NotImplementedError

    def polling(self) -> None:
        """A poll is about to begin."""

    async def poll(self, consumer: AsyncShareConsumer) -> Sequence[Delivery]:
        timeout_s = self.rng.choice((0, 0.1, 1, 3))
        patience_s = self.rng.choice((None, None, None, 0, 0.05, 0.7))
        self.polling()
        max_records = self.rng.choice((None, None, None, 1, 5))
        try:
            async with asyncio.timeout(patience_s):
                deliveries = await consumer.poll(timeout_s, max_records=max_records)
        except (Alarm, MemoryError, TimeoutError):
            return ()
        except IllegalStateError as error:
            raise Violation(
                "path: a poll refuses",
                f"{self.node.name} has answered everything it got: {error}; {self.open()}",
            ) from None
        self.got(deliveries)
        return deliveries

    def open(self) -> list[Acquisition]:
        return [one for one in self.ones if not one.allowed and not one.lost and not one.settled]

    def got(self, deliveries: Sequence[Delivery]) -> None:
        ones = [self.model.of_delivery(delivery) for delivery in deliveries]
        for one, delivery in zip(self.model.returned(self.node, ones), deliveries, strict=True):
            self.ones[one] = delivery

    def answer(self, delivery: Delivery, type: int) -> None:
        one = self.model.of_delivery(delivery)
        one.allowed.append(type)
        one.is_answered = one.is_answered or type != RENEW
        one.release_ms = None
        if type == RELEASE and self.rng.random() < 0.3:
            after_s = self.rng.choice(DELAYS_S)
            one.release_ms = self.node.now_ms() + int(after_s * 1000)
            delivery.release(after=after_s)
            return
        consumer: Any = {ACCEPT: delivery.accept, RELEASE: delivery.release, REJECT: delivery.reject}
        consumer.get(type, delivery.renew)()

    async def commit(self, consumer: AsyncShareConsumer) -> None:
        self.polling()
        try:
            if self.rng.random() < 0.3:
                consumer.commit_async()
            else:
                await consumer.commit_sync(self.rng.choice((0, 0.5, 5)))
        except (KafkaError, TimeoutError):
            pass

    def give_back(self) -> None:
        for one in self.ones:
            one.is_given_back = True

    async def close(self, consumer: AsyncShareConsumer) -> None:
        self.model.before_close(consumer._member.core, list(self.ones))
        self.give_back()
        await consumer.close(self.rng.choice((0, 1, 30)))
        self.model.closed(self.node, list(self.ones))


class Explicit(Consuming):
    """Answers everything before it polls again, now and then too late."""

    def consumer_settings(self) -> dict[str, Any]:
        return super().consumer_settings() | {"auto.renew": self.rng.random() < 0.3}

    async def handle(self, consumer: AsyncShareConsumer, deliveries: Sequence[Delivery]) -> None:
        mood, effort = self.rng.choice(MOODS), self.rng.choice(EFFORTS)
        for delivery in deliveries:
            if self.rng.random() < effort or self._stop is not None:
                await self.work()
            self.answer(delivery, self.rng.choice(mood))
            if self.rng.random() < 0.05:  # thinks better of it
                self.answer(delivery, self.rng.choice((ACCEPT, RELEASE, REJECT)))


class Implicit(Consuming):
    """Leaves it to the next poll."""

    mode = "implicit"

    def polling(self) -> None:
        for one in self.ones:
            if not one.allowed:
                one.allowed.append(ACCEPT)

    async def handle(self, consumer: AsyncShareConsumer, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self.work()


class Iterating(Implicit):
    """The same with `async for`."""

    async def consume(self, consumer: AsyncShareConsumer) -> None:
        wanted = self.rng.choice((3, 30, 300))
        steps = consumer.__aiter__()
        for _ in range(wanted):
            if self.is_stopping:
                return
            self.polling()
            try:
                async with asyncio.timeout(5):
                    delivery = await anext(steps)
            except (Alarm, MemoryError, TimeoutError, StopAsyncIteration):
                steps = consumer.__aiter__()
                continue
            self.got([delivery])
            if self.rng.random() < 0.05:
                await self.work()


class Held(Consuming):
    """Holds records over several polls, and answers when it likes to."""

    def consumer_settings(self) -> dict[str, Any]:
        return super().consumer_settings() | {
            "max.unacknowledged": self.rng.choice((1, 5, 50)),
            "auto.renew": self.rng.random() < 0.5,
        }

    async def handle(self, consumer: AsyncShareConsumer, deliveries: Sequence[Delivery]) -> None:
        for one, delivery in list(self.ones.items()):
            if one.is_answered or one.lost:
                continue
            chance = self.rng.random()
            if chance < 0.15:
                with suppress(IllegalStateError):
                    self.answer(delivery, RENEW)
                if self.rng.random() < 0.5:
                    self.answer(delivery, ACCEPT)
            elif chance < 0.6:
                self.answer(delivery, self.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT)))
        if self.rng.random() < 0.5:
            await self.work()


class Batching(Consuming):
    """Polls for rows, and answers with masks."""

    def __init__(self, node: "Node") -> None:
        super().__init__(node)
        self.mode = self.rng.choice(("explicit", "explicit", "implicit"))

    def polling(self) -> None:
        if self.mode == "implicit":
            for one in self.ones:
                if not one.allowed:
                    one.allowed.append(ACCEPT)

    async def consume(self, consumer: AsyncShareConsumer) -> None:
        batches = self.batches(consumer)
        for _ in range(self.rng.choice((3, 30, 300))):
            if self.is_stopping:
                return
            self.polling()
            try:
                async with asyncio.timeout(self.rng.choice((None, 0.05, 5))):
                    batch = await anext(batches)
            except (Alarm, MemoryError, TimeoutError, StopAsyncIteration):
                batches = self.batches(consumer)
                continue
            except IllegalStateError as error:
                raise Violation("path: a poll refuses", f"{self.node.name}: {error}; {self.open()}") from None
            ones = self.model.returned(self.node, self.model.of_batch(batch))
            self.check_rows(batch, ones)
            self.ones |= dict.fromkeys(ones)
            if self.rng.random() < 0.4:
                await self.work()
            if self.mode == "explicit":
                self.answer_rows(batch, ones)
            if self.rng.random() < 0.2:
                await self.commit(consumer)

    def batches(self, consumer: AsyncShareConsumer) -> AsyncIterator[DeliveryBatch]:
        return consumer.batches(
            timeout=self.rng.choice((0, 0.5, 5)), max_records=self.rng.choice((None, None, 1, 5))
        )

    def check_rows(self, batch: DeliveryBatch, ones: list[Acquisition]) -> None:
        columns = batch.records.to_pydict()
        rows = zip(columns["topic"], columns["partition"], columns["offset"], strict=True)
        if [(one.topic, one.key.partition, one.offset) for one in ones] != list(rows):
            raise Violation("path: rows of other records", f"{self.node.name}: {ones}: {columns['offset']}")

    def answer_rows(self, batch: DeliveryBatch, ones: list[Acquisition]) -> None:
        """First some of them, with a mask, perhaps again with another; then all that are left."""
        left = [not one.lost for one in ones]
        for _ in range(self.rng.choice((0, 1, 2))):
            type = self.rng.choice((ACCEPT, RELEASE, REJECT))
            mask = [self.rng.random() < 0.5 for _ in ones]
            self.say(type, [one for one, is_meant in zip(ones, mask, strict=True) if is_meant])
            self.answer_mask(batch, type, self.rng.choice((list, pyarrow.array))(mask), ones)
            left = [is_left and not is_meant for is_left, is_meant in zip(left, mask, strict=True)]
        type = self.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT))
        self.say(type, [one for one, is_left in zip(ones, left, strict=True) if is_left])
        (batch.accept, batch.release, batch.reject)[type - ACCEPT]()

    def answer_mask(self, batch: DeliveryBatch, type: int, mask: Any, ones: list[Acquisition]) -> None:
        if type == ACCEPT:
            batch.accept(mask)
        elif type == REJECT:
            batch.reject(mask)
        elif self.rng.random() < 0.5:
            batch.release(mask)
        else:
            after_s = self.rng.choice(DELAYS_S)
            for one, is_meant in zip(ones, mask, strict=True):
                if is_meant:
                    one.release_ms = self.node.now_ms() + int(after_s * 1000)
            batch.release(mask, after=after_s)

    def say(self, type: int, ones: list[Acquisition]) -> None:
        for one in ones:
            one.allowed.append(type)
            one.is_answered, one.release_ms = True, None


class LoopOutbox(Outbox):
    """The worker's, with the producer on the node's own loop in place of one on a thread."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings_for(settings))
        self._on_loop = AsyncProducer.of(self._settings)

    async def send_async(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
    ) -> Sent:
        with _as_send_error(topic):
            return await self._on_loop.send(topic, value, key=key, headers=headers, partition=partition)

    async def partitions(self, topic: str) -> int:
        with _as_send_error(topic):
            return await self._on_loop.partition_count(topic)

    async def end(self) -> None:
        with suppress(KafkaError):
            await self._on_loop.close(timeout=5)


class Worker(Application):
    """A task queue's worker: its functions succeed, fail, ask for another try, reject, and take too long."""

    async def main(self) -> None:
        while not self.is_stopping:
            try:
                await self.shift()
            except KafkaError as error:
                self.world.trail.note(f"{self.node.name}: {type(error).__name__}")
            if self.rng.random() < 0.3:
                return
            await asyncio.sleep(self.rng.choice((0.1, 1)))

    async def shift(self) -> None:
        rng = self.rng
        given = {
            name: value
            for name, value in self.settings().items()
            if name not in ("share.acquire.mode", "max.poll.records", "max.poll.interval.ms")
        }
        client = {
            name: value for name, value in given.items() if name not in ("group.id", "fetch.max.wait.ms")
        }
        facts = await prepare_group(ClientSettings.parse(client), self.group_id, start_from="earliest")
        self.ones: dict[Acquisition, Delivery] = {}
        self.dead_letter = rng.choice((None, DEAD_LETTERS))
        self.facts = facts
        task = self.task()
        outbox = LoopOutbox(client | {"delivery.timeout.ms": 30_000, "max.block.ms": 5_000})
        runner = TaskRunner(
            task,
            settings=given,
            group_id=self.group_id,
            facts=facts,
            outbox=outbox,
            worker=self.node.name,
            drain_timeout=rng.choice((0, 1, 10)),
        )
        self.watch_runner(runner)
        try:
            await runner.start()
            running = asyncio.create_task(runner.run())
            until = self.node.now_ms() + rng.choice((2_000, 20_000, 200_000))
            while not running.done() and not self.is_stopping and self.node.now_ms() < until:
                await asyncio.wait([running], timeout=0.5)
            runner.stop(now=rng.random() < 0.3)
            await running
            self.model.closed(self.node, list(self.ones))
        finally:
            await runner.close()
            await outbox.end()

    def task(self) -> "Task[Any, Any, Any]":
        rng = self.rng
        batch = rng.choice((None, Batch(max=rng.choice((2, 8)), wait=rng.choice((0.0, 0.05, 2.0)))))
        function = self.function if batch is None else self.batch_function
        options = build_options(
            function,
            rng.choice(TOPICS[:-1]),
            concurrency=rng.choice((1, 3, 16)),
            retries=rng.choice((None, Backoff(first=0.1, factor=2.0, most=2.0, tries=rng.choice((2, 20))))),
            dead_letter=self.dead_letter,
            timeout=rng.choice((None, 0.5, 5.0)),
            key_order=rng.random() < 0.3,
            pool=None,
            waiting=rng.choice((0, 5, 100)),
            batch=batch,
        )
        queue: Any = None
        return Task(queue, function, options, ContentType.JSON)

    async def function(self, body: bytes, delivery: Delivery) -> None:
        one = self.model.of_delivery(delivery)
        one.allowed.append(REJECT)  # unless it returns: it may fail, or be canceled, as often as it may
        await self.work()
        match self.rng.randrange(8):
            case 0:
                raise Retry(after=self.rng.choice((None, 0.0, 0.2, 3.0)))
            case 1:
                raise ValueError("it does not work")
            case 2:
                raise Reject("it never will")
        one.allowed.append(ACCEPT)

    async def batch_function(self, bodies: list[bytes], deliveries: list[Delivery]) -> Any:
        ones = [self.model.of_delivery(delivery) for delivery in deliveries]
        for one in ones:
            one.allowed.append(REJECT)
        await self.work()
        match self.rng.randrange(8):
            case 0:
                raise ValueError("none of them works")
            case 1:
                raise Reject("one of them never will")
            case 2:
                return [None] * (len(ones) + 1)
        outcomes = [self.rng.choice((None, None, None, Retry(), Reject("no"), ValueError())) for _ in ones]
        for one, outcome in zip(ones, outcomes, strict=True):
            if outcome is None:
                one.allowed.append(ACCEPT)
        return outcomes

    def watch_runner(self, runner: TaskRunner) -> None:
        consumer: Any = runner._source
        self.watch(consumer)
        poll = consumer.poll

        async def polled(timeout: float, *, max_records: int | None = None) -> list[Delivery]:  # noqa: ASYNC109
            while True:
                try:
                    deliveries = await poll(timeout, max_records=max_records)
                    break
                except (Alarm, MemoryError, TimeoutError):  # the worker has no signal handlers that raise
                    continue
            found = [self.model.of_delivery(delivery) for delivery in deliveries]
            ones = self.guard(self.model.returned, self.node, found) or ()
            for one, delivery in zip(ones, deliveries, strict=False):
                self.ones[one] = delivery
                one.allowed.append(RELEASE)
                one.needs_letter = self.dead_letter is not None
                is_last = delivery.delivery_count >= self.facts.delivery_limit
                has_letters = self.dead_letter is not None or self.facts.broker_dead_letters
                one.is_given_up = is_last or (has_letters and delivery.value is None)
            return deliveries

        consumer.poll = polled


DELAYS_S = (0.05, 0.4, 1.5, 8.0)
EFFORTS = (0, 0.02, 0.1, 0.5)
"""How often it works on a record before it answers."""
MOODS: tuple[tuple[int, ...], ...] = (
    (ACCEPT,),
    (ACCEPT, ACCEPT, ACCEPT, RELEASE),
    (ACCEPT, RELEASE, REJECT),
    (ACCEPT, RENEW),
    (RELEASE,),
    (REJECT, ACCEPT),
)
