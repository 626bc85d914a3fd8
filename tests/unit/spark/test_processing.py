"""Outcomes on their way from user code to the log: whatever cannot be carried out is refused before it is written."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from headrace.client.delivery import AcknowledgeType
from headrace.spark.errors import OptionError, OutcomeError
from headrace.spark.offset import Accepted, AcquiredOffset
from headrace.spark.options import OUTCOMES
from headrace.spark.outcomes import Outcome, OutcomeLog
from headrace.spark.processing import (
    KafkaShareAckSink,
    OutcomeRules,
    _from_arrow,
    _require_columns,
    find_rules,
)
from headrace.spark.runs import Run, RunSet
from headrace.spark.settle import Acknowledge

RELEASE, REJECT = AcknowledgeType.RELEASE, AcknowledgeType.REJECT
TEXT, INT, LONG = StringType(), IntegerType(), LongType()


def schema(**other: DataType) -> StructType:
    types = {"topic": TEXT, "partition": INT, "offset": LONG, "deliveryCount": INT, "outcome": TEXT, **other}
    return StructType([StructField(name, kind) for name, kind in types.items()])


def offset(
    topic: str,
    group: str,
    *runs: tuple[int, int, int],
    accepted: Accepted = Accepted.WHEN_COMMITTED,
    sequence: int = 1,
    reader: str | None = None,
) -> str:
    batch = RunSet.of([((topic, 0), Run(*run)) for run in runs])
    ids = {topic: "id"}
    return json.dumps(
        AcquiredOffset(sequence, group, reader or f"reader-{group}", ids, batch, accepted=accepted).to_json()
    )


def rules(tmp_path: Path, *lines: str, mode: Acknowledge = Acknowledge.COMMIT) -> OutcomeRules:
    """Spark has logged micro-batch 7, with these sources."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
    folder = tmp_path / "share-outcomes"
    OutcomeLog(folder, reader="reader-g").describe(mode, None)
    OutcomeLog(folder, reader="reader-h").describe(Acknowledge.COMMIT, None)
    return OutcomeRules(folder)


def reject(first: int, *, topic: str = "orders", partition: int = 0, count: int = 1) -> Outcome:
    return Outcome(topic, partition, first, first, count, REJECT, "why")


def test_what_names_deliveries_of_the_micro_batch_is_logged(tmp_path: Path) -> None:
    given = rules(tmp_path, offset("orders", "g", (0, 9, 1), (10, 19, 2)))
    said = [reject(9), reject(10, count=2)]
    given.record(7, said)
    assert OutcomeLog(given.path).read() == said


@pytest.mark.parametrize(
    "wrong",
    [reject(20), reject(5, count=2), reject(5, partition=1), reject(5, topic="order")],
    ids=["offset", "deliveryCount", "partition", "topic"],
)
def test_what_names_no_delivery_of_the_micro_batch_is_refused_and_nothing_is_written(
    tmp_path: Path, wrong: Outcome
) -> None:
    given = rules(tmp_path, offset("orders", "g", (0, 9, 1)))
    with pytest.raises(OutcomeError) as caught:
        given.record(7, [reject(3), wrong])
    for part in (repr(wrong.topic), f"offset {wrong.first}", f"deliveryCount {wrong.delivery_count}", "Keep"):
        assert part in str(caught.value)
    assert OutcomeLog(given.path).read() == []


@pytest.mark.parametrize(
    "others", [(), (("emails", 1, (0, 9, 1)),)], ids=["no data", "another source's data"]
)
def test_an_outcome_of_a_record_that_the_micro_batch_before_had_is_refused(
    tmp_path: Path, others: tuple[tuple[str, int, tuple[int, int, int]], ...]
) -> None:
    """Its source has the same offset in both logs: what it brought is committed, and settled."""
    orders = offset("orders", "g", (0, 9, 1))
    emails = [offset(topic, "h", run, sequence=sequence) for topic, sequence, run in others]
    given = rules(tmp_path, orders, *emails)
    (tmp_path / "offsets" / "6").write_text(
        "\n".join(["v1", "{}", orders, *(offset("emails", "h", sequence=0) for _ in others)])
    )
    with pytest.raises(OutcomeError, match=r"offset 3.*decide in the micro-batch that brings the record"):
        given.record(7, [reject(3)])
    assert OutcomeLog(given.path).read() == []
    for _ in others:
        given.record(7, [reject(3, topic="emails")])
        assert OutcomeLog(given.path).read() == [reject(3, topic="emails")]


def test_a_query_may_have_several_sources_also_of_one_topic_and_of_other_kinds(tmp_path: Path) -> None:
    sources = [
        offset("orders", "g", (0, 9, 1)),
        offset("orders", "g", (0, 9, 2), reader="reader-h"),
        '{"rate":{"0":5}}',
        "-",
        "5",
    ]
    given = rules(tmp_path, *sources)
    given.record(7, [reject(3, count=1), reject(4, count=2)])
    assert len(OutcomeLog(given.path).read()) == 2


def test_outcomes_about_a_topic_that_is_read_under_two_groups_are_refused(tmp_path: Path) -> None:
    """They would be carried out in both: an outcome does not name the group."""
    given = rules(
        tmp_path,
        offset("orders", "g", (0, 9, 1)),
        offset("orders", "h", (5, 14, 1)),
        offset("sms", "g", (0, 9, 1)),
    )
    with pytest.raises(OutcomeError, match=r"topic 'orders' under groups 'g' and 'h'.*a query of its own"):
        given.record(7, [reject(3)])
    assert OutcomeLog(given.path).read() == []
    given.record(7, [reject(3, topic="sms")])
    assert OutcomeLog(given.path).read() == [reject(3, topic="sms")]


