"""The programs on the nodes: those that schedule records, and workers that run tasks with `once=`."""

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.delivery import Delivery
from headrace.client.errors import TopicExistsError
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ClientSettings
from headrace.wire.errors import KafkaError
from headrace.worker.backoff import Backoff
from headrace.worker.bodies import ContentType
from headrace.worker.cron import Interval
from headrace.worker.errors import QueueError
from headrace.worker.forwarder import Forwarder
from headrace.worker.group_facts import prepare_group
from headrace.worker.later import time_in
from headrace.worker.outbox import settings_for
from headrace.worker.outcomes import Reject, Retry
from headrace.worker.periodic import Periodic
from headrace.worker.runner import TaskRunner
from headrace.worker.schedule import Schedule
from headrace.worker.task import Task, build_options
from headrace.worker.transactions.copies import OnceCopies
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.pruning import InboxPruner
from headrace.worker.transactions.relay import OutboxRelay
from headrace.worker.transactions.statements import message_id_of
from tests.simulation.jobs.database import Effect, JobsDatabase
from tests.simulation.jobs.model import DUE, LAST_TICKS, OTHER_TICKS, TICKS, Jobs
from tests.simulation.path.apps import Application, LoopOutbox, Worker
from tests.simulation.path.model import ACCEPT, DEAD_LETTERS, REJECT
from tests.simulation.scenario import TOPICS
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from headrace.client.admin.aio import AsyncAdmin as Admin
    from tests.simulation.jobs.world import JobsWorld

GROUP = "jobs"
DELAYS_S = (0, 0.05, 0.2, 0.6, 1, 2.5, 7, 20)
PERIOD_S = 4
TOO_LATE_MS = 1_000
"""A cancellation that is over so long before its record is due counts."""
AWAY = (KafkaError, QueueError, OSError, TimeoutError)


class QueueProgram(Application):
    world: "JobsWorld"
    model: Jobs

    def wall_ms(self) -> int:
        """The clocks of all machines agree. That of a machine which stands still is right when it goes on."""
        return self.world.clock.wall_ms()

    def client_settings(self) -> dict[str, Any]:
        names = ("bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms")
        return {name: value for name, value in self.settings().items() if name in names}

    def producer_settings(self, client: dict[str, Any]) -> dict[str, Any]:
        return client | {"delivery.timeout.ms": 30_000, "max.block.ms": 5_000}

    def new_forwarder(
        self, client: dict[str, Any], group_id: str, periodic: tuple[Periodic, ...] = ()
    ) -> Forwarder:
        return Forwarder(self.producer_settings(client), group_id, periodic, self.wall_ms)


class Scheduling(QueueProgram):
    """Sends records that are due later, cancels some of them, and forwards what is due."""

    async def main(self) -> None:
        while not self.is_stopping:
            with suppress(*AWAY):
                await self.shift()
            if self.rng.random() < 0.2:
                return
            await asyncio.sleep(self.rng.choice((0.1, 1)))

    async def shift(self) -> None:
        client = self.client_settings()
        schedule = Schedule(self.producer_settings(client), GROUP, now_ms=self.wall_ms)
        await schedule.prepare_async(timeout=20)
        async with AsyncAdmin(ClientSettings.parse(client)) as admin:
            for name in (DUE, TICKS):
                await _create(admin, name)
        forwarder = self.new_forwarder(client, GROUP, (periodic("tick", TICKS),))
        running = asyncio.create_task(forwarder.run())
        producer = AsyncProducer.of(settings_for(self.producer_settings(client)))
        try:
            for _ in range(self.rng.choice((1, 5, 20))):
                if self.is_stopping:
                    break
                if self.rng.random() < 0.8:
                    await self.send(schedule, producer)
                await asyncio.sleep(self.rng.choice((0, 0, 0.2, 1, 5)))
        finally:
            running.cancel()
            await asyncio.wait([running])
            await producer.close(timeout=5)

    async def send(self, schedule: Schedule, producer: AsyncProducer) -> None:
        value = self.world.new_value()
        place = schedule.place(DUE, (), self.rng.choice(DELAYS_S))
        try:
            await producer.send(place.topic, value, headers=place.headers, partition=place.partition)
        except AWAY:
            return  # it may come, and need not
        self.model.scheduled.add(value)
        self.world.stats.events["scheduled"] += 1
        if self.rng.random() < 0.2:
            await self.cancel(schedule, place.scheduled.id, value)

    async def cancel(self, schedule: Schedule, id: str, value: bytes) -> None:
        """Whether it has worked is known only if it was answered: else the record may come, and need not."""
        self.model.scheduled.discard(value)
        with suppress(*AWAY):
            at_ms = time_in(id)
            assert at_ms is not None
            done = await schedule.cancel_many_async([id])
            is_in_time = self.wall_ms() < at_ms - TOO_LATE_MS
            if done.unknown and is_in_time and not self.model.is_void:
                raise Violation("jobs: a scheduled record is not known", f"{value!r}: {id}")
            if done.canceled and is_in_time:
                self.model.canceled.add(value)
                self.world.stats.events["canceled"] += 1


