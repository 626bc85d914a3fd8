"""A share-partition that this broker serves: the engine's SharePartition, its log, its journal and its timer.

Every change goes the same way: the engine decides, the share coordinator's topic gets it, the engine applies it,
whoever waits is woken, the timer is set to the next lock that ends, and what was given up goes to the dead letters.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.errors import engine_error, share_state_error
from headrace.broker.metrics import Counter
from headrace.broker.settings.durations import duration_ms
from headrace.broker.share.dead_letters import EXHAUSTED, REJECTED, DeadLetterRange
from headrace.broker.share.reading import read_slice
from headrace.broker.timers import Timer
from headrace.log.times import offset_for_time
from headrace.share.changes import AckBatch, AcquiredRecords, AnyChange, Change, ended_holds
from headrace.share.errors import CorruptState, ShareError
from headrace.share.holds import HoldEnd
from headrace.share.limits import Limits
from headrace.share.modes import AcquireMode
from headrace.share.partition import SharePartition
from headrace.share.states import Cause, RecordState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.share_holds import encode_holds
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition

UNDECIDED = -1
STALE = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND}
)
CAUSES = {Cause.REJECT_TO_DEAD_LETTERS: REJECTED, Cause.EXHAUST_TO_DEAD_LETTERS: EXHAUSTED}
ACKNOWLEDGED_AS = {
    Cause.ACCEPT: "Accept",
    Cause.RELEASE: "Release",
    Cause.REJECT: "Reject",
    Cause.REJECT_TO_DEAD_LETTERS: "Reject",
    Cause.RENEW: "Renew",
}


class Stale(Exception):
    """The state has moved on elsewhere: forget this share-partition and load it anew. Holds the member's error."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


class Handed(NamedTuple):
    """Records on their way to a member."""

    records: bytes
    acquired: Sequence[AcquiredRecords]
    record_count: int
    left_out: int = 0
    """Bytes of records that the member does not want to have."""


PASSED_OVER = Handed(b"", (), 0)
"""Records that are deleted, compacted or aborted: they are settled, and there may be more behind them."""


