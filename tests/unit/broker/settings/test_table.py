"""The table as a whole: names are unique, synonyms exist, and nothing is both known and foreign."""

from pathlib import Path

import headrace
from headrace.broker.settings import BY_NAME, SETTINGS, Scope
from headrace.broker.settings.foreign import FOREIGN


def test_a_name_is_declared_once_in_each_scope() -> None:
    assert sum(len(table) for table in BY_NAME.values()) == len(SETTINGS)


def test_every_synonym_and_bound_is_a_broker_setting() -> None:
    broker = BY_NAME[Scope.BROKER]
    for setting in SETTINGS:
        assert all(synonym.name in broker for synonym in setting.synonyms), setting.name
        assert all(name in broker for name in setting.bounds or ()), setting.name


def test_a_topics_default_is_what_the_brokers_defaults_give_it() -> None:
    broker = BY_NAME[Scope.BROKER]
    for setting in (*BY_NAME[Scope.TOPIC].values(), *BY_NAME[Scope.GROUP].values()):
        for synonym in setting.synonyms:
            default = broker[synonym.name].default
            if default is not None:
                value = default * synonym.factor if type(default) is int else default
                assert value == setting.default, setting.name
                break


def test_no_setting_is_both_understood_and_foreign() -> None:
    assert not [
        name
        for name in FOREIGN.keys() & BY_NAME[Scope.BROKER].keys()
        if BY_NAME[Scope.BROKER][name].has_effect
    ]


def test_every_setting_is_documented_in_one_line_that_ends() -> None:
    for setting in SETTINGS:
        assert setting.doc.endswith("."), setting.name
        assert "\n" not in setting.doc


def test_topic_settings_are_those_of_kafka_4_3() -> None:
    shown = [setting for setting in BY_NAME[Scope.TOPIC].values() if not setting.is_internal]
    assert len(shown) == 34


def test_every_broker_setting_that_claims_an_effect_is_read_somewhere() -> None:
    package = Path(headrace.__file__).parent
    files = [path for path in package.rglob("*.py") if path.parent.name not in ("messages", "settings")]
    source = "\n".join(path.read_text() for path in files)
    inherited = {synonym.name for setting in SETTINGS for synonym in setting.synonyms}
    bounds = {name for setting in SETTINGS for name in setting.bounds or ()}
    by_log_config = {"producer.id.expiration.ms"}
    of_one_node = {"default.replication.factor", "offsets.topic.replication.factor"}
    of_one_node |= {"transaction.state.log.replication.factor"}
    of_one_node |= {"share.coordinator.state.topic.replication.factor"}
    unread = {
        setting.name
        for setting in BY_NAME[Scope.BROKER].values()
        if setting.has_effect and f'"{setting.name}"' not in source
    }
    assert unread - inherited - bounds - by_log_config - of_one_node == set()
