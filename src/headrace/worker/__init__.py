"""The task queue: functions on Kafka topics, with retries, dead letters, renewed locks and draining.

Words used here. A *task* is a function with its topic (`task.py`). A *worker* is a process that runs a queue's tasks.
It *holds* records: each is a *job* of the scheduler (`scheduler.py`, pure) until it is settled. A *run* is one call of
the function for a record; an *attempt* is a run here or an earlier delivery anywhere. A *lane* is what runs in order.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.worker.backoff import Backoff
    from headrace.worker.errors import QueueError, SendError, SomeNotSentError
    from headrace.worker.metrics import TaskMetrics
    from headrace.worker.outbox import Sent
    from headrace.worker.outcomes import Reject, Retry
    from headrace.worker.queue import Queue
    from headrace.worker.runner import DeliveryFacts
    from headrace.worker.task import Task

_PLACES = {
    "Backoff": "backoff",
    "DeliveryFacts": "runner",
    "Queue": "queue",
    "QueueError": "errors",
    "Reject": "outcomes",
    "Retry": "outcomes",
    "SendError": "errors",
    "Sent": "outbox",
    "SomeNotSentError": "errors",
    "Task": "task",
    "TaskMetrics": "metrics",
}
__all__ = [
    "Backoff",
    "DeliveryFacts",
    "Queue",
    "QueueError",
    "Reject",
    "Retry",
    "SendError",
    "Sent",
    "SomeNotSentError",
    "Task",
    "TaskMetrics",
]


def __getattr__(name: str) -> Any:
    """Imported when first used: a child process of a pool needs little of this."""
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(f"headrace.worker.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'headrace.worker' has no attribute {name!r}")
