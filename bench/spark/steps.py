"""What the driver and the Spark program tell each other: a step to run, and what its micro-batches took."""

from dataclasses import dataclass
from statistics import median
from typing import Any

SOURCE_OF_SPARK = "Spark's Kafka source"
SPARK_SHORT_WAIT = "Spark's Kafka source, fetch.max.wait.ms=10"
"""At the end of the log the last poll of each of its tasks waits for records that do not come, 500 ms by default."""
COMMIT = "kafka-share, commit"
HANDOFF = "kafka-share, handoff"
AHEAD = "kafka-share, handoff with maxRecordsAhead"
CONTENDERS = (SOURCE_OF_SPARK, COMMIT, HANDOFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One query with Trigger.AvailableNow over one topic, from its beginning, into the noop sink."""

    contender: str
    topic: str
    records: int
    per_trigger: int | None = None
    """The most records of a micro-batch."""
    tasks: int | None = None
    """Into how many tasks each is cut, by `minPartitions`."""
    record_ms: int = 0
    """How long the work on a record waits."""
    per_second: int = 0
    """Another kind of step: the topic is empty, and `records` are sent to it at this rate while the query runs."""
    partitions: int = 2
    record_bytes: int = 100
    """Both of the topic."""
    queries: int = 0
    """Another kind of step: so many queries at a time, which share the topic: one group, or each some partitions."""
    is_first_row: bool = False
    """Another kind of step: the query has the default trigger, and ends with its first row."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    rows: int
    trigger_ms: float
    """The whole trigger: finding what there is, both of Spark's logs, the tasks."""
    tasks_ms: float
    """Reading, and the sink: Spark's `addBatch`."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a step's query did. `wall_s` is from start() to its end, with the reader's start and joining the group."""

    batches: tuple[MicroBatch, ...]
    wall_s: float
    latencies_ms: tuple[float, ...] = ()
    """From the call of `send` to the sink, of each record, where records were sent while the query ran."""
    span_s: float = 0.0
    """Of several queries, from the beginning of the first trigger with rows to the end of the last one."""

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Ran":
        batches = tuple(MicroBatch(*each) for each in found["batches"])
        return cls(batches, found["wall_s"], tuple(found.get("latencies_ms", ())), found.get("span_s", 0.0))

    def latency_ms(self, part: float) -> float:
        """What this part of the records did not exceed: 0.5 for the median."""
        return sorted(self.latencies_ms)[int(part * (len(self.latencies_ms) - 1))]

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def rate(self) -> float:
        """Rows a second over all triggers that had any, the first with its joining included."""
        return self.rows / self._seconds(self.batches)

    @property
    def tasks_rate(self) -> float:
        """Rows a second while the tasks ran."""
        return self.rows * 1000 / sum(batch.tasks_ms for batch in self.batches)

    @property
    def steady_rate(self) -> float:
        """The same without the first micro-batch, in which workers start and the group is joined."""
        later = self.batches[1:]
        return sum(batch.rows for batch in later) / self._seconds(later)

    @property
    def joined_rate(self) -> float:
        """`steady_rate`, or `rate` of a single micro-batch: on Apache Kafka, joining a group takes about 2 s."""
        return self.steady_rate if len(self.batches) > 1 else self.rate

    @property
    def middle_rate(self) -> float:
        """The same without the first and the last: no group is joined, and no task reaches the end of the log."""
        middle = self.batches[1:-1]
        return sum(batch.rows for batch in middle) / self._seconds(middle)

    @property
    def trigger_ms(self) -> float:
        """Of a micro-batch, once things are warm."""
        return median(batch.trigger_ms for batch in self.batches[2:])

    @staticmethod
    def _seconds(batches: tuple[MicroBatch, ...]) -> float:
        return sum(batch.trigger_ms for batch in batches) / 1000