class LoadedPartition:
    def __init__(self, core: "BrokerCore", key: ShareKey, partition: "Partition") -> None:
        """Loads the state; KafkaError where there is none or where it cannot be used."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.log.leader_epoch
        self._core = core
        self.is_fenced = False
        """The stored state was set anew behind our back, by an administrator."""
        self._is_closed = False
        self._left: set[str] = set()
        """Members whose records are to be given back before anything else is done here."""
        self._copies_pending = 0
        self._revision = -1
        self._limits = Limits()
        self._is_committed_only = False
        self._has_history = False
        try:
            stored = core.share_state.read(key, self.leader_epoch)
        except KafkaError as error:
            raise share_state_error(error) from error
        self.state_epoch = stored.state_epoch
        start_offset = stored.start_offset
        if stored.complete_count == UNDECIDED and not stored.batches:
            start_offset = self._first_offset(start_offset)
        try:
            self.engine = SharePartition.recover(start_offset, stored.batches)
        except CorruptState as error:
            raise engine_error(error) from error
        self._timer: Timer | None = None
        self._lock_timeouts = core.metrics.counter(
            "AcquisitionLockTimeoutPerSec",
            group=key.group_id,
            topic=partition.topic.name,
            partition=str(key.partition),
        )
        self._acknowledged: dict[str, Counter] = {}
        self.full_since_ms: int | None = None
        """Wall time since which the window is full, for views."""
        self._resume_dead_letters()

    def _first_offset(self, kept: int) -> int:
        """What `share.auto.offset.reset` says, as long as nothing is settled; never beyond what it said before.

        Kafka writes the start down with the first answer only, so that `latest`, asked again after a restart, passes
        over what has come since. Here it is kept from the first load on.
        """
        log = self.partition.log
        policy = self._core.settings.group_str(self.key.group_id, "share.auto.offset.reset")
        if policy == "earliest":
            return log.start_offset
        offset: int | None = log.end_offset
        if policy != "latest":
            since_ms = self._core.clock.wall_ms() - (duration_ms(policy.partition(":")[2]) or 0)
            found = offset_for_time(log, max(0, since_ms))
            offset = found[1] if found is not None else None
        known = [each for each in (offset, kept) if each is not None and each != UNDECIDED]
        if not known:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"no record is newer than {policy}")
        start_offset = min(known)
        if start_offset != kept:
            self._keep_start(start_offset)
        return start_offset

    def _keep_start(self, start_offset: int) -> None:
        """If the journal refuses it now, it gets it with the first answer."""
        with contextlib.suppress(KafkaError):
            self._core.share_state.write(
                self.key,
                state_epoch=self.state_epoch,
                leader_epoch=self.leader_epoch,
                start_offset=start_offset,
                complete_count=UNDECIDED,
                batches=(),
            )

    def forget_limits(self) -> None:
        """What they depend on has changed, and it is no setting."""
        self._revision = -1

    def limits(self) -> Limits:
        settings, group_id = self._core.settings, self.key.group_id
        if self._revision != settings.revision:
            self._revision = settings.revision
            self._limits = Limits(
                delivery_limit=settings.group_int(group_id, "share.delivery.count.limit"),
                window_max=settings.group_int(group_id, "share.partition.max.record.locks"),
                lock_ms=settings.group_int(group_id, "share.record.lock.duration.ms"),
                renew_enabled=settings.group_bool(group_id, "share.renew.acknowledge.enable"),
                dead_letters=self._core.dead_letters.is_on(group_id),
            )
            isolation = settings.group_str(group_id, "share.isolation.level")
            self._is_committed_only = isolation == "read_committed"
            self._has_history = settings.get_int("headrace.share.state.history.ms") > 0
        return self._limits

    def readable_bytes(self, limit: int) -> int:
        """How much a fetch could read here now, up to `limit`."""
        self.release_left()
        if not self.engine.can_acquire(self.limits()):
            return 0
        log, offset = self.partition.log, self.engine.next_fetch_offset()
        if offset < log.start_offset:
            return limit
        if offset >= log.end_offset:
            return 0
        if limit == 1 and not self._is_committed_only:
            return 1
        return log.reader.bytes_from(offset, limit=limit, committed=self._is_committed_only)

    def acquire(
        self,
        member: str,
        *,
        mode: AcquireMode,
        batch_size: int,
        records_max: int,
        max_bytes: int,
        wants_records: bool = True,
    ) -> Handed | None:
        """What the member gets; None where there is nothing to acquire, PASSED_OVER where others may come behind it."""
        self.release_left()
        limits = self.limits()
        engine, log = self.engine, self.partition.log
        if not engine.can_acquire(limits):
            return None
        offset = engine.next_fetch_offset()
        if offset < log.start_offset:
            self._apply(engine.archive_before(log.start_offset))
            return PASSED_OVER
        if offset >= log.end_offset:
            return None
        found = read_slice(
            log,
            offset,
            records_max=records_max,
            max_bytes=max_bytes,
            committed=self._is_committed_only,
            keeps_data=wants_records,
        )
        if found is None:
            return None
        acquisition = engine.acquire(
            member,
            mode=mode,
            batch_size=batch_size,
            records_max=records_max,
            fetch_offset=offset,
            batches=found.batches,
            limits=limits,
            aborted=found.aborted,
            now_ms=self._core.clock.monotonic_ms(),
        )
        if not acquisition.changes:
            return None
        self._apply(acquisition.changes)
        acquired = acquisition.acquired
        if not acquired:
            return PASSED_OVER
        first, last = acquired[0].first, acquired[-1].last
        if wants_records:
            return Handed(found.cut(first, last), acquired, acquisition.record_count)
        start, stop = found.place(first, last)
        return Handed(b"", acquired, acquisition.record_count, left_out=stop - start)

    def acknowledge(
        self,
        member: str,
        batches: Sequence[AckBatch],
        *,
        allows_renew: bool,
        given_back: HoldEnd = HoldEnd.RELEASED,
    ) -> None:
        """All of the member's answers, or KafkaError and none; Stale when this copy of the state is outdated."""
        if self.is_fenced:
            raise Stale(share_state_error(KafkaError(ErrorCode.FENCED_STATE_EPOCH)))
        self.release_left()
        now_ms = self._core.clock.monotonic_ms()
        deadline_ms = self.engine.deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self._expire()  # its timer is due in this very turn: an answer that comes too late is refused
        try:
            changes = self.engine.acknowledge(
                member, batches, limits=self.limits(), allows_renew=allows_renew, now_ms=now_ms
            )
        except ShareError as error:
            raise engine_error(error) from error
        self._journal(changes, given_back)
        self._apply(changes)
        for change in changes:
            kind = ACKNOWLEDGED_AS.get(change.cause)
            if kind is not None:
                self._acknowledged_as(kind).value += change.last - change.first + 1

    def _acknowledged_as(self, kind: str) -> Counter:
        counter = self._acknowledged.get(kind)
        if counter is None:
            counter = self._acknowledged[kind] = self._core.metrics.counter(
                "RecordAcknowledgementsPerSec", group=self.key.group_id, ack_type=kind
            )
        return counter

    def leave(self, member: str) -> None:
        """The member has gone: what it holds is given back by `release_left`, at the latest before the next request."""
        self._left.add(member)

    def release_left(self) -> None:
        """What its holder gave up without an answer. The journal gets it if it can; the locks end in any case."""
        if not self._left:
            return
        left, self._left = self._left, set()
        if self._is_closed:
            return
        for member in sorted(left):
            self._change_anyway(self.engine.release_member(member, limits=self.limits()), HoldEnd.CLOSED)

    @property
    def is_copying(self) -> bool:
        """Dead letters are on their way: who closes it now has them written again at the next load."""
        return self._copies_pending > 0

    def close(self) -> None:
        self._is_closed = True
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _journal(self, changes: Sequence[AnyChange], given_back: HoldEnd) -> None:
        """`given_back`: how records came back, where they did."""
        write = self.engine.write_for(changes)
        if write is None:
            return
        if self.is_fenced:  # what is stored was set anew since: this copy's view of it must not get there
            raise Stale(share_state_error(KafkaError(ErrorCode.FENCED_STATE_EPOCH)))
        try:
            self._core.share_state.write(
                self.key,
                state_epoch=self.state_epoch,
                leader_epoch=self.leader_epoch,
                start_offset=write.start_offset,
                complete_count=write.delivery_complete_count,
                batches=write.batches,
                holds=self._holds(changes, given_back),
            )
        except KafkaError as error:
            mapped = share_state_error(error)
            if mapped.code in STALE:
                raise Stale(mapped) from error
            raise mapped from error

    def _holds(self, changes: Sequence[AnyChange], given_back: HoldEnd) -> bytes:
        """Who lets go of records with this decision, for those who look back. Nobody can if no history is kept."""
        self.limits()
        if not self._has_history:
            return b""
        leader, group_id = self._core.share_leader, self.key.group_id
        return encode_holds(
            ended_holds(changes, given_back),
            lambda member: leader.names.of(group_id, member),
            leader.wall_time.ahead_ms(),
        )

    def _change_anyway(self, changes: Sequence[AnyChange], given_back: HoldEnd) -> None:
        """Kafka's rule for locks that end by themselves: a failed write does not undo it."""
        if not changes:
            self._arm()
            return
        try:
            self._journal(changes, given_back)
        except Stale as error:
            self._core.share_leader.note_unwritten(self, error)
            return  # this copy is dropped, and the next one knows nothing of its locks
        except KafkaError as error:
            self._core.share_leader.note_unwritten(self, error)
        self._apply(changes)

    def _apply(self, changes: Sequence[AnyChange]) -> None:
        if self.engine.apply(changes):
            self._core.parked.touch(self.key)
        if self.engine.window_size < self.limits().window_max:
            self.full_since_ms = None
        elif self.full_since_ms is None:
            self.full_since_ms = self._core.clock.wall_ms()
        self._arm()
        letters = [
            DeadLetterRange(change.first, change.last, change.delivery_count, CAUSES[change.cause])
            for change in changes
            if isinstance(change, Change) and change.cause in CAUSES
        ]
        if letters:
            self._dead_letter(letters)

    def _arm(self) -> None:
        """One timer, at the first lock that ends. A later deadline needs no new timer: it fires and looks again."""
        deadline_ms = self.engine.deadline_ms()
        if deadline_ms is None or self._is_closed:
            return
        if self._timer is not None:
            if self._timer.action is not None and self._timer.deadline_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer = self._core.timers.at(deadline_ms, self._expire)

    def _expire(self) -> None:
        self._disarm()
        changes = self.engine.expire(self._core.clock.monotonic_ms(), limits=self.limits())
        if changes:
            self._lock_timeouts.add(sum(change.last - change.first + 1 for change in changes))
        self._change_anyway(changes, HoldEnd.EXPIRED)

    def _resume_dead_letters(self) -> None:
        """After a crash between giving up and the copy's durability: copy again, with the cause the count tells."""
        limit = self.limits().delivery_limit
        letters = [
            DeadLetterRange(
                batch.first,
                batch.last,
                batch.delivery_count,
                EXHAUSTED if batch.delivery_count >= limit else REJECTED,
            )
            for batch in self.engine.archiving()
        ]
        if letters:
            self._dead_letter(letters)

    def _dead_letter(self, letters: Sequence[DeadLetterRange]) -> None:
        def archive(_: None) -> None:
            self._copies_pending -= 1
            if self._is_closed:
                return  # another has taken over with what was stored, and copies them too
            copied = [
                change
                for letter in letters
                for change in self.engine.dead_lettered(letter.first_offset, letter.last_offset)
            ]
            self._change_anyway(copied, HoldEnd.RELEASED)
            if not self._copies_pending:
                self._core.share_leader.unload_if_idle(self)

        self._copies_pending += 1
        self._core.dead_letters.copy(self.key.group_id, self.partition, letters).then(archive)

    def in_flight(self) -> dict[RecordState, int]:
        return {state: self.engine.count_of(state) for state in RecordState}
