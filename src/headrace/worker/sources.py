"""Where the records of a task come from: a share consumer, or with strict order a member of a consumer group."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import Delivery
from headrace.client.identity import process_name
from headrace.worker.owned import Offsets
from headrace.worker.strict import StrictConsumer
from headrace.worker.task import Task


class ShareSource(AsyncShareConsumer):
    """It renews the lock of every record that it has handed out, as long as this process lives."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        on_lost: Callable[[Sequence[Delivery], Exception], None],
        on_committed: Callable[[Offsets, Exception | None], None],
    ) -> None:
        super().__init__(settings, on_lost=on_lost, tells_at_once=True)
        self.set_acknowledgement_commit_callback(on_committed)
        self._topic = topic

    async def open(self) -> None:
        """Connects; raises when no broker can be reached."""
        await self.__aenter__()
        self.subscribe([self._topic])

    @property
    def has_worked(self) -> bool:
        return self.acquisition_lock_timeout_ms() is not None


RecordSource = ShareSource | StrictConsumer


def source_settings(
    task: Task[Any, Any, Any], given: Mapping[str, Any], group_id: str, held_max: int
) -> dict[str, Any]:
    is_named = {"client.id", "client_id"} & given.keys()
    return {
        **({} if is_named else {"client.id": process_name(task.name)}),
        **given,
        "group.id": group_id,
        "share.acknowledgement.mode": "explicit",
        "share.acquire.mode": "record_limit",
        "max.poll.records": task.options.records_max,
        "max.unacknowledged": held_max,
        "auto.renew": True,
        "auto.renew.max.ms": 2**31 - 1,
        # With every slot taken there is nothing to poll for, however long the tasks are.
        "max.poll.interval.ms": 2**31 - 1,
    }
