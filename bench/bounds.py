"""Cost that must not grow with history or with neighbors: `python -m bench --only bounds`.

Each measure puts one client beside something large: others that write to 200 partitions, a thousand topics made in one
request, a share consumer of thousands of partitions that is lost, readers that do not read, a long past. `--before
FOLDER` adds an older checkout of this repository as a contender. On a disk whose syncs take 10 ms (a library that
delays them is compiled if there is a C compiler) our broker is measured alone.
"""

import multiprocessing
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median

from bench.brokers import Apache, BrokerProcess, Headrace, Policy, Running
from bench.clients import history
from bench.contest import Contest, Measure
from bench.machine import memory_mb
from bench.wire import BrokerRefused, Connection, create_topic, request_frame, set_group_config
from headrace.wire.message import Message
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.share_fetch_request import FetchPartition as SharePartition
from headrace.wire.messages.share_fetch_request import FetchTopic as ShareTopic
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.records import NewRecord, build_batch

REFERENCE = Apache.name
NEIGHBORS = (0, 20, 200)
TOPICS = 1_000
SHARE_PARTITIONS = 4_000
READERS, READER_BYTES = 20, 50_000_000
DIRTY_PARTITIONS = 700
SLOW_MS = 10
LATENCY_S = 4.0
WARM_ROUNDS = 2
"""Not counted: a cold JVM answers ten times as slowly."""
PING_EVERY_S = 0.003
PINGS_FIRST = 20
"""Not counted."""
START_TIMEOUT_S = 120

LATENCY = Measure("produce acks=all with fsync, p50", "ms", False)
WAIT = Measure("longest wait of another client", "ms", False)
MEMORY = Measure("memory held for readers that do not read", "MB", False)
START = Measure("start to the first answer from its state", "ms", False)
STOP = Measure("clean stop", "s", False)

_numbers = count(1)
_processes = multiprocessing.get_context("spawn")

