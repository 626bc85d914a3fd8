"""Spark's classes in one file that a JVM maps into memory: a session starts in half the time, which tests do often.

`python -m tests.spark_archive` (part of `make test`) makes the file inside the virtual environment, by the classes
that a short run of a query loads. Java leaves it aside when it was made by another Java or for other jars, and tests
run without it too, only longer.
"""

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from headrace.testing.java import JavaNotFound, find_java

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
FRUGAL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For JVMs that live for seconds, several at a time on few cores."""
DUMP_S_MAX = 120


def java_options() -> str:
    """For every JVM of Spark's in tests."""
    return f"{FRUGAL} -Xshare:auto -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off" if _is_made() else FRUGAL


def _is_made() -> bool:
    """Whether it is newer than the Java and the jars that it is for."""
    pyspark = find_spec("pyspark")
    if not ARCHIVE.is_file() or pyspark is None or pyspark.origin is None:
        return False
    try:
        parts = (find_java().executable.resolve(), Path(pyspark.origin).parent / "jars")
    except JavaNotFound:
        return False
    return all(part.stat().st_mtime < ARCHIVE.stat().st_mtime for part in parts)


def make() -> None:
    if _is_made():
        return
    with tempfile.TemporaryDirectory(prefix=ARCHIVE.stem, dir=ARCHIVE.parent) as scratch:
        fresh = Path(scratch) / ARCHIVE.name
        os.environ["JAVA_HOME"] = str(find_java().home)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_SUBMIT_OPTS"] = f"{FRUGAL} -XX:ArchiveClassesAtExit={fresh} -Xlog:cds*=off"
        _run_a_query(Path(scratch))
        fresh.rename(ARCHIVE)


def _run_a_query(folder: Path) -> None:
    from confluent_kafka import Producer
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from headrace import Admin, Broker
    from headrace.spark import register

    def write(batch: DataFrame, _: int) -> None:
        batch.selectExpr("value", "deliveryCount").write.mode("append").parquet(str(folder / "rows"))
        batch.groupBy("partition").count().collect()

    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("some", partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("some", b"a record")
        producer.flush(DUMP_S_MAX)
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        java = SparkContext._gateway.proc
        register(session)
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": "some",
            "kafka.group.id": "some",
            "startingOffsets": "earliest",
            "checkpointLocation": str(folder / "checkpoint"),
        }
        stream = session.readStream.format("kafka-share").options(**given).load()
        query = stream.writeStream.foreachBatch(write).option(
            "checkpointLocation", given["checkpointLocation"]
        )
        query.trigger(availableNow=True).start().awaitTermination(DUMP_S_MAX)
        session.stop()
        java.stdin.close()  # it writes the archive when it ends
        java.wait(DUMP_S_MAX)


if __name__ == "__main__":
    try:
        make()
    except Exception as error:  # whatever it is, the tests can do without
        print(f"no archive of Spark's classes, it starts slower without: {error!r}", file=sys.stderr)
