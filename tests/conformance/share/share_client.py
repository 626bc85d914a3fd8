"""A share consumer in slow motion: every heartbeat, fetch and acknowledgement is a call, every epoch is in sight.

`ShareMember` keeps the two epochs that a client keeps (of its membership and of its session) and lets a test send
others. Acknowledgements are written (first, last, type, ...) by partition, acquired records (first, last, count).
"""

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from headrace.wire.batches import read_header
from headrace.wire.records import read_records
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.steps import (
    COORDINATOR_ERRORS,
    GROUP,
    batch,
    batches,
    new_topic,
    produced,
    set_config,
    wait_for,
)
from tests.conformance.wire_client import WireClient

T = TypeVar("T")
Acks = Mapping[int, Sequence[tuple[int, ...]]]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
OPEN, CLOSE = 0, -1
"""Session epochs that are no numbers."""
LEAVE = -1
WAIT_MS = 5_000
"""How long a fetch that must find something may wait for it."""
QUIET_MS = 250
"""How long a fetch that must find nothing waits."""


class Fetched:
    """A ShareFetch response, by partition."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.error = int(response.error_code)
        self.partitions = {
            partition.partition_index: partition
            for topic in response.responses
            for partition in topic.partitions
        }

    def acquired(self, partition: int = 0) -> list[tuple[int, int, int]]:
        """(first offset, last offset, delivery count) of what was acquired; nothing when the partition is not there."""
        found = self.partitions.get(partition)
        ranges = found.acquired_records if found is not None else ()
        return [(one.first_offset, one.last_offset, one.delivery_count) for one in ranges]

    def offsets(self, partition: int = 0) -> list[int]:
        """Every acquired offset."""
        return [offset for first, last, _ in self.acquired(partition) for offset in range(first, last + 1)]

    def values(self, partition: int = 0) -> dict[int, bytes | None]:
        """What a client hands out: the records that came and were acquired, without control records."""
        acquired = set(self.offsets(partition))
        found = self.partitions.get(partition)
        data = batches(bytes(found.records or b"")) if found is not None else []
        records = [record for one in data if not read_header(one).is_control for record in read_records(one)]
        return {record.offset: record.value for record in records if record.offset in acquired}

    def sent(self, partition: int = 0) -> list[int]:
        """The first and the last offset of the batches that came, acquired or not."""
        headers = [read_header(one) for one in batches(bytes(self.partitions[partition].records))]
        return [headers[0].base_offset, headers[-1].base_offset + headers[-1].last_offset_delta]

    @property
    def count(self) -> int:
        """How many offsets were acquired in all partitions."""
        return sum(len(self.offsets(partition)) for partition in self.partitions)


class Acknowledged:
    """A ShareAcknowledge response: error codes by partition."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.error = int(response.error_code)
        self.partitions = {
            partition.partition_index: partition
            for topic in response.responses
            for partition in topic.partitions
        }
        self.codes = {index: int(found.error_code) for index, found in self.partitions.items()}


