"""Access control lists: the words of the protocol, one entry, and filters over entries.

The numbers, names and rules of matching are Kafka's (org.apache.kafka.common.acl and .resource).
"""

from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
"""As a literal resource name: every resource of that type. As a host: every host."""
ANY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name that a resource of type CLUSTER has."""


class _Code(IntEnum):
    """A number of the protocol. One that a newer Kafka has added reads as UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> "_Code":
        return cls(0)


class AclResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(_Code):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: every entry that applies to the named resource, by its literal name, a prefix or the wildcard."""
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_Op = AclOperation
SUPPORTED: dict[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        _Op.READ, _Op.WRITE, _Op.CREATE, _Op.DELETE, _Op.ALTER, _Op.DESCRIBE, _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (_Op.READ, _Op.DELETE, _Op.DESCRIBE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
    AclResourceType.CLUSTER: (
        _Op.CREATE, _Op.ALTER, _Op.DESCRIBE, _Op.CLUSTER_ACTION, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS,
        _Op.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (_Op.WRITE, _Op.DESCRIBE, _Op.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (_Op.DESCRIBE,),
    AclResourceType.USER: (_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS),
}  # fmt: skip
"""What can be done to a resource, by its type."""


class Acl(NamedTuple):
    """One entry: whether a principal may, or may not, do something to resources, from a host."""

    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


def acl_of(
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    """An entry from the numbers of the protocol; one that is not known becomes UNKNOWN."""
    return Acl(
        AclResourceType(resource_type),
        resource_name,
        AclPatternType(pattern_type),
        principal,
        host,
        AclOperation(operation),
        AclPermission(permission),
    )


class AclFilter(NamedTuple):
    """Which entries are meant; what is left out matches all."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (AclPatternType.ANY, AclPatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not AclPatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type is AclPatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)
