"""Every option of every command has an environment variable, and what is typed wins."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headrace.cli import top
from headrace.cli.app import app
from headrace.cli.environment import LEFT_OUT


def options(command: Any) -> Iterator[Any]:
    yield from (one for one in command.params if one.param_type_name == "option")
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def test_every_option_has_a_variable_of_ours() -> None:
    found = [one for one in options(get_command(app)) if one.name not in LEFT_OUT]
    assert len(found) > 100
    assert all(str(one.envvar).startswith("HEADRACE_") for one in found)


def test_variables_are_named_after_the_command_and_the_option() -> None:
    serve = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    named = {one.name: one.envvar for one in serve.params}
    assert named["settings"] == "HEADRACE_SERVE_SET"
    assert named["log_format"] == "HEADRACE_SERVE_LOG_FORMAT"
    assert named["token"] == "HEADRACE_WEB_TOKEN"


@pytest.mark.parametrize(("typed", "interval"), [((), 7.0), (("--interval", "3"), 3.0)])
def test_what_is_typed_wins(monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], interval: float) -> None:
    seen: list[float] = []

    async def once(given: object, interval: float, json: bool) -> None:
        seen.append(interval)

    monkeypatch.setattr(top, "_once", once)
    monkeypatch.setattr(top, "require_listener", lambda addresses: None)
    ran = CliRunner(env={"HEADRACE_TOP_INTERVAL": "7"}).invoke(app, ["top", "--once", *typed])
    assert ran.exit_code == 0, ran.output
    assert seen == [interval]
