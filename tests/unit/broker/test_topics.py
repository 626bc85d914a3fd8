"""The registry of topics: names, life and death of topics, settings that reach their logs."""

import pytest

from headrace.broker.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, Topic, check_name
from headrace.log.metadata import StoredTopic, new_uuid
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.work import operations


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> tuple[ErrorCode, str | None]:
    return error.value.code, error.value.message


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_an_illegal_name_is_refused_with_kafkas_text(name, reason):
    with pytest.raises(KafkaError) as error:
        check_name(name)
    assert refusal(error) == (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


@pytest.mark.parametrize("name", ["a", "...", "a.b_c-D9", "x" * 249, "__mine"])
def test_a_legal_name_is_taken(name):
    check_name(name)


def test_a_topic_is_found_by_name_and_by_id(admin):
    topic = admin.topics.create("orders", partitions=3, configs={"retention.ms": "5"})
    assert admin.topics.get("orders") is topic
    assert admin.topics.by_id(topic.id) is topic
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert admin.topics.get("other") is None
    assert admin.topics.by_id(bytes(16)) is None


def test_topics_are_listed_in_the_order_of_their_names(admin):
    for name in ("b", "c", "a"):
        admin.topics.create(name, partitions=1, configs={})
    assert [topic.name for topic in admin.topics] == ["a", "b", "c"]
    assert len(admin.topics) == 3


def test_a_partition_that_does_not_exist_is_refused(admin):
    admin.topics.create("orders", partitions=1, configs={})
    assert admin.topics.require("orders", 0).index == 0
    for name, index in (("orders", 1), ("orders", -1), ("other", 0)):
        with pytest.raises(KafkaError) as error:
            admin.topics.require(name, index)
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_name_can_be_taken_once(admin):
    admin.topics.create("orders", partitions=1, configs={})
    with pytest.raises(KafkaError) as error:
        admin.topics.create("orders", partitions=1, configs={})
    assert refusal(error) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")


def test_names_that_differ_only_in_dots_and_underscores_collide(admin):
    admin.topics.create("a.b_c", partitions=1, configs={})
    with pytest.raises(KafkaError) as error:
        admin.topics.create("a_b.c", partitions=1, configs={})
    assert refusal(error) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b.c' collides with existing topic: a.b_c",
    )


@pytest.mark.parametrize("partitions", [0, -1, 100_001])
def test_a_number_of_partitions_that_cannot_be_is_refused(admin, partitions):
    with pytest.raises(KafkaError) as error:
        admin.topics.create("orders", partitions=partitions, configs={})
    assert error.value.code is ErrorCode.INVALID_PARTITIONS
    assert admin.topics.get("orders") is None


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"foo": "x"}, "Unknown topic config name: foo"),
        (
            {"segment.bytes": "5"},
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "2"},
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (2)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_settings_a_topic_cannot_have_are_refused_with_kafkas_text(admin, configs, message):
    with pytest.raises(KafkaError) as error:
        admin.topics.create("orders", partitions=1, configs=configs)
    assert refusal(error) == (ErrorCode.INVALID_CONFIG, message)


def test_topics_and_their_records_are_there_after_a_restart(admin):
    before = admin.topics.create("orders", partitions=2, configs={"retention.ms": "-1"})
    admin.write("orders", b"one", b"two", partition=1)
    admin.restart()
    after = admin.topics.get("orders")
    assert (after.id, len(after.partitions), after.configs) == (before.id, 2, {"retention.ms": "-1"})
    assert [partition.log.end_offset for partition in after.partitions] == [0, 2]


def test_a_deleted_topic_is_gone_with_its_records_and_its_name_is_free(admin):
    first = admin.topics.create("orders", partitions=1, configs={"retention.ms": "5"})
    admin.write("orders", b"one")
    admin.topics.delete("orders")
    assert admin.topics.get("orders") is None
    assert admin.topics.by_id(first.id) is None
    second = admin.topics.create("orders", partitions=1, configs={})
    assert second.id != first.id
    assert second.configs == {}
    assert second.partitions[0].log.end_offset == 0


