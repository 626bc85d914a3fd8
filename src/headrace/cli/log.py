"""`headrace log`: check a data directory that no broker uses, and repair it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import Refused, say
from headrace.cli.options import Json
from headrace.cli.render import count, print_json, print_table

if TYPE_CHECKING:
    from headrace.log.checking import Report
    from headrace.log.disk import OsDisk

app = typer.Typer(help="Check and repair the data directory of a stopped broker.", no_args_is_help=True)
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The data directory, as given to `headrace serve --data`.")
]


@app.command()
def check(directory: Directory, json: Json = False) -> None:
    """Read every batch, index, snapshot and checkpoint of a data directory.

    Exit status 1 if anything is damaged. Nothing is changed. The broker must be stopped.

    \b
    headrace log check ./headrace-data
    """
    with _locked(directory, to_read=True) as disk:
        report = _check(disk)
    if json:
        print_json(_as_json(report))
    else:
        _print(report)
        if report.damages:
            say(f"`headrace log repair {directory}` shows what a repair would do.")
    if report.damages:
        raise typer.Exit(1)


@app.command()
def repair(
    directory: Directory,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Make the changes, or only show them.")
    ] = False,
    json: Json = False,
) -> None:
    """Remove damaged bytes from a data directory and list what is lost.

    Everything that is changed or removed is kept in DIR/quarantine. The next
    start checks all logs and rebuilds indexes and snapshots. The broker must
    be stopped.

    \b
    headrace log repair ./headrace-data
    headrace log repair ./headrace-data --execute
    """
    from headrace.log.checking import Cure
    from headrace.log.repairing import QUARANTINE, losses
    from headrace.log.repairing import repair as carry_out

    quarantine = f"{QUARANTINE}/{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    with _locked(directory) as disk:
        report = _check(disk)
        lost = losses(report)
        is_changed = execute and carry_out(disk, report, quarantine=quarantine)
    hopeless = [finding for finding in report.damages if finding.cure is Cure.BACKUP]
    if json:
        rows = [
            {
                "partition": loss.partition,
                "first_offset": loss.first_offset,
                "last_offset": loss.last_offset,
                "bytes": loss.bytes,
                "path": loss.path,
            }
            for loss in lost
        ]
        done = {"is_executed": execute, "quarantine": str(directory / quarantine) if is_changed else None}
        print_json({**_as_json(report), "lost": rows, **done})
    else:
        _print(report)
        for loss in lost:
            typer.echo(
                f"Lost: {loss.partition} offsets {loss.first_offset} to {loss.last_offset} "
                f"(at most {count(loss.offsets, 'record')}, {count(loss.bytes, 'byte')} of {loss.path})."
            )
        if is_changed:
            typer.echo(f"What was there before is in {directory / quarantine}.")
        elif report.damages and not execute:
            typer.echo("Dry run: nothing was changed. Use --execute to apply it.")
    if hopeless:
        raise Refused(f"{hopeless[0].path}: {hopeless[0].what}. {hopeless[0].cure.value.capitalize()}.")


@contextmanager
def _locked(directory: Path, *, to_read: bool = False) -> "Iterator[OsDisk]":
    from headrace.log.checking import METADATA
    from headrace.log.disk import DirectoryLocked, OsDisk
    from headrace.log.layout import META

    if not directory.is_dir():
        raise Refused(f"there is no directory {directory}")
    if not any((directory / name).exists() for name in (META, METADATA)):
        raise Refused(
            f"{directory} is not a data directory of a broker: it has neither {META} nor {METADATA}"
        )
    disk = OsDisk(directory, is_read_only=to_read)
    try:
        if to_read:
            disk.lock_to_read()
        else:
            disk.lock()
    except DirectoryLocked:
        raise Refused(f"{directory} is in use by a broker; stop it first") from None
    except OSError as error:
        why = f"{directory} cannot be locked: {error.strerror}"
        raise Refused(
            f"{why}; run the command as the broker's user, or on a copy that can be written"
        ) from None
    try:
        yield disk
    finally:
        disk.unlock()


def _check(disk: "OsDisk") -> "Report":
    from headrace.log.checking import NoDataDirectory, check

    try:
        return check(disk)
    except NoDataDirectory as error:
        raise Refused(str(error)) from None


def _as_json(report: "Report") -> dict[str, object]:
    return {
        "directory": report.directory,
        "was_clean": report.was_clean,
        "partitions": report.partitions,
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "bytes": report.size,
        "is_damaged": bool(report.damages),
        "findings": [
            {
                "path": finding.path,
                "partition": finding.partition,
                "what": finding.what,
                "is_damage": finding.is_damage,
                "cure": finding.cure.value,
            }
            for finding in report.findings
        ],
    }


def _print(report: "Report") -> None:
    if report.findings:
        rows = [
            (finding.path, "damaged" if finding.is_damage else "note", finding.what, finding.cure.value)
            for finding in report.findings
        ]
        print_table(("FILE", "", "WHAT", "CURE"), rows)
    ended = "clean" if report.was_clean else "not clean"
    typer.echo(
        f"{count(report.partitions, 'partition')}, {count(report.segments, 'segment')}, "
        f"{count(report.records, 'record')}, {count(report.size, 'byte')}; the last stop was {ended}. "
        f"{count(len(report.damages), 'damaged place')}."
    )
