"""The broker's access control: entries in the metadata store, decisions by the authorizer, a log of what is denied.

`BrokerCore.access` is None while `authorizer.class.name` is empty. What each API needs is in `needs.py`.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.base.text import printable
from headrace.broker.call import Call
from headrace.broker.security.authorizer import Authorizer
from headrace.broker.settings import Settings
from headrace.broker.settings.access_table import split_principals
from headrace.log.metadata import MetadataStore
from headrace.wire.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

logger = logging.getLogger("headrace.authorizer")

NO_AUTHORIZER = "No Authorizer is configured"
NOTHING: frozenset[bytes] = frozenset()
NAME_LOGGED_MAX = 256
LOGGED_MAX = 10_000
"""Different refusals that are remembered so that each is logged once; with more, they are logged again."""
LOGGED_OF_REQUEST_MAX = 20
"""Refusals of one request that are logged, each in a line. One more line says that there are others."""


class AccessControl:
    def __init__(self, metadata: MetadataStore, settings: Settings) -> None:
        self._metadata = metadata
        self._logged: set[tuple[str, str, AclOperation, AclResourceType, str]] = set()
        self._lines: dict[int, tuple[Call, int]] = {}
        """The newest request of each connection, and how many of its refusals were logged."""
        self._authorizer = Authorizer(
            super_users=split_principals(settings.get_str("super.users")),
            allows_without_acl=settings.get_bool("allow.everyone.if.no.acl.found"),
        )
        self._authorizer.change(add=metadata.acls())

    def __len__(self) -> int:
        return len(self._authorizer)

    def allows(self, call: Call, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        """Whether this is allowed; a refusal is logged."""
        if self.may(call, operation, kind, name):
            return True
        self._log(call, operation, kind, name)
        return False

    def may(self, call: Call, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        """The same for what is only looked at: what is left out of a list was not asked for, and is not logged."""
        return self._authorizer.allows(call.principal, host_of(call), operation, kind, name)

    def may_any(self, call: Call, operation: AclOperation, kind: AclResourceType) -> bool:
        """Whether there may be any resource of this type that the client may do this to."""
        return self._authorizer.allows_any(call.principal, host_of(call), operation, kind)

    def authorized(self, call: Call, kind: AclResourceType, name: str) -> int:
        """What the client may do to a resource, as answers tell it: a bit field of operations."""
        return self._authorizer.authorized(call.principal, host_of(call), kind, name)

    def matching(self, wanted: AclFilter) -> list[Acl]:
        return self._authorizer.matching(wanted)

    def create(self, acls: Sequence[Acl]) -> None:
        """All of them together. They are in force at once, and durable when `BrokerCore.durable` resolves."""
        new = [acl for acl in dict.fromkeys(acls) if acl not in self._authorizer]
        if new:
            self._metadata.change_acls(add=new)
            self._change(add=new)
            for acl in new:
                logger.info("created %s", describe(acl))

    def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """What was deleted for each filter. An entry that several filters match is named by each."""
        found = [self.matching(wanted) for wanted in filters]
        gone = list(dict.fromkeys(acl for acls in found for acl in acls))
        if gone:
            self._metadata.change_acls(remove=gone)
            self._change(remove=gone)
            for acl in gone:
                logger.info("deleted %s", describe(acl))
        return found

    def _change(self, *, add: Sequence[Acl] = (), remove: Sequence[Acl] = ()) -> None:
        self._authorizer.change(add=add, remove=remove)
        self._forget_logged()

    def _forget_logged(self) -> None:
        self._logged.clear()
        self._lines.clear()

    def _log(self, call: Call, operation: AclOperation, kind: AclResourceType, name: str) -> None:
        name = printable(name[:NAME_LOGGED_MAX])
        denied = (call.principal, call.client_host, operation, kind, name)
        if denied in self._logged:
            return
        if len(self._logged) >= LOGGED_MAX:
            self._forget_logged()
        newest, lines = self._lines.get(call.connection_id, (call, 0))
        lines = lines + 1 if newest is call else 1
        self._lines[call.connection_id] = (call, lines)
        if lines > LOGGED_OF_REQUEST_MAX:
            if lines == LOGGED_OF_REQUEST_MAX + 1:
                logger.info(
                    "%s from %s is denied more in the same request (%s on %s); it is not logged",
                    printable(call.principal),
                    host_of(call),
                    operation.name,
                    kind.name,
                )
            return
        self._logged.add(denied)
        logger.info(
            "%s from %s is denied %s on %s %s",
            printable(call.principal),
            host_of(call),
            operation.name,
            kind.name,
            name,
        )


def may_topic(core: "BrokerCore", call: Call, operation: AclOperation, topic: str) -> bool:
    """Whether the client may do this to a topic; for handlers that look at topics one by one."""
    access = core.access
    return access is None or access.allows(call, operation, AclResourceType.TOPIC, topic)


def is_visible(core: "BrokerCore", call: Call, topic: str) -> bool:
    """Whether a topic that the client has not named may be shown to it."""
    access = core.access
    return access is None or access.may(call, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def unreadable(core: "BrokerCore", call: Call, topic_ids: Iterable[bytes]) -> frozenset[bytes]:
    """Topics that the client may not read. An id that no topic has is not one of them."""
    if core.access is None:
        return NOTHING
    topics = [core.topics.by_id(topic_id) for topic_id in set(topic_ids)]
    return frozenset(
        topic.id
        for topic in topics
        if topic is not None and not may_topic(core, call, AclOperation.READ, topic.name)
    )


def host_of(call: Call) -> str:
    return call.client_host.removeprefix("/")


def describe(acl: Acl) -> str:
    return printable(
        f"ACL: {acl.permission.name} {acl.principal} from {acl.host} to {acl.operation.name} "
        f"{acl.resource_type.name} {acl.pattern_type.name}:{acl.resource_name}"
    )


def check_new(acl: Acl) -> None:
    """Refuses an entry that no resource can have, with Kafka's texts."""
    kind = acl.resource_type
    if kind is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if kind in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise _invalid(f"Invalid resourceType {kind.name}")
    if acl.pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (AclPermission.ALLOW, AclPermission.DENY):
        raise _invalid(f"Invalid permissionType {acl.permission.name}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
