"""A real core on a memory disk without a server, and members that talk to it in messages. Time is turned by hand."""

from collections.abc import Sequence
from typing import Any

from headrace.broker.call import Call
from headrace.broker.clock import ManualClock
from headrace.broker.core import BrokerCore
from headrace.broker.later import Later
from headrace.broker.runner import Done, Runner, Work
from headrace.broker.settings import Settings
from headrace.broker.topics import Topic
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.messages import share_acknowledge_request as acknowledge
from headrace.wire.messages import share_fetch_request as fetch
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse
from headrace.wire.records import NewRecord, build_batch, read_records
from headrace.wire.share_state import ShareKey

GROUP = "g"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class AtOnce:
    """Runs work where it is asked for."""

    def run(self, work: Work, done: Done) -> None:
        work()
        done(None)

    run_slow = run


class WhenTold:
    """Runs work one piece at a time: between an append and its sync a real broker does other things too."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Work, Done]] = []

    def run(self, work: Work, done: Done) -> None:
        self.waiting.append((work, done))

    run_slow = run

    def step(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            work()
        except Exception as error:
            done(error)
        else:
            done(None)

    def run_all(self) -> None:
        while self.waiting:
            self.step()


class Bench:
    def __init__(
        self,
        disk: MemoryDisk | None = None,
        metadata: Any = None,
        runner: Runner | None = None,
        **settings: object,
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.runner = runner or AtOnce()
        self.clock = ManualClock()
        self.given = settings
        self.metadata = metadata
        self.core = self._open()

    def _open(self) -> BrokerCore:
        return BrokerCore(
            Settings(self.given),
            disk=self.disk,
            metadata_path=self.metadata,
            clock=self.clock,
            runner=self.runner,
            on_failure=lambda error: None,
        )

    def restart(self, *, clean: bool = True) -> None:
        self.core.logs.close(clean=clean)
        self.core.metadata.close()
        self.core = self._open()

    def topic(
        self, name: str = "orders", *, partitions: int = 1, group_id: str = GROUP, **configs: str
    ) -> Topic:
        """A topic whose share-partitions are initialized for the group, which starts at the earliest record."""
        self.core.settings.replace_group(group_id, {"share.auto.offset.reset": "earliest"})
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = self.core.topics.create(name, partitions=partitions, configs=named)
        for partition in topic.partitions:
            key = ShareKey(group_id, topic.id, partition.index)
            self.core.share_state.initialize(key, state_epoch=1, start_offset=-1)
        return topic

    def configure(self, group_id: str = GROUP, **configs: str) -> None:
        given = {"share.auto.offset.reset": "earliest"}
        given |= {key.replace("_", "."): value for key, value in configs.items()}
        self.core.settings.replace_group(group_id, given)

    def produce(self, topic: Topic, count: int, *, index: int = 0, per_batch: int = 5) -> None:
        log = topic.partitions[index].log
        now_ms = self.clock.wall_ms()
        for begin in range(0, count, per_batch):
            values = range(log.end_offset, log.end_offset + min(per_batch, count - begin))
            records = [NewRecord(None, b"v%d" % value, (), now_ms) for value in values]
            log.append(build_batch(records), now_ms=now_ms)
        self.core.appended(topic.partitions[index])
        self.core.settle()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.core.settle()


class Member:
    def __init__(self, bench: Bench, name: str, *, group_id: str = GROUP, connection_id: int = 1) -> None:
        self.bench = bench
        self.name = name
        self.group_id = group_id
        self.connection_id = connection_id
        self.epoch = 0

    def _call(self, version: int = 2) -> Call:
        return Call(api_version=version, connection_id=self.connection_id)

    def ask_fetch(
        self,
        topic: Topic,
        *,
        records_max: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        wait_ms: int = 0,
        indexes: Sequence[int] = (0,),
        acks: Sequence[tuple[int, int, int]] = (),
        epoch: int | None = None,
        **fields: Any,
    ) -> ShareFetchResponse | Later[ShareFetchResponse]:
        batches = [
            fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acks
        ]
        request = fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            **{"min_bytes": 1, "max_bytes": 1 << 20, **fields},
            max_records=records_max,
            batch_size=batch_size,
            share_acquire_mode=mode,
            topics=[
                fetch.FetchTopic(
                    topic_id=topic.id,
                    partitions=[
                        fetch.FetchPartition(
                            partition_index=index, acknowledgement_batches=batches if not index else ()
                        )
                        for index in indexes
                    ],
                )
            ],
        )
        answer = self.bench.core.handle(request, self._call())
        self.bench.core.settle()
        if epoch is None:
            self.epoch += 1
        assert isinstance(answer, (ShareFetchResponse, Later))
        return answer

    def fetch(self, topic: Topic, **options: Any) -> ShareFetchResponse:
        answer = self.ask_fetch(topic, **options)
        if isinstance(answer, Later):
            while not answer.is_done and self.bench.core.slices.is_pending:
                self.bench.core.settle()
            return answer.value
        return answer

    def take(self, topic: Topic, **options: Any) -> list[tuple[int, int, int]]:
        """What it acquires of partition 0, as first, last, delivery count."""
        return acquired(self.fetch(topic, **options))

    def acknowledge(
        self, topic: Topic, *acks: tuple[int, int, int], epoch: int | None = None, is_renew: bool = False
    ) -> ShareAcknowledgeResponse:
        request = acknowledge.ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=is_renew,
            topics=[
                acknowledge.AcknowledgeTopic(
                    topic_id=topic.id,
                    partitions=[
                        acknowledge.AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                                )
                                for first, last, kind in acks
                            ],
                        )
                    ],
                )
            ],
        )
        answer = self.bench.core.handle(request, self._call())
        self.bench.core.settle()
        if epoch is None:
            self.epoch += 1
        assert isinstance(answer, ShareAcknowledgeResponse)
        return answer

    def settle(self, topic: Topic, *acks: tuple[int, int, int], **options: Any) -> int:
        """Acknowledges and returns partition 0's error code."""
        response = self.acknowledge(topic, *acks, **options)
        assert response.error_code == 0
        return int(response.responses[0].partitions[0].error_code)


def partition(response: ShareFetchResponse, index: int = 0) -> PartitionData | None:
    for topic in response.responses:
        for data in topic.partitions:
            if data.partition_index == index:
                return data
    return None


def acquired(response: ShareFetchResponse, index: int = 0) -> list[tuple[int, int, int]]:
    assert response.error_code == 0, response
    data = partition(response, index)
    if data is None:
        return []
    assert data.error_code == 0, data
    return [(entry.first_offset, entry.last_offset, entry.delivery_count) for entry in data.acquired_records]


def values(response: ShareFetchResponse, index: int = 0) -> list[bytes | None]:
    """The values of exactly the acquired records."""
    data = partition(response, index)
    assert data is not None
    held = [range(first, last + 1) for first, last, _ in acquired(response, index)]
    found, position = [], 0
    while position < len(data.records):
        size = int.from_bytes(data.records[position + 8 : position + 12], "big") + 12
        for record in read_records(data.records[position : position + size]):
            if any(record.offset in span for span in held):
                found.append(record.value)
        position += size
    return found
