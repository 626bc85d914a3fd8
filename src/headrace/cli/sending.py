"""Sends the records of `headrace produce`, and counts what becomes of them as Kafka's perf tool does."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from headrace.cli.inputs import Input
    from headrace.client.producing.aio import AsyncProducer
    from headrace.client.settings import ProducerSettings

STOP_S_MAX = 2.0
REPORT_S = 5.0
LATENCIES_MAX = 500_000
"""As Kafka's tool: of more records, an even share is kept for the percentiles."""


class Target(NamedTuple):
    topic: str
    partition: int | None
    """None leaves it to the key, or to chance."""
    headers: Sequence[tuple[str, bytes]]


class Tally:
    """What became of the records. Kafka's perf tool counts the same things."""

    def __init__(self, advance: Callable[[int], None], report: Callable[[str], None] | None) -> None:
        self.sent = self.acknowledged = self.bytes = 0
        self.error: BaseException | None = None
        self.began = self.ended = time.perf_counter()
        self._latencies: list[float] = []
        self._every = 1
        self._advance = advance
        self._report = report
        self._span_began, self._span = self.began, _Span()
        self.total = _Span()

    def begin(self) -> None:
        self.began = self.ended = self._span_began = time.perf_counter()

    def done(self, sent_at: float, size: int, error: BaseException | None) -> None:
        """A record was acknowledged, or was not."""
        now = time.perf_counter()
        self.ended = now
        if error is not None:
            self.error = self.error or error
            return
        self.acknowledged += 1
        self.bytes += size
        latency_ms = (now - sent_at) * 1000
        self.total.add(size, latency_ms)
        self._span.add(size, latency_ms)
        if self.acknowledged % self._every == 0:
            self._latencies.append(latency_ms)
            if len(self._latencies) >= LATENCIES_MAX:
                self._latencies = self._latencies[::2]
                self._every *= 2
        self._advance(1)
        if self._report is not None and now - self._span_began >= REPORT_S:
            self._report(self._span.line(now - self._span_began))
            self._span_began, self._span = now, _Span()

    @property
    def seconds(self) -> float:
        return max(self.ended - self.began, 1e-9)

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self._latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0

    def line(self) -> str:
        """The last line of kafka-producer-perf-test.sh."""
        told = ", ".join(
            f"{self.percentile_ms(share):.0f} ms {name}"
            for share, name in ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
        )
        return f"{self.total.line(self.seconds).removesuffix('.')}, {told}."

    def figures(self) -> dict[str, Any]:
        return {
            "records": self.acknowledged,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.acknowledged / self.seconds, 1),
            "mb_per_second": round(self.bytes / self.seconds / 2**20, 3),
            "latency_avg_ms": round(self.total.average_ms, 2),
            "latency_max_ms": round(self.total.max_ms, 2),
            "latency_p50_ms": round(self.percentile_ms(0.5), 2),
            "latency_p95_ms": round(self.percentile_ms(0.95), 2),
            "latency_p99_ms": round(self.percentile_ms(0.99), 2),
            "latency_p999_ms": round(self.percentile_ms(0.999), 2),
        }


class _Span:
    """Records of a stretch of time."""

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.sum_ms = self.max_ms = 0.0

    def add(self, size: int, latency_ms: float) -> None:
        self.records += 1
        self.bytes += size
        self.sum_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)

    @property
    def average_ms(self) -> float:
        return self.sum_ms / self.records if self.records else 0.0

    def line(self, seconds: float) -> str:
        return (
            f"{self.records} records sent, {self.records / seconds:.1f} records/sec "
            f"({self.bytes / seconds / 2**20:.2f} MB/sec), {self.average_ms:.1f} ms avg latency, "
            f"{self.max_ms:.1f} ms max latency."
        )


def send(
    settings: "ProducerSettings",
    source: "AsyncIterator[Input]",
    tally: Tally,
    target: Target,
    *,
    rate: float | None,
    number: int | None,
) -> bool:
    """Sends all; whether Ctrl+C ended it. What was read by then is sent and acknowledged; a second one gives up."""
    return asyncio.run(_send(settings, _paced(source, tally, rate, number), tally, target))


async def _send(
    settings: "ProducerSettings", source: "AsyncIterator[Input]", tally: Tally, target: Target
) -> bool:
    from headrace.client.producing.aio import AsyncProducer

    producer = AsyncProducer.of(settings)
    try:
        await producer.start()
        tally.begin()
        return await _drive(producer, source, tally, target)
    finally:
        await producer.close(0.0)


async def stop_in_time(client: Any) -> None:
    """aiokafka's own stop waits for brokers that may never come back."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_S_MAX):
            await client.stop()


async def _drive(
    producer: "AsyncProducer", source: "AsyncIterator[Input]", tally: Tally, target: Target
) -> bool:
    pump = asyncio.ensure_future(_pump(producer, source, tally, target))
    whole = asyncio.ensure_future(_whole(producer, pump))

    def interrupt() -> None:
        (whole if pump.done() else pump).cancel()

    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, interrupt)
    try:
        await asyncio.wait({whole})
        if whole.cancelled():
            raise KeyboardInterrupt
        whole.result()
        return pump.cancelled()
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


async def _whole(producer: "AsyncProducer", pump: "asyncio.Future[None]") -> None:
    """All that is read, and the acknowledgements of it, even if reading is interrupted or fails."""
    await asyncio.wait({pump})
    await producer.flush()
    if not pump.cancelled():
        pump.result()


async def _paced(
    source: "AsyncIterator[Input]", tally: Tally, rate: float | None, number: int | None
) -> "AsyncIterator[Input]":
    """The first `number` records, none before its time; none after a failure."""
    async for one in source:
        if rate is not None:
            await asyncio.sleep(tally.began + tally.sent / rate - time.perf_counter())
        yield one
        if tally.error is not None or tally.sent == number:
            return


async def _pump(
    producer: "AsyncProducer", source: "AsyncIterator[Input]", tally: Tally, target: Target
) -> None:
    def settled(sent_at: float, size: int) -> Callable[[asyncio.Future[Any]], None]:
        return lambda future: tally.done(sent_at, size, future.exception())

    async with aclosing(source) as records:  # type: ignore[type-var]
        async for key, value in records:
            sent_at = time.perf_counter()
            future = await producer.send_soon(
                target.topic, value, key=key, partition=target.partition, headers=target.headers
            )
            future.add_done_callback(settled(sent_at, len(key or b"") + len(value or b"")))
            tally.sent += 1
