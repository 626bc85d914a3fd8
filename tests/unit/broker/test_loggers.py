"""The broker's loggers under Kafka's names."""

import logging
from collections.abc import Iterator

import pytest

from headrace.broker import loggers
from headrace.wire.errors import KafkaError

NAME = "headrace.test.loggers"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    root, logger = logging.getLogger("headrace"), logging.getLogger(NAME)
    before = root.level
    yield logger
    root.setLevel(before)
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("level", ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"])
def test_a_level_is_shown_as_it_was_set(level: str) -> None:
    loggers.set_level(NAME, level)
    assert loggers.levels()[NAME] == level


def test_a_logger_without_a_level_shows_the_one_above() -> None:
    loggers.set_level(NAME, "ERROR")
    loggers.set_level(loggers.ROOT, "WARN")
    assert loggers.levels()[NAME] == "ERROR"
    loggers.set_level(NAME, None)
    assert loggers.levels()[NAME] == "WARN"


def test_loggers_of_others_are_not_ours_to_set() -> None:
    logging.getLogger("somebody.else")
    assert "somebody.else" not in loggers.levels()
    with pytest.raises(KafkaError):
        loggers.set_level("somebody.else", "INFO")
