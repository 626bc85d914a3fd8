"""`headrace demo`: which stories are played, and the account at the end, which is an assertion."""

import enum
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import Refused
from headrace.cli.options import CONNECTION, SERVER_VARIABLE, CommandConfig, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

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
        Story,
        typer.Option(
            metavar="STORY",
            help="Play one part instead of all acts: queue, spark, poison, scale or failover.",
        ),
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
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Start the broker with TLS, users (SCRAM) and ACLs. Needs openssl."),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            envvar=SERVER_VARIABLE,
            help="Play on these brokers, with topics and groups of its own.",
            show_default="a broker of its own",
            rich_help_panel=CONNECTION,
        ),
    ] = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
) -> None:
    """Run the demo: scale, failover, dead letters, Spark killed and restarted, and a final count of every record.

    Without -b it starts its own broker. It exits with status 1 if a record is
    lost or counted twice.

    \b
    headrace demo
    headrace demo --keep                          # and look at the dashboard
    headrace demo --secure                        # with TLS, users and ACLs
    headrace demo --story scale -b kafka:9092
    """
    from headrace.cli.options import client_settings

    given = server is not None or settings or command_config is not None
    for name in (signal.SIGINT, signal.SIGTERM):  # also where a shell has started it with Ctrl+C ignored
        signal.signal(name, _interrupt)
    if secure and given:
        raise Refused(
            "--secure is for the demo's own broker; use --command-config for a login to another one"
        )
    chosen = client_settings(server, settings, command_config) if given else {}
    if not given:  # the first thing on the screen: a busy machine takes seconds for the next one
        typer.echo("Starting a broker and its dashboard.")
    is_right = run(story, chosen, folder=folder, is_embedded=not given, is_secure=secure, keep=keep)
    raise typer.Exit(0 if is_right else 1)


def run(
    story: Story,
    settings: "Mapping[str, str]",
    *,
    folder: Path | None = None,
    is_embedded: bool = True,
    is_secure: bool = False,
    keep: bool = False,
    console: "Console | None" = None,
) -> bool:
    """Plays it. False if the account does not hold."""
    from headrace.cli.demo.world import opened

    with opened(
        settings, folder=folder, is_embedded=is_embedded, is_secure=is_secure, console=console
    ) as world:
        _open(world)
        address = world.open_dashboard()
        if address is not None:
            world.say(f"The dashboard is on {address}")
        started = time.monotonic()
        accounts = _play(story, world)
        is_right = _settle(world, accounts, time.monotonic() - started)
        if keep or folder is not None:
            world.say(f"   What is left of it lies in {world.folder}.")
        if keep or (world.is_live and sys.stdin.isatty()):
            _stay(world, address, keep=keep)
    return is_right


def _open(world: "World") -> None:
    where = world.settings["bootstrap.servers"]
    if world.broker is not None:
        world.say(f"A broker listens on {where}, {world.broker.start_s:.1f} s after it was started.")
        if world.security is not None:
            _say_how_it_is_secured(world)
    else:
        world.say(f"On the Kafka at {where}, with topics and groups named {world.name('...')}")


def _say_how_it_is_secured(world: "World") -> None:
    """And that it is: what must be refused is tried."""
    from headrace.cli.demo.security import ADMIN, MECHANISM, SHOP
    from headrace.client.admin import Admin
    from headrace.client.errors import AuthenticationError, AuthorizationError

    world.say(f"It speaks TLS. Clients log in as {SHOP!r} with {MECHANISM}, and ACLs limit them.")
    try:
        with Admin({**world.settings, "sasl.username": ADMIN, "sasl.password": "a guess"}):
            raise Refused("a wrong password was accepted: this is a fault in Headrace, please report it")
    except AuthenticationError:
        world.say(f"   {ADMIN!r} with a wrong password is refused.")
    try:
        with Admin(world.settings) as shop:
            shop.create_topic("not-for-the-shop")
            raise Refused("a topic was created without permission: please report it")
    except AuthorizationError:
        world.say(f"   {SHOP!r} may not create topics.")


def _settle(world: "World", accounts: "list[Account]", seconds: float) -> bool:
    """The account of every story, and one line of them all that can be pasted."""
    world.say(f"\n[bold]{world.act()}The account.[/bold]")
    for account in accounts:
        for line in account.lines():
            world.say(f"   {line}")
    if not all(account.holds for account in accounts):
        world.say("   The account does NOT hold: this is a fault in Headrace, please report it.")
        return False
    orders = sum(account.produced for account in accounts)
    kills = f", {world.kills} kill -9" if world.kills else ""
    world.say("   Nothing lost, nothing twice.")
    world.say(f"\nheadrace demo: {orders:,} orders{kills}, 0 lost, 0 twice, in {seconds:.0f} s.", bold=True)
    return True


def _stay(world: "World", address: str | None, *, keep: bool) -> None:
    """The broker and its dashboard stay until a key is pressed, or Ctrl+C where there is no keyboard."""
    if address:  # on a line of its own, so that it can be copied
        world.say(f"The dashboard stays on {address}")
    if not sys.stdin.isatty():
        world.say("Ctrl+C ends it.")
        signal.pause()
    world.say("Press a key to end.")
    wait_for_key()


def wait_for_key() -> None:
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)
        sys.stdin.read(1)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _play(story: Story, world: "World") -> "list[Account]":
    from headrace.cli.demo import failover_story, pipeline_story, poison_story, queue_story, scale_story

    match story:
        case Story.ALL:
            return _play_all(world)
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


def _play_all(world: "World") -> "list[Account]":
    """Spark's start is hidden behind the other acts."""
    from headrace.cli.demo import failover_story, poison_story, scale_story
    from headrace.cli.demo.pipeline_story import Pipeline

    world.number_acts()
    with Pipeline(world) as pipeline:
        accounts = scale_story.play(world, on_started=pipeline.warm_up)
        accounts += failover_story.play(world)
        pipeline.warm_up()
        accounts += poison_story.play(world)
        return accounts + pipeline.play()
