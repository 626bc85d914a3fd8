"""One page of the groups or topics of the last overview: searched, sorted and cut on the server. Pure.

Pages stay short however many groups a cluster has, and the browser never gets more than it shows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace.web.model import GroupRow, GroupRows, GroupsChoice, Overview, TopicRow, TopicRows, TopicsChoice

T = TypeVar("T")


def _down(value: float | None) -> float:
    """Sorts the largest first, and what is not known last."""
    return math.inf if value is None else -value


GROUP_ORDERS: dict[str, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.group_id,
    "lag": lambda row: _down(row.lag),
    "age": lambda row: _down(row.oldest_age_s),
    "rate": lambda row: _down(row.rate_done),
    "members": lambda row: _down(row.members),
    "drain": lambda row: _down(math.inf if row.drains_never else row.drain_s),
}
TOPIC_ORDERS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: (row.is_internal, row.name),
    "records": lambda row: _down(row.records),
    "rate": lambda row: _down(row.rate_in),
    "size": lambda row: _down(row.size),
    "partitions": lambda row: -row.partitions,
}


def groups_of(overview: Overview, choice: GroupsChoice) -> GroupRows:
    wanted = choice.q.casefold()
    rows = [
        row for row in overview.groups if wanted in row.group_id.casefold() and choice.type in ("", row.type)
    ]
    if choice.sort in GROUP_ORDERS:  # the overview is sorted by trouble already
        rows.sort(key=GROUP_ORDERS[choice.sort])
    page, pages, shown = _cut(rows, choice.page, choice.limit)
    return GroupRows(groups=tuple(shown), total=len(rows), page=page, pages=pages)


def topics_of(overview: Overview, choice: TopicsChoice) -> TopicRows:
    wanted = choice.q.casefold()
    rows = [
        row
        for row in overview.topics
        if wanted in row.name.casefold() and (choice.internal == "yes" or not row.is_internal)
    ]
    rows.sort(key=TOPIC_ORDERS[choice.sort])
    page, pages, shown = _cut(rows, choice.page, choice.limit)
    return TopicRows(topics=tuple(shown), total=len(rows), page=page, pages=pages)


def _cut(rows: Sequence[T], page: int, limit: int) -> tuple[int, int, Sequence[T]]:
    """A page beyond the last is the last: rows may have gone since somebody paged there."""
    pages = max(1, math.ceil(len(rows) / limit))
    page = min(page, pages)
    return page, pages, rows[(page - 1) * limit : page * limit]
