"""`headrace explain`: why a record is not being delivered to a share group."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failures import Refused
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    client_settings,
    complete_group,
    find_share_group,
    find_topic,
    open_admin,
)
from headrace.cli.render import plain, print_json
from headrace.cli.state_live import ask_dashboard

if TYPE_CHECKING:
    from headrace.client.admin import Admin

LIMIT = "share.delivery.count.limit"


def explain(
    record: Annotated[
        str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="The record, such as orders/0/17.")
    ],
    group: Annotated[
        str,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="The share group.", autocompletion=complete_group
        ),
    ],
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Ask the dashboard of a broker (`headrace serve --http`), which knows holders and locks.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            envvar="HEADRACE_WEB_TOKEN",
            help="The token of the dashboard, if it requires one.",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Say why a record is, or is not, being delivered to a share group.

    Without --http, this uses the written state of the group. Only
    the broker itself knows which member holds a record, and since when.

    \b
    headrace explain orders/0/17 --group kitchen
    headrace explain orders/0/17 --group kitchen --http localhost:8080
    """
    topic, partition, offset = parse_record(record)
    if http is not None:
        place = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        found = ask_dashboard(http, "/record", place, token)
    else:
        with open_admin(client_settings(server, settings, command_config)) as admin:
            found = _written(admin, group, topic, partition, offset)
    if json:
        print_json(found)
        return
    typer.echo(plain(f"{topic}-{partition}@{offset} is {found['state']} for {group}."))
    typer.echo(plain(found["explanation"]))


def parse_record(text: str) -> tuple[str, int, int]:
    topic, partition, offset = [*text.split("/"), "", ""][:3]
    if text.count("/") != 2 or not topic or not partition.isdecimal() or not offset.isdecimal():
        raise Refused(f"{text!r} is not a record; expected TOPIC/PARTITION/OFFSET, such as orders/0/17.")
    return topic, int(partition), int(offset)


def _written(admin: "Admin", group_id: str, topic: str, partition: int, offset: int) -> dict[str, Any]:
    from headrace.client.admin.explain import explain as explained
    from headrace.client.admin.explain import member_name

    find_share_group(admin, group_id)
    find_topic(admin, topic)
    view = admin.share_state(group_id, [(topic, partition)]).get((topic, partition))
    if view is None:
        raise Refused(f"group {group_id!r} has no state for {topic}-{partition}: it has not read it yet.")
    members = admin.describe_share_group(group_id).members
    limit = admin.group_config(group_id).get(LIMIT)
    why = explained(
        view,
        offset,
        delivery_limit=int(limit.value) if limit is not None and limit.value else None,
        names={one.member_id: member_name(one.client_id, one.host) for one in members},
        members=len(members),
        readers=sum((topic, partition) in one.assignment for one in members),
    )
    return {"group_id": group_id, "topic": topic, "partition": partition, "offset": offset} | {
        "state": why.state,
        "explanation": why.text,
        "is_live": False,
    }
