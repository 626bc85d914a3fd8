"""The shapes that pages, the JSON API and its OpenAPI description share. Plain values, ready for JSON.

What is not known is None: an Apache Kafka cluster tells nobody who holds a record. Times are milliseconds since 1970.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

GroupId = Annotated[str, Meta(min_length=1, max_length=32_000, description="The group's id.")]
TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="The topic's name.")]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
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

    @property
    def share_groups(self) -> tuple[GroupRow, ...]:
        return tuple(group for group in self.groups if group.type == "share")

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
class Run:
    """Neighbouring offsets, first and last included, that are alike."""

    first: int
    last: int
    state: str
    """available, acquired, acknowledged, archiving, archived; unknown: not written down, so perhaps acquired"""
    delivery_count: int
    holder: str | None = None
    lock_ms_left: int | None = None
    is_mixed: bool = False
    """Stands for several runs, too many to show; state and delivery count are the most telling of them."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    topic: str
    partition: int
    start_offset: int | None
    next_offset: int | None
    log_start_offset: int
    log_end_offset: int
    lag: int | None
    in_flight: int
    window_max: int | None
    is_live: bool
    states: dict[str, int]
    """Records by state, in the window."""
    deliveries: dict[int, int]
    """How many records of the window were delivered how often."""
    lock_timeouts: int | None
    runs: tuple[Run, ...]
    runs_total: int

    @property
    def behind(self) -> int:
        """Records after the window, which nobody was given yet."""
        return 0 if self.next_offset is None else max(0, self.log_end_offset - self.next_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """A consumer group's place in one partition."""

    topic: str
    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None
    member_id: str | None


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
    windows: tuple[Window, ...] = ()
    offsets: tuple[OffsetRow, ...] = ()
    is_live: bool = False
    windows_error: str | None = None
    """Why the windows cannot be shown: reading the share state needs rights of its own."""
    delivery_limit: int | None = None
    lock_ms: int | None = None
    dead_letter_topic: str | None = None

    @property
    def lag(self) -> int:
        return sum(one.lag or 0 for one in self.windows) + sum(one.lag or 0 for one in self.offsets)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Microscope:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionRow, ...]
    configs: tuple[ConfigRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRow:
    partition: int
    offset: int
    timestamp: int
    status: str
    source: str | None
    group_id: str | None
    delivery_count: int | None
    message: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    id: str
    text: str
    exception: str | None
    group_id: str | None
    count: int
    waiting: int
    claimed: int
    redriven: int
    last_timestamp: int
    source_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersPage:
    topics: tuple[str, ...]
    """Topics that groups name as theirs, that are allowed to be one, or whose name says so."""
    topic: str | None
    causes: tuple[CauseRow, ...] = ()
    letters: tuple[LetterRow, ...] = ()
    total: int = 0
    waiting: int = 0
    passed_over: int = 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRows:
    topics: tuple[TopicRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRows:
    configs: tuple[ConfigRow, ...]


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
class GroupChoice:
    group: GroupId


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
    partition: Partition = 0
    offset: Offset | None = None
    """Without offset and time: the newest records."""
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
class OffsetMove:
    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDone:
    is_dry_run: bool
    changes: tuple[OffsetMove, ...]


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
    again: bool = False
    """Also letters whose redrive was interrupted: they may have been sent already."""
    dry_run: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveDone:
    is_dry_run: bool
    chosen: int
    redriven: int
    gone: int
    refused: int
    uncertain: int
    taken: int
    targets: dict[str, int]
    passed_over: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    message: str
