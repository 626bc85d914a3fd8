"""DeleteRecords: where a partition begins."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_records_response import DeleteRecordsResponse


def delete(admin, topic, offset, partition=0):
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
        ]
    )
    (answered,) = admin.ask(request, DeleteRecordsResponse).topics
    (result,) = answered.partitions
    assert (answered.name, result.partition_index) == (topic, partition)
    return result.low_watermark, result.error_code


@pytest.fixture
def log(admin):
    log = admin.topics.create("orders", partitions=1, configs={}).partitions[0].log
    admin.write("orders", b"a", b"b", b"c", b"d")
    return log


def test_the_log_begins_where_it_was_told(admin, log):
    assert delete(admin, "orders", 2) == (2, 0)
    assert (log.start_offset, log.end_offset) == (2, 4)


def test_minus_one_deletes_everything_written(admin, log):
    assert delete(admin, "orders", -1) == (4, 0)


def test_going_back_changes_nothing(admin, log):
    delete(admin, "orders", 3)
    assert delete(admin, "orders", 1) == (3, 0)


@pytest.mark.parametrize("offset", [5, -2])
def test_an_offset_outside_the_log_is_refused(admin, log, offset):
    assert delete(admin, "orders", offset) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)


def test_an_unknown_partition_is_refused(admin, log):
    assert delete(admin, "orders", 0, partition=7) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(admin, "x", 0) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_internal_topics_are_refused(admin):
    admin.topics.internal("__consumer_offsets")
    assert delete(admin, "__consumer_offsets", 0) == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_topic_that_is_only_compacted_is_refused(admin):
    admin.topics.create("keyed", partitions=1, configs={"cleanup.policy": "compact"})
    assert delete(admin, "keyed", 0) == (-1, ErrorCode.POLICY_VIOLATION)


def test_parked_fetches_are_woken(admin, log):
    delete(admin, "orders", 1)
    assert admin.touched == [admin.topics.require("orders", 0)]
