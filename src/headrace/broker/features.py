"""Features: versions of behavior that hold for the whole cluster (KIP-584). ApiVersions shows them to clients.

UpdateFeatures (`kafka-features upgrade`) changes the level of `share.version`: 0 turns share groups off, 1 is share
groups as in Kafka 4.2, 2 adds dead-letter queues (KIP-1191). The levels of the others cannot change.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.log.metadata import MetadataStore
from headrace.wire.errors import ErrorCode, KafkaError

SHARE = "share.version"
DEAD_LETTER_QUEUES_SINCE = 2


class Feature(NamedTuple):
    lowest: int
    highest: int
    level: int
    """The version that is on; 0: off."""

    def supports(self, level: int) -> bool:
        return self.lowest <= level <= self.highest


NEW = {
    "group.version": Feature(0, 1, 1),
    "transaction.version": Feature(0, 2, 2),
    "metadata.version": Feature(7, 30, 30),
    SHARE: Feature(0, 2, 2),
}
"""Those of a new data directory."""
FIXED = NEW.keys() - {SHARE}
KIND, RESOURCE = "feature", ""
"""Where the metadata store keeps the levels that were changed."""


class FinalizedFeatures:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self.on_changed: list[Callable[[], None]] = []
        changed = metadata.configs(KIND).get(RESOURCE, {})
        self.by_name = {
            name: feature._replace(level=int(changed.get(name, feature.level)))
            for name, feature in NEW.items()
        }

    def finalize(self, levels: dict[str, int]) -> None:
        """Changes the levels of some features, all or none of them; they have been checked."""
        by_name = self.by_name | {name: self.by_name[name]._replace(level=levels[name]) for name in levels}
        changed = {
            name: str(feature.level) for name, feature in by_name.items() if feature.level != NEW[name].level
        }
        self._metadata.set_configs(KIND, RESOURCE, changed)
        self.by_name = by_name
        for told in self.on_changed:
            told()

    @property
    def has_dead_letter_queues(self) -> bool:
        return self.by_name[SHARE].level >= DEAD_LETTER_QUEUES_SINCE

    def require_share_groups(self) -> None:
        if self.by_name[SHARE].level < 1:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
