"""The promises about records: what was acknowledged is there, once, in order, with its offset, and nothing else
is.

Theory of operation. The model sees every append (`AppendWatcher`), so it knows what each log holds, by topic
id. An answer that a client has received raises the promise: after acks=1 the records survive the process, after
acks=all the power. After a restart each log is read from end to end and compared; what was not promised may be
gone from the end, and is then forgotten here too. The start of a log moves only for a reason.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.broker.topics import INTERNAL, Topic
from headrace.log.config import LogConfig
from headrace.log.partition_log import Appended, PartitionLog
from headrace.log.producers import BATCHES_KEPT
from headrace.log.times import at_once, offset_for_time, search_max_timestamp
from headrace.wire.batches import BatchHeader, is_intact, split
from headrace.wire.errors import KafkaError
from headrace.wire.records import read_marker, read_records
from tests.simulation.model import End, Model
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


TIMES = 4
"""Records by whose times a log is searched after a start."""


@dataclass(slots=True)
class Entry:
    """One record, or one transaction marker, as it was appended."""

    offset: int
    base_offset: int
    """Of its batch."""
    key: bytes | None
    value: bytes | None
    timestamp: int
    batch_size: int
    producer_id: int = -1
    sequence: int = -1
    """Of its batch; -1 without a producer."""
    is_transactional: bool = False
    marker: bool | None = None
    """For a marker: whether it commits."""
    is_committed: bool | None = None
    """For a record of a transaction: how that was decided."""
    is_uncertain: bool = False
    """Deleted, and perhaps never on the disk: then nothing is known of it, not even its producer's sequence."""
    appended_ms: int = 0
    """When it was appended, by the clock that producers expire by."""


@dataclass(slots=True, eq=False)
class LogModel:
    topic: str
    topic_id: bytes
    partition: int
    entries: dict[int, Entry] = field(default_factory=dict)
    end: int = 0
    recovered_end: int = 0
    """Where the last start has found it to end, before it wrote to it."""
    durable_end: int = 0
    """Below it everything was acknowledged as safe from a power cut."""
    kept_end: int = 0
    """Below it everything was acknowledged at least as safe from kill -9."""
    start: int = 0
    """As last seen."""
    deleted_before: int = 0
    """The largest offset that a DeleteRecords which was answered has named."""
    deletions: int = 0
    """DeleteRecords requests that are under way: they may move the start to any offset."""
    delete_asked: int = 0
    """Up to here the start may have been moved by them."""
    config: LogConfig | None = None
    was_compacted: bool = False
    open: dict[int, int] = field(default_factory=dict)
    """First offset of each undecided transaction, by producer id."""
    attempt: bytes | None = None
    """An append that is under way."""
    is_damaged: bool = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries[entry.offset] = entry
            self.end = max(self.end, entry.offset + 1)
            if entry.marker is not None:
                self._decide(entry.producer_id, entry.marker, before=entry.offset)
            elif entry.is_transactional:
                self.open.setdefault(entry.producer_id, entry.offset)

    def _decide(self, producer_id: int, is_committed: bool, *, before: int) -> None:
        """What the producer has written before the marker; its next transaction may be there too (`cut`)."""
        first = self.open.pop(producer_id, None)
        if first is not None:
            for entry in self.entries.values():
                if (
                    first <= entry.offset < before
                    and entry.producer_id == producer_id
                    and entry.marker is None
                ):
                    entry.is_committed = is_committed

    def cut(self, end: int) -> list[Entry]:
        """What was not promised is gone from the end."""
        gone = [entry for offset, entry in self.entries.items() if offset >= end]
        if gone or end < self.end:
            for entry in gone:
                del self.entries[entry.offset]
            self.end = end
            self.kept_end = min(self.kept_end, end)
            rest = sorted(self.entries.values(), key=lambda entry: entry.offset)
            self.open.clear()
            for entry in rest:
                entry.is_committed = None
            self.add(rest)
        return gone

    def lose_transaction(self, producer_id: int, *, before: int) -> list[Entry]:
        """Its records were deleted and had not reached the disk: they are not there to open it again (`cut`)."""
        first = self.open.pop(producer_id)
        return self._lose(
            entry
            for entry in self.entries.values()
            if entry.producer_id == producer_id and first <= entry.offset < before and entry.marker is None
        )

    def lose_markers(self, producer_id: int, first: int, *, before: int) -> list[Entry]:
        """They were deleted and had not reached the disk: what had begun at `first` is open, now and after a cut."""
        self.open.setdefault(producer_id, first)
        return self._lose(
            entry
            for entry in self.entries.values()
            if entry.producer_id == producer_id and first < entry.offset < before and entry.marker is not None
        )

    def _lose(self, entries: Iterable[Entry]) -> list[Entry]:
        lost = list(entries)
        for entry in lost:
            del self.entries[entry.offset]
        return lost


