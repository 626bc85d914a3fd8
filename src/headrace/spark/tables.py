"""Share groups and dead letters as tables: the batch sources `kafka-share-state` and `kafka-share-dead-letters`.

    state = (spark.read.format("kafka-share-state")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("groups", "fraud")
        .load())

A table is what the admin client answers at the moment of the read; nothing is acquired, acknowledged or written. The
state is that of `__share_group_state`, which knows nothing of locks: a record that no member has acknowledged is
"open", whether it is locked or was never delivered.

One task reads one group, or one dead-letter topic.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.base.tables import rows
from headrace.client.admin.results import GroupListing, ShareGroupOffset
from headrace.client.admin.sync import Admin
from headrace.client.dead_letters import LETTERS_MAX, DeadLetter
from headrace.client.settings import ShareSettings
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState
from headrace.spark.errors import OptionError
from headrace.spark.executor import Reading, read_pieces
from headrace.spark.options import kafka_options, option, parse_client, read_option, spell, unknown_option
from headrace.spark.runs import Run
from headrace.spark.splitting import Piece
from headrace.spark.telling import plainly, plainly_each
from headrace.wire.enums import GroupType
from headrace.wire.ids import TopicAndPartition

STATE, LETTERS = "kafka-share-state", "kafka-share-dead-letters"
OPEN = "open"
ROWS_AT_ONCE = 10_000
_TIME = pa.timestamp("us", tz="UTC")
_PLACE = {"group": pa.string(), "groupState": pa.string(), "topic": pa.string(), "partition": pa.int32()}
_RANGE = {"firstOffset": pa.int64(), "lastOffset": pa.int64(), "records": pa.int64()}
_RECORD = {"offset": pa.int64(), "timestamp": _TIME, "key": pa.binary(), "value": pa.binary()}
_STATE = {"state": pa.string(), "deliveryCount": pa.int32()}
_GROUP = {
    "members": pa.list_(pa.string()),
    "startOffset": pa.int64(),
    "endOffset": pa.int64(),
    "lag": pa.int64(),
}
RANGES = pa.schema(_PLACE | _RANGE | _STATE | _GROUP)
RECORDS = pa.schema(_PLACE | _RECORD | _STATE)
DEAD_LETTERS = pa.schema(
    {
        "deadLetterTopic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": _TIME,
        "status": pa.string(),
        "cause": pa.string(),
        "kind": pa.string(),
        "message": pa.string(),
        "exception": pa.string(),
        "group": pa.string(),
        "sourceTopic": pa.string(),
        "sourcePartition": pa.int32(),
        "sourceOffset": pa.int64(),
        "deliveryCount": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
    }
)
_SPARK_TYPES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    _TIME: "timestamp",
    pa.list_(pa.string()): "array<string>",
}


def spark_schema(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    client: ShareSettings
    """Only what every client has is used of it; tasks read records with it."""
    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    include_records: bool = option("includeRecords", False, "Adds the records that are in flight.")
    letters_max: int = option("maxLetters", LETTERS_MAX, "The most dead letters.", minimum=1)

    @classmethod
    def parse(cls, given: Mapping[str, str], name: str) -> "TableOptions":
        """OptionError, with the cure, for the first thing that is wrong."""
        rest, spelled = spell(given)
        rest.pop("path", None)
        groups = _names(rest.pop("groups", "")) if name == STATE else ()
        topics = _names(rest.pop("topics", ""))
        field = "include_records" if name == STATE else "letters_max"
        row = rows(cls)[field]
        text = rest.pop(row.name.lower(), None)
        values = {} if text is None else {field: read_option(row, row.name, text)}
        client = _client(rest)
        if rest:
            names = ("groups", "topics", row.name) if name == STATE else ("topics", row.name)
            raise unknown_option(spelled[min(rest)], name, names)
        return cls(client=client, groups=groups, topics=topics, **values)

    def admin(self) -> Admin:
        return Admin(self.client)

    @property
    def reading(self) -> Reading:
        """Records that the log has lost are left out."""
        return Reading(
            self.client,
            include_headers=False,
            fails_on_data_loss=False,
            timeout_ms=2 * self.client.default_api_timeout_ms,
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _client(rest: dict[str, str]) -> ShareSettings:
    given = kafka_options(rest)
    if "group.id" in given:
        raise OptionError(
            f"kafka.group.id={given['group.id']!r}: a table does not join a group. Name the groups to look at: "
            '.option("groups", "fraud")'
        )
    return parse_client(ShareSettings, given, group_id="-")


class Range(NamedTuple):
    """Neighboring records of a share-partition that are alike. `delivery_count` is None where nobody wrote it down."""

    first: int
    last: int
    state: str
    delivery_count: int | None


def ranges_of(state: SharePartitionState) -> Iterator[Range]:
    """What is written down from the start offset on, and between and behind it, to the end of the log, what is open."""
    if state.start_offset is None:
        return
    due = max(state.start_offset, state.log_start_offset)
    for run in state.runs:
        if run.last < due:
            continue
        if run.first > due:
            yield Range(due, run.first - 1, OPEN, None)
        yield Range(max(run.first, due), run.last, _name(run.state), run.delivery_count)
        due = run.last + 1
    if state.log_end_offset > due:
        yield Range(due, state.log_end_offset - 1, OPEN, None)


def _name(state: RecordState) -> str:
    return state.name.lower()


class _Table(DataSourceReader):  # type: ignore[misc]
    """`names` says what there is to read, on the driver; `rows` reads one of them, in a task."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        with self._options.admin() as admin:
            return [InputPartition(each) for each in self.names(admin)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition is not None:  # Spark's way to read what has no partitions
            yield from plainly_each(self.batches(partition.value))

    def names(self, admin: Admin) -> list[Any]:
        raise NotImplementedError

    def batches(self, name: Any) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class _StateTable(_Table):
    def names(self, admin: Admin) -> list[GroupListing]:
        found = {each.group_id: each for each in admin.list_groups(type=GroupType.SHARE)}
        missing = [name for name in self._options.groups if name not in found]
        if missing:
            raise OptionError(
                f"groups={missing[0]!r}: there is no share group of that name. There are "
                f"{', '.join(sorted(found)) or 'none'}."
            )
        return [found[name] for name in self._options.groups or sorted(found)]

    def batches(self, name: GroupListing) -> Iterator[pa.RecordBatch]:
        wanted = self._options.topics
        with self._options.admin() as admin:
            places = {
                place: offset
                for place, offset in admin.share_group_offsets(name.group_id).items()
                if not wanted or place[0] in wanted
            }
            states = {
                place: state for place, state in admin.share_state(name.group_id).items() if place in places
            }
            if self._options.include_records:
                yield from self._records(name, states)
                return
            members: dict[TopicAndPartition, list[str]] = {}
            for member in admin.describe_share_group(name.group_id).members:
                for place in member.assignment:
                    members.setdefault(place, []).append(member.member_id)
        rows = (
            row
            for place, offset in places.items()
            for row in _range_rows(name, offset, states.get(place), sorted(members.get(place, [])))
        )
        yield from _in_batches(rows, RANGES)

    def _records(
        self, group: GroupListing, states: Mapping[TopicAndPartition, SharePartitionState]
    ) -> Iterator[pa.RecordBatch]:
        """Those whose delivery is written down, with their content; for each state, since rows are told by offsets."""
        for state in states.values():
            by_state: dict[str, list[Run]] = {}
            for each in ranges_of(state):
                if each.delivery_count is not None:
                    by_state.setdefault(each.state, []).append(
                        Run(each.first, each.last, each.delivery_count)
                    )
            for name, runs in by_state.items():
                piece = Piece(state.topic, state.topic_id, state.partition, tuple(runs))
                for batch in read_pieces((piece,), self._options.reading):
                    constant = {"group": group.group_id, "groupState": str(group.state), "state": name}
                    yield _with_constants(batch, constant, RECORDS)


def _range_rows(
    group: GroupListing, offset: ShareGroupOffset, state: SharePartitionState | None, members: list[str]
) -> Iterator[dict[str, Any]]:
    """At least one for each partition, so that its lag is seen."""
    found: list[Range | None] = [] if state is None else list(ranges_of(state))
    for each in found or [None]:
        yield {
            "group": group.group_id,
            "groupState": str(group.state),
            "topic": offset.topic,
            "partition": offset.partition,
            "firstOffset": None if each is None else each.first,
            "lastOffset": None if each is None else each.last,
            "records": 0 if each is None else each.last - each.first + 1,
            "state": None if each is None else each.state,
            "deliveryCount": None if each is None else each.delivery_count,
            "members": members,
            "startOffset": offset.start_offset,
            "endOffset": offset.end_offset,
            "lag": offset.lag,
        }


def _with_constants(batch: pa.RecordBatch, constant: Mapping[str, str], schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.repeat(pa.scalar(constant[field.name], field.type), batch.num_rows)
        if field.name in constant
        else batch.column(field.name)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def _in_batches(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    kept: list[dict[str, Any]] = []
    for row in rows:
        kept.append(row)
        if len(kept) == ROWS_AT_ONCE:
            yield pa.RecordBatch.from_pylist(kept, schema)
            kept = []
    if kept:
        yield pa.RecordBatch.from_pylist(kept, schema)


Home = tuple[str, int, int]
"""Topic, partition and offset of the record that has a letter's key and value."""
_CONTENT = ("topic", "partition", "offset", "key", "value")


class _LetterTable(_Table):
    def names(self, admin: Admin) -> list[str]:
        return list(self._options.topics) or admin.dead_letter_topics()

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        with self._options.admin() as admin:
            letters = admin.dead_letters(name, letters_max=self._options.letters_max).letters
            ids = {
                topic: found.topic_id
                for topic, found in admin.describe_topics(
                    _existing(admin, {name, *(each.source_topic for each in letters if each.source_topic)})
                ).items()
            }
        at_home: dict[Home, list[DeadLetter]] = {}
        for letter in letters:
            at_home.setdefault(_home(letter), []).append(letter)
        wanted: dict[TopicAndPartition, list[int]] = {}
        for topic, partition, offset in sorted(at_home):
            if topic in ids:
                wanted.setdefault((topic, partition), []).append(offset)
        pieces = tuple(
            Piece(topic, ids[topic], partition, tuple(Run(each, each, 1) for each in offsets))
            for (topic, partition), offsets in wanted.items()
        )
        # As the records are read: all of them together may be more than fits into memory, or into a batch.
        for batch in read_pieces(pieces, self._options.reading):
            columns = [batch.column(name).to_pylist() for name in _CONTENT]
            found = [
                _letter_row(letter, key, value)
                for *home, key, value in zip(*columns, strict=True)
                for letter in at_home.pop(tuple(home), ())
            ]
            yield from _in_batches(found, DEAD_LETTERS)
        gone = (_letter_row(letter, None, None) for some in at_home.values() for letter in some)
        yield from _in_batches(gone, DEAD_LETTERS)


def _existing(admin: Admin, topics: set[str]) -> list[str]:
    return sorted(topics & {each.name for each in admin.list_topics(internal=True)})


def _home(letter: DeadLetter) -> Home:
    """Where its key and value are: in the letter, or, of one that was not copied, in its own topic."""
    if letter.is_copied or None in (letter.source_topic, letter.source_partition, letter.source_offset):
        return letter.topic, letter.partition, letter.offset
    assert letter.source_topic is not None
    assert letter.source_partition is not None
    assert letter.source_offset is not None
    return letter.source_topic, letter.source_partition, letter.source_offset


def _letter_row(letter: DeadLetter, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return {
        "deadLetterTopic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp * 1_000,
        "status": str(letter.status),
        "cause": letter.cause,
        "kind": letter.kind,
        "message": letter.message,
        "exception": letter.exception,
        "group": letter.group_id,
        "sourceTopic": letter.source_topic,
        "sourcePartition": letter.source_partition,
        "sourceOffset": letter.source_offset,
        "deliveryCount": letter.delivery_count,
        "key": key,
        "value": value,
    }


class KafkaShareState(DataSource):  # type: ignore[misc]
    """`spark.read.format("kafka-share-state")`: rows are ranges of records of share groups, or records."""

    @classmethod
    def name(cls) -> str:
        return STATE

    @plainly
    def schema(self) -> str:
        options = TableOptions.parse(self.options, STATE)
        return spark_schema(RECORDS if options.include_records else RANGES)

    @plainly
    def reader(self, schema: StructType) -> _StateTable:
        return _StateTable(TableOptions.parse(self.options, STATE))


class KafkaShareDeadLetters(DataSource):  # type: ignore[misc]
    """`spark.read.format("kafka-share-dead-letters")`: a row for each dead letter, with its cause."""

    @classmethod
    def name(cls) -> str:
        return LETTERS

    @plainly
    def schema(self) -> str:
        return spark_schema(DEAD_LETTERS)

    @plainly
    def reader(self, schema: StructType) -> _LetterTable:
        return _LetterTable(TableOptions.parse(self.options, LETTERS))
