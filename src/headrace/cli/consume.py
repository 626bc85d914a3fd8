"""`headrace consume`: takes records from topics and prints them, as a member of a share group or of a consumer group.

What is printed is acknowledged after it was written out, never before: a reader that goes away loses nothing.
"""

import os
import select
import stat
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import Refused, say
from headrace.cli.formats import VALUE, VERBOSE, VERBOSE_CONSUMER, Format, Shown, json_line, parse_format
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    TopicNames,
    client_settings,
    complete_group,
    find_topic,
    open_admin,
)
from headrace.cli.render import count

if TYPE_CHECKING:
    from headrace.client.admin import Admin

SHARE_GROUP, CONSUMER_GROUP = "console-share-consumer", "console-consumer"
CLIENT_ID = "headrace-consume"
RESET = "share.auto.offset.reset"


def consume(
    topics: TopicNames,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help=f"The group to join. Default: {SHARE_GROUP}.",
            show_default=False,
            autocompletion=complete_group,
        ),
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept each record: it is processed. This is the default.")
    ] = False,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="Release each record: it is delivered again, up to the delivery limit of the group.",
        ),
    ] = False,
    reject: Annotated[
        bool,
        typer.Option(
            "--reject",
            help="Reject each record: it is not delivered again and goes to the dead-letter topic, if there is one.",
        ),
    ] = False,
    implicit: Annotated[
        bool,
        typer.Option(
            "--implicit/--explicit", help="Acknowledge records with the next poll, or each record separately."
        ),
    ] = False,
    consumer_group: Annotated[
        bool, typer.Option("--consumer-group", help="Join a consumer group instead of a share group.")
    ] = False,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Start a new group at the oldest record instead of the next one."
        ),
    ] = False,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", min=1, help="Stop after this number of records.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="Stop if no record arrives for this long."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="TEXT",
            help="As kcat's: %t %p %o %T %k %s %h %K %S %R, %D %A, \\n \\t \\xNN.",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Also print the timestamp, partition, offset, delivery count, headers and key.",
        ),
    ] = False,
    perf: Annotated[
        bool, typer.Option("--perf", help="Print the throughput instead of the records.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Consume records as a member of a share group and print them. Each record goes to one member.

    In --format, %D is the delivery count of the record and %A the end of
    its lock in milliseconds since 1970. --json prints one object per line.

    \b
    headrace consume orders --group kitchen
    headrace consume orders -g kitchen --from-beginning --timeout 5
    headrace consume orders -g kitchen --release --max 1 -f '%o %D: %s\\n'
    headrace consume orders -g billing --consumer-group --json
    """
    given = client_settings(server, settings, command_config)
    given.setdefault("client.id", CLIENT_ID)
    given_group = given.pop("group.id", None)
    group_id = group or given_group or (CONSUMER_GROUP if consumer_group else SHARE_GROUP)
    implicit |= given.pop("share.acknowledgement.mode", "").lower() == "implicit"
    if accept + release + reject > 1:
        raise typer.BadParameter("choose one of --accept, --release and --reject")
    if implicit and (release or reject):
        raise typer.BadParameter("--implicit accepts everything; leave it out to release or reject")
    if consumer_group and (accept or release or reject or implicit):
        raise typer.BadParameter(
            "--accept, --release, --reject and --implicit are for share groups; a consumer group has only offsets"
        )
    out = Output(
        chosen_format(format, verbose=verbose, json=json, is_share=not consumer_group), perf, maximum
    )
    if consumer_group:
        from headrace.cli import consume_plain

        with open_admin(consume_plain.for_admin(given)) as admin:
            _require(admin, topics, group_id, ("consumer", "classic"))
            _warn_of_members(admin, topics, group_id, is_share=False)
        if from_beginning:
            given["auto.offset.reset"] = "earliest"
        consume_plain.run(given, topics, group_id, out, timeout)
    else:
        from headrace.cli import consume_shared

        with open_admin(given) as admin:
            _require(admin, topics, group_id, ("share",))
            _warn_of_members(admin, topics, group_id, is_share=True)
            _prepare(admin, topics, group_id, from_beginning)
        answer = "release" if release else "reject" if reject else "accept"
        consume_shared.run(given, topics, group_id, out, timeout, None if implicit else answer)
    out.end()


class Output:
    """Where records go: printed in a format, or only counted."""

    def __init__(self, form: Format, perf: bool, maximum: int | None) -> None:
        self._form = form
        self._perf = perf
        self._maximum = maximum
        self.records = self.bytes = 0
        self._began = time.time()
        self._first_at = self._last_at = 0.0

    @property
    def left(self) -> int | None:
        """How many more are wanted; None without a limit."""
        return None if self._maximum is None else self._maximum - self.records

    def emit(self, records: Iterable[Shown]) -> None:
        """Written out when it returns. BrokenPipeError if nobody reads any more."""
        taken = list(records)
        if not self._perf:
            sys.stdout.buffer.write(b"".join(self._form(record) for record in taken))
            sys.stdout.buffer.flush()
        self._last_at = time.time()
        self._first_at = self._first_at or self._last_at
        self.records += len(taken)
        self.bytes += sum(len(record.key or b"") + len(record.value or b"") for record in taken)

    def require_reader(self) -> None:
        """BrokenPipeError if nobody reads our output any more (`| head`); while nothing comes, no write would tell."""
        if stat.S_ISFIFO(os.fstat(1).st_mode):
            poll = select.poll()
            poll.register(1, select.POLLERR)
            if any(event & select.POLLERR for _, event in poll.poll(0)):
                raise BrokenPipeError

    def end(self) -> None:
        if self._perf:
            self._print_figures()
        say(f"Processed a total of {self.records} messages")

    def _print_figures(self) -> None:
        """The columns of kafka-share-consumer-perf-test.sh."""
        ended = self._last_at or time.time()
        seconds = max(ended - self._began, 1e-9)
        megabytes = self.bytes / 2**20
        typer.echo(
            "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
        )
        typer.echo(
            f"{_moment(self._began)}, {_moment(ended)}, {megabytes:.4f}, {megabytes / seconds:.4f}, "
            f"{self.records / seconds:.4f}, {self.records}, {(ended - (self._first_at or ended)) * 1000:.0f}"
        )


def chosen_format(text: str | None, *, verbose: bool, json: bool, is_share: bool) -> Format:
    if json + verbose + (text is not None) > 1:
        raise typer.BadParameter("choose one of --format, --verbose and --json")
    if json:
        return json_line
    if text is None:
        text = VALUE if not verbose else VERBOSE if is_share else VERBOSE_CONSUMER
    try:
        return parse_format(text, is_share=is_share)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None


def _require(admin: "Admin", topics: list[str], group_id: str, types: tuple[str, ...]) -> None:
    """A consumer would wait for ever for a topic that is not there."""
    for name in topics:
        find_topic(admin, name)
    other = [one for one in admin.list_groups() if one.group_id == group_id and one.type.value not in types]
    if other:
        cure = (
            "use --consumer-group to join it"
            if types == ("share",)
            else "leave out --consumer-group to join it"
        )
        raise Refused(f"{group_id!r} is a {other[0].type} group; {cure}, or choose another with --group.")


def _warn_of_members(admin: "Admin", topics: list[str], group_id: str, *, is_share: bool) -> None:
    """Whoever joins a group that is at work takes part of its work away."""
    from headrace.wire.errors import KafkaError

    try:
        describe = admin.describe_share_group if is_share else admin.describe_consumer_group
        members = len(describe(group_id).members)
    except KafkaError:
        return  # it is new, or may not be looked at: whoever joins it will be told
    if members:
        say(
            f"Group {group_id!r} has {count(members, 'member')} that will not get the records printed here. "
            f"`headrace read {topics[0]}` looks without joining."
        )


def _prepare(admin: "Admin", topics: list[str], group_id: str, from_beginning: bool) -> None:
    """Where a new share group starts is a setting of the group; tell those who may wait for nothing."""
    from headrace.client.errors import AuthorizationError, GroupIdNotFoundError

    try:
        offsets = admin.share_group_offsets(group_id, topics)
        is_new = all(one.start_offset is None for one in offsets.values())
    except GroupIdNotFoundError:
        is_new = True
    try:
        starts_at = admin.group_config(group_id)[RESET].value
        if from_beginning and is_new and starts_at != "earliest":
            admin.set_group_config(group_id, {RESET: "earliest"})
            say(f"Set {RESET}=earliest for group {group_id!r}.")
            return
    except AuthorizationError:
        if from_beginning and is_new:
            raise Refused(
                f"--from-beginning sets {RESET} of group {group_id!r}, which this user is not allowed to do. A user "
                f"with the permission can set it: headrace group config set {group_id} {RESET}=earliest. "
                f"Or grant the permission: headrace acl add --allow User:NAME --operation alter_configs "
                f"--group {group_id}"
            ) from None
        starts_at = None  # whoever may only read can do without the hint
    if from_beginning and not is_new:
        say(
            f"Group {group_id!r} exists already and continues where it is; "
            f"`headrace group reset {group_id} --to-earliest --execute` starts over."
        )
    elif is_new and starts_at == "latest":
        say(
            f"Group {group_id!r} is new and gets what is produced from now on; "
            "--from-beginning starts with what is there."
        )


def _moment(seconds: float) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    return f"{stamp}:{int(seconds * 1000) % 1000:03d}"
