"""The small words of the templates, and the strip's rectangles."""

from typing import Any

from headrace.web import rendering
from headrace.web.model import PartitionWindow, WindowRun


def test_numbers_rates_sizes_and_times_are_for_people() -> None:
    assert rendering.number(1234567) == "1\u202f234\u202f567"
    assert rendering.number(None) == rendering.rate(None) == rendering.clock(None) == rendering.seconds(None)
    assert [rendering.rate(value) for value in (0, 2.04, 5.26, 1234.5)] == ["0", "2", "5.3", "1\u202f234"]
    assert [rendering.size(count) for count in (7, 1500, 2_000_000)] == ["7 B", "1.5 kB", "2.0 MB"]
    assert rendering.clock(0) == "1970-01-01 00:00:00"
    assert rendering.clock(2**62) == str(2**62)
    assert [rendering.seconds(ms) for ms in (30_000, 1_500)] == ["30 s", "1.5 s"]


def test_links_carry_any_name() -> None:
    assert rendering.link("/group", group="a/b&c=d ü", topic=None) == "/group?group=a%2Fb%26c%3Dd+%C3%BC"


def window(runs: tuple[WindowRun, ...], **facts: Any) -> PartitionWindow:
    return PartitionWindow(
        topic="t",
        partition=0,
        start_offset=5,
        next_offset=15,
        log_start_offset=0,
        log_end_offset=20,
        lag=None,
        in_flight=10,
        window_max=None,
        states={},
        lock_timeouts=None,
        runs=runs,
        **{"is_live": True, "deliveries": {}, "runs_total": len(runs), **facts},
    )


RUNS = (
    WindowRun(first=5, last=5, state="acquired", delivery_count=9, holder="ann", lock_ms_left=1000),
    WindowRun(first=6, last=14, state="available", delivery_count=0),
)


def test_a_strip_covers_its_whole_width_in_order() -> None:
    first, second = rendering.strip(window(RUNS))
    assert (first["x"], first["width"], first["heat"]) == ("0.00", "100.00", rendering.HEAT_MAX)
    assert (second["x"], second["width"], second["heat"]) == ("100.00", "900.00", 0)
    assert first["title"] == "5: acquired; delivered 9 times; held by ann, lock ends in 1 s"


def test_whatever_a_group_is_called_is_text_on_the_page() -> None:
    html = rendering.environment().from_string("{{ name }}").render(name="<script>alert(1)</script>")
    assert "<script>" not in html


def drawn(shown: PartitionWindow, path: str = "/group") -> str:
    page = {"group_id": "g"}
    return rendering.environment().get_template("window.html").render(window=shown, page=page, path=path)


def test_a_window_of_many_runs_leads_to_its_history_too() -> None:
    html = drawn(window(RUNS, runs_total=900))
    assert "900 runs, gathered" in html
    assert "/history?group=g&amp;topic=t&amp;partition=0" in html
    assert "/history" not in drawn(window(RUNS), path="/history")


def test_where_locks_are_not_known_a_record_may_have_been_delivered() -> None:
    assert "<dt>not yet</dt>" in drawn(window(RUNS, deliveries={0: 9, 9: 1}))
    assert "<dt>unknown</dt>" in drawn(window(RUNS, deliveries={0: 9, 9: 1}, is_live=False))
