"""CreateAcls, DescribeAcls and DeleteAcls, and what changes for those who are connected already."""

from typing import Any

import pytest

from headrace.wire.acls import AclOperation as Op
from headrace.wire.acls import AclPatternType as Pattern
from headrace.wire.acls import AclPermission as Permission
from headrace.wire.acls import AclResourceType as Kind
from tests.conformance.access.site import Site
from tests.conformance.steps import batch, commit, new_topic, topic_id_of, wait_for
from tests.conformance.wire_client import WireClient

READER = {
    "resource_type": Kind.TOPIC,
    "resource_name": "t",
    "resource_pattern_type": Pattern.LITERAL,
    "principal": "User:reader",
    "host": "*",
    "operation": Op.READ,
    "permission_type": Permission.ALLOW,
}


def create(wire: WireClient, *acls: dict[str, Any]) -> list[tuple[int, str | None]]:
    results = wire.ask("create_acls", 3, creations=[READER | acl for acl in acls]).results
    return [(result.error_code, result.error_message) for result in results]


def asked(**fields: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": fields.get("kind", Kind.ANY),
        "resource_name_filter": fields.get("name"),
        "pattern_type_filter": fields.get("pattern", Pattern.ANY),
        "principal_filter": fields.get("principal"),
        "host_filter": fields.get("host"),
        "operation": fields.get("operation", Op.ANY),
        "permission_type": fields.get("permission", Permission.ANY),
    }


def describe(wire: WireClient, **fields: Any) -> set[tuple[str, int, str]]:
    """Name, pattern type and principal of what matches."""
    response = wire.ask("describe_acls", 3, **asked(**fields))
    assert response.error_code == 0
    return {
        (resource.resource_name, resource.pattern_type, acl.principal)
        for resource in response.resources
        for acl in resource.acls
    }


def delete(wire: WireClient, **fields: Any) -> set[str]:
    """The names of what was deleted."""
    (result,) = wire.ask("delete_acls", 3, filters=[asked(**fields)]).filter_results
    assert result.error_code == 0
    return {acl.resource_name for acl in result.matching_acls}


def test_entries_are_found_by_filters_and_deleted_by_them(site: Site, unique: str) -> None:
    wire, who = site.admin, f"User:{unique}"
    literal, prefix = f"{unique}-orders", f"{unique}-"
    acls: list[dict[str, Any]] = [
        {"resource_name": literal, "principal": who},
        {"resource_name": prefix, "resource_pattern_type": Pattern.PREFIXED, "principal": who},
        {"resource_name": "*", "principal": who},
    ]
    assert create(wire, *acls, acls[0]) == [(0, "")] * 4
    everything = {(literal, 3, who), (prefix, 4, who), ("*", 3, who)}
    assert wait_for(lambda: describe(wire, principal=who) == everything)
    assert describe(wire, principal=who, name=literal, pattern=Pattern.MATCH) == everything
    assert describe(wire, principal=who, name=literal) == {(literal, 3, who)}
    assert describe(wire, principal=who, name=literal, pattern=Pattern.PREFIXED) == set()
    assert describe(wire, principal=who, pattern=Pattern.PREFIXED) == {(prefix, 4, who)}
    assert describe(wire, principal=who, operation=Op.WRITE) == set()
    assert describe(wire, principal=who, kind=Kind.GROUP) == set()
    assert delete(wire, principal=who, pattern=Pattern.PREFIXED) == {prefix}
    assert wait_for(lambda: describe(wire, principal=who) == {(literal, 3, who), ("*", 3, who)})
    assert delete(wire, principal=who) == {literal, "*"}
    assert wait_for(lambda: describe(wire, principal=who) == set())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            {"resource_type": Kind.CLUSTER, "resource_name": "mine"},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 99}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 99}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
    ids=["cluster", "name", "type", "pattern", "operation", "permission", "principal"],
)
def test_an_entry_that_no_resource_can_have_is_refused(
    site: Site, unique: str, wrong: dict[str, Any], text: str
) -> None:
    good = {"resource_name": unique}
    assert create(site.admin, good, wrong) == [(0, ""), (42, text)]
    assert wait_for(lambda: delete(site.admin, name=unique)) == {unique}


