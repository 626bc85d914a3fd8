"""Requests are counted and timed by API, and every error code in a response is counted."""

from time import perf_counter

from headrace.broker.metrics import MetricsRegistry
from headrace.broker.request_metrics import RequestMetrics, errors_of
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

PRODUCE, HEARTBEAT = 0, 12


def produce_response(*codes: int) -> ProduceResponse:
    partitions = [PartitionProduceResponse(index=index, error_code=code) for index, code in enumerate(codes)]
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=partitions)])


def test_error_codes_of_every_partition_are_found() -> None:
    assert list(errors_of(produce_response(0, 3, 0, 87))) == [3, 87]
    assert list(errors_of(HeartbeatResponse(error_code=25))) == [25]
    assert list(errors_of(HeartbeatResponse())) == []


def test_requests_errors_and_times_are_kept_by_api() -> None:
    metrics = MetricsRegistry()
    requests = RequestMetrics(metrics)
    for _ in range(2):
        requests.arrived(PRODUCE)
    requests.answered(PRODUCE, produce_response(3, 3), perf_counter() - 0.2)
    requests.answered(PRODUCE, None, perf_counter())
    found = {
        (one.name, one.labels.get("request"), one.labels.get("error")): one for one in metrics.snapshot()
    }
    assert found["RequestsPerSec", "Produce", None].value == 2
    assert found["ErrorsPerSec", "Produce", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name].value == 2
    times = found["TotalTimeMs", "Produce", None]
    assert sum(times.counts) == 2
    assert times.value >= 200
