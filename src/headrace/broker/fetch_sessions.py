"""Fetch sessions (KIP-227): the partitions a client fetches again and again, so that it names only what changed.

A session is an ordered set of partitions with what the client was last told of each. Epoch 0 opens one, -1 ends it (or
fetches without one), n must be the number the client was last told to use. When the table is full, a session that
has not been used for two minutes gives way; if there is none, the client is served without a session.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable

from headrace.wire.errors import ErrorCode, KafkaError

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
IDLE_MS_MIN = 120_000
EPOCH_MAX = 2**31 - 1


class WantedPartition:
    """One partition of a fetch: what the client wants, and inside a session what it was last told."""

    __slots__ = (
        "fetch_offset",
        "index",
        "known_high_watermark",
        "known_start_offset",
        "leader_epoch",
        "max_bytes",
        "topic_id",
        "topic_name",
    )

    def __init__(
        self,
        topic_name: str,
        topic_id: bytes,
        index: int,
        *,
        fetch_offset: int,
        max_bytes: int,
        leader_epoch: int,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.known_high_watermark = -1
        self.known_start_offset = -1

    @property
    def key(self) -> tuple[str, bytes, int]:
        return self.topic_name, self.topic_id, self.index


class FetchSession:
    def __init__(self, session_id: int, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = 0
        self.partitions: OrderedDict[tuple[str, bytes, int], WantedPartition] = OrderedDict()

    def update(self, wanted: Iterable[WantedPartition], forgotten: Iterable[tuple[str, bytes, int]]) -> None:
        for partition in wanted:
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.fetch_offset = partition.fetch_offset
                known.max_bytes = partition.max_bytes
                known.leader_epoch = partition.leader_epoch
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, partition: WantedPartition) -> None:
        """A partition that was just served waits behind the others, so that all get their turn."""
        if partition.key in self.partitions:
            self.partitions.move_to_end(partition.key)


class FetchSessions:
    def __init__(self, sessions_max: int, partitions_max: int = 2**31 - 1) -> None:
        """`partitions_max`: of one session, however many requests have named them."""
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def open(self, *, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if not self._make_room(now_ms):
            return None
        session_id = random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids)
        session.last_used_ms = now_ms
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < IDLE_MS_MIN:
            return False
        del self._sessions[oldest.id]
        return True

    def advance(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """The session of an incremental fetch, its epoch moved on by one."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def update(
        self,
        session: FetchSession,
        wanted: Iterable[WantedPartition],
        forgotten: Iterable[tuple[str, bytes, int]] = (),
    ) -> None:
        """Each fetch of the session is about all of them. INVALID_REQUEST ends one that has too many."""
        session.update(wanted, forgotten)
        count = len(session.partitions)
        if count > self._partitions_max:
            self.close(session.id)
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A fetch session of {count} partitions, where {self._partitions_max} are allowed; use several.",
            )

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def __len__(self) -> int:
        return len(self._sessions)
