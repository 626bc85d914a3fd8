"""Share consumers as their users know them: what Java's KafkaShareConsumer and librdkafka's make of a broker's answers.

Every story is told once per client and broker. The wire is used only to set the scene.
Scenario numbers are those of docs/concepts/share-semantics.md.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import RELEASE as RELEASED
from tests.conformance.share.share_client import NewMember, fill, new_queue, offsets_of
from tests.conformance.share.share_state import read_state
from tests.conformance.steps import batch, produced
from tests.conformance.wire_client import WireClient
from tests.share_consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    WAIT_S,
    Commit,
    JavaRuntime,
    JavaShareConsumer,
    Librdkafka,
    NotAllowed,
    ShareClient,
    Unreadable,
    java_runtime,
    nothing_comes,
    take,
)

pytestmark = pytest.mark.needs_kafka
Open = Callable[..., ShareClient]
OpenJava = Callable[..., JavaShareConsumer]
EXPLICIT = {"share_acknowledgement_mode": "explicit"}
QUICK: dict[str, Any] = {"heartbeat_interval_ms": "100"}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaRuntime]:
    with java_runtime() as runtime:
        yield runtime


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def open_java(broker: BrokerUnderTest, java: JavaRuntime, unique: str, closing: ExitStack) -> OpenJava:
    """Opens Java clients of the test's queue; all are closed at the end."""

    def open_one(**settings: str) -> JavaShareConsumer:
        client = JavaShareConsumer(java, broker.bootstrap_servers, unique, unique, **settings)
        closing.callback(client.close)
        return client

    return open_one


@pytest.fixture(params=["librdkafka", pytest.param("java", marks=pytest.mark.needs_java_client)])
def open_client(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, unique: str, closing: ExitStack
) -> Open:
    """Opens clients of the test's queue, of one kind and then of the other; all are closed at the end."""
    if request.param == "java":
        return request.getfixturevalue("open_java")  # type: ignore[no-any-return]

    def open_one(**settings: str) -> ShareClient:
        client = Librdkafka(broker.bootstrap_servers, unique, unique, **settings)
        closing.callback(client.close)
        return client

    return open_one


def test_a_poll_is_refused_until_every_record_has_its_answer(
    wire: WireClient, open_client: Open, unique: str
) -> None:
    """Scenario 66."""
    new_queue(wire, unique, 5, **QUICK)
    client = open_client(**EXPLICIT)
    deliveries = take(client, 5)
    for delivery in deliveries[:4]:
        client.acknowledge(delivery)
    with pytest.raises(NotAllowed):
        client.poll()
    client.acknowledge(deliveries[4], RELEASE)
    assert [(one.offset, one.count) for one in take(client, 1)] == [(4, 2)]


def test_a_client_that_closes_without_another_poll_accepts_nothing(
    wire: WireClient, open_client: Open, unique: str
) -> None:
    """Scenario 67: implicit acknowledgement comes with the next poll."""
    new_queue(wire, unique, 5, **QUICK)
    first = open_client()
    assert {one.count for one in take(first, 5)} == {1}
    first.close()
    second = open_client()
    assert [(one.offset, one.count) for one in take(second, 5)] == [(offset, 2) for offset in range(5)]
    assert nothing_comes(second)
    second.close()
    assert nothing_comes(open_client())


@pytest.mark.parametrize("is_rejected", [False, True])
def test_a_value_that_cannot_be_read_is_released_unless_it_is_rejected(
    wire: WireClient, open_java: OpenJava, member: NewMember, unique: str, is_rejected: bool
) -> None:
    """Scenario 68. Only Java's client reads values itself."""
    topic_id = new_queue(wire, unique, **QUICK)
    number = (7).to_bytes(4, "big")
    produced(wire, unique, batch(number, "no number", number))
    client = open_java(values="IntegerDeserializer", **EXPLICIT)
    (before,) = take(client, 1)
    assert (before.offset, before.value) == (0, 7)
    client.acknowledge(before)
    assert client.commit() == {0: None}  # a poll that raises forgets what was acknowledged before it
    with pytest.raises(Unreadable) as raised:
        take(client, 1)
    assert raised.value.offset == 1
    if is_rejected:
        client.acknowledge_offset(unique, 0, 1, REJECT)
    client.commit()
    client.close()
    left = [2] if is_rejected else [1, 2]
    taken = member(topic_id).take(len(left), 0)
    assert offsets_of(taken) == left
    # A fetch of the client may acquire the released record once more before the client closes.
    assert {count for *_, count in taken} <= {2, 3}


