"""Goal: what administrators see of groups, and how they delete them."""

from typing import Any

import pytest

from headrace.broker.handlers import delete_groups, describe_groups, list_groups
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from tests.unit.broker.groups.classic_client import ClassicClient, stable_group, subscription
from tests.unit.broker.groups.consumer_client import ConsumerClient
from tests.unit.broker.groups.fake_core import FakeCore


@pytest.fixture(autouse=True)
def topic(core: FakeCore) -> None:
    core.topics.create("t", 4)


@pytest.fixture
def groups(core: FakeCore) -> None:
    """One of each kind."""
    stable_group(core, ClassicClient(core, group_id="classic"))
    stable_group(core, ClassicClient(core, group_id="connect", protocol_type="connect"))
    ClassicClient(core, group_id="simple").commit(1)
    ConsumerClient(core, "a", group_id="consumer").join()


def listed(core: FakeCore, **filters: Any) -> set[str]:
    return {group.group_id for group in core.handle(list_groups, ListGroupsRequest(**filters)).groups}


@pytest.mark.usefixtures("groups")
def test_every_group_is_listed_with_its_state_and_type(core: FakeCore) -> None:
    response = core.handle(list_groups, ListGroupsRequest())
    assert {
        group.group_id: (group.protocol_type, group.group_state, group.group_type)
        for group in response.groups
    } == {
        "classic": ("consumer", "Stable", "classic"),
        "connect": ("connect", "Stable", "classic"),
        "simple": ("", "Empty", "classic"),
        "consumer": ("consumer", "Stable", "consumer"),
    }


@pytest.mark.usefixtures("groups")
def test_lists_are_filtered_by_state_and_type_in_any_case_of_letters(core: FakeCore) -> None:
    assert listed(core, states_filter=["empty"]) == {"simple"}
    assert listed(core, states_filter=[" Stable ", "EMPTY"]) == {"classic", "connect", "consumer", "simple"}
    assert listed(core, types_filter=["Consumer"]) == {"consumer"}
    assert listed(core, types_filter=["classic"], states_filter=["Stable"]) == {"classic", "connect"}
    assert listed(core, types_filter=["nonsense"]) == listed(core, states_filter=["Dead"]) == set()


def test_a_stable_group_is_described_with_metadata_and_assignments(core: FakeCore) -> None:
    (member,) = stable_group(core, ClassicClient(core, instance_id="one"))
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = core.handle(describe_groups, request).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert group.authorized_operations == 3400
    (described,) = group.members
    assert (described.member_id, described.group_instance_id) == (member.member_id, "one")
    assert (described.client_id, described.client_host) == ("client", "/10.0.0.1")
    assert (described.member_metadata, described.member_assignment) == (subscription("t"), b"part of 0")


def test_a_group_that_rebalances_is_described_without_metadata(core: FakeCore) -> None:
    ClassicClient(core).join()
    (group,) = core.handle(describe_groups, DescribeGroupsRequest(groups=["g"])).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert group.members[0].member_metadata == b""
    assert group.authorized_operations == -(2**31)


def test_a_group_that_is_not_there_is_dead(core: FakeCore) -> None:
    (group,) = core.handle(describe_groups, DescribeGroupsRequest(groups=["nowhere"]), version=5).groups
    assert (group.group_state, group.error_code) == ("Dead", ErrorCode.NONE)
    (group,) = core.handle(describe_groups, DescribeGroupsRequest(groups=["nowhere"]), version=6).groups
    assert (group.error_code, group.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group nowhere not found.",
    )


def deleted(core: FakeCore, *group_ids: str) -> dict[str, int]:
    response = core.handle(delete_groups, DeleteGroupsRequest(groups_names=group_ids))
    return {result.group_id: result.error_code for result in response.results}


@pytest.mark.usefixtures("groups")
def test_only_empty_groups_are_deleted_and_their_offsets_with_them(core: FakeCore) -> None:
    assert deleted(core, "simple", "classic", "consumer", "nowhere", "simple") == {
        "simple": ErrorCode.NONE,
        "classic": ErrorCode.NON_EMPTY_GROUP,
        "consumer": ErrorCode.NON_EMPTY_GROUP,
        "nowhere": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert listed(core) == {"classic", "connect", "consumer"}
    assert core.groups.state.offsets.get("simple", "t", 0) is None


def test_an_empty_consumer_group_is_deleted_whole(core: FakeCore) -> None:
    member = ConsumerClient(core, "a", pattern="t")
    member.join()
    member.commit(5)
    member.leave()
    assert deleted(core, "g") == {"g": ErrorCode.NONE}
    member.join()
    assert member.epoch == 2  # a new group, from its beginning


def test_a_deletion_is_answered_when_it_is_durable(core: FakeCore) -> None:
    ClassicClient(core).commit(1)
    core.is_synced = False
    answer = core.handle(delete_groups, DeleteGroupsRequest(groups_names=["g"]))
    assert isinstance(answer, Later)
    core.sync()
    assert answer.value.results[0].error_code == ErrorCode.NONE


def test_a_group_and_its_offsets_are_deleted_by_one_write(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full after the first of two would leave a group without its offsets, and an error."""
    ClassicClient(core).commit(1)
    append = core.append_internal

    def append_and_be_full(*arguments: Any, **more: Any) -> Later[None]:
        durable = append(*arguments, **more)
        core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
        return durable

    monkeypatch.setattr(core, "append_internal", append_and_be_full)
    assert deleted(core, "g") == {"g": ErrorCode.NONE}
    assert core.groups.state.offsets.get("g", "t", 0) is None
    assert listed(core) == set()


def test_a_deletion_that_the_disk_refuses_leaves_the_group(core: FakeCore) -> None:
    ClassicClient(core).commit(1)
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert deleted(core, "g") == {"g": ErrorCode.NOT_COORDINATOR}
    core.refusal = None
    assert listed(core) == {"g"}