SLOW_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static void pause_ms(void) { struct timespec t = {MS / 1000, (MS % 1000) * 1000000L}; nanosleep(&t, 0); }
int fdatasync(int fd) { int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync"); pause_ms(); return real(fd); }
int fsync(int fd) { int (*real)(int) = dlsym(RTLD_NEXT, "fsync"); pause_ms(); return real(fd); }
"""


def run_bounds(
    contest: Contest, folder: Path, *, rounds: int, before: Path | None, say: Callable[[str], None]
) -> None:
    def ours(settings: str, **env: str) -> list[Headrace]:
        contenders = [Headrace(folder / settings, bytecode=folder / "bytecode", env=env)]
        if before is not None:
            older = {"PYTHONPATH": str(before.resolve() / "src"), **env}
            contenders.append(
                Headrace(folder / settings, bytecode=folder / "bytecode", name="before", env=older)
            )
        return contenders

    slow = _slow_library(folder, say)
    for number in range(rounds):
        say(f"bounds: round {number + 1}")
        contenders: list[BrokerProcess] = [*ours(f"plain-{number}"), Apache(folder / f"plain-{number}")]
        for broker in contenders:
            _measure(contest, broker, say)
        if slow is not None:
            for headrace in ours(f"slow-{number}", LD_PRELOAD=str(slow)):
                _measure_slow_disk(contest, headrace, say)
        shutil.rmtree(folder / f"plain-{number}", ignore_errors=True)


def _slow_library(folder: Path, say: Callable[[str], None]) -> Path | None:
    compiler = shutil.which("cc")
    if compiler is None:
        say("bounds: no C compiler, so nothing is measured on a slow disk")
        return None
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text(SLOW_SYNC)
    command = [compiler, "-shared", "-fPIC", f"-DMS={SLOW_MS}", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def _measure(contest: Contest, broker: BrokerProcess, say: Callable[[str], None]) -> None:
    def note(measure: Measure, setting: str, value: float) -> None:
        contest.add(measure, setting, broker.name, value)
        say(f"bounds: {broker.name}: {measure.name}, {setting}: {value:.1f} {measure.unit}")

    try:
        running = broker.start(Policy.FSYNC)
        for _ in range(WARM_ROUNDS):
            _latency_ms(running, 0)
        for neighbors in NEIGHBORS:
            note(LATENCY, _beside(neighbors), _latency_ms(running, neighbors))
        for setting, waited_ms in _waits(running):
            note(WAIT, setting, waited_ms)
        note(MEMORY, f"{READERS} readers that ask for {READER_BYTES // 10**6} MB each", _readers_mb(running))
        broker.stop()
        for past in history.HISTORIES:
            running = broker.start(Policy.PAGE_CACHE)
            with Connection(running.bootstrap_servers) as connection:
                history.prepare(connection)
                past.make(connection, past.count)
            for ending, end in (("clean stop", broker.stop), ("kill -9", broker.kill)):
                end()
                started = time.perf_counter()
                running = broker.start_again(Policy.PAGE_CACHE)
                _wait_until(running, past.is_back)
                note(START, f"{past.count:,} {past.name}, {ending}", (time.perf_counter() - started) * 1000)
            broker.stop()
    finally:
        broker.kill()


def _measure_slow_disk(contest: Contest, broker: Headrace, say: Callable[[str], None]) -> None:
    def note(measure: Measure, setting: str, value: float) -> None:
        setting = f"{setting}, syncs of {SLOW_MS} ms"
        contest.add(measure, setting, broker.name, value)
        say(f"bounds: {broker.name}: {measure.name}, {setting}: {value:.1f} {measure.unit}")

    try:
        running = broker.start(Policy.FSYNC)
        for neighbors in NEIGHBORS:
            note(LATENCY, _beside(neighbors), _latency_ms(running, neighbors))
        with Connection(running.bootstrap_servers) as connection:
            with _pinged(running) as ping:
                _create_topics(connection, "slow", 100)
            note(WAIT, "100 topics created", ping.worst_ms)
            with _pinged(running) as ping:
                _produce(connection, "slow-0", 1)
                partition = DeleteRecordsPartition(partition_index=0, offset=-1)
                topic = DeleteRecordsTopic(name="slow-0", partitions=(partition,))
                connection.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=30_000), 2)
            note(WAIT, "DeleteRecords", ping.worst_ms)
            create_topic(connection, "dirty", partitions=DIRTY_PARTITIONS)
            _produce(connection, "dirty", DIRTY_PARTITIONS, acks=1)
        started = time.perf_counter()
        status = broker.stop(timeout_s=300)
        stopped_s = time.perf_counter() - started
        is_clean = (broker.home / "data" / "clean-shutdown").exists()
        outcome = "clean" if is_clean else "not clean"
        note(STOP, f"{DIRTY_PARTITIONS} written partitions", stopped_s)
        say(f"bounds: {broker.name}: the stop was {outcome}, exit status {status}")
    finally:
        broker.kill()


def _beside(partitions: int) -> str:
    return f"others write to {partitions} partitions" if partitions else "alone"


def _batch() -> bytes:
    return build_batch([NewRecord(None, b"x" * 100, (), int(time.time() * 1000))])


def _produce_request(topic: str, partitions: int, acks: int = -1) -> ProduceRequest:
    batch = _batch()
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = (TopicProduceData(name=topic, partition_data=data),)
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=topics)


def _produce(connection: Connection, topic: str, partitions: int, acks: int = -1) -> None:
    response = connection.ask(_produce_request(topic, partitions, acks), 12)
    if any(partition.error_code for partition in response.responses[0].partition_responses):
        raise BrokerRefused(f"producing to {topic} was refused")


def _produce_first(connection: Connection, topic: str, partitions: int) -> None:
    """Apache Kafka names a leader a moment before that one serves."""
    deadline = time.perf_counter() + START_TIMEOUT_S
    while True:
        try:
            _produce(connection, topic, partitions)
            return
        except BrokerRefused:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.05)


def _latency_ms(broker: Running, neighbors: int) -> float:
    """The median of one producer's round trips while another process writes to its partitions without a pause."""
    number = next(_numbers)
    mine, theirs = f"mine-{number}", f"theirs-{number}"
    with Connection(broker.bootstrap_servers, timeout_s=60) as connection:
        create_topic(connection, mine, partitions=1, configs=broker.topic_configs)
        _produce_first(connection, mine, 1)
        if neighbors:
            create_topic(connection, theirs, partitions=neighbors, configs=broker.topic_configs)
            _produce_first(connection, theirs, neighbors)
        with _beside_us(_write, broker.bootstrap_servers, theirs, neighbors) if neighbors else nullcontext():
            times, deadline = [], time.perf_counter() + LATENCY_S
            while time.perf_counter() < deadline:
                started = time.perf_counter()
                _produce(connection, mine, 1)
                times.append((time.perf_counter() - started) * 1000)
    return median(times)


@contextmanager
def _beside_us(work: Callable[..., None], *given: object) -> Iterator[None]:
    """`work` in a process of its own: a thread would share the interpreter's lock with what is measured."""
    is_ready, is_over = _processes.Event(), _processes.Event()
    process = _processes.Process(target=work, args=(is_ready, is_over, *given), daemon=True)
    process.start()
    try:
        if not is_ready.wait(START_TIMEOUT_S):
            raise BrokerRefused("the process beside the measurement has not started")
        yield
    finally:
        is_over.set()
        process.join()


def _write(is_ready: Event, is_over: Event, bootstrap_servers: str, topic: str, partitions: int) -> None:
    request = _produce_request(topic, partitions)
    frame = request_frame(request, 12)
    with Connection(bootstrap_servers, timeout_s=60) as connection:
        _produce(connection, topic, partitions)
        is_ready.set()
        while not is_over.is_set():
            connection.socket.sendall(frame)
            connection.receive()


class _Ping:
    def __init__(self) -> None:
        self._worst_ms = _processes.Value("d", 0.0)

    @property
    def worst_ms(self) -> float:
        return float(self._worst_ms.value)

    def run(self, is_ready: Event, is_over: Event, bootstrap_servers: str) -> None:
        """Asks for ApiVersions over and over; `worst_ms` is the longest that took."""
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        frame = request_frame(request, 3)
        with Connection(bootstrap_servers, timeout_s=120) as connection:
            for _ in range(PINGS_FIRST):
                connection.ask(request, 3)
            is_ready.set()
            while not is_over.is_set():
                started = time.perf_counter()
                connection.socket.sendall(frame)
                connection.receive()
                waited_ms = (time.perf_counter() - started) * 1000
                self._worst_ms.value = max(self._worst_ms.value, waited_ms)
                time.sleep(PING_EVERY_S)


@contextmanager
def _pinged(broker: Running) -> Iterator[_Ping]:
    ping = _Ping()
    with _beside_us(ping.run, broker.bootstrap_servers):
        yield ping
        time.sleep(0.1)


def _create_topics(connection: Connection, prefix: str, count: int) -> None:
    topics = [
        CreatableTopic(name=f"{prefix}-{number}", num_partitions=1, replication_factor=1)
        for number in range(count)
    ]
    response = connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 6)
    if any(topic.error_code for topic in response.topics):
        raise BrokerRefused(f"creating {count} topics was refused")


