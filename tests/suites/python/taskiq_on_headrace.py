"""A pytest plugin: where Taskiq's tests make its broker in memory, they get one whose messages go through Headrace.

Taskiq's tests have no fixture for the broker. They make an `InMemoryBroker`, which calls a task in place of sending it.
The one here sends it to the broker at HEADRACE_SUITE_SERVERS, and a receiver in the same process takes it from there.
"""

import asyncio
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import taskiq
from taskiq import AckableMessage, BrokerMessage
from taskiq.brokers import inmemory_broker
from taskiq.exceptions import UnknownTaskError

from headrace.adapters.taskiq import HeadraceBroker

_made: "list[SuiteBroker]" = []


class SuiteBroker(inmemory_broker.InMemoryBroker):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        name = f"taskiq-{uuid.uuid4().hex}"
        self.way = HeadraceBroker(os.environ["HEADRACE_SUITE_SERVERS"], group_id=name, queue_name=name)
        self._listening: asyncio.Task[None] | None = None
        _made.append(self)

    async def kick(self, message: BrokerMessage) -> None:
        if self.find_task(message.task_name) is None:
            raise UnknownTaskError(task_name=message.task_name)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await self.way.kick(message)

    async def _listen(self) -> None:
        async for message in self.way.listen():
            assert isinstance(message, AckableMessage)
            running = asyncio.create_task(self.receiver.callback(message=message))
            self._running_tasks.add(running)
            running.add_done_callback(self._running_tasks.discard)


taskiq.InMemoryBroker = inmemory_broker.InMemoryBroker = SuiteBroker


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    for broker in _made:
        asyncio.run(broker.way.shutdown())
    _made.clear()
