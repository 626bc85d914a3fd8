"""The promises of share groups.

Written down here in short; each is checked where it is easiest to see: in the engine as it decides
(`share_shadow.py`), in the state topic as it is written (`share_journal.py`), in answers as clients get them, after
each start, and at the end of a life by draining every group with a fresh member.

1. A record is held by one member at a time, from its delivery until its answer, the end of its lock, or the end of
   its member's session.
2. Each delivery adds one to the delivery count, and nothing else changes it. After a restart it goes on from what
   was last written down.
3. A record that comes back after its last allowed delivery is archived.
4. The start offset goes forward only, unless an administrator sets it; everything below it was settled, deleted, or
   never existed.
5. A settled record does not come again. An answered acknowledgement survives the process; it survives a power cut
   once the next group commit is done. One that a power cut forgets is delivered again, never passed over.
6. The window is at most as wide as its limit, and the rest of one record batch.
7. An acknowledgement is written down before it is answered; one that was refused has changed nothing.
8. Whatever is held has an alarm at the end of its lock, and nothing else has.
9. The count of settled records is right, and so the lag is never negative.
10. A session expects the epoch after that of the last request which passed its check.
11. A snapshot of the state says what the updates before it said, and nothing below the start.
    What is written when a hold ends names who had the records, since when, and how it ended.
12. When all members are gone, every record that is not settled can be delivered again.

And: what was produced before a power cut and is gone leaves no state behind; read_committed groups get nothing that
is undecided or aborted; a record that is given up has a dead letter if its group wants them; a partition that is
added to a topic which a group reads starts at its first record.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.share.loaded import LoadedPartition
from headrace.broker.topics import INTERNAL
from headrace.log.partition_log import Appended, PartitionLog
from headrace.share.changes import AckBatch, Acquisition, AnyChange, Change
from headrace.share.errors import (
    InvalidRequest,
    InvalidSessionEpoch,
    SessionLimitReached,
    SessionNotFound,
    ShareError,
)
from headrace.share.partition import SharePartition
from headrace.share.session import ShareSession
from headrace.wire.batches import split
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.records import read_records
from headrace.wire.share_holds import holds_of
from headrace.wire.share_state import ShareKey, decode
from tests.simulation import environment, share_watching
from tests.simulation.model import End, Model
from tests.simulation.models.logs import LogModel, Logs, batch_entries
from tests.simulation.models.share_drain import drain
from tests.simulation.models.share_journal import STATE_TOPIC, UNDECIDED, Journal, Stored
from tests.simulation.models.share_shadow import (
    FINAL,
    TO_DEAD_LETTERS,
    Answers,
    C,
    InFlight,
    Rules,
    S,
    Shadow,
)
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

LATE_MS = 2_000
"""An alarm may ring so late at rest."""


class _Epochs(NamedTuple):
    """What the session check must say."""

    error: type[ShareError] | None
    key: tuple[str, str]
    next_epoch: int | None
    """What the session expects afterward; None where it is not there, or stays as it was."""


class Share(Model, share_watching.ShareWatcher):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.journal = Journal()
        self.shadows: dict[int, Shadow] = {}
        """By the engine's id."""
        self.early: list[LoadedPartition] = []
        """Loaded by a start, before the models look at it."""
        self.touched: dict[int, Shadow] = {}
        """Those that changed in this turn."""
        self.handed: dict[ShareKey, set[tuple[int, str, int]]] = {}
        """Offset, member and delivery count of what was acquired and is not in an answer yet."""
        self.sessions: dict[tuple[str, str], int] = {}
        """The epoch that each session expects."""
        self.counts: dict[tuple[str, bytes], int] = {}
        """How many partitions a topic had when a group first read it."""
        self.added: set[ShareKey] = set()
        """Partitions that came to a topic which the group read already."""
        self.begun: dict[tuple[ShareKey, int], int] = {}
        """Where a share-partition of this generation has begun by share.auto.offset.reset."""
        self.letters: dict[tuple[str, str, int, int], list[tuple[LogModel, int]]] = {}
        """Dead letters by group, topic, partition and offset: where they are."""
        self.buried: list[tuple[ShareKey, int, int]] = []
        """Records that were archived because their dead letter is safe: key, generation, offset."""
        self.is_blind = False
        """The broker's own topics are damaged: what becomes of the groups is not ours to say."""
        share_watching.watch(self)

    @property
    def logs(self) -> Logs:
        return self.world.model(Logs)

    def rules(self, group_id: str) -> Rules:
        settings = self.core.settings
        return Rules(
            limit=settings.group_int(group_id, "share.delivery.count.limit"),
            window=settings.group_int(group_id, "share.partition.max.record.locks")
            // environment.WINDOW_DIVISOR,
            lock_ms=settings.group_int(group_id, "share.record.lock.duration.ms"),
            may_renew=settings.group_bool(group_id, "share.renew.acknowledge.enable"),
            is_committed_only=settings.group_str(group_id, "share.isolation.level") == "read_committed",
            has_dead_letters=self.core.features.has_dead_letter_queues
            and bool(settings.group_value(group_id, "errors.deadletterqueue.topic.name")),
        )

    # The state topic

    def appending(self, log: PartitionLog, data: bytes) -> None:
        if self.is_blind:
            return
        if log.topic == STATE_TOPIC:
            self.journal.attempts[log.partition] = data

    def refused(self, log: PartitionLog, data: bytes) -> None:
        if log.topic == STATE_TOPIC:
            self.journal.attempts.pop(log.partition, None)

    def appended(self, log: PartitionLog, data: bytes, appended: Appended) -> None:
        if self.is_blind:
            return
        if log.topic == STATE_TOPIC:
            self.journal.is_starting = self.world.is_starting
            self._check_holds(data)
            self.journal.appended(log.partition, data, appended.base_offset)
            if self.journal.dropped:
                self._forget_dropped()
        elif log.topic.startswith("dlq"):
            self._note_letters(log, data, appended.base_offset)

    def _check_holds(self, data: bytes) -> None:
        now_ms = self.world.clock.monotonic_ms()
        for record in read_records(data):
            decoded = decode(record.key or b"", record.value)
            if decoded is None or decoded[1] is None or self.journal.is_starting:
                continue
            key, body = decoded
            holds = holds_of(body, record.timestamp)
            if not self.core.settings.get_int("headrace.share.state.history.ms"):
                if holds:
                    raise Violation("share: hold written for nobody", f"{key}: {holds}")
                continue
            serving = [one for one in self.shadows.values() if one.key == key and one.is_serving]
            for shadow in serving:
                shadow.check_holds(holds, body.batches, record.timestamp, now_ms)
            if holds and not serving:
                raise Violation("share: hold from nowhere", f"{key}: {holds}")

    def _forget_dropped(self) -> None:
        """A group that has forgotten a topic begins anew there."""
        self.journal.dropped.clear()
        read = {(key.group_id, key.topic_id) for key in self.journal.stored}
        self.counts = {place: count for place, count in self.counts.items() if place in read}
        self.added = {key for key in self.added if (key.group_id, key.topic_id) in read}

    def initializing(self, key: ShareKey) -> None:
        known = self.counts.get((key.group_id, key.topic_id))
        if known is not None and key.partition >= known and key not in self.journal.stored:
            self.added.add(key)
        self.journal.fresh.add(key)

    def initialized(self, key: ShareKey) -> None:
        self.journal.fresh.discard(key)

    def unwritten(self, key: ShareKey) -> None:
        for shadow in self.shadows.values():
            if shadow.key == key:
                shadow.is_behind = True

    # Loading

    def loaded(self, loaded: LoadedPartition) -> None:
        if self.world.is_starting:
            self.early.append(loaded)
            return
        key = loaded.key
        stored = self.journal.stored.get(key)
        if stored is None:
            raise Violation("share: loaded without state", f"{key}")
        shadow = Shadow(loaded, stored.generation, self.logs.of(loaded.partition.log))
        self._check_first_offset(shadow, stored)
        start = shadow.engine.start_offset if stored.is_soft else stored.start
        shadow.start = start
        shadow.offsets = {
            offset: InFlight(state, count)
            for offset, (state, count) in stored.offsets.items()
            if offset >= start
        }
        shadow.next = max(shadow.offsets, default=start - 1) + 1
        shadow.move_start()
        shadow.check_engine()
        self.shadows[id(shadow.engine)] = shadow
        self.handed.setdefault(key, set())

    def _check_first_offset(self, shadow: Shadow, stored: Stored) -> None:
        """Where a share-partition begins as long as nothing is settled: by share.auto.offset.reset, and never
        beyond where it has begun before.
        """
        key, log = shadow.key, shadow.loaded.partition.log
        start, last = shadow.engine.start_offset, log.end_offset
        if key in self.added and not stored.offsets and (stored.is_soft or stored.start == 0):
            if start > log.start_offset:
                raise Violation(
                    "share: added partition starts late",
                    f"{key} starts at {start}, its log at {log.start_offset}",
                )
            return
        if not stored.is_soft:
            return
        begun = self.begun.get((key, stored.generation))
        if self.core.settings.group_str(key.group_id, "share.auto.offset.reset") == "earliest":
            last = log.start_offset
        elif begun is not None:
            last = max(begun, log.start_offset)
        if stored.start == start:  # else the journal has refused it, and a restart asks again
            self.begun[key, stored.generation] = start
        if start > last:
            raise Violation("share: starts late", f"{key} starts at {start}, not by {last}: {stored}")

    # Decisions of the engine

    def acquired(self, engine: SharePartition, given: dict[str, Any], acquisition: Acquisition) -> None:
        shadow = self.shadows.get(id(engine))
        if shadow is None:
            return
        count, last = 0, -1
        held = {
            (offset, change.delivery_count)
            for change in acquisition.changes
            if change.cause is C.ACQUIRE and change.hold is not None and change.hold.member == given["member"]
            for offset in range(change.first, change.last + 1)
        }
        for one in acquisition.acquired:
            if one.first <= last:
                raise Violation("share: ranges out of order", f"{shadow.key}: {acquisition.acquired}")
            last = one.last
            for offset in range(one.first, one.last + 1):
                count += 1
                if (offset, one.delivery_count) not in held:
                    raise Violation(
                        "share: handed out without a lock", f"{shadow.key} {offset}: {acquisition}"
                    )
        if count != len(held):
            raise Violation("share: locked without handing out", f"{shadow.key}: {acquisition}")
        if given["mode"] == 1 and count > given["records_max"]:
            raise Violation("share: more than asked for", f"{shadow.key}: {count} of {given['records_max']}")
        self.handed[shadow.key] |= {(offset, given["member"], number) for offset, number in held}

    def answering(
        self, engine: SharePartition, member: str, batches: Sequence[AckBatch], given: dict[str, Any]
    ) -> Answers | None:
        shadow = self.shadows.get(id(engine))
        if shadow is None:
            return None
        return shadow.expect(
            member,
            batches,
            allows_renew=given.get("allows_renew", False),
            rules=self.rules(shadow.key.group_id),
            now_ms=self.world.clock.monotonic_ms(),
        )

    def answered(
        self, expected: Answers | None, changes: list[Change] | None, error: ShareError | None
    ) -> None:
        if expected is not None:
            expected.shadow.check_answers(expected, changes, error)

    def applying(self, engine: SharePartition, changes: Sequence[AnyChange]) -> None:
        shadow = self.shadows.get(id(engine))
        if shadow is None:
            return
        rules = self.rules(shadow.key.group_id)
        shadow.width = shadow.next - shadow.start
        shadow.check_ends(changes)
        shadow.apply(changes, rules, self.world.clock.monotonic_ms())
        for change in changes:
            if isinstance(change, Change):
                if change.cause in TO_DEAD_LETTERS:
                    revision = self.core.settings.revision
                    shadow.given_up.update(dict.fromkeys(range(change.first, change.last + 1), revision))
                elif change.cause is C.DEAD_LETTER:
                    self._bury(shadow, change)
        self.touched[id(engine)] = shadow

    @staticmethod
    def _check_width(shadow: Shadow, rules: Rules) -> None:
        """It may be exceeded by the rest of one record batch. Offsets that the log does not have, as after
        compaction, lie between its records and are none of them: as in Kafka, they take up no room.
        """
        log = shadow.log
        if log is None or log.is_damaged:
            return
        longest = max((one.offset - one.base_offset + 1 for one in log.entries.values()), default=1)
        known = sum(offset >= shadow.start for offset in shadow.offsets)
        if known > rules.window + longest - 1:
            raise Violation(
                "share: window too wide",
                f"{shadow.key}: {known} of {shadow.start} to {shadow.next}, {rules}, longest batch {longest}",
            )

    def applied(self, engine: SharePartition, changes: Sequence[AnyChange]) -> None:
        shadow = self.shadows.get(id(engine))
        if shadow is None:
            return
        shadow.move_start()
        rules = self.rules(shadow.key.group_id)
        if shadow.next - shadow.start > max(shadow.width, rules.window):
            self._check_width(shadow, rules)
        if shadow.key in self.journal.uncounted:
            self.journal.uncounted.discard(shadow.key)
            stored = self.journal.stored.get(shadow.key)
            if stored is not None and stored.generation == shadow.generation and stored.start != UNDECIDED:
                self._check_complete(shadow, stored)

    # Dead letters

    def _note_letters(self, log: PartitionLog, data: bytes, base_offset: int) -> None:
        model = self.logs.of(log)
        assert model is not None
        for record in read_records(data):
            facts = {
                name: (value or b"").decode() for name, value in record.headers if name.startswith("__dlq.")
            }
            if "__dlq.errors.offset" in facts:
                key = (
                    facts["__dlq.errors.group"],
                    facts["__dlq.errors.topic"],
                    int(facts["__dlq.errors.partition"]),
                    int(facts["__dlq.errors.offset"]),
                )
                self.letters.setdefault(key, []).append((model, base_offset + record.offset))

    def _is_usable(self, target: str, partition: int) -> bool:
        """Dead letters can be written there. A damaged log takes nothing any more."""
        topic = self.core.topics.get(target)
        if topic is None:
            return self.core.settings.get_bool("errors.deadletterqueue.auto.create.topics.enable")
        return topic.partitions[partition % len(topic.partitions)].log.damage is None

    def _bury(self, shadow: Shadow, change: Change) -> None:
        """A record is archived because its dead letter is safe, or because there can be none."""
        key = shadow.key
        topic = shadow.loaded.partition.topic.name
        settings = self.core.settings
        for offset in range(change.first, change.last + 1):
            places = self.letters.get((key.group_id, topic, key.partition, offset))
            if places:
                if self.world.scenario.is_fsync and not any(self._is_synced(*place) for place in places):
                    raise Violation(
                        "share: archived before its dead letter is safe", f"{key} {offset}: {places}"
                    )
                self.buried.append((key, shadow.generation, offset))
                continue
            target = settings.group_value(key.group_id, "errors.deadletterqueue.topic.name")
            is_usable = bool(target) and self._is_usable(str(target), key.partition)
            if is_usable and shadow.given_up.get(offset) == settings.revision:
                raise Violation("share: no dead letter", f"{key} {offset}: {change}")

    def _is_synced(self, model: LogModel, offset: int) -> bool:
        """Or not ours to say, since the topic is gone, or its log damaged."""
        topic = self.core.topics.get(model.topic)
        if topic is None or topic.id != model.topic_id or model.partition >= len(topic.partitions):
            return True
        log = topic.partitions[model.partition].log
        return log.damage is not None or offset < log.recovery_point

    # After each turn

    def after_turn(self) -> None:
        if self.is_blind:
            return
        journal = self.journal
        if self.touched:
            touched = list(self.touched.values())
            self.touched.clear()
            for shadow in touched:
                shadow.check_engine()
                shadow.check_timer()
                self._check_journal(shadow)
            for shadow in touched:
                if journal.written.get(shadow.key) == shadow.generation:
                    del journal.written[shadow.key]
        if journal.written:
            for key, generation in journal.written.items():
                self._check_writer(key, generation)
            journal.written.clear()
        if len(self.shadows) > 60:
            self._forget_closed()

    def _forget_closed(self) -> None:
        self.shadows = {number: one for number, one in self.shadows.items() if not one.loaded._is_closed}

    def _check_writer(self, key: ShareKey, generation: int) -> None:
        """Somebody has written who did not load what is stored now."""
        shadows = [one for one in self.shadows.values() if one.key == key and not one.loaded._is_closed]
        if any(one.generation != generation for one in shadows):
            raise Violation(
                "share: reset undone", f"{key}: a copy of the state before it was set anew has written"
            )

    def _check_journal(self, shadow: Shadow) -> None:
        """What is written down and what the engine knows agree, but for what need not be written."""
        stored = self.journal.stored.get(shadow.key)
        if stored is None or stored.generation != shadow.generation:
            if shadow.key in self.journal.written:
                raise Violation(
                    "share: reset undone",
                    f"{shadow.key}: a copy of the state before it was set anew has written: {stored}",
                )
            return
        for offset, one in shadow.offsets.items():
            state, count = stored.offsets.get(offset, (S.AVAILABLE, 0))
            if offset < stored.start or offset < shadow.start:
                continue
            if one.state is S.ACQUIRED:
                is_right = state is S.AVAILABLE and (
                    count == one.count - 1 or (shadow.is_behind and count < one.count)
                )
            elif one.state is S.AVAILABLE:
                is_right = state is S.AVAILABLE and (
                    count == one.count or (shadow.is_behind and count <= one.count)
                )
            elif one.state is S.ACKNOWLEDGED:
                is_right = state is S.ACKNOWLEDGED
            else:
                # That its dead letter is safe could not be written: after a restart the letter is written again.
                is_again = shadow.is_behind and one.state is S.ARCHIVED and state is S.ARCHIVING
                is_right = state is one.state or state is S.AVAILABLE or is_again
            if not is_right:
                raise Violation(
                    "share: not as written down", f"{shadow.key} {offset}: {one}, written {state} {count}"
                )
        for offset, (state, _) in stored.offsets.items():
            if state in FINAL and offset >= shadow.start:
                one = shadow.offsets.get(offset)
                if one is None or one.state is not state:
                    raise Violation(
                        "share: not as written down", f"{shadow.key} {offset}: {one}, written {state}"
                    )

    def _check_complete(self, shadow: Shadow, stored: Stored) -> None:
        """How many are settled from the written start on: those below the engine's start are all settled."""
        known = sum(one.state in FINAL for offset, one in shadow.offsets.items() if offset >= shadow.start)
        below = shadow.start - stored.start
        if not known <= stored.complete <= known + max(0, below):
            raise Violation(
                "share: wrong count of settled records",
                f"{shadow.key}: {stored.complete} from {stored.start} on, known {known} from {shadow.start} on",
            )

    # Sessions

    def session_asked(self, group_id: str, member_id: str, epoch: int, **asked: Any) -> _Epochs:
        key = group_id, member_id
        expected = self.sessions.get(key)
        if epoch == 0:
            if not asked["is_fetch"]:
                return _Epochs(InvalidSessionEpoch, key, expected)
            if asked.get("has_acknowledgements"):
                return _Epochs(InvalidRequest, key, expected)
            return _Epochs(None, key, 1)
        if expected is None:
            return _Epochs(SessionNotFound, key, None)
        if epoch == -1:
            return _Epochs(None, key, expected)
        if epoch != expected:
            return _Epochs(InvalidSessionEpoch, key, expected)
        return _Epochs(None, key, 1 if expected == (1 << 31) - 1 else expected + 1)

    def session_given(
        self, expected: _Epochs, session: ShareSession | None, error: ShareError | None
    ) -> None:
        if isinstance(error, SessionLimitReached) and expected.next_epoch == 1:
            return
        if (type(error) if error is not None else None) is not expected.error:
            raise Violation("share: wrong session check", f"{expected}: {session}, {error!r}")
        if expected.next_epoch is None:
            self.sessions.pop(expected.key, None)
        else:
            self.sessions[expected.key] = expected.next_epoch
            if session is not None and session.epoch != expected.next_epoch:
                raise Violation("share: wrong session epoch", f"{expected}, session has {session.epoch}")

    def session_removed(self, session: ShareSession) -> None:
        key = session.group_id, session.member_id
        if self.core.share_leader.sessions.get(*key) is None:
            self.sessions.pop(key, None)

    # What clients are told

    def told_delivery(
        self, group_id: str, member_id: str, topic_id: bytes, data: Any
    ) -> list[tuple[int, int]]:
        """Checks what a ShareFetch has brought of one partition; returns offsets and delivery counts."""
        if self.is_blind:
            return [
                (offset, one.delivery_count)
                for one in data.acquired_records
                for offset in range(one.first_offset, one.last_offset + 1)
            ]
        self.journal.told()
        key = ShareKey(group_id, topic_id, data.partition_index)
        handed = self.handed.get(key, set())
        got: list[tuple[int, int]] = []
        for one in data.acquired_records:
            for offset in range(one.first_offset, one.last_offset + 1):
                ticket = (offset, member_id, one.delivery_count)
                if ticket not in handed:
                    raise Violation("share: told of what was not acquired", f"{key} {ticket}")
                handed.discard(ticket)
                got.append((offset, one.delivery_count))
        if got and data.acquired_bytes:
            self._check_without_records(key, data.records, got)
        elif got:
            self._check_records(key, data.records, got)
        return got

    def _check_without_records(self, key: ShareKey, records: bytes, got: list[tuple[int, int]]) -> None:
        """To a member that wants none, as Spark's driver."""
        if records:
            raise Violation("share: left out, and sent", f"{key} {got}")
        model = self.logs.logs.get((key.topic_id, key.partition))
        if model is None or model.is_damaged or not self.rules(key.group_id).is_committed_only:
            return
        for offset, _ in got:
            known = model.entries.get(offset)
            if known is not None and known.is_transactional and known.is_committed is not True:
                raise Violation("share: read_committed delivers what is not committed", f"{key}: {known}")

    def _check_records(self, key: ShareKey, records: bytes, got: list[tuple[int, int]]) -> None:
        model = self.logs.logs.get((key.topic_id, key.partition))
        if model is None or model.is_damaged:
            return
        is_committed_only = self.rules(key.group_id).is_committed_only
        acquired = {offset for offset, _ in got}
        sent = set()
        for position, header in split(records):
            batch = records[position : position + header.size]
            for entry in batch_entries(batch, header, header.base_offset, 0):
                sent.add(entry.offset)
                known = model.entries.get(entry.offset)
                if known is None or (known.key, known.value, known.marker) != (
                    entry.key,
                    entry.value,
                    entry.marker,
                ):
                    raise Violation("wrong record", f"{key}: delivered {entry}, appended was {known}")
                if (
                    is_committed_only
                    and entry.offset in acquired
                    and known.is_transactional
                    and known.is_committed is not True
                ):
                    raise Violation("share: read_committed delivers what is not committed", f"{key}: {known}")
        if not model.was_compacted:
            for offset in acquired:
                if offset in model.entries and offset not in sent:
                    raise Violation("share: acquired, not sent", f"{key} {offset}: {sorted(sent)}")

    def told_answers(
        self, group_id: str, topic_id: bytes, partition: int, answers: dict[int, int], generation: int | None
    ) -> None:
        """A client was told that its answers were taken: they are written down."""
        if self.is_blind:
            return
        self.journal.told()
        key = ShareKey(group_id, topic_id, partition)
        stored = self.journal.stored.get(key)
        if stored is None or stored.generation != generation or topic_id not in self.logs.topics.values():
            return
        # What lies below the start was settled by somebody: an answer for it is taken, and changes nothing.
        starts = [one.start for one in self.shadows.values() if one.key == key and not one.loaded._is_closed]
        for offset, answer in answers.items():
            if offset < max(stored.start, *starts, UNDECIDED) or answer in (2, 4):
                continue
            state = stored.offsets.get(offset, (S.AVAILABLE, 0))[0]
            log = self.logs.logs.get((topic_id, partition))
            if state not in (S.ACKNOWLEDGED, S.ARCHIVED, S.ARCHIVING) and (
                log is None or offset >= log.start
            ):
                raise Violation(
                    "share: answered, not written", f"{key} {offset}: answer {answer}, state {state}"
                )

    def generation(self, group_id: str, topic_id: bytes, partition: int) -> int | None:
        if self.is_blind:
            return None
        stored = self.journal.stored.get(ShareKey(group_id, topic_id, partition))
        return stored.generation if stored is not None else None

    def told_fresh(self, key: ShareKey, start: int) -> None:
        """An administrator was told that the state begins anew there: that survives a power cut."""
        if self.is_blind:
            return
        self.journal.told()
        if not self.world.scenario.is_fsync:
            return
        for partition, history in self.journal.history.items():
            found = [
                one.offset
                for one in history
                if one.key == key and one.is_fresh and one.body is not None and one.body.start_offset == start
            ]
            if len(found) == 1:
                self.journal.is_durable(partition, found[0] + 1)

    def told_offsets(self, group_id: str, topic_id: bytes, described: Any) -> None:
        """Start and lag, as an administrator sees them."""
        if self.is_blind:
            return
        key = ShareKey(group_id, topic_id, described.partition_index)
        stored, log = self.journal.stored.get(key), self.logs.logs.get((topic_id, described.partition_index))
        if stored is None or log is None or log.is_damaged:
            return
        if described.start_offset != stored.start:
            raise Violation("share: wrong start shown", f"{key}: {described}, written {stored.start}")
        if described.lag < 0 and described.start_offset != UNDECIDED and described.start_offset <= log.end:
            raise Violation("share: negative lag", f"{key}: {described}, {stored}, the log ends at {log.end}")

    def held_places(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions of which a member of the group holds records."""
        return sorted(
            {
                (shadow.loaded.partition.topic.name, shadow.key.partition)
                for shadow in self.shadows.values()
                if shadow.key.group_id == group_id
                and not shadow.loaded._is_closed
                and any(one.state is S.ACQUIRED for one in shadow.offsets.values())
            }
        )

    def held_by_others(self, group_id: str, member_id: str, topic_id: bytes, partition: int) -> list[int]:
        if self.is_blind:
            return []
        key = ShareKey(group_id, topic_id, partition)
        return [
            offset
            for shadow in self.shadows.values()
            if shadow.key == key and not shadow.loaded._is_closed
            for offset, one in shadow.offsets.items()
            if one.state is S.ACQUIRED and one.holder != member_id
        ]

    def told_assignment(self, group_id: str, topics: Iterable[tuple[bytes, Sequence[int]]]) -> None:
        if self.is_blind:
            return
        self.journal.told()
        for topic_id, _ in topics:
            count = self.logs.partitions.get(topic_id)
            if count is not None:
                self.counts.setdefault((group_id, topic_id), count)

    # Restarts and rest

    def damage(self, topic: str, partition: int) -> None:
        if topic in INTERNAL:
            self.is_blind = True
            self.shadows.clear()
            share_watching.watch(share_watching.ShareWatcher())

    def after_start(self, how: End) -> None:
        if self.is_blind:
            return
        journal = self.journal
        self.shadows.clear()
        self.touched.clear()
        self.handed.clear()
        self.sessions.clear()
        journal.written.clear()
        journal.fresh.clear()
        topic = self.core.topics.get(STATE_TOPIC)
        if topic is not None:
            for partition in topic.partitions:
                self._check_state_log(partition.log, how)
        elif (any(journal.answered_ends.values()) and how is not End.POWER) or any(
            journal.durable_ends.values()
        ):
            raise Violation("share: answers forgotten", f"{STATE_TOPIC} is gone after {how.value}")
        else:
            self.journal = journal = Journal()
        journal.attempts.clear()
        if how is not End.CLEAN:
            self.begun.clear()
        self._forget_dropped()
        self._check_store(how)
        self._check_letters(how)
        early, self.early = self.early, []
        for loaded in early:
            if loaded._core is self.core and not loaded._is_closed:
                self.loaded(loaded)

    def _check_state_log(self, log: PartitionLog, how: End) -> None:
        journal, partition = self.journal, log.partition
        before = len(journal.history.get(partition, ()))
        journal.meet_end(partition, log.end_offset)
        promised = (journal.durable_ends if how is End.POWER else journal.answered_ends).get(partition, 0)
        end = journal.ends.get(partition, 0)
        if end < promised and log.damage is None:
            raise Violation(
                "share: answers forgotten",
                f"{log.name} ends at {end} after {how.value}, {promised} was promised ({before} records)",
            )
        for ends in (journal.answered_ends, journal.durable_ends):
            if partition in ends:
                ends[partition] = min(ends[partition], end)

    def _check_store(self, how: End) -> None:
        """What was loaded is what the journal says, and speaks of nothing that the logs do not have."""
        store = self.core.share_state
        found = {key: store.get(key) for key in list(store.keys())}
        for key, stored in self.journal.stored.items():
            state = found.pop(key, None)
            if state is None:
                raise Violation("share: state lost", f"{key} after {how.value}: {stored}")
            offsets = {
                offset: (one.state, one.delivery_count)
                for one in state.merged()
                for offset in range(one.first, one.last + 1)
            }
            if (state.start_offset, offsets, state.state_epoch, state.complete_count) != (
                stored.start, stored.offsets, stored.state_epoch, stored.complete,
            ):  # fmt: skip
                raise Violation(
                    "share: replay differs", f"{key} after {how.value}: {state}, written was {stored}"
                )
            self._check_mended(key, stored, how)
        if found:
            raise Violation("share: state from nowhere", f"{list(found)} after {how.value}")

    def _check_mended(self, key: ShareKey, stored: Stored, how: End) -> None:
        topic = self.core.topics.by_id(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            return
        log = topic.partitions[key.partition].log
        if log.damage is not None or how is End.CLEAN:
            return
        last = max(stored.offsets, default=stored.start - 1)
        if last >= log.end_offset or stored.start > log.end_offset:
            raise Violation(
                "share: state of lost records",
                f"{key} after {how.value}: {stored}, the log ends at {log.end_offset}",
            )

    def _check_letters(self, how: End) -> None:
        if how is not End.POWER or not self.world.scenario.is_fsync:
            return
        for key, generation, offset in self.buried:
            stored = self.journal.stored.get(key)
            if stored is None or stored.generation != generation or offset < stored.start:
                continue
            if stored.offsets.get(offset, (S.AVAILABLE, 0))[0] is not S.ARCHIVED:
                continue
            name = self.logs.name_of(key.topic_id)
            places = self.letters.get((key.group_id, name, key.partition, offset), [])
            if places and not any(
                where in model.entries
                or model.is_damaged  # nothing is known of it any more
                or where < model.start
                or self.logs.topics.get(model.topic) != model.topic_id
                for model, where in places
            ):
                raise Violation("share: dead letter lost", f"{key} {offset} after {how.value}: {places}")

    def after_step(self) -> None:
        """Nobody waits for records that are there."""
        if self.is_blind:
            return
        core, world = self.core, self.world
        if world.loop.has_ready or world.has_crashed or world.failure is not None or core.slices.is_pending:
            return
        deadline_ms = world.loop.deadline_ms()
        if deadline_ms is not None and deadline_ms <= world.clock.monotonic_ms():
            return
        for link in world.links:
            for pending in link.in_flight[:1]:
                request = pending.request
                if isinstance(request, ShareFetchRequest) and link.is_open and not link.to_broker:
                    self._check_waits(request)

    def _check_waits(self, request: ShareFetchRequest) -> None:
        session = self.core.share_leader.sessions.get(request.group_id or "", request.member_id or "")
        if session is None or request.min_bytes > 1 or request.max_records <= 0 or request.max_bytes <= 0:
            return
        for shadow in self.shadows.values():
            key = shadow.key
            if (
                key.group_id == request.group_id
                and (key.topic_id, key.partition) in session
                and not shadow.loaded._is_closed
                and not shadow.loaded.is_fenced
                and shadow.loaded.readable_bytes(1)
                and self._has_records(shadow)
            ):
                raise Violation("share: not woken", f"{key}, start {shadow.start}: {request}")

    def _has_records(self, shadow: Shadow) -> bool:
        """There is something to deliver. When retention empties a log, there is only a start to be moved: the next
        records, or the end of the waiting time, see to that.
        """
        log = shadow.loaded.partition.log
        offset = max(shadow.engine.next_fetch_offset(), log.start_offset)
        is_committed_only = self.rules(shadow.key.group_id).is_committed_only
        if offset >= (log.stable_offset if is_committed_only else log.end_offset):
            return (
                False  # `bytes_from` says of a damaged log that there is something: its readers shall wake up
            )
        return log.reader.bytes_from(offset, limit=1, committed=is_committed_only) > 0

    def at_end(self) -> None:
        if self.is_blind or self.world.scenario.is_wide:  # nobody reads hundreds of share-partitions there
            return
        drain(self)

    def at_rest(self) -> None:
        if self.is_blind:
            return
        now_ms = self.world.clock.monotonic_ms()
        sessions = self.core.share_leader.sessions
        for shadow in self.shadows.values():
            if shadow.loaded._is_closed:
                continue
            for offset, one in shadow.offsets.items():
                if one.state is not S.ACQUIRED:
                    continue
                if one.deadline_ms < now_ms - LATE_MS:
                    raise Violation(
                        "share: lock without an end", f"{shadow.key} {offset}: {one}, now is {now_ms}"
                    )
                if one.holder is not None and sessions.get(shadow.key.group_id, one.holder) is None:
                    raise Violation("share: held without a session", f"{shadow.key} {offset}: {one}")
        if self.world.scenario.is_fsync:
            topic = self.core.topics.get(STATE_TOPIC)
            for partition in topic.partitions if topic is not None else ():
                self.journal.is_durable(partition.index, self.journal.ends.get(partition.index, 0))


__all__ = ["Share"]
