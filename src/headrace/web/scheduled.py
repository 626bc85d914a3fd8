"""The scheduled records of a group for pages and API: one page of them, and how one is canceled."""

import asyncio
import math

from headrace.web.bodies import PREVIEW_MAX, body_of
from headrace.web.model import (
    SCHEDULED_ID_MAX,
    SCHEDULED_MAX,
    SCHEDULED_PAGES_MAX,
    TOPIC_NAME_MAX,
    CancelScheduled,
    Done,
    ScheduledChoice,
    ScheduledPage,
    ScheduledRow,
)
from headrace.web.rendering import short
from headrace.web.schedules import GroupSchedule, ScheduledRecord
from headrace.web.site import NotThere, Site, TooLate

SCHEDULED_S = 5.0
"""How old an answer may be: looking means reading what waits."""
LOOK_S_MAX = 10.0
CANCEL_S_MAX = 30.0


def has_schedule(site: Site, group_id: str) -> bool:
    """By the topics that were sampled: no request."""
    if site.source.open_schedule is None:
        return False
    topic = site.source.open_schedule(group_id).topic
    return any(row.name == topic for row in site.overview.topics)


async def scheduled_page(site: Site, choice: ScheduledChoice) -> ScheduledPage:
    schedule = _schedule(site, choice.group)

    async def find() -> ScheduledPage | TimeoutError:
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                return await _look(schedule, choice)
        except TimeoutError as error:  # is kept, too: what took too long is not tried again at once
            return TimeoutError(
                str(error)
                or f"what is scheduled in group {choice.group} cannot be read within {LOOK_S_MAX:.0f} s"
            )

    found = await site.cached(("scheduled", choice.group, str(choice.page)), SCHEDULED_S, find)
    if isinstance(found, TimeoutError):
        raise found
    return found


async def cancel_scheduled(site: Site, wanted: CancelScheduled) -> Done:
    schedule = _schedule(site, wanted.group)
    try:
        async with asyncio.timeout(CANCEL_S_MAX):
            is_in_time = await schedule.cancel(wanted.id)
    except TimeoutError as error:
        raise TimeoutError(
            str(error)
            or f"the cluster did not respond within {CANCEL_S_MAX:.0f} s; {wanted.id} may be canceled all the same"
        ) from None
    site.note_change()
    if not is_in_time:
        raise TooLate(f"record {wanted.id} is already due and may have been sent")
    return Done(message=f"Record {wanted.id} is canceled.")


def _schedule(site: Site, group_id: str) -> GroupSchedule:
    if site.source.open_schedule is None:
        raise NotThere(
            "this dashboard was started without access to schedules; use `headrace web` or `headrace serve --http`"
        )
    return site.source.open_schedule(group_id)


async def _look(schedule: GroupSchedule, choice: ScheduledChoice) -> ScheduledPage:
    """A page beyond the last is the last: records may have been sent since somebody paged there."""
    records, total, is_whole = await schedule.look(choice.page * SCHEDULED_MAX)
    now_ms = schedule.now_ms()
    pages = min(SCHEDULED_PAGES_MAX, max(1, math.ceil(total / SCHEDULED_MAX)))
    page = min(choice.page, pages)
    shown = records[(page - 1) * SCHEDULED_MAX : page * SCHEDULED_MAX]
    return ScheduledPage(
        group_id=choice.group,
        records=tuple(_row(each, now_ms) for each in shown),
        total=total,
        page=page,
        pages=pages,
        has_more=total > page * SCHEDULED_MAX,
        is_whole=is_whole,
    )


def _row(record: ScheduledRecord, now_ms: int) -> ScheduledRow:
    """Whoever may write to the topic chooses all of it: an ID that is too long is none, and cannot be canceled."""
    at = round(record.at.timestamp() * 1000)
    return ScheduledRow(
        id=short(record.id, SCHEDULED_ID_MAX),
        at=at,
        is_due=at <= now_ms,
        topic=short(record.topic, TOPIC_NAME_MAX),
        key=body_of(record.key, length_max=PREVIEW_MAX),
        value=body_of(record.value, length_max=PREVIEW_MAX),
    )
