"""The values in force: layers, dynamic changes, what topics and groups inherit."""

import logging
from collections.abc import Iterator

import pytest

from headrace.broker.settings import InvalidSettings, SettingError, Settings
from headrace.log.metadata import MetadataStore
from headrace.wire.enums import ConfigSource

HOUR_MS = 3_600_000


@pytest.fixture
def store() -> Iterator[MetadataStore]:
    store = MetadataStore()
    yield store
    store.close()


def attached(store: MetadataStore, **keywords: object) -> Settings:
    settings = Settings(keywords)
    settings.attach(store)
    return settings


def test_settings_that_nobody_gave_have_kafkas_defaults() -> None:
    settings = Settings()
    assert settings.get_int("num.partitions") == 1
    assert settings.get_bool("auto.create.topics.enable") is True
    assert settings.get_str("compression.type") == "producer"
    assert settings.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert settings.get_list("group.consumer.assignors") == ["uniform", "range"]
    assert settings.value("log.retention.ms") is None


def test_every_refused_setting_is_named_with_its_value_and_what_is_allowed() -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings({"num.partitions": 0, "headrace.flush": "never"})
    assert str(caught.value).splitlines() == [
        "num.partitions=0: Value must be at least 1 (allowed: 1 or more)",
        "headrace.flush=never: String must be one of: fsync, os (allowed: fsync, os)",
    ]


def test_an_unknown_name_is_a_warning_that_suggests_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace.settings"):
        settings = Settings({"num.partition": 3})
    assert settings.warnings == ["unknown setting num.partition; did you mean num.partitions?"]
    assert caplog.messages == settings.warnings


def test_a_name_like_no_other_is_a_warning_without_a_suggestion() -> None:
    assert Settings({"zzzz": 1}).warnings == ["unknown setting zzzz"]


def test_a_setting_of_kafka_that_means_nothing_here_says_why() -> None:
    assert Settings({"num.io.threads": 8, "listener.name.a.ssl.provider": "x"}).warnings == [
        "num.io.threads has no effect: one event loop does this work in another way",
        "listener.name.a.ssl.provider has no effect: OpenSSL decides this",
    ]


def test_an_authorizer_that_is_not_here_is_refused_by_name() -> None:
    with pytest.raises(
        InvalidSettings, match=r"authorizer\.class\.name=com\.example\.Mine: .*StandardAuthorizer"
    ):
        Settings({"authorizer.class.name": "com.example.Mine"})


