"""Goal: answers read well: unknown is None, choices are forgiving, a newer broker's words do no harm."""

import pytest

from headrace.base.settings import ConfigType
from headrace.client.admin.results import (
    ConfigEntry,
    TopicDescription,
    in_order,
    known,
    known_or,
    parse_choice,
)
from headrace.wire.enums import ConfigSource, GroupState, GroupType


@pytest.mark.parametrize("given", ["share", "Share", "SHARE", GroupType.SHARE])
def test_a_choice_may_be_spelled_in_any_case(given: str) -> None:
    assert parse_choice(GroupType, given) is GroupType.SHARE


def test_an_unknown_choice_is_refused_with_all_choices() -> None:
    with pytest.raises(ValueError, match="'full' is not a group state; choose from Empty, Stable, Prep"):
        parse_choice(GroupState, "full")


def test_a_word_of_a_newer_broker_is_unknown() -> None:
    assert known_or(GroupState, "Frozen", GroupState.UNKNOWN) is GroupState.UNKNOWN
    assert known_or(GroupState, "Empty", GroupState.UNKNOWN) is GroupState.EMPTY


def test_what_nobody_knows_is_none() -> None:
    assert [known(-1), known(0), known(7)] == [None, 0, 7]


def test_places_are_in_order_and_once_and_have_names() -> None:
    places = in_order([("b", 0), ("a", 10), ("a", 2), ("b", 0)])
    assert places == [("a", 2), ("a", 10), ("b", 0)]
    assert (places[0].topic, places[0].partition) == ("a", 2)


def test_a_topic_without_partitions_has_no_replicas() -> None:
    topic = TopicDescription(name="t", topic_id="", is_internal=False, partitions=())
    assert topic.replication_factor == 0


def test_only_what_nobody_has_set_is_default() -> None:
    def entry(source: ConfigSource) -> ConfigEntry:
        return ConfigEntry(
            name="n", value="v", source=source, is_read_only=False, is_sensitive=False, type=ConfigType.INT
        )

    assert entry(ConfigSource.DEFAULT).is_default
    assert not entry(ConfigSource.GROUP).is_default
    assert not entry(ConfigSource.STATIC_BROKER).is_default
