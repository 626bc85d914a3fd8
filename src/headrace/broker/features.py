"""The features that ApiVersions tells clients of. Share groups are on from `share.version` 1."""

from typing import NamedTuple

from headrace.broker.settings import Settings
from headrace.wire.errors import ErrorCode, KafkaError


class Feature(NamedTuple):
    lowest: int
    highest: int
    level: int
    """The version that is on; 0: off."""


_FIXED = {
    "group.version": Feature(0, 1, 1),
    "transaction.version": Feature(0, 2, 2),
    "metadata.version": Feature(7, 30, 30),
}


def features(settings: Settings) -> dict[str, Feature]:
    """By name. Kafka 4.3 knows `share.version` up to 1; dead-letter queues (2) show once they are turned on."""
    share = settings.int("headrace.share.version")
    return {**_FIXED, "share.version": Feature(0, max(share, 1), share)}


def require_share_groups(settings: Settings) -> None:
    if settings.int("headrace.share.version") < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