def test_super_users_are_principals() -> None:
    with pytest.raises(InvalidSettings, match="'alice' is not a principal; write it as User:NAME"):
        Settings({"super.users": "User:admin; alice"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"group.min.session.timeout.ms": 7000, "group.max.session.timeout.ms": 6500},
            "group.min.session.timeout.ms=7000 must not be more than group.max.session.timeout.ms=6500",
        ),
        (
            {"group.consumer.session.timeout.ms": 90_000},
            "group.consumer.session.timeout.ms=90000 must not be more than group.consumer.max.session.timeout.ms=60000",
        ),
        (
            {
                "group.consumer.min.session.timeout.ms": 100,
                "group.consumer.session.timeout.ms": 5000,
            },
            "group.consumer.heartbeat.interval.ms=5000 must be less than group.consumer.session.timeout.ms=5000",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings(given)
    assert str(caught.value) == message


def test_a_change_for_this_node_beats_one_for_the_cluster_which_beats_the_file(store: MetadataStore) -> None:
    settings = attached(store, message_max_bytes=1)
    assert settings.get_int("message.max.bytes") == 1
    settings.set_dynamic("message.max.bytes", "2", is_cluster_wide=True)
    assert settings.get_int("message.max.bytes") == 2
    settings.set_dynamic("message.max.bytes", "3")
    assert settings.get_int("message.max.bytes") == 3
    assert [(origin.value, origin.source) for origin in settings.origins("message.max.bytes")] == [
        (3, ConfigSource.DYNAMIC_BROKER),
        (2, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (1, ConfigSource.STATIC_BROKER),
        (1048588, ConfigSource.DEFAULT),
    ]
    settings.set_dynamic("message.max.bytes", None)
    assert settings.get_int("message.max.bytes") == 2


def test_a_refused_change_changes_nothing(store: MetadataStore) -> None:
    settings = attached(store)
    with pytest.raises(SettingError):
        settings.set_dynamic("log.segment.bytes", "1")
    assert settings.get_int("log.segment.bytes") == 1 << 30
    with pytest.raises(KeyError):
        settings.set_dynamic("log.segment.byte", "1048576")


def test_changes_are_there_after_a_restart(store: MetadataStore) -> None:
    before = Settings()
    before.attach(store)
    before.set_dynamic("log.retention.ms", "1000", is_cluster_wide=True)
    before.set_dynamic("max.connections", "10")
    before.replace_group("g", {"consumer.session.timeout.ms": "50000"})
    after = Settings()
    after.attach(store)
    assert after.get_int("log.retention.ms") == 1000
    assert after.get_int("max.connections") == 10
    assert after.group_int("g", "consumer.session.timeout.ms") == 50_000


def test_a_kept_change_that_no_longer_fits_is_left_out_with_a_warning(
    store: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.set_configs("broker", "1", {"log.segment.bytes": "7", "gone.since": "x", "max.connections": "5"})
    settings = Settings()
    with caplog.at_level(logging.WARNING, "headrace.settings"):
        settings.attach(store)
    assert settings.get_int("log.segment.bytes") == 1 << 30
    assert settings.get_int("max.connections") == 5
    assert len(caplog.messages) == 2


def test_listeners_are_told_of_changes(store: MetadataStore) -> None:
    settings = attached(store)
    seen: list[int] = []
    settings.on_changed.append(lambda: seen.append(settings.get_int("max.connections")))
    settings.set_dynamic("max.connections", "10")
    assert seen == [10]


def test_min_insync_replicas_is_noted_cluster_wide_as_kafka_does_it(store: MetadataStore) -> None:
    settings = attached(store)
    assert next(settings.origins("min.insync.replicas")).source is ConfigSource.DYNAMIC_DEFAULT_BROKER


def test_a_topic_inherits_the_strongest_of_the_brokers_synonyms() -> None:
    assert Settings().log_config({}).retention_ms == 168 * HOUR_MS
    assert Settings({"log.retention.hours": 2}).log_config({}).retention_ms == 2 * HOUR_MS
    both = Settings({"log.retention.hours": 2, "log.retention.minutes": 3})
    assert both.log_config({}).retention_ms == 180_000
    three = Settings({"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": -1})
    assert three.log_config({}).retention_ms == -1


def test_a_topics_own_setting_beats_the_brokers() -> None:
    settings = Settings({"log.cleanup.policy": "compact"})
    assert settings.log_config({}).cleanup_policy == {"compact"}
    assert settings.log_config({"cleanup.policy": "delete"}).cleanup_policy == {"delete"}


def test_a_log_config_has_every_setting_of_the_topic(store: MetadataStore) -> None:
    config = attached(store, producer_id_expiration_ms=99).log_config(
        {
            "segment.ms": "1",
            "retention.bytes": "2",
            "max.message.bytes": "3",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "4",
            "message.timestamp.after.max.ms": "5",
            "delete.retention.ms": "6",
            "min.compaction.lag.ms": "7",
            "max.compaction.lag.ms": "8",
            "min.cleanable.dirty.ratio": "0.25",
            "file.delete.delay.ms": "9",
            "index.interval.bytes": "10",
            "segment.index.bytes": "11",
            "compression.type": "zstd",
            "internal.segment.bytes": "12",
        }
    )
    assert (config.segment_ms, config.retention_bytes, config.max_message_bytes) == (1, 2, 3)
    assert config.message_timestamp_type == "LogAppendTime"
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (4, 5)
    assert (config.delete_retention_ms, config.min_compaction_lag_ms) == (6, 7)
    assert (config.max_compaction_lag_ms, config.min_cleanable_dirty_ratio) == (8, 0.25)
    assert (config.file_delete_delay_ms, config.index_interval_bytes, config.segment_index_bytes) == (
        9,
        10,
        11,
    )
    assert (config.compression_type, config.segment_bytes, config.producer_expiration_ms) == ("zstd", 12, 99)


def test_log_configs_follow_a_change_of_the_brokers_settings(store: MetadataStore) -> None:
    settings = attached(store)
    assert settings.log_config({}).max_message_bytes == 1048588
    settings.set_dynamic("message.max.bytes", "5", is_cluster_wide=True)
    assert settings.log_config({}).max_message_bytes == 5


def test_a_group_has_its_own_value_or_the_brokers(store: MetadataStore) -> None:
    settings = attached(store)
    settings.replace_group("g", {"consumer.heartbeat.interval.ms": "7000"})
    assert settings.group_int("g", "consumer.heartbeat.interval.ms") == 7000
    assert settings.group_int("other", "consumer.heartbeat.interval.ms") == 5000
    assert settings.groups_with_overrides() == ["g"]
    settings.replace_group("g", {})
    assert settings.groups_with_overrides() == []


def test_a_groups_value_is_held_within_the_brokers_bounds(store: MetadataStore) -> None:
    store.set_configs("group", "g", {"consumer.session.timeout.ms": "50000"})
    settings = Settings({"group.consumer.max.session.timeout.ms": 48_000})
    settings.attach(store)
    assert settings.group_int("g", "consumer.session.timeout.ms") == 48_000


def test_a_reserve_that_would_fill_the_disk_is_refused() -> None:
    Settings({"headrace.disk.reserve.bytes": 1 << 30})
    with pytest.raises(ValueError, match="no more than 1073741824"):
        Settings({"headrace.disk.reserve.bytes": 100 << 40})


@pytest.mark.parametrize(
    "name",
    ["create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.class"],
)
def test_a_policy_that_cannot_be_loaded_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"{name}=com.example.Policy: .*remove the setting"):
        Settings({name: "com.example.Policy"})
    Settings({name: ""})