def test_unknown_elements_end_the_connection(site: Site) -> None:
    for api, fields in (
        ("create_acls", {"creations": [READER | {"operation": 0}]}),
        ("delete_acls", {"filters": [asked(operation=Op.UNKNOWN)]}),
        ("describe_acls", asked(kind=Kind.UNKNOWN)),
    ):
        with site.connect() as wire:
            wire.post_ask(api, 3, **fields)
            assert wire.receive_frame() is None


def test_a_permission_that_is_taken_away_is_gone_for_the_next_request_and_not_for_a_fetch_that_waits(
    site: Site, unique: str
) -> None:
    topic_id = new_topic(site.admin, unique)
    who = f"User:{site.spare}"
    create(site.admin, {"resource_name": unique, "principal": who})
    wait_for(lambda: describe(site.admin, principal=who, name=unique))
    fields = {
        "max_bytes": 1_000_000,
        "min_bytes": 1,
        "topics": [{"topic": unique, "partitions": [{"partition": 0, "partition_max_bytes": 1_000_000}]}],
    }
    with site.login(site.spare) as wire:
        first = wire.ask("fetch", 12, **fields, max_wait_ms=0)
        assert [part.error_code for topic in first.responses for part in topic.partitions] == [0]
        wire.post_ask("fetch", 12, **fields, max_wait_ms=600_000)
        delete(site.admin, principal=who, name=unique)
        wait_for(lambda: not describe(site.admin, principal=who, name=unique))
        data = [{"name": unique, "partition_data": [{"index": 0, "records": batch("late")}]}]
        with site.connect() as admin:
            admin.ask("produce", 9, acks=-1, timeout_ms=60_000, topic_data=data)
        (part,) = wire.receive().responses[0].partitions
        assert part.error_code == 0
        assert b"late" in part.records
        (part,) = wire.ask("fetch", 12, **fields, max_wait_ms=600_000).responses[0].partitions
        assert (part.error_code, part.records or b"") == (29, b"")
    assert topic_id


def test_a_share_session_whose_topic_is_denied_gets_an_error_for_it_and_its_acknowledgements_are_refused(
    site: Site, unique: str
) -> None:
    new_topic(site.admin, unique)
    topic_id = topic_id_of(site.admin, unique)
    who = f"User:{site.spare}"
    group = {"resource_type": Kind.GROUP, "resource_name": unique, "principal": who}
    create(site.admin, {"resource_name": unique, "principal": who}, group)
    wait_for(lambda: len(describe(site.admin, principal=who, name=unique)) == 1)
    site.start_share_group(unique, unique)
    data = [{"name": unique, "partition_data": [{"index": 0, "records": batch("one")}]}]
    site.admin.ask("produce", 9, acks=-1, timeout_ms=60_000, topic_data=data)
    place = {"topic_id": topic_id, "partitions": [{"partition_index": 0}]}
    fields = {"group_id": unique, "member_id": "m", "max_bytes": 10_000, "max_records": 10}
    with site.login(site.spare) as wire:
        epoch = -1

        def acquired() -> Any:
            nonlocal epoch
            epoch += 1
            wait = {"max_wait_ms": 500, "min_bytes": 1}
            response = wire.ask(
                "share_fetch",
                1,
                **fields,
                **wait,
                share_session_epoch=epoch,
                topics=[place] if not epoch else [],
            )
            assert response.error_code == 0, response
            return any(part.acquired_records for topic in response.responses for part in topic.partitions)

        wait_for(acquired)
        delete(site.admin, principal=who, name=unique, kind=Kind.TOPIC)
        wait_for(lambda: not describe(site.admin, principal=who, name=unique, kind=Kind.TOPIC))
        ack = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        acking = {
            "topic_id": topic_id,
            "partitions": [{"partition_index": 0, "acknowledgement_batches": [ack]}],
        }
        response = wire.ask(
            "share_fetch", 1, **fields, max_wait_ms=0, share_session_epoch=epoch + 1, topics=[acking]
        )
        (part,) = response.responses[0].partitions
        assert (part.error_code, part.acknowledge_error_code, part.acquired_records) == (29, 29, [])
        response = wire.ask(
            "share_acknowledge",
            1,
            group_id=unique,
            member_id="m",
            share_session_epoch=epoch + 2,
            topics=[acking],
        )
        assert response.error_code == 0
        assert [part.error_code for part in response.responses[0].partitions] == [29]
        delete(site.admin, principal=who, kind=Kind.GROUP)
        wait_for(lambda: not describe(site.admin, principal=who, kind=Kind.GROUP))
        refused = wire.ask("share_fetch", 1, **fields, share_session_epoch=epoch + 3)
        assert refused.error_code == 30


