"""A share-partition at a time in the past, replayed from `__share_group_state`.

Headrace's broker writes there who held records when they are let go of. What is still held the broker knows if the
dashboard runs inside it. Apache Kafka writes states and delivery counts, and no members: there, what was held is shown
as unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from headrace.client.admin.explain import past_member_name
from headrace.client.admin.results import ShareStateRecord
from headrace.client.admin.share_state import view_of
from headrace.client.delivery import TopicPartition
from headrace.share.holds import PastHold
from headrace.share.view import live_holds
from headrace.web.model import HistoryChoice, HistoryPage, PastHoldRow
from headrace.web.queries import share_members
from headrace.web.site import NotThere, Site
from headrace.web.windows import past_row, window_of
from headrace.wire.enums import OffsetSpec
from headrace.wire.share_history import PastPartition
from headrace.wire.share_state import ShareKey

HISTORY_S = 5.0
ENDED_MAX = 20
TIMES_MAX = 400
"""Places of the slider."""


async def history_page(site: Site, choice: HistoryChoice) -> HistoryPage:
    key = ("history", choice.group, choice.topic, str(choice.partition))
    known = await site.cached(key, HISTORY_S, lambda: _known(site, choice))
    if not known.records:
        raise NotThere(
            f"there is no stored state of group {choice.group!r} and {choice.topic}-{choice.partition}"
        )
    first, last = known.times[0], known.times[-1]
    at = min(max(last if choice.at is None else choice.at, first), last)
    past = PastPartition(at)
    past.add_held(known.current)
    for record, holds in known.records:
        past.add(record.timestamp, record.value, holds)
    window, runs = None, past.runs()
    if past.state is not None:
        place = TopicPartition(choice.topic, choice.partition)
        start, end = await _bounds(site, place, at)
        share_key = ShareKey(choice.group, b"", choice.partition)
        view = view_of(share_key, place, past.state, runs, log_start_offset=start, log_end_offset=end)
        names = {run.past.member_id: past_member_name(run.past) for run in runs if run.past is not None}
        window = window_of(view, lag=view.lag, names=names)
    return HistoryPage(
        group_id=choice.group,
        topic=choice.topic,
        partition=choice.partition,
        at=at,
        first=first,
        last=last,
        times=tuple(spread(known.times, TIMES_MAX)),
        changes=sum(record.timestamp <= at for record, _ in known.records),
        changes_total=len(known.records),
        window=window,
        names_holders=past.names_holders,
        knows_current=site.source.detail is not None,
        held=_rows(run.past for run in runs if run.past is not None and run.holder is not None),
        ended=_rows(past.latest(), lambda hold: (hold.ended_at, hold.end))[:ENDED_MAX],
    )


def _rows(
    holds: Iterable[PastHold], also: Callable[[PastHold], object] = lambda hold: None
) -> tuple[PastHoldRow, ...]:
    """One for all that a member acquired together, and that is also alike; in the order of their first."""
    together: dict[object, list[PastHold]] = {}
    for hold in holds:
        together.setdefault((hold.member_id, hold.acquired_at, also(hold)), []).append(hold)
    return tuple(past_row(*some) for some in together.values())


def spread(times: Sequence[int], count_max: int) -> Sequence[int]:
    """So many of them, evenly, with the first and the last."""
    if len(times) <= count_max:
        return times
    step = (len(times) - 1) / (count_max - 1)
    return [times[round(index * step)] for index in range(count_max)]


class _Known(NamedTuple):
    current: Sequence[PastHold]
    """What is held now; empty where only the broker knows."""
    records: Sequence[tuple[ShareStateRecord, Sequence[PastHold]]]
    times: Sequence[int]
    """When something was written or acquired, and when what is held now was looked at."""


async def _known(site: Site, choice: HistoryChoice) -> _Known:
    """First what is held, then what is written: a hold that ends meanwhile is in both."""
    place, current, seen_at = (choice.topic, choice.partition), list[PastHold](), None
    if site.source.detail is not None:
        view = (await site.source.detail.share_state(choice.group)).get(place)
        if view is not None:
            seen_at = view.seen_at
            members = {one.member_id: one for one in await share_members(site, choice.group)}
            for hold in live_holds(view):
                member = members.get(hold.member_id)
                if member is not None:
                    hold = hold._replace(client_id=member.client_id, client_host=member.host)
                current.append(hold)
    records = await site.source.admin.share_state_records(choice.group, [place])
    found = [(record, record.holds) for record in records if record.partition == choice.partition]
    acquired = {hold.acquired_at for hold in chain(current, *(holds for _, holds in found))}
    times = {record.timestamp for record, _ in found}
    times |= {time for time in acquired if time >= min(times, default=0)}
    if seen_at is not None:
        times.add(seen_at)
    return _Known(current, found, sorted(times))


async def _bounds(site: Site, place: TopicPartition, at_ms: int) -> tuple[int, int]:
    """Where the log starts now, and where it ended then."""
    admin = site.source.admin
    when = datetime.fromtimestamp((at_ms + 1) / 1000, UTC)
    start = (await admin.list_offsets({place: OffsetSpec.EARLIEST}))[place].offset or 0
    then = (await admin.list_offsets({place: when}))[place].offset
    if then is None:
        then = (await admin.list_offsets({place: OffsetSpec.LATEST}))[place].offset
    return start, then or 0
