"""Goal: values are written as Kafka writes them, and a change counts as seen only when it is."""

import pytest

from headrace.base.settings import ConfigType
from headrace.client.admin.configs import Value, _shows, as_text
from headrace.client.admin.results import ConfigEntry
from headrace.wire.enums import ConfigResourceType, ConfigSource


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (5, "5"), ("x y", "x y"), (0.5, "0.5")]
)
def test_values_are_written_as_kafka_writes_them(value: Value, text: str) -> None:
    assert as_text(value) == text


def entry(value: str | None, source: ConfigSource, *, is_sensitive: bool = False) -> ConfigEntry:
    return ConfigEntry(
        name="n",
        value=value,
        source=source,
        is_read_only=False,
        is_sensitive=is_sensitive,
        type=ConfigType.STRING,
    )


def test_a_value_shows_once_it_is_the_new_one() -> None:
    assert _shows(entry("5", ConfigSource.GROUP), "5", ConfigResourceType.GROUP)
    assert _shows(entry("true", ConfigSource.GROUP), " TRUE", ConfigResourceType.GROUP)
    assert not _shows(entry("4", ConfigSource.GROUP), "5", ConfigResourceType.GROUP)
    assert not _shows(entry(None, ConfigSource.DEFAULT), "5", ConfigResourceType.GROUP)


def test_a_default_shows_once_nothing_is_set_at_this_level() -> None:
    assert _shows(entry("5", ConfigSource.STATIC_BROKER), None, ConfigResourceType.TOPIC)
    assert not _shows(entry("5", ConfigSource.DYNAMIC_TOPIC), None, ConfigResourceType.TOPIC)
    assert not _shows(entry("5", ConfigSource.GROUP), None, ConfigResourceType.GROUP)


def test_what_cannot_be_seen_is_not_waited_for() -> None:
    assert _shows(None, "5", ConfigResourceType.GROUP)
    assert _shows(entry(None, ConfigSource.GROUP, is_sensitive=True), "5", ConfigResourceType.GROUP)
