"""The promises of task queues to their users.

1. A scheduled record whose sending was acknowledged comes to its topic, exactly once: no copy of it is ever committed
   a second time, whatever is killed. A period of a periodic task is sent at most once, and when nothing fails any
   more, every periodic task is sent, though the group's programs have different ones.
2. A record whose cancellation was acknowledged in time does not come, and nobody is told that it was not scheduled.
3. A task with `once=` has its effect at most once for each record, and for each message of an outbox. A record that
   was replaced by a copy (a dead letter, another try later) has none.
4. Such a record is accepted only when its effect, or its copy, is committed. With a dead-letter topic, so it is when it
   is rejected.
5. A record leaves the outbox only when brokers have it.

A group that is reset to an earlier offset gets records again that it was past. They count as done, whatever became of
them: a worker cannot tell them from those that it ran, and whose rows it has pruned.

Where the broker does not sync and power is lost, anything may be gone, or come again: then only 3 holds.
"""

from typing import TYPE_CHECKING, Any

from headrace.log.partition_log import Appended, PartitionLog
from headrace.share.changes import Acquisition as EngineAcquisition
from headrace.share.partition import SharePartition
from headrace.wire.ids import uuid_text
from headrace.wire.records import read_records
from headrace.wire.share_state import ShareKey, decode
from headrace.worker.transactions.statements import message_id_of
from tests.simulation.jobs.database import Transaction
from tests.simulation.model import End
from tests.simulation.models.logs import Entry, LogModel
from tests.simulation.path.model import ACCEPT, REJECT, Acquisition, Path, PathLogs, PathShare
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.jobs.world import JobsWorld

DUE, TICKS = "due", "ticks"
"""Where scheduled records go, and periodic ones."""
LAST_TICKS, OTHER_TICKS = "last-ticks", "other-ticks"
"""Those of the two programs that forward at the end."""
ARRIVE_MS = 180_000
"""When nothing fails any more, every scheduled record comes within this time."""
Place = tuple[str, str, int, int]


class JobsLogs(PathLogs):
    """A forwarder writes a record again when its transaction was aborted, and deletes what it has moved."""

    def _check_once(self, model: LogModel, entries: list[Entry]) -> None:
        super()._check_once(model, [entry for entry in entries if not entry.is_transactional])

    def _check_start(self, model: LogModel, log: PartitionLog) -> None:
        if model.topic.endswith(".later"):
            model.delete_asked = max(model.delete_asked, log.start_offset)
        super()._check_start(model, log)


class JobsShare(PathShare):
    world: "JobsWorld"

    def acquired(self, engine: SharePartition, given: dict[str, Any], acquisition: EngineAcquisition) -> None:
        before, jobs = self.numbers, self.world.jobs
        super().acquired(engine, given, acquisition)
        for one in self.held.values():
            if one.number > before and one.offset < jobs.starts.get(one.key, 0):
                jobs.passed.add(one)


