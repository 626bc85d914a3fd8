"""Log lines: text for people, JSON for machines, and no name can forge a line."""

import json
import logging
import sys

from headrace.cli.logs import JsonFormatter, TextFormatter


def record(message: str, *arguments: object, failed: bool = False) -> logging.LogRecord:
    caught = None
    if failed:
        try:
            raise ValueError("no\x1b[2Jgood")
        except ValueError:
            caught = sys.exc_info()
    made = logging.LogRecord("headrace.broker", logging.WARNING, "", 0, message, arguments, caught)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


def test_a_line_has_time_level_and_logger() -> None:
    line = TextFormatter().format(record("group %s has gone", "kitchen"))
    assert line == "2023-11-14T22:13:20.250Z WARNING  headrace.broker group kitchen has gone"


def test_a_name_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record("group %s has gone", "a\n2023 CRITICAL headrace pwned\x1b]0;x\x07"))
    assert "\n" not in line
    assert "\x1b" not in line


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record("group %s", "a\nb", failed=True))
    said = json.loads(line)
    assert "\n" not in line
    assert said["message"] == "group a\nb"
    assert (said["level"], said["logger"]) == ("WARNING", "headrace.broker")
    assert said["exception"].endswith("ValueError: no\x1b[2Jgood")


def test_a_traceback_keeps_its_lines() -> None:
    text = TextFormatter().format(record("failed", failed=True))
    assert text.splitlines()[-1] == "ValueError: no\\x1b[2Jgood"
