"""The options: what is understood, what is refused, and whether the refusal says what to do."""

from pathlib import Path

import pytest

from headrace.spark.errors import OptionError
from headrace.spark.locations import locate, spark_location
from headrace.spark.options import _REFUSED, SourceOptions, option_names
from headrace.spark.settle import Acknowledge

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "kafka.group.id": "g"}


def refused(**given: str) -> str:
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse({**LEAST, **{key.replace("__", "."): value for key, value in given.items()}})
    return str(caught.value)


def test_the_least_that_is_needed() -> None:
    options = SourceOptions.parse(LEAST)
    assert options.topics == ("orders",)
    assert options.group == "g"
    assert options.acknowledge is Acknowledge.COMMIT
    assert options.fails_on_data_loss
    assert options.outcomes_path is None


@pytest.mark.parametrize("missing", LEAST)
def test_what_is_missing_is_named_with_an_example(missing: str) -> None:
    with pytest.raises(OptionError, match=rf"^{missing} is missing.*option\("):
        SourceOptions.parse({key: value for key, value in LEAST.items() if key != missing})


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            {**LEAST, **{f"option.{name}": value for name, value in LEAST.items()}}, id="when it is created"
        ),
        pytest.param({"path": "/warehouse/orders"}, id="when a stream reads it"),
    ],
)
def test_a_table_is_refused_with_the_way_that_works(given: dict[str, str]) -> None:
    with pytest.raises(
        OptionError, match=r"cannot be used by CREATE TABLE.*readStream.*createOrReplaceTempView"
    ):
        SourceOptions.parse(given)


def test_case_does_not_matter_and_spaces_are_cut() -> None:
    options = SourceOptions.parse({**LEAST, "MAXRECORDSPERTRIGGER": " 7 ", "subscribe": "b, a ,b"})
    assert options.records_per_trigger == 7
    assert options.topics == ("b", "a")


def test_sparks_name_for_the_limit_is_understood() -> None:
    assert SourceOptions.parse({**LEAST, "maxoffsetspertrigger": "9"}).records_per_trigger == 9


def test_two_names_of_one_option_must_not_differ() -> None:
    text = refused(maxRecordsPerTrigger="1", maxOffsetsPerTrigger="2")
    assert "maxRecordsPerTrigger='1' and maxOffsetsPerTrigger='2' contradict" in text


def test_the_group_has_one_name_under_every_spelling() -> None:
    given = {key: value for key, value in LEAST.items() if key != "kafka.group.id"}
    for name in ("kafka.group.id", "kafka.share.group.id", "scan.share-group.id", "properties.group.id"):
        assert SourceOptions.parse({**given, name: "mailers"}).group == "mailers"
    assert "contradict" in refused(kafka__share__group__id="other")


def test_flinks_names_are_understood() -> None:
    options = SourceOptions.parse(
        {
            "topic": "orders",
            "properties.bootstrap.servers": "h:1",
            "scan.share-group.id": "g",
            "properties.client.id": "x",
        }
    )
    assert options.topics == ("orders",)
    assert options.client.client_id == "x"


def test_kafka_options_go_to_the_client_and_its_errors_keep_their_prefix() -> None:
    assert SourceOptions.parse({**LEAST, "kafka.fetch.max.wait.ms": "50"}).client.fetch_max_wait_ms == 50
    assert refused(kafka__fetch__max__wait__ms="soon").startswith("kafka.fetch.max.wait.ms='soon'")
    assert "share.isolation.level" in refused(kafka__isolation__level="read_committed")


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("assign", "subscribe"),
        ("subscribePattern", "subscribe"),
        ("endingOffsets", "AvailableNow"),
        ("endingTimestamp", "AvailableNow"),
        ("startingTimestamp", "headrace group reset"),
        ("startingOffsetsByTimestamp", "startingOffsets"),
        ("groupIdPrefix", "kafka.group.id"),
        ("minOffsetsPerTrigger", "ProcessingTime"),
        ("fetchOffset.numRetries", "kafka.retry.backoff.ms"),
        ("asyncProgressTrackingEnabled", "Leave it out"),
        ("scan.share-group.lock-timeout", "share.record.lock.duration.ms"),
        ("connector", "Leave it out"),
        ("kafka.auto.offset.reset", "startingOffsets"),
        ("kafka.enable.auto.commit", "acknowledge"),
        ("kafka.auto.renew", "renews locks by itself"),
        ("kafka.auto.renew.max.ms", "renews locks by itself"),
        ("kafka.max.poll.interval.ms", "however long a micro-batch takes"),
    ],
)
def test_what_a_share_group_cannot_do_is_refused_with_the_cure(name: str, cure: str) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse({**LEAST, name.lower(): "v"})
    assert name in str(caught.value)
    assert cure in str(caught.value)


