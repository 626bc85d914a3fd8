"""`headrace user`: users that log in with SCRAM, on any Kafka."""

import sys
from typing import Annotated

import typer

from headrace.cli.confirming import Yes, confirm
from headrace.cli.failures import Refused
from headrace.cli.options import CommandConfig, Json, Server, Settings, client_settings, open_admin
from headrace.cli.render import print_json, print_table

app = typer.Typer(help="Add, list and delete users that log in with SCRAM.", no_args_is_help=True)
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The name of the user.")]


@app.command()
def add(
    user: UserArgument,
    mechanism: Annotated[
        str, typer.Option("--mechanism", "-m", metavar="NAME", help="SCRAM-SHA-256 or SCRAM-SHA-512.")
    ] = "SCRAM-SHA-512",
    iterations: Annotated[
        int,
        typer.Option(
            metavar="N", min=4096, max=16_384, help="The number of iterations of the hash of the password."
        ),
    ] = 4096,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
) -> None:
    """Add a user, or change a user's password.

    The password is asked for, or read from the standard input.

    \b
    headrace user add alice
    headrace user add alice < password.txt
    """
    password = _read_password(user)
    with open_admin(client_settings(server, settings, command_config)) as admin:
        admin.set_user_password(user, password, mechanism=mechanism, iterations=iterations)
    typer.echo(f"User {user} can log in with {mechanism}.")


def _read_password(user: str) -> str:
    if sys.stdin.isatty():
        password: str = typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise Refused("the password must not be empty; write it to the standard input, in one line.")
    return password


@app.command("list")
def list_users(
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List users and the mechanisms that they can log in with.

    \b
    headrace user list
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        users = admin.list_users()
    if json:
        print_json(users)
        return
    rows = [
        (user.name, mechanism, str(iterations))
        for user in users
        for mechanism, iterations in user.credentials.items()
    ]
    print_table(["USER", "MECHANISM", "ITERATIONS"], rows)


@app.command()
def delete(
    user: UserArgument,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism", "-m", metavar="NAME", help="Only this mechanism.", show_default="all of them"
        ),
    ] = None,
    yes: Yes = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete a user. Connections that are open stay open.

    \b
    headrace user delete alice --yes
    """
    confirm(f"delete user {user}", yes=yes)
    with open_admin(client_settings(server, settings, command_config)) as admin:
        admin.delete_user(user, mechanism=mechanism)
    typer.echo(f"Deleted user {user}.")
