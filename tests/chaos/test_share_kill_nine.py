"""kill -9 under a share group at work: producers, our share consumers, librdkafka's, and members on the bare protocol.

Each round kills the server after a random while and starts it again on the same directory and port. Everybody writes
down what they saw, and checker.py judges it. `--rounds N` sets how many kills (few in `make test`, many in
`make chaos`); the seed of all choices is printed and can be given with HEADRACE_SEED.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.chaos.checker import Checker
from tests.chaos.confluent_member import ConfluentMember
from tests.chaos.headrace_member import HeadraceMember, Way
from tests.chaos.history import History, Letter
from tests.chaos.raw_member import Link, RawMember, RawSession, work_off
from tests.chaos.server_process import ServerProcess, choose_seed
from tests.chaos.stream import SETTLE_S_MAX, SteadyProducer, read_all

TOPIC, PARTITIONS, GROUP, LETTERS = "jobs", 3, "workers", "dlq.jobs"
LOCK_S, DELIVERIES_MAX = 2.0, 4
PRODUCERS, IMPLICIT, EXPLICIT, RAW = 3, 2, 2, 4
OURS = [(Way.IMPLICIT, False), (Way.EXPLICIT, False), (Way.HELD, True), (Way.IMPLICIT, True)]
RECORDS_PER_S, POISON_EVERY = 150, 50
"""Of one producer."""
SETTINGS = {
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": int(LOCK_S * 1000),
    "group.share.delivery.count.limit": DELIVERIES_MAX,
    # Often, so that kills also fall on snapshots and pruning.
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
    "share.coordinator.state.topic.prune.interval.ms": 200,
    "num.partitions": 2,
}
GROUP_CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "errors.deadletterqueue.topic.name": LETTERS,
    "errors.deadletterqueue.copy.record.enable": "true",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", tmp_path / "server.log", SETTINGS)
    process.start()
    yield process
    process.close()


def prepare(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in GROUP_CONFIGS.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()


def read_letters(address: str) -> list[Letter]:
    found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).topics
    if LETTERS not in found:
        return []
    letters = []
    for message in read_all(address, LETTERS, len(found[LETTERS].partitions)):
        facts = {
            name.removeprefix("__dlq.errors."): value.decode() for name, value in message.headers() or []
        }
        assert facts["topic"] == TOPIC
        assert facts["group"] == GROUP
        place = int(facts["partition"]), int(facts["offset"])
        letters.append(Letter(place, message.value(), int(facts["delivery.count"]), facts["message"]))
    return letters


def lags(link: Link) -> dict[int, int]:
    asked = {"group_id": GROUP, "topics": None}
    (answer,) = link.ask("describe_share_group_offsets", 1, groups=[asked]).groups
    assert answer.error_code == 0, answer
    return {one.partition_index: one.lag for topic in answer.topics for one in topic.partitions}


def make_members(
    history: History, address: str, choose: random.Random
) -> list[ConfluentMember | RawMember | HeadraceMember]:
    def seed() -> int:
        return choose.randrange(2**31)

    confluent = [
        ConfluentMember(
            f"confluent-{number}",
            history,
            address,
            seed(),
            group=GROUP,
            topic=TOPIC,
            explicit=number >= IMPLICIT,
        )
        for number in range(IMPLICIT + EXPLICIT)
    ]
    raw = [
        RawMember(f"raw-{number}", history, address, seed(), group=GROUP, topic=TOPIC)
        for number in range(RAW)
    ]
    ours = [
        HeadraceMember(
            f"headrace-{number}",
            history,
            address,
            seed(),
            group=GROUP,
            topic=TOPIC,
            way=way,
            is_async=is_async,
        )
        for number, (way, is_async) in enumerate(OURS)
    ]
    return [*confluent, *raw, *ours]


def settle(history: History, server: ServerProcess) -> None:
    """Works off what is left, and notes how it ended."""
    link = Link(server.address)
    until = time.monotonic() + SETTLE_S_MAX
    work_off(
        history,
        server.address,
        "last.1",
        until=until,
        lag=lambda: sum(map(abs, lags(link).values())),
        group=GROUP,
        topic=TOPIC,
    )
    history.lag = lags(link)
    link.close()
    messages = read_all(server.address, TOPIC, PARTITIONS)
    history.log = {(one.partition() or 0, one.offset() or 0): one.value() or b"" for one in messages}
    history.find_places()
    history.letters = read_letters(server.address)


def what_comes_back(history: History, server: ServerProcess) -> int:
    """After everything was settled and the server killed once more: how many records are delivered again."""
    session = RawSession(history, server.address, "afterward.1", group=GROUP, topic=TOPIC)
    again = session.fetch({}, max_records=500, mode=0, wait_ms=500)
    session.leave({})
    return len(again)


@pytest.mark.timeout(0)
def test_a_queue_keeps_its_promises_over_kills(server: ServerProcess, rounds: int) -> None:
    seed = choose_seed()
    print(f"seed {seed}, {rounds} rounds")
    choose = random.Random(seed)
    prepare(server.address)
    history = History()
    producers = [
        SteadyProducer(
            number,
            history,
            server.address,
            topic=TOPIC,
            partitions=PARTITIONS,
            records_per_s=RECORDS_PER_S,
            poison_every=POISON_EVERY,
        )
        for number in range(PRODUCERS)
    ]
    members = make_members(history, server.address, choose)
    for thread in (*producers, *members):
        thread.start()
    try:
        for _ in range(rounds):
            time.sleep(choose.uniform(0.3, 2.0))  # the kill must fall at a moment nobody has chosen
            server.kill()
            server.start()
        time.sleep(2.0)  # some work without a kill, so that the history also shows the last start at work
    finally:
        for thread in (*producers, *members):
            thread.stop()
        for thread in (*producers, *members):
            thread.join(2 * SETTLE_S_MAX)
    assert [thread.name for thread in (*producers, *members) if thread.is_alive()] == []
    assert [producer.failed for producer in producers if producer.failed] == []
    assert [member.failure for member in members if member.failure] == []
    settle(history, server)
    server.kill()
    server.start()
    assert what_comes_back(history, server) == 0
    history.find_lives(server.began_at)
    print(history.summary())
    assert "Traceback" not in server.log.read_text()
    violations = Checker(history, lock_s=LOCK_S, deliveries_max=DELIVERIES_MAX).violations()
    assert violations == [], "\n".join(violations[:20])
