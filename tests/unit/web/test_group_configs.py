"""Which of a group's configs its page shows: those that have an effect on a group of its kind, and what is set."""

import pytest

from headrace.web.model import ConfigRow
from headrace.web.queries import configs_for

NAMES = (
    "consumer.session.timeout.ms",
    "errors.deadletterqueue.topic.name",
    "share.session.timeout.ms",
    "streams.num.standby.replicas",
)


def row(name: str, *, is_set: bool = False) -> ConfigRow:
    return ConfigRow(name=name, value="1", is_set=is_set, is_read_only=False, documentation=None)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("share", ["errors.deadletterqueue.topic.name", "share.session.timeout.ms"]),
        ("consumer", ["consumer.session.timeout.ms"]),
        ("classic", ["consumer.session.timeout.ms"]),
        ("streams", ["streams.num.standby.replicas"]),
    ],
)
def test_configs_of_other_kinds_of_groups_are_left_out(kind: str, shown: list[str]) -> None:
    assert [each.name for each in configs_for(kind, tuple(map(row, NAMES)))] == shown


def test_a_config_that_somebody_has_set_is_shown() -> None:
    rows = (row("streams.num.standby.replicas", is_set=True),)
    assert configs_for("share", rows) == rows
