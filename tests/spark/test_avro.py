"""`parse_avro` with Spark's own avro package, in a Spark of its own: the package must be there when a JVM starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.java import find_java
from headrace.testing.kafka_jars import JarsUnavailable
from tests import needs
from tests.spark.jars import avro_jar

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}],
}
VALUES = {
    "good": b"\x02\x0a\x02\x04ab",
    "good, all null": b"\x00\x00",
    "truncated": b"\x02\x0a\x02\x04a",
    "empty": b"",
    "no such branch of the union": b"\x06\x0a",
    "missing": None,
}
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from headrace.spark import parse_avro

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
given = json.loads(sys.argv[1])
rows = [(name, None if value is None else bytes.fromhex(value)) for name, value in given["values"].items()]
found = parse_avro(spark.createDataFrame(rows, "name string, value binary"), given["schema"])
print(json.dumps({row.name: row.asDict(recursive=True) for row in found.drop("value").collect()}))
"""


@pytest.mark.timeout(240)
def test_avro_is_parsed_and_what_cannot_be_read_is_rejected(tmp_path: Path) -> None:
    try:
        package = avro_jar()
    except JarsUnavailable as error:
        if needs.is_strict():
            raise
        pytest.skip(f"Spark's avro package cannot be had: {error}")
    values = {name: None if value is None else value.hex() for name, value in VALUES.items()}
    given = {"schema": json.dumps(SCHEMA), "values": values}
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--jars {package} pyspark-shell",
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-5_000:]
    rows = json.loads(ran.stdout.splitlines()[-1])
    assert rows.keys() == VALUES.keys()
    for name in ("good", "good, all null"):
        assert (rows[name]["outcome"], rows[name]["reason"]) == ("accept", None)
    assert rows["good"]["parsed"] == {"id": 5, "name": "ab"}
    assert rows["good, all null"]["parsed"] == {"id": None, "name": None}
    for name in ("truncated", "empty", "no such branch of the union"):
        assert (rows[name]["outcome"], rows[name]["reason"]) == ("reject", "value is not Avro of the schema")
    assert (rows["missing"]["outcome"], rows["missing"]["reason"]) == ("reject", "no value")
