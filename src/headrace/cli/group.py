"""`headrace group`: the groups of consumers, share groups and others. Each larger command has a file of its own."""

from typing import Annotated

import typer

from headrace.cli import group_config, group_describe, group_reset, group_scale
from headrace.cli.confirming import Yes, confirm
from headrace.cli.failures import Refused, in_order
from headrace.cli.options import (
    CommandConfig,
    GroupName,
    GroupNames,
    Json,
    Server,
    Settings,
    client_settings,
    complete_topic,
    find_group,
    find_share_group,
    open_admin,
)
from headrace.cli.render import print_json, print_table

app = typer.Typer(
    cls=in_order("list", "describe", "scale", "config", "reset", "delete-offsets", "delete"),
    help="List, describe, scale, reset, delete and configure groups of consumers.",
    no_args_is_help=True,
)
app.command("describe")(group_describe.describe)
app.command("reset")(group_reset.reset)
app.command("scale")(group_scale.scale)
app.add_typer(group_config.app, name="config")


@app.command("list")
def list_groups(
    type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="share, consumer, classic or streams. Can be repeated."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="For example Empty or Stable. Can be repeated."),
    ] = None,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List groups, with their type and state.

    \b
    headrace group list
    headrace group list --type share --state Empty
    """
    from headrace.client.admin.results import parse_choice
    from headrace.wire.enums import GroupState, GroupType

    try:
        types = [parse_choice(GroupType, one) for one in type or ()]
        states = [parse_choice(GroupState, one) for one in state or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with open_admin(client_settings(server, settings, command_config)) as admin:
        groups = admin.list_groups(type=types, state=states)
    if json:
        print_json(groups)
    elif groups:
        rows = [(group.group_id, group.type.capitalize(), group.protocol, group.state) for group in groups]
        print_table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)
    else:
        typer.echo("There are no such groups. A group exists once a consumer has joined it.", err=True)


@app.command()
def delete(
    groups: GroupNames,
    yes: Yes = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Delete groups and their offsets. The groups must have no members.

    \b
    headrace group delete mailers
    headrace group delete mailers --yes       # in scripts
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        for group_id in groups:
            find_group(admin, group_id)
        noun = "group" if len(groups) == 1 else "groups"
        confirm(f"delete {noun} {', '.join(groups)} and all offsets", yes=yes)
        admin.delete_groups(groups)
    if json:
        print_json({"deleted": groups})
    else:
        names = ", ".join(f"'{group_id}'" for group_id in groups)
        typer.echo(f"Deletion of requested groups ({names}) was successful.")


@app.command("delete-offsets")
def delete_offsets(
    group: GroupName,
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="A topic. Can be repeated.", autocompletion=complete_topic
        ),
    ],
    yes: Yes = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Delete the offsets of a share group for some topics.

    The group then reads these topics like a new group.

    \b
    headrace group delete-offsets mailers --topic emails
    """
    from headrace.client.admin import SomeFailedError
    from headrace.wire.errors import KafkaError

    failed: dict[str, KafkaError] = {}
    with open_admin(client_settings(server, settings, command_config)) as admin:
        find_share_group(admin, group)
        confirm(f"delete the offsets of group {group} for {', '.join(topics)}", yes=yes)
        try:
            admin.delete_share_group_offsets(group, topics)
        except SomeFailedError as error:
            failed = error.errors
    rows = [(topic, f"Error: {failed[topic]}" if topic in failed else "Successful") for topic in topics]
    if json:
        print_json([{"topic": topic, "status": status} for topic, status in rows])
    else:
        print_table(("TOPIC", "STATUS"), rows)
    if failed:
        raise Refused(f"{len(failed)} of {len(topics)} topics could not be forgotten.")
