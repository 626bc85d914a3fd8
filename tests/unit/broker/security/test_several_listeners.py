"""A broker with several listeners: each answers with its own advertised address."""

import logging

import pytest
from kafka import KafkaAdminClient

from headrace import Broker


def test_clients_are_told_the_address_of_the_listener_they_came_in_on() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INNER://localhost:0",
        "listener.security.protocol.map": "INNER:PLAINTEXT",
    }
    with Broker(settings=settings) as broker:
        assert broker.address_of("PLAINTEXT") == broker.bootstrap_servers
        assert broker.address_of("inner").startswith("localhost:")
        assert broker.address_of("INNER") != broker.bootstrap_servers.replace("127.0.0.1", "localhost")
        for name in ("PLAINTEXT", "INNER"):
            admin = KafkaAdminClient(bootstrap_servers=broker.address_of(name))
            [node] = admin.describe_cluster()["brokers"]
            admin.close()
            assert f"{node['host']}:{node['port']}" == broker.address_of(name)


def test_the_log_says_where_a_broker_is_open_to_everybody(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OPEN://0.0.0.0:0",
        "listener.security.protocol.map": "OPEN:PLAINTEXT",
    }
    with caplog.at_level(logging.INFO, "headrace.broker"), Broker(settings=settings):
        pass
    said = [each.getMessage() for each in caplog.records if each.getMessage().startswith("listener ")]
    assert said[0].endswith("protocol=PLAINTEXT open to everybody on this machine")
    assert said[1].endswith("protocol=PLAINTEXT open to everybody who can reach it")
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith("listener OPEN://0.0.0.0:")
    assert "SASL_SSL" in warning
