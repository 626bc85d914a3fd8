"""The broker's loggers as Kafka's tools see them: listed and set through the BROKER_LOGGER resource.

Python's names and levels are shown under Kafka's: `headrace` is `root`, WARNING is WARN, CRITICAL is FATAL. A
level set here lasts until the broker stops.
"""

import logging

from headrace.wire.errors import ErrorCode, KafkaError

ROOT = "root"
_PREFIX = "headrace"
TRACE = 5
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def levels() -> dict[str, str]:
    """Every logger of ours with the level it logs at."""
    found = {ROOT: _level_name(logging.getLogger(_PREFIX))}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if name.startswith(_PREFIX + ".") and isinstance(logger, logging.Logger):
            found[name] = _level_name(logger)
    return found


def check(name: str, level: str | None) -> None:
    """Refuses what `set_level` could not do."""
    if name not in levels():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is None and name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )
    if level is not None and level not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(_LEVELS)}",
        )


def set_level(name: str, level: str | None) -> None:
    """None: back to what the loggers above it say."""
    check(name, level)
    logger = logging.getLogger(_PREFIX if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _level_name(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, level in _LEVELS.items() if effective >= level), "TRACE")
