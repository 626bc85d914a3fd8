"""`headrace demo`: which stories are played, and the account at the end, which is an assertion."""

import enum
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import CommandConfig, Server, Settings

if TYPE_CHECKING:
    from headrace.cli.demo.orders import Account
    from headrace.cli.demo.world import World


class Story(enum.StrEnum):
    ALL = "all"
    QUEUE = "queue"
    SPARK = "spark"
    POISON = "poison"
    SCALE = "scale"
    FAILOVER = "failover"


def demo(
    story: Annotated[
        Story, typer.Option(help="One part alone, instead of the queue and the pipeline.")
    ] = Story.ALL,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep broker, dashboard and results until Ctrl+C.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", file_okay=False, help="Leave data and results here.", show_default="removed"
        ),
    ] = None,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
) -> None:
    """Run the demo: share consumers, Spark killed and restarted, dead letters, and a final count of every record.

    Without -b it starts its own broker. It exits with status 1 if a record is lost or counted twice.

    \b
    headrace demo
    headrace demo --keep                          and look at the dashboard
    headrace demo --story scale -b kafka:9092
    """
    from headrace.cli.demo.world import opened
    from headrace.cli.options import client_settings

    given = server is not None or settings or command_config is not None
    started = time.monotonic()
    for name in (signal.SIGINT, signal.SIGTERM):  # also where a shell has started it with Ctrl+C ignored
        signal.signal(name, _interrupt)
    chosen = client_settings(server, settings, command_config) if given else {}
    with opened(chosen, folder=folder, is_embedded=not given) as world:
        where = world.settings["bootstrap.servers"]
        if world.broker is not None:
            world.say(f"A broker of its own listens on {where} after {world.broker_start_ms:.0f} ms.")
        else:
            world.say(f"On the Kafka at {where}, with topics and groups named {world.name('...')}")
        # A dashboard looks into the broker of this process, which that story takes down.
        address = None if story is Story.FAILOVER else world.open_dashboard()
        if address is not None:
            world.say(f"Watch it on {address}")
        accounts = _play(story, world)
        world.say("\n[bold]The account.[/bold]")
        for account in accounts:
            for line in account.lines():
                world.say(f"   {line}")
        is_right = all(account.holds for account in accounts)
        world.say(
            f"   Nothing lost, nothing twice. {time.monotonic() - started:.0f} s in all."
            if is_right
            else "   The account does NOT hold: this is a fault in Headrace, please report it."
        )
        if keep or folder is not None:
            world.say(f"   What is left of it lies in {world.folder}.")
        if keep:
            world.say(f"   The dashboard is on {address}. Ctrl+C ends." if address else "   Ctrl+C ends.")
            signal.pause()
    raise typer.Exit(0 if is_right else 1)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _play(story: Story, world: "World") -> "list[Account]":
    from headrace.cli.demo import failover_story, pipeline_story, poison_story, queue_story, scale_story

    match story:
        case Story.ALL:
            pipeline_story.require_spark()
            accounts = queue_story.play(world)
            topic = world.topic("orders")
            return accounts + pipeline_story.play(world, topic=topic, produced=queue_story.ORDERS)
        case Story.QUEUE:
            return queue_story.play(world)
        case Story.SPARK:
            return pipeline_story.play(world)
        case Story.POISON:
            return poison_story.play(world)
        case Story.SCALE:
            return scale_story.play(world)
        case Story.FAILOVER:
            return failover_story.play(world)
