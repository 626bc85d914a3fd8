"""What cannot be undone is asked for: `--yes` for scripts, a question for people."""

import sys
from typing import Annotated

import typer

from headrace.cli.failures import Refused

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(what: str, *, yes: bool) -> None:
    """Returns if it may be done; `what` begins with a verb: "delete topic orders (5 records)"."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"this would {what}, which cannot be undone. Use --yes to confirm.")
    if not typer.confirm(f"{what[0].upper()}{what[1:]}? This cannot be undone.", err=True):
        raise Refused("nothing was done.")
