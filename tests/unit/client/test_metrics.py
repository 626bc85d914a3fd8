"""Counters under Java's names."""

from headrace.client.core.acknowledgements import Settled
from headrace.client.errors import error_for
from headrace.client.metrics import CONSUMER, COORDINATOR, FETCH, Metrics
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_fetch_response import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from tests.unit.client.core.test_ranges import acquired


def test_fetches_acknowledgements_and_heartbeats_are_counted() -> None:
    metrics = Metrics()
    part = PartitionData(records=b"12345", acquired_records=[AcquiredRecords(first_offset=0, last_offset=9)])
    metrics.fetched(ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=[part])]), 0.5)
    metrics.fetched(ShareFetchResponse(throttle_time_ms=30), 0.1)
    refused = error_for(ErrorCode.INVALID_RECORD_STATE)
    metrics.settled([Settled(acquired(), 10, 14, 1, None), Settled(acquired(), 15, 16, 1, refused)])
    metrics.heartbeat(0.2, 3)
    found = metrics.read()
    assert found[f"{FETCH}:fetch-total"] == 2
    assert found[f"{FETCH}:fetch-latency-max"] == 500
    assert found[f"{FETCH}:fetch-size-avg"] == 2.5
    assert found[f"{FETCH}:records-consumed-total"] == 10
    assert found[f"{FETCH}:records-per-request-max"] == 10
    assert found[f"{FETCH}:fetch-throttle-time-max"] == 30
    assert found[f"{FETCH}:acknowledgements-send-total"] == 7
    assert found[f"{FETCH}:acknowledgements-error-total"] == 2
    assert found[f"{COORDINATOR}:heartbeat-total"] == 1
    assert found[f"{COORDINATOR}:rebalance-total"] == 3


def test_what_never_happened_is_minus_one_second_ago() -> None:
    metrics = Metrics()
    assert metrics.read()[f"{CONSUMER}:last-poll-seconds-ago"] == -1
    metrics.polled()
    metrics.polled(0.0)
    assert metrics.read()[f"{CONSUMER}:last-poll-seconds-ago"] >= 0
    assert metrics.read()[f"{CONSUMER}:time-between-poll-avg"] >= 0
