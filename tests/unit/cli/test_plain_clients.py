"""Kafka's names become aiokafka's words; what does not fit is refused with its name."""

import logging

import pytest

from headrace.cli.failures import Refused
from headrace.cli.plain_clients import consumer_options, for_admin, hushed, patience_s, producer_options

SERVERS = {"bootstrap.servers": "localhost:9092"}


def test_a_producer_is_safe_unless_told_otherwise() -> None:
    options = producer_options(SERVERS, None)
    assert (options["acks"], options["enable_idempotence"], options["compression_type"]) == (
        "all",
        True,
        None,
    )


def test_kafka_s_producer_settings_are_taken() -> None:
    given = SERVERS | {"linger.ms": "5", "batch.size": "100", "compression.type": "lz4", "acks": "-1"}
    options = producer_options(given, None)
    assert (options["linger_ms"], options["max_batch_size"]) == (5, 100)
    assert (options["compression_type"], options["acks"]) == ("lz4", "all")
    assert producer_options(given, "none")["compression_type"] is None


@pytest.mark.parametrize(("acks", "expected"), [("0", 0), ("1", 1)])
def test_fewer_acknowledgements_end_idempotence(acks: str, expected: int) -> None:
    options = producer_options(SERVERS | {"acks": acks}, None)
    assert (options["acks"], options["enable_idempotence"]) == (expected, False)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"acks": "2"}, "acks=2; allowed are"),
        ({"acks": "1", "enable.idempotence": "true"}, "needs acks=all"),
        ({"linger.ms": "soon"}, "linger.ms=soon is not a whole number"),
        ({"enable.idempotence": "perhaps"}, "enable.idempotence=perhaps; allowed are true and false"),
    ],
)
def test_a_wrong_producer_setting_is_named(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(Refused, match=told):
        producer_options(SERVERS | wrong, None)


def test_a_consumer_commits_only_what_was_printed() -> None:
    options = consumer_options(
        SERVERS | {"isolation.level": "read_committed", "check.crcs": "false"}, "billing"
    )
    assert (options["group_id"], options["enable_auto_commit"]) == ("billing", False)
    assert (options["isolation_level"], options["check_crcs"]) == ("read_committed", False)
    assert not {"acks", "enable_idempotence", "max_request_size"} & options.keys()


def test_the_protocol_that_aiokafka_lacks_is_refused_with_the_reason() -> None:
    with pytest.raises(Refused, match="speaks the classic protocol alone"):
        consumer_options(SERVERS | {"group.protocol": "consumer"}, "billing")


def test_patience_is_kafka_s_delivery_timeout() -> None:
    assert patience_s(SERVERS, 120.0) == 120.0
    assert patience_s(SERVERS | {"delivery.timeout.ms": "1500"}, 120.0) == 1.5
    with pytest.raises(Refused, match=r"delivery\.timeout\.ms=0; allowed is 1 or more"):
        patience_s(SERVERS | {"delivery.timeout.ms": "0"}, 120.0)


def test_aiokafka_tells_of_trouble_once_and_not_at_every_try(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("aiokafka.client")
    with hushed():
        for number in range(5):
            logger.error("Unable connect to node %d", number)
    assert capsys.readouterr().err == "headrace: trouble with a broker, trying on: Unable connect to node 0\n"
    assert logging.getLogger("aiokafka").propagate


def test_security_settings_reach_aiokafka() -> None:
    given = SERVERS | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    for options in (producer_options(given, None), consumer_options(given, "billing")):
        assert options["security_protocol"] == "SASL_PLAINTEXT"
        assert options["sasl_mechanism"] == "SCRAM-SHA-256"
        assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("alice", "secret")


def test_the_admin_client_is_spared_what_it_does_not_know() -> None:
    given = SERVERS | {
        "acks": "1",
        "auto.offset.reset": "earliest",
        "group.protocol": "classic",
        "client.id": "x",
    }
    assert for_admin(given) == SERVERS | {"client.id": "x"}
