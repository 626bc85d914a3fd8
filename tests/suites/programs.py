"""Apache Kafka's own system test programs against our broker: Kafka Streams' smoke test, and Trogdor's share workloads.

They are whole programs, not JUnit tests. The smoke test has two instances of an application, one of which is killed
while a driver produces for a minute and a half; then the driver checks every result.
"""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace import Admin, Producer
from headrace.testing.child_process import ChildProcess
from headrace.testing.java import JavaNotFound, find_java
from headrace.testing.kafka_jars import KAFKA_VERSION, JarsUnavailable, kafka_jars
from tests.suites.broker import served
from tests.suites.jars import streams_jars, trogdor_jars
from tests.suites.results import Outcome, Result, SuiteRun

SUITE, VERSION = "apache-programs", f"Apache Kafka {KAFKA_VERSION}"
DRIVER_S_MAX = 420
WORKLOAD_S_MAX = 180
KILL_AFTER_S = 40
AGENT = "org.apache.kafka.trogdor.agent.Agent"
STREAMS = "org.apache.kafka.streams.tests.StreamsSmokeTest"
TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum"),
    *("sws-raw", "sws-suppressed", "cnt", "avg", "tagg", "fk"),
)
NODE = "node0"
RECORDS = 20_000


def why_not() -> str | None:
    """Why these programs cannot run on this machine."""
    try:
        find_java()
        kafka_jars()
        streams_jars()
        trogdor_jars()
    except (JavaNotFound, JarsUnavailable) as error:
        return str(error)
    return None


def run() -> SuiteRun:
    reason = why_not()
    if reason is not None:
        return SuiteRun(SUITE, VERSION, left_out=reason)
    programs: dict[tuple[str, str], Callable[[Path, str], str]] = {
        ("StreamsSmokeTest", "exactly_once_v2 with a killed instance"): smoke_test,
        ("Trogdor", "ShareRoundTripWorkload"): share_round_trip,
        ("Trogdor", "ShareConsumeBench"): share_consume_bench,
    }
    return SuiteRun(SUITE, VERSION, tuple(_judged(*name, program) for name, program in programs.items()))


def _judged(group: str, test: str, program: Callable[[Path, str], str]) -> Result:
    began = time.monotonic()
    with TemporaryDirectory(prefix="suites-") as name, served(Path(name)) as broker:
        failed = program(Path(name), broker.addresses["PLAINTEXT"])
    outcome = Outcome.FAILED if failed else Outcome.PASSED
    return Result(group, test, outcome, time.monotonic() - began, failed)


def smoke_test(folder: Path, servers: str) -> str:
    """What went wrong, if anything did."""
    with Admin(bootstrap_servers=servers) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, 5)
    with ExitStack() as stack:
        instances = [stack.enter_context(_instance(folder, servers, number)) for number in range(2)]
        driver = stack.enter_context(_streams(folder, "driver", _settings(folder, servers, "driver"), "run"))
        try:
            driver.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            instances[0].kill()
            stack.enter_context(_instance(folder, servers, 2))
        return _verdict(driver, DRIVER_S_MAX, "SUCCESS")


def _instance(folder: Path, servers: str, number: int) -> "AbstractContextManager[ChildProcess]":
    name = f"instance-{number}"
    return _streams(folder, name, _settings(folder, servers, name), "process")


def _settings(folder: Path, servers: str, name: str) -> Path:
    file = folder / f"{name}.properties"
    settings = {
        "bootstrap.servers": servers,
        "processing.guarantee": "exactly_once_v2",
        "state.dir": str(folder / f"{name}-state"),
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


@contextmanager
def _streams(folder: Path, name: str, settings: Path, command: str) -> Iterator[ChildProcess]:
    classes = os.pathsep.join(f"{jars}/*" for jars in [*streams_jars(), kafka_jars()])
    with _java(folder, name, classes, STREAMS, str(settings), command) as process:
        yield process


def share_round_trip(folder: Path, servers: str) -> str:
    """Each record that is sent must come back through a share group."""
    spec = {
        "class": "org.apache.kafka.trogdor.workload.ShareRoundTripWorkloadSpec",
        "clientNode": NODE,
        "targetMessagesPerSec": 5_000,
        "activeTopics": {"trips": {"numPartitions": 5, "replicationFactor": 1}},
    }
    return _workload(folder, servers, spec)


def share_consume_bench(folder: Path, servers: str) -> str:
    """A share group takes all records: the workload ends when each of its consumers has so many."""
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topic("bench", 5)
        admin.set_group_config("bench-group", {"share.auto.offset.reset": "earliest"})
        for number in range(RECORDS):
            producer.send("bench", str(number))
    spec = {
        "class": "org.apache.kafka.trogdor.workload.ShareConsumeBenchSpec",
        "consumerNode": NODE,
        "targetMessagesPerSec": 10_000,
        "shareGroup": "bench-group",
        "threadsPerWorker": 1,
        "activeTopics": ["bench"],
    }
    return _workload(folder, servers, spec)


def _workload(folder: Path, servers: str, spec: dict[str, object]) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "trogdor.conf"
    nodes = {NODE: {"hostname": "localhost", "trogdor.agent.port": port}}
    config.write_text(
        json.dumps({"platform": "org.apache.kafka.trogdor.basic.BasicPlatform", "nodes": nodes})
    )
    task = folder / "task.json"
    limits = {"startMs": 0, "durationMs": WORKLOAD_S_MAX * 1000, "maxMessages": RECORDS}
    task.write_text(json.dumps({**spec, **limits, "bootstrapServers": servers}))
    arguments = ["--agent.config", str(config), "--node-name", NODE, "--exec", str(task)]
    with _java(folder, "trogdor", f"{trogdor_jars()}/*", AGENT, *arguments) as agent:
        return _verdict(agent, WORKLOAD_S_MAX, "Task succeeded with status")


@contextmanager
def _java(folder: Path, name: str, classes: str, main: str, *arguments: str) -> Iterator[ChildProcess]:
    command: list[str | Path] = [
        find_java().executable,
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        classes,
    ]
    process = ChildProcess([*command, main, *arguments], output=folder / f"{name}.log")
    try:
        yield process
    finally:
        process.stop()


def _verdict(process: ChildProcess, timeout_s: float, success: str) -> str:
    """Empty if the program has said that all is well."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return f"did not end within {timeout_s:g} s: {process.output_tail(3)}"
    said = process.output_text().splitlines()
    return "" if any(line.startswith(success) for line in said) else process.output_tail(8)