def _waits(broker: Running) -> Iterator[tuple[str, float]]:
    with Connection(broker.bootstrap_servers, timeout_s=120) as connection:
        with _pinged(broker) as ping:
            _create_topics(connection, "many", TOPICS)
        yield f"{TOPICS:,} topics created", ping.worst_ms
        with _pinged(broker) as ping:
            names = [f"many-{number}" for number in range(TOPICS)]
            connection.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 4)
        yield f"{TOPICS:,} topics deleted", ping.worst_ms
        if broker.name == Apache.name:
            return  # it would need minutes for the partitions of one share group
        create_topic(connection, "shared", partitions=SHARE_PARTITIONS)
        with _pinged(broker) as ping:
            _lose_share_consumer(broker, connection)
            time.sleep(1)
        yield f"share consumer of {SHARE_PARTITIONS:,} partitions joins and is lost", ping.worst_ms


def _lose_share_consumer(broker: Running, admin: Connection) -> None:
    set_group_config(admin, "bounds", "share.auto.offset.reset", "earliest")
    request = MetadataRequest(topics=(MetadataRequestTopic(name="shared"),))
    topic_id = admin.ask(request, 12).topics[0].topic_id
    member = "BBBBBBBBBBBBBBBBBBBBBB"
    heartbeat: Message = ShareGroupHeartbeatRequest(
        group_id="bounds", member_id=member, member_epoch=0, subscribed_topic_names=("shared",)
    )
    admin.ask(heartbeat, 1)
    with Connection(broker.bootstrap_servers, timeout_s=120) as connection:
        partitions = [SharePartition(partition_index=index) for index in range(SHARE_PARTITIONS)]
        for epoch in (0, 1):
            fetch = ShareFetchRequest(
                group_id="bounds",
                member_id=member,
                share_session_epoch=epoch,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=500,
                batch_size=500,
                topics=(ShareTopic(topic_id=topic_id, partitions=partitions),) if not epoch else (),
            )
            connection.ask(fetch, 1)


def _readers_mb(broker: Running) -> float:
    """What the broker's memory grows by."""
    with Connection(broker.bootstrap_servers) as connection:
        create_topic(connection, "large", partitions=1)
        batch = build_batch([NewRecord(None, bytes(900_000), (), int(time.time() * 1000))])
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=1, timeout_ms=30_000, topic_data=(TopicProduceData(name="large", partition_data=(data,)),)
        )
        for _ in range(60):
            connection.ask(request, 12)
    before = memory_mb(broker.pid)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=READER_BYTES)
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=READER_BYTES,
        session_epoch=-1,
        topics=(FetchTopic(topic="large", partitions=(wanted,)),),
    )
    readers = [Connection(broker.bootstrap_servers) for _ in range(READERS)]
    for reader in readers:
        reader.send(fetch, 12)
    time.sleep(2)
    held = memory_mb(broker.pid) - before
    for reader in readers:
        reader.close()
    return max(0.0, held)


def _wait_until(broker: Running, is_back: Callable[[Connection], bool]) -> None:
    deadline = time.perf_counter() + START_TIMEOUT_S
    with Connection(broker.bootstrap_servers) as connection:
        while not is_back(connection):
            if time.perf_counter() > deadline:
                raise BrokerRefused(f"{broker.name} has not got its state back after {START_TIMEOUT_S} s")
            time.sleep(0.002)
