"""Ranges of offsets are read whole and in order, from a real broker in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from confluent_kafka import Producer

from headrace import Broker
from headrace.client.cluster import Cluster, TopicMetadata
from headrace.client.errors import (
    CorruptRecordError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    TopicAuthorizationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from headrace.client.plain_fetch import (
    LATE_BYTES_MIN,
    UNKNOWN_TRIES,
    RetryBudget,
    list_offsets,
    read_range,
)
from headrace.wire.batches import BatchHeader, Compression
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode
from headrace.wire.ids import uuid_text
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.records import NewRecord, build_batch, read_records
from tests.unit.client.misbehaving import Relay, ScriptedBroker
from tests.unit.client.talk import create_topic, delete_records, produce, run, settings_for


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


async def values(
    batches: AsyncIterator[tuple[BatchHeader, memoryview]], first: int, last: int
) -> list[bytes]:
    """The values of exactly the offsets asked for; fails when offsets do not rise."""
    found = []
    previous = -1
    async for _, batch in batches:
        for record in read_records(batch):
            assert record.offset > previous
            previous = record.offset
            if first <= record.offset <= last:
                assert record.value is not None
                found.append(record.value)
    return found


def numbered(start: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def filled(cluster: Cluster, name: str, *, batches: int = 10, size: int = 10) -> TopicMetadata:
    topic = await create_topic(cluster, name)
    for index in range(batches):
        await produce(cluster, topic, numbered(index * size, size))
    return topic


def test_a_range_over_several_batches_comes_whole_and_in_order(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await filled(cluster, unique)
            assert await values(read_range(cluster, unique, 0, 15, 74), 15, 74) == numbered(15, 60)

    run(scenario())


def test_only_batches_that_touch_the_range_are_given(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await filled(cluster, unique)
            headers = [header async for header, _ in read_range(cluster, unique, 0, 15, 34)]
            assert [header.base_offset for header in headers] == [10, 20, 30]

    run(scenario())


def test_a_small_limit_takes_many_fetches_and_gives_the_same(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await filled(cluster, unique)
            batches = read_range(cluster, unique, 0, 0, 99, max_bytes=100)
            assert await values(batches, 0, 99) == numbered(0, 100)

    run(scenario())


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_is_read(broker: Broker, unique: str, compression: Compression) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            topic = await create_topic(cluster, unique)
            await produce(cluster, topic, [b"x" * 1000] * 5, compression=compression)
            assert await values(read_range(cluster, unique, 0, 0, 4), 0, 4) == [b"x" * 1000] * 5

    run(scenario())


def test_a_range_that_the_log_does_not_reach_is_no_silent_end(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await filled(cluster, unique, batches=1)
            batches = read_range(cluster, unique, 0, 5, 12, timeout_ms=50)
            with pytest.raises(OffsetNotAvailableError, match=r"offsets 10 to 12 are wanted.* up to 9"):
                await values(batches, 5, 12)

    run(scenario())


def test_a_range_is_waited_for_where_a_new_leader_does_not_give_it_out_yet(
    broker: Broker, unique: str
) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            topic = await filled(cluster, unique, batches=1)
            reading = asyncio.create_task(values(read_range(cluster, unique, 0, 0, 14), 0, 14))
            await asyncio.wait([reading], timeout=0.1)  # it has read all there is, and asks for more
            assert not reading.done()
            await produce(cluster, topic, numbered(10, 5))
            assert await reading == numbered(0, 15)

    run(scenario())


async def copies_of_one_key(cluster: Cluster, name: str) -> TopicMetadata:
    """Three of them, in a topic that is compacted as soon as its time moves on."""
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": "0",
        "delete.retention.ms": "0",
    }
    topic = await create_topic(cluster, name, configs=configs)
    for index in range(3):
        await produce(cluster, topic, [b"%d" % index], key=b"same", timestamp=1_000 * index)
    return topic


def test_records_compacted_away_at_the_end_of_a_range_are_not_waited_for(unique: str) -> None:
    """All copies of the key but the newest go; a later record of another key keeps the log longer than the range."""

    async def scenario(broker: Broker) -> None:
        async with Cluster(settings_for(broker)) as cluster:
            topic = await copies_of_one_key(cluster, unique)
            await produce(cluster, topic, [b"other"], key=b"other", timestamp=9_000)
            while await values(read_range(cluster, unique, 0, 0, 3), 0, 3) != [b"2", b"other"]:
                broker.advance(60)
            assert await values(read_range(cluster, unique, 0, 0, 1), 0, 1) == []

    with Broker() as broker:
        run(scenario(broker))


def test_offsets_that_retention_took_are_refused_with_the_start_of_the_log(
    broker: Broker, unique: str
) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            topic = await filled(cluster, unique)
            await delete_records(cluster, topic, 30)
            with pytest.raises(OffsetOutOfRangeError, match="starts at 30") as caught:
                await values(read_range(cluster, unique, 0, 5, 50), 5, 50)
            assert caught.value.log_start_offset == 30

    run(scenario())


def test_a_topic_that_is_not_there_is_named(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            with pytest.raises(UnknownTopicOrPartitionError, match=f"{unique}-0.*Create the topic"):
                await values(read_range(cluster, unique, 0, 0, 1), 0, 1)

    run(scenario())


def test_only_committed_records_are_read_where_they_are_wanted(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await create_topic(cluster, unique)
            await asyncio.to_thread(write_transactions, broker.bootstrap_servers, unique)
            end = (await list_offsets(cluster, {(unique, 0): OffsetSpec.LATEST}))[unique, 0]
            everything = read_range(cluster, unique, 0, 0, end - 1)
            assert await values(everything, 0, end - 1) == [b"aborted", b"good", b"open"]
            stable = (await list_offsets(cluster, {(unique, 0): OffsetSpec.LATEST}, committed=True))[
                unique, 0
            ]
            assert stable < end
            committed = read_range(cluster, unique, 0, 0, stable - 1, committed=True)
            assert await values(committed, 0, stable - 1) == [b"good"]
            open_too = read_range(cluster, unique, 0, 0, stable, committed=True, timeout_ms=50)
            with pytest.raises(OffsetNotAvailableError):
                await values(open_too, 0, stable)

    run(scenario())


def write_transactions(bootstrap_servers: str, topic: str) -> None:
    """An aborted transaction, a committed one, and one that stays open."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for value in (b"aborted", b"good", b"open"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        if value == b"aborted":
            producer.abort_transaction()
        elif value == b"good":
            producer.commit_transaction()


