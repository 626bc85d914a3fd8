"""ListOffsets on the loop's thread: what it costs grows with what is asked for, not with its square."""

import time

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from tests.unit.broker.conftest import Admin


def test_very_many_partitions_do_not_hold_up_the_broker(admin: Admin) -> None:
    indexes = [*range(30_000), 7]
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name="orders", partitions=[ListOffsetsPartition(partition_index=index) for index in indexes]
            )
        ]
    )
    started = time.process_time()
    answer = admin.ask(request, ListOffsetsResponse)
    assert time.process_time() - started < 2
    codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
    assert (codes[6], codes[7]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST)
