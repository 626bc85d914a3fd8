"""WriteTxnMarkers (27), v1-v2: ends a producer's transaction in given partitions, whatever the coordinator
thinks.

Brokers send it to each other; here it serves `kafka-transactions abort`, which frees a partition of a
transaction that hangs. v2 adds the transaction.version of the marker (KIP-1228). Answered when the markers
are durable.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.transactions.ending import MARKERS_PER_STEP, partition_at, write_marker
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition
from headrace.wire.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from headrace.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.log.partition_log import PartitionLog

VERSIONS = (1, 2)
Codes = dict[int, dict[TopicAndPartition, ErrorCode]]


def handle(core: "BrokerCore", request: WriteTxnMarkersRequest, call: Call) -> Later[WriteTxnMarkersResponse]:
    logs: list[PartitionLog] = []
    wanted = [(marker, place) for marker in request.markers for place in dict.fromkeys(_places(marker))]

    def respond(written: list[ErrorCode]) -> Later[WriteTxnMarkersResponse]:
        codes: Codes = {marker.producer_id: {} for marker in request.markers}
        for (marker, place), code in zip(wanted, written, strict=True):
            codes[marker.producer_id][place] = code
        response = _response(codes)
        return core.durable(logs).map(lambda _: response)

    answer: Later[WriteTxnMarkersResponse] = Later()
    core.slices.each(wanted, lambda one: _write(core, *one, logs), per_step=MARKERS_PER_STEP).then(
        lambda written: respond(written).then(answer.resolve, answer.fail), answer.fail
    )
    return answer


def _places(marker: WritableTxnMarker) -> list[TopicAndPartition]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _write(
    core: "BrokerCore", marker: WritableTxnMarker, place: TopicAndPartition, logs: "list[PartitionLog]"
) -> ErrorCode:
    partition = partition_at(core, place)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return (
            ErrorCode.UNKNOWN_SERVER_ERROR
        )  # what Kafka answers; a marker of nobody must not get into a log
    try:
        write_marker(
            core,
            partition,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )
    except KafkaError as error:
        return error.code
    logs.append(partition.log)
    return ErrorCode.NONE


def _response(codes: Codes) -> WriteTxnMarkersResponse:
    """One result for each producer, however many markers it has in the request."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(places))
            for producer_id, places in codes.items()
        ]
    )


def _topics(codes: dict[TopicAndPartition, ErrorCode]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (name, index), code in codes.items():
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        topics.setdefault(name, []).append(result)
    return [WritableTxnMarkerTopicResult(name=name, partitions=results) for name, results in topics.items()]


def error_response(
    request: WriteTxnMarkersRequest, code: ErrorCode, message: str | None, call: Call
) -> WriteTxnMarkersResponse:
    codes: Codes = {}
    for marker in request.markers:
        codes.setdefault(marker.producer_id, {}).update(dict.fromkeys(_places(marker), code))
    return _response(codes)
