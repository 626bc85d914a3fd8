"""The broker's own log output: one format, one line an event, `key=value` where there are values."""

import logging
import sys
import time


class Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = f"{seconds}.{int(record.msecs):03d}Z {record.levelname:<8} {record.name} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def configure(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    root = logging.getLogger("headrace")
    root.handlers = [handler]
    root.setLevel(level)
    root.propagate = False
