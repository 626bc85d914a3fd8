"""Who may do what: the rules of Kafka's StandardAuthorizer. Pure: no I/O, no clock.

An entry applies to a resource by its literal name, by a prefix of its name, or by the wildcard. One entry that denies
outweighs all that allow. Without an entry that allows, access is denied, unless no entry at all applies to the resource
and `allow.everyone.if.no.acl.found` is set. Super users may do everything.

Theory of operation. Entries are kept by resource type, then by literal name or prefix, then by principal and host, as
two sets of operations (bit fields): allowed and denied. A decision looks up the name, the wildcard and as many prefixes
as there are different lengths of prefixes; how many entries there are does not matter. Decisions are remembered until
an entry changes.
"""

import ipaddress
from collections.abc import Iterable, Iterator

from headrace.wire.acls import (
    ANY_USER,
    SUPPORTED,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)

REMEMBERED_MAX = 10_000
"""Decisions that are remembered; with more, all are forgotten and made again."""
NAME_REMEMBERED_MAX = 256
"""Longer names are decided each time: clients choose names, and they must not fill the memory."""
_EVERY_OPERATION = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
_IMPLIED = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""Who is allowed the first is also allowed the second. Who is denied the first is not denied the second."""


class _Rules:
    """The entries of one resource pattern, and what they allow and deny, by principal and host."""

    __slots__ = ("acls", "by_whom")

    def __init__(self) -> None:
        self.acls: dict[Acl, None] = {}
        self.by_whom: dict[tuple[str, str], tuple[int, int]] | None = None
        """None: entries were removed since it was made. Many may go at once, and it is made anew once."""

    def add(self, acl: Acl) -> None:
        self.acls[acl] = None
        if self.by_whom is not None:
            _note(self.by_whom, acl)

    def remove(self, acl: Acl) -> None:
        del self.acls[acl]
        self.by_whom = None

    def of(self, principal: str, host: str) -> tuple[int, int]:
        if self.by_whom is None:
            self.by_whom = {}
            for acl in self.acls:
                _note(self.by_whom, acl)
        allowed = denied = 0
        for whom in ((principal, host), (principal, WILDCARD), (ANY_USER, host), (ANY_USER, WILDCARD)):
            found = self.by_whom.get(whom)
            if found is not None:
                allowed |= found[0]
                denied |= found[1]
        return allowed, denied


def _note(by_whom: dict[tuple[str, str], tuple[int, int]], acl: Acl) -> None:
    whom = (acl.principal, canonical_host(acl.host))
    allowed, denied = by_whom.get(whom, (0, 0))
    if acl.permission is AclPermission.ALLOW:
        allowed |= _allowed_bits(acl.operation)
    else:
        denied |= _bits(acl.operation)
    by_whom[whom] = allowed, denied


class _Resources:
    """The entries of one resource type."""

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.lengths: dict[int, int] = {}
        """How many prefixes there are of each length."""

    def add(self, acl: Acl) -> None:
        patterns = self._of_type(acl)
        rules = patterns.get(acl.resource_name)
        if rules is None:
            rules = patterns[acl.resource_name] = _Rules()
            self._count_prefix(acl, 1)
        rules.add(acl)

    def remove(self, acl: Acl) -> None:
        patterns = self._of_type(acl)
        rules = patterns[acl.resource_name]
        rules.remove(acl)
        if not rules.acls:
            del patterns[acl.resource_name]
            self._count_prefix(acl, -1)

    def _of_type(self, acl: Acl) -> dict[str, _Rules]:
        return self.literal if acl.pattern_type is AclPatternType.LITERAL else self.prefixed

    def _count_prefix(self, acl: Acl, change: int) -> None:
        if acl.pattern_type is AclPatternType.PREFIXED:
            length = len(acl.resource_name)
            count = self.lengths.pop(length, 0) + change
            if count:
                self.lengths[length] = count

    def applying(self, name: str) -> Iterator[_Rules]:
        literal = self.literal.get(name)
        if literal is not None:
            yield literal
        anything = self.literal.get(WILDCARD)
        if anything is not None and name != WILDCARD:
            yield anything
        for length in self.lengths:
            if length <= len(name):
                rules = self.prefixed.get(name[:length])
                if rules is not None:
                    yield rules


class Authorizer:
    def __init__(self, *, super_users: Iterable[str] = (), allows_without_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self._acls: dict[Acl, None] = {}
        self._resources: dict[AclResourceType, _Resources] = {}
        self._remembered: dict[tuple[str, str, AclResourceType, str], int] = {}
        self._remembered_any: dict[tuple[str, str, AclResourceType, AclOperation], bool] = {}

    def __len__(self) -> int:
        return len(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def matching(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self._acls if wanted.matches(acl)]

    def change(self, *, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> None:
        """Entries that are there already, or not there, change nothing."""
        for acl in remove:
            if acl in self._acls:
                del self._acls[acl]
                self._resources[acl.resource_type].remove(acl)
        for acl in add:
            if acl not in self._acls:
                self._acls[acl] = None
                self._resources.setdefault(acl.resource_type, _Resources()).add(acl)
        self._remembered.clear()
        self._remembered_any.clear()

    def allows(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> bool:
        return bool(self.operations(principal, host, kind, name) >> operation & 1)

    def authorized(self, principal: str, host: str, kind: AclResourceType, name: str) -> int:
        """The operations that answers list as authorized: those that a resource of this type has."""
        return self.operations(principal, host, kind, name) & supported_bits(kind)

    def operations(self, principal: str, host: str, kind: AclResourceType, name: str) -> int:
        """All operations that are allowed, as a bit field of their numbers."""
        if principal in self._super_users:
            return _EVERY_OPERATION
        key = (principal, host, kind, name)
        known = self._remembered.get(key)
        if known is None:
            known = self._decide(principal, canonical_host(host), kind, name)
            if len(name) <= NAME_REMEMBERED_MAX:
                if len(self._remembered) >= REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[key] = known
        return known

    def _decide(self, principal: str, host: str, kind: AclResourceType, name: str) -> int:
        resources = self._resources.get(kind)
        allowed = denied = 0
        is_without_acl = True
        if resources is not None:
            for rules in resources.applying(name):
                is_without_acl = False
                more_allowed, more_denied = rules.of(principal, host)
                allowed |= more_allowed
                denied |= more_denied
        if is_without_acl:
            return _EVERY_OPERATION if self._allows_without_acl else 0
        return allowed & ~denied

    def allows_any(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
        """Whether there may be any resource of this type that the principal may do this to (KIP-679)."""
        if self.allows(principal, host, operation, kind, "hardcode"):  # the name that Kafka tries
            return True
        key = (principal, host, kind, operation)
        known = self._remembered_any.get(key)
        if known is None:
            known = self._decide_any(principal, canonical_host(host), operation, kind)
            if len(self._remembered_any) >= REMEMBERED_MAX:
                self._remembered_any.clear()
            self._remembered_any[key] = known
        return known

    def _decide_any(self, principal: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
        allowed: list[Acl] = []
        denied: set[tuple[AclPatternType, str]] = set()
        for acl in self._acls:
            if (
                acl.resource_type is kind
                and acl.principal in (principal, ANY_USER)
                and canonical_host(acl.host) in (host, WILDCARD)
                and acl.operation in (operation, AclOperation.ALL)
            ):
                if acl.permission is AclPermission.ALLOW:
                    allowed.append(acl)
                else:
                    denied.add((acl.pattern_type, acl.resource_name))
        if (AclPatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_dominated(acl, denied) for acl in allowed)


def _is_dominated(acl: Acl, denied: set[tuple[AclPatternType, str]]) -> bool:
    """Whether everything that an entry allows is denied by another."""
    name = acl.resource_name
    if acl.pattern_type is AclPatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (AclPatternType.LITERAL, name) in denied:
            return True
    return any((AclPatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))


def supported_bits(kind: AclResourceType) -> int:
    return sum(1 << operation for operation in SUPPORTED[kind])


def canonical_host(host: str) -> str:
    """One text for every way to write an address: Java writes ::1 as 0:0:0:0:0:0:0:1."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def _bits(operation: AclOperation) -> int:
    return _EVERY_OPERATION if operation is AclOperation.ALL else 1 << operation


def _allowed_bits(operation: AclOperation) -> int:
    bits = _bits(operation)
    implied = _IMPLIED.get(operation)
    return bits if implied is None else bits | 1 << implied
