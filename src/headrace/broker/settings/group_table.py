"""Settings of a single group, kept under its id even before it exists: of consumer groups and of share groups."""

from typing import Any

from headrace.base.settings import ConfigType as Type
from headrace.base.settings import Value
from headrace.broker.settings.durations import duration_ms
from headrace.broker.settings.setting import Scope, ScopedSetting, row

BY_DURATION = "by_duration:"


def _bounded(name: str, default: int, minimum: int, doc: str) -> ScopedSetting:
    """One that has a broker setting for its default, and two more for its bounds."""
    kind, _, rest = name.partition(".")
    bounds = (f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")
    return row(
        Scope.GROUP,
        name,
        Type.INT,
        default,
        doc,
        f"group.{name}",
        minimum=minimum,
        is_dynamic=True,
        bounds=bounds,
    )


def _own(name: str, kind: Type, default: Value, doc: str, *, allowed: str = "", **rest: Any) -> ScopedSetting:
    """One that the broker has no default for."""
    check = _offset_reset if name == "share.auto.offset.reset" else None
    return row(
        Scope.GROUP, name, kind, default, doc, is_dynamic=True, allowed_text=allowed, check=check, **rest
    )


def _offset_reset(value: Value) -> str | None:
    text = str(value)
    if text in ("earliest", "latest"):
        return None
    if text.startswith(BY_DURATION) and duration_ms(text.removeprefix(BY_DURATION)) is not None:
        return None
    return (
        f"Invalid value `{text}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
        f"'latest' or of the format '{BY_DURATION}<PnDTnHnMn.nS>'."
    )


_CONSUMER = (
    _bounded(
        "consumer.session.timeout.ms",
        45_000,
        1,
        "A member that sends no heartbeat for this long is removed from the group.",
    ),
    _bounded("consumer.heartbeat.interval.ms", 5000, 1, "The heartbeat interval of members."),
    _bounded(
        "consumer.assignment.interval.ms", 1000, 0, "Shortest time between two assignments of the group."
    ),
)

_SHARE = (
    _bounded(
        "share.session.timeout.ms", 45_000, 1,
        "A member that sends no heartbeat for this long is removed from the share group."
    ),
    _bounded("share.heartbeat.interval.ms", 5000, 1, "The heartbeat interval of members."),
    _bounded(
        "share.assignment.interval.ms", 1000, 0, "Shortest time between two assignments of the share group."
    ),
    _bounded(
        "share.record.lock.duration.ms", 30_000, 1000,
        "How long a record stays locked to the consumer it was delivered to.",
    ),
    _bounded(
        "share.delivery.count.limit", 5, 2, "The maximum number of deliveries of a record before it is archived."
    ),
    _bounded(
        "share.partition.max.record.locks", 2000, 100,
        "How many records of one partition may be in flight for the group.",
    ),
    _own(
        "share.auto.offset.reset", Type.STRING, "latest",
        "Where the group starts in a partition that it has not read: `earliest`, `latest`, or an age.",
        allowed="earliest, latest, by_duration:PnDTnHnMn.nS",
    ),
    _own(
        "share.isolation.level", Type.STRING, "read_uncommitted",
        "Whether records of open and aborted transactions are delivered (`read_uncommitted`) or not "
        "(`read_committed`).",
        choices=("read_committed", "read_uncommitted"),
    ),
    _own(
        "share.renew.acknowledge.enable", Type.BOOLEAN, True,
        "Whether consumers may renew the lock of a record.",
    ),
    _own(
        "errors.deadletterqueue.topic.name", Type.STRING, "",
        "The topic for records that were rejected or delivered too often. Empty: they are only archived.",
    ),
    _own(
        "errors.deadletterqueue.copy.record.enable", Type.BOOLEAN, False,
        "Whether key, value and headers are copied to the dead-letter topic, or only the position of the record.",
    ),
)  # fmt: skip

GROUP_SETTINGS: tuple[ScopedSetting, ...] = (*_CONSUMER, *_SHARE)
