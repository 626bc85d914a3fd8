"""Looking after topics, groups and offsets: `AsyncAdmin` (aio.py) and `Admin` (sync.py), on any Kafka.

`call.py` sends and retries; one module for each kind of thing asks and reads; `results.py` has the answers' shapes.
"""

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.call import SomeFailedError
from headrace.client.admin.results import GroupState, GroupType, OffsetSpec
from headrace.client.admin.sync import Admin

EARLIEST, LATEST = OffsetSpec.EARLIEST, OffsetSpec.LATEST

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "AsyncAdmin",
    "GroupState",
    "GroupType",
    "OffsetSpec",
    "SomeFailedError",
]
