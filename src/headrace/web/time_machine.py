"""A share-partition at a time in the past, replayed from `__share_group_state`.

What is written there knows states and delivery counts, and no locks: what was held then is shown as unknown.
"""

from datetime import UTC, datetime

from headrace.client.admin.results import ShareStateRecord
from headrace.client.admin.share_state import state_at, view_of
from headrace.client.delivery import TopicPartition
from headrace.web.model import HistoryChoice, HistoryPage
from headrace.web.site import NotThere, Site
from headrace.web.windows import window_of
from headrace.wire.enums import OffsetSpec
from headrace.wire.share_state import ShareKey

HISTORY_S = 5.0
TIMES_MAX = 400
"""Places of the slider."""


async def history_page(site: Site, choice: HistoryChoice) -> HistoryPage:
    key = ("history", choice.group, choice.topic, str(choice.partition))
    records = await site.cached(key, HISTORY_S, lambda: _records(site, choice))
    if not records:
        raise NotThere(
            f"there is no stored state of group {choice.group!r} and {choice.topic}-{choice.partition}"
        )
    times = [record.timestamp for record in records]
    at = min(max(times[-1] if choice.at is None else choice.at, times[0]), times[-1])
    state = state_at(records, at)
    window = None
    if state is not None:
        place = TopicPartition(choice.topic, choice.partition)
        start, end = await _bounds(site, place, at)
        share_key = ShareKey(choice.group, b"", choice.partition)
        view = view_of(share_key, place, state, log_start_offset=start, log_end_offset=end)
        window = window_of(view, lag=view.lag)
    return HistoryPage(
        group_id=choice.group,
        topic=choice.topic,
        partition=choice.partition,
        at=at,
        first=times[0],
        last=times[-1],
        times=tuple(spread(sorted(set(times)), TIMES_MAX)),
        changes=sum(time <= at for time in times),
        changes_total=len(times),
        window=window,
    )


def spread(times: list[int], count_max: int) -> list[int]:
    """So many of them, evenly, with the first and the last."""
    if len(times) <= count_max:
        return times
    step = (len(times) - 1) / (count_max - 1)
    return [times[round(index * step)] for index in range(count_max)]


async def _records(site: Site, choice: HistoryChoice) -> list[ShareStateRecord]:
    place = choice.topic, choice.partition
    records = await site.source.admin.share_state_records(choice.group, [place])
    return [record for record in records if record.partition == choice.partition]


async def _bounds(site: Site, place: TopicPartition, at_ms: int) -> tuple[int, int]:
    """Where the log starts now, and where it ended then."""
    admin = site.source.admin
    when = datetime.fromtimestamp((at_ms + 1) / 1000, UTC)
    start = (await admin.list_offsets({place: OffsetSpec.EARLIEST}))[place].offset or 0
    then = (await admin.list_offsets({place: when}))[place].offset
    if then is None:
        then = (await admin.list_offsets({place: OffsetSpec.LATEST}))[place].offset
    return start, then or 0
