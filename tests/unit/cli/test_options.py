"""How commands are told where the brokers are: what wins over what, and what they say when nobody is there."""

import socket
from pathlib import Path

import pytest
import typer

from headrace.cli.failures import Refused
from headrace.cli.options import (
    API_MS_DEFAULT,
    assignments,
    client_settings,
    open_admin,
    pairs,
    require_listener,
)
from headrace.client.errors import ConfigError


def test_without_a_word_it_is_the_local_broker_and_a_person_s_patience() -> None:
    assert client_settings(None, None, None) == {
        "bootstrap.servers": "localhost:9092",
        "default.api.timeout.ms": str(API_MS_DEFAULT),
    }


def test_the_option_wins_over_x_and_x_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=file\nclient.rack=file\n")
    given = ["bootstrap.servers=x:2", "client.id=x"]
    assert client_settings(None, None, file)["bootstrap.servers"] == "file:1"
    assert client_settings(None, given, file)["bootstrap.servers"] == "x:2"
    settings = client_settings("option:3", given, file)
    assert (settings["bootstrap.servers"], settings["client.id"], settings["client.rack"]) == (
        "option:3",
        "x",
        "file",
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.properties"):
        client_settings(None, None, tmp_path / "nowhere.properties")


def test_values_may_hold_equals_signs_and_the_last_one_wins() -> None:
    assert assignments(["a=1", "b=c=d", "a=2", "e="], "-X") == {"a": "2", "b": "c=d", "e": ""}


def test_headers_may_repeat_their_names() -> None:
    assert pairs(["a=1", "a=2"], "--header") == [("a", "1"), ("a", "2")]


@pytest.mark.parametrize("wrong", ["novalue", "=x", " =x"])
def test_what_is_no_assignment_is_named(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not KEY=VALUE"):
        assignments([wrong], "-X")


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"did you mean client\.id"):
        open_admin(client_settings(None, ["client.idd=x"], None))


def test_where_nobody_listens_all_addresses_are_named_with_the_cure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(Refused) as caught:
        require_listener([("127.0.0.1", free), ("no-such-host.invalid", 9092)])
    said = str(caught.value)
    assert f"127.0.0.1:{free} (connection refused)" in said
    assert "no-such-host.invalid:9092 (no such host)" in said
    assert "headrace serve" in said


def test_one_address_where_somebody_listens_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_listener([("no-such-host.invalid", 9092), server.getsockname()[:2]])
