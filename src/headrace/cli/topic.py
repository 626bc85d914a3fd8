"""`headrace topic`: make, list, look at, change and delete topics."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.confirming import Yes, confirm
from headrace.cli.failures import Refused
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    TopicName,
    TopicNames,
    assignments,
    client_settings,
    find_topic,
    open_admin,
)
from headrace.cli.render import count, plain, print_json, print_table, size_text

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.admin.results import TopicDescription

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting. Can be repeated."),
]


@app.command()
def create(
    topics: TopicNames,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", min=1, help="The number of partitions.")
    ] = 1,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="N",
            min=1,
            help="The number of replicas of each partition.",
            show_default="the default of the brokers",
        ),
    ] = None,
    configs: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic already exists.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Create topics.

    \b
    headrace topic create orders --partitions 2
    headrace topic create audit -c retention.ms=86400000 -c segment.ms=3600000
    """
    from headrace.client.errors import TopicExistsError

    wanted = assignments(configs, "--config")
    created, existing = [], []
    with open_admin(client_settings(server, settings, command_config)) as admin:
        for name in topics:
            try:
                created.append(
                    admin.create_topic(
                        name, partitions, replication_factor=replication_factor or -1, configs=wanted
                    )
                )
            except TopicExistsError:
                if not if_not_exists:
                    raise Refused(
                        f"topic {name!r} exists already; use --if-not-exists to ignore that."
                    ) from None
                existing.append(name)
    if json:
        print_json(created)
        return
    for topic in created:
        typer.echo(f"Created topic {topic.name} with {count(len(topic.partitions), 'partition')}.")
    for name in existing:
        typer.echo(f"Topic {name} exists already.")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List topics with their records and their size on disk.

    SIZE counts all replicas. RECORDS is the distance between the oldest and
    the next offset, so in compacted topics there are fewer.

    \b
    headrace topic list
    headrace topic list --internal --json
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        topics = _all_topics(admin, internal)
        sizes = _sizes(admin)
    if json:
        print_json([{**plain(one), "records": _records(one), "bytes": sizes.get(one.name)} for one in topics])
    elif topics:
        print_table(
            ("TOPIC", "PARTITIONS", "REPLICATION-FACTOR", "RECORDS", "SIZE"),
            [
                (
                    one.name,
                    len(one.partitions),
                    one.replication_factor,
                    _records(one),
                    size_text(sizes.get(one.name)),
                )
                for one in topics
            ],
        )
    else:
        typer.echo("There are no topics yet. `headrace topic create NAME` makes one.", err=True)


@app.command()
def describe(
    topics: TopicNames,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every setting, not only those that were changed.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the partitions of a topic, their records and the topic's settings.

    \b
    headrace topic describe orders
    headrace topic describe orders --verbose
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        for name in topics:
            find_topic(admin, name)
        described = admin.describe_topics(topics, offsets=True)
        configs = {name: admin.topic_config(name) for name in topics}
    shown = {
        name: {
            key: entry for key, entry in entries.items() if verbose or entry.source.name == "DYNAMIC_TOPIC"
        }
        for name, entries in configs.items()
    }
    if json:
        print_json([{"topic": described[name], "configs": list(shown[name].values())} for name in topics])
        return
    for number, name in enumerate(topics):
        topic = described[name]
        records = sum((one.end_offset or 0) - (one.start_offset or 0) for one in topic.partitions)
        if number:
            typer.echo()
        typer.echo(
            f"Topic {name}: {count(len(topic.partitions), 'partition')}, {count(records, 'record')}, "
            f"replication factor {topic.replication_factor}, id {topic.topic_id}"
        )
        for key, entry in shown[name].items():
            typer.echo(f"  {key}={'(hidden)' if entry.is_sensitive else entry.value}")
        print_table(
            ("PARTITION", "LEADER", "REPLICAS", "ISR", "START-OFFSET", "END-OFFSET"),
            [
                (
                    one.partition,
                    one.leader,
                    ",".join(map(str, one.replicas)),
                    ",".join(map(str, one.isr)),
                    one.start_offset,
                    one.end_offset,
                )
                for one in topic.partitions
            ],
        )


@app.command()
def alter(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="The new number of partitions. It can only grow."
        ),
    ] = None,
    configs: Configs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Reset a setting to its default. Can be repeated."),
    ] = None,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Add partitions to a topic or change its settings.

    \b
    headrace topic alter orders --partitions 4
    headrace topic alter orders -c retention.ms=3600000 --unset cleanup.policy
    """
    changes: dict[str, str | None] = {**assignments(configs, "--config"), **dict.fromkeys(unset or [])}
    if partitions is None and not changes:
        raise typer.BadParameter("nothing to change: use --partitions, --config or --unset")
    with open_admin(client_settings(server, settings, command_config)) as admin:
        before = find_topic(admin, topic)
        if changes:
            admin.set_topic_config(topic, changes)
        if partitions is not None and partitions != len(before.partitions):
            admin.create_partitions(topic, partitions)
        after = admin.describe_topics([topic])[topic]
    if json:
        print_json(after)
    else:
        typer.echo(f"Changed topic {topic}.")


@app.command()
def delete(
    topics: TopicNames,
    yes: Yes = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Delete topics and all their records. This cannot be undone.

    \b
    headrace topic delete orders audit
    headrace topic delete orders --yes        # in scripts
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        for name in topics:
            find_topic(admin, name)
        described = admin.describe_topics(topics, offsets=True)
        records = sum(_records(topic) or 0 for topic in described.values())
        names = ", ".join(topics)
        confirm(f"delete {_noun(topics, 'topic')} {names} with {count(records, 'record')}", yes=yes)
        admin.delete_topics(topics)
    if json:
        print_json({"deleted": topics})
    else:
        typer.echo(f"Deleted {', '.join(topics)}.")


def _all_topics(admin: "Admin", internal: bool) -> "list[TopicDescription]":
    """With offsets. One that is deleted between the two questions is left out."""
    from headrace.client.admin import SomeFailedError
    from headrace.client.errors import UnknownTopicOrPartitionError

    names = [topic.name for topic in admin.list_topics(internal=internal)]
    try:
        return list(admin.describe_topics(names, offsets=True).values())
    except (UnknownTopicOrPartitionError, SomeFailedError):
        return admin.list_topics(internal=internal)


def _records(topic: "TopicDescription") -> int | None:
    """None if an offset is not known."""
    offsets = [(one.start_offset, one.end_offset) for one in topic.partitions]
    known = [end - start for start, end in offsets if start is not None and end is not None]
    return sum(known) if len(known) == len(offsets) else None


def _sizes(admin: "Admin") -> dict[str, int]:
    """Bytes by topic, with all replicas; nothing where the user may not ask for it."""
    from headrace.client.errors import AuthorizationError

    sizes: dict[str, int] = {}
    try:
        disks = admin.disk_usage()
    except AuthorizationError:
        return sizes
    for disk in disks:
        for (topic, _), size in disk.sizes.items():
            sizes[topic] = sizes.get(topic, 0) + size
    return sizes


def _noun(names: list[str], noun: str) -> str:
    return noun if len(names) == 1 else f"{noun}s"
