"""The options of `format("kafka-share")`: one declared table, checked before anything connects.

Names are those of Spark's Kafka source where the meaning is the same; Spark hands them over in lower case, so case
does not matter. `kafka.*` goes to the client, whose own table checks it. What a share group cannot do is refused with
the reason and the cure; names of the Flink proposal (FLIP-573) are understood.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headrace.base.names import nearest
from headrace.base.settings import INT_MAX, LONG_MAX, ConfigType
from headrace.base.tables import FieldError, FieldSetting, rows, setting
from headrace.client.errors import ConfigError
from headrace.client.settings import ClientSettings, ShareSettings
from headrace.spark.errors import OptionError
from headrace.spark.locations import Location, locate
from headrace.spark.settle import Acknowledge

C = TypeVar("C", bound=ClientSettings)
_SECURITY_NAME = re.compile(r"(?<![\w.])(?=(?:sasl|ssl|security)\.[a-z])")
"""Where such a setting is named within a sentence."""
RECORDS_MAX = 10_000_000
RUNS_PER_TRIGGER = 20_000
"""A run is 20 to 25 bytes of offset text, which Spark keeps a hundred times over: 20,000 are half a megabyte."""

OUTCOMES_FOLDER = "share-outcomes"
OUTCOMES = "headrace.outcomes"
"""Metadata that the source leaves on the column deliveryCount: where outcomes go, or nothing if it was not told."""

MODE = "headrace.acknowledge"
"""And beside it: in which mode."""


def option(
    name: str,
    default: Any,
    doc: str,
    *,
    kind: ConfigType | None = None,
    minimum: int = 0,
    maximum: int = RECORDS_MAX,
    **row: Any,
) -> Any:
    kind = ConfigType.LONG if kind is None and default is None else kind
    return setting(default, doc, kind=kind, name=name, minimum=minimum, maximum=maximum, **row)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything that one query says about its source."""

    client: ShareSettings
    topics: tuple[str, ...]
    acknowledge: Acknowledge = option(  # noqa: RUF009
        "acknowledge",
        Acknowledge.COMMIT,
        "`commit`: locks are renewed while the micro-batch runs, and records are accepted when Spark has "
        "committed it. `handoff`: records are accepted as soon as Spark's offset log holds them; see above.",
    )
    starting_offsets: str | None = option(
        "startingOffsets",
        None,
        "`earliest` or `latest`: where the group starts in topics that it has not read. `latest` is the end that "
        "their partitions have when the query starts: they get that start offset, and the group's "
        "`share.auto.offset.reset` becomes `earliest`, so that partitions that are added later are read from "
        "their beginning.",
        default_text="the group's",
        kind=ConfigType.STRING,
    )
    records_per_trigger: int | None = option(
        "maxRecordsPerTrigger",
        None,
        "The maximum number of records of a micro-batch.",
        default_text="all available",
        minimum=1,
        maximum=LONG_MAX,
        aliases=("maxOffsetsPerTrigger",),
    )
    bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        None,
        "The approximate maximum size, estimated from the average record size.",
        default_text="none",
        minimum=1,
        maximum=1 << 50,
    )
    runs_per_trigger: int = option(
        "maxRunsPerTrigger",
        RUNS_PER_TRIGGER,
        "The maximum number of runs of adjacent records; limits the size of the offset.",
        minimum=1,
        maximum=200_000,
    )
    records_held: int | None = option(
        "maxRecordsHeld",
        None,
        "How many records to lock ahead of the micro-batch that runs.",
        default_text="one micro-batch",
        minimum=1,
    )
    records_ahead: int | None = option(
        "maxRecordsAhead",
        None,
        "With `handoff`: how many records to accept before they are in a micro-batch, 0 for none; see above.",
        default_text="by pace",
        maximum=100_000_000,
    )
    partitions_min: int | None = option(
        "minPartitions",
        None,
        "Into how many tasks to cut a micro-batch, at least (a task has at least one record); also more than "
        "Kafka has partitions.",
        default_text="by size and cores",
        minimum=1,
        maximum=100_000,
    )
    records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        None,
        "The maximum number of records of a task.",
        default_text="none",
        minimum=1,
        maximum=LONG_MAX,
    )
    include_headers: bool = option(
        "includeHeaders",
        False,
        "Adds the column `headers`.",
    )
    fails_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        "Whether a replay whose records are gone fails the query: taken by retention, their topic deleted, or "
        "their log cut off, and so for `kafka.default.api.timeout.ms`. A broker that is away, a missing leader or "
        "right, tiered storage that is too slow always fail it.",
    )
    checkpoint: str | None = option(
        "checkpointLocation",
        None,
        "The query's checkpoint: a local or mounted path, or [a folder in an object "
        "store](spark-on-a-cluster.md#in-an-object-store).",
        default_text="none",
        kind=ConfigType.STRING,
    )
    dead_letter_topic: str | None = option(
        "deadLetterTopic",
        None,
        "Copies of rejected records; not a topic of `subscribe`.",
        default_text="none",
        kind=ConfigType.STRING,
    )
    batch_failures_max: int = option(
        "maxBatchFailures",
        0,
        "After how many failures of the function of `process` a micro-batch is divided, and a record rejected; "
        "see [above](#records-that-the-function-fails-on).",
        default_text="0 (never)",
        maximum=1_000,
    )
    wait_ms: int = option(
        "pollTimeoutMs",
        500,
        "How long a trigger waits for records before it reports none; records that come end the wait (the first "
        "trigger waits for its place in the group, up to 15 seconds). A source that had nothing in the last "
        "micro-batch does not wait: others of the query may have records.",
        maximum=60_000,
    )
    read_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs",
        120_000,
        "How long a task waits for the next records of its range; with less than `kafka.default.api.timeout.ms` "
        "its error cannot name what is wrong.",
        minimum=1,
        maximum=3_600_000,
    )

    @property
    def group(self) -> str:
        return self.client.group_id

    @property
    def takes_ahead(self) -> bool:
        """Records are accepted before a micro-batch has them, by option or (see `ahead.py`) by default."""
        if self.records_ahead is None:
            return self.acknowledge is Acknowledge.HANDOFF and self.checkpoint is not None
        return self.records_ahead > 0

    @property
    def checkpoint_path(self) -> Location | None:
        return None if self.checkpoint is None else locate(self.checkpoint)

    @property
    def outcomes_path(self) -> Location | None:
        path = self.checkpoint_path
        return None if path is None else path / OUTCOMES_FOLDER

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SourceOptions":
        """OptionError, with the cure, for the first thing that is wrong."""
        rest, spelled = spell(given)
        for ignored in _IGNORED:
            rest.pop(ignored, None)
        if any(name.startswith(_OF_A_TABLE) for name in rest):
            raise OptionError(_TABLE)
        if not rest:  # as for a table that was created with a schema
            raise OptionError(
                f"No option is given, and subscribe, {' and '.join(REQUIRED)} are required. {_TABLE}"
            )
        for name, why in _REFUSED.items():
            key = name.lower()
            if key in rest:
                shown = name if spelled[key].lower() == key else spelled[key]
                raise OptionError(f"{shown}={rest[key]!r} cannot be used with kafka-share: {why}")
        _, group = _only_one(rest, _GROUP_NAMES) or ("", "")
        _, subscribed = _only_one(rest, ("subscribe", "topic")) or ("", "")
        topics = _topics(subscribed)
        values: dict[str, Any] = {}
        for field, row in rows(cls).items():
            given_as = _only_one(rest, (row.name, *row.aliases))
            if given_as is not None:
                values[field] = read_option(row, *given_as)
        if "starting_offsets" in values:
            values["starting_offsets"] = values["starting_offsets"].lower()
        client = _client(rest, group)
        if rest:
            every = [each for row in rows(cls).values() for each in (row.name, *row.aliases)]
            raise unknown_option(spelled[min(rest)], "kafka-share", ["subscribe", *REQUIRED, *every])
        options = cls(client=client, topics=topics, **values)
        options._check()
        return options

    def _check(self) -> None:
        if self.starting_offsets not in (None, "earliest", "latest"):
            raise OptionError(
                f"startingOffsets={self.starting_offsets!r}; allowed are earliest and latest. A share group has no "
                "position of its own for each query: to move it to offsets or a time, reset the group while it has no "
                f"members, with `headrace group reset {self.group} --to-offset … --topic …`."
            )
        if self.checkpoint is not None:
            locate(self.checkpoint)
        if self.dead_letter_topic in self.topics:
            raise OptionError(
                f"deadLetterTopic={self.dead_letter_topic!r} is one of the topics in subscribe, so a rejected record "
                "would be delivered again as a new one. Name another topic."
            )
        if self.records_ahead and (self.acknowledge is not Acknowledge.HANDOFF or self.checkpoint is None):
            raise OptionError(
                f"maxRecordsAhead={self.records_ahead} needs acknowledge=handoff, because it accepts records before "
                "they are processed, and checkpointLocation in readStream, where they are stored first."
            )
        if self.batch_failures_max and self.dead_letter_topic is None:
            raise OptionError(
                f"maxBatchFailures={self.batch_failures_max} needs deadLetterTopic: the record that a micro-batch "
                "fails on is copied there."
            )
        if self.dead_letter_topic is not None and self.checkpoint is None:
            raise OptionError(
                f"deadLetterTopic={self.dead_letter_topic!r} needs checkpointLocation in readStream, too: rejected "
                "records are noted there before they are copied."
            )


