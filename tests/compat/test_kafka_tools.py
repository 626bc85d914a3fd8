"""The runner of Apache's tools: every name is a class in the jars, and a failing tool says why."""

import zipfile

import pytest

from headrace.testing import ApacheKafka, KafkaTools
from headrace.testing.kafka_jars import kafka_jars
from headrace.testing.kafka_tools import TOOLS, ToolFailed

pytestmark = pytest.mark.needs_kafka


def test_every_tool_is_a_class_in_the_jars() -> None:
    classes: set[str] = set()
    for jar in kafka_jars().glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as opened:
            classes.update(opened.namelist())
    assert [tool for tool, name in TOOLS.items() if f"{name.replace('.', '/')}.class" not in classes] == []


def test_a_tool_that_fails_says_what_it_was_asked_and_what_it_printed(
    apache: ApacheKafka, unique: str
) -> None:
    tools = KafkaTools(apache.bootstrap_servers)
    with pytest.raises(
        ToolFailed, match=rf"kafka-topics --describe --topic {unique}\nstatus 1\n.*does not exist"
    ):
        tools.run("kafka-topics", "--describe", "--topic", unique)
    assert tools.run("kafka-topics", "--describe", "--topic", unique, check=False).status == 1
