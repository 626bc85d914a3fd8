"""The shadow of a share-partition: what the model knows of each record in flight, and the law of its changes.

It is kept offset by offset, from the changes that the engine applies; the engine keeps ranges. Each change is held
against the law here, which is written down a second time on purpose.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.share.wall_time import TOLERANCE_MS
from headrace.share.changes import AckBatch, AnyChange, Change, StateBatch
from headrace.share.holds import HoldEnd, PastHold
from headrace.share.partition import SharePartition
from headrace.share.states import Cause, RecordState
from headrace.share.window import RangeView
from headrace.wire.share_holds import HOLDS_MAX
from headrace.wire.share_state import ShareKey
from tests.simulation.models.logs import Entry, LogModel
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from headrace.broker.share.loaded import LoadedPartition

S, C = RecordState, Cause
FINAL = (S.ACKNOWLEDGED, S.ARCHIVED)
GIVEN_BACK = (C.RELEASE, C.CLOSE, C.EXPIRE)
TO_DEAD_LETTERS = (C.REJECT_TO_DEAD_LETTERS, C.EXHAUST_TO_DEAD_LETTERS)
FROM_HELD: dict[Cause, RecordState] = {
    C.ACCEPT: S.ACKNOWLEDGED,
    C.RELEASE: S.AVAILABLE,
    C.CLOSE: S.AVAILABLE,
    C.EXPIRE: S.AVAILABLE,
    C.RENEW: S.ACQUIRED,
    C.REJECT: S.ARCHIVED,
    C.GAP: S.ARCHIVED,
    C.EXHAUST: S.ARCHIVED,
    C.REJECT_TO_DEAD_LETTERS: S.ARCHIVING,
    C.EXHAUST_TO_DEAD_LETTERS: S.ARCHIVING,
}
ENDS: dict[Cause, tuple[HoldEnd, ...]] = {
    C.ACCEPT: (HoldEnd.ACCEPTED,),
    C.RELEASE: (HoldEnd.RELEASED, HoldEnd.TAKEN),
    C.CLOSE: (HoldEnd.CLOSED,),
    C.EXPIRE: (HoldEnd.EXPIRED,),
    C.REJECT: (HoldEnd.REJECTED,),
    C.GAP: (HoldEnd.GAP,),
    C.REJECT_TO_DEAD_LETTERS: (HoldEnd.REJECTED,),
    C.EXHAUST: (HoldEnd.RELEASED, HoldEnd.TAKEN, HoldEnd.CLOSED, HoldEnd.EXPIRED),
    C.EXHAUST_TO_DEAD_LETTERS: (HoldEnd.RELEASED, HoldEnd.TAKEN, HoldEnd.CLOSED, HoldEnd.EXPIRED),
}
"""How the journal may say that a hold ended."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Rules(NamedTuple):
    """The group's settings at this moment."""

    limit: int
    window: int
    lock_ms: int
    may_renew: bool
    is_committed_only: bool
    has_dead_letters: bool


class InFlight(NamedTuple):
    state: RecordState
    count: int
    holder: str | None = None
    deadline_ms: int = 0
    since_ms: int = 0
    """When the holder has acquired it."""

    @staticmethod
    def of(one: "Change | RangeView") -> "InFlight":
        if one.state is not S.ACQUIRED or one.hold is None:
            return InFlight(one.state, one.delivery_count)
        return InFlight(
            one.state, one.delivery_count, one.hold.member, one.deadline_ms or 0, one.hold.since_ms
        )


UNSEEN = InFlight(S.AVAILABLE, 0)


class Answers(NamedTuple):
    """Acknowledgements that are being decided."""

    shadow: "Shadow"
    member: str
    batches: list[AckBatch]
    must_pass: bool
    must_fail: bool
    rules: Rules
    now_ms: int


