"""`admin`: the part of a broker that administration needs, on a memory disk, without coordinators or a server."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, cast

import pytest

from headrace.broker.call import Call
from headrace.broker.clock import ManualClock
from headrace.broker.core import BrokerCore
from headrace.broker.features import FinalizedFeatures
from headrace.broker.handlers import error_response, handler_of
from headrace.broker.journals import Journals
from headrace.broker.later import Later, resolved
from headrace.broker.settings import Settings
from headrace.broker.slices import Slices
from headrace.broker.topics import Partition, Topics
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.log.metadata import MetadataStore
from headrace.wire.errors import KafkaError
from headrace.wire.message import Message
from headrace.wire.records import NewRecord, build_batch

Response = TypeVar("Response", bound=Message)


class Admin:
    """What admin handlers see of BrokerCore. `ask` answers a request as the broker does; `restart` is a new start."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._given = dict(settings or {})
        self.disk = MemoryDisk()
        self.clock = ManualClock()
        self.metadata = MetadataStore()
        self.node_id, self.rack = 1, None
        self.access = None
        self.cluster_id = self.metadata.cluster_id
        self.failure: Exception | None = None
        self.touched: list[Partition] = []
        self.slices = Slices()
        self._open()

    def _open(self) -> None:
        self.settings = Settings(self._given)
        self.settings.attach(self.metadata)
        self.features = FinalizedFeatures(self.metadata)
        self.logs = LogManager(self.disk, now_ms=self.clock.wall_ms())
        self.topics = Topics(self.metadata, self.logs, self.settings, self.clock)
        self.journals = Journals(cast(BrokerCore, self))

    def address_of(self, listener: str) -> tuple[str, int]:
        return "localhost", 9092

    def restart(self, **settings: object) -> None:
        """Stops and starts again, with these settings added."""
        self._given |= settings
        self.logs.close()
        self._open()

    def close(self) -> None:
        self.logs.close()
        self.metadata.close()

    def require_working(self) -> None:
        pass

    def saved(self, things: Iterable[object]) -> Later[None]:
        return self.durable(things)

    def durable(self, things: Iterable[object]) -> Later[None]:
        return resolved(None)

    def appended(self, partition: Partition) -> None:
        self.touched.append(partition)

    def ask(self, request: Message, answer: type[Response], version: int | None = None) -> Response:
        handler = handler_of(request.API_KEY)
        call = Call(api_version=handler.VERSIONS[1] if version is None else version)
        try:
            response = handler.handle(cast(BrokerCore, self), request, call)
        except KafkaError as error:
            response = error_response(request, error.code, error.message, call)
        while self.slices.is_pending:
            self.slices.step()
        if isinstance(response, Later):
            response = response.value
        assert isinstance(response, answer)
        return response

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        log = self.topics.require(topic, partition).log
        now_ms = self.clock.wall_ms()
        for value in values:
            record = NewRecord(key=b"k", value=value, timestamp=now_ms)
            log.append(build_batch([record]), now_ms=now_ms)


@pytest.fixture
def admin() -> Iterator[Admin]:
    admin = Admin()
    yield admin
    admin.close()