def option_names() -> list[str]:
    """Every option beside kafka.*, as the documentation spells it."""
    return [
        "subscribe",
        *(row.name for row in rows(SourceOptions).values()),
    ]


REQUIRED = ("kafka.bootstrap.servers", "kafka.group.id")
_GROUP_NAMES = ("kafka.group.id", "kafka.share.group.id", "scan.share-group.id")
_IGNORED = ("path",)
_OF_A_TABLE = "option."
"""Begins the names of options that Spark adds where a table is created: each once more."""
_TABLE = (
    "kafka-share cannot be used by CREATE TABLE: when a stream reads the table, Spark does not give the options of the "
    'table to the source. Use spark.readStream.format("kafka-share").options(...).load(), and for SQL '
    ".createOrReplaceTempView(NAME)."
)
_NO_BATCH = "a queue has no end to read to. Use readStream; Trigger.AvailableNow stops when it is drained."
_START = (
    "where a share group starts is a property of the group: startingOffsets=earliest or latest, or "
    "`headrace group reset`."
)
_RENEWS = "the source renews locks by itself, as long as the micro-batch runs."
_RETRIES = "the client's own retries do that: kafka.retry.backoff.ms, kafka.default.api.timeout.ms."
_REFUSED = {
    "assign": "the broker hands partitions to the members of a share group. Use subscribe; for one partition filter by "
    "the column `partition`.",
    "subscribePattern": "a share group subscribes to names. List the topics in subscribe, with commas between them.",
    "endingOffsets": _NO_BATCH,
    "endingOffsetsByTimestamp": _NO_BATCH,
    "endingTimestamp": _NO_BATCH,
    "startingOffsetsByTimestamp": _START,
    "startingTimestamp": _START,
    "startingOffsetsByTimestampStrategy": _START,
    "groupIdPrefix": "a share group has one name that all its members know: kafka.group.id.",
    "minOffsetsPerTrigger": "records would be locked while they wait for company. Use Trigger.ProcessingTime.",
    "maxTriggerDelay": "it belongs to minOffsetsPerTrigger. Use Trigger.ProcessingTime.",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "asyncProgressTrackingEnabled": "records would be accepted before Spark's logs hold them, and lost in a crash. "
    "Leave it out, here and in writeStream.",
    "scan.share-group.lock-timeout": "the lock's duration is a property of the group: `headrace group config set GROUP "
    "share.record.lock.duration.ms=60000`. The source renews locks by itself.",
    "connector": 'it is Flink\'s; here the connector is format("kafka-share"). Leave it out.',
    "format": "it is Flink's; the column `value` has the bytes: see headrace.spark.parse_json and parse_avro.",
    "value.format": "it is Flink's; the column `value` has the bytes: see headrace.spark.parse_json and parse_avro.",
    "key.format": "it is Flink's; the column `key` has the bytes.",
    "kafka.enable.auto.commit": "the source acknowledges records by itself; option `acknowledge` says when.",
    "kafka.auto.offset.reset": _START,
    "kafka.key.deserializer": "the column `key` has the bytes; cast or parse it in Spark.",
    "kafka.value.deserializer": "the column `value` has the bytes; cast or parse it in Spark.",
    "kafka.share.acknowledgement.mode": "the source acknowledges records by itself; option `acknowledge` says when.",
    "kafka.auto.renew": _RENEWS,
    "kafka.auto.renew.max.ms": _RENEWS,
    "kafka.max.poll.interval.ms": "the source is a member as long as the query runs, however long a micro-batch takes.",
    "kafka.max.unacknowledged": "use maxRecordsHeld.",
}
_MEMBER = {
    "auto_renew": True,
    "auto_renew_max_ms": INT_MAX,
    "max_poll_interval_ms": INT_MAX,
    "max_poll_records": 50_000,
    "fetch_max_bytes": 16 * 1024 * 1024,
    "fetch_max_wait_ms": 100,  # a member that leaves has to wait for a fetch that waits
}
"""What fits a member that holds much for long, where the user says nothing."""


