"""A client that costs next to nothing, so that the broker sets the pace: `python -m bench.clients.raw produce ...`.

It sends one prepared batch over and over (150 records of 100 bytes, acks=all, no producer id), five requests in
flight on each of several connections; and it fetches a megabyte at a time, looking at batch headers only.
"""

import argparse
import struct
import time
from pathlib import Path

from bench.clients import RECORD_BYTES, RECORDS_PER_BATCH
from bench.clients.figures import Figures, Stopwatch
from bench.wire import BrokerRefused, Connection, request_frame
from headrace.wire.batches import FRAME_SIZE, HEADER_SIZE
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import NewRecord, build_batch

CONNECTIONS = 3
IN_FLIGHT = 5
FETCH_BYTES = 1 << 20
# Versions before the flexible ones: fields stand where a struct can find them, which keeps this client cheap.
PRODUCE_VERSION = 8
FETCH_VERSION = 11
CORRELATION_AT = 8

_COUNT = struct.Struct(">i")
_FETCH_HEAD = struct.Struct(">iihii")
_FETCH_PARTITION = struct.Struct(">ihqqq")
_BATCH = struct.Struct(">qi11xi")
_BATCH_COUNT_AT = HEADER_SIZE - 4


def batch(records: int = RECORDS_PER_BATCH) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch([NewRecord(None, bytes(RECORD_BYTES), (), now_ms)] * records)


def produce_frame(topic: str, partition: int, data: bytes) -> bytearray:
    wanted = PartitionProduceData(index=partition, records=data)
    topics = (TopicProduceData(name=topic, partition_data=(wanted,)),)
    return request_frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)


def produce(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: int,
    seconds: float,
    records: int | None = None,
    ca: Path | None = None,
) -> Figures:
    """Goes on for `seconds`, or until `records` are acknowledged if that comes first."""
    connections = [Connection(bootstrap_servers, ca=ca) for _ in range(CONNECTIONS)]
    frames = [produce_frame(topic, index % partitions, batch()) for index in range(CONNECTIONS)]
    batches_max = None if records is None else -(-records // RECORDS_PER_BATCH)
    sent = acknowledged = 0
    watch = Stopwatch()
    deadline = watch.started + seconds
    for connection, frame in zip(connections, frames, strict=True):
        for _ in range(IN_FLIGHT):
            connection.socket.sendall(frame)
            sent += 1
    is_sending = True
    while acknowledged < sent:
        for connection, frame in zip(connections, frames, strict=True):
            if acknowledged == sent:
                break
            require_produced(connection.receive(), len(topic))
            acknowledged += 1
            is_sending = is_sending and time.perf_counter() < deadline
            if is_sending and (batches_max is None or sent < batches_max):
                connection.socket.sendall(frame)
                sent += 1
    figures = watch.figures(acknowledged * RECORDS_PER_BATCH)
    for connection in connections:
        connection.close()
    return figures


def require_produced(response: bytearray, name_length: int) -> None:
    """Correlation id, one topic, one partition, its index; then the error code."""
    (code,) = struct.unpack_from(">h", response, 4 + 4 + 2 + name_length + 4 + 4)
    if code:
        raise BrokerRefused(f"produce: {ErrorCode(code).name}")


def fetch_frame(topic: str, partition: int, offset: int) -> bytearray:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
    )
    return request_frame(request, FETCH_VERSION)


def records_of(response: bytearray | bytes, name_length: int) -> tuple[int, int]:
    """How many records a fetch response holds in whole batches, and the offset to go on from: 0 again at the end."""
    _, _, code, _, _ = _FETCH_HEAD.unpack_from(response)
    position = _FETCH_HEAD.size + 2 + name_length + 4
    _, partition_code, end_offset, _, _ = _FETCH_PARTITION.unpack_from(response, position)
    if code or partition_code:
        raise BrokerRefused(f"fetch: {ErrorCode(code or partition_code).name}")
    position += _FETCH_PARTITION.size
    (aborted,) = _COUNT.unpack_from(response, position)
    position += 4 + 16 * max(0, aborted) + 4
    (size,) = _COUNT.unpack_from(response, position)
    position += 4
    end, count, next_offset = position + max(0, size), 0, end_offset
    while end - position >= HEADER_SIZE:
        base_offset, length, last_delta = _BATCH.unpack_from(response, position)
        if position + FRAME_SIZE + length > end:
            break
        count += _COUNT.unpack_from(response, position + _BATCH_COUNT_AT)[0]
        next_offset = base_offset + last_delta + 1
        position += FRAME_SIZE + length
    return count, next_offset if next_offset < end_offset else 0


def fetch(
    bootstrap_servers: str, topic: str, *, partitions: int, seconds: float, ca: Path | None = None
) -> Figures:
    """Reads a topic that is already there, each connection by itself, and from the beginning again at its end."""
    connections = [Connection(bootstrap_servers, ca=ca) for _ in range(CONNECTIONS)]
    for index, connection in enumerate(connections):
        connection.socket.sendall(fetch_frame(topic, index % partitions, 0))
    read = 0
    watch = Stopwatch()
    deadline = watch.started + seconds
    while time.perf_counter() < deadline:
        for index, connection in enumerate(connections):
            count, offset = records_of(connection.receive(), len(topic))
            connection.socket.sendall(fetch_frame(topic, index % partitions, offset))
            read += count
    figures = watch.figures(read)
    for connection in connections:
        connection.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["produce", "fetch"])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--records", type=int)
    parser.add_argument("--ca", type=Path, help="of a listener with TLS")
    chosen = parser.parse_args()
    server, topic, partitions, seconds, ca = (
        chosen.bootstrap_server,
        chosen.topic,
        chosen.partitions,
        chosen.seconds,
        chosen.ca,
    )
    if chosen.task == "produce":
        figures = produce(
            server, topic, partitions=partitions, seconds=seconds, records=chosen.records, ca=ca
        )
    else:
        figures = fetch(server, topic, partitions=partitions, seconds=seconds, ca=ca)
    figures.print()


if __name__ == "__main__":
    main()
