"""The group's window, which bounds a micro-batch whose records stay locked: it is raised where nobody has set it.

Kafka lets a group lock 2,000 records of a partition by default, and up to 4,000 where its administrator has not allowed
more. A micro-batch has no more records than are locked, so a small window means many small micro-batches. What
anybody has set, for the group or for the brokers, stays as it is; and a query that accepts records ahead (`ahead.py`)
needs no larger window.

Nobody can see later who has set it. So it is raised at once to all that a query can use, whatever the one that raises
it needs by its own options: another query of the group, or the same one with other options, would have to take a value
in between for somebody's choice. A larger window costs nothing by itself: no member locks more than it has room for.
"""

import logging

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.admin.results import ConfigEntry
from headrace.spark.advice import WINDOW
from headrace.spark.options import SourceOptions
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.spark")
LOCKS = 2_000
"""Kafka's default."""
LOCKS_MAX = "group.share.max.partition.max.record.locks"
LOCKS_ALLOWED = 4_000
"""And its default, for brokers that do not show it."""
LOCKS_WANTED = 100_000
"""Of a partition: more does not make micro-batches faster."""


async def fit_window(
    admin: AsyncAdmin, options: SourceOptions, found: ConfigEntry | None, *, partitions: int
) -> int | None:
    """How many records of a partition the group may lock from now on; None if that cannot be read."""
    if found is None or found.value is None:
        return None
    locks, wanted = int(found.value), locks_wanted(options, partitions)
    if options.takes_ahead or not found.is_default or wanted <= locks:
        return locks
    allowed = await _allowed(admin)
    raised = min(LOCKS_WANTED, allowed)
    if raised <= locks:
        return locks
    group = options.group
    try:
        await admin.set_group_config(group, {WINDOW: raised})
    except KafkaError as error:
        logger.warning(
            "Group %s may lock %d records of a partition, so a micro-batch has at most %d. More would make it faster, "
            "but this query may not change that (%s). Ask an administrator to run `headrace group config set %s "
            "%s=%d`, or use acknowledge=handoff with checkpointLocation, which does not need it.",
            *(group, locks, locks * partitions, error, group, WINDOW, raised),
        )
        return locks
    more = ""
    if raised < wanted:
        more = f" For larger ones, raise {LOCKS_MAX} in the brokers' settings, and {WINDOW} of the group."
    logger.warning(
        "%s of group %s is set to %d, which was %d by default: a micro-batch has at most as many records of a "
        "partition.%s To have another value, set it: `headrace group config set %s %s=%d`.",
        *(WINDOW, group, raised, locks, more, group, WINDOW, locks),
    )
    return raised


def locks_wanted(options: SourceOptions, partitions: int) -> int:
    """Of each partition: for the micro-batch that runs, and the one that comes after it."""
    per_trigger = options.records_per_trigger
    if per_trigger is None:
        return LOCKS_WANTED
    held = per_trigger if options.records_held is None else options.records_held
    return min(LOCKS_WANTED, -(-(per_trigger + held) // max(partitions, 1)))


async def _allowed(admin: AsyncAdmin) -> int:
    try:
        entry = (await admin.broker_config()).get(LOCKS_MAX)
    except KafkaError:
        entry = None
    return LOCKS_ALLOWED if entry is None or entry.value is None else int(entry.value)