def test_offsets_are_listed_by_place_and_by_time(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            topic = await create_topic(cluster, unique, partitions=2)
            await produce(cluster, topic, [b"a", b"b"], timestamp=1_000)
            await produce(cluster, topic, [b"c"], timestamp=2_000)
            place = unique, 0
            latest = {place: OffsetSpec.LATEST, (unique, 1): OffsetSpec.LATEST}
            assert await list_offsets(cluster, latest) == {place: 3, (unique, 1): 0}
            assert await list_offsets(cluster, {place: OffsetSpec.EARLIEST}) == {place: 0}
            assert await list_offsets(cluster, {place: 1_500}) == {place: 2}
            assert await list_offsets(cluster, {place: 9_000}) == {place: -1}

    run(scenario())


def test_offsets_of_an_unknown_topic_are_refused(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            with pytest.raises(UnknownTopicOrPartitionError, match=unique):
                await list_offsets(cluster, {(unique, 0): OffsetSpec.LATEST})

    run(scenario())


def test_a_damaged_batch_is_refused_with_its_offsets(unique: str) -> None:
    """The relay turns one letter of what comes back, as a bad network card would."""

    async def scenario() -> None:
        async with Relay() as relay:
            with relay.behind():
                relay.change = lambda data: data.replace(b"whole", b"wHole")
                async with Cluster(settings_for(relay.address)) as cluster:
                    topic = await create_topic(cluster, unique)
                    await produce(cluster, topic, [b"whole"])
                    with pytest.raises(CorruptRecordError, match="offsets 0 to 0 fails its checksum"):
                        await values(read_range(cluster, unique, 0, 0, 0), 0, 0)
                    unchecked = read_range(cluster, unique, 0, 0, 0, check_crcs=False)
                    assert await values(unchecked, 0, 0) == [b"wHole"]

    run(scenario())


def test_a_new_leader_that_an_answer_names_is_asked_without_new_metadata(unique: str) -> None:
    """Broker 1 says that broker 2 leads now (KIP-951)."""

    async def scenario() -> None:
        topic_id = bytes(range(16))

        def metadata(request: MetadataRequest, _: int) -> MetadataResponse:
            partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=4)
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=old.port)],
                topics=[MetadataResponseTopic(name=unique, topic_id=topic_id, partitions=[partition])],
            )

        def moved(_: FetchRequest, __: int) -> FetchResponse:
            partition = PartitionData(
                partition_index=0,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
            )
            return FetchResponse(
                responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[partition])],
                node_endpoints=[NodeEndpoint(node_id=2, host="127.0.0.1", port=new.port)],
            )

        def records(request: FetchRequest, _: int) -> FetchResponse:
            assert request.topics[0].partitions[0].current_leader_epoch == 5
            batch = build_batch([NewRecord(None, b"from the new leader")])
            partition = PartitionData(partition_index=0, high_watermark=1, records=batch)
            return FetchResponse(
                responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[partition])]
            )

        old = ScriptedBroker({"metadata": metadata, "fetch": moved})
        new = ScriptedBroker({"fetch": records})
        async with old, new, Cluster(settings_for(old.address)) as cluster:
            found = await values(read_range(cluster, unique, 0, 0, 0), 0, 0)
            assert found == [b"from the new leader"]
            assert [name for name, _ in old.asked].count("metadata") == 1

    run(scenario())


