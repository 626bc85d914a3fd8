"""Groups as administrators see them: describe, list and delete, for all kinds and states."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.plain import plain
from tests.conformance.steps import (
    beat,
    commit,
    committed,
    describe_group,
    join_named,
    leave,
    new_topic,
    stable_group,
    wait_for,
)
from tests.conformance.wire_client import WireClient

NO_OPERATIONS = -(2**31)


def described(group: str, **fields: Any) -> dict[str, Any]:
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NO_OPERATIONS,
        **fields,
    }


def listed(wire: WireClient, *groups: str, **filters: Any) -> dict[str, tuple[str, str, str]]:
    """Protocol type, state and type of those of these groups that are listed."""
    response = wire.ask("list_groups", 5, **filters)
    assert response.error_code == 0
    return {
        group.group_id: (group.protocol_type, group.group_state, group.group_type)
        for group in response.groups
        if group.group_id in groups
    }


def delete(wire: WireClient, *groups: str) -> list[int]:
    response = wire.ask("delete_groups", 2, groups_names=list(groups))
    codes = {result.group_id: result.error_code for result in response.results}
    assert len(codes) == len(response.results)
    return [codes[group] for group in groups]


def test_an_unknown_group_is_dead(wire: WireClient, unique: str) -> None:
    # KIP-1043: since v6 the group is also told not to be there.
    expected = described(
        unique,
        group_state="Dead",
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {unique} not found.",
    )
    assert plain(describe_group(wire, unique)) == expected
    old = describe_group(wire, unique, version=5)
    assert plain(old) == described(unique, group_state="Dead")


def test_a_group_with_offsets_and_no_members_is_empty(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    commit(wire, unique, unique, 1)
    assert plain(describe_group(wire, unique)) == described(unique, group_state="Empty")
    assert listed(wire, unique) == {unique: ("", "Empty", "classic")}


def test_a_group_keeps_its_protocol_type_when_all_have_left(wire: WireClient, unique: str) -> None:
    leave(wire, unique, stable_group(wire, unique).member_id)
    expected = described(unique, group_state="Empty", protocol_type="consumer")
    assert plain(describe_group(wire, unique)) == expected
    assert listed(wire, unique) == {unique: ("consumer", "Empty", "classic")}


def test_metadata_is_told_of_a_stable_group_alone(wire: WireClient, unique: str) -> None:
    joined = join_named(wire, unique)
    found = describe_group(wire, unique)
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    (member,) = found.members
    assert (member.member_id, member.member_metadata, member.member_assignment) == (
        joined.member_id,
        b"",
        b"",
    )


def test_allowed_operations_are_told_on_request(wire: WireClient, unique: str) -> None:
    stable_group(wire, unique)
    response = wire.ask("describe_groups", 6, groups=[unique], include_authorized_operations=True)
    # Read, delete, describe, and describe and alter configs.
    assert response.groups[0].authorized_operations == 0b1101_0100_1000


def test_several_groups_are_described_each_for_itself(wire: WireClient, unique: str) -> None:
    stable_group(wire, unique)
    groups = wire.ask("describe_groups", 6, groups=[unique, f"{unique}-not", ""]).groups
    assert {group.group_id: group.error_code for group in groups} == {
        unique: 0,
        f"{unique}-not": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_groups_are_listed_by_state_and_type(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    stable, empty, new = f"{unique}-stable", f"{unique}-empty", f"{unique}-new"
    stable_group(wire, stable)
    commit(wire, empty, unique, 1)
    assert beat(wire, new, "member", 0, topics=[unique]).error_code == 0
    three = (stable, empty, new)
    assert listed(wire, *three) == {
        stable: ("consumer", "Stable", "classic"),
        empty: ("", "Empty", "classic"),
        new: ("consumer", "Stable", "consumer"),
    }
    assert set(listed(wire, *three, states_filter=["Stable"])) == {stable, new}
    assert set(listed(wire, *three, states_filter=["empty", "Dead"])) == {empty}
    assert set(listed(wire, *three, types_filter=["classic"])) == {stable, empty}
    assert set(listed(wire, *three, types_filter=["Consumer"])) == {new}
    assert set(listed(wire, *three, states_filter=["Stable"], types_filter=["classic"])) == {stable}
    assert listed(wire, *three, states_filter=["NoSuchState"]) == {}


def test_a_type_that_does_not_exist_lists_nothing(wire: WireClient, unique: str) -> None:
    stable_group(wire, unique)
    assert listed(wire, unique, types_filter=["no-such-type"]) == {}


def test_a_group_with_members_cannot_be_deleted(wire: WireClient, unique: str) -> None:
    joined = stable_group(wire, unique)
    assert delete(wire, unique) == [ErrorCode.NON_EMPTY_GROUP]
    leave(wire, unique, joined.member_id)
    assert delete(wire, unique) == [0]
    assert describe_group(wire, unique).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert listed(wire, unique) == {}


def test_a_group_takes_its_offsets_with_it(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    commit(wire, unique, unique, 1)
    # Named twice, it is answered for once.
    assert delete(wire, unique, unique) == [0, 0]
    assert committed(wire, unique, unique).committed_offset == -1


def test_a_group_that_is_not_there_cannot_be_deleted(wire: WireClient, unique: str) -> None:
    assert delete(wire, unique, "") == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


@pytest.mark.parametrize("version", [5, 6])
def test_a_group_of_the_new_kind_is_no_classic_group(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    beat(wire, unique, "member", 0, topics=[unique])
    found = plain(describe_group(wire, unique, version=version))
    if version >= 6:
        assert found.pop("error_message") == f"Group {unique} is not a classic group."
        assert found.pop("error_code") == ErrorCode.GROUP_ID_NOT_FOUND
    expected = described(unique, group_state="Dead")
    assert found == {key: expected[key] for key in found}


def test_a_classic_group_is_none_of_the_new_kind(wire: WireClient, unique: str) -> None:
    stable_group(wire, unique)
    (found,) = wire.ask("consumer_group_describe", 1, group_ids=[unique]).groups
    assert (found.error_code, found.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, unique)
    assert found.error_message == f"Group {unique} is not a consumer group."
    assert (found.group_state, found.members) == ("", [])


def test_an_empty_group_of_the_new_kind_is_deleted(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    epoch = beat(wire, unique, "member", 0, topics=[unique]).member_epoch
    assert epoch > 0
    assert delete(wire, unique) == [ErrorCode.NON_EMPTY_GROUP]
    beat(wire, unique, "member", -1)
    wait_for(lambda: listed(wire, unique) == {unique: ("consumer", "Empty", "consumer")})
    assert delete(wire, unique) == [0]
    assert listed(wire, unique) == {}
