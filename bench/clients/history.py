"""A past for a broker: offset commits, share acknowledgements and transactions by the ten thousand.

Requests are sent ahead of their responses on one connection, so the broker sets the pace. Each kind of history
comes with a probe that says whether a broker has its state again after a start.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.wire import BrokerRefused, Connection, create_topic, set_group_config
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.wire.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.records import NewRecord, build_batch

IN_FLIGHT = 64
TOPIC = "history"
PARTITIONS = 10
GROUPS = 20
SHARE_GROUP = "history-share"
TRANSACTIONAL_ID = "history-transactions"
READY_TIMEOUT_S = 60
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
ACCEPT = 1


@dataclass(frozen=True, slots=True)
class History:
    name: str
    count: int
    make: Callable[[Connection, int], None]
    is_back: Callable[[Connection], bool]


def _pipelined(connection: Connection, requests: Iterator[Message], version: int) -> Iterator[Any]:
    """The responses, while up to IN_FLIGHT requests are on their way."""
    waiting: deque[Message] = deque()
    for request in requests:
        connection.send(request, version)
        waiting.append(request)
        if len(waiting) == IN_FLIGHT:
            yield connection.receive_for(waiting.popleft(), version)
    while waiting:
        yield connection.receive_for(waiting.popleft(), version)


def _require(error_code: int, what: str) -> None:
    if error_code:
        raise BrokerRefused(f"{what}: {ErrorCode(error_code).name}")


def _wait_for_coordinator(connection: Connection, key: str, kind: int) -> None:
    """The first request for a coordinator makes its internal topic."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        response = connection.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,)), 4)
        if not response.coordinators[0].error_code:
            return
        time.sleep(0.05)
    raise BrokerRefused(f"no coordinator for {key}")


def commit_offsets(connection: Connection, count: int) -> None:
    """What GROUPS consumers that auto-commit PARTITIONS partitions write."""
    for group in range(GROUPS):
        _wait_for_coordinator(connection, f"history-{group}", GROUP_COORDINATOR)

    def requests() -> Iterator[Message]:
        for number in range(count):
            partitions = [
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=number, committed_leader_epoch=-1
                )
                for index in range(PARTITIONS)
            ]
            yield OffsetCommitRequest(
                group_id=f"history-{number % GROUPS}",
                generation_id_or_member_epoch=-1,
                topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
            )

    # A coordinator that was just made may still be loading.
    deadline = time.monotonic() + READY_TIMEOUT_S
    first = next(requests())
    while connection.ask(first, 8).topics[0].partitions[0].error_code and time.monotonic() < deadline:
        time.sleep(0.05)
    for response in _pipelined(connection, requests(), 8):
        _require(response.topics[0].partitions[0].error_code, "committing offsets")


def offsets_are_back(connection: Connection) -> bool:
    group = OffsetFetchRequestGroup(group_id=f"history-{GROUPS - 1}", topics=None)
    response = connection.ask(OffsetFetchRequest(groups=(group,)), 8).groups[0]
    return not response.error_code and bool(response.topics)


def acknowledge(connection: Connection, count: int) -> None:
    """One record an acknowledgement, as a consumer that commits after each record does."""
    set_group_config(connection, SHARE_GROUP, "share.auto.offset.reset", "earliest")
    _wait_for_coordinator(connection, SHARE_GROUP, GROUP_COORDINATOR)
    request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
    topic_id = connection.ask(request, 12).topics[0].topic_id
    _fill(connection, count)
    member = "AAAAAAAAAAAAAAAAAAAAAA"
    _join(connection, member)
    epoch, acknowledged, deadline = 0, 0, time.monotonic() + READY_TIMEOUT_S
    while acknowledged < count:
        fetch = ShareFetchRequest(
            group_id=SHARE_GROUP,
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=(FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition_index=0),)),),
        )
        response = connection.ask(fetch, 1)
        _require(response.error_code, "fetching from a share group")
        epoch += 1
        found = [
            offset
            for topic in response.responses
            for partition in topic.partitions
            for entry in partition.acquired_records
            for offset in range(entry.first_offset, entry.last_offset + 1)
        ]
        if not found and time.monotonic() > deadline:
            raise BrokerRefused(f"the share group got {acknowledged} of {count} records")
        requests = (
            _acknowledgement(topic_id, member, epoch + number, offset) for number, offset in enumerate(found)
        )
        for answer in _pipelined(connection, requests, 1):
            _require(answer.error_code, "acknowledging")
        epoch += len(found)
        acknowledged += len(found)
        if found:
            deadline = time.monotonic() + READY_TIMEOUT_S


def _fill(connection: Connection, count: int) -> None:
    per_batch = 10_000
    batch = build_batch([NewRecord(None, b"x", (), int(time.time() * 1000))] * per_batch)
    for _ in range(-(-count // per_batch)):
        _produce(connection, batch)


def _produce(connection: Connection, batch: bytes, transactional_id: str | None = None) -> None:
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        transactional_id=transactional_id,
        topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),),
    )
    response = connection.ask(request, 12)
    _require(response.responses[0].partition_responses[0].error_code, "producing")


def _join(connection: Connection, member: str) -> None:
    """Until the group has given the member its partitions."""
    epoch, deadline = 0, time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        heartbeat = ShareGroupHeartbeatRequest(
            group_id=SHARE_GROUP,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=(TOPIC,) if not epoch else None,
        )
        response = connection.ask(heartbeat, 1)
        if not response.error_code:
            epoch = response.member_epoch
            if response.assignment is not None and response.assignment.topic_partitions:
                return
        time.sleep(0.1)
    raise BrokerRefused("the share group gave no partitions")


def _acknowledgement(topic_id: bytes, member: str, epoch: int, offset: int) -> Message:
    batch = AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=(ACCEPT,))
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=(batch,))
    return ShareAcknowledgeRequest(
        group_id=SHARE_GROUP,
        member_id=member,
        share_session_epoch=epoch,
        topics=(AcknowledgeTopic(topic_id=topic_id, partitions=(partition,)),),
    )


def share_state_is_back(connection: Connection) -> bool:
    group = DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=None)
    response = connection.ask(DescribeShareGroupOffsetsRequest(groups=(group,)), 0).groups[0]
    return not response.error_code and any(
        not partition.error_code and partition.start_offset > 0
        for topic in response.topics
        for partition in topic.partitions
    )


def end_transactions(connection: Connection, count: int) -> None:
    """One record a transaction, every third one aborted."""
    _wait_for_coordinator(connection, TRANSACTIONAL_ID, TRANSACTION_COORDINATOR)
    init = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while (producer := connection.ask(init, 5)).error_code and time.monotonic() < deadline:
        time.sleep(0.05)
    _require(producer.error_code, "starting a transactional producer")
    for number in range(count):
        batch = build_batch(
            [NewRecord(None, b"x", (), int(time.time() * 1000))],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        _produce(connection, batch, TRANSACTIONAL_ID)
        end = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=number % 3 != 0,
        )
        producer = connection.ask(end, 5)
        _require(producer.error_code, "ending a transaction")


def transactions_are_back(connection: Connection) -> bool:
    request = DescribeTransactionsRequest(transactional_ids=(TRANSACTIONAL_ID,))
    return not connection.ask(request, 0).transaction_states[0].error_code


def prepare(connection: Connection) -> None:
    create_topic(connection, TOPIC, partitions=PARTITIONS)


HISTORIES = (
    History("offset commits of 10 partitions", 100_000, commit_offsets, offsets_are_back),
    History("share acknowledgements", 50_000, acknowledge, share_state_is_back),
    History("transactions", 10_000, end_transactions, transactions_are_back),
)
