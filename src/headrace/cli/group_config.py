"""`headrace group config`: the settings of a group, which its brokers act on at once."""

from typing import Annotated

import typer

from headrace.base.names import nearest
from headrace.cli.options import (
    CommandConfig,
    GroupName,
    Json,
    Server,
    Settings,
    assignments,
    client_settings,
    open_admin,
)
from headrace.cli.render import print_json, print_table

app = typer.Typer(help="Read and change the settings of a group.", no_args_is_help=True)


@app.command()
def get(
    group: GroupName,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these settings.")
    ] = None,
    all_types: Annotated[
        bool, typer.Option("--all", help="Include the settings of consumer and streams groups.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the settings of a group, and whether each was set or is a default of the broker.

    \b
    headrace group config get mailers
    headrace group config get mailers share.record.lock.duration.ms
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        entries = admin.group_config(group)
    for name in names or ():
        if name not in entries:
            raise typer.BadParameter(_unknown(name, list(entries)))
    shown = [
        entry
        for entry in entries.values()
        if entry.name in (names or ())
        or (not names and (all_types or not entry.name.startswith(("consumer.", "streams."))))
    ]
    if json:
        print_json(shown)
    else:
        rows = [
            (entry.name, entry.value, "this group" if entry.source.name == "GROUP" else "default")
            for entry in shown
        ]
        print_table(("NAME", "VALUE", "SET-BY"), rows)


@app.command("set")
def set_config(
    group: GroupName,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Reset a setting to its default. Can be repeated."),
    ] = None,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Change a group's settings, all of them or none. The group need not exist yet.

    \b
    headrace group config set mailers share.auto.offset.reset=earliest
    headrace group config set mailers share.record.lock.duration.ms=60000
    headrace group config set mailers --unset share.record.lock.duration.ms
    """
    wanted: dict[str, str | None] = {**assignments(changes, "KEY=VALUE"), **dict.fromkeys(unset or [])}
    if not wanted:
        raise typer.BadParameter("nothing to change: give KEY=VALUE or --unset KEY")
    with open_admin(client_settings(server, settings, command_config)) as admin:
        known = admin.group_config(group)
        for name in wanted:
            if known and name not in known:
                raise typer.BadParameter(_unknown(name, list(known)))
        admin.set_group_config(group, wanted)
        after = admin.group_config(group)
    if json:
        print_json([after[name] for name in wanted if name in after])
        return
    for name, value in wanted.items():
        shown = after[name].value if name in after else value
        typer.echo(f"{name}={shown}" + (" (its default)" if value is None else ""))


def _unknown(name: str, names: list[str]) -> str:
    near = nearest(name, names)
    return f"a group has no setting {name!r}" + (f"; did you mean {near!r}?" if near else "")
