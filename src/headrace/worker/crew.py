"""All tasks of a queue at work in this process: started together, stopped together.

When one of them cannot go on (its topic is forbidden, its group is refused), the others drain, and the worker ends with
that error: a worker that does half of its work looks healthy from outside.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.settings import ClientSettings
from headrace.worker.calls import RunningRecord
from headrace.worker.errors import QueueError, SendError
from headrace.worker.forwarder import Forwarder
from headrace.worker.group_facts import GroupFacts, prepare_group
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outbox import Outbox
from headrace.worker.periodic import Periodic
from headrace.worker.runner import TaskRunner
from headrace.worker.schedule import Schedule
from headrace.worker.task import Task
from headrace.worker.threads import LoopWatch
from headrace.worker.transactions.at_work import WorkerDatabases
from headrace.worker.transactions.database import Database

logger = logging.getLogger("headrace.worker")


@dataclass(frozen=True, slots=True)
class Orders:
    """What a crew has to do."""

    tasks: Sequence[Task[Any, Any, Any]]
    group_id: str
    given: Mapping[str, Any]
    """Client settings as the user gave them."""
    outbox: Outbox
    start_from: str | None
    drain_timeout: float
    schedule: Schedule
    periodic: Sequence[Periodic]
    hold_max: float
    user_loop: asyncio.AbstractEventLoop
    """Where coroutines of the user run."""
    user_thread: int
    database: Database | None = None
    """The queue's own."""


class Crew:
    """`loop` is the worker's own; everything but the constructor, `metrics` and `runs` is called there."""

    def __init__(self, orders: Orders, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.runners: list[TaskRunner] = []
        self._orders = orders
        self.forwarder = Forwarder(orders.given, orders.group_id, orders.periodic, orders.schedule.now_ms)
        self._databases = WorkerDatabases(
            orders.tasks,
            orders.database,
            given=orders.given,
            group_id=orders.group_id,
            sender=orders.outbox,
            schedule=orders.schedule,
            user_loop=orders.user_loop,
            completed=self._completed,
        )
        self._stopping = asyncio.Event()

    def metrics(self) -> dict[str, TaskMetrics]:
        return {runner.task.name: runner.metrics() for runner in self.runners}

    def runs(self) -> dict[str, list[RunningRecord]]:
        """What each task is working on, by its name."""
        return {runner.task.name: runner.calls.running() for runner in self.runners}

    def _completed(self, database: Database) -> Mapping[str, Mapping[int, int]]:
        found: dict[str, Mapping[int, int]] = {}
        for runner in self.runners:
            if runner.strict is not None and runner.task.options.once is database:
                found.update(runner.strict.completed)
        return found

    def stop(self, now: bool = False) -> None:
        self._stopping.set()
        for runner in self.runners:
            runner.stop(now=now)

    async def run(self, on_started: Callable[[], None] | None) -> None:
        if not await self._start():
            return
        if on_started is not None:
            self._orders.user_loop.call_soon_threadsafe(on_started)
        chores = (self._watch(), self.forwarder, *self._databases.chores)
        beside = [self.loop.create_task(each.run()) for each in chores]
        try:
            await self._work()
        finally:
            for each in beside:
                each.cancel()
            await asyncio.wait(beside)

    def _watch(self) -> LoopWatch:
        orders = self._orders
        names = {each.function.__code__: each.name for task in orders.tasks for each in task.members}
        return LoopWatch(orders.user_loop, orders.user_thread, names)

    async def _start(self) -> bool:
        """False when it was told to stop meanwhile: with no broker in reach, starting takes its time."""
        starting = self.loop.create_task(self._start_runners())
        stopping = self.loop.create_task(self._stopping.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
        if starting.cancelled():
            return False
        self.runners = starting.result()
        return True

    async def _start_runners(self) -> list[TaskRunner]:
        orders = self._orders
        settings = ClientSettings.parse(orders.given)
        facts = await prepare_group(settings, orders.group_id, start_from=orders.start_from)
        await self._check_dead_letters(facts)
        await self._databases.create_tables()
        if orders.periodic:
            await orders.schedule.prepare_async([each.topic for each in orders.periodic])
        runners = [self._runner(task, facts) for task in orders.tasks]
        try:
            await asyncio.gather(*(runner.start() for runner in runners))
        except BaseException:
            await asyncio.gather(*(runner.close() for runner in runners), return_exceptions=True)
            raise
        return runners

    async def _work(self) -> None:
        working = [self.loop.create_task(runner.run()) for runner in self.runners]
        try:
            await asyncio.wait(working, return_when=asyncio.FIRST_EXCEPTION)
            if not all(task.done() for task in working):
                self.stop()
            await asyncio.wait(working)
        except asyncio.CancelledError:
            for task in working:
                task.cancel()
            await asyncio.wait(working)
            raise
        errors = [error for task in working if (error := task.exception()) is not None]
        for error in errors[1:]:
            logger.error("%s", error)
        if errors:
            raise errors[0]

    def _runner(self, task: "Task[Any, Any, Any]", facts: GroupFacts) -> TaskRunner:
        orders = self._orders
        return TaskRunner(
            task,
            settings=orders.given,
            group_id=orders.group_id,
            facts=facts,
            outbox=orders.outbox,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            drain_timeout=orders.drain_timeout,
            user_loop=orders.user_loop,
            schedule=orders.schedule,
            hold_max=orders.hold_max,
            copies=self._databases.copies_of(task),
            start_from=orders.start_from,
        )

    async def _check_dead_letters(self, facts: GroupFacts) -> None:
        for task in self._orders.tasks:
            topic = task.options.dead_letter
            if topic is not None:
                try:
                    await self._orders.outbox.partitions(topic)
                except SendError as error:
                    raise QueueError(
                        f"task {task.name}: its dead-letter topic cannot be used: {error}"
                    ) from error
            elif facts.broker_dead_letters is None or task.options.is_strict:
                logger.warning(
                    "%s has no dead_letter topic, and group %s has none on the broker: a record that keeps failing "
                    "is held and tried again, which may delay the records behind it",
                    task.name, self._orders.group_id,
                )  # fmt: skip
