"""What counts as a JSON object of a schema, and what is rejected."""

import pytest
from pyspark.sql import SparkSession

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
]


@pytest.mark.parametrize("column", ["string", "binary"])
def test_one_object_and_nothing_else_is_readable(spark: SparkSession, column: str) -> None:
    values = spark.createDataFrame([(value,) for value in [*READABLE, *UNREADABLE]], "text string")
    rows = parse_json(values.selectExpr("text", f"cast(text as {column}) as value"), "id bigint").collect()
    accepted = {row["text"]: row["parsed"]["id"] for row in rows if row["outcome"] == "accept"}
    assert accepted == READABLE
    assert [row["text"] for row in rows if row["outcome"] == "reject"] == UNREADABLE
    assert all(row["reason"] for row in rows if row["outcome"] == "reject")