class Jobs(Path):
    world: "JobsWorld"

    def __init__(self, world: "JobsWorld") -> None:
        super().__init__(world)
        self.is_void = False
        """The broker has lost what it had acknowledged, as it may without syncs."""
        self.scheduled: set[bytes] = set()
        """Values whose sending was acknowledged."""
        self.canceled: set[bytes] = set()
        self.arrived: dict[bytes, set[tuple[bytes, int, int]]] = {}
        """Values that are committed, and where: topic id, partition and offset."""
        self.fired: set[str] = set()
        """Topics to which something was sent by a forwarder."""
        self.effects: set[Place] = set()
        self.copied: set[Place] = set()
        self.messages: set[tuple[str, str | None]] = set()
        """Message ids that have had their effect, or whose record was replaced by a copy."""
        self.sent_messages: set[str] = set()
        """Message ids that a broker has appended."""
        self.message_ids: dict[tuple[str, int, int], str] = {}
        """By topic id, partition and offset."""
        self.starts: dict[ShareKey, int] = {}
        """The highest start offset that the group ever had."""
        self.passed: set[Acquisition] = set()
        """Of records that the group was past before."""
        self.once_members: dict[str, bool] = {}
        """Members that run tasks with `once=`, and whether they have a dead-letter topic."""

    # Scheduled records

    def decided(self, log: LogModel, entries: list[Entry], commit: bool) -> None:
        if not commit or log.topic not in (DUE, TICKS, LAST_TICKS, OTHER_TICKS):
            return
        self.fired.add(log.topic)
        for entry in entries:
            value = entry.value
            assert value is not None
            places = self.arrived.setdefault(value, set())
            places.add((log.topic_id, log.partition, entry.offset))
            self.world.stats.events["forwarded" if log.topic == DUE else "periods"] += 1
            if len(places) > 1 and not self.is_void:
                raise Violation("jobs: sent twice", f"{value!r}")
            if value in self.canceled and not self.is_void:
                raise Violation("jobs: sent although it was canceled", f"{value!r}")

    @property
    def missing(self) -> set[bytes]:
        return self.scheduled - self.canceled - self.arrived.keys()

    # The database

    def committed(self, transaction: Transaction) -> None:
        """A transaction has just been committed."""
        events = self.world.stats.events
        for effect in transaction.effects:
            place = effect[:4]
            events["effects"] += 1
            if place in self.effects or place in self.copied:
                raise Violation("once: doubled", f"{effect}")
            message = (effect.group_id, effect.message_id)  # each group has the effect once
            if effect.message_id is not None and message in self.messages:
                raise Violation("once: a message doubled", f"{effect}")
            self.effects.add(place)
            if effect.message_id is not None:
                self.messages.add(message)
        if transaction.claimed is not None and transaction.copies and not transaction.effects:
            events["copies"] += 1
            if transaction.claimed in self.effects:
                raise Violation("once: done and copied", f"{transaction.claimed}")
            self.copied.add(transaction.claimed)
            message_id = self.message_ids.get(transaction.claimed[1:])
            if message_id is not None:  # it may have been sent twice, and the other one is finished as well
                self.messages.add((transaction.claimed[0], message_id))
        for message_id in transaction.forgotten:
            events["relayed"] += 1
            if message_id not in self.sent_messages:
                raise Violation("outbox: forgotten before it was sent", message_id)

    def appended(self, log: PartitionLog, data: bytes, appended: Appended) -> None:
        super().appended(log, data, appended)
        if log.topic == "__share_group_state":
            self._note_starts(data)
        if log.topic.startswith("__"):
            return
        for number, record in enumerate(read_records(data)):
            message_id = message_id_of(record.headers)
            if message_id is not None:
                place = (uuid_text(log.topic_id), log.partition, appended.base_offset + number)
                self.message_ids[place] = message_id
                self.sent_messages.add(message_id)

    def _note_starts(self, data: bytes) -> None:
        for record in read_records(data):
            found = decode(record.key or b"", record.value)
            if found is not None and found[1] is not None:
                key, state = found
                self.starts[key] = max(state.start_offset, self.starts.get(key, 0))

    def took(self, one: Acquisition, effect: int) -> None:
        super().took(one, effect)
        has_letters = self.once_members.get(one.member)
        if has_letters is None or effect not in (ACCEPT, REJECT) or (effect == REJECT and not has_letters):
            return
        place = (one.key.group_id, uuid_text(one.key.topic_id), one.key.partition, one.offset)
        if place in self.effects or place in self.copied or one in self.passed:
            return
        message_id = self.message_ids.get(place[1:], "")
        if (one.key.group_id, message_id) in self.messages:
            return  # it was sent twice
        raise Violation("once: lost", f"{'accepted' if effect == ACCEPT else 'rejected'}: {one!r}")

    # Times

    def before_end(self, how: End) -> None:
        super().before_end(how)
        if how is End.POWER and not self.world.scenario.is_fsync:
            self.is_void = True

    def at_end(self) -> None:
        world = self.world
        for wire in world.wires:
            if wire.is_hanging:
                wire.cut()
        for node in world.nodes:
            node.go_on()
            node.app.please_stop()
        if self.scheduled and not self.is_void:
            world.start_forwarders()
            if not world.wait_for(lambda: not self.missing, ARRIVE_MS):
                raise Violation("jobs: a scheduled record does not come", f"{sorted(self.missing)[:5]}")
            if not world.wait_for(lambda: self.fired >= {LAST_TICKS, OTHER_TICKS}, ARRIVE_MS):
                raise Violation("jobs: a periodic task is never sent", f"{sorted(self.fired)} are")
        super().at_end()
