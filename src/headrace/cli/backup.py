"""`headrace backup`: a consistent copy of a running broker's data directory."""

import json as codec
import os
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.failures import Refused
from headrace.cli.options import Json
from headrace.cli.render import count, print_json

DEFAULT_DATA = Path("headrace-data")
SOCKET_PATH_MAX = 103
"""On macOS; Linux takes 4 more."""


def backup(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="The directory for the copy. It must be new or empty.")
    ],
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="The data directory of the broker, on this machine.",
            show_default="./headrace-data",
        ),
    ] = DEFAULT_DATA,
    json: Json = False,
) -> None:
    """Make a consistent copy of a running broker's data.

    The broker makes the copy and continues to serve clients. To restore the
    copy, start a broker with it: headrace serve --data TARGET.

    \b
    headrace backup /mnt/backup/monday
    headrace backup /mnt/backup/monday --data /var/lib/headrace
    """
    answers = _ask(data, {"command": "backup", "target": str(target.absolute())})
    answer = next(iter(deque(answers, maxlen=1)), {})
    if "error" in answer:
        raise Refused(str(answer["error"]))
    if "partitions" not in answer:
        raise Refused(f"the broker has stopped meanwhile; {target} is incomplete; remove it")
    if json:
        print_json({"target": str(target.absolute()), **answer})
    else:
        copied = f"{count(answer['partitions'], 'partition')}, {count(answer['bytes'], 'byte')}"
        typer.echo(f"Copied to {target}: {copied}.")


def _ask(data: Path, request: dict[str, str]) -> Iterator[dict[str, Any]]:
    from headrace.broker.control import CONTROL

    if not data.is_dir():
        raise Refused(f"there is no directory {data}; name the broker's data directory with --data DIR")
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(data / CONTROL))
        except (FileNotFoundError, ConnectionRefusedError):
            raise Refused(
                f"no broker is running with {data}; a stopped broker's directory can be copied as it is"
            ) from None
        except PermissionError:
            raise Refused(f"{data / CONTROL} can be opened only by the broker's user") from None
        except OSError as error:
            if len(os.fsencode(data / CONTROL)) > SOCKET_PATH_MAX:
                raise Refused(
                    f"the path {data / CONTROL} is too long for a socket (more than {SOCKET_PATH_MAX} bytes); "
                    "stop the broker and copy its directory, or give it one with a shorter path"
                ) from None
            raise Refused(f"{data / CONTROL} cannot be reached: {error.strerror or error}") from None
        try:
            connection.sendall(codec.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                for line in stream:
                    yield codec.loads(line)
        except ConnectionError:
            return
