"""What can be made safe against a power cut: a log, a checkpoint, the data directory, the metadata store."""

from collections.abc import Iterable
from typing import Protocol


class Durable(Protocol):
    def sync(self) -> "Iterable[Durable] | None":
        """Makes everything it holds now safe. From a worker's thread; several things may sync at a time.

        Returns what has to be synced after it before it counts as durable. OSError: nobody knows what is on the disk
        any more. KafkaError: nothing was done, all is as before, and it may be tried again.
        """
