"""What Headrace's processes write to standard error: one line an event, as text for people or as JSON for machines.

    2026-11-18T02:31:07.512Z INFO     headrace.broker started version=0.1.0 data=/var/lib/headrace ...
    {"time": "2026-11-18T02:31:07.512Z", "level": "INFO", "logger": "headrace.broker", "message": "started ..."}

Names that clients choose (groups, topics, client ids) are in messages: control characters in them are escaped, so that
nobody can forge a line or reach a terminal.
"""

import json
import logging
import sys
import time
from enum import StrEnum
from typing import Annotated

import typer

from headrace.base.text import printable, printable_json, printable_lines


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = printable(record.getMessage())
        text = f"{moment(record)} {record.levelname:<8} {record.name} {message}"
        if record.exc_info:
            text += "\n" + printable_lines(self.formatException(record.exc_info))
        return text


class JsonFormatter(logging.Formatter):
    """One object a line; `exception` has the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(said, ensure_ascii=False))


def moment(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def configure(
    level: LogLevel = LogLevel.INFO, form: LogFormat = LogFormat.TEXT, *, name: str = "headrace"
) -> None:
    """Of the logger of that name and those below it; "" is every logger, for programs with code of the user."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter())
    root = logging.getLogger(name)
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False


Level = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="Log messages of this level and above: debug, info, warning or error.",
    ),
]
Form = Annotated[
    LogFormat,
    typer.Option("--log-format", metavar="FORMAT", help="text, or json for one JSON object per line."),
]