def entries_of(data: bytes, base_offset: int, now_ms: int) -> list[Entry]:
    """The records of appended batches, from the offset that the first of them got."""
    found = []
    for position, header in split(data):
        batch = data[position : position + header.size]
        found += batch_entries(batch, header, base_offset, now_ms)
        base_offset += header.last_offset_delta + 1
    return found


def batch_entries(batch: bytes, header: BatchHeader, base_offset: int, now_ms: int) -> list[Entry]:
    if not header.record_count:
        return []  # compaction has kept the header for its producer's sake
    shift = base_offset - header.base_offset
    if header.is_control:
        marker = read_marker(batch)
        if marker is None:
            return []
        return [
            Entry(
                base_offset, base_offset, None, None, header.max_timestamp, header.size, header.producer_id,
                marker=marker.is_commit, appended_ms=now_ms,
            )
        ]  # fmt: skip
    return [
        Entry(
            record.offset + shift, base_offset, record.key, record.value, record.timestamp, header.size,
            header.producer_id, header.base_sequence, header.is_transactional, appended_ms=now_ms,
        )
        for record in read_records(batch)
    ]  # fmt: skip


class Logs(Model):
    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.logs: dict[tuple[bytes, int], LogModel] = {}
        self.topics: dict[str, bytes] = {}
        """The topics there are, by name, as the broker has them."""
        self.partitions: dict[bytes, int] = {}
        self.promised: dict[str, bytes] = {}
        """Topics that a client was told exist, and that nobody has asked to delete since."""
        self.deleted: set[bytes] = set()
        """Ids of topics that a client was told are gone."""
        self.may_repeat_epochs = False
        """Power was lost where nothing is synced: an epoch may be given out again whose records are in a log."""
        self.started_ms = 0
        """When this process started, by the clock that producers expire by."""
        self.asked_to_delete: set[bytes] = set()
        self.places: dict[bytes, list[tuple[LogModel, int]]] = {}
        """Where each value was appended. Values are unique."""
        self.undone: dict[tuple[bytes, int], int] = {}
        """Where partitions ended that a power cut has taken from their topics: if the topic grows again, the new
        partition may go on where the checkpoints say, instead of giving out the same offsets again.
        """
        self.early: dict[tuple[bytes, int], list[tuple[int, Callable[[], None]]]] = {}
        """What a start has appended (markers, dead letters) before the models see where each log then ended: its
        offset, and what takes it into the model.
        """

    @property
    def now_ms(self) -> int:
        return self.world.clock.age_ms()

    # Topics

    def _listen(self) -> None:
        self.core.topics.on_changed.append(self._topic_changed)
        self.core.topics.on_deleted.append(self._topic_deleted)

    def _topic_changed(self, topic: Topic) -> None:
        self.topics[topic.name] = topic.id
        self.partitions[topic.id] = len(topic.partitions)

    def _topic_deleted(self, topic: Topic) -> None:
        if self.topics.get(topic.name) == topic.id:
            del self.topics[topic.name]

    def told_created(self, name: str, topic_id: bytes) -> None:
        if topic_id not in self.asked_to_delete:
            self.promised[name] = topic_id

    def will_delete(self, name: str) -> bytes | None:
        topic_id = self.topics.get(name)
        if topic_id is not None:
            self.asked_to_delete.add(topic_id)
        if self.promised.get(name) is not None:
            self.asked_to_delete.add(self.promised.pop(name))
        return topic_id

    def told_deleted(self, topic_id: bytes | None) -> None:
        if topic_id is not None:
            self.deleted.add(topic_id)
            if topic_id in self.topics.values():
                raise Violation(
                    "deleted topic is there", f"{self.name_of(topic_id)} after its deletion was answered"
                )

    def name_of(self, topic_id: bytes) -> str:
        return next((log.topic for log in self.logs.values() if log.topic_id == topic_id), topic_id.hex())

    # Appends

    def of(self, log: PartitionLog) -> LogModel | None:
        if log.topic in INTERNAL:
            return None
        key = (log.topic_id, log.partition)
        found = self.logs.get(key)
        if found is None:
            found = self.logs[key] = LogModel(log.topic, log.topic_id, log.partition)
            if log.start_offset == log.end_offset <= self.undone.pop(key, 0):
                found.start = found.end = log.end_offset
        return found

    def appending(self, log: PartitionLog, data: bytes) -> None:
        model = self.of(log)
        if model is not None:
            if not self.world.is_starting:  # else it is still to be seen what became of the last one
                model.attempt = data
            if model.is_damaged:
                self._note_values(model, data)

    def _note_values(self, model: LogModel, data: bytes) -> None:
        """Of a damaged log all that is known is what was ever written to it."""
        for entry in entries_of(data, 0, 0):
            if entry.value is not None:
                self.places.setdefault(entry.value, []).append((model, entry.offset))

    def refused(self, log: PartitionLog, data: bytes) -> None:
        model = self.of(log)
        if model is not None and not self.world.is_starting:
            model.attempt = None

    def appended(self, log: PartitionLog, data: bytes, appended: Appended) -> None:
        model = self.of(log)
        if model is None or model.is_damaged:
            return
        if self.world.is_starting:
            self._take_early(log, appended, lambda: self._append(model, log, data, appended))
        else:
            self._append(model, log, data, appended)

    def _take_early(self, log: PartitionLog, appended: Appended, take: Callable[[], None]) -> None:
        self.early.setdefault((log.topic_id, log.partition), []).append((appended.base_offset, take))

    def _append(self, model: LogModel, log: PartitionLog, data: bytes, appended: Appended) -> None:
        model.attempt = None
        entries = entries_of(data, appended.base_offset, self.now_ms)
        if appended.append_time_ms >= 0:
            for entry in entries:
                entry.timestamp = appended.append_time_ms
        if appended.is_duplicate:
            self._check_duplicate(model, entries, data)
            return
        if appended.base_offset != model.end:
            raise Violation(
                "offsets out of order",
                f"{model.name}: {appended.base_offset} was given, the end was {model.end}",
            )
        self._check_once(model, entries)
        model.add(entries)
        model.config = log.config
        for entry in entries:
            if entry.value is not None:
                self.places.setdefault(entry.value, []).append((model, entry.offset))

    def _check_duplicate(self, model: LogModel, entries: list[Entry], data: bytes) -> None:
        for entry in entries:
            known = model.entries.get(entry.offset)
            if known is not None and known.value != entry.value:
                if known.is_transactional and self.may_repeat_epochs:
                    # From here on nothing can be said of this log but that what it serves was written to it.
                    model.is_damaged = True
                    self._note_values(model, data)
                    return
                raise Violation(
                    "new records taken for a retry",
                    f"{model.name}: {entry.value!r} was answered with offset {entry.offset}, which is {known.value!r}",
                )

    def _check_once(self, model: LogModel, entries: list[Entry]) -> None:
        """A batch of an idempotent producer is appended at most once, unless the producer was long silent since."""
        for entry in entries:
            if entry.producer_id < 0 or entry.value is None:
                continue
            for place, offset in self.places.get(entry.value, ()):
                known = place.entries.get(offset)
                if place is not model or known is None or known.is_uncertain:
                    continue
                if known.producer_id != entry.producer_id:
                    continue
                if self._longest_silence(model, known) < self.world.scenario.producer_expiration_ms:
                    raise Violation(
                        "appended twice",
                        f"{model.name}: {entry.value!r} of producer {entry.producer_id} at {offset} and {entry.offset}",
                    )

    def refused_retry(self, values: list[bytes], topic_id: bytes, code: int) -> None:
        """A client was told that its sequence numbers are wrong. Not for one of the last batches that it has in the
        log: that is a retry, and answered like the first time. Which those are need not outlive the process.
        """
        places = [place for value in values[:1] for place in self.places.get(value, ())]
        for model, offset in places:
            known = model.entries.get(offset)
            if known is None or known.is_uncertain or known.appended_ms <= self.started_ms:
                continue
            if model.topic_id != topic_id or self.topics.get(model.topic) != topic_id:
                continue
            if model.is_damaged or model.was_compacted:
                continue
            later = {
                entry.base_offset
                for entry in model.entries.values()
                if entry.producer_id == known.producer_id and entry.base_offset > known.base_offset
            }
            is_known = self._longest_silence(model, known) < self.world.scenario.producer_expiration_ms
            if is_known and len(later) < BATCHES_KEPT:
                raise Violation("retry refused", f"{model.name}: {known} came again and got error {code}")

    def _longest_silence(self, model: LogModel, known: Entry) -> int:
        """Of its producer from that record until now. A producer that was forgotten in it starts as one that was
        never seen: what it sends then is new, and so is all that follows in the same request.
        """
        times = [
            entry.appended_ms
            for entry in model.entries.values()
            if entry.producer_id == known.producer_id and entry.offset >= known.offset
        ]
        times = [*sorted(times), self.now_ms]
        return max(later - earlier for earlier, later in pairwise(times))

    def marked(self, log: PartitionLog, producer_id: int, commit: bool, appended: Appended) -> None:
        model = self.of(log)
        if model is None or model.is_damaged:
            return
        if self.world.is_starting:
            self._take_early(
                log, appended, lambda: self._mark(model, appended.base_offset, producer_id, commit)
            )
        else:
            self._mark(model, appended.base_offset, producer_id, commit)

    def _mark(self, model: LogModel, offset: int, producer_id: int, commit: bool) -> None:
        first = model.open.get(producer_id)
        now_ms = self.world.clock.wall_ms()
        model.add(
            [
                Entry(
                    offset,
                    offset,
                    None,
                    None,
                    now_ms,
                    78,
                    producer_id,
                    marker=commit,
                    appended_ms=self.now_ms,
                )
            ]
        )
        if first is not None:
            ended = [
                entry
                for entry in model.entries.values()
                if entry.offset >= first and entry.producer_id == producer_id and entry.marker is None
            ]
            self.world.decided(model, ended, commit)

    # Promises

    def acknowledged(self, values: list[bytes], partition: int, base_offset: int, *, acks: int) -> None:
        """A client was told that its records are at this offset."""
        for number, value in enumerate(values):
            place = next(
                (
                    one
                    for one in self.places.get(value, ())
                    if one[1] == base_offset + number and one[0].partition == partition
                ),
                None,
            )
            if place is None and any(model.is_damaged for model, _ in self.places.get(value, ())):
                continue
            if place is None:
                raise Violation(
                    "acknowledged, not appended",
                    f"{value!r} at {base_offset + number} of partition {partition}",
                )
            model, offset = place
            if offset not in model.entries and offset >= model.start and offset < model.end:
                raise Violation("acknowledged, not there", f"{model.name}: {value!r} at {offset}")
            model.kept_end = max(model.kept_end, offset + 1)
            if acks == -1 and self.world.scenario.is_fsync:
                model.durable_end = max(model.durable_end, offset + 1)

    def will_delete_records(self, topic: str, partition: int, before: int) -> LogModel | None:
        topic_id = self.topics.get(topic)
        if topic_id is None:
            return None
        model = self.logs.get((topic_id, partition))
        if model is None:
            model = self.logs[topic_id, partition] = LogModel(topic, topic_id, partition)
        model.deletions += 1
        return model

    def deletion_ended(self, model: LogModel) -> None:
        """It is answered or lost: what it has done is done."""
        if not self.world.has_crashed:  # else what it has done is found after the restart
            self.after_step()  # several actors may have acted since the last look
            model.deletions = max(0, model.deletions - 1)

    @staticmethod
    def told_records_deleted(model: LogModel, low_watermark: int) -> None:
        model.deleted_before = max(model.deleted_before, low_watermark)

    # What the broker shows while it runs

    def after_turn(self) -> None:
        if not self.world.turns.is_idle:
            self.after_step()

    def after_step(self) -> None:
        for model, log in self._opened():
            if log.start_offset != model.start:
                self._check_start(model, log)
            if log.end_offset != model.end:
                raise Violation("wrong end", f"{model.name} ends at {log.end_offset}, not at {model.end}")
            if log.stable_offset != max(model.stable, model.start):
                raise Violation(
                    "wrong stable offset",
                    f"{model.name}: {log.stable_offset}, but undecided are {model.open} of ..{model.end}",
                )

    def _opened(self) -> Iterator[tuple[LogModel, PartitionLog]]:
        for topic in self.core.topics:
            if topic.is_internal:
                continue
            for partition in topic.partitions:
                log = partition.opened_log
                if log is None:
                    continue
                model = self.of(log)
                assert model is not None
                if model.is_damaged:
                    continue
                if model.config is not log.config:
                    model.config = log.config
                if "compact" in log.config.cleanup_policy:
                    model.was_compacted = True
                yield model, log

    def _check_start(self, model: LogModel, log: PartitionLog) -> None:
        """It moves forward, for a reason: somebody has asked for it, or the records were too old or too many."""
        start = log.start_offset
        if start < model.start:
            raise Violation("start went back", f"{model.name}: from {model.start} to {start}")
        if model.deletions:
            model.delete_asked = max(model.delete_asked, start)
        if start > model.delete_asked:
            self._check_retention(model, log, start)
        model.start = start

    def _check_retention(self, model: LogModel, log: PartitionLog, start: int) -> None:
        config = log.config
        kept_from = max(model.start, model.delete_asked)  # what is below went for the reasons of its own time
        dropped = [entry for entry in model.entries.values() if kept_from <= entry.offset < start]
        if model.was_compacted:  # what has been replaced may be gone, and makes its segment no younger
            newest = self._newest(model)
            dropped = [
                entry
                for entry in dropped
                if entry.value is not None
                and entry.is_committed is not False
                and entry.offset >= newest.get(entry.key, -1)
            ]
        if "delete" not in config.cleanup_policy:
            raise Violation(
                "records deleted without a reason", f"{model.name}: start {start}, cleanup.policy is compact"
            )
        oldest_ms = self.world.clock.wall_max_ms - config.retention_ms
        is_old = config.retention_ms >= 0 and all(entry.timestamp <= oldest_ms for entry in dropped)
        if not is_old and config.retention_bytes < 0:
            raise Violation(
                "records deleted without a reason",
                f"{model.name}: start {start} (was {model.start}, asked for {model.delete_asked}), retention.ms "
                f"{config.retention_ms}, now {self.world.clock.wall_ms()}: {dropped[-3:]}",
            )

    # Restarts

    def before_end(self, how: End) -> None:
        if not self.world.has_crashed:
            self.after_step()
        else:
            # A turn without a disk operation may have moved the start, and a worker have saved it. The rest of what
            # is in memory is in the middle of something.
            for model, log in self._opened():
                if log.start_offset > model.start:
                    self._check_start(model, log)
        for model in self.logs.values():
            if how in (End.CLEAN, End.FAILED):
                model.attempt = None

    def after_start(self, how: End) -> None:
        self._listen()
        self.started_ms = self.now_ms
        self._check_topics(how)
        for topic in self.core.topics:
            if not topic.is_internal:
                for partition in topic.partitions:
                    self._check_log(partition.log, how)
        self.early.clear()
        known = set(self.topics.values())
        for (topic_id, index), model in list(self.logs.items()):
            if topic_id not in known:
                del self.logs[topic_id, index]
            elif index >= self.partitions[topic_id]:
                self.undone[topic_id, index] = model.end
                self._check_lost_partition(model, how)
                del self.logs[topic_id, index]

    def _check_lost_partition(self, model: LogModel, how: End) -> None:
        """A power loss may undo that a topic has grown, if nothing in the new partition was promised to last."""
        if how is not End.POWER or model.durable_end:
            raise Violation("partition lost", f"{model.name} with {model.end} records after {how.value}")
        self._forget(model.cut(0), model)

    def _forget(self, entries: Iterable[Entry], model: LogModel) -> None:
        """They never reached the disk."""
        for entry in entries:
            if entry.value is not None:
                self.places[entry.value] = [
                    place for place in self.places.get(entry.value, ()) if place != (model, entry.offset)
                ]

    def _check_topics(self, how: End) -> None:
        found = {topic.name: topic for topic in self.core.topics if not topic.is_internal}
        if how is End.POWER and not self.world.scenario.is_fsync:
            # Metadata and the state of transactions are not synced either.
            self.may_repeat_epochs = True
            ids = {topic.id for topic in found.values()}
            self.promised = {name: id for name, id in self.promised.items() if id in ids}
            self.deleted -= ids
            self._forget_deletions(ids & self.asked_to_delete)
        for name, topic_id in self.promised.items():
            if name not in found or found[name].id != topic_id:
                raise Violation("topic lost", f"{name} {topic_id.hex()} after {how.value}")
        for topic in found.values():
            if topic.id in self.deleted:
                raise Violation("deleted topic is back", f"{topic.name} after {how.value}")
        if how is not End.POWER:
            ids = {topic.id for topic in found.values()}
            for name, topic_id in self.topics.items():
                if name not in INTERNAL and topic_id not in ids | self.asked_to_delete:
                    raise Violation("topic lost", f"{name} {topic_id.hex()} after {how.value}")
        self.topics = {name: topic.id for name, topic in found.items()}
        self.partitions = {topic.id: len(topic.partitions) for topic in found.values()}

    def _forget_deletions(self, back: set[bytes]) -> None:
        """With flush=os a power loss may undo the deletion of a topic that was answered, when its files and its
        start offsets were already gone. Such a topic begins anew, at 0 or after the last segment that was synced; all
        others keep their start offsets.
        """
        for model in self.logs.values():
            if model.topic_id in back:
                model.deleted_before, model.delete_asked = 0, model.end

    def _check_log(self, log: PartitionLog, how: End) -> None:
        model = self.of(log)
        assert model is not None
        model.config = log.config
        if model.is_damaged:
            if (
                self.world.rng.random() < 0.5
            ):  # else the broker comes to the damage by itself, in housekeeping too
                self._check_damaged(model, log)
            return
        if log.damage is not None:
            raise Violation("damaged without a cause", f"{model.name} after {how.value}: {log.damage}")
        self._check_end(model, log, how)
        found = list(self._read(model, log))
        self._check_start_after(model, log)
        self._check_present(model, log, found, how)
        self._check_times(model, log, found)
        model.attempt = None
        expected = max(model.stable, model.start)
        if log.stable_offset != expected:
            raise Violation(
                "wrong stable offset",
                f"{model.name} after {how.value}: {log.stable_offset}, not {expected}: {model.open}",
            )
        self._check_committed(model, log)

    def _check_end(self, model: LogModel, log: PartitionLog, how: End) -> None:
        promised = model.durable_end if how is End.POWER else model.end
        if how is End.FAILED and not self.world.scenario.is_fsync:
            promised = model.kept_end
        early = self.early.get((model.topic_id, model.partition), [])
        end = early[0][0] if early else log.end_offset
        if end < promised:
            raise Violation(
                "acknowledged records lost",
                f"{model.name} ends at {end} after {how.value}, promised were {promised} of {model.end}",
            )
        if end > model.end and model.attempt is not None:
            self._take_attempt(model)
        if end > model.end:
            raise Violation("records from nowhere", f"{model.name} ends at {end}, not at {model.end}")
        if how is End.POWER:
            for offset in range(model.durable_end, min(log.start_offset, model.end)):
                if offset in model.entries:
                    model.entries[offset].is_uncertain = True
        self._forget(model.cut(end), model)
        model.recovered_end = end
        for _, take in early:  # markers too: what they end was open, even where its first records are deleted
            take()
        for producer_id, first in list(model.open.items()):
            if first < log.start_offset and producer_id not in log.producer_states.open_transactions:
                if first < model.durable_end or how is not End.POWER:
                    raise Violation(
                        "open transaction forgotten",
                        f"{model.name} after {how.value}: producer {producer_id} since {first}, "
                        f"durable up to {model.durable_end}",
                    )
                self._forget(model.lose_transaction(producer_id, before=log.start_offset), model)
        if how is End.POWER:
            self._reopen(model, log)

    @staticmethod
    def _reopen(model: LogModel, log: PartitionLog) -> None:
        """A marker that was deleted may never have reached the disk, and, where nothing is synced, its transaction be
        over all the same: then it is open again, until the broker ends it (`Transactions.at_end`).
        """
        unsure = {entry.producer_id for entry in model.entries.values() if entry.is_uncertain}
        for producer_id, first in log.producer_states.open_transactions.items():
            if first < log.start_offset and producer_id in unsure:
                model.lose_markers(producer_id, first, before=log.start_offset)

    def _take_attempt(self, model: LogModel) -> None:
        """The process died in the middle of an append that has reached the disk whole."""
        assert model.attempt is not None
        entries = entries_of(model.attempt, model.end, self.now_ms)
        model.add(entries)
        for entry in entries:
            if entry.value is not None:
                self.places.setdefault(entry.value, []).append((model, entry.offset))

    def _check_start_after(self, model: LogModel, log: PartitionLog) -> None:
        start = log.start_offset
        if model.deletions:  # it may have been written down, and the process have died before it took effect
            model.delete_asked = max(model.delete_asked, min(start, log.end_offset))
            model.deletions = 0
        if start < model.deleted_before:
            raise Violation(
                "deleted records are back",
                f"{model.name}: start {start}, deleted before {model.deleted_before}",
            )
        if start > max(model.start, model.delete_asked):
            raise Violation(
                "acknowledged records lost", f"{model.name}: start {start} after a restart, was {model.start}"
            )
        model.start = start

    def _read(self, model: LogModel, log: PartitionLog) -> Iterator[Entry]:
        offset = log.start_offset
        while offset < log.end_offset:
            read = log.reader.read(offset, max_bytes=1 << 20)
            if not read.data and read.next_offset <= offset:
                return
            for position, header in split(read.data):
                yield from batch_entries(
                    read.data[position : position + header.size], header, header.base_offset, 0
                )
            offset = read.next_offset

    def _check_present(self, model: LogModel, log: PartitionLog, found: list[Entry], how: End) -> None:
        last = -1
        present = set()
        for entry in found:
            if entry.offset <= last:
                raise Violation("offsets out of order", f"{model.name}: {entry.offset} after {last}")
            last = entry.offset
            present.add(entry.offset)
            known = model.entries.get(entry.offset)
            if known is None:
                raise Violation("records from nowhere", f"{model.name}: {entry} after {how.value}")
            if (known.key, known.value, known.marker) != (entry.key, entry.value, entry.marker):
                raise Violation("wrong record", f"{model.name} after {how.value}: {entry} instead of {known}")
        missing = [
            entry
            for offset, entry in model.entries.items()
            if log.start_offset <= offset < log.end_offset and offset not in present
        ]
        if not missing:
            return
        if not model.was_compacted:
            raise Violation("records missing", f"{model.name} after {how.value}: {missing[:3]}")
        self._check_compacted(model, missing)

    @staticmethod
    def _check_times(model: LogModel, log: PartitionLog, found: list[Entry]) -> None:
        """A search by time finds the first record that is not older, as whoever reads everything would.

        The markers of transactions are records, too, as in Kafka.
        """
        records = [entry for entry in found if entry.offset >= log.start_offset]
        if log.segments and not model.was_compacted and log.segments[0].base_offset == log.start_offset:
            youngest = max(records, key=lambda entry: (entry.timestamp, -entry.offset), default=None)
            expected = (youngest.timestamp, youngest.offset) if youngest is not None else None
            answer = at_once(search_max_timestamp(log))
            if answer != expected:
                raise Violation("wrong youngest record", f"{model.name}: {answer}, not {expected}")
        known = {records[at].timestamp for at in range(0, len(records), 1 + len(records) // TIMES)}
        for timestamp in sorted({0, *known, *(time + 1 for time in known)}):
            first = next((entry for entry in records if entry.timestamp >= timestamp), None)
            for committed in (False, True):
                end = log.stable_offset if committed else log.end_offset
                expected = (
                    (first.timestamp, first.offset) if first is not None and first.offset < end else None
                )
                answer = offset_for_time(log, timestamp, committed=committed)
                if answer != expected:
                    raise Violation(
                        "wrong offset for a time",
                        f"{model.name}: {answer} for {timestamp}, {committed=}, not {expected}",
                    )

    @staticmethod
    def _newest(model: LogModel) -> dict[bytes | None, int]:
        """The offset of each key's last record."""
        newest: dict[bytes | None, int] = {}
        for entry in model.entries.values():
            if entry.marker is None and (not entry.is_transactional or entry.is_committed):
                newest[entry.key] = max(newest.get(entry.key, -1), entry.offset)
        return newest

    def _check_compacted(self, model: LogModel, missing: list[Entry]) -> None:
        """Compaction takes only what has been replaced, tombstones, aborted records and old markers."""
        newest = self._newest(model)
        for entry in missing:
            if entry.marker is not None or entry.value is None or entry.is_committed is False:
                continue
            if entry.key is None:
                continue  # refused for compacted topics; from a time when the topic was not one
            if newest.get(entry.key) == entry.offset:
                raise Violation("compaction lost the newest", f"{model.name}: {entry}")

    def _check_committed(self, model: LogModel, log: PartitionLog) -> None:
        """read_committed: nothing undecided, nothing aborted, all that is committed."""
        offset = log.start_offset
        while offset < log.stable_offset:
            read = log.reader.read(offset, max_bytes=1 << 20, committed=True)
            self.check_committed_read(model, read.data, list(read.aborted), offset)
            if read.next_offset <= offset:
                return
            offset = read.next_offset

    def check_committed_read(
        self, model: LogModel, data: bytes, aborted: list[tuple[int, int]], offset: int
    ) -> None:
        """As a client filters what it is given."""
        waiting = sorted(aborted, key=lambda one: one[1])
        skipped: set[int] = set()
        for position, header in split(data):
            while waiting and waiting[0][1] <= header.last_offset:
                skipped.add(waiting.pop(0)[0])
            batch = data[position : position + header.size]
            if header.is_control:
                marker = read_marker(batch) if header.record_count else None
                if marker is not None and not marker.is_commit:
                    skipped.discard(header.producer_id)
                continue
            is_skipped = header.is_transactional and header.producer_id in skipped
            for entry in batch_entries(batch, header, header.base_offset, 0):
                known = model.entries.get(entry.offset)
                if entry.offset < offset or known is None or not known.is_transactional:
                    continue
                if not is_skipped and known.is_committed is not True:
                    state = "aborted" if known.is_committed is False else "undecided"
                    raise Violation("read_committed shows " + state, f"{model.name}: {known}")
                if is_skipped and known.is_committed is True:
                    raise Violation("read_committed hides committed", f"{model.name}: {known}")

    def damage(self, topic: str, partition: int) -> None:
        """A bit of this partition's files has flipped: from now on only detection is demanded of it."""
        topic_id = self.topics.get(topic)
        if topic_id is not None:
            model = self.logs.setdefault((topic_id, partition), LogModel(topic, topic_id, partition))
            model.is_damaged = True

    def _check_damaged(self, model: LogModel, log: PartitionLog) -> None:
        offset = log.start_offset
        while offset < log.end_offset:
            try:
                read = log.reader.read(offset, max_bytes=1 << 20)
            except KafkaError:
                return
            self.check_damaged_read(model, read.data)
            if read.next_offset <= offset:
                return
            offset = read.next_offset

    def check_damaged_read(self, model: LogModel, data: bytes) -> None:
        """Damaged data is never taken for good: what passes the checksum was written to this log as it is."""
        try:
            for position, header in split(data):
                batch = data[position : position + header.size]
                if not is_intact(batch, 0, header):
                    continue
                for entry in batch_entries(batch, header, header.base_offset, 0):
                    places = self.places.get(entry.value, ()) if entry.value is not None else ()
                    if entry.value is not None and not any(place is model for place, _ in places):
                        raise Violation("damage served as good", f"{model.name}: {entry}")
        except KafkaError:
            return
