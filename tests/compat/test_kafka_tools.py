"""The runner of Apache's tools: every name is a class in the jars, a failing tool says why, all start fast."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.testing import ApacheKafka, KafkaTools
from headrace.testing.class_archive import archive_options
from headrace.testing.kafka_jars import kafka_jars
from headrace.testing.kafka_tools import TOOLS, ToolFailed, fast_start, java_command

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


def test_classes_come_from_the_archive_that_make_kafka_jars_makes_and_java_says_nothing_of_it(
    tmp_path: Path,
) -> None:
    made = subprocess.run([sys.executable, "-m", "headrace.testing"], check=True, stderr=subprocess.PIPE)
    if not archive_options():
        assert b"no archive of Kafka's classes" in made.stderr  # the wheel's Java may not be able to
        return
    log = tmp_path / "classes.log"
    command = java_command(TOOLS["kafka-storage"], *fast_start(), f"-Xlog:class+load:file={log}")
    ran = subprocess.run([*command, "random-uuid"], check=True, capture_output=True, text=True)
    (said,) = [line for line in log.read_text().splitlines() if " kafka.tools.StorageTool " in line]
    assert "source: shared objects file" in said
    assert len(ran.stdout.split()) == 1
    assert ran.stderr == ""


def test_an_archive_of_other_jars_is_left_aside_in_silence(tmp_path: Path) -> None:
    command = java_command(TOOLS["kafka-storage"], *fast_start())
    place = command.index("-cp") + 1
    command[place] = f"{tmp_path}:{command[place]}"
    ran = subprocess.run([*command, "random-uuid"], check=True, capture_output=True, text=True)
    assert len(ran.stdout.split()) == 1
    assert ran.stderr == ""