TOPIC_ID = bytes(range(16))


def one_record(
    name: str,
    *,
    topic_error: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
    first_answers: tuple[FetchResponse, ...] = (),
) -> ScriptedBroker:
    """A broker with one record in its only topic, and what it answers before it gives it out."""
    before = list(first_answers)

    def metadata(_: MetadataRequest, __: int) -> MetadataResponse:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)
        topic = MetadataResponseTopic(
            name=name, topic_id=TOPIC_ID, error_code=topic_error(), partitions=[partition]
        )
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)
        return MetadataResponse(brokers=[node], topics=[topic])

    def records(_: FetchRequest, __: int) -> FetchResponse:
        if before:
            return before.pop(0)
        batch = build_batch([NewRecord(None, b"there")])
        partition = PartitionData(partition_index=0, high_watermark=1, records=batch)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])])

    broker = ScriptedBroker({"metadata": metadata, "fetch": records})
    return broker


def test_a_client_over_its_quota_asks_again(unique: str) -> None:
    """Kafka's answer names no topic then, only how long it will not listen."""

    async def scenario() -> None:
        held_back = FetchResponse(throttle_time_ms=20, responses=[])
        async with (
            one_record(unique, first_answers=(held_back,) * 2) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            assert await values(read_range(cluster, unique, 0, 0, 0), 0, 0) == [b"there"]

    run(scenario())


def nothing_yet(*, high_watermark: int = 1) -> FetchResponse:
    """What Kafka says when a record is in tiered storage and does not come from there in time."""
    partition = PartitionData(partition_index=0, high_watermark=high_watermark)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])])


