"""What counts as a JSON object of a schema, and what is rejected."""

import pytest
from pyspark.sql import Row, SparkSession

from headrace.spark import parse_json

READABLE = {
    '{"id": 1}': 1,
    ' {"id": 2}\n': 2,
    '{"id": 3, "more": [{"id": 4}, "}{"]}': 3,
    '{"other": 5}': None,
}
UNREADABLE = [
    None,
    "",
    "null",
    "6",
    '"text"',
    '[{"id": 7}]',
    '{"id": "eight"}',
    '{"id": 9',
    '{"id": 10}{"id": 11}',
    '{"id": 12}, {"id": 13}',
    '{"id": 14} and more',
    "{'id': 15}",
    '{"id": 16}]',
    '{"id": 17}] {"id": 18}',
    '{"id": 19} ]',
    '{"id": 20}],[{"id": 21}',
    '{"id": 22}}',
    '{"id": 23},',
]


@pytest.mark.parametrize("column", ["string", "binary"])
def test_one_object_and_nothing_else_is_readable(spark: SparkSession, column: str) -> None:
    values = spark.createDataFrame([(value,) for value in [*READABLE, *UNREADABLE]], "text string")
    rows = parse_json(values.selectExpr("text", f"cast(text as {column}) as value"), "id bigint").collect()
    accepted = {row["text"]: row["parsed"]["id"] for row in rows if row["outcome"] == "accept"}
    assert accepted == READABLE
    assert [row["text"] for row in rows if row["outcome"] == "reject"] == UNREADABLE
    assert all(row["reason"] for row in rows if row["outcome"] == "reject")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        ("{", "value is not one JSON object"),
        ('{"id": 1}]', "value is not one JSON object"),
        ('{"id": 1.5}', "field id is not bigint: 1.5"),
        ('{"id": 1, "amount": "much"}', "field amount is not double: much"),
        ('{"id": 1, "amount": 1e400}', "field amount is too large for double"),
        ('{"id": 1, "amount": NaN}', "value is not one JSON object"),
        ('{"id": 1, "at": {"city": []}}', None),
        ('{"id": 1, "at": 5}', "field at is not struct<city:string>: 5"),
        ('{"ID": 1}', None),
        ('{"id": null}', None),
    ],
)
def test_the_reason_names_the_field(spark: SparkSession, value: str | None, reason: str | None) -> None:
    assert parsed(spark, value).reason == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"id": 1, "amount": null, "at": {"city": "Bonn"}}', None),
        ('{"id": 1, "amount": 2.5, "at": null}', None),
        ('{"amount": 2.5, "at": null}', "field id is missing"),
        ('{"ID": 1, "amount": 2.5, "at": null}', "field id is missing"),
        ('{"id": 1, "amount": 2.5, "at": null, "more": 1}', "field more is not in the schema"),
        ('{"id": null, "amount": 2.5, "at": null}', "field id is null"),
        ('{"id": 1, "amount": 2.5, "at": {"City": "Bonn"}}', "field at.city is missing"),
        ('{"id": "one", "amount": 2.5, "at": null}', "field id is not bigint: one"),
    ],
)
def test_strict_takes_the_fields_of_the_schema_and_no_others(
    spark: SparkSession, value: str, reason: str | None
) -> None:
    assert parsed(spark, value, strict=True).reason == reason


def parsed(spark: SparkSession, value: str | None, *, strict: bool = False) -> Row:
    values = spark.createDataFrame([(value,)], "value string")
    schema = "id bigint NOT NULL, amount double, at struct<city: string>"
    (row,) = parse_json(values, schema, strict=strict).collect()
    assert row.outcome == ("accept" if row.reason is None else "reject")
    return row
