"""The settings of a group that its share-partitions obey; read anew for every decision, since they can change."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    delivery_limit: int = 5  # share.delivery.count.limit
    window_max: int = 2_000  # share.partition.max.record.locks
    lock_ms: int = 30_000  # share.record.lock.duration.ms
    renew_enabled: bool = True  # share.renew.acknowledge.enable
    dead_letters: bool = False  # errors.deadletterqueue.topic.name is set and usable

    @property
    def isolation_count(self) -> int:
        """From this many deliveries on, records that come back are handed out in ever smaller pieces."""
        return max(2, (self.delivery_limit + 1) // 2)