def test_a_log_that_gives_nothing_below_its_end_is_asked_again_for_less(unique: str) -> None:
    async def scenario() -> None:
        async with (
            one_record(unique, first_answers=(nothing_yet(),) * 2) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            found = await values(read_range(cluster, unique, 0, 0, 0, max_bytes=200_000), 0, 0)
            assert found == [b"there"]
            sizes = [
                request.topics[0].partitions[0].partition_max_bytes
                for name, request in broker.asked
                if name == "fetch"
            ]
            assert sizes == [200_000, 100_000, LATE_BYTES_MIN]

    run(scenario())


@pytest.mark.parametrize("last", [0, 5])
def test_a_log_that_goes_on_giving_nothing_is_an_error_and_no_end_of_the_range(
    unique: str, last: int
) -> None:
    """Nor is it one that failOnDataLoss=false passes over: the records may well be there."""

    async def scenario() -> None:
        async with (
            one_record(unique, first_answers=(nothing_yet(),) * 1_000) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            late = read_range(cluster, unique, 0, 0, last, topic_id=uuid_text(TOPIC_ID), timeout_ms=50)
            with pytest.raises(RequestTimeoutError, match=r"up to 0, but nothing came.*remote\.fetch\.max"):
                await values(late, 0, last)

    run(scenario())


def test_the_tail_of_a_log_that_holds_nothing_but_bare_batches_is_read_to_its_end(unique: str) -> None:
    """The newest record of a key is followed by aborted transactions, which compaction takes away."""

    async def scenario(broker: Broker) -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await copies_of_one_key(cluster, unique)
            await asyncio.to_thread(abort, broker, unique)
            end = (await list_offsets(cluster, {(unique, 0): OffsetSpec.LATEST}))[unique, 0]
            while b"aborted" in await values(read_range(cluster, unique, 0, 0, end - 1), 0, end - 1):
                broker.advance(60)
            for first in range(end):
                read = read_range(cluster, unique, 0, first, end - 1, committed=True, timeout_ms=50)
                assert await values(read, first, end - 1) == ([b"2"] if first <= 2 else [])

    with Broker() as broker:
        run(scenario(broker))


def abort(broker: Broker, topic: str) -> None:
    """Two aborted transactions; each marker begins a segment, so that the data before it can be compacted."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(topic, b"aborted", b"key", partition=0)
        producer.flush()
        broker.advance(1)
        producer.abort_transaction()


def test_a_topic_that_was_there_is_asked_for_until_the_time_is_over(unique: str) -> None:
    """A broker that has just started does not know its topics yet."""

    async def scenario() -> None:
        errors = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (5 * UNKNOWN_TRIES)
        async with (
            one_record(unique, topic_error=lambda: errors.pop() if errors else ErrorCode.NONE) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            found = read_range(cluster, unique, 0, 0, 0, topic_id=uuid_text(TOPIC_ID))
            assert await values(found, 0, 0) == [b"there"]

    run(scenario())


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicOrPartitionError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
    ],
)
def test_what_hides_a_topic_that_was_there_is_named(
    unique: str, code: ErrorCode, error: type[Exception]
) -> None:
    async def scenario() -> None:
        async with (
            one_record(unique, topic_error=lambda: code) as broker,
            Cluster(settings_for(broker.address)) as cluster,
        ):
            hidden = read_range(cluster, unique, 0, 0, 0, topic_id=uuid_text(TOPIC_ID), timeout_ms=50)
            with pytest.raises(error):
                await values(hidden, 0, 0)

    run(scenario())


def test_a_topic_of_the_same_name_with_another_id_is_not_read(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            await filled(cluster, unique)
            with pytest.raises(UnknownTopicIdError, match="deleted and created again"):
                await values(read_range(cluster, unique, 0, 0, 9, topic_id=uuid_text(TOPIC_ID)), 0, 9)

    run(scenario())


def test_that_records_are_gone_is_believed_after_the_whole_time_without_other_trouble(
    broker: Broker, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        now = 0.0
        monkeypatch.setattr(RetryBudget, "_now", lambda _: now)
        moved = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        unknown = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        async with Cluster(settings_for(broker)) as cluster:
            await create_topic(cluster, unique)
            budget = RetryBudget(cluster, 1_000, is_sure=True)
            for now, error in ((0.0, unknown), (0.5, moved), (0.9, unknown), (1.8, unknown)):  # noqa: B007
                await budget.after(error, [unique])
            now = 1.9
            with pytest.raises(UnknownTopicOrPartitionError):
                await budget.after(unknown, [unique])

    run(scenario())


def test_a_log_that_ends_before_the_range_was_cut_off_if_the_records_were_there(
    broker: Broker, unique: str
) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            topic_id = uuid_text((await filled(cluster, unique)).topic_id)
            with pytest.raises(OffsetOutOfRangeError, match="150 is not in the log, which starts at 0"):
                await values(read_range(cluster, unique, 0, 150, 160), 150, 160)
            cut_off = read_range(cluster, unique, 0, 150, 160, topic_id=topic_id, timeout_ms=50)
            with pytest.raises(OffsetNotAvailableError, match=r"150 to 160 are wanted.* up to 99"):
                await values(cut_off, 150, 160)

    run(scenario())


def test_a_broker_that_stays_away_ends_the_read_in_time(unique: str) -> None:
    async def scenario(broker: Broker) -> None:
        settings = settings_for(broker, default_api_timeout_ms=200)
        async with Cluster(settings) as cluster:
            await filled(cluster, unique, batches=1)
            await asyncio.to_thread(broker.stop)
            with pytest.raises((ConnectionError, RequestTimeoutError)):
                await values(read_range(cluster, unique, 0, 0, 9), 0, 9)

    with Broker() as broker:
        run(scenario(broker))
