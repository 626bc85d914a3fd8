"""The shapes that pages, the JSON API and its OpenAPI description share. Plain values, ready for JSON.

What is not known is None: an Apache Kafka cluster tells nobody who holds a record. Times are milliseconds since 1970.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from headrace.client.admin.results import CommittedOffset, OffsetChange, PartitionDescription
from headrace.client.admin.scaling import MEMBERS_MAX
from headrace.client.dead_letters import DeadLetter, DeadLetterCause

GroupId = Annotated[str, Meta(min_length=1, max_length=32_000, description="The group's id.")]
TOPIC_NAME_MAX = 249
TopicName = Annotated[str, Meta(min_length=1, max_length=TOPIC_NAME_MAX, description="The topic's name.")]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
DISK_WARNING, DISK_CRITICAL = 0.15, 0.05
"""Shares of a volume that are free."""
SCHEDULED_MAX = 200
"""Scheduled records on a page."""
SCHEDULED_PAGES_MAX = 25
SCHEDULED_ID_MAX = 64
Milliseconds = Annotated[int, Meta(ge=0, le=2**53, description="Milliseconds since 1970.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    node_id: int
    address: str
    rack: str | None
    is_controller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    name: str
    partitions: int
    replication_factor: int
    is_internal: bool
    records: int | None
    """Offsets between the logs' starts and ends; a compacted topic has fewer records than that."""
    rate_in: float | None
    """Records a second, over the last samples."""
    size: int | None = None
    """Bytes in the log, of one replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRow:
    """A data directory of a broker."""

    node_id: int
    path: str
    total_bytes: int | None
    free_bytes: int | None
    error: str | None

    @property
    def level(self) -> str:
        if self.error is not None:
            return "critical"
        if not self.total_bytes or self.free_bytes is None:
            return "ok"
        free = self.free_bytes / self.total_bytes
        return "critical" if free < DISK_CRITICAL else "warning" if free < DISK_WARNING else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    group_id: str
    type: str
    state: str
    members: int | None
    lag: int | None
    in_flight: int | None
    """Offsets in the windows of a share group: between start offset and end offset."""
    rate_done: float | None
    """Records a second that were settled (share) or passed by the committed offsets (consumer)."""
    error: str | None = None
    oldest_age_s: float | None = None
    """How long the oldest record that is not settled has been in its log."""
    window_share: float | None = None
    """How full the fullest window is, from 0 to 1; embedded broker only, as is `near_limit`."""
    near_limit: int | None = None
    """Records that wait for their last delivery."""
    dead_letters: int | None = None
    """Dead letters of the group that wait."""
    level: str = "ok"
    """ok, warning or critical"""
    reasons: tuple[str, ...] = ()
    """What is wrong, the worst first."""
    trend: str = "unknown"
    """Of the lag: growing, steady, falling, unknown."""
    slope: float | None = None
    """Records a second by which the lag grows."""
    drain_s: float | None = None
    """Seconds until nothing is left at this rate; null for never and for not known: `drain` says which."""
    drain: str = ""

    @property
    def drains_never(self) -> bool:
        return self.drain.startswith("never")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    cluster_id: str
    version: str
    is_embedded: bool
    """The dashboard runs inside the broker and sees locks and holders."""
    is_read_only: bool
    sampled_at: int | None
    brokers: tuple[BrokerRow, ...] = ()
    topics: tuple[TopicRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    left_out: int = 0
    """Groups beyond the number that is looked at."""
    error: str | None = None
    """Why the last look at the cluster failed; the rest is from the one before."""
    gone_since: int | None = None
    """Since when the cluster has not responded."""
    dead_letters: int | None = None
    """Dead letters that wait, in all dead-letter topics."""
    disks: tuple[DiskRow, ...] = ()

    @property
    def share_groups(self) -> tuple[GroupRow, ...]:
        return tuple(group for group in self.groups if group.type == "share")

    def count_of(self, level: str) -> int:
        return sum(group.level == level for group in self.groups)

    @property
    def fullest_disk(self) -> DiskRow | None:
        """The one with the least room left, or with an error."""
        order = {"critical": 0, "warning": 1, "ok": 2}
        return min(
            (disk for disk in self.disks if disk.error or disk.free_bytes is not None),
            key=lambda disk: (order[disk.level], disk.free_bytes or 0),
            default=None,
        )

    @property
    def rate_in(self) -> float:
        return sum(topic.rate_in or 0 for topic in self.topics if not topic.is_internal)

    @property
    def rate_done(self) -> float:
        return sum(group.rate_done or 0 for group in self.share_groups)

    @property
    def lag(self) -> int:
        return sum(group.lag or 0 for group in self.share_groups)

    @property
    def in_flight(self) -> int:
        return sum(group.in_flight or 0 for group in self.share_groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    member_id: str
    client_id: str
    host: str
    rack: str | None
    member_epoch: int | None
    assignment: tuple[str, ...]
    holds: int | None = None
    """Records it has acquired and not settled; with the embedded broker only, as are the rates."""
    rate_delivered: float | None = None
    rate_acknowledged: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastHoldRow:
    """Records that a member held, at a time in the past: a range, or all with the same times and end."""

    first: int
    last: int
    count: int
    ranges: int
    """In so many ranges."""
    member_id: str
    name: str
    """Client id and host, or the member id where they are not known."""
    acquired_at: int
    ended_at: int | None
    """None while it still holds them; of several ends the last."""
    ends: tuple[str, ...]
    """accepted, released, rejected, gap, closed (its session), expired (the lock) or taken (by an operator)"""
    words: str
    """The ends for people; empty while it still holds them."""
    held_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRun:
    """Neighboring offsets, first and last included, that are alike."""

    first: int
    last: int
    state: str
    """available, acquired, acknowledged, archiving, archived; unknown: not written down, so perhaps acquired"""
    delivery_count: int
    holder: str | None = None
    lock_ms_left: int | None = None
    holder_name: str | None = None
    """Client id and host of the holder."""
    held_ms: int | None = None
    renewals: int | None = None
    past: PastHoldRow | None = None
    """At a time in the past: the hold then, or the one that ended with this state; None where it is not known."""
    is_mixed: bool = False
    """Stands for several runs, too many to show; state and delivery count are the most telling of them."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWindow:
    topic: str
    partition: int
    start_offset: int | None
    next_offset: int | None
    log_start_offset: int
    log_end_offset: int
    lag: int | None
    in_flight: int
    window_max: int | None
    full_since: int | None = None
    blocked: str | None = None
    """Why nothing new is delivered: what keeps a full window from moving on."""
    is_live: bool
    states: dict[str, int]
    """Records by state, in the window."""
    deliveries: dict[int, int]
    """How many records of the window were delivered how often."""
    lock_timeouts: int | None
    runs: tuple[WindowRun, ...]
    runs_total: int

    @property
    def behind(self) -> int:
        """Records after the window, which nobody was given yet."""
        return 0 if self.next_offset is None else max(0, self.log_end_offset - self.next_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """A share-partition as it was written down at a time."""

    group_id: str
    topic: str
    partition: int
    at: int
    first: int
    """The oldest time that is kept."""
    last: int
    """The time of the last record, or now where holds that go on are known."""
    times: tuple[int, ...]
    """When something was written or acquired, and `last`: all of it, or an even choice."""
    changes: int
    """Records of `__share_group_state` up to that time, of `changes_total`."""
    changes_total: int
    window: PartitionWindow | None
    """None before the first snapshot that is kept."""
    names_holders: bool | None
    """Whether what is written names members, if there is any. Apache Kafka and older Headraces write none."""
    knows_current: bool
    """Holds that go on are known: the dashboard runs in the broker."""
    held: tuple[PastHoldRow, ...]
    """What was held at that time: a row for each acquisition."""
    ended: tuple[PastHoldRow, ...]
    """The holds that had ended last, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    group_id: str
    type: str
    state: str
    group_epoch: int | None
    assignment_epoch: int | None
    assignor: str
    coordinator: str
    members: tuple[MemberRow, ...]
    windows: tuple[PartitionWindow, ...] = ()
    offsets: tuple[CommittedOffset, ...] = ()
    is_live: bool = False
    windows_error: str | None = None
    """Why the windows cannot be shown: reading the share state needs rights of its own."""
    delivery_limit: int | None = None
    lock_ms: int | None = None
    dead_letter_topic: str | None = None

    @property
    def lag(self) -> int | None:
        """None where it is not known of any partition."""
        lags = [window.lag for window in self.windows] + [one.lag for one in self.offsets]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known or not lags else None

    @property
    def in_flight(self) -> int:
        return sum(window.in_flight for window in self.windows)

    def count_of(self, state: str) -> int:
        return sum(window.states.get(state, 0) for window in self.windows)

    @property
    def deliveries(self) -> dict[int, int]:
        total: dict[int, int] = {}
        for window in self.windows:
            for count, records in window.deliveries.items():
                total[count] = total.get(count, 0) + records
        return dict(sorted(total.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    name: str
    value: str | None
    is_set: bool
    """For this group or topic itself; otherwise the value is a default."""
    is_read_only: bool
    documentation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A key or value for people: text where it is text."""

    kind: Literal["null", "empty", "json", "text", "hex"]
    text: str
    size: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    partition: int
    offset: int
    timestamp: int
    key: Body
    value: Body
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsPage:
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    records: tuple[RecordRow, ...]
    next_offset: int
    """Where to read on; the end offset if these were the last."""
    scanned: int = 0
    """Records that a search has read."""
    is_cut: bool = False
    """A search has read as much as it may: there may be more to find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """One record: what it holds; and for a share group what became of it, and why it is where it is."""

    group_id: str | None
    topic: str
    partition: int
    offset: int
    state: str
    explanation: str
    delivery_count: int | None
    delivery_limit: int | None
    holder: str | None
    lock_ms_left: int | None
    is_live: bool
    may_release: bool
    record: RecordRow | None
    """None where the log has no record at this offset (any more)."""
    holder_name: str | None = None
    """Client id and host of the holder."""
    held_ms: int | None = None
    renewals: int | None = None
    blocker: int | None = None
    """The offset that the record waits for: the oldest of a full window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRow:
    """A group that reads a topic."""

    group_id: str
    type: str
    lag: int | None
    """In this topic."""
    members: int | None
    level: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: tuple[ConfigRow, ...]
    readers: tuple[ReaderRow, ...] = ()
    """As last sampled, the largest lag first."""
    records: int | None = None
    rate_in: float | None = None
    size: int | None = None
    retention_ms: int | None = None
    """None: for ever."""
    retention_bytes: int | None = None
    cleanup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTopicRow:
    """A dead-letter topic."""

    topic: str
    letters: int
    waiting: int
    newest: int | None
    cause: str | None
    """The most frequent one, in the words of its newest letter."""
    cause_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """One dead letter with all it says."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    status: str
    cause: str
    message: str
    exception: str | None
    traceback: str | None
    attempts: int | None
    delivery_count: int | None
    task: str | None
    worker: str | None
    group_id: str | None
    source_topic: str | None
    source_partition: int | None
    source_offset: int | None
    is_copied: bool
    record: RecordRow

    @property
    def is_open(self) -> bool:
        return self.status in ("waiting", "claimed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersPage:
    topics: tuple[str, ...]
    """Topics that groups name as theirs, that are allowed to be one, or whose name says so."""
    overview: tuple[LetterTopicRow, ...] = ()
    """A row for each of them; only where no topic is chosen."""
    topic: str | None
    causes: tuple[DeadLetterCause, ...] = ()
    letters: tuple[DeadLetter, ...] = ()
    total: int = 0
    waiting: int = 0
    passed_over: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRow:
    """A record that is sent later."""

    id: str
    at: int
    is_due: bool
    """Its time is over: it waits for a worker, and can no longer be canceled."""
    topic: str
    key: Body
    value: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPage:
    """What a group sends later, the next due first."""

    group_id: str
    records: tuple[ScheduledRow, ...]
    total: int
    """All that were read."""
    page: int
    pages: int
    """As far as there are pages: not more than SCHEDULED_PAGES_MAX."""
    has_more: bool
    """Others are due later."""
    is_whole: bool
    """False: there are too many to be read, so that `total` is too small and some that are due earlier may be
    missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """One task of one worker process, as it exports it."""

    address: str
    group_id: str
    task: str
    running: int
    waiting: int
    held: int
    stuck: int
    is_paused: bool
    succeeded: int
    failed: int
    dead_lettered: int
    lost: int
    mean_run_s: float | None
    rate: float | None
    """Records a second that were done, since the look before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A record that a worker's function is working on now."""

    address: str
    group_id: str
    task: str
    topic: str
    partition: int
    offset: int
    attempt: int
    seconds: float
    """For so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRow:
    """A Spark query on a share group, as it exports it."""

    address: str
    query: str
    micro_batch: int | None
    duration_ms: int | None
    input_rate: float | None
    processed_rate: float | None
    lag: int | None
    held: int | None
    ahead: int | None
    unconfirmed: int | None
    delivered: int | None
    confirmed: int | None
    redelivered: int | None
    released: int | None
    rejected: int | None
    refused: int | None
    lost: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesPage:
    is_set_up: bool
    """The dashboard was given addresses to read."""
    workers: tuple[WorkerRow, ...]
    runs: tuple[RunRow, ...]
    """What the workers run now, the longest first."""
    queries: tuple[QueryRow, ...]
    silent: tuple[str, ...]
    """Which addresses do not respond, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRow:
    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    id: str
    title: str
    unit: str
    times: tuple[float, ...]
    """Seconds since 1970."""
    series: tuple[SeriesRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRows:
    groups: tuple[GroupRow, ...]
    total: int
    """Groups that match, on all pages."""
    page: int = 1
    pages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRows:
    topics: tuple[TopicRow, ...]
    total: int
    """Topics that match, on all pages."""
    page: int = 1
    pages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRows:
    configs: tuple[ConfigRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScale:
    """How many members a group needs; see headrace.client.admin.scaling."""

    group_id: str
    members: int | None
    desired_members: int
    lag: int | None
    rate_per_member: float | None
    """Records a second of one member; null where it is not known."""
    reason: str
    sampled_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    csrf_token: str
    is_read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    error: str


# What requests say.


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParameters:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsChoice:
    """One page of the groups: those whose id has `q` in it, in this order."""

    q: Annotated[str, Meta(max_length=300)] = ""
    type: Literal["", "share", "consumer", "classic"] = ""
    sort: Literal["trouble", "name", "lag", "age", "rate", "members", "drain"] = "trouble"
    page: Annotated[int, Meta(ge=1, le=100_000)] = 1
    limit: Annotated[int, Meta(ge=1, le=2_000)] = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChoice:
    q: Annotated[str, Meta(max_length=300)] = ""
    sort: Literal["name", "records", "rate", "size", "partitions"] = "name"
    internal: Literal["yes", "no"] = "yes"
    page: Annotated[int, Meta(ge=1, le=100_000)] = 1
    limit: Annotated[int, Meta(ge=1, le=2_000)] = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChoice:
    group: GroupId


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledChoice:
    """One page of what a group sends later. A queue may have scheduled records before there is the group."""

    group: GroupId
    page: Annotated[int, Meta(ge=1, le=SCHEDULED_PAGES_MAX)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelScheduled:
    group: GroupId
    id: Annotated[str, Meta(min_length=1, max_length=SCHEDULED_ID_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleChoice:
    """The records that wait now are to be done in `drain_s` seconds, by `min` to `max` members."""

    group: GroupId
    drain_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 60.0
    min: Annotated[int, Meta(ge=0, le=MEMBERS_MAX)] = 0
    max: Annotated[int, Meta(ge=0, le=MEMBERS_MAX)] = 100
    rate: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Records a second of one member, where that is known better than by what is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    topic: TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class MaybeTopic:
    topic: TopicName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaybeGroup:
    group: GroupId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChoice:
    """With a group: what the record is to it, too."""

    topic: TopicName
    partition: Partition
    offset: Offset
    group: GroupId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRecord:
    group: GroupId
    topic: TopicName
    partition: Partition
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsChoice:
    topic: TopicName
    partition: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    """-1: all partitions; with an offset, the first one."""
    offset: Offset | None = None
    """Without offset and time: the newest records."""
    key: Annotated[str, Meta(max_length=1_000)] = ""
    """Only records with this key."""
    value: Annotated[str, Meta(max_length=1_000)] = ""
    """Only records whose value has this text in it."""
    time: Milliseconds | None = None
    """From the first record of that time or later."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TailChoice:
    topic: TopicName
    partition: Partition | None = None
    """Without it all partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsets:
    group: GroupId
    to: Literal["earliest", "latest", "time", "offset"]
    time: Milliseconds | None = None
    topic: TopicName | None = None
    """Only this topic; with `to: offset` it is needed, as is the partition."""
    partition: Partition | None = None
    offset: Offset | None = None
    dry_run: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    topic: TopicName
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    replication_factor: Annotated[int, Meta(ge=-1, le=100)] = -1
    """-1: the cluster's default."""
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    topic: TopicName
    confirm: TopicName
    """The name once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDone:
    is_dry_run: bool
    changes: tuple[OffsetChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConfig:
    group: GroupId
    changes: dict[str, str | None] = field(default_factory=dict)
    """null puts a config back to its default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    topic: TopicName
    cause: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    partition: Partition | None = None
    """With an offset: only this letter."""
    offset: Offset | None = None
    value: Annotated[str, Meta(max_length=1_000_000)] | None = None
    """Goes back in place of what the letter holds, as UTF-8; for one letter."""
    again: bool = False
    """Also letters whose redrive was interrupted: they may have been sent already."""
    dry_run: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    topic: TopicName
    cause: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    partition: Partition | None = None
    offset: Offset | None = None
    dry_run: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChoice:
    group: GroupId
    topic: TopicName
    partition: Partition
    at: Milliseconds | None = None
    """Without it: as last written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    topic: TopicName
    partition: Partition
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    message: str
