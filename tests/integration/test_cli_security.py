"""The command gets in where TLS and a login are asked for: by a properties file, as Apache's tools take it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from tests.integration.test_client_security import Secured, password_of, secured

__all__ = ["secured"]
pytestmark = pytest.mark.needs_kafka


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result.stdout if status == 0 else result.stderr


def properties(secured: Secured, path: Path, **changes: str) -> str:
    settings = {
        "bootstrap.servers": secured.kafka.address_of("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": password_of("SCRAM-SHA-512"),
        "ssl.truststore.location": secured.ca,
        "ssl.truststore.type": "PEM",
    } | changes
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def test_every_kind_of_client_gets_in_by_a_properties_file(
    secured: Secured, unique: str, tmp_path: Path
) -> None:
    how = ("--command-config", properties(secured, tmp_path / "client.properties"))
    run("topic", "create", unique, *how)
    run("produce", unique, "--perf", "--count", "3", "--size", "5", *how)
    taken = run("consume", unique, "-g", unique, "--from-beginning", "--max", "3", "-f", "%o\\n", *how)
    assert taken.split() == ["0", "1", "2"]
    plain = ("--consumer-group", "-g", f"{unique}-c", "--from-beginning", "--max", "3", "-f", "%o\\n")
    assert run("consume", unique, *plain, *how).split() == ["0", "1", "2"]
    assert [line.split()[4] for line in run("group", "describe", unique, *how).splitlines()[1:]] == ["0"]


def test_a_wrong_password_is_told_with_the_cure(secured: Secured, tmp_path: Path) -> None:
    how = (
        "--command-config",
        properties(secured, tmp_path / "client.properties", **{"sasl.password": "wrong"}),
    )
    said = run("topic", "list", *how, status=1)
    assert "Check sasl.username, sasl.password and sasl.mechanism" in said
    assert len(said.splitlines()) <= 2
