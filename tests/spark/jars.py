"""Spark's avro package in the per-user cache, fetched by Ivy as Apache Kafka's jars are.

4.1.1 is the newest release that can be had, and it runs on Spark 4.3.
"""

from pathlib import Path

from headrace.testing.kafka_jars import fetch_by_ivy
from headrace.testing.user_cache import filled

NAME, VERSION = "spark-avro_2.13", "4.1.1"
MODULES = f"""\
<ivy-module version="2.0">
  <info organisation="headrace" module="spark-avro"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
    <dependency org="org.apache.spark" name="{NAME}" rev="{VERSION}" transitive="false"/>
  </dependencies>
</ivy-module>
"""


def avro_jar() -> Path:
    """Raises JarsUnavailable of headrace.testing.kafka_jars."""
    folder = filled(
        f"{NAME}-{VERSION}",
        is_current=lambda folder: (
            (folder / "ivy.xml").is_file() and (folder / "ivy.xml").read_text() == MODULES
        ),
        fill=lambda folder: fetch_by_ivy(folder, MODULES),
    )
    return folder / f"{NAME}-{VERSION}.jar"
