"""`headrace read` on both brokers: records are looked at, and no group notices."""

import json
import time
from collections.abc import Callable

import pytest

from headrace import Producer, ShareConsumer
from tests.conformance.cli.conftest import Command
from tests.conformance.conftest import BrokerUnderTest

PLACE = "%p@%o\\n"


@pytest.fixture
def people(run: Command, broker: BrokerUnderTest, unique: str) -> str:
    """A topic of two partitions whose records alternate between them, one a second."""
    topic = f"people-{unique}"[:200]
    run("topic", "create", topic, "--partitions", "2")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(12):
            producer.send(
                topic,
                value=f"value {number}".encode(),
                key=f"key {number % 3}".encode(),
                partition=number % 2,
                timestamp=1_700_000_000_000 + 1000 * number,
            )
        producer.flush()
    return topic


def test_the_last_records_come_in_the_order_of_time(run: Command, people: str) -> None:
    assert run("read", people, "-o", "-2").out == "value 8\nvalue 9\nvalue 10\nvalue 11\n"
    assert run("read", people).out.count("\n") == 12


def test_the_last_records_are_counted_as_records_though_transactions_leave_gaps(
    run: Command, broker: BrokerUnderTest, unique: str
) -> None:
    run("topic", "create", unique)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": unique}
    with Producer(**settings) as producer:
        for number in range(30):
            with producer.transaction():
                producer.send(unique, value=str(number).encode())
        for _ in range(50):
            producer.begin()
            producer.send(unique, value=b"aborted").result()
            producer.abort()
    assert run("read", unique).out.split() == [str(number) for number in range(20, 30)]
    assert run("read", unique, "-o", "-1").out.split() == ["29"]
    assert run("read", unique, "-o", "-31").out.split() == [str(number) for number in range(30)]
    assert run("read", unique, "-o", "-2", "--uncommitted").out.split() == ["aborted", "aborted"]


def test_offsets_partitions_and_times_say_where_to_start(run: Command, people: str) -> None:
    assert run("read", people, "-p", "1", "-o", "4", "--format", PLACE).out == "1@4\n1@5\n"
    assert run("read", people, "-o", "@1700000009500").out == "value 10\nvalue 11\n"
    assert run("read", people, "-o", "@2023-11-14T22:13:31").out == "value 11\n"
    assert run("read", people, "-o", "@-1m").out == ""
    assert run("read", people, "-o", "end").out == ""
    assert run("read", people, "-o", "beginning", "-n", "3").out == "value 0\nvalue 1\nvalue 2\n"


def test_keys_and_patterns_choose_among_all_records(run: Command, people: str) -> None:
    assert run("read", people, "--key", "key 1").out == "value 1\nvalue 4\nvalue 7\nvalue 10\n"
    assert run("read", people, "--grep", "1[01]$").out == "value 10\nvalue 11\n"
    assert run("read", people, "--grep", "value", "--key", "key 2", "-n", "1").out == "value 2\n"


def test_json_has_the_whole_record(run: Command, people: str) -> None:
    said = json.loads(run("read", people, "-p", "1", "-o", "2", "-n", "1", "--json").out)
    assert (said["partition"], said["offset"], said["key"], said["value"]) == (1, 2, "key 2", "value 5")
    assert "delivery_count" not in said


def group_names(run: Command) -> set[str]:
    """Names without states: members of earlier tests may leave their groups at any time."""
    return {line.split()[0] for line in run("group", "list").out.splitlines()}


def test_no_group_notices(run: Command, people: str, unique: str) -> None:
    before = group_names(run)
    run("read", people, "-o", "beginning")
    assert group_names(run) <= before
    taken = run("consume", people, "-g", unique, "--from-beginning", "--max", "12", "--format", PLACE)
    assert len(taken.out.splitlines()) == 12


def test_following_waits_for_new_records(run: Command, broker: BrokerUnderTest, people: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(people, value=b"new", partition=0, timestamp=int(time.time() * 1000))
        producer.flush()
        assert run("read", people, "-f", "-o", "@-1h", "-n", "1").out == "new\n"


def test_what_cannot_be_read_is_said(run: Command, people: str) -> None:
    assert "has no partition 7; it has 0 to 1" in run.refused("read", people, "-p", "7")
    assert "is not an offset" in run("read", people, "-o", "middle", status=2).err
    assert "is not a valid time" in run("read", people, "-o", "@yesterday", status=2).err
    assert "is not a regular expression" in run("read", people, "--grep", "(", status=2).err
    assert f"did you mean '{people}'?" in run.refused("read", people[:-1])


def test_joining_a_group_at_work_is_warned_of(
    run: Command, people: str, unique: str, join: Callable[..., ShareConsumer]
) -> None:
    join(unique, people)
    said = run("consume", people, "-g", unique, "--timeout", "1").err
    assert f"Group '{unique}' has 1 member" in said
    assert f"`headrace read {people}` looks without joining" in said
