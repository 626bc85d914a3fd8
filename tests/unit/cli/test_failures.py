"""Whatever goes wrong in a command is told in a line or two, with the right exit status, and no traceback."""

import pytest
import typer
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.errors import KafkaError as AiokafkaError
from typer.testing import CliRunner

from headrace.cli.failures import CommandGroup, Refused
from headrace.client.errors import ConfigError, error_for
from headrace.wire.errors import ErrorCode


def fail_with(error: BaseException, **environment: str) -> "tuple[int, str, str]":
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None: ...

    @app.command()
    def go() -> None:
        raise error

    result = CliRunner(env=environment).invoke(app, ["go"])
    return result.exit_code, result.stdout, result.stderr


def with_note(error: Exception, note: str) -> Exception:
    error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refused("no; do this"), "no; do this"),
        (ConfigError("client.idd is unknown"), "client.idd is unknown"),
        (ValueError("limit must be >= 1, got 0"), "limit must be >= 1, got 0"),
        (
            FileNotFoundError(2, "No such file or directory", "orders.txt"),
            "orders.txt: No such file or directory",
        ),
        (with_note(Refused("late."), "Tried for 15 s."), "late. Tried for 15 s."),
    ],
)
def test_what_was_foreseen_is_told_in_its_own_words(error: Exception, told: str) -> None:
    assert fail_with(error) == (1, "", f"headrace go: {told}\n")


def test_a_broker_s_refusal_names_its_cure() -> None:
    code, out, err = fail_with(error_for(ErrorCode.NON_EMPTY_GROUP, about="group 'kitchen'"))
    assert (code, out) == (1, "")
    assert err.startswith("headrace go: group 'kitchen': ")
    assert "Stop the group's members first" in err


def test_aiokafka_s_errors_get_our_words_for_kafka_s_codes() -> None:
    assert (
        "needs READ (or what it wants to do) on the group"
        in fail_with(GroupAuthorizationFailedError("kitchen"))[2]
    )
    assert fail_with(AiokafkaError("odd"))[2].startswith("headrace go: ")


def test_a_fault_of_ours_says_so_and_how_to_see_more() -> None:
    code, _, err = fail_with(ZeroDivisionError("division by zero"))
    assert code == 1
    assert "ZeroDivisionError: division by zero" in err
    assert "HEADRACE_TRACEBACK=1" in err
    assert "Traceback" not in err


def test_a_fault_shows_where_it_happened_when_asked_to() -> None:
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None: ...

    @app.command()
    def go() -> None:
        raise ZeroDivisionError

    result = CliRunner(env={"HEADRACE_TRACEBACK": "1"}).invoke(app, ["go"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_ctrl_c_is_told_by_the_exit_status_alone() -> None:
    assert fail_with(KeyboardInterrupt()) == (130, "", "")


def test_a_reader_that_went_away_is_no_failure() -> None:
    assert fail_with(BrokenPipeError()) == (0, "", "")


def test_exit_statuses_and_usage_errors_stay_as_they_are() -> None:
    assert fail_with(typer.Exit(7))[0] == 7
    code, _, err = fail_with(typer.BadParameter("choose one"))
    assert code == 2
    assert "choose one" in err
