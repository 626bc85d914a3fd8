"""kafka-share-groups, kafka-groups and kafka-configs on share groups: what they print, do and refuse."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import KafkaTools
from tests.compat.both import Both, Pair, comparable
from tests.compat.confluent import WAIT_S, produce, wait_for

EPOCHS = re.compile(r"(?<= )\d+ \d+(?= 1$)|(?<= 2 )\d+(?= )")
"""Group and assignment epoch before the number of members, a member's epoch after the number of its partitions."""


def set_earliest(both: Both, group: str) -> None:
    """Through the tool, which says that it has done it."""
    printed = both.run(
        "kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    assert printed.same_lines() == [f"Completed updating config for group {group}."]


@contextmanager
def a_reader_on_both(both: Both, name: str) -> Iterator[None]:
    """Ten records in a topic of two partitions, and one member of the share group that has accepted them all."""
    set_earliest(both, name)
    with ExitStack() as stack:
        for tools in (both.ours, both.theirs):
            admin = AdminClient({"bootstrap.servers": tools.bootstrap_servers})
            admin.create_topics([NewTopic(name, num_partitions=2)])[name].result(WAIT_S)
            produce(tools.bootstrap_servers, name, [str(number) for number in range(10)])
            reader = ShareConsumer(
                {"bootstrap.servers": tools.bootstrap_servers, "group.id": name, "client.id": "reader"}
            )
            stack.enter_context(closing(reader))
            reader.subscribe([name])
            taken: list[object] = []
            wait_for(lambda: _poll(reader, taken) >= 10, "ten records come")  # noqa: B023
            reader.commit_sync(WAIT_S)
        yield


def _poll(reader: ShareConsumer, taken: list[object]) -> int:
    taken += reader.poll(0.2)
    return len(taken)


class ShareGroupsTool:
    """kafka-share-groups on one group of both brokers."""

    def __init__(self, both: Both, group: str) -> None:
        self._both = both
        self._group = group

    def __call__(self, *arguments: str) -> list[str]:
        """The lines that it prints on both, sorted."""
        printed = self._run(*arguments)
        ours, theirs = (sorted(_without_epochs(output.stdout)) for output in (printed.ours, printed.theirs))
        assert ours == theirs, printed.ours.stderr
        assert printed.ours.status == printed.theirs.status
        return ours

    def said(self, *arguments: str) -> list[str]:
        """What it says to standard error, without where in its code it was."""
        printed = self._run(*arguments)
        ours, theirs = (
            [line for line in comparable(output.stderr) if not line.startswith("at ")]
            for output in (printed.ours, printed.theirs)
        )
        assert ours == theirs
        assert printed.ours.stdout.strip() == printed.theirs.stdout.strip()
        return ours

    def _run(self, *arguments: str) -> Pair:
        return self._both.run("kafka-share-groups", *arguments, "--group", self._group, check=False)


@pytest.fixture
def groups(both: Both, unique: str) -> ShareGroupsTool:
    return ShareGroupsTool(both, unique)


def _without_epochs(text: str) -> list[str]:
    """Our groups need fewer epochs to come to the same assignment: the first heartbeat has it."""
    return [EPOCHS.sub("EPOCHS", line) for line in comparable(text)]


def test_a_group_with_a_member_is_described_the_same(
    both: Both, groups: ShareGroupsTool, unique: str
) -> None:
    with a_reader_on_both(both, unique):
        assert len([line for line in groups("--describe") if line.startswith(unique)]) == 2
        assert "GROUP TOPIC PARTITION LEADER-EPOCH START-OFFSET LAG" in groups("--describe", "--verbose")
        assert f"{unique} MEMBER-ID /127.0.0.1 reader 2 {unique}:0,1" in groups("--describe", "--members")
        assert f"{unique} MEMBER-ID /127.0.0.1 reader 2 EPOCHS {unique}:0,1" in groups(
            "--describe", "--members", "--verbose"
        )
        assert f"{unique} SERVER (1) Stable 1" in groups("--describe", "--state")
        assert f"{unique} SERVER (1) Stable EPOCHS 1" in groups("--describe", "--state", "--verbose")
        assert f"{unique} Stable" in lines_about(both, unique, "kafka-share-groups", "--list", "--state")
        refused = "".join(groups("--delete"))
        assert f"* Group '{unique}' could not be deleted due to: " in refused
        assert f"Share group '{unique}' is not empty." in groups.said(
            "--reset-offsets", "--topic", unique, "--to-earliest", "--execute"
        )
        assert "Error: The group is not empty." in groups("--delete-offsets", "--topic", unique)


def test_an_empty_groups_offsets_are_reset_deleted_and_gone(
    both: Both, groups: ShareGroupsTool, unique: str
) -> None:
    with a_reader_on_both(both, unique):
        pass
    wait_for(lambda: is_empty(both.ours, unique) and is_empty(both.theirs, unique), "the group is empty")
    assert f"{unique} Share share" in lines_about(both, unique, "kafka-groups", "--list", "--share")
    assert f"{unique}" in lines_about(both, unique, "kafka-share-groups", "--list")
    assert groups("--describe", "--state") != []
    to_earliest = ("--reset-offsets", "--topic", unique, "--to-earliest")
    assert f"{unique} {unique} 0 0" in groups(*to_earliest, "--dry-run")
    assert f"{unique} {unique} 1 0" in groups(*to_earliest, "--execute")
    lags = [line.split()[-1] for line in groups("--describe") if line.startswith(unique)]
    assert sum(map(int, lags)) == 10
    groups("--reset-offsets", "--all-topics", "--to-latest", "--execute")
    assert [line.split()[-1] for line in groups("--describe") if line.startswith(unique)] == ["0", "0"]
    assert f"{unique} Successful" in groups("--delete-offsets", "--topic", unique)
    assert "There is no offset information to delete." in "".join(
        groups("--delete-offsets", "--topic", unique)
    )
    groups("--describe")
    assert groups("--delete") == [f"Deletion of requested share groups ('{unique}') was successful."]
    assert f"GroupIdNotFoundException: Group {unique} not found." in "".join(groups("--describe"))


def is_empty(tools: KafkaTools, group: str) -> bool:
    printed = tools.run("kafka-share-groups", "--list", "--state")
    return [group, "Empty"] in [line.split() for line in printed.lines]


def lines_about(both: Both, name: str, tool: str, *arguments: str) -> list[str]:
    """Of a list that other tests add to as well: the lines about this name, which must be the same on both."""
    pair = both.run(tool, *arguments)
    ours, theirs = (
        [line for line in comparable(output.stdout) if line.startswith(name)]
        for output in (pair.ours, pair.theirs)
    )
    assert ours == theirs
    return ours


def test_offsets_of_a_group_that_does_not_exist_are_set(
    both: Both, groups: ShareGroupsTool, unique: str
) -> None:
    for tools in (both.ours, both.theirs):
        admin = AdminClient({"bootstrap.servers": tools.bootstrap_servers})
        admin.create_topics([NewTopic(unique, num_partitions=1)])[unique].result(WAIT_S)
    groups("--reset-offsets", "--topic", unique, "--to-latest", "--execute")
    assert f"{unique} Empty" in lines_about(both, unique, "kafka-share-groups", "--list", "--state")
    assert f"{unique} {unique} 0 0 0" in groups("--describe")


@pytest.mark.parametrize(
    "setting",
    [
        "share.auto.offset.reset=by_duration:-PT1H",
        "share.record.lock.duration.ms=100000",
        "share.nothing=1",
    ],
)
def test_a_setting_that_a_group_cannot_have_is_refused_the_same(
    both: Both, unique: str, setting: str
) -> None:
    refused = both.run(
        "kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", unique,
        "--add-config", setting, check=False,
    )  # fmt: skip
    assert refused.same_refusal() == {"InvalidConfigurationException"}
    ours, theirs = (
        re.findall(r"InvalidConfigurationException: (.*)", output.stderr)
        for output in (refused.ours, refused.theirs)
    )
    assert ours == theirs


def test_settings_of_a_share_group_are_described_the_same(both: Both, unique: str) -> None:
    set_earliest(both, unique)
    of_group = ("--entity-type", "groups", "--entity-name", unique)
    own = both.run("kafka-configs", "--describe", *of_group).same_lines()
    assert any("share.auto.offset.reset=earliest" in line for line in own)
    everything = both.run("kafka-configs", "--describe", "--all", *of_group)
    ours, theirs = (
        [line for line in comparable(output.stdout) if line.startswith("share.")]
        for output in (everything.ours, everything.theirs)
    )
    assert len(ours) == 9
    assert ours == theirs