@pytest.mark.parametrize("setting", [name for name in _REFUSED if name.startswith("kafka.")])
def test_what_is_refused_is_refused_under_every_spelling(setting: str) -> None:
    name = setting.removeprefix("kafka.")
    for spelling in (f"properties.{name}", f"kafka.{name.replace('.', '_')}", f"Properties.{name}"):
        with pytest.raises(OptionError) as caught:
            SourceOptions.parse({**LEAST, spelling: "v"})
        assert str(caught.value).startswith(f"{spelling}='v' cannot be used")


def test_a_setting_is_what_the_member_needs_unless_the_user_says_otherwise() -> None:
    plain = SourceOptions.parse(LEAST).client
    assert (plain.max_poll_records, plain.fetch_max_wait_ms, plain.fetch_max_bytes) == (50_000, 100, 1 << 24)
    assert plain.auto_renew
    for spelling in ("kafka.fetch.max.wait.ms", "properties.fetch.wait.max.ms", "kafka.fetch_max_wait_ms"):
        assert SourceOptions.parse({**LEAST, spelling: "500"}).client.fetch_max_wait_ms == 500, (
            "Kafka's default"
        )
    given = SourceOptions.parse(
        {**LEAST, "kafka.max.poll.records": "500", "kafka.fetch.max.bytes": "52428800"}
    )
    assert (given.client.max_poll_records, given.client.fetch_max_bytes) == (500, 52_428_800)


def test_two_spellings_of_a_client_setting_must_not_differ() -> None:
    text = refused(kafka__sasl__password="secret-a", properties__sasl__password="secret-b")
    assert "kafka.sasl.password and properties.sasl.password contradict" in text
    assert "secret" not in text


