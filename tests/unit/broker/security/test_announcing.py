"""The warnings at start about listeners that others can reach."""

import logging

import pytest

from headrace.broker.security.announcing import announce
from headrace.broker.security.listeners import read_listeners
from headrace.broker.settings import Settings

AUDIENCE = "sasl.oauthbearer.expected.audience"
ISSUER = "sasl.oauthbearer.expected.issuer"
KEYS = "sasl.oauthbearer.jwks.endpoint.url"


def warnings(
    caplog: pytest.LogCaptureFixture, address: str, mechanism: str = "PLAIN", **more: str
) -> list[str]:
    audience = {AUDIENCE: "kafka"} if "OAUTHBEARER" in mechanism else {}
    settings = Settings({"listeners": address, "sasl.enabled.mechanisms": mechanism, **(more or audience)})
    [listener] = read_listeners(settings)
    announce(settings, listener)
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-512,PLAIN"])
def test_what_others_could_log_in_with_should_be_encrypted(
    caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    [warning] = warnings(caplog, "SASL_PLAINTEXT://10.0.0.1:9092", mechanism)
    assert "passwords or tokens cross the network unencrypted" in warning


@pytest.mark.parametrize(
    ("address", "mechanism"),
    [
        ("SASL_SSL://10.0.0.1:9092", "PLAIN"),
        ("SASL_PLAINTEXT://10.0.0.1:9092", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT://127.0.0.1:9092", "OAUTHBEARER"),
        ("PLAINTEXT://localhost:9092", "PLAIN"),
    ],
)
def test_there_is_no_warning_without_a_danger(
    caplog: pytest.LogCaptureFixture, address: str, mechanism: str
) -> None:
    assert warnings(caplog, address, mechanism) == []


@pytest.mark.parametrize("address", ["PLAINTEXT://0.0.0.0:9092", "SSL://10.0.0.1:9092"])
def test_a_listener_without_a_login_is_open_to_everybody(
    caplog: pytest.LogCaptureFixture, address: str
) -> None:
    [warning] = warnings(caplog, address)
    assert "everybody who can reach it may use it, without a login" in warning


@pytest.mark.parametrize("more", [{}, {ISSUER: "https://login.example.com"}], ids=["nothing", "issuer"])
def test_tokens_for_other_services_are_accepted_without_an_audience(
    caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    [warning] = warnings(
        caplog, "SASL_SSL://10.0.0.1:9092", "OAUTHBEARER", **{KEYS: "file:///keys.json", **more}
    )
    assert "every token that is signed with a key of file:///keys.json is accepted" in warning
    assert f"Set {AUDIENCE}" in warning


def test_the_audience_of_a_single_listener_counts(caplog: pytest.LogCaptureFixture) -> None:
    own = f"listener.name.sasl_ssl.oauthbearer.{AUDIENCE}"
    assert warnings(caplog, "SASL_SSL://10.0.0.1:9092", "OAUTHBEARER", **{own: "kafka"}) == []
