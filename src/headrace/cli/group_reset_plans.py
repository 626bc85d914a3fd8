"""Offsets that `headrace group reset` takes from elsewhere: from a file, or from another group (KIP-1323).

The file is the one that `kafka-share-groups.sh` and `kafka-consumer-groups.sh` write with --export and read with
--from-file: a line of `topic,partition,offset` for each partition, or of `group,topic,partition,offset`.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from headrace.cli.failures import Refused
from headrace.wire.ids import TopicAndPartition

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.admin.results import OffsetChange

FORM = "expected TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET"


def read_plan(path: str, group: str) -> dict[TopicAndPartition, int]:
    """The offsets for one group; `-` is the standard input."""
    try:
        if path == "-":
            return parse_plan(sys.stdin, group)
        with open(path, newline="", encoding="utf-8") as lines:
            return parse_plan(lines, group)
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="--from-file") from None


def parse_plan(lines: Iterable[str], group: str) -> dict[TopicAndPartition, int]:
    plan: dict[TopicAndPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        key, offset = _parse_row(number, row, group)
        if key in plan:
            raise _wrong(number, row, f"partition {key[1]} of {key[0]!r} is named twice")
        plan[key] = offset
    if not plan:
        raise typer.BadParameter("the file has no lines", param_hint="--from-file")
    return plan


def _parse_row(number: int, row: Sequence[str], group: str) -> tuple[TopicAndPartition, int]:
    if len(row) == 4 and row[0] != group:
        raise _wrong(number, row, f"it is for group {row[0]!r}, not for {group!r}")
    try:
        topic, partition, offset = row[-3], int(row[-2]), int(row[-1])
    except (ValueError, IndexError):
        raise _wrong(number, row, FORM) from None
    if len(row) > 4 or not topic or partition < 0 or offset < 0:
        raise _wrong(number, row, FORM)
    return (topic, partition), offset


def _wrong(number: int, row: Sequence[str], reason: str) -> typer.BadParameter:
    return typer.BadParameter(f"line {number} ({','.join(row)!r}): {reason}", param_hint="--from-file")


def offsets_of_group(admin: "Admin", group: str) -> dict[TopicAndPartition, int]:
    """Where a consumer group, or a share group, would continue."""
    types = [one.type.value for one in admin.list_groups() if one.group_id == group]
    if not types:
        raise Refused(f"group {group!r} does not exist; 'headrace group list' shows all groups.")
    if types[0] == "share":
        found = {
            key: one.start_offset
            for key, one in admin.share_group_offsets(group).items()
            if one.start_offset is not None
        }
    else:
        committed = admin.describe_consumer_group(group).offsets
        found = {key: one.offset for key, one in committed.items() if one.offset is not None}
    if not found:
        raise Refused(f"group {group!r} has no offsets.")
    return found


def export(changes: Iterable["OffsetChange"]) -> None:
    """As the file that --from-file reads."""
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerows((one.topic, one.partition, one.after) for one in changes)
