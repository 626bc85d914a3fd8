"""Looking after topics, groups and offsets: `AsyncAdmin` (aio.py) and `Admin` (sync.py), on any Kafka.

`call.py` sends and retries; one module for each kind of thing asks and reads; `results.py` has the answers' shapes.
"""

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.call import SomeFailedError
from headrace.client.admin.sync import Admin
from headrace.wire.acls import Acl, AclFilter, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.enums import GroupState, GroupType, OffsetSpec

EARLIEST, LATEST = OffsetSpec.EARLIEST, OffsetSpec.LATEST

__all__ = [
    "EARLIEST",
    "LATEST",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AsyncAdmin",
    "GroupState",
    "GroupType",
    "OffsetSpec",
    "SomeFailedError",
]
