"""The databases of a worker: their tables, and for each a relay of its outbox and a pruner of its inbox."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.worker.outbox import Outbox
from headrace.worker.schedule import Schedule
from headrace.worker.task import Task
from headrace.worker.transactions.copies import OnceCopies
from headrace.worker.transactions.database import Database, WorkerDatabase
from headrace.worker.transactions.pruning import InboxPruner
from headrace.worker.transactions.relay import OutboxRelay


class WorkerDatabases:
    """`database` is the queue's own, if it has one; the others are those of its tasks.

    `completed` says what the tasks with strict order of a database are past, by topic id and partition.
    """

    def __init__(
        self,
        tasks: Sequence[Task[Any, Any, Any]],
        database: Database | None,
        *,
        given: Mapping[str, Any],
        group_id: str,
        sender: Outbox,
        schedule: Schedule,
        user_loop: asyncio.AbstractEventLoop,
        completed: Callable[[Database], Mapping[str, Mapping[int, int]]],
    ) -> None:
        now_ms: Callable[[], int] = schedule.now_ms
        self._group_id = group_id
        self._sender = sender
        self._schedule = schedule
        self._databases = {each: WorkerDatabase(each, user_loop) for each in databases_of(tasks, database)}
        self.chores: list[OutboxRelay | InboxPruner] = []
        """What runs beside the tasks."""
        for each, at_work in self._databases.items():
            topics = [
                task.topic for task in tasks if task.options.once is each and not task.options.is_strict
            ]
            self.chores.append(OutboxRelay(at_work, sender, group_id, now_ms))
            self.chores.append(
                InboxPruner(at_work, given, group_id, topics, now_ms, partial(completed, each))
            )

    async def create_tables(self) -> None:
        for database in self._databases.values():
            await database.create_tables()

    def copies_of(self, task: Task[Any, Any, Any]) -> OnceCopies | None:
        if task.options.once is None:
            return None
        return OnceCopies(
            self._databases[task.options.once],
            group_id=self._group_id,
            sender=self._sender,
            schedule=self._schedule,
            now_ms=self._schedule.now_ms,
        )


def databases_of(tasks: Sequence[Task[Any, Any, Any]], database: Database | None) -> list[Database]:
    found = [database, *(task.options.once for task in tasks)]
    return list(dict.fromkeys(each for each in found if each is not None))


async def close_databases(databases: Sequence[Database]) -> None:
    """On the event loop of the tasks."""
    for database in databases:
        await database.close_async()
        await asyncio.to_thread(database.close)
