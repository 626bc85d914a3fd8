"""Share sessions: which partitions a member fetches, and the epochs that put its requests in order.

Theory of operation. A session lives on this broker alone and in memory alone, under (group, member). It holds the
member's partitions in an order, so that requests name only what changes, and the epoch its next request must carry:
ShareFetch and ShareAcknowledge share the counter. A request that passes the check consumes its epoch, whatever
becomes of it then. Epoch 0 opens a session and drops the member's old one without releasing its records; -1 closes
it. There are at most `sessions_max`; none is ever evicted for another.

Sessions are no part of the journal: after a restart every member opens a new one.
"""

from collections.abc import Iterable
from typing import TypeAlias

from headrace.share.errors import InvalidRequest, InvalidSessionEpoch, SessionLimitReached, SessionNotFound

PartitionKey: TypeAlias = tuple[bytes, int]
"""Topic id and partition index."""

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = (1 << 31) - 1


class ShareSession:
    __slots__ = ("_must_list", "_partitions", "connection_id", "epoch", "group_id", "member_id")

    def __init__(self, group_id: str, member_id: str, connection_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection_id = connection_id
        """The connection that opened it: when that closes, the session ends."""
        self.epoch = 1
        """What the next request must carry."""
        self._partitions: dict[PartitionKey, None] = {}
        self._must_list: set[PartitionKey] = set()

    def __contains__(self, partition: PartitionKey) -> bool:
        return partition in self._partitions

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[PartitionKey]:
        """In the session's order: those that were served last come last."""
        return list(self._partitions)

    def update(self, added: Iterable[PartitionKey], forgotten: Iterable[PartitionKey] = ()) -> None:
        """Adds partitions, then forgets some; naming one twice, or one that is known or not, does no harm."""
        for partition in added:
            if partition not in self._partitions:
                self._partitions[partition] = None
                self._must_list.add(partition)
        for partition in forgotten:
            self._partitions.pop(partition, None)
            self._must_list.discard(partition)

    def rotated(self, epoch: int) -> list[PartitionKey]:
        """In which order the request with this epoch tries them, so that none is always the last to get its turn."""
        partitions = list(self._partitions)
        turn = epoch % len(partitions) if partitions else 0
        return partitions[turn:] + partitions[:turn]

    def served(self, partition: PartitionKey) -> None:
        """It gave records: others come first next time."""
        if partition in self._partitions:
            del self._partitions[partition]
            self._partitions[partition] = None

    def must_list(self, partition: PartitionKey) -> bool:
        """Whether a response lists it even without news: it is new to the session, or had an error last time."""
        return partition in self._must_list

    def listed(self, partition: PartitionKey, *, has_error: bool) -> None:
        """A response lists it."""
        if has_error and partition in self._partitions:
            self._must_list.add(partition)
        else:
            self._must_list.discard(partition)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


class ShareSessions:
    """All share sessions of a broker."""

    __slots__ = ("_by_connection", "_by_group", "_sessions", "partitions_max", "sessions_max")

    def __init__(self, sessions_max: int, partitions_max: int = EPOCH_MAX) -> None:
        self.sessions_max = sessions_max
        self.partitions_max = partitions_max
        """Of one session, however many requests have named them: each fetch is about all of them."""
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[str, set[ShareSession]] = {}
        self._by_group: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Over all sessions, for the metric."""
        return sum(len(session) for session in self._sessions.values())

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def has_group(self, group_id: str) -> bool:
        """Whether any member of the group has a session."""
        return group_id in self._by_group

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        *,
        connection_id: str,
        added: Iterable[PartitionKey] = (),
        forgotten: Iterable[PartitionKey] = (),
        has_acknowledgements: bool = False,
    ) -> ShareSession:
        """The session a ShareFetch belongs to. With CLOSE_EPOCH it is still there: `remove` it after the answer."""
        if epoch == OPEN_EPOCH:
            if has_acknowledgements:
                raise InvalidRequest("A new share session cannot acknowledge records.")
            session = self._open(group_id, member_id, connection_id)
        else:
            session = self._advance(group_id, member_id, epoch)
        if epoch != CLOSE_EPOCH:
            session.update(added, forgotten)
            if len(session) > self.partitions_max:
                count = len(session)
                session.update((), session.partitions[self.partitions_max :])
                raise InvalidRequest(
                    f"A share session of {count} partitions, where {self.partitions_max} are allowed; "
                    "use several members."
                )
        return session

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session a ShareAcknowledge belongs to. With CLOSE_EPOCH it is still there, as above."""
        if epoch == OPEN_EPOCH:
            raise InvalidSessionEpoch("A share session is opened by fetching, not by acknowledging.")
        return self._advance(group_id, member_id, epoch)

    def remove(self, session: ShareSession) -> None:
        """Forgets a session, unless another has taken its place."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return
        del self._sessions[key]
        connected = self._by_connection[session.connection_id]
        connected.remove(session)
        if not connected:
            del self._by_connection[session.connection_id]
        self._by_group[session.group_id] -= 1
        if not self._by_group[session.group_id]:
            del self._by_group[session.group_id]

    def disconnected(self, connection_id: str) -> list[ShareSession]:
        """A connection closed: the sessions that it opened end with it. Release what their members hold."""
        ended = list(self._by_connection.get(connection_id, ()))
        for session in ended:
            self.remove(session)
        return ended

    def _open(self, group_id: str, member_id: str, connection_id: str) -> ShareSession:
        old = self._sessions.get((group_id, member_id))
        if old is not None:
            self.remove(old)
        elif len(self._sessions) >= self.sessions_max:
            raise SessionLimitReached(f"The limit of {self.sessions_max} share sessions has been reached.")
        session = ShareSession(group_id, member_id, connection_id)
        self._sessions[group_id, member_id] = session
        self._by_connection.setdefault(connection_id, set()).add(session)
        self._by_group[group_id] = self._by_group.get(group_id, 0) + 1
        return session

    def _advance(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise SessionNotFound(f"Member {member_id} of group {group_id} has no share session here.")
        if epoch != CLOSE_EPOCH:
            if epoch != session.epoch:
                raise InvalidSessionEpoch(f"The share session expects epoch {session.epoch}, not {epoch}.")
            session.advance()
        return session
