"""`headrace schedule`: the records of a queue that are sent later."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.text import printable_lines
from headrace.cli.failures import Refused, say
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    client_settings,
    complete_group,
    open_admin,
)
from headrace.cli.render import print_json, print_table

if TYPE_CHECKING:
    from headrace.worker.schedule import Schedule, Scheduled

app = typer.Typer(help="List and cancel records that a queue sends later.", no_args_is_help=True)
VALUE_MAX = 40
Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group of the queue.", autocompletion=complete_group)
]


@app.command("list")
def list_scheduled(
    group: Group,
    most: Annotated[
        int, typer.Option("--max", metavar="N", min=1, help="At most this many, the next due first.")
    ] = 100,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List the scheduled records of a group, those due next first.

    \b
    headrace schedule list mailers
    headrace schedule list mailers --max 1000 --json
    """
    found = _open(client_settings(server, settings, command_config), group).upcoming(most)
    if json:
        print_json([_row(each) for each in found])
        return
    if not found:
        say(f"group {group} has no scheduled records")
        return
    print_table(
        ("AT", "TOPIC", "KEY", "VALUE", "ID"),
        [
            (
                each.at.strftime("%Y-%m-%d %H:%M:%S"),
                each.topic,
                printable_lines(_text(each.key)),
                printable_lines(_text(each.value)[:VALUE_MAX]),
                each.id,
            )
            for each in found
        ],
    )


@app.command()
def cancel(
    group: Group,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The IDs, as `schedule list` shows them.")
    ],
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
) -> None:
    """Cancel scheduled records of a group.

    \b
    headrace schedule cancel mailers 19a9482f0e8-3c1f0a9b2d4e5f60
    """
    from headrace.worker.errors import QueueError

    schedule = _open(client_settings(server, settings, command_config), group)
    try:
        done = schedule.cancel_many(ids)
    except QueueError as error:
        raise Refused(str(error)) from None
    say(f"{len(done.canceled)} of {len(set(ids))} canceled")
    problems = []
    if done.late:
        problems.append(f"already due, may have been sent: {', '.join(done.late)}")
    if done.unknown:
        problems.append(
            f"not scheduled in group {group} (canceled or sent before, or of another group; "
            f"`headrace schedule list {group}` shows what is): {', '.join(done.unknown)}"
        )
    if problems:
        raise Refused("\n".join(problems))


def _open(settings: dict[str, Any], group: str) -> "Schedule":
    from headrace.worker.schedule import Schedule

    with open_admin(settings):  # says what is wrong when no broker can be reached
        return Schedule(settings, group)


def _row(each: "Scheduled") -> dict[str, object]:
    return {
        "id": each.id,
        "at": each.at.isoformat(),
        "topic": each.topic,
        "key": _text(each.key) if each.key is not None else None,
        "value": _text(each.value) if each.value is not None else None,
    }


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")
