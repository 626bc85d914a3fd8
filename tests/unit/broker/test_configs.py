"""Settings as resources: what the handlers' tests do not reach."""

import pytest

from headrace.broker.configs import altered, check_group, creation_entries, overrides_of, repeated
from headrace.broker.settings import Settings
from headrace.wire.enums import AlterOperation, ConfigResourceType
from headrace.wire.errors import KafkaError


def test_overrides_are_texts_and_empty_for_what_does_not_exist(admin):
    admin.topics.create("orders", partitions=1, configs={"retention.ms": "5"})
    admin.settings.replace_group("g", {"consumer.session.timeout.ms": "50000"})
    admin.settings.set_dynamic("max.connections", "9")
    assert overrides_of(admin, ConfigResourceType.TOPIC, "orders") == {"retention.ms": "5"}
    assert overrides_of(admin, ConfigResourceType.TOPIC, "x") == {}
    assert overrides_of(admin, ConfigResourceType.GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert overrides_of(admin, ConfigResourceType.BROKER, "1") == {"max.connections": "9"}
    assert overrides_of(admin, ConfigResourceType.BROKER, "") == {"min.insync.replicas": "1"}


def test_altering_leaves_the_given_overrides_alone():
    current = {"retention.ms": "5"}
    assert altered(ConfigResourceType.TOPIC, current, [("segment.ms", AlterOperation.SET, "7")]) == {
        "retention.ms": "5",
        "segment.ms": "7",
    }
    assert current == {"retention.ms": "5"}


def test_subtracting_the_last_item_leaves_an_empty_list():
    change = [("cleanup.policy", AlterOperation.SUBTRACT, "delete")]
    assert altered(ConfigResourceType.TOPIC, {}, change) == {"cleanup.policy": ""}


def test_an_unknown_setting_is_no_list_to_append_to():
    with pytest.raises(KafkaError, match="Can't SUBTRACT to key nope because its type is not LIST"):
        altered(ConfigResourceType.GROUP, {}, [("nope", AlterOperation.SUBTRACT, "x")])


def test_repeated_names_the_resources_that_are_there_more_than_once():
    assert repeated([(2, "a"), (2, "b"), (4, "a"), (2, "a"), (2, "a")]) == {(2, "a")}


def test_a_group_without_settings_is_fine():
    check_group(Settings(), {})


def test_a_topic_created_with_an_internal_setting_shows_it():
    entries = {entry.name: entry for entry in creation_entries(Settings(), {"internal.segment.bytes": "9"})}
    assert entries["internal.segment.bytes"].value == "9"
    assert len(entries) == 35