def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start(admin):
    topic = admin.topics.create("orders", partitions=1, configs={})
    admin.write("orders", b"one")
    admin.metadata.delete_topic("orders")  # and then the power fails, before any directory is removed
    admin.restart()
    assert admin.metadata.deleted_topics() == []
    assert admin.topics.get("orders") is None
    again = admin.topics.create("orders", partitions=1, configs={})
    assert again.id != topic.id
    assert again.partitions[0].log.end_offset == 0


def test_directories_left_by_a_failed_deletion_do_not_pass_to_a_new_topic(admin, monkeypatch):
    admin.topics.create("orders", partitions=1, configs={})
    admin.write("orders", b"one")
    with monkeypatch.context() as patched:

        def refuse(*_):
            raise OSError("not now")

        patched.setattr(admin.disk, "rename", refuse)
        admin.topics.delete("orders")
        with pytest.raises(KafkaError, match="not now") as refused:
            admin.topics.create("orders", partitions=1, configs={})
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    topic = admin.topics.create("orders", partitions=1, configs={})
    assert topic.partitions[0].log.end_offset == 0
    assert admin.metadata.deleted_topics() == []


def test_a_deletion_that_is_found_at_start_spares_the_next_topic_of_that_name(admin):
    """The store has both when the end came before it could forget the deleted one."""
    old = admin.topics.create("orders", partitions=1, configs={})
    admin.metadata.delete_topic("orders")
    admin.metadata.add_topic(StoredTopic("orders", new_uuid(), 1))
    admin.restart()
    assert admin.topics.get("orders").id != old.id
    admin.write("orders", b"new")
    admin.metadata.add_topic(StoredTopic("gone", old.id, 1))
    admin.metadata.delete_topic("gone")
    admin.metadata._database.execute("UPDATE deleted_topics SET name = 'orders'")
    admin.restart()
    assert admin.topics.get("orders").partitions[0].log.end_offset == 1
    assert admin.metadata.deleted_topics() == []


def test_names_that_differ_in_dots_and_underscores_collide_also_within_one_request(admin):
    admin.topics.create("a.b", partitions=1, configs={})
    for name in ("a_b", "a.b"):
        with pytest.raises(KafkaError):
            admin.topics.check_free(name)
    admin.topics.check_free("a-b")
    admin.topics.check_free("c.d", {"e_f": "e.f"})
    with pytest.raises(KafkaError, match="collides with existing topic: c_d"):
        admin.topics.check_free("c.d", {"c_d": "c_d"})
    admin.topics.delete("a.b")
    admin.topics.check_free("a_b")


def test_making_and_deleting_a_topic_costs_the_same_however_many_there_are(admin):
    def cost(first: int, count: int) -> tuple[int, int]:
        for number in range(first, first + count):
            admin.topics.create(f"team.topic_{number}", partitions=1, configs={})
        made = operations(lambda: admin.topics.create("one.more", partitions=1, configs={}))
        return made, operations(lambda: admin.topics.delete("one.more"))

    few, many = cost(0, 20), cost(20, 500)
    assert many[0] < 1.5 * few[0]  # an id that begins with a dash is drawn again
    assert many[1] < 1.5 * few[1]


def test_partitions_are_added_and_old_ones_keep_their_records(admin):
    topic = admin.topics.create("orders", partitions=1, configs={})
    admin.write("orders", b"one")
    admin.topics.add_partitions("orders", 3)
    assert len(topic.partitions) == 3
    admin.restart()
    after = admin.topics.get("orders")
    assert [partition.log.end_offset for partition in after.partitions] == [1, 0, 0]


@pytest.mark.parametrize(
    ("total", "message"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic orders currently has 2 partition(s); 1 would not be an increase."),
    ],
)
def test_partitions_never_become_fewer(admin, total, message):
    admin.topics.create("orders", partitions=2, configs={})
    with pytest.raises(KafkaError) as error:
        admin.topics.add_partitions("orders", total)
    assert refusal(error) == (ErrorCode.INVALID_PARTITIONS, message)


