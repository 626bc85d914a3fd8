"""`headrace topic`: make, list, look at, change and delete topics."""

from typing import Annotated

import typer

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
from headrace.cli.render import count, print_json, print_table

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting. Can be repeated."),
]


@app.command()
def create(
    topics: TopicNames,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="The number of partitions.")
    ] = 1,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
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
    headrace topic create audit -p 1 -c retention.ms=86400000 -c cleanup.policy=compact
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
                        f"topic {name!r} exists already; use it as it is, or say --if-not-exists."
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
    """List topics.

    \b
    headrace topic list
    headrace topic list --internal --json
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        topics = admin.list_topics(internal=internal)
    if json:
        print_json(topics)
    elif topics:
        rows = [(topic.name, len(topic.partitions), topic.replication_factor) for topic in topics]
        print_table(("TOPIC", "PARTITIONS", "REPLICATION-FACTOR"), rows)
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
        typer.Option("--partitions", "-p", min=1, help="The new number of partitions. It can only grow."),
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
        raise typer.BadParameter("say what to change: --partitions, --config or --unset")
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
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Delete topics and all their records. This cannot be undone.

    \b
    headrace topic delete orders audit
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        for name in topics:
            find_topic(admin, name)
        admin.delete_topics(topics)
    if json:
        print_json({"deleted": topics})
    else:
        typer.echo(f"Deleted {', '.join(topics)}.")
