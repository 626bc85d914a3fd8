"""How commands fail: one or two lines on standard error that name the cure, and an exit status; never a traceback.

    0 done   1 it could not be done   2 the command line is wrong   130 interrupted by Ctrl+C

`CommandGroup` is the root of the command's tree, so every subcommand fails through it. A failure that nobody foresaw
is a fault of ours and says so; HEADRACE_TRACEBACK=1 shows where it came from.
"""

import contextlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from headrace.base.text import printable_lines

TRACEBACK_VARIABLE = "HEADRACE_TRACEBACK"
FAILED, INTERRUPTED = 1, 130


class Refused(Exception):
    """A command cannot do what was asked; the text is for the person who asked, and says what to do."""


class CommandGroup(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, typer.Abort):
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _stop_writing()
            raise typer.Exit(0) from None
        except Exception as error:
            is_the_parsers = hasattr(error, "exit_code")
            if is_the_parsers or os.environ.get(TRACEBACK_VARIABLE):
                raise
            say(f"headrace {ctx.invoked_subcommand}: {explain(error)}")
            raise typer.Exit(FAILED) from None


def in_order(*names: str) -> type[TyperGroup]:
    """A group whose help lists its commands in this order, and any others after them."""

    class InOrder(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            found = super().list_commands(ctx)
            return sorted(found, key=lambda name: names.index(name) if name in names else len(names))

    return InOrder


def _stop_writing() -> None:
    """Whoever read our output has seen enough (`| head`): what is left goes nowhere, and Python need not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):  # a stdout without a descriptor, in tests
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def say(text: str) -> None:
    """For people, beside what the command prints for pipes."""
    typer.echo(printable_lines(text), err=True)


def explain(error: Exception) -> str:
    from headrace.wire.errors import KafkaError

    match error:
        case Refused() | KafkaError() | ValueError():
            notes = getattr(error, "__notes__", [])
            return " ".join([str(error), *notes])
        case OSError():
            return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if type(error).__module__.startswith("aiokafka"):
        return _explain_aiokafka(error)
    return (
        f"{type(error).__name__}: {error}\nThis is a fault in Headrace, please report it; "
        f"{TRACEBACK_VARIABLE}=1 shows where it happened."
    )


def _explain_aiokafka(error: Any) -> str:
    """A code of Kafka's in our words, which name the cure; else what aiokafka says."""
    from headrace.client.errors import error_for

    code = getattr(error, "errno", None)
    if isinstance(code, int) and code > 0:
        return str(error_for(code))
    return str(error) or type(error).__name__
