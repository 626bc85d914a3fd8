"""What the commands have in common: how they are told where the brokers are, and how they get to them.

-b, --bootstrap-server    wins over HEADRACE_BOOTSTRAP_SERVER, which wins over -X and the file
-X key=value              a client setting by Kafka's name, wins over the file
--command-config FILE     a properties file of client settings, as Apache's tools take it
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.base.names import nearest
from headrace.cli.failures import Refused

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.admin.results import GroupListing, TopicDescription

DEFAULT_SERVER = "localhost:9092"
SERVER_VARIABLE = "HEADRACE_BOOTSTRAP_SERVER"
API_MS_DEFAULT = 15_000
"""A person waits in front of it: 15 seconds, not the minute of a program."""
CONNECT_S_MAX = 5.0
COMPLETION_MS_MAX = 1_500
CONNECTION = "Connection"


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, lambda admin: [topic.name for topic in admin.list_topics()])


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


Server = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar=SERVER_VARIABLE,
        help="A broker of the cluster, or several separated by commas.",
        show_default=DEFAULT_SERVER,
        rich_help_panel=CONNECTION,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        "-X",
        metavar="KEY=VALUE",
        help="A client setting, with its Kafka name. Can be repeated.",
        rich_help_panel=CONNECTION,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        dir_okay=False,
        help="A properties file with client settings. -X overrides it.",
        rich_help_panel=CONNECTION,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The name of the topic.", autocompletion=complete_topic)
]
TopicNames = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="The names of the topics.", autocompletion=complete_topic),
]
GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="The name of the group.", autocompletion=complete_group)
]
GroupNames = Annotated[
    list[str],
    typer.Argument(metavar="GROUP...", help="The names of the groups.", autocompletion=complete_group),
]


def pairs(given: Iterable[str] | None, option: str) -> list[tuple[str, str]]:
    """`key=value` each, in the order given."""
    found = []
    for one in given or ():
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{one!r} is not KEY=VALUE", param_hint=option)
        found.append((key.strip(), value))
    return found


def assignments(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """A key given twice takes its last value, as everywhere on command lines."""
    return dict(pairs(given, option))


def client_settings(server: str | None, given: list[str] | None, file: Path | None) -> dict[str, str]:
    """All that was said about how to connect, by Kafka's names."""
    from headrace.client.properties import read_properties

    settings = {"bootstrap.servers": DEFAULT_SERVER, "default.api.timeout.ms": str(API_MS_DEFAULT)}
    settings |= {} if file is None else read_properties(file)
    settings |= assignments(given, "-X")
    return settings if server is None else settings | {"bootstrap.servers": server}


def open_admin(settings: Mapping[str, str]) -> "Admin":
    """An admin client, for `with`. Refused at once, with the cure, where nobody listens."""
    from headrace.client.admin import Admin
    from headrace.client.settings import ClientSettings

    parsed = ClientSettings.parse(settings)
    require_listener(parsed.bootstrap_servers)
    return Admin(parsed)


def require_listener(addresses: Iterable[tuple[str, int]]) -> None:
    """Somebody listens at one of the addresses. A client would go on trying, for brokers that are starting."""
    import socket

    failures = []
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), timeout=CONNECT_S_MAX):
                return
        except socket.gaierror:
            failures.append(f"{host}:{port} (no such host)")
        except TimeoutError:
            failures.append(f"{host}:{port} (no answer in {CONNECT_S_MAX:.0f} s)")
        except OSError as error:
            failures.append(f"{host}:{port} ({(error.strerror or str(error)).lower()})")
    raise Refused(
        f"no broker can be reached at {', '.join(failures)}.\n"
        "Start one with `headrace serve`, or give its address with -b HOST:PORT."
    )


def find_topic(admin: "Admin", name: str) -> "TopicDescription":
    """The topic; Refused with the nearest name if there is none."""
    from headrace.client.errors import UnknownTopicOrPartitionError

    try:
        return admin.describe_topics([name])[name]
    except UnknownTopicOrPartitionError:
        names = [topic.name for topic in admin.list_topics()]
        raise Refused(
            f"there is no topic {name!r}{_nearest(name, names)} `headrace topic list` shows them all, "
            f"`headrace topic create {name}` makes it."
        ) from None


def find_group(admin: "Admin", group_id: str) -> "GroupListing":
    """Type and state of a group; Refused with the nearest name if there is none."""
    listings = {group.group_id: group for group in admin.list_groups()}
    if group_id not in listings:
        raise Refused(
            f"there is no group {group_id!r}{_nearest(group_id, listings)} `headrace group list` shows them all; "
            "a group exists once a consumer has joined it."
        )
    return listings[group_id]


def find_share_group(admin: "Admin", group_id: str) -> "GroupListing":
    from headrace.wire.enums import GroupType

    found = find_group(admin, group_id)
    if found.type is not GroupType.SHARE:
        raise Refused(
            f"{group_id!r} is a {found.type} group, and this is for share groups. "
            "`headrace group list --type share` shows those."
        )
    return found


def _nearest(name: str, names: Iterable[str]) -> str:
    near = nearest(name, names)
    return f"; did you mean {near!r}?" if near else "."


def _complete(ctx: typer.Context, incomplete: str, names: Callable[["Admin"], list[str]]) -> list[str]:
    """What the cluster knows, for the shell. Whatever goes wrong, a shell is not the place to say so."""
    try:
        given = ctx.params
        settings = client_settings(
            given.get("server"), given.get("settings"), given.get("command_config")
        ) | {"default.api.timeout.ms": str(COMPLETION_MS_MAX)}
        with open_admin(settings) as admin:
            return [name for name in names(admin) if name.startswith(incomplete)]
    except Exception:
        return []