def test_a_client_hands_out_only_what_it_acquired(
    wire: WireClient, open_client: Open, member: NewMember, unique: str
) -> None:
    """Scenario 69: a batch comes whole, although another member holds the rest of it."""
    other = member(new_queue(wire, unique, 10, **QUICK))
    other.take(10, 0)
    assert other.ack((3, 5, RELEASED), (8, 8, RELEASED)) == 0
    client = open_client()
    assert [(one.offset, one.count) for one in take(client, 4)] == [(3, 2), (4, 2), (5, 2), (8, 2)]
    assert nothing_comes(client)


def test_record_limit_hands_out_no_more_than_was_asked_for(
    wire: WireClient, open_java: OpenJava, unique: str
) -> None:
    """Scenario 69, with KIP-1206's mode: batches of five, six records a poll."""
    new_queue(wire, unique, 5, 5, 5, **QUICK)
    client = open_java(max_poll_records="6", share_acquire_mode="record_limit")
    polls = [[one.offset for one in take(client, 1)] for _ in range(3)]
    assert polls == [list(range(6)), list(range(6, 12)), [12, 13, 14]]


def test_the_callback_tells_what_was_committed_and_what_was_not(
    wire: WireClient, open_client: Open, unique: str
) -> None:
    """Scenario 70: another leader reads the state, and the one we talk to may write no more."""
    topic_id = new_queue(wire, unique, 5, **QUICK)
    client = open_client(**EXPLICIT)
    deliveries = take(client, 5)
    for delivery in deliveries[:3]:
        client.acknowledge(delivery)
    assert client.commit() == {0: None}
    assert client.commits == [Commit(0, frozenset({0, 1, 2}), None)]
    assert read_state(wire, unique, topic_id, leader_epoch=99).error_code == 0
    for delivery in deliveries[3:]:
        client.acknowledge(delivery, ACCEPT)
    assert client.commit() == {0: "NOT_LEADER_OR_FOLLOWER"}
    assert client.commits[1:] == [Commit(0, frozenset({3, 4}), "NOT_LEADER_OR_FOLLOWER")]


def test_a_renewed_record_is_handed_out_again_with_the_same_count(
    wire: WireClient, open_java: OpenJava, unique: str
) -> None:
    """As KIP-1222 says."""
    new_queue(wire, unique, 2, **QUICK)
    client = open_java(**EXPLICIT)
    deliveries = take(client, 2)
    assert client.lock_timeout_ms() == 30_000
    client.acknowledge(deliveries[0])
    client.acknowledge(deliveries[1], RENEW)
    (again,) = take(client, 1)
    assert (again.offset, again.count) == (1, 1)
    client.acknowledge(again)
    assert client.commit() == {0: None}
    assert nothing_comes(client)


def test_both_clients_work_on_one_partition_without_getting_in_each_others_way(
    wire: WireClient, open_java: OpenJava, broker: BrokerUnderTest, closing: ExitStack, unique: str
) -> None:
    """Scenario 71: version 1 of the APIs beside version 2."""
    new_queue(wire, unique, **QUICK)
    settings = {"max_poll_records": "10"}
    librdkafka = Librdkafka(broker.bootstrap_servers, unique, unique, **settings)
    closing.callback(librdkafka.close)
    clients: dict[str, ShareClient] = {"java": open_java(**settings), "librdkafka": librdkafka}
    handed_out: dict[str, list[int]] = {name: [] for name in clients}
    deadline = time.monotonic() + WAIT_S
    records = 0
    while not all(len(offsets) > 40 for offsets in handed_out.values()):
        assert time.monotonic() < deadline, handed_out
        fill(wire, unique, *[5] * 4)
        records += 20
        for name, client in clients.items():
            handed_out[name] += [one.offset for one in client.poll()]
    while sum(map(len, handed_out.values())) < records:
        assert time.monotonic() < deadline, handed_out
        for name, client in clients.items():
            handed_out[name] += [one.offset for one in client.poll()]
    assert sorted(handed_out["java"] + handed_out["librdkafka"]) == list(range(records))
