"""Confluent's Parallel Consumer: its jars in the per-user cache, fetched by Ivy as Apache Kafka's are.

Every jar is named with its version, so that no other one comes in its place. The client is the one that this release
was built with: Parallel Consumer looks into its private fields, and does not find them in newer ones.
"""

from pathlib import Path

from bench.jars import cached_jars
from headrace.testing.java_sources import compiled

VERSION = "0.5.3.3"
_UNIJ = "pl.tlinkowski.unij"
JARS = (
    ("io.confluent.parallelconsumer", "parallel-consumer-core", VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("com.github.luben", "zstd-jni", "1.5.5-4"),
    ("org.lz4", "lz4-java", "1.8.0"),
    ("org.slf4j", "slf4j-api", "2.0.13"),
    ("io.micrometer", "micrometer-core", "1.13.0"),
    ("io.micrometer", "micrometer-commons", "1.13.0"),
    ("io.micrometer", "micrometer-observation", "1.13.0"),
    ("org.hdrhistogram", "HdrHistogram", "2.2.1"),
    ("org.latencyutils", "LatencyUtils", "2.0.3"),
    (_UNIJ, f"{_UNIJ}.api", "0.1.3"),
    (_UNIJ, f"{_UNIJ}.bundle.jdk8", "0.1.3"),
    (_UNIJ, f"{_UNIJ}.service.api", "0.1.3"),
    (_UNIJ, f"{_UNIJ}.service.collect.jdk8", "0.1.3"),
    (_UNIJ, f"{_UNIJ}.service.misc.jdk8", "0.1.3"),
)
MAIN = "ParallelKeys"
SOURCE = Path(__file__).with_name(f"{MAIN}.java")


def class_path() -> list[Path]:
    """The jars and the compiled program; raises JarsUnavailable, or JavaNotFound without a compiler."""
    jars = cached_jars("parallel-consumer", VERSION, JARS)
    return [*jars, compiled("parallel-keys", [SOURCE], jars)]
