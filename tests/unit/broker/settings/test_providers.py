"""Config providers: what a server.properties takes from the environment and from files, and what is refused."""

from pathlib import Path

import pytest

from headrace import Broker
from headrace.broker.settings import InvalidSettings, Settings, resolve_references
from tests.conformance.security.test_logins import plain, shake_hands
from tests.conformance.wire_client import WireClient

CLASSES = "org.apache.kafka.common.config.provider"
ENV = {"config.providers": "env", "config.providers.env.class": f"{CLASSES}.EnvVarConfigProvider"}
FILE = {"config.providers": "file", "config.providers.file.class": f"{CLASSES}.FileConfigProvider"}
DIRECTORY = {"config.providers": "dir", "config.providers.dir.class": f"{CLASSES}.DirectoryConfigProvider"}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secrets.properties").write_text("alice=wonder land\n")
    (tmp_path / "alice").write_text("wonder land")
    monkeypatch.setenv("ALICE", "wonder land")
    return tmp_path


def test_each_provider_finds_its_value(secrets: Path) -> None:
    assert resolve_references({**ENV, "x": "a ${env:ALICE} ${env:ALICE}"}) == {
        "x": "a wonder land wonder land"
    }
    assert resolve_references({**FILE, "x": f"${{file:{secrets}/secrets.properties:alice}}"}) == {
        "x": "wonder land"
    }
    assert resolve_references({**DIRECTORY, "x": f"${{dir:{secrets}:alice}}"}) == {"x": "wonder land"}


def test_what_names_no_provider_stays_as_it_is() -> None:
    assert resolve_references({"x": "${env:ALICE}"}) == {"x": "${env:ALICE}"}
    assert resolve_references({**ENV, "x": "${other:ALICE} $1 ${}"}) == {"x": "${other:ALICE} $1 ${}"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {**ENV, "x": "${env:NOT_THERE}"},
            r"x: \$\{env:NOT_THERE\} cannot be resolved: there is no such variable",
        ),
        (
            {**ENV, "config.providers.env.param.allowlist.pattern": "KAFKA_.*", "x": "${env:ALICE}"},
            "does not allow",
        ),
        ({**FILE, "x": "${file:/no/such/file:alice}"}, "No such file"),
        ({**FILE, "x": "${file:SECRETS/secrets.properties:bob}"}, "the file has no bob"),
        (
            {**FILE, "config.providers.file.param.allowed.paths": "/etc", "x": "${file:SECRETS/alice:a}"},
            "allowed.paths",
        ),
        ({**DIRECTORY, "x": "${dir:SECRETS:../alice}"}, "the name of a file in it"),
        ({"config.providers": "vault"}, "config.providers.vault.class is missing"),
        (
            {"config.providers": "v", "config.providers.v.class": "com.example.Vault"},
            "com.example.Vault is not supported",
        ),
    ],
)
def test_what_cannot_be_found_is_refused_by_name(
    secrets: Path, settings: dict[str, str], message: str
) -> None:
    given = {name: text.replace("SECRETS", str(secrets)) for name, text in settings.items()}
    with pytest.raises(InvalidSettings, match=message):
        Settings(given)


def test_a_password_in_a_jaas_line_comes_from_the_environment(secrets: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="${env:ALICE}";'
    settings = {
        **ENV,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(settings=settings) as broker:
        for password, code in (("${env:ALICE}", 58), ("wonder land", 0)):
            with WireClient(broker.bootstrap_servers) as wire:
                shake_hands(wire)
                assert plain(wire, "alice", password).error_code == code
