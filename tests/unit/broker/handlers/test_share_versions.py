"""Every API around share groups but fetching, in every version it advertises, over the wire's bytes; refusals too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.call import Call
from headrace.broker.handlers import SERVED, error_response, handler_of
from headrace.wire.apis import response_class
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages import (
    alter_share_group_offsets_request,
    delete_share_group_offsets_request,
    delete_share_group_state_request,
    describe_share_group_offsets_request,
    initialize_share_group_state_request,
    read_share_group_state_request,
    read_share_group_state_summary_request,
    share_group_describe_request,
    share_group_heartbeat_request,
    write_share_group_state_request,
)
from tests.unit.broker.groups.share_world import ShareWorld


def requests(topic_id: bytes) -> list[Message]:
    heartbeat = share_group_heartbeat_request.ShareGroupHeartbeatRequest
    describe, alter = describe_share_group_offsets_request, alter_share_group_offsets_request
    delete, forget = delete_share_group_offsets_request, delete_share_group_state_request
    begin, write = initialize_share_group_state_request, write_share_group_state_request
    read, summarize = read_share_group_state_request, read_share_group_state_summary_request
    return [
        heartbeat(group_id="g", member_id="m", subscribed_topic_names=["t"], rack_id="r"),
        heartbeat(group_id="g", member_id="m", member_epoch=-1),
        heartbeat(group_id="g", member_id="m", member_epoch=99),
        share_group_describe_request.ShareGroupDescribeRequest(
            group_ids=["g", "x", ""], include_authorized_operations=True
        ),
        begin.InitializeShareGroupStateRequest(
            group_id="g",
            topics=[
                begin.InitializeStateData(
                    topic_id=topic_id,
                    partitions=[begin.PartitionData(partition=index, state_epoch=9) for index in (0, 9)],
                )
            ],
        ),
        read.ReadShareGroupStateRequest(
            group_id="g",
            topics=[
                read.ReadStateData(
                    topic_id=topic_id,
                    partitions=[read.PartitionData(partition=index, leader_epoch=-1) for index in (0, 9)],
                )
            ],
        ),
        write.WriteShareGroupStateRequest(
            group_id="g",
            topics=[
                write.WriteStateData(
                    topic_id=topic_id,
                    partitions=[
                        write.PartitionData(
                            partition=index,
                            state_epoch=-1,
                            leader_epoch=-1,
                            start_offset=2,
                            delivery_complete_count=1,
                            state_batches=[
                                write.StateBatch(
                                    first_offset=2, last_offset=3, delivery_state=2, delivery_count=1
                                )
                            ],
                        )
                        for index in (0, 9)
                    ],
                )
            ],
        ),
        summarize.ReadShareGroupStateSummaryRequest(
            group_id="g",
            topics=[
                summarize.ReadStateSummaryData(
                    topic_id=topic_id,
                    partitions=[summarize.PartitionData(partition=index) for index in (0, 9)],
                )
            ],
        ),
        forget.DeleteShareGroupStateRequest(
            group_id="g",
            topics=[
                forget.DeleteStateData(
                    topic_id=topic_id, partitions=[forget.PartitionData(partition=index) for index in (0, 9)]
                )
            ],
        ),
        describe.DescribeShareGroupOffsetsRequest(
            groups=[
                describe.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None),
                describe.DescribeShareGroupOffsetsRequestGroup(
                    group_id="g",
                    topics=[describe.DescribeShareGroupOffsetsRequestTopic(topic_name="x", partitions=[0])],
                ),
            ]
        ),
        alter.AlterShareGroupOffsetsRequest(
            group_id="empty",
            topics=[
                alter.AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
                    ],
                )
                for name in ("t", "x")
            ],
        ),
        delete.DeleteShareGroupOffsetsRequest(
            group_id="empty",
            topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "x")],
        ),
    ]


CASES = [
    pytest.param(number, version, id=f"{type(request).__name__}-{number}-v{version}")
    for number, request in enumerate(requests(bytes(16)))
    for version in range(handler_of(request.API_KEY).VERSIONS[0], handler_of(request.API_KEY).VERSIONS[1] + 1)
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ShareWorld]:
    world = ShareWorld(tmp_path)
    world.new_topic("t", 2)
    world.write("t", 5)
    world.heartbeat("m", 0, ["t"])
    yield world
    world.close()


def prepared(world: ShareWorld, number: int, version: int) -> Message:
    """The request as it comes off the wire."""
    topic = world.core.topics.get("t")
    assert topic is not None
    request = requests(topic.id)[number]
    read, end = read_message(type(request), version, encode(request, version))
    assert end == len(encode(request, version))
    return read


def check(response: Message, api_key: int, version: int) -> None:
    data = encode(response, version)
    again, end = read_message(response_class(api_key), version, data)
    assert end == len(data)
    assert encode(again, version) == data


@pytest.mark.parametrize(("number", "version"), CASES)
def test_an_answer_survives_the_wire(world: ShareWorld, number: int, version: int) -> None:
    request = prepared(world, number, version)
    assert request.API_KEY in SERVED
    check(world.ask(request, version), request.API_KEY, version)


@pytest.mark.parametrize(("number", "version"), CASES)
def test_a_refusal_survives_the_wire(world: ShareWorld, number: int, version: int) -> None:
    request = prepared(world, number, version)
    refusal = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, None, Call(api_version=version))
    check(refusal, request.API_KEY, version)
    assert b"\xff\xff" in encode(refusal, version)
