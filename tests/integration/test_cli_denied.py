"""`headrace consume` as a user who may do only what `headrace acl add --share-consumer` gives."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import Broker
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from headrace.cli.app import app

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}


def run(login: Path, *arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--command-config", str(login)])
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


@pytest.fixture
def logins(tmp_path: Path) -> Iterator[dict[str, Path]]:
    users = {"admin": "admins secret", "kitchen": "kitchens secret"}
    with Broker(settings=SETTINGS, users=users) as broker:
        files = {name: tmp_path / f"{name}.properties" for name in users}
        for name, password in users.items():
            files[name].write_text(
                f"bootstrap.servers={broker.bootstrap_servers}\nsecurity.protocol=SASL_PLAINTEXT\n"
                f"sasl.mechanism=SCRAM-SHA-256\nsasl.username={name}\nsasl.password={password}\n"
            )
        run(files["admin"], "topic", "create", "orders")
        run(files["admin"], "produce", "orders", "--perf", "--count", "3", "--size", "5")
        allowed = ("--allow", "User:kitchen", "--share-consumer", "--topic", "orders", "--group", "kitchen")
        run(files["admin"], "acl", "add", *allowed)
        yield files


CONSUME = ("consume", "orders", "-g", "kitchen", "--from-beginning", "--max", "3", "-f", "%o\\n")


def test_the_right_that_from_the_beginning_needs_is_named(logins: dict[str, Path]) -> None:
    said = run(logins["kitchen"], *CONSUME, status=1)
    assert "headrace acl add --allow User:NAME --operation alter_configs --group kitchen" in said
    run(logins["admin"], "acl", "add", "--allow", "User:kitchen", "-o", "alter_configs", "--group", "kitchen")
    assert run(logins["kitchen"], *CONSUME).split() == ["0", "1", "2"]


def test_a_group_that_an_administrator_has_set_up_is_consumed_with_read_alone(
    logins: dict[str, Path],
) -> None:
    run(logins["admin"], "group", "config", "set", "kitchen", "share.auto.offset.reset=earliest")
    assert run(logins["kitchen"], *(each for each in CONSUME if each != "--from-beginning")).split() == [
        "0",
        "1",
        "2",
    ]
