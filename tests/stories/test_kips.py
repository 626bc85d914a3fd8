"""The examples of the proposals: KIP-1206's record limit and KIP-1222's renewed locks, with Java's consumer."""

import time
from collections.abc import Callable

import pytest

from tests.conformance.share.share_client import set_group
from tests.conformance.wire_client import WireClient
from tests.share_consumers import RENEW, WAIT_S, JavaShareConsumer, nothing_comes, take
from tests.stories.records import EXPLICIT, OpenConsumer, produce

pytestmark = pytest.mark.needs_kafka
OpenJava = Callable[..., JavaShareConsumer]


@pytest.fixture
def batches_of_five(bootstrap_servers: str, topic: str) -> str:
    """0-4, 5-9 and 10-14."""
    for first in (0, 5, 10):
        produce(bootstrap_servers, topic, [str(first + number) for number in range(5)], in_one_batch=True)
    return topic


@pytest.mark.parametrize(
    ("mode", "polls"),
    [
        ("batch_optimized", [range(10), range(10, 15)]),
        ("record_limit", [range(6), range(6, 12), range(12, 15)]),
    ],
)
def test_six_records_a_poll_from_batches_of_five(
    java_consumer: OpenJava, batches_of_five: str, mode: str, polls: list[range]
) -> None:
    """KIP-1206: six is a hint in one mode and a limit in the other."""
    client = java_consumer(max_poll_records=6, share_acquire_mode=mode)
    assert [[one.offset for one in take(client, 1)] for _ in polls] == [list(one) for one in polls]
    assert nothing_comes(client)


def test_in_record_limit_a_batch_is_shared_by_two_consumers(
    java_consumer: OpenJava, consumer: OpenConsumer, batches_of_five: str
) -> None:
    """KIP-1206: the rest of a batch is another consumer's, although the first was sent all of it."""
    first = java_consumer(max_poll_records=6, share_acquire_mode="record_limit", **EXPLICIT)
    # One long poll: a poll that ends empty while a fetch is in flight makes Java's consumer fetch six more.
    assert [one.offset for one in first.poll(WAIT_S)] == list(range(6))
    assert [one.offset for one in take(consumer(), 9)] == list(range(6, 15))


def test_long_work_keeps_its_lock_by_renewing_it(
    bootstrap_servers: str, wire: WireClient, topic: str, java_consumer: OpenJava, consumer: OpenConsumer
) -> None:
    """KIP-1222: the work takes longer than the lock, and nobody else gets the record."""
    set_group(wire, topic, record_lock_duration_ms="3000")
    produce(bootstrap_servers, topic, ["long"])
    worker = java_consumer(**EXPLICIT)
    (record,) = take(worker, 1)
    bystander = consumer()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        worker.acknowledge(record, RENEW)
        assert worker.commit() == {0: None}
        (record,) = take(worker, 1)
        assert record.count == 1
        assert bystander.poll(0.3) == []
    worker.acknowledge(record)
    assert worker.commit() == {0: None}
    assert nothing_comes(bystander, for_s=1.2)
