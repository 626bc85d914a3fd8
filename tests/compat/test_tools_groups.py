"""kafka-consumer-groups and kafka-groups: members, offsets, resets and refusals."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.both import Both, comparable
from tests.compat.confluent import WAIT_S, consumer, produce, take


@contextmanager
def a_reader_on_both(both: Both, name: str, protocol: str) -> Iterator[None]:
    """Ten records in a topic of two partitions, and one member of the group that has read and committed them."""
    with ExitStack() as stack:
        for tools in (both.ours, both.theirs):
            admin = AdminClient({"bootstrap.servers": tools.bootstrap_servers})
            admin.create_topics([NewTopic(name, num_partitions=2)])[name].result(WAIT_S)
            produce(tools.bootstrap_servers, name, [str(number) for number in range(10)])
            settings = {"client.id": "reader", "group.protocol": protocol}
            source = stack.enter_context(consumer(tools.bootstrap_servers, name, **settings))
            source.subscribe([name])
            take(source, 10)
            source.commit(asynchronous=False)
        yield


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_described_the_same(both: Both, unique: str, protocol: str) -> None:
    def describe(*arguments: str) -> list[str]:
        return both.run(
            "kafka-consumer-groups", "--describe", "--group", unique, *arguments
        ).same_lines_in_any_order()

    with a_reader_on_both(both, unique, protocol):
        offsets = describe()
        assert len(offsets) == 3
        assert all(" /127.0.0.1 reader" in line for line in offsets if line.startswith(unique))
        state = [line for line in describe("--state") if line.startswith(unique)]
        assert state[0].split()[-2:] == ["Stable", "1"]
        members = [line for line in describe("--members", "--verbose") if line.startswith(unique)]
        assert f"{unique}:0,1" in members[0]
        refused = both.run("kafka-consumer-groups", "--delete", "--group", unique, check=False)
        assert "GroupNotEmptyException" in "".join(refused.same_lines())
        in_use = ("--reset-offsets", "--group", unique, "--topic", unique, "--to-earliest", "--execute")
        assert "Assignments can only be reset" in "".join(
            both.run("kafka-consumer-groups", *in_use, check=False).same_lines()
        )


def test_an_empty_groups_offsets_are_reset_deleted_and_gone(both: Both, unique: str) -> None:
    with a_reader_on_both(both, unique, "classic"):
        pass

    def groups(*arguments: str) -> list[str]:
        return both.run("kafka-consumer-groups", *arguments, check=False).same_lines_in_any_order()

    of_group = ("--group", unique)
    assert f"{unique} Empty" in both_lines(both, "kafka-consumer-groups", "--list", "--state", name=unique)
    assert f"{unique} Classic" in both_lines(both, "kafka-consumer-groups", "--list", "--type", name=unique)
    assert f"{unique} Classic consumer" in both_lines(both, "kafka-groups", "--list", name=unique)
    reset = groups("--reset-offsets", *of_group, "--topic", unique, "--to-offset", "1", "--execute")
    assert f"{unique} {unique} 0 1" in reset
    deleted = groups("--delete-offsets", *of_group, "--topic", f"{unique}:0")
    assert f"{unique} 0 Successful" in deleted
    assert len([line for line in groups("--describe", *of_group) if line.startswith(unique)]) == 1
    assert groups("--delete", *of_group) == [
        f"Deletion of requested consumer groups ('{unique}') was successful."
    ]
    gone = "".join(groups("--describe", *of_group))
    assert f"GroupIdNotFoundException: Group {unique} not found." in gone


def both_lines(both: Both, tool: str, *arguments: str, name: str) -> list[str]:
    """Of a list that other tests add to as well: the lines about this name, which must be the same on both."""
    pair = both.run(tool, *arguments)
    ours, theirs = (
        [line for line in comparable(output.stdout) if line.startswith(name)]
        for output in (pair.ours, pair.theirs)
    )
    assert ours == theirs
    return ours
