"""What is written to `__share_group_state`, seen as it is appended, and what it means: offset by offset, without
the store's own merging.

Theory of operation. The model keeps every record that entered each partition of the state topic. The state of a
share-partition is what these records say one after the other. After a restart the broker must have the state
that the records up to the log's end say; how many of them may be missing depends on how the process ended.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.share.states import RecordState
from headrace.wire.records import read_records
from headrace.wire.share_state import STATE_TOPIC, ShareKey, Snapshot, Update, decode
from tests.simulation.violation import Violation

__all__ = ["STATE_TOPIC", "Journal", "Stored", "Written"]

UNDECIDED = -1


class Written(NamedTuple):
    """One record of the state topic."""

    offset: int
    key: ShareKey
    body: Snapshot | Update | None
    is_fresh: bool
    """State that begins anew: the group is new to the partition, or an administrator has set its offset."""


@dataclass(slots=True)
class Stored:
    """The state of one share-partition."""

    generation: int
    """Grows whenever the state begins anew."""
    state_epoch: int
    start: int
    complete: int
    offsets: dict[int, tuple[RecordState, int]] = field(default_factory=dict)
    """State and delivery count of each offset that was written about."""

    @property
    def is_soft(self) -> bool:
        """Nothing was settled yet: where it starts comes from share.auto.offset.reset, which may still change."""
        return self.complete == UNDECIDED and not self.offsets

    def say(self, start: int, batches: object) -> None:
        if start != UNDECIDED and start != self.start:
            self.start = start
            self.offsets = {offset: said for offset, said in self.offsets.items() if offset >= start}
        for first, last, state, count in batches:  # type: ignore[attr-defined]
            for offset in range(max(first, self.start), last + 1):
                self.offsets[offset] = (RecordState(state), count)


class Journal:
    def __init__(self) -> None:
        self.history: dict[int, list[Written]] = {}
        """By partition of the state topic."""
        self.ends: dict[int, int] = {}
        self.attempts: dict[int, bytes] = {}
        """An append that is under way."""
        self.answered_ends: dict[int, int] = {}
        """Below it somebody was told, or could see, what is written: it survives the process."""
        self.durable_ends: dict[int, int] = {}
        """Below it what is written survives a power cut."""
        self.stored: dict[ShareKey, Stored] = {}
        self.fresh: set[ShareKey] = set()
        """Keys that are being set anew."""
        self.written: dict[ShareKey, int] = {}
        """Keys written since the last look that were not set anew, with the generation they had."""
        self.dropped: set[ShareKey] = set()
        """Keys whose state was deleted since the last look."""
        self.uncounted: set[ShareKey] = set()
        """Keys written by a change that the engine is about to apply."""
        self._generations = 0
        self.is_starting = False

    # Appends

    def appended(self, partition: int, data: bytes, base_offset: int) -> None:
        self.attempts.pop(partition, None)
        if self.is_starting:
            self.meet_end(partition, base_offset)
        end = self.ends.get(partition, 0)
        if base_offset != end:
            raise Violation("state topic out of order", f"{base_offset} was given, the end was {end}")
        self._take(partition, data, base_offset)

    def _take(self, partition: int, data: bytes, base_offset: int) -> None:
        history = self.history.setdefault(partition, [])
        offset = base_offset
        for record in read_records(data):
            decoded = decode(record.key or b"", record.value)
            if decoded is not None:
                written = Written(offset, decoded[0], decoded[1], decoded[0] in self.fresh)
                history.append(written)
                self._apply(written, is_new=True)
            offset += 1
        self.ends[partition] = offset

    def meet_end(self, partition: int, end: int) -> None:
        """At a start: this is where the log ends."""
        known = self.ends.get(partition, 0)
        attempt = self.attempts.pop(partition, None)
        if end > known and attempt is not None:
            self._take(partition, attempt, known)
            known = self.ends[partition]
        if end > known:
            raise Violation("state from nowhere", f"{STATE_TOPIC}-{partition} ends at {end}, not at {known}")
        if end < known:
            history = self.history.get(partition, [])
            self.history[partition] = [one for one in history if one.offset < end]
            self.ends[partition] = end
            self._replay()

    def _replay(self) -> None:
        self.stored.clear()
        for history in self.history.values():
            for written in history:
                self._apply(written, is_new=False)

    def _apply(self, written: Written, *, is_new: bool) -> None:
        _, key, body, is_fresh = written
        known = self.stored.get(key)
        if body is None:
            self.stored.pop(key, None)
            self.written.pop(key, None)
            self.dropped.add(key)
            return
        if is_fresh or known is None:
            if isinstance(body, Snapshot):
                self._generations += 1
                known = self.stored[key] = Stored(
                    self._generations, body.state_epoch, body.start_offset, body.complete_count
                )
                known.say(body.start_offset, body.batches)
                self.written.pop(key, None)
            return
        before = known.start, known.offsets
        if isinstance(body, Snapshot):
            if is_new:
                self._check_snapshot(key, known, body)
            known.offsets = {}
            known.state_epoch = body.state_epoch
            known.start = body.start_offset
        elif is_new:
            self._check_forward(key, known, body)
        known.complete = body.complete_count
        known.say(body.start_offset, body.batches)
        is_renewed = isinstance(body, Snapshot) and before == (known.start, known.offsets)
        if is_new and not self.is_starting and body.batches and not is_renewed:
            self.written[key] = known.generation
            self.uncounted.add(key)

    def _check_snapshot(self, key: ShareKey, known: Stored, body: Snapshot) -> None:
        """A snapshot stands for all that was written before it."""
        said: dict[int, tuple[int, int]] = {}
        for first, last, state, count in body.batches:
            for offset in range(first, last + 1):
                said[offset] = (count, int(state))
        lost = [
            offset
            for offset, (state, count) in known.offsets.items()
            if offset >= body.start_offset and said.get(offset, (-1, -1)) < (count, int(state))
        ]
        if self.is_starting:
            # What speaks of records that the log has lost is cut off: everything from some offset on.
            last_said = max(said, default=body.start_offset - 1)
            lost = [offset for offset in lost if offset <= last_said]
        elif body.start_offset < known.start and not known.is_soft:
            raise Violation(
                "share start went back", f"{key}: from {known.start} to {body.start_offset} in the journal"
            )
        if lost:
            raise Violation("share snapshot forgets", f"{key}: {sorted(lost)[:5]} of {known}: {body}")

    @staticmethod
    def _check_forward(key: ShareKey, known: Stored, body: Update) -> None:
        if body.start_offset != UNDECIDED and body.start_offset < known.start and not known.is_soft:
            raise Violation(
                "share start went back", f"{key}: from {known.start} to {body.start_offset} in the journal"
            )
        for first, last, state, count in body.batches:
            for offset in range(first, last + 1):
                before = known.offsets.get(offset)
                if before is not None and (before[1], before[0]) > (count, state):
                    raise Violation(
                        "share state went back", f"{key}: {offset} from {before} to {(state, count)}"
                    )

    # Promises

    def told(self) -> None:
        """Somebody has an answer: what is written by now is seen."""
        self.answered_ends.update(self.ends)

    def is_durable(self, partition: int, end: int) -> None:
        self.durable_ends[partition] = max(end, self.durable_ends.get(partition, 0))