def test_a_log_that_knows_sources_by_name_is_understood(tmp_path: Path) -> None:
    given = rules(tmp_path, "-")
    lines = ["v2", "{}", f"orders_source:{offset('orders', 'g', (0, 9, 1))}", '1:{"rate":5}', "2:-", "3:7"]
    (tmp_path / "offsets" / "7").write_text("\n".join(lines))
    given.record(7, [reject(3)])
    assert OutcomeLog(given.path).read() == [reject(3)]


def test_without_sparks_log_outcomes_are_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(OutcomeError, match=r"offsets/8.*the same checkpointLocation"):
        rules(tmp_path).record(8, [reject(3)])


@pytest.mark.parametrize(("type", "cure"), [(RELEASE, "acknowledge=commit"), (REJECT, "deadLetterTopic")])
def test_what_handoff_cannot_do_is_refused(tmp_path: Path, type: AcknowledgeType, cure: str) -> None:
    logged = offset("orders", "g", (0, 9, 1), accepted=Accepted.WHEN_LOGGED)
    given = rules(tmp_path, logged, mode=Acknowledge.HANDOFF)
    with pytest.raises(OutcomeError, match=cure):
        given.record(7, [reject(3)._replace(type=type)])


def test_a_micro_batch_that_was_planned_with_commit_takes_releases_in_a_query_with_handoff(
    tmp_path: Path,
) -> None:
    given = rules(tmp_path, offset("orders", "g", (0, 9, 1)), mode=Acknowledge.HANDOFF)
    release = reject(3)._replace(type=RELEASE)
    given.record(7, [release])
    assert OutcomeLog(given.path).read() == [release]


def test_each_source_of_a_query_has_a_mode_of_its_own(tmp_path: Path) -> None:
    handed_off = offset("orders", "g", (0, 9, 1), accepted=Accepted.WHEN_LOGGED)
    given = rules(tmp_path, handed_off, offset("emails", "h", (0, 9, 1)), mode=Acknowledge.HANDOFF)
    given.record(7, [reject(3, topic="emails")._replace(type=RELEASE)])
    with pytest.raises(OutcomeError, match="acknowledge=commit"):
        given.record(7, [reject(3, topic="orders")._replace(type=RELEASE)])


@pytest.mark.parametrize(
    ("column", "found", "wanted"),
    [
        ("topic", BinaryType(), "string"),
        ("partition", StringType(), "int"),
        ("offset", StringType(), "bigint"),
        ("offset", DoubleType(), "bigint"),
        ("deliveryCount", DecimalType(10, 0), "int"),
        ("deliveryCount", NullType(), "int"),
        ("outcome", BooleanType(), "string"),
    ],
    ids=str,
)
def test_a_column_of_a_wrong_type_is_named_with_its_type_and_the_cure(
    column: str, found: DataType, wanted: str
) -> None:
    with pytest.raises(OutcomeError) as caught:
        _require_columns(schema(**{column: found}))
    assert f"column {column} of the outcomes is {found.simpleString()}" in str(caught.value)
    assert f'F.col("{column}").cast("{wanted}")' in str(caught.value)


def test_every_whole_number_will_do_and_so_does_an_outcome_that_is_always_null() -> None:
    _require_columns(schema(partition=LONG, offset=INT, deliveryCount=ShortType(), outcome=NullType()))


@pytest.mark.parametrize("missing", ["topic", "partition", "offset", "deliveryCount"])
def test_a_null_is_refused_where_it_hides_which_delivery_is_meant(missing: str) -> None:
    row = {
        "topic": "orders",
        "partition": 1,
        "offset": 17,
        "deliveryCount": 2,
        "outcome": "Reject",
        missing: None,
    }
    with pytest.raises(OutcomeError) as caught:
        list(_from_arrow([pa.RecordBatch.from_pylist([row])]))
    assert f"column {missing} of the outcomes is null where outcome is 'Reject'" in str(caught.value)
    assert f"{missing}=None" in str(caught.value)
    assert list(_from_arrow([pa.RecordBatch.from_pylist([{**row, "outcome": " accept"}])])) == []


def test_a_reason_of_any_type_becomes_text() -> None:
    row = {
        "topic": "orders",
        "partition": 0,
        "offset": 1,
        "deliveryCount": 1,
        "outcome": "reject",
        "reason": 404,
    }
    assert [each.reason for each in _from_arrow([pa.RecordBatch.from_pylist([row])])] == ["404"]


def test_two_checkpoints_are_refused_and_a_relative_one_is_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = schema()
    columns["deliveryCount"].metadata = {OUTCOMES: str(tmp_path / "a" / "share-outcomes")}
    assert find_rules(columns, "a").path == tmp_path / "a" / "share-outcomes"
    with pytest.raises(OptionError) as caught:
        find_rules(columns, "b")
    assert str(tmp_path / "a") in str(caught.value)
    assert str(tmp_path / "b") in str(caught.value)


def test_the_sink_refuses_a_wrong_type_before_it_writes_anything() -> None:
    with pytest.raises(OutcomeError, match="column offset of the outcomes is string"):
        KafkaShareAckSink({"checkpointLocation": "/x"}).streamWriter(schema(offset=StringType()), False)