def test_an_entry_outlives_its_topic_and_applies_to_one_of_the_same_name(site: Site, unique: str) -> None:
    who = f"User:{site.spare}"
    new_topic(site.admin, unique)
    create(site.admin, {"resource_name": unique, "principal": who, "permission_type": Permission.DENY})
    wait_for(lambda: describe(site.admin, principal=who, name=unique))
    site.admin.ask("delete_topics", 6, topics=[{"name": unique}], timeout_ms=60_000)
    assert describe(site.admin, principal=who, name=unique) == {(unique, 3, who)}


def test_names_are_compared_with_their_case_and_a_denial_by_prefix_outweighs_a_literal_permission(
    site: Site, unique: str
) -> None:
    who = f"User:{site.spare}"
    for name in (unique, unique.upper()):
        new_topic(site.admin, name)
    create(
        site.admin,
        {"resource_name": unique, "principal": who, "operation": Op.DESCRIBE},
        {"resource_name": unique.upper(), "principal": who.upper(), "operation": Op.DESCRIBE},
    )
    wait_for(lambda: describe(site.admin, principal=who, name=unique))
    with site.login(site.spare) as wire:

        def codes() -> dict[str, int]:
            topics = [{"name": name} for name in (unique, unique.upper())]
            found = wire.ask("metadata", 9, topics=topics, allow_auto_topic_creation=False).topics
            return {topic.name: topic.error_code for topic in found}

        assert codes() == {unique: 0, unique.upper(): 29}
        denial = {"resource_pattern_type": Pattern.PREFIXED, "permission_type": Permission.DENY}
        create(
            site.admin, {"resource_name": unique[:-1], "principal": "User:*", "operation": Op.ALL} | denial
        )
        assert wait_for(lambda: codes() == {unique: 29, unique.upper(): 29})
    delete(site.admin, name=unique[:-1])