class Forwarding(QueueProgram):
    """At the end: forwards until all is there. Two such programs begin together, and neither has the other's task."""

    ticks = LAST_TICKS

    async def main(self) -> None:
        client = self.client_settings()
        while not self.is_stopping:
            with suppress(*AWAY):
                async with AsyncAdmin(ClientSettings.parse(client)) as admin:
                    await _create(admin, self.ticks)
                await self.forward(client)
            await asyncio.sleep(1)

    async def forward(self, client: dict[str, Any]) -> None:
        forwarder = self.new_forwarder(client, GROUP, (periodic("last tick", self.ticks),))
        running = asyncio.create_task(forwarder.run())
        try:
            while not self.is_stopping:
                await asyncio.wait([running], timeout=0.5)
        finally:
            running.cancel()
            await asyncio.wait([running])


class OtherForwarding(Forwarding):
    ticks = OTHER_TICKS


class OnceWorker(Worker, QueueProgram):
    """Runs a task whose effects are rows of the database, with all that works beside it."""

    world: "JobsWorld"
    model: Jobs

    async def shift(self) -> None:
        rng = self.rng
        client = self.client_settings()
        given = client | {"fetch.max.wait.ms": rng.choice((50, 500))}
        facts = await prepare_group(ClientSettings.parse(client), self.group_id, start_from="earliest")
        self.ones = {}
        self.dead_letter = rng.choice((None, DEAD_LETTERS))
        self.facts = facts
        self.has_letters = self.dead_letter is not None
        database = JobsDatabase(self.node, self.world.server_of_jobs)
        at_work = WorkerDatabase(database, asyncio.get_running_loop())
        outbox = LoopOutbox(self.producer_settings(client))
        schedule = Schedule(self.producer_settings(client), self.group_id, now_ms=self.wall_ms)
        task = self.once_task(database)
        runner = TaskRunner(
            task,
            settings=given,
            group_id=self.group_id,
            facts=facts,
            outbox=outbox,
            worker=self.node.name,
            drain_timeout=rng.choice((0, 1, 10)),
            schedule=schedule,
            hold_max=rng.choice((0, 60)),
            copies=OnceCopies(
                at_work, group_id=self.group_id, sender=outbox, schedule=schedule,
                now_ms=self.wall_ms,
            ),
        )  # fmt: skip
        self.watch_runner(runner)
        chores = [
            OutboxRelay(at_work, outbox, self.group_id, self.wall_ms).run(),
            InboxPruner(at_work, client, self.group_id, [task.topic], self.wall_ms).run(),
            self.new_forwarder(client, self.group_id).run(),
        ]
        beside = [asyncio.create_task(each) for each in chores]
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
            for each in beside:
                each.cancel()
            await asyncio.wait(beside)
            await outbox.end()

    def watch(self, consumer: Any) -> None:
        super().watch(consumer)
        self.model.once_members[consumer._member.member_id] = self.has_letters

    def watch_runner(self, runner: TaskRunner) -> None:
        """What it accepts and rejects is checked with the database (`model.py`): often no function has returned."""
        super().watch_runner(runner)
        consumer: Any = runner._source
        poll = consumer.poll

        async def polled(timeout: float, *, max_records: int | None = None) -> list[Delivery]:  # noqa: ASYNC109
            deliveries: list[Delivery] = await poll(timeout, max_records=max_records)
            for delivery in deliveries:
                one = self.model.of_delivery(delivery)
                one.allowed += [ACCEPT, REJECT]
                one.needs_letter = False
            return deliveries

        consumer.poll = polled

    def once_task(self, database: JobsDatabase) -> "Task[Any, Any, Any]":
        rng = self.rng
        options = build_options(
            self.once_function,
            TOPICS[0],
            concurrency=rng.choice((1, 3, 16)),
            retries=rng.choice((None, Backoff(first=0.1, factor=2.0, most=2.0, tries=rng.choice((2, 20))))),
            dead_letter=self.dead_letter,
            timeout=rng.choice((None, 0.5, 5.0)),
            key_order=rng.random() < 0.3,
            pool=None,
            waiting=rng.choice((0, 5, 100)),
            once=database,
        )
        queue: Any = self.world.queue_stub
        return Task(queue, self.once_function, options, ContentType.JSON)

    async def once_function(
        self, body: bytes | None, delivery: Delivery, connection: "sqlite3.Connection"
    ) -> None:
        transaction: Any = connection
        await self.work()
        if self.rng.random() < 0.5:
            await self.write(transaction, delivery)
            await self.fail_or_not()
        else:
            await self.fail_or_not()
            await self.write(transaction, delivery)

    async def write(self, transaction: Any, delivery: Delivery) -> None:
        await transaction.write(
            Effect(
                self.group_id, delivery.topic_id, delivery.partition, delivery.offset,
                message_id_of(delivery.headers),
            )
        )  # fmt: skip

    async def fail_or_not(self) -> None:
        await self.work()
        match self.rng.randrange(10):
            case 0:
                raise Retry(after=self.rng.choice((None, 0.0, 0.2, 3.0)))
            case 1:
                raise ValueError("it does not work")
            case 2:
                raise Reject("it never will")


def periodic(name: str, topic: str) -> Periodic:
    return Periodic(name, topic, Interval(PERIOD_S), lambda moment: (f"{topic} {moment}".encode(), ()))


async def _create(admin: "Admin", name: str) -> None:
    with suppress(TopicExistsError):
        await admin.create_topic(name, 1, configs={"retention.ms": "-1", "cleanup.policy": "delete"})
