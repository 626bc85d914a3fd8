"""The blog: what share groups do that consumer groups do not, and what becomes of records that cannot be processed."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headrace.testing import KafkaTools
from tests.compat.confluent import consumer as plain_consumer
from tests.compat.confluent import wait_for
from tests.conformance.share.share_client import describe_share_group, start_and_lag
from tests.conformance.share.share_state import ARCHIVED, AVAILABLE, states, written_log
from tests.conformance.steps import topic_id_of
from tests.conformance.wire_client import WireClient
from tests.share_consumers import ACCEPT, REJECT, RELEASE, Delivery, Librdkafka, nothing_comes, take
from tests.stories.records import EXPLICIT, OpenConsumer, poll_each, produce, work

DELIVERIES_MAX = 5


def test_of_three_consumers_on_two_partitions_one_is_idle_in_a_consumer_group_and_none_in_a_share_group(
    bootstrap_servers: str, wire: WireClient, two_partitions: str, consumer: OpenConsumer, closing: ExitStack
) -> None:
    """Both groups read the same topic, at the same time."""
    topic = two_partitions
    readers = [
        closing.enter_context(
            plain_consumer(bootstrap_servers, f"{topic}-consumers", **{"group.protocol": "consumer"})
        )
        for _ in range(3)
    ]
    for reader in readers:
        reader.subscribe([topic])
    wait_for(
        lambda: sorted(len(one.assignment()) for one in readers) == [0, 1, 1], "the group is settled", readers
    )
    sharers = [consumer(max_poll_records=5) for _ in range(3)]
    shared: dict[Librdkafka, list[tuple[int, int]]] = {one: [] for one in sharers}

    def note(sharer: Librdkafka, delivery: Delivery) -> None:
        shared[sharer].append((delivery.partition, delivery.offset))

    produced = 0
    while not all(shared.values()):
        produce(bootstrap_servers, topic, [str(number) for number in range(30)], partitions=2)
        produced += 30
        poll_each(sharers, note)
        assert produced < 3_000, "one share consumer is idle"
    work(sharers, lambda: sum(map(len, shared.values())) >= produced, note)
    everything = [(partition, offset) for partition in (0, 1) for offset in range(produced // 2)]
    assert sorted(one for found in shared.values() for one in found) == everything
    members = describe_share_group(wire, topic).members
    assert len(members) == 3
    assert all(one.assignment.topic_partitions for one in members)

    read: dict[int, list[tuple[int, int]]] = {number: [] for number in range(3)}
    while sum(map(len, read.values())) < produced:
        for number, reader in enumerate(readers):
            for message in reader.consume(500, timeout=0.2):
                assert message.error() is None
                read[number].append((message.partition() or 0, message.offset() or 0))
    assert sorted(one for found in read.values() for one in found) == everything
    assert [len({partition for partition, _ in found}) for found in read.values()].count(0) == 1, (
        "one is idle"
    )


@pytest.mark.parametrize("answer", [REJECT, RELEASE], ids=["rejected", "released"])
def test_every_tenth_record_is_poison(
    bootstrap_servers: str, wire: WireClient, topic: str, consumer: OpenConsumer, answer: int
) -> None:
    """A rejected record is seen once. A released one comes back until its deliveries are used up."""
    poison = set(range(9, 100, 10))
    values = ["{broken" if number in poison else json.dumps({"n": number}) for number in range(100)]
    produce(bootstrap_servers, topic, values, in_one_batch=True)
    worker = consumer(**EXPLICIT, max_poll_records=20)
    processed: list[int] = []
    failed: Counter[int] = Counter()

    def process(worker: Librdkafka, delivery: Delivery) -> None:
        try:
            processed.append(json.loads(delivery.value)["n"])
        except json.JSONDecodeError:
            failed[delivery.offset] += 1
            assert delivery.count == failed[delivery.offset]
            worker.acknowledge(delivery, answer)
        else:
            worker.acknowledge(delivery, ACCEPT)

    tries = 1 if answer == REJECT else DELIVERIES_MAX
    work([worker], lambda: failed == dict.fromkeys(poison, tries) and len(processed) == 90, process)
    assert sorted(processed) == sorted(set(range(100)) - poison)
    assert nothing_comes(worker)
    assert start_and_lag(wire, topic, topic)[1] == 0


def test_every_fifth_key_is_skipped_until_it_is_archived(
    bootstrap_servers: str, wire: WireClient, topic: str, consumer: OpenConsumer
) -> None:
    """The blog's client releases records with the key "skip"; the state topic tells what became of each."""
    keys = ["skip" if number % 5 == 4 else None for number in range(10)]
    produce(bootstrap_servers, topic, [str(number) for number in range(10)], keys=keys)
    worker = consumer(**EXPLICIT)
    seen: Counter[int] = Counter()

    def process(worker: Librdkafka, delivery: Delivery) -> None:
        seen[delivery.offset] += 1
        worker.acknowledge(delivery, RELEASE if delivery.key == b"skip" else ACCEPT)

    work([worker], lambda: seen[4] == seen[9] == DELIVERIES_MAX, process)
    worker.commit()
    assert seen == {offset: DELIVERIES_MAX if keys[offset] else 1 for offset in range(10)}
    assert nothing_comes(worker)
    for offset in (4, 9):
        history = list(written_about(wire, topic, offset))
        assert history == [(AVAILABLE, 1), (AVAILABLE, 2), (AVAILABLE, 3), (AVAILABLE, 4), (ARCHIVED, 5)]


def written_about(wire: WireClient, topic: str, offset: int) -> Iterator[tuple[int, int]]:
    """Every (state, delivery count) that was written for one record."""
    for record in written_log(wire, topic, topic_id_of(wire, topic)):
        for first, last, state, count in states(record.value.state_batches):
            if first <= offset <= last:
                yield state, count


@pytest.mark.needs_kafka
def test_a_group_is_set_back_to_the_earliest_offset(
    bootstrap_servers: str, topic: str, consumer: OpenConsumer
) -> None:
    """By the tool, while nobody is in the group."""
    produce(bootstrap_servers, topic, [str(number) for number in range(10)])
    first = consumer()
    assert [one.offset for one in take(first, 10)] == list(range(10))
    first.commit()
    first.close()
    reset = ("--reset-offsets", "--group", topic, "--all-topics", "--to-earliest", "--execute")
    printed = KafkaTools(bootstrap_servers).run("kafka-share-groups", *reset)
    assert printed.lines[-1].split() == [topic, topic, "0", "0"]
    again = take(consumer(), 10)
    assert [(one.offset, one.count) for one in again] == [(offset, 1) for offset in range(10)]
