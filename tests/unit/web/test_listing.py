"""In which order groups are listed, and which of them are on a page."""

from headrace.web.listing import groups_of
from headrace.web.model import GroupRow, GroupsChoice, Overview


def row(name: str, drain: str, drain_s: float | None) -> GroupRow:
    return GroupRow(
        group_id=name,
        type="share",
        state="Stable",
        members=1,
        lag=1,
        in_flight=None,
        rate_done=None,
        drain=drain,
        drain_s=drain_s,
    )


def test_what_never_drains_comes_before_what_takes_long() -> None:
    rows = (
        row("unknown", "not known yet", None),
        row("soon", "5 s", 5),
        row("never", "never at this rate", None),
        row("late", "1 h", 3_600),
    )
    overview = Overview(
        cluster_id="c", version="1", is_embedded=False, is_read_only=False, sampled_at=1, groups=rows
    )
    shown = groups_of(overview, GroupsChoice(sort="drain")).groups
    assert [one.group_id for one in shown] == ["never", "late", "soon", "unknown"]
