"""Which partitions to fetch from which broker: the assignment by topic id, put together with the leaders of partitions.

Where the metadata does not say who leads an assigned partition, or a broker has said that it is not the leader, new
metadata is wanted: at once the first time, then ever more slowly until the picture is complete again.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.base.backoff import Jitter, RetryBackoff
from headrace.client.core.acknowledgements import Key
from headrace.client.core.membership import Assignment
from headrace.client.settings import ShareSettings


class TopicView(NamedTuple):
    """What the metadata says of a topic: its name, and the leader of each partition."""

    name: str
    leaders: Mapping[int, int]


class Placement:
    """`wanted` holds the partitions to fetch by broker; it changes with `assign` and `learn`."""

    def __init__(self, settings: ShareSettings, jitter: Jitter) -> None:
        self.assignment: Assignment = {}
        self.wanted: dict[int, dict[Key, None]] = {}
        self.is_complete = False
        """Whether the leaders of all assigned partitions are known."""
        self.metadata_due_ms: int | None = None
        self._topics: dict[bytes, TopicView] = {}
        self._backoff = RetryBackoff(
            settings.retry_backoff_ms, 10 * settings.retry_backoff_max_ms, jitter.fraction
        )

    def assign(self, assignment: Assignment, *, now_ms: int) -> None:
        self.assignment = assignment
        self._place(now_ms)

    def learn(self, topics: Mapping[bytes, TopicView], *, now_ms: int) -> None:
        """The metadata of the topics that the assignment names, as far as there is any."""
        self._topics.update(topics)
        self.metadata_due_ms = None
        self._place(now_ms)

    def want_metadata(self, *, now_ms: int) -> None:
        if self.metadata_due_ms is None:
            is_first = not self._backoff.failures
            wait_ms = self._backoff.after_failure()
            self.metadata_due_ms = now_ms if is_first else now_ms + wait_ms

    def wants_metadata(self, *, now_ms: int) -> bool:
        return self.metadata_due_ms is not None and now_ms >= self.metadata_due_ms

    def metadata_asked(self) -> None:
        """Asking has begun: it is not wanted twice."""
        self.metadata_due_ms = None

    def name_of(self, topic_id: bytes) -> str | None:
        view = self._topics.get(topic_id)
        return None if view is None else view.name

    def about(self, key: Key) -> str:
        """How an error names a partition."""
        return f"partition {self.name_of(key[0]) or key[0].hex()}-{key[1]}"

    def _place(self, now_ms: int) -> None:
        self.wanted = {}
        self.is_complete = True
        for topic_id, partitions in self.assignment.items():
            view = self._topics.get(topic_id)
            for partition in partitions:
                leader_id = -1 if view is None else view.leaders.get(partition, -1)
                if leader_id < 0:
                    self.is_complete = False
                else:
                    self.wanted.setdefault(leader_id, {})[topic_id, partition] = None
        if self.is_complete:
            self._backoff.reset()
        else:
            self.want_metadata(now_ms=now_ms)
