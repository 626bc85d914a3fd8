"""An S3 server as a process of its own (moto, by requirements/store.txt), and the jars by which Spark uses it."""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.testing.child_process import ChildProcess
from headrace.testing.kafka_jars import fetch_by_ivy
from headrace.testing.user_cache import filled

OBJECT_STORE = Path(sys.prefix) / "object-store"
START_S_MAX = 60
BUCKET = "bucket"
# The whole SDK is one jar of half a gigabyte; these are the parts that hadoop-aws uses here, without what Spark has.
HADOOP, SDK = "3.5.0", "2.35.4"
MODULES = f"""\
<ivy-module version="2.0">
  <info organisation="headrace" module="hadoop-aws"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
    <dependency org="org.apache.hadoop" name="hadoop-aws" rev="{HADOOP}" transitive="false"/>
    <dependency org="software.amazon.awssdk" name="s3" rev="{SDK}"/>
    <dependency org="software.amazon.awssdk" name="s3-transfer-manager" rev="{SDK}"/>
    <dependency org="software.amazon.awssdk" name="sts" rev="{SDK}"/>
    <dependency org="software.amazon.awssdk" name="apache-client" rev="{SDK}"/>
    <dependency org="software.amazon.s3.analyticsaccelerator" name="analyticsaccelerator-s3" rev="1.3.1"
      transitive="false"/>
    <exclude org="commons-codec"/>
    <exclude org="commons-logging"/>
    <exclude org="io.netty"/>
    <exclude org="org.slf4j"/>
  </dependencies>
</ivy-module>
"""


def hadoop_aws_jars() -> Path:
    """The folder with them, 16 MB. Takes a minute the first time; raises JarsUnavailable."""
    return filled(
        f"hadoop-aws-{HADOOP}",
        is_current=lambda folder: (
            (folder / "ivy.xml").is_file() and (folder / "ivy.xml").read_text() == MODULES
        ),
        fill=lambda folder: fetch_by_ivy(folder, MODULES),
    )


class ObjectStore:
    """A running server with one bucket. What it keeps is in its memory."""

    def __init__(self, address: str) -> None:
        self.environment = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.spark_settings = {
            # Not spark.jars: that copies each of them twice, for every life of a query.
            "spark.driver.extraClassPath": f"{hadoop_aws_jars()}/*",
            "spark.hadoop.fs.s3a.endpoint": address,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.input.stream.type": "classic",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.aws.credentials.provider": (
                "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
            ),
        }


@contextmanager
def object_store(folder: Path, environment: Mapping[str, str] = os.environ) -> Iterator[ObjectStore]:
    from pyarrow.fs import S3FileSystem

    output = folder / "object-store.log"
    server = ChildProcess(
        [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", "0"],
        output=output,
        env={**environment, "PYTHONPATH": str(OBJECT_STORE)},
    )
    try:
        store = ObjectStore(_address(server))
        client = S3FileSystem(
            endpoint_override=store.environment["AWS_ENDPOINT_URL"],
            access_key="test",
            secret_key="test",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        client.create_dir(BUCKET)
        yield store
    finally:
        server.stop(10)


def _address(server: ChildProcess) -> str:
    deadline = time.monotonic() + START_S_MAX
    while (found := re.search(r"Running on (http://[\d.]+:\d+)", server.output_text())) is None:
        assert server.is_running, server.output_tail()
        assert time.monotonic() < deadline, server.output_tail()
        time.sleep(0.05)  # it tells by its log alone that it is ready
    return found[1]
