"""The benchmark's listeners with TLS: one cipher suite, and the driver's own requests go over them."""

from pathlib import Path

import pytest

from bench.brokers import Headrace, Policy
from bench.encryption import SUITE, Encryption, WrongSuite, make_encryption, require_suite
from bench.wire import answers
from headrace.wire.messages.metadata_request import MetadataRequest


@pytest.fixture
def encryption(tmp_path: Path) -> Encryption:
    return make_encryption(tmp_path)


@pytest.mark.parametrize("is_limited", [True, False])
def test_a_broker_must_refuse_all_cipher_suites_but_one(
    encryption: Encryption, tmp_path: Path, is_limited: bool
) -> None:
    """The settings alone leave our broker with all suites of OpenSSL."""
    environment = encryption.environment if is_limited else {}
    broker = Headrace(tmp_path, bytecode=tmp_path / "bytecode", tls=encryption.settings, env=environment)
    try:
        running = broker.start(Policy.PAGE_CACHE)
        if is_limited:
            assert require_suite(running.tls_servers, encryption.ca) == SUITE
        else:
            with pytest.raises(WrongSuite, match="must choose"):
                require_suite(running.tls_servers, encryption.ca)
    finally:
        broker.stop()


def test_the_drivers_own_connection_goes_over_tls(encryption: Encryption, tmp_path: Path) -> None:
    broker = Headrace(tmp_path, bytecode=tmp_path / "bytecode", tls=encryption.settings)
    try:
        running = broker.start(Policy.PAGE_CACHE)
        assert not answers(running.tls_servers)
        with running.over_tls(encryption.ca).connect() as connection:
            (found,) = connection.ask(MetadataRequest(topics=()), 12).brokers
        assert f"{found.host}:{found.port}" == running.tls_servers
    finally:
        broker.stop()