class ShareMember:
    """One member of a share group, on one connection, mostly with one topic."""

    def __init__(
        self, connection: WireClient, group: str, topic_id: bytes, *, member_id: str | None = None
    ) -> None:
        self.connection = connection
        self.group = group
        self.topic_id = topic_id
        self.member_id = new_member_id() if member_id is None else member_id
        self.epoch = 0
        self.session_epoch = OPEN

    # Membership

    def heartbeat(
        self, epoch: int | None = None, *, topics: Sequence[str] | None = None, **fields: Any
    ) -> Any:
        """One ShareGroupHeartbeat; the epoch in the answer is the member's from then on."""
        response = self.connection.ask(
            "share_group_heartbeat",
            1,
            **{
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": self.epoch if epoch is None else epoch,
                "subscribed_topic_names": topics,
                **fields,
            },
        )
        if response.error_code == 0:
            self.epoch = response.member_epoch
        return response

    def join(self, *topics: str) -> Any:
        """Joins, and beats until there is an assignment; returns the answer that brought it."""
        response = self.heartbeat(0, topics=topics)
        assert response.error_code == 0, response
        return response if assigned(response) else self.beat_until_assigned()

    def beat_until_assigned(self) -> Any:
        """Beats until an answer brings an assignment that is not empty."""

        def look() -> Any:
            response = self.heartbeat()
            assert response.error_code == 0, response
            return response if assigned(response) else None

        return wait_for(look, every_s=0.05)

    # The session

    def fetch(self, *partitions: int, **options: Any) -> Fetched:
        """One ShareFetch that adds these partitions to the session. See `post_fetch`."""
        self.post_fetch(*partitions, **options)
        return self.fetched()

    def post_fetch(
        self,
        *partitions: int,
        acks: Acks | None = None,
        forget: Iterable[int] = (),
        epoch: int | None = None,
        version: int = 2,
        **fields: Any,
    ) -> None:
        """Sends a ShareFetch and does not wait. It takes all it can get, and waits for it, unless `fields` say else."""
        wanted: dict[int, Sequence[tuple[int, ...]]] = {**dict.fromkeys(partitions, ()), **(acks or {})}
        forgotten = [{"topic_id": self.topic_id, "partitions": list(forget)}] if forget else []
        self.connection.post_ask(
            "share_fetch",
            version,
            **{
                "group_id": self.group,
                "member_id": self.member_id,
                "share_session_epoch": self.session_epoch if epoch is None else epoch,
                "max_wait_ms": WAIT_MS,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
                "topics": [self._topic(wanted)] if wanted else [],
                "forgotten_topics_data": forgotten,
                **fields,
            },
        )

    def fetched(self) -> Fetched:
        """The answer to the fetch that was posted."""
        answer = Fetched(self.connection.receive())
        self._next_epoch(answer.error)
        return answer

    def quiet(self, *partitions: int, **options: Any) -> Fetched:
        """A fetch that waits but shortly, because nothing should come."""
        return self.fetch(*partitions, **{"max_wait_ms": QUIET_MS, **options})

    def take(self, count: int, *partitions: int, **options: Any) -> list[tuple[int, int, int, int]]:
        """Fetches until so many offsets are acquired: (partition, first, last, count), in order of arrival."""
        taken: list[tuple[int, int, int, int]] = []
        deadline = time.monotonic() + 15
        while sum(last - first + 1 for _, first, last, _ in taken) < count:
            assert time.monotonic() < deadline, f"only {taken} came"
            # Each waits but shortly: what another member gives back does not wake Apache Kafka's parked fetches.
            answer = self.quiet(*partitions, **options)
            partitions = ()
            assert answer.error == 0, answer.response
            taken += [(index, *one) for index in answer.partitions for one in answer.acquired(index)]
        return taken

    def acknowledge(
        self, acks: Acks, *, epoch: int | None = None, version: int = 2, **fields: Any
    ) -> Acknowledged:
        """One ShareAcknowledge."""
        response = self.connection.ask(
            "share_acknowledge",
            version,
            **{
                "group_id": self.group,
                "member_id": self.member_id,
                "share_session_epoch": self.session_epoch if epoch is None else epoch,
                "topics": [self._topic(acks)] if acks else [],
                **fields,
            },
        )
        answer = Acknowledged(response)
        self._next_epoch(answer.error)
        return answer

    def ack(self, *batches: tuple[int, ...], partition: int = 0, **options: Any) -> int:
        """Acknowledges (first, last, types...) of one partition and returns the partition's error code."""
        answer = self.acknowledge({partition: batches}, **options)
        assert answer.error == 0, answer.response
        return answer.codes[partition]

    def close(self, acks: Acks | None = None) -> Acknowledged:
        """Ends the session as clients do: a last ShareAcknowledge."""
        answer = self.acknowledge(acks or {}, epoch=CLOSE)
        self.session_epoch = OPEN
        return answer

    def disconnect(self) -> None:
        self.connection.close()

    def _topic(self, wanted: Acks) -> dict[str, Any]:
        return {
            "topic_id": self.topic_id,
            "partitions": [
                {
                    "partition_index": index,
                    "acknowledgement_batches": [
                        {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
                        for first, last, *types in acks
                    ],
                }
                for index, acks in wanted.items()
            ],
        }

    def _next_epoch(self, error: int) -> None:
        if error == 0:
            self.session_epoch += 1


NewMember = Callable[..., ShareMember]
"""The fixture `member`: called with a topic's id."""


def offsets_of(taken: Iterable[tuple[int, int, int, int]]) -> list[int]:
    """Every offset in what `ShareMember.take` returned."""
    return [offset for _, first, last, _ in taken for offset in range(first, last + 1)]


def new_member_id() -> str:
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def assigned(response: Any) -> dict[bytes, list[int]] | None:
    """The assignment in a heartbeat's answer by topic id, or None when there is none in it."""
    if response.assignment is None:
        return None
    return {bytes(one.topic_id): sorted(one.partitions) for one in response.assignment.topic_partitions}


def either(broker: BrokerUnderTest, *, apache: T, headrace: T, because: str) -> T:
    """What this broker answers where the two differ on purpose; `because` says what is gained."""
    assert because
    return apache if broker.is_apache else headrace


# Queues


def new_queue(
    wire: WireClient,
    name: str,
    *sizes: int,
    partitions: int = 1,
    group: str | None = None,
    configs: Mapping[str, str] | None = None,
    **settings: str,
) -> bytes:
    """A topic and a share group of that name that starts at its beginning. Batches of these sizes go to each partition.

    `settings` are the group's, `_` for `.` and without their "share."; `configs` the topic's. Returns the topic's id.
    """
    topic_id = new_topic(wire, name, partitions=partitions, configs=configs)
    set_group(wire, group or name, **settings)
    for partition in range(partitions):
        fill(wire, name, *sizes, partition=partition)
    start_at(wire, group or name, name, dict.fromkeys(range(partitions), 0))
    return topic_id


def fill(wire: WireClient, topic: str, *sizes: int, partition: int = 0) -> None:
    """Produces one batch of each size; the values are numbers."""
    for size in sizes:
        produced(wire, topic, batch(*(str(number) for number in range(size))), partition=partition)


def set_group(wire: WireClient, group: str, **settings: str) -> None:
    """Sets share group configs, written with `_` for `.` and without their "share."."""
    for name, value in settings.items():
        set_config(wire, GROUP, group, f"share.{name.replace('_', '.')}", value)


def start_at(wire: WireClient, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """AlterShareGroupOffsets: makes the group when there is none, and its share-partitions, which start there."""

    def look() -> bool:
        return set(alter_offsets(wire, group, topic, offsets).values()) == {0}

    wait_for(look)


def alter_offsets(
    wire: WireClient, group: str, topic: str, offsets: Mapping[int, int]
) -> dict[int | None, int]:
    """Error codes by partition; that of the whole request by None, if it is one."""
    partitions = [{"partition_index": index, "start_offset": offset} for index, offset in offsets.items()]
    response = wire.ask(
        "alter_share_group_offsets",
        0,
        group_id=group,
        topics=[{"topic_name": topic, "partitions": partitions}],
    )
    if response.error_code:
        return {None: int(response.error_code)}
    return {one.partition_index: int(one.error_code) for one in response.responses[0].partitions}


def describe_offsets(wire: WireClient, group: str, topic: str | None = None, *partitions: int) -> Any:
    """DescribeShareGroupOffsets of one group: all of it, or some partitions of a topic."""
    topics = None if topic is None else [{"topic_name": topic, "partitions": list(partitions or (0,))}]
    (answer,) = wire.ask(
        "describe_share_group_offsets", 1, groups=[{"group_id": group, "topics": topics}]
    ).groups
    return answer


def start_and_lag(wire: WireClient, group: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The start offset and the lag as an administrator sees them."""
    found = describe_offsets(wire, group, topic, partition).topics[0].partitions[0]
    assert found.error_code == 0, found
    return found.start_offset, found.lag


def describe_share_group(wire: WireClient, group: str) -> Any:
    (answer,) = wire.ask("share_group_describe", 1, group_ids=[group]).groups
    return answer


def wait_until_share_coordinators_are_ready(wire: WireClient) -> None:
    """Makes a fresh Apache Kafka create `__share_group_state`, and waits until each of its partitions is loaded."""
    topic_id = uuid4().bytes
    key = f"warm-up:{urlsafe_b64encode(topic_id).decode().rstrip('=')}:0"
    # One group, one topic and 600 partitions make 600 keys: enough to meet each of 50 partitions.
    partitions = [{"partition": number, "leader_epoch": -1} for number in range(600)]

    def are_ready() -> bool:
        wire.ask("find_coordinator", 6, key_type=2, coordinator_keys=[key])
        response = wire.ask(
            "read_share_group_state_summary",
            1,
            group_id="warm-up",
            topics=[{"topic_id": topic_id, "partitions": partitions}],
        )
        codes = {one.error_code for topic in response.results for one in topic.partitions}
        return not codes & COORDINATOR_ERRORS

    wait_for(are_ready, timeout_s=60)
