"""Whether the group's settings suit a micro-batch engine; where they do not, advice with numbers. Pure."""

from collections.abc import Mapping

from headrace.spark.options import SourceOptions
from headrace.spark.settle import Acknowledge

LOCK_MS = "share.record.lock.duration.ms"
RENEWS = "share.renew.acknowledge.enable"
DELIVERIES = "share.delivery.count.limit"
WINDOW = "share.partition.max.record.locks"
DELIVERIES_MIN = 5
LOCK_MS_MIN = 10_000


def advise(config: Mapping[str, str | None], options: SourceOptions, *, partitions: int) -> list[str]:
    """One sentence for each thing to change, best first. A config that the broker does not show is passed over."""
    found = {name: value for name in (LOCK_MS, RENEWS, DELIVERIES, WINDOW) if (value := config.get(name))}
    group = options.group
    change = f"`headrace group config set {group} {{}}`"
    advice: list[str] = []
    lock_ms = int(found.get(LOCK_MS, 30_000))
    if options.acknowledge is Acknowledge.COMMIT:
        if found.get(RENEWS) == "false":
            advice.append(
                f"Group {group} does not allow renewals, so every micro-batch must be committed within {lock_ms} ms, "
                f"or its records go to other members too. Allow them with {change.format(RENEWS + '=true')}, or "
                "use acknowledge=handoff."
            )
        elif lock_ms < LOCK_MS_MIN:
            advice.append(
                f"Locks of group {group} last {lock_ms} ms; a pause of the driver that long loses them. Give them "
                f"more time with {change.format(f'{LOCK_MS}=30000')}."
            )
    window = int(found[WINDOW]) * partitions if WINDOW in found else None
    wanted = options.records_per_trigger
    if window is not None and wanted is not None and wanted > window and not options.takes_ahead:
        advice.append(
            f"maxRecordsPerTrigger={wanted} cannot be reached: group {group} lets {found[WINDOW]} records be locked in "
            f"each of {partitions} partitions, {window} in all. Raise it with "
            f"{change.format(f'{WINDOW}={-(-wanted // partitions)}')} (if the broker allows it), add partitions, or "
            "use acknowledge=handoff with checkpointLocation."
        )
    if DELIVERIES in found and int(found[DELIVERIES]) < DELIVERIES_MIN:
        advice.append(
            f"Group {group} gives up a record after {found[DELIVERIES]} deliveries, and a crash before Spark logs a "
            "micro-batch costs each of its records one. Allow more with "
            f"{change.format(f'{DELIVERIES}={DELIVERIES_MIN}')}."
        )
    return advice
