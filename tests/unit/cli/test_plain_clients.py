"""Kafka's names become aiokafka's words; what does not fit is refused with its name."""

import logging

import pytest

from headrace.cli.failures import Refused
from headrace.cli.plain_clients import consumer_options, for_admin, hushed

SERVERS = {"bootstrap.servers": "localhost:9092"}


def test_a_consumer_commits_only_what_was_printed() -> None:
    options = consumer_options(
        SERVERS | {"isolation.level": "read_committed", "check.crcs": "false"}, "billing"
    )
    assert (options["group_id"], options["enable_auto_commit"]) == ("billing", False)
    assert (options["isolation_level"], options["check_crcs"]) == ("read_committed", False)


def test_the_protocol_that_aiokafka_lacks_is_refused_with_the_reason() -> None:
    with pytest.raises(Refused, match="supports only the classic protocol"):
        consumer_options(SERVERS | {"group.protocol": "consumer"}, "billing")


def test_aiokafka_tells_of_trouble_once_and_not_at_every_try(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("aiokafka.client")
    with hushed():
        for number in range(5):
            logger.error("Unable connect to node %d", number)
    assert (
        capsys.readouterr().err
        == "headrace: a broker does not respond, still trying: Unable connect to node 0\n"
    )
    assert logging.getLogger("aiokafka").propagate


def test_security_settings_reach_aiokafka() -> None:
    given = SERVERS | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    options = consumer_options(given, "billing")
    assert options["security_protocol"] == "SASL_PLAINTEXT"
    assert options["sasl_mechanism"] == "SCRAM-SHA-256"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("alice", "secret")


def test_the_admin_client_is_spared_what_it_does_not_know() -> None:
    given = SERVERS | {
        "auto.offset.reset": "earliest",
        "group.protocol": "classic",
        "client.id": "x",
    }
    assert for_admin(given) == SERVERS | {"client.id": "x"}
