"""The task queue: functions on Kafka topics, with retries, dead letters, renewed locks and draining.

Words used here. A *task* is a function with its topic (`task.py`). A *worker* is a process that runs a queue's tasks.
It *holds* records: each is a *job* of the scheduler (`scheduler.py`, pure) until it is settled. A *run* is one call of
the function for a record; an *attempt* is a run here or an earlier delivery anywhere. A *lane* is what runs in order.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.worker.backoff import Backoff
    from headrace.worker.batch import Batch, BatchResultError
    from headrace.worker.circuit import Breaker
    from headrace.worker.delivery_facts import DeliveryFacts
    from headrace.worker.errors import QueueError, SendError, SomeTasksNotSentError
    from headrace.worker.hooks import Middleware, OutgoingTask, TaskLogFilter, TaskRun, current_run
    from headrace.worker.metrics import TaskMetrics
    from headrace.worker.outbox import Sent
    from headrace.worker.outcomes import Reject, Retry
    from headrace.worker.periodic import Firing
    from headrace.worker.queue import Queue
    from headrace.worker.schedule import Scheduled
    from headrace.worker.task import BatchTask, Task
    from headrace.worker.transactions.database import Database, TaskTransactionError
    from headrace.worker.transactions.postgres import AsyncpgDatabase, PostgresDatabase
    from headrace.worker.transactions.sending import Stored
    from headrace.worker.transactions.sqlalchemy import SqlAlchemyDatabase
    from headrace.worker.transactions.sqlite import SqliteDatabase

_PLACES = {
    "AsyncpgDatabase": "transactions.postgres",
    "Backoff": "backoff",
    "Batch": "batch",
    "BatchResultError": "batch",
    "BatchTask": "task",
    "Breaker": "circuit",
    "Database": "transactions.database",
    "DeliveryFacts": "delivery_facts",
    "Firing": "periodic",
    "Middleware": "hooks",
    "OutgoingTask": "hooks",
    "PostgresDatabase": "transactions.postgres",
    "Queue": "queue",
    "QueueError": "errors",
    "Reject": "outcomes",
    "Retry": "outcomes",
    "Scheduled": "schedule",
    "SendError": "errors",
    "Sent": "outbox",
    "SomeTasksNotSentError": "errors",
    "SqlAlchemyDatabase": "transactions.sqlalchemy",
    "SqliteDatabase": "transactions.sqlite",
    "Stored": "transactions.sending",
    "Task": "task",
    "TaskLogFilter": "hooks",
    "TaskMetrics": "metrics",
    "TaskRun": "hooks",
    "TaskTransactionError": "transactions.database",
    "current_run": "hooks",
}
__all__ = [
    "AsyncpgDatabase",
    "Backoff",
    "Batch",
    "BatchResultError",
    "BatchTask",
    "Breaker",
    "Database",
    "DeliveryFacts",
    "Firing",
    "Middleware",
    "OutgoingTask",
    "PostgresDatabase",
    "Queue",
    "QueueError",
    "Reject",
    "Retry",
    "Scheduled",
    "SendError",
    "Sent",
    "SomeTasksNotSentError",
    "SqlAlchemyDatabase",
    "SqliteDatabase",
    "Stored",
    "Task",
    "TaskLogFilter",
    "TaskMetrics",
    "TaskRun",
    "TaskTransactionError",
    "current_run",
]


def __getattr__(name: str) -> Any:
    """Imported when first used: a child process of a pool needs little of this."""
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(f"headrace.worker.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'headrace.worker' has no attribute {name!r}")