def test_rejected_records_must_not_go_back_into_the_queue() -> None:
    text = refused(subscribe="orders, more", deadLetterTopic="more")
    assert "deadLetterTopic='more'" in text
    assert "Name another topic" in text


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("acknowledge", "never", "commit, handoff"),
        ("maxRecordsPerTrigger", "0", "from 1 to"),
        ("maxRecordsPerTrigger", "many", "whole numbers"),
        ("minPartitions", "-1", "from 1 to"),
        ("includeHeaders", "maybe", "true and false"),
        ("startingOffsets", '{"orders":{"0":5}}', "headrace group reset g"),
        ("checkpointLocation", "hdfs://name-node/x", "mount HDFS"),
        ("checkpointLocation", "oss://bucket/x", "mounted path"),
        ("checkpointLocation", "s3a://bucket", "s3a://BUCKET/PATH"),
        ("checkpointLocation", "abfss://account.dfs.core.windows.net/x", "abfss://CONTAINER@ACCOUNT"),
        ("checkpointLocation", "", "empty"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    text = refused(**{name: value})
    assert name in text
    assert allowed in text


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert "Did you mean minPartitions?" in refused(minPartition="2")
    assert "Known are" in refused(zzzz="2")


def test_the_nearest_name_may_be_sparks_and_the_users_spelling_is_kept() -> None:
    text = refused(maxOffsetPerTrigger="2")
    assert "has no option maxOffsetPerTrigger" in text
    assert "Did you mean maxOffsetsPerTrigger?" in text
    assert "Did you mean subscribe?" in refused(topics="orders")


def test_a_bad_value_is_named_as_the_user_named_the_option() -> None:
    assert refused(maxOffsetsPerTrigger="-1").startswith("maxOffsetsPerTrigger='-1'; allowed")


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxRecordsPerPartition"])
def test_what_sparks_own_source_takes_is_not_too_much(name: str) -> None:
    most = 2**63 - 1
    options = SourceOptions.parse({**LEAST, name: str(most)})
    assert most in (options.records_per_trigger, options.records_per_partition)
    assert f"to {most}" in refused(**{name: str(most + 1)})


def test_an_unknown_client_setting_is_named_with_its_prefix_and_so_is_the_nearest() -> None:
    assert refused(kafka__foo__bar="1").startswith("unknown setting kafka.foo.bar; ")
    text = refused(kafka__max__poll__record="1")
    assert text.startswith("unknown setting kafka.max.poll.record; did you mean kafka.max.poll.records?")


def test_dead_letters_need_the_checkpoint() -> None:
    assert "deadLetterTopic='letters' needs checkpointLocation" in refused(deadLetterTopic="letters")


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("/data/check point", "/data/check point"),
        ("file:///data/check point", "/data/check point"),
        ("file:/data/check point", "/data/check point"),
        ("file://localhost/data", "/data"),
        ("/data/x/../a:b/", "/data/a:b"),
        ("file:///data/a%20b", "/data/a%20b"),
        ("file:///data/a#b?c", "/data/a#b?c"),
    ],
)
def test_the_checkpoint_may_be_a_path_or_a_file_address_and_is_read_as_spark_reads_it(
    location: str, folder: str
) -> None:
    path = SourceOptions.parse({**LEAST, "checkpointLocation": location}).outcomes_path
    assert str(path) == f"{folder}/share-outcomes"


def test_a_relative_checkpoint_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = SourceOptions.parse({**LEAST, "checkpointLocation": "checkpoints/fraud"})
    assert options.checkpoint_path == tmp_path / "checkpoints" / "fraud"


def test_blanks_around_a_password_are_part_of_it() -> None:
    secret = {"kafka.security.protocol": " SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN "}
    login = {"kafka.sasl.username": "kim", "kafka.sasl.password": " secret "}
    options = SourceOptions.parse({**LEAST, **secret, **login, "kafka.group.id": " g "})
    assert (options.client.sasl_password, options.group) == (" secret ", "g")


def test_a_cure_names_settings_of_the_client_as_they_are_named_here() -> None:
    with pytest.raises(OptionError) as refused:
        SourceOptions.parse({**LEAST, "kafka.sasl.mechanism": "AWS_MSK_IAM"})
    text = str(refused.value)
    assert text.startswith("kafka.sasl.mechanism='AWS_MSK_IAM'; allowed are PLAIN, ")
    assert (
        "set kafka.sasl.mechanism=OAUTHBEARER, and kafka.sasl.oauthbearer.token.provider=module:function"
        in text
    )
    assert "docs/reference/client-settings.md" in text


def test_every_option_is_listed_once() -> None:
    names = option_names()
    assert len(names) == len({name.lower() for name in names})
    assert "acknowledge" in names


@pytest.mark.parametrize(
    "location",
    ["s3a://bucket/queries/fraud", "gs://bucket/fraud", "abfss://files@account.dfs.core.windows.net/fraud"],
)
def test_a_checkpoint_may_be_in_an_object_store(location: str) -> None:
    for given in (location, f"{location}/"):
        options = SourceOptions.parse({**LEAST, "checkpointLocation": given})
        assert str(options.checkpoint_path) == location
        assert str(options.outcomes_path) == f"{location}/share-outcomes"
        assert options.outcomes_path is not None
        assert options.outcomes_path.parent == options.checkpoint_path == locate(location)
        assert spark_location(options.outcomes_path.parent) == location
