"""What a share consumer counts, under the names of Java's client.

Totals since the start, averages and maxima over the same time. Rates are per second over the whole life of the
consumer: for a rate over a window, read a total twice.
"""

import time
from collections.abc import Iterable

from headrace.client.core.acknowledgements import Settled
from headrace.client.core.usual import UsualFetch
from headrace.wire.messages.share_fetch_response import ShareFetchResponse

FETCH = "consumer-share-fetch-manager-metrics"
COORDINATOR = "consumer-share-coordinator-metrics"
CONSUMER = "consumer-share-metrics"


class Average:
    """Mean and maximum of what it was given."""

    __slots__ = ("count", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.most = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        if value > self.most:
            self.most = value

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


class Metrics:
    """Filled by the member and the consumer, read by `metrics()`."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._fetch_latency_ms = Average()
        self._fetch_bytes = Average()
        self._fetch_records = Average()
        self._throttle_ms = Average()
        self._acknowledged = 0
        self._refused = 0
        self._heartbeats = Average()
        self._last_heartbeat: float | None = None
        self._rebalances = 0
        self._between_polls_ms = Average()
        self._last_poll: float | None = None
        self._waited_s = 0.0

    def fetched(self, response: ShareFetchResponse | UsualFetch, seconds: float) -> None:
        self._fetch_latency_ms.add(seconds * 1000)
        size = records = 0
        if isinstance(response, UsualFetch):  # which is not throttled
            self._fetch_bytes.add(len(response.records))
            self._fetch_records.add(response.last - response.first + 1)
            return
        if response.throttle_time_ms:
            self._throttle_ms.add(response.throttle_time_ms)
        for topic in response.responses:
            for one in topic.partitions:
                size += len(one.records or b"")
                records += sum(each.last_offset - each.first_offset + 1 for each in one.acquired_records)
        self._fetch_bytes.add(size)
        self._fetch_records.add(records)

    def settled(self, answers: Iterable[Settled]) -> None:
        for one in answers:
            self._acknowledged += one.last - one.first + 1
            if one.error is not None:
                self._refused += one.last - one.first + 1

    def heartbeat(self, seconds: float, rebalances: int) -> None:
        self._heartbeats.add(seconds * 1000)
        self._last_heartbeat = time.monotonic()
        self._rebalances = rebalances

    def polled(self, waited_s: float = 0.0) -> None:
        now = time.monotonic()
        if self._last_poll is not None:
            self._between_polls_ms.add((now - self._last_poll) * 1000)
        self._last_poll = now
        self._waited_s += waited_s

    def read(self) -> dict[str, float]:
        """Every metric as `group:name`."""
        now = time.monotonic()
        age = max(now - self._started, 1e-9)
        fetches = self._fetch_latency_ms.count
        names = {
            FETCH: {
                "fetch-size-avg": self._fetch_bytes.mean,
                "fetch-size-max": self._fetch_bytes.most,
                "bytes-consumed-rate": self._fetch_bytes.total / age,
                "bytes-consumed-total": self._fetch_bytes.total,
                "records-per-request-avg": self._fetch_records.mean,
                "records-per-request-max": self._fetch_records.most,
                "records-consumed-rate": self._fetch_records.total / age,
                "records-consumed-total": self._fetch_records.total,
                "acknowledgements-send-rate": self._acknowledged / age,
                "acknowledgements-send-total": self._acknowledged,
                "acknowledgements-error-rate": self._refused / age,
                "acknowledgements-error-total": self._refused,
                "fetch-latency-avg": self._fetch_latency_ms.mean,
                "fetch-latency-max": self._fetch_latency_ms.most,
                "fetch-rate": fetches / age,
                "fetch-total": fetches,
                "fetch-throttle-time-avg": self._throttle_ms.total / max(fetches, 1),
                "fetch-throttle-time-max": self._throttle_ms.most,
            },
            COORDINATOR: {
                "heartbeat-rate": self._heartbeats.count / age,
                "heartbeat-total": self._heartbeats.count,
                "heartbeat-response-time-max": self._heartbeats.most,
                "last-heartbeat-seconds-ago": _ago(now, self._last_heartbeat),
                "rebalance-total": self._rebalances,
                "rebalance-rate-per-hour": self._rebalances * 3600 / age,
            },
            CONSUMER: {
                "last-poll-seconds-ago": _ago(now, self._last_poll),
                "time-between-poll-avg": self._between_polls_ms.mean,
                "time-between-poll-max": self._between_polls_ms.most,
                "poll-idle-ratio-avg": min(1.0, self._waited_s / age),
            },
        }
        return {
            f"{group}:{name}": float(value)
            for group, metrics in names.items()
            for name, value in metrics.items()
        }


def _ago(now: float, then: float | None) -> float:
    """-1, as in Java, when it has never happened."""
    return -1.0 if then is None else now - then