def test_the_partitions_of_internal_topics_are_fixed(admin):
    admin.topics.internal(CONSUMER_OFFSETS)
    with pytest.raises(KafkaError) as error:
        admin.topics.add_partitions(CONSUMER_OFFSETS, 100)
    assert error.value.code is ErrorCode.INVALID_PARTITIONS


def test_new_settings_reach_open_logs_at_once(admin):
    topic = admin.topics.create("orders", partitions=1, configs={})
    log = topic.partitions[0].log
    admin.topics.set_configs("orders", {"max.message.bytes": "100"})
    assert log.config.max_message_bytes == 100
    admin.topics.set_configs("orders", {})
    assert log.config.max_message_bytes == 1048588


def test_a_change_of_the_brokers_settings_reaches_open_logs_that_do_not_override_it(admin):
    plain = admin.topics.create("plain", partitions=1, configs={}).partitions[0].log
    own = admin.topics.create("own", partitions=1, configs={"max.message.bytes": "7"}).partitions[0].log
    admin.settings.set_dynamic("message.max.bytes", "100", is_cluster_wide=True)
    assert (plain.config.max_message_bytes, own.config.max_message_bytes) == (100, 7)


def test_listeners_hear_of_what_happens(admin):
    heard: list[tuple[str, str]] = []

    def noted(what: str):
        def listener(topic: Topic) -> None:
            heard.append((what, topic.name))

        return listener

    admin.topics.on_changed.append(noted("changed"))
    admin.topics.on_deleted.append(noted("deleted"))
    admin.topics.on_configured.append(noted("configured"))
    admin.topics.create("a", partitions=1, configs={})
    admin.topics.add_partitions("a", 2)
    admin.topics.set_configs("a", {"retention.ms": "1"})
    admin.topics.delete("a")
    assert heard == [("changed", "a"), ("changed", "a"), ("configured", "a"), ("deleted", "a")]


def test_internal_topics_are_made_on_first_use_with_kafkas_settings(admin):
    offsets = admin.topics.internal(CONSUMER_OFFSETS)
    assert offsets.is_internal
    assert len(offsets.partitions) == 50
    assert offsets.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert admin.topics.internal(CONSUMER_OFFSETS) is offsets
    transactions = admin.topics.internal(TRANSACTION_STATE)
    assert transactions.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_the_share_state_topic_keeps_everything_until_it_is_pruned(admin):
    state = admin.topics.internal(SHARE_GROUP_STATE)
    assert state.is_internal
    assert len(state.partitions) == 50
    assert state.configs == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


def test_a_topic_that_is_not_internal_has_no_such_shape(admin):
    with pytest.raises(KafkaError, match="orders is not an internal topic"):
        admin.topics.internal("orders")


def test_a_thousand_partitions_are_cheap_to_create_and_to_start_with(admin):
    admin.topics.create("many", partitions=1000, configs={})
    admin.restart()
    assert len(admin.topics.get("many").partitions) == 1000
    assert not [name for name in admin.disk.list() if name.startswith("many-")]


def test_what_does_not_exist_cannot_be_changed(admin):
    for change in (
        lambda: admin.topics.delete("x"),
        lambda: admin.topics.add_partitions("x", 2),
        lambda: admin.topics.set_configs("x", {}),
    ):
        with pytest.raises(KafkaError) as error:
            change()
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_listener_that_fails_does_not_keep_the_news_from_the_others(admin):
    heard = []

    def broken(topic):
        raise RuntimeError("broken")

    for listeners in (admin.topics.on_changed, admin.topics.on_deleted):
        listeners += [broken, lambda topic: heard.append(topic.name)]
    admin.topics.create("orders", partitions=1, configs={})
    admin.topics.delete("orders")
    assert heard == ["orders", "orders"]
