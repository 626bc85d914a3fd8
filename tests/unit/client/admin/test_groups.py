"""Goal: what members of classic groups wrote about themselves is read, and harms nobody when it is nonsense."""

import pytest

from headrace.client.admin.groups import _classic_assignment, _classic_member
from headrace.wire.codec import encode
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from headrace.wire.messages.describe_groups_response import DescribedGroupMember


def written(version: int) -> bytes:
    given = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic="b", partitions=[1, 0]),
            TopicPartition(topic="a", partitions=[2]),
        ]
    )
    return version.to_bytes(2, "big") + encode(given, min(version, 3))


@pytest.mark.parametrize("version", [0, 1, 3])
def test_an_assignment_is_read_in_every_version(version: int) -> None:
    assert _classic_assignment(written(version)) == (("a", 2), ("b", 0), ("b", 1))


def test_a_version_of_later_is_read_as_the_last_one_known() -> None:
    assert _classic_assignment(written(9)) == (("a", 2), ("b", 0), ("b", 1))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00", b"\x00\x00\x7f\xff\xff\xff", b"all"])
def test_bytes_that_are_no_assignment_are_shown_as_none(data: bytes) -> None:
    assert _classic_assignment(data) == ()


def test_members_of_other_protocols_have_assignments_that_only_they_understand() -> None:
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_assignment=written(0)
    )
    assert _classic_member(member, "connect").assignment == ()
    assert _classic_member(member, "consumer").assignment[0] == ("a", 2)
