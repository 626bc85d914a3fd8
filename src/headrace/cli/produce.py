"""`headrace produce`: lines, files or made-up records into a topic, as fast as they come or at a rate."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failures import INTERRUPTED, Refused, say
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    TopicName,
    assignments,
    client_settings,
    find_topic,
    open_admin,
)
from headrace.cli.render import count, print_json, progress

if TYPE_CHECKING:
    from headrace.cli.inputs import Input

PERF_COUNT, PERF_SIZE = 100_000, 100
REPORT_S = 5.0
LATENCIES_MAX = 500_000
"""As Kafka's tool: of more records, an even share is kept for the percentiles."""


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: TopicName,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="Read these, not standard input.", exists=True, dir_okay=False
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help="What stands between key and value in a line."
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header for each record; may be repeated."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, help="Into this one.", show_default="by key, else at random"
        ),
    ] = None,
    compression: Annotated[
        Compression | None, typer.Option("--compression", "-z", help="How batches are compressed.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Each file is one record, not its lines.")] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="N", help="At most so many records a second.", show_default="no limit"
        ),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--count", "-c", metavar="N", min=1, help="Stop after so many records.")
    ] = None,
    perf: Annotated[
        bool,
        typer.Option("--perf", help=f"Send made-up records ({PERF_COUNT:,}, or --count) and print how fast."),
    ] = False,
    size: Annotated[
        int, typer.Option("--size", min=0, help="Bytes of a record's value, with --perf.")
    ] = PERF_SIZE,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if there is none.")] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Send records to a topic: the lines of standard input or of files.

    \b
    echo "two coffees" | headrace produce orders
    headrace produce orders orders.txt --key-separator : --header source=web
    headrace produce orders --perf --count 10000 --size 10
    headrace produce orders --perf --count 1000 --rate 50
    """
    from headrace.cli import inputs
    from headrace.cli.plain_clients import for_admin, producer_options

    if rate is not None and rate <= 0:
        raise typer.BadParameter(
            f"{rate:g} records a second is no rate; give more than 0", param_hint="--rate"
        )
    if perf and (files or whole):
        raise typer.BadParameter("--perf makes its records up; leave out files")
    if whole and not files:
        raise typer.BadParameter("--whole sends files; name some")
    given = client_settings(server, settings, command_config)
    fixed = [(name, value.encode()) for name, value in assignments(headers, "--header").items()]
    options = producer_options(given, compression and compression.value)
    with open_admin(for_admin(given)) as admin:
        if create and all(one.name != topic for one in admin.list_topics()):
            admin.create_topic(topic, -1)
        partitions = len(find_topic(admin, topic).partitions)
    if partition is not None and partition >= partitions:
        raise Refused(f"topic {topic!r} has no partition {partition}, only 0 to {partitions - 1}.")
    separator = key_separator.encode() if key_separator is not None else None
    source: AsyncIterator[Input]
    if perf:
        number = number or PERF_COUNT
        source = inputs.made_up(number, size)
    elif whole:
        source = inputs.whole(files or [])
    else:
        source = inputs.lines(files or [], key_separator=separator)
        if not files and sys.stdin.isatty():
            say(f"Type records for {topic}, one a line; Ctrl+D ends.")
    with progress(f"to {topic}", number if perf else None) as advance:
        tally = Tally(advance, report=_say_line if perf and not json else None)
        was_interrupted = asyncio.run(
            _run(
                options,
                source,
                tally,
                topic=topic,
                partition=partition,
                headers=fixed,
                rate=rate,
                number=number,
            )
        )
    _tell(tally, topic, perf=perf, json=json)
    if tally.error is not None:
        raise Refused(_failure(tally, topic))
    if was_interrupted:
        raise typer.Exit(INTERRUPTED)


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


async def _run(
    options: Mapping[str, Any],
    source: "AsyncIterator[Input]",
    tally: Tally,
    *,
    topic: str,
    partition: int | None,
    headers: Sequence[tuple[str, bytes]],
    rate: float | None,
    number: int | None,
) -> bool:
    """Sends all; whether Ctrl+C ended it. What was read by then is sent and acknowledged."""
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(**options) as producer:
        tally.begin()
        pump = asyncio.ensure_future(
            _pump(
                producer,
                source,
                tally,
                topic=topic,
                partition=partition,
                headers=headers,
                rate=rate,
                number=number,
            )
        )
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, pump.cancel)
        try:
            await pump
        except asyncio.CancelledError:
            pass
        finally:
            await producer.flush()
        return pump.cancelled()


async def _pump(
    producer: Any,
    source: "AsyncIterator[Input]",
    tally: Tally,
    *,
    topic: str,
    partition: int | None,
    headers: Sequence[tuple[str, bytes]],
    rate: float | None,
    number: int | None,
) -> None:
    def settled(sent_at: float, size: int) -> Callable[[asyncio.Future[Any]], None]:
        return lambda future: tally.done(sent_at, size, future.exception())

    async with aclosing(source) as records:  # type: ignore[type-var]
        async for key, value in records:
            if rate is not None:
                await asyncio.sleep(tally.began + tally.sent / rate - time.perf_counter())
            sent_at = time.perf_counter()
            future = await producer.send(topic, value, key=key, partition=partition, headers=headers)
            future.add_done_callback(settled(sent_at, len(key or b"") + len(value or b"")))
            tally.sent += 1
            if tally.error is not None or tally.sent == number:
                return


def _say_line(text: str) -> None:
    typer.echo(text)


def _tell(tally: Tally, topic: str, *, perf: bool, json: bool) -> None:
    if json:
        print_json({"topic": topic, **tally.figures()})
    elif perf:
        typer.echo(tally.line())
    else:
        say(f"Produced {count(tally.acknowledged, 'record')} to {topic}.")


def _failure(tally: Tally, topic: str) -> str:
    from headrace.cli.failures import explain

    assert isinstance(tally.error, Exception)
    lost = tally.sent - tally.acknowledged
    return f"{count(lost, 'record')} of {tally.sent:,} for topic {topic!r} not acknowledged: {explain(tally.error)}"