class Shadow:
    def __init__(self, loaded: "LoadedPartition", generation: int, log: LogModel | None) -> None:
        self.key: ShareKey = loaded.key
        self.loaded = loaded
        self.engine: SharePartition = loaded.engine
        self.generation = generation
        self.log = log
        self.start = loaded.engine.start_offset
        self.next = self.start
        self.offsets: dict[int, InFlight] = {}
        self.width = 0
        """Of the window, before the changes that are being applied."""
        self.given_up: dict[int, int] = {}
        """Records that go to the dead letters, with the revision of the settings by which they do."""
        self.ended: dict[int, HoldEnd | None] = {}
        """Offsets whose holds are written as ended, by a decision that is about to be applied."""
        self.is_behind = False
        """Locks have ended and the journal has refused to note it: the journal knows less than the engine."""

    @property
    def log_start(self) -> int:
        return self.loaded.partition.log.start_offset

    @property
    def is_serving(self) -> bool:
        return not self.loaded._is_closed and not self.loaded.is_fenced

    # Changes

    def apply(self, changes: Sequence[AnyChange], rules: Rules, now_ms: int) -> None:
        for change in changes:
            if isinstance(change, Change):
                self._change(change, rules, now_ms)

    def _change(self, change: Change, rules: Rules, now_ms: int) -> None:
        first, last, cause = change.first, change.last, change.cause
        new = InFlight.of(change)
        offsets = self.offsets
        for offset in range(first, last + 1):
            before = offsets.get(offset, UNSEEN)
            if cause is C.ACQUIRE:
                self._check_acquire(offset, before, new, rules, now_ms)
            elif cause in FROM_HELD:
                self._check_held(offset, before, new, cause, rules, now_ms)
            else:
                self._check_other(offset, before, new, cause)
            offsets[offset] = new
        self.next = max(self.next, last + 1)

    def _refuse(self, offset: int, before: InFlight, new: InFlight, why: str) -> None:
        raise Violation(f"share: {why}", f"{self.key} {offset}: from {before} to {new}")

    def _check_acquire(self, offset: int, before: InFlight, new: InFlight, rules: Rules, now_ms: int) -> None:
        if before.state is S.ACQUIRED:
            self._refuse(offset, before, new, "held by two")
        if before.state is not S.AVAILABLE:
            self._refuse(offset, before, new, "delivered after its end")
        if new.state is not S.ACQUIRED or new.count != before.count + 1:
            self._refuse(offset, before, new, "wrong delivery count")
        if new.deadline_ms != now_ms + rules.lock_ms or new.since_ms != now_ms:
            self._refuse(offset, before, new, f"wrong lock, now is {now_ms}, it lasts {rules.lock_ms}")
        if offset < self.start:
            self._refuse(offset, before, new, f"delivered below the start {self.start}")
        if rules.is_committed_only and self.log is not None and not self.log.was_compacted:
            entry = self.entry(offset)
            if entry is not None and entry.is_transactional and entry.is_committed is not True:
                self._refuse(offset, before, new, f"read_committed delivers {entry}")

    def _check_held(
        self, offset: int, before: InFlight, new: InFlight, cause: Cause, rules: Rules, now_ms: int
    ) -> None:
        if before.state is not S.ACQUIRED:
            self._refuse(offset, before, new, f"{cause.name} of a record that nobody holds")
        if new.state is not FROM_HELD[cause] or new.count != before.count:
            self._refuse(offset, before, new, f"{cause.name} leads to a wrong state")
        if cause is C.EXPIRE and before.deadline_ms > now_ms:
            self._refuse(offset, before, new, f"lock ended early, now is {now_ms}")
        is_exhausted = before.count >= rules.limit
        if cause in GIVEN_BACK and is_exhausted:
            self._refuse(offset, before, new, f"delivered too often, the limit is {rules.limit}")
        if cause in (C.EXHAUST, C.EXHAUST_TO_DEAD_LETTERS) and not is_exhausted:
            self._refuse(offset, before, new, f"archived too early, the limit is {rules.limit}")
        if cause in TO_DEAD_LETTERS and not rules.has_dead_letters:
            self._refuse(offset, before, new, "dead letters that nobody wants")
        if cause in (C.REJECT, C.EXHAUST) and rules.has_dead_letters:
            self._refuse(offset, before, new, "archived without a dead letter")
        if cause is C.RENEW and (
            new.deadline_ms != now_ms + rules.lock_ms or new[2::2] != before[2::2] or not rules.may_renew
        ):
            self._refuse(offset, before, new, f"wrong renewal, now is {now_ms}")

    def _check_other(self, offset: int, before: InFlight, new: InFlight, cause: Cause) -> None:
        if cause is C.READ:
            if before != UNSEEN or new != UNSEEN:
                self._refuse(offset, before, new, "read twice")
            return
        if cause is C.DEAD_LETTER:
            if before.state is not S.ARCHIVING:
                self._refuse(offset, before, new, "a dead letter of a living record")
            return
        if cause is C.TRIM:
            if before.state not in (S.AVAILABLE, S.ACQUIRED):
                self._refuse(offset, before, new, "trimmed after its end")
            if offset >= self.log_start:
                self._refuse(offset, before, new, f"trimmed, the log starts at {self.log_start}")
            return
        if before.state is not S.AVAILABLE:
            self._refuse(offset, before, new, f"{cause.name} of a record that is not available")
        entry = self.entry(offset)
        if entry is None:
            return
        if cause is C.ABORT and entry.is_committed is not False:
            self._refuse(offset, before, new, f"archived as aborted: {entry}")
        if cause is C.COMPACT and self.must_exist(offset):
            self._refuse(offset, before, new, f"archived as missing from the log: {entry}")

    # Holds that end, as they are written

    def check_holds(
        self, holds: Sequence[PastHold], batches: Sequence[StateBatch], timestamp: int, now_ms: int
    ) -> None:
        """What is written of holds is what was: it names whoever had the records, and since when."""
        for hold in holds:
            since_ms = now_ms - (timestamp - hold.acquired_at)
            for offset in range(hold.first, hold.last + 1):
                one = self.offsets.get(offset, UNSEEN)
                if (one.state, one.count, one.holder) != (
                    S.ACQUIRED, hold.delivery_count, hold.member_id,
                ) or abs(one.since_ms - since_ms) > TOLERANCE_MS:  # fmt: skip
                    raise Violation("share: wrong hold written", f"{self.key} {offset}: {one}, {hold}")
                self.ended[offset] = hold.end
        if len(holds) > HOLDS_MAX // 2:
            return
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                one = self.offsets.get(offset, UNSEEN)
                if one.state is S.ACQUIRED and one.count == batch.delivery_count and offset not in self.ended:
                    raise Violation("share: hold not written", f"{self.key} {offset}: {one}, {holds}")

    def check_ends(self, changes: Sequence[AnyChange]) -> None:
        """The engine carries out what was written."""
        for change in changes if self.ended else ():
            if isinstance(change, Change) and change.cause in ENDS:
                for offset in range(change.first, change.last + 1):
                    end = self.ended.pop(offset, None)
                    if end is not None and end not in ENDS[change.cause]:
                        raise Violation(
                            "share: wrong end of a hold written", f"{self.key} {offset}: {end}, {change}"
                        )
        if self.ended:
            raise Violation(
                "share: the end of a hold was written, and it goes on", f"{self.key} {self.ended}"
            )

    # The start

    def move_start(self) -> None:
        """The engine's start has moved: over what has come to its end, was deleted, or never existed."""
        start = self.engine.start_offset
        if start < self.start:
            raise Violation("share start went back", f"{self.key}: from {self.start} to {start}")
        if start == self.start:
            return
        for offset in range(self.start, min(start, self.next)):
            known = self.offsets.get(offset)
            if known is not None:
                if known.state in FINAL:
                    del self.offsets[offset]
                elif offset >= self.log_start:
                    raise Violation(
                        "share: passed over", f"{self.key}: {offset} is {known}, start is {start}"
                    )
                elif known.state is S.AVAILABLE:
                    raise Violation("share: available below the start", f"{self.key} {offset}")
            elif self.must_exist(offset):
                self._passed_over(offset, start)
        for offset in range(max(self.start, self.next), start):
            if self.must_exist(offset):
                self._passed_over(offset, start)
        self.start = start
        self.next = max(self.next, start)

    def _passed_over(self, offset: int, start: int) -> None:
        raise Violation(
            "share: passed over",
            f"{self.key}: {offset} was never delivered, start is {start} (was {self.start}): {self.entry(offset)}",
        )

    def entry(self, offset: int) -> Entry | None:
        return self.log.entries.get(offset) if self.log is not None and not self.log.is_damaged else None

    def must_exist(self, offset: int) -> bool:
        """Whether the log has a record at this offset, for sure."""
        log, entry = self.log, self.entry(offset)
        if log is None or entry is None or offset < self.log_start or entry.marker is not None:
            return False
        if not log.was_compacted:
            return True
        if entry.key is None or entry.value is None or (entry.is_transactional and not entry.is_committed):
            return False
        return all(
            other.offset <= offset or other.key != entry.key or other.marker is not None
            for other in log.entries.values()
        )

    # Comparing with the engine

    def check_engine(self) -> None:
        found = 0
        for one in self.engine.snapshot().ranges:
            expected = InFlight.of(one)
            for offset in range(one.first, one.last + 1):
                if self.offsets.get(offset) != expected:
                    raise Violation(
                        "share: changed behind our back",
                        f"{self.key} {offset}: {expected}, known was {self.offsets.get(offset)}",
                    )
            found += one.last - one.first + 1
        # Below the start the engine forgets what has ended; so does the shadow.
        for offset in [o for o, one in self.offsets.items() if o < self.start and one.state in FINAL]:
            del self.offsets[offset]
        if found != len(self.offsets):
            known = {
                offset for one in self.engine.snapshot().ranges for offset in range(one.first, one.last + 1)
            }
            lost = [(o, one) for o, one in self.offsets.items() if o not in known]
            raise Violation("share: forgotten", f"{self.key}, start {self.start}: {lost[:3]}")

    def check_timer(self) -> None:
        """Whatever is held has an alarm, at the latest when its lock ends."""
        deadline_ms = min(
            (one.deadline_ms for one in self.offsets.values() if one.state is S.ACQUIRED), default=None
        )
        if deadline_ms is None or self.loaded._is_closed:
            return
        timer = self.loaded._timer
        if timer is None or timer.action is None or timer.deadline_ms > deadline_ms:
            raise Violation(
                "share: lock without an alarm", f"{self.key}: ends at {deadline_ms}, alarm {timer}"
            )

    # Acknowledgements

    def expect(
        self, member: str, batches: Sequence[AckBatch], *, allows_renew: bool, rules: Rules, now_ms: int
    ) -> Answers:
        """What must become of these answers; of some odd ones we do not say."""
        is_sound, is_odd, is_held = True, False, True
        previous_last = -1
        for first, last, types in batches:
            if first > last or not types or len(types) not in (1, last - first + 1):
                is_sound = False
                continue
            if min(types) < GAP or max(types) > (RENEW if allows_renew else REJECT):
                is_sound = False
            if RENEW in types and not rules.may_renew:
                is_odd = True
            if first < previous_last:
                is_sound = False
            elif first == previous_last:
                is_odd = True
            previous_last = last
            for offset in range(max(first, self.start), last + 1):
                one = self.offsets.get(offset)
                if one is None:
                    is_odd = True
                elif one.state is not S.ACQUIRED or one.holder != member or one.deadline_ms <= now_ms:
                    is_held = False
        must_fail = not is_sound or not is_held
        return Answers(
            self, member, list(batches), is_sound and is_held and not is_odd, must_fail, rules, now_ms
        )

    def check_answers(
        self, expected: Answers, changes: Sequence[Change] | None, error: Exception | None
    ) -> None:
        text = f"{self.key} {expected.member} {expected.batches}, start {self.start}"
        if error is not None:
            if expected.must_pass:
                raise Violation("share: answers of the holder refused", f"{text}: {error}")
            return
        if expected.must_fail:
            raise Violation("share: answers taken that are not the holder's", text)
        if not expected.must_pass:
            return
        assert changes is not None
        wanted: dict[int, int] = {}
        for first, last, types in expected.batches:
            for offset in range(max(first, self.start), last + 1):
                wanted[offset] = types[0] if len(types) == 1 else types[offset - first]
        for change in changes:
            for offset in range(change.first, change.last + 1):
                answer = wanted.pop(offset, None)
                if answer is None or change.state is not self._state_after(offset, answer, expected.rules):
                    raise Violation("share: answer with a wrong effect", f"{text}: {offset}: {change}")
        if wanted:
            raise Violation("share: answers without effect", f"{text}: {wanted}")

    def _state_after(self, offset: int, answer: int, rules: Rules) -> RecordState:
        if answer == ACCEPT:
            return S.ACKNOWLEDGED
        if answer == RENEW:
            return S.ACQUIRED
        if answer == RELEASE and self.offsets[offset].count < rules.limit:
            return S.AVAILABLE
        if answer == GAP:
            return S.ARCHIVED
        return S.ARCHIVING if rules.has_dead_letters else S.ARCHIVED