def test_a_pattern_finds_only_topics_that_the_member_may_describe(site: Site, unique: str) -> None:
    who = f"User:{site.spare}"
    for name in (f"{unique}-a", f"{unique}-b"):
        new_topic(site.admin, name)
    group = {"resource_type": Kind.GROUP, "resource_name": unique, "principal": who}
    create(site.admin, {"resource_name": f"{unique}-a", "principal": who}, group)
    wait_for(lambda: describe(site.admin, principal=who, name=f"{unique}-a"))
    wait_for(lambda: describe(site.admin, principal=who, name=unique))
    fields = {"group_id": unique, "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "topic_partitions": []}
    fields |= {"rebalance_timeout_ms": 1_000, "subscribed_topic_regex": f"{unique}.*"}
    with site.login(site.spare) as wire:
        epoch, found = 0, set()

        def is_assigned() -> bool:
            nonlocal epoch
            response = wire.ask("consumer_group_heartbeat", 1, **fields, member_epoch=epoch)
            assert response.error_code == 0, response
            epoch = response.member_epoch
            topics = response.assignment.topic_partitions if response.assignment else ()
            found.update(topic.topic_id for topic in topics)
            return bool(found)

        wait_for(is_assigned)
    assert found == {topic_id_of(site.admin, f"{unique}-a")}


def test_a_group_that_is_named_twice_shows_no_more_than_once(site: Site, unique: str) -> None:
    who, hidden = f"User:{site.spare}", f"{unique}-hidden"
    for name in (unique, hidden):
        new_topic(site.admin, name)
    group = {"resource_type": Kind.GROUP, "resource_name": unique, "principal": who}
    create(site.admin, {"resource_name": unique, "principal": who}, group)
    wait_for(lambda: describe(site.admin, principal=who, name=unique, kind=Kind.GROUP))
    commit(site.admin, unique, unique, 1)
    commit(site.admin, unique, hidden, 1)
    named = {"group_id": unique, "topics": [{"name": unique, "partition_indexes": [0]}]}
    everything = {"group_id": unique, "topics": None}
    with site.login(site.spare) as wire:
        for groups in ([named, everything], [everything, named]):
            response = wire.ask("offset_fetch", 9, groups=groups)
            assert {topic.name for one in response.groups for topic in one.topics} == {unique}


@pytest.mark.parametrize(
    ("api", "version", "topic_field", "partitions"),
    [
        ("offset_fetch", 8, "name", "partition_indexes"),
        ("describe_share_group_offsets", 0, "topic_name", "partitions"),
    ],
)
def test_each_time_that_a_group_is_named_is_answered_by_itself(
    site: Site, unique: str, api: str, version: int, topic_field: str, partitions: str
) -> None:
    who, hidden = f"User:{site.spare}", [f"{unique}-{number}" for number in range(3)]
    group = {"resource_type": Kind.GROUP, "resource_name": unique, "principal": who}
    new_topic(site.admin, unique)
    create(site.admin, {"resource_name": unique, "principal": who}, group | {"operation": Op.DESCRIBE})
    wait_for(lambda: describe(site.admin, principal=who, name=unique, kind=Kind.GROUP))
    places = [[hidden[0], unique], [hidden[1], hidden[2]], [], [unique, hidden[0]], [hidden[1]]]
    groups: list[dict[str, Any]] = [
        {"group_id": name, "topics": [{topic_field: topic, partitions: [0]} for topic in topics]}
        for topics in places
        for name in (f"{unique}-refused", unique)
    ]
    with site.login(site.spare) as wire:
        answer = wire.ask(api, version, groups=groups)
    told = [
        sorted(
            (getattr(topic, topic_field), [partition.error_code for partition in topic.partitions])
            for topic in group.topics
        )
        for group in answer.groups
        if group.group_id == unique
    ]
    assert told == [sorted((topic, [0 if topic == unique else 29]) for topic in topics) for topics in places]
    refused = [group for group in answer.groups if group.group_id != unique]
    assert [(group.error_code, [*group.topics]) for group in refused] == [(30, [])] * len(places)


def test_very_long_names_are_refused_like_others(site: Site) -> None:
    with site.login(site.spare) as wire:
        answer = wire.ask("find_coordinator", 6, key_type=0, coordinator_keys=["x" * 30_000])
        assert [one.error_code for one in answer.coordinators] == [30]


def test_a_name_that_comes_again_with_an_id_does_not_delete_a_topic(site: Site, unique: str) -> None:
    who, hidden = f"User:{site.spare}", f"{unique}-hidden"
    for name in (unique, hidden):
        new_topic(site.admin, name)
    create(site.admin, {"resource_name": unique, "principal": who, "operation": Op.DESCRIBE})
    wait_for(lambda: describe(site.admin, principal=who, name=unique))
    topics = [{"name": hidden}, {"name": hidden, "topic_id": topic_id_of(site.admin, unique)}]
    with site.login(site.spare) as wire:
        answer = wire.ask("delete_topics", 6, topics=topics, timeout_ms=60_000)
    assert {topic.error_code for topic in answer.responses} <= {29, 42}
    (found,) = site.admin.ask("metadata", 12, topics=[{"name": hidden}]).topics
    assert found.error_code == 0
