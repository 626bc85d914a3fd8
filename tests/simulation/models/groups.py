"""The promises about groups: committed offsets last, never point past what exists, and die with their topic;
members share.

An offset that a client was told is committed is what the group has until somebody commits, resets or deletes
it. What was sent and not answered may count or not. After an unclean end offsets beyond the log's end are moved
back to it.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, Topic
from headrace.wire.enums import GroupType
from headrace.wire.errors import ErrorCode
from tests.simulation.model import End, Model
from tests.simulation.models.logs import Logs
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

ROUND_MS = 3_000
ROUNDS_MAX = 40
"""Of heartbeats: enough for the sessions of members that are gone to end."""


@runtime_checkable
class Sharing(Protocol):
    """An actor whose group shares partitions by heartbeats."""

    subscription: list[str]
    assigned: set[tuple[bytes, int]]

    def wants_to_share(self) -> bool: ...
    def beat(self) -> Generator[Any, None, Any]: ...


Place = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(slots=True, eq=False)
class Commit:
    number: int
    offset: int | None
    """None: a deletion."""
    is_done: bool = False
    """Answered, or its connection lost: nothing more will come of it."""
    is_certain: bool = True
    """False for an offset in a transaction that a power loss may have taken out of it, where nothing is synced."""
    may_come: bool = False
    """Its EndTxn is sent again until somebody answers, after a restart too."""


@dataclass(slots=True)
class Committed:
    """What a group may have for one partition: any of these."""

    candidates: list[Commit] = field(default_factory=lambda: [Commit(0, None, is_done=True)])
    is_unknown: bool = False

    def offsets(self) -> set[int | None]:
        return {commit.offset for commit in self.candidates}


class Groups(Model):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.committed: dict[Place, Committed] = {}
        self.pending: dict[str, list[tuple[Place, Commit]]] = {}
        """Offsets that the broker has taken into a transaction which nobody has asked to end yet, by its producer."""
        self._numbers = count(1)
        self._snapshot: object = None
        self._late: set[Place] = set()
        """Since the last start, offsets of transactions that had not ended then: where one was decided, its markers
        follow once the decision is durable."""
        self.is_damaged = False
        """A bit of the journal has flipped: groups may be refused, or have forgotten anything."""

    @property
    def logs(self) -> Logs:
        return self.world.model(Logs)

    # Commits

    def sent(self, place: Place, offset: int | None) -> Commit:
        commit = Commit(next(self._numbers), offset)
        self.committed.setdefault(place, Committed()).candidates.append(commit)
        return commit

    def sent_end(self, offsets: list[tuple[Place, Commit]]) -> list[tuple[Place, Commit]]:
        """A producer asks to commit the transaction that it has sent these offsets to."""
        sent = [(place, self.sent(place, one.offset)) for place, one in offsets]
        for (_, commit), (_, one) in zip(sent, offsets, strict=True):
            commit.is_certain, commit.may_come = one.is_certain, True
        return sent

    def told(self, place: Place, commit: Commit) -> None:
        """It counts: what was over before it was sent does not any more."""
        commit.is_done, commit.may_come = True, False
        committed = self.committed.get(place)
        if committed is None or commit not in committed.candidates:
            return  # the topic was deleted meanwhile
        if not commit.is_certain:
            return
        committed.is_unknown = False
        committed.candidates = [
            other
            for other in committed.candidates
            if other is commit or not other.is_done or other.number > commit.number
        ]

    def refused(self, place: Place, commit: Commit) -> None:
        committed = self.committed.get(place)
        if committed is not None and commit in committed.candidates:
            committed.candidates.remove(commit)

    def answered(self, place: Place, commit: Commit, code: int) -> None:
        """With Kafka's error code."""
        if code == ErrorCode.NONE:
            self.told(place, commit)
        else:
            self.refused(place, commit)

    def lost(self, commit: Commit) -> None:
        commit.is_done, commit.may_come = True, False

    def will_delete_group(self, group_id: str) -> list[tuple[Place, Commit]]:
        return [(place, self.sent(place, None)) for place in list(self.committed) if place[0] == group_id]

    def fetched(self, place: Place, offset: int) -> None:
        """A client was told what is committed; -1 for nothing."""
        self._check(place, None if offset < 0 else offset, "as OffsetFetch says")

    # Topics

    def _topic_deleted(self, topic: Topic) -> None:
        for place, committed in self.committed.items():
            if place[1] == topic.name:
                nothing = Commit(next(self._numbers), None, is_done=True)
                waiting = [commit for commit in committed.candidates if not commit.is_done]
                committed.candidates = [nothing, *waiting]
        self._drop_pending({topic.name})

    def _drop_pending(self, gone: set[str]) -> None:
        for offsets in self.pending.values():
            offsets[:] = [(place, commit) for place, commit in offsets if place[1] not in gone]

    # In the end

    def at_end(self) -> None:
        """The members of a group that is left alone soon share all there is to read, whatever the clock did before."""
        members = [
            actor for actor in self.world.actors if isinstance(actor, Sharing) and actor.wants_to_share()
        ]
        if not members or self.is_damaged:
            return
        for _ in range(ROUNDS_MAX):
            for member in members:
                for _ in member.beat():
                    self.world.settle()
            self.world.advance(ROUND_MS)
            self.world.settle()
            if self.world.failure is not None:
                return
            missing = self._missing(members)
            if not missing:
                return
        raise Violation(
            "group never shares", f"after {ROUNDS_MAX * ROUND_MS} ms nobody has {sorted(missing)}"
        )

    def _missing(self, members: "list[Sharing]") -> set[tuple[str, int]]:
        wanted = {
            (topic, index)
            for member in members
            for topic in member.subscription
            if topic in self.logs.topics
            for index in range(self.logs.partitions[self.logs.topics[topic]])
        }
        return wanted - {
            (topic, index)
            for member in members
            for topic, topic_id in self.logs.topics.items()
            for known, index in member.assigned
            if known == topic_id
        }

    # What the broker has

    def after_turn(self) -> None:
        if not self.world.turns.is_idle:
            self.after_step()

    def after_step(self) -> None:
        for group in self.core.groups.state.registry:
            if isinstance(group, ConsumerGroup):
                self._check_shared(group)

    def _check_shared(self, group: ConsumerGroup) -> None:
        """No partition is held by two members."""
        held: dict[object, str] = {}
        for member_id, member in group.members.items():
            for partition in (*member.held, *member.revoking):
                other = held.setdefault(partition, member_id)
                if other != member_id:
                    raise Violation(
                        "partition of two members",
                        f"{group.group_id}: {partition} of {other} and {member_id}",
                    )

    def damage(self, topic: str, partition: int) -> None:
        self.is_damaged = self.is_damaged or topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)

    def before_end(self, how: End) -> None:
        for committed in self.committed.values():
            for commit in committed.candidates:
                commit.is_done = True
        if how is End.POWER and not self.world.scenario.is_fsync:
            sent = [one for committed in self.committed.values() for one in committed.candidates]
            for commit in (*sent, *(commit for _, commit in self._all_pending())):
                commit.is_certain = False
        self._snapshot = self._state() if how is End.CLEAN and not self.is_damaged else None

    def _state(self) -> dict[str, object]:
        """All that a replay must bring back."""
        state: dict[str, object] = {
            f"group {group.group_id}": group.snapshot()
            for group in self.core.groups.state.registry
            # A classic group is written down when it is stable; until then its members join anew.
            # What a share group still knows of a deleted topic is mended at start.
            if group.type is GroupType.CONSUMER or group.state_name == "Stable"
            if group.type is not GroupType.SHARE
        }
        committed, pending, _ = self.core.groups.state.offsets.snapshot()
        if not pending:  # a start sees decided transactions through, and their offsets count then
            state["offsets"] = committed
        return state

    def after_start(self, how: End) -> None:
        self.core.topics.on_deleted.append(self._topic_deleted)
        self._drop_pending({place[1] for place, _ in self._all_pending()} - self.logs.topics.keys())
        if not self.core.logs.was_clean:
            self._move_back()
        self._late = self._in_transactions() & self.committed.keys()
        for place, committed in self.committed.items():
            if how is End.POWER and not self.world.scenario.is_fsync:
                committed.is_unknown = True
            if place not in self._late:
                self._check_after_start(place, how)
        if how is End.CLEAN and self._snapshot is not None:
            self._check_replay()

    def at_rest(self) -> None:
        for place in self._late - self._in_transactions():
            self._late.remove(place)
            if place[1] in self.logs.topics:
                found = self.core.groups.state.offsets.get(*place)
                self._check(
                    place, found.offset if found is not None else None, "when its transaction has ended"
                )

    def _in_transactions(self) -> set[Place]:
        """Offsets that show when a transaction ends."""
        _, pending, _ = self.core.groups.state.offsets.snapshot()
        return {
            (group_id, topic, index)
            for groups in pending.values()
            for group_id, topics in groups.items()
            for topic, indexes in topics.items()
            for index in indexes
        }

    def _all_pending(self) -> list[tuple[Place, Commit]]:
        return [one for offsets in self.pending.values() for one in offsets]

    def _move_back(self) -> None:
        """After an unclean end no offset lies beyond where its log was found to end, even one whose transaction is
        still open: that one shows when it is committed, and other records may have the offsets beyond by then.
        """
        sent = [(place, one) for place, committed in self.committed.items() for one in committed.candidates]
        for place, commit in (*sent, *self._all_pending()):
            topic_id = self.logs.topics.get(place[1])
            if topic_id is None or commit.offset is None:
                continue
            model = self.logs.logs.get((topic_id, place[2]))
            if model is None or not model.is_damaged:
                commit.offset = min(commit.offset, model.recovered_end if model is not None else 0)

    def _check_replay(self) -> None:
        before, after = self._snapshot, self._state()
        assert isinstance(before, dict)
        for state in (before, after):
            if "offsets" in state:
                state["offsets"] = self._of_topics_there_are(state["offsets"])
        for name in sorted(before.keys() - ({"offsets"} - after.keys())):
            if name in after and before[name] != after[name]:
                raise Violation("replay differs", f"{name}: {before.get(name)} became {after.get(name)}")

    def _of_topics_there_are(self, offsets: dict[str, dict[str, dict[int, OffsetAndMetadata]]]) -> object:
        """The deletion of a topic may be under way, or a full disk have refused the tombstones of its offsets: nobody
        is shown them, and a start removes them, even where a new topic has the name.
        """
        return {
            (group, name, index): one
            for group, topics in offsets.items()
            for name, partitions in topics.items()
            for index, one in partitions.items()
            if name in self.logs.topics and one.is_of(self.logs.topics[name])
        }

    def _check_after_start(self, place: Place, how: End) -> None:
        group_id, topic, partition = place
        committed = self.committed[place]
        found = self.core.groups.state.offsets.get(group_id, topic, partition)
        offset = found.offset if found is not None else None
        topic_id = self.logs.topics.get(topic)
        if topic_id is None:
            if offset is not None and not self.is_damaged:
                raise Violation("offset of a deleted topic", f"{place}: {offset} after {how.value}")
            committed.candidates = [Commit(next(self._numbers), None, is_done=True)]
            return
        model = self.logs.logs.get((topic_id, partition))
        end = model.end if model is not None else 0
        if model is not None and model.is_damaged:
            committed.is_unknown = True
            return
        # A late commit by name may speak of the deleted topic; where nothing was lost, it is taken at its word.
        if offset is not None and offset > end and how is not End.CLEAN and not self.is_damaged:
            raise Violation(
                "offset past the end", f"{place}: {offset}, the log ends at {end}, after {how.value}"
            )
        self._check(place, offset, f"after {how.value}")

    def _is_log_damaged(self, place: Place) -> bool:
        topic_id = self.logs.topics.get(place[1])
        model = self.logs.logs.get((topic_id, place[2])) if topic_id is not None else None
        return model is not None and model.is_damaged

    def _check(self, place: Place, offset: int | None, when: str) -> None:
        committed = self.committed.setdefault(place, Committed())
        if self.is_damaged or self._is_log_damaged(place):
            return
        if committed.is_unknown:
            coming = [commit for commit in committed.candidates if commit.may_come]
            committed.candidates = [Commit(next(self._numbers), offset, is_done=True), *coming]
            committed.is_unknown = False
        if offset not in committed.offsets():
            raise Violation(
                "wrong committed offset", f"{place}: {offset} {when}, may be {committed.offsets()}"
            )