def spell(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options by name, in lower case and `properties.*` as `kafka.*`; and how each was spelled.

    Blanks around our own are cut. `kafka.*` is the client's to read: a password may end with a blank.
    """
    found: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for spelling, text in given.items():
        name, value = spelling.lower(), str(text)
        for prefix in ("properties.", "kafka."):
            if name.startswith(prefix):
                name = "kafka." + name.removeprefix(prefix).replace("_", ".")
                break
        else:
            value = value.strip()
        if found.setdefault(name, value) != value:
            raise _contradiction(spelled[name], spelling)  # the values may be passwords
        spelled.setdefault(name, spelling)
    return found, spelled


def _only_one(rest: dict[str, str], names: tuple[str, ...]) -> tuple[str, str] | None:
    """Takes an option out by any of its names: the name and the value. Two of them must not differ."""
    found = {name: rest.pop(name.lower()) for name in names if name.lower() in rest}
    if len(set(found.values())) > 1:
        raise _contradiction(*(f"{name}={value!r}" for name, value in found.items()))
    return next(iter(found.items()), None)


def _contradiction(*given: str) -> OptionError:
    return OptionError(
        f"{' and '.join(given)} contradict each other: they are names of one option. Keep one of them."
    )


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError(
            'subscribe is missing. Name the topics, separated by commas: .option("subscribe", "orders")'
        )
    return topics


def _client(rest: dict[str, str], group: str) -> ShareSettings:
    if not group.strip():
        raise OptionError(
            'kafka.group.id is missing. Name the share group: .option("kafka.group.id", "mailers")'
        )
    given = kafka_options(rest)
    ours = {
        field: _MEMBER[field]
        for field, row in rows(ShareSettings).items()
        if field in _MEMBER and not {row.name, *row.aliases} & given.keys()
    }
    return parse_client(ShareSettings, given, group_id=group, share_acknowledgement_mode="explicit", **ours)


def kafka_options(rest: dict[str, str]) -> dict[str, str]:
    """Takes out what is the client's to read, by its names for it."""
    given = {key.removeprefix("kafka."): rest.pop(key) for key in list(rest) if key.startswith("kafka.")}
    if "bootstrap.servers" not in given:
        raise OptionError(
            "kafka.bootstrap.servers is missing. Say where Kafka is: "
            '.option("kafka.bootstrap.servers", "localhost:9092")'
        )
    return given


def parse_client(table: type[C], given: Mapping[str, str], **more: Any) -> C:
    try:
        return table.parse(given, **more)
    except ConfigError as error:
        raise OptionError(_prefixed(str(error))) from None


def _prefixed(text: str) -> str:
    """The client's words about settings, with the names that they have here."""
    unknown = "unknown setting "
    if text.startswith(unknown):
        text = f"{unknown}kafka.{text.removeprefix(unknown)}"
        return text.replace("; did you mean ", "; did you mean kafka.")
    return f"kafka.{text[:1]}{_SECURITY_NAME.sub('kafka.', text[1:])}"


def read_option(row: FieldSetting, name: str, text: str) -> Any:
    """The value of an option under the name that it was given by."""
    if row.type is ConfigType.STRING and row.enum is None and not text:
        raise OptionError(f"{name} is empty. Give it a value or leave it out.")
    try:
        return replace(row, name=name).read(text)
    except FieldError as error:
        raise OptionError(f"{error}.") from None


def unknown_option(name: str, format: str, names: Iterable[str]) -> OptionError:
    known = {each.lower(): each for each in names}
    meant = {"topic": "subscribe"} if "subscribe" in known else {}
    near = nearest(name.lower(), {**known, **meant})
    hint = (
        f"Did you mean {meant.get(near) or known[near]}?"
        if near
        else f"Known are {', '.join(sorted(known.values()))}, and kafka.*."
    )
    return OptionError(f"{format} has no option {name}. {hint}")
