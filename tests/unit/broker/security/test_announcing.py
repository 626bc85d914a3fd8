"""The warnings at start about listeners that others can reach."""

import logging

import pytest

from headrace.broker.security.announcing import announce, announce_doubts
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


def doubts(caplog: pytest.LogCaptureFixture, **more: str) -> list[str]:
    settings = Settings({"listeners": "SASL_SSL://:9093,INNER://:9094,CONTROLLER://:9095", **MAPPED, **more})
    caplog.clear()
    announce_doubts(settings, read_listeners(settings))
    return [record.getMessage() for record in caplog.records]


MAPPED = {
    "listener.security.protocol.map": "INNER:SASL_SSL,CONTROLLER:SSL",
    "controller.listener.names": "CONTROLLER",
}


@pytest.mark.parametrize(("written", "meant"), [("innr", "inner"), ("zzz", "sasl_ssl or inner")])
def test_a_setting_of_a_listener_that_does_not_exist_is_doubted(
    caplog: pytest.LogCaptureFixture, written: str, meant: str
) -> None:
    assert doubts(caplog, **{f"listener.name.{written}.ssl.client.auth": "required"}) == [
        f"listener.name.{written}.ssl.client.auth has no effect: no listener has the name {written.upper()}. Add it to "
        f"listeners, or use the name of a listener: listener.name.{meant}.*"
    ]


@pytest.mark.parametrize("name", ["inner", "sasl_ssl", "controller"])
def test_settings_of_listeners_are_not_doubted(caplog: pytest.LogCaptureFixture, name: str) -> None:
    assert doubts(caplog, **{f"listener.name.{name}.ssl.client.auth": "required"}) == []


def test_super_users_with_commas_between_are_doubted(caplog: pytest.LogCaptureFixture) -> None:
    assert doubts(caplog, **{"super.users": "User:a, User:b;User:c"}) == [
        "super.users=User:a, User:b names a single principal. If it is meant to name 2, separate them with semicolons: "
        "super.users=User:a;User:b"
    ]
    assert doubts(caplog, **{"super.users": "User:CN=a,OU=b,O=c;User:d"}) == []
