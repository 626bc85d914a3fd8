"""A broker with access control, and one user for every case: its ACLs are made once, and no case sees another's."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from headrace.broker.handlers import SERVED
from headrace.wire.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.ids import uuid_text
from headrace.wire.message import Message
from tests.conformance.access.rows import KEYS, ROWS, Case, fill
from tests.conformance.steps import batch, transactional_batch, wait_for
from tests.conformance.wire_client import WireClient

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CASES = [case for row in ROWS if KEYS[row.api] in SERVED for case in row.cases()]
USERS = {case.name: f"u{number}" for number, case in enumerate(CASES)}
KINDS = {
    "topic": AclResourceType.TOPIC,
    "missing": AclResourceType.TOPIC,
    "new": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "new_group": AclResourceType.GROUP,
    "share_group": AclResourceType.GROUP,
    "consumer_group": AclResourceType.GROUP,
    "idle_group": AclResourceType.GROUP,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "cluster": AclResourceType.CLUSTER,
}
CREATED = ("topic", "hidden")
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
Connect = Callable[[], AbstractContextManager[WireClient]]
Login = Callable[[str], AbstractContextManager[WireClient]]


class Site:
    """`admin` is a super user, and so is who comes by `connect`; `login` connects as one of USERS."""

    spare = "spare"
    """A user whom no case has."""

    def __init__(self, servers: str, admin: WireClient, connect: Connect, login: Login) -> None:
        self.servers = servers
        self.admin = admin
        self.connect = connect
        self.login = login
        self._names = {case.name: self._names_of(case) for case in CASES}

    def prepare(self) -> None:
        self._create_topics()
        self._create_acls()
        for case in CASES:
            self._fill_groups(case)

    def _names_of(self, case: Case) -> dict[str, Any]:
        user = USERS[case.name]
        names: dict[str, Any] = {
            key: f"{key.replace('_', '-')}-{user}"
            for key in (
                *("topic", "hidden", "missing", "new", "group", "hidden_group", "missing_group"),
                *("transaction", "hidden_transaction", "share_group", "consumer_group", "idle_group"),
            )
        }
        names["batch"] = batch("value")
        names["transactional_batch"] = transactional_batch((10**9, 0), 0, "value")
        return names

    def _create_topics(self) -> None:
        wanted = [names[key] for names in self._names.values() for key in CREATED]
        created = self.admin.ask(
            "create_topics",
            7,
            timeout_ms=60_000,
            topics=[{"name": name, "num_partitions": 1, "replication_factor": 1} for name in wanted],
        )
        assert not any(topic.error_code for topic in created.topics), created

        def ids() -> dict[str, bytes] | None:
            topics = self.admin.ask("metadata", 12, topics=[{"name": name} for name in wanted]).topics
            is_led = all(not topic.error_code and topic.partitions[0].leader_id >= 0 for topic in topics)
            return {topic.name: topic.topic_id for topic in topics} if is_led else None

        found = wait_for(ids)
        for names in self._names.values():
            names["topic_id"], names["hidden_id"] = found[names["topic"]], found[names["hidden"]]
            names["topic_id_text"] = uuid_text(names["topic_id"])

    def _create_acls(self) -> None:
        acls = [self._acl(case, need) for case in CASES for need in case.granted]
        results = self.admin.ask("create_acls", 3, creations=acls).results
        assert not any(result.error_code for result in results), results

        def are_known() -> bool:
            everything = {
                "resource_type_filter": 1,
                "resource_name_filter": None,
                "pattern_type_filter": 1,
                "principal_filter": None,
                "host_filter": None,
                "operation": 1,
                "permission_type": 1,
            }
            resources = self.admin.ask("describe_acls", 3, **everything).resources
            return sum(len(resource.acls) for resource in resources) == len(acls)

        wait_for(are_known)

    def _acl(self, case: Case, need: str) -> dict[str, Any]:
        operation, resource = need.split()
        names = self._names[case.name]
        name = {
            "cluster": CLUSTER_NAME,
            "transactional_id": names["transaction"],
            "new_group": names["new"],
        }.get(resource) or names[resource]
        return {
            "resource_type": KINDS[resource],
            "resource_name": name,
            "resource_pattern_type": AclPatternType.LITERAL,
            "principal": f"User:{USERS[case.name]}",
            "host": "*",
            "operation": AclOperation[operation],
            "permission_type": AclPermission.ALLOW,
        }

    def _fill_groups(self, case: Case) -> None:
        """Groups that a case looks at have offsets in its topics, or a member that reads one of them."""
        names = self._names[case.name]
        text = str(case.row.fields)
        if "'{group}'" in text or case.row.api == "list_groups":
            for group in (names["group"], names["hidden_group"]):
                self._commit(group, names["topic"], names["hidden"])
        if "{share_group}" in text:
            self.start_share_group(names["share_group"], names["topic"])
        if "{consumer_group}" in text:
            fields = {"rebalance_timeout_ms": 1_000, "topic_partitions": []}
            self._join("consumer_group_heartbeat", 1, names["consumer_group"], names["topic"], **fields)

        if "{idle_group}" in text:
            topics = [
                {"topic_name": names[key], "partitions": [{"partition_index": 0, "start_offset": 0}]}
                for key in CREATED
            ]
            response = self.admin.ask(
                "alter_share_group_offsets", 0, group_id=names["idle_group"], topics=topics
            )
            assert not response.error_code, response

    def _commit(self, group: str, *topics: str) -> None:
        def committed() -> bool:
            partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
            response = self.admin.ask(
                "offset_commit",
                9,
                group_id=group,
                topics=[{"name": topic, "partitions": partitions} for topic in topics],
            )
            return not any(topic.partitions[0].error_code for topic in response.topics)

        wait_for(committed)

    def start_share_group(self, group: str, topic: str) -> None:
        """A share group that reads a topic from its beginning, with a member that has it assigned."""
        configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
        self.admin.ask(
            "incremental_alter_configs",
            1,
            resources=[{"resource_type": 32, "resource_name": group, "configs": configs}],
        )
        self._join("share_group_heartbeat", 1, group, topic)

    def _join(self, api: str, version: int, group: str, topic: str, **fields: Any) -> None:
        epoch = 0

        def is_assigned() -> bool:
            nonlocal epoch
            response = self.admin.ask(
                api,
                version,
                group_id=group,
                member_id=MEMBER,
                member_epoch=epoch,
                subscribed_topic_names=[topic],
                **fields,
            )
            epoch = response.member_epoch if not response.error_code else 0
            return bool(response.assignment and response.assignment.topic_partitions)

        wait_for(is_assigned)

    def ask(self, case: Case) -> dict[str, Any]:
        """What is compared: all that the user of a case is told, or only what it is refused."""
        told = self.told(case)
        return {"refusals": sorted(refusals(told))} if case.row.is_loose else told

    def told(self, case: Case) -> dict[str, Any]:
        """Error codes, names and authorized operations."""
        names = self._names[case.name]
        with self.login(USERS[case.name]) as wire:
            if case.row.api == "share_acknowledge":
                self._open_session(wire, names)
            response = wire.ask(case.row.api, case.row.version, **fill(case.row.fields, names))
        return outline(response, names)

    def _open_session(self, wire: WireClient, names: Mapping[str, Any]) -> None:
        topics = [
            {"topic_id": names[key], "partitions": [{"partition_index": 0}]}
            for key in ("topic_id", "hidden_id")
        ]
        wire.ask(
            "share_fetch", 1, group_id=names["group"], member_id="m", share_session_epoch=0, topics=topics
        )


SHOWN = frozenset(
    {"name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "is_internal"}
)
"""Fields that say what an item is about."""


def outline(response: Message, names: Mapping[str, Any]) -> dict[str, Any]:
    """The error codes, names and authorized operations in a response, with the keys of a case for its names."""
    keys = {value: "{" + key + "}" for key, value in names.items() if isinstance(value, str)}
    keys[f"{names['group']}:{names['topic_id_text']}:0"] = "{share_key}"
    ids = {names["topic_id"]: "{topic_id}", names["hidden_id"]: "{hidden_id}", bytes(16): "none"}
    return _outline(response, keys, ids)


def _outline(value: Any, keys: Mapping[str, str], ids: Mapping[bytes, str]) -> Any:
    seen: dict[str, Any] = {}
    for field in value.SCHEMA:
        found = getattr(value, field.name)
        if field.name == "configs":
            seen[field.name] = bool(found)
        elif field.struct is not None and field.kind.startswith("[]"):
            items = [_outline(item, keys, ids) for item in found or ()]
            if any(items):
                seen[field.name] = sorted((item for item in items if item), key=repr)
        elif field.struct is not None:
            inner = _outline(found, keys, ids) if found is not None else {}
            if inner:
                seen[field.name] = inner
        elif field.name.endswith("error_code") or field.name.endswith("authorized_operations"):
            seen[field.name] = found
        elif field.name in SHOWN:
            seen[field.name] = keys.get(found, found)
        elif field.name == "topic_id":
            seen[field.name] = ids.get(found, "other")
    return seen


AUTHORIZATION = frozenset({29, 30, 31, 53})


def refusals(told: Any) -> set[int]:
    """The codes of an outline that say that a permission is missing."""
    if isinstance(told, Mapping):
        return set().union(*(refusals(value) for value in told.values()))
    if isinstance(told, list):
        return set().union(*map(refusals, told))
    return {told} & AUTHORIZATION
