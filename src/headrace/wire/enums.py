"""Kafka's enumerations, with its numbers and words, for the broker and the clients.

Those of the lower layers are there: `AcknowledgeType` and `AcquireMode` in share/, `ConfigType` in base/settings.py.
"""

from enum import IntEnum, StrEnum


class GroupType(StrEnum):
    SHARE = "share"
    CONSUMER = "consumer"
    CLASSIC = "classic"
    STREAMS = "streams"
    UNKNOWN = "unknown"


class GroupState(StrEnum):
    """Share groups are only ever Empty or Stable."""

    EMPTY = "Empty"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    DEAD = "Dead"
    UNKNOWN = "Unknown"


class OffsetSpec(IntEnum):
    """Places in a log that have a name; the numbers are those of ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class ConfigSource(IntEnum):
    """Where a config's value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigResourceType(IntEnum):
    """What can have configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs does to one config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
