"""A frame of `top` shows groups with what is left to do and how it was before, and topics with what comes in."""

from collections import deque
from dataclasses import replace

from rich.console import Console

from headrace.cli.top import frame, sparkline
from headrace.cli.top_view import TopView, split_keys
from headrace.web.model import BrokerRow, GroupRow, Overview, TopicRow


def overview(*groups: GroupRow, error: str | None = None) -> Overview:
    return Overview(
        cluster_id="cluster",
        version="1",
        is_embedded=False,
        is_read_only=False,
        sampled_at=1,
        brokers=(BrokerRow(node_id=1, address="localhost:9092", rack=None, is_controller=True),),
        topics=(
            TopicRow(
                name="orders", partitions=2, replication_factor=1, is_internal=False, records=30, rate_in=2.5
            ),
            TopicRow(
                name="__hidden", partitions=2, replication_factor=1, is_internal=True, records=30, rate_in=0
            ),
        ),
        groups=groups,
        error=error,
    )


def kitchen(lag: int | None = 12) -> GroupRow:
    return GroupRow(
        group_id="kitchen", type="share", state="Stable", members=3, lag=lag, in_flight=None, rate_done=7.25
    )


def drawn(shown: Overview, width: int = 120, **lags: list[int]) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(frame(shown, {name: deque(values) for name, values in lags.items()}, width=width))
    console.file.close()
    return console.export_text()


def test_a_frame_shows_groups_and_topics() -> None:
    text = drawn(overview(kitchen()), kitchen=[0, 7, 12])
    assert "Cluster cluster: 1 broker, 1 group · 12 left to do in share groups · 2 in/s · 7 done/s" in text
    (line,) = [line for line in text.splitlines() if line.startswith("kitchen")]
    assert line.split() == ["kitchen", "Share", "Stable", "3", "12", "-", "7.2", "▁▅█"]
    (line,) = [line for line in text.splitlines() if line.startswith("orders")]
    assert line.split() == ["orders", "2", "30", "2.5"]
    assert "__hidden" not in text


def test_what_went_wrong_is_shown_above_the_last_figures() -> None:
    text = drawn(overview(kitchen(None), error="the broker cannot be reached"))
    assert text.index("the broker cannot be reached") < text.index("kitchen")


def named(*names: str) -> tuple[GroupRow, ...]:
    return tuple(replace(kitchen(len(name)), group_id=name) for name in names)


def chosen(view: TopView, *names: str) -> list[str]:
    return [group.group_id for group in view.choose(named(*names))]


def test_groups_come_in_the_order_of_trouble_until_another_is_asked_for() -> None:
    view = TopView()
    assert chosen(view, "bb", "a", "ccc") == ["bb", "a", "ccc"]
    view.press("s", page=5)
    assert (view.order, chosen(view, "bb", "a", "ccc")) == ("lag", ["ccc", "bb", "a"])
    for _ in range(4):
        view.press("s", page=5)
    assert view.order == "trouble"


def test_a_filter_is_typed_kept_and_dropped() -> None:
    view = TopView()
    for key in "/MAq\x7f":
        view.press(key, page=5)
    assert (view.is_typing, view.is_done) == (True, False)
    assert chosen(view, "mailers", "kitchen") == ["mailers"]
    view.press("\n", page=5)
    view.press("q", page=5)
    assert (view.filter, view.is_done) == ("MA", True)
    view.press("\x1b", page=5)
    assert chosen(view, "mailers", "kitchen") == ["mailers", "kitchen"]


def test_scrolling_stops_at_both_ends() -> None:
    groups = named(*(f"group-{number:02}" for number in range(20)))
    view = TopView()
    for key in ("j", "j", "k"):
        view.press(key, page=5)
    shown, total = view.page(groups, 8)
    assert (shown[0].group_id, len(shown), total) == ("group-01", 8, 20)
    view.press("G", page=5)
    assert view.page(groups, 8)[0][-1].group_id == "group-19"
    for _ in range(9):
        view.press("k", page=5)
    assert view.page(groups, 8)[0][0].group_id == "group-03"


def test_keys_of_several_bytes_are_one_key() -> None:
    assert split_keys("s\x1b[Bq\x1b[5~") == ["s", "\x1b[B", "q", "\x1b[5~"]


def test_a_frame_fits_into_a_small_terminal_and_says_what_is_wrong() -> None:
    group = replace(kitchen(), level="critical", reasons=("No members, and 12 records to go",))
    groups = (group, *named(*(f"group-{number}" for number in range(100))))
    console = Console(width=200, height=24, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(frame(overview(*groups), {}, height=24))
    console.file.close()
    text = console.export_text()
    assert "No members, and 12 records to go" in text
    assert len(text.splitlines()) <= 24


def test_a_narrow_terminal_shows_whole_figures_and_cuts_names_and_reasons() -> None:
    old = replace(
        kitchen(12_029),
        oldest_age_s=1_573,
        level="critical",
        reasons=("No members, and 12,029 records to go", "Oldest record has waited 26 min 13 s"),
    )
    text = drawn(overview(old, replace(old, group_id="g" * 249)), width=80)
    header, first, second = [
        line for line in text.splitlines() if line.startswith(("GROUP", "kitchen", "ggg"))
    ]
    assert header.split() == ["GROUP", "#MEMBERS", "LAG", "OLDEST", "DONE/S", "WHAT", "IS", "WRONG"]
    for line, name in ((first, "kitchen"), (second, "g" * 19 + "…")):
        assert line.split()[:7] == [name, "3", "12029", "26", "min", "13", "s"]
        assert "No members, and 12," in line
        assert line.rstrip().endswith("…")
    assert all(len(line) <= 80 for line in text.splitlines())


def test_before_the_first_look_nothing_is_said_of_the_cluster() -> None:
    text = drawn(replace(overview(), sampled_at=None))
    assert "Reading the groups and topics of the cluster" in text
    assert "No groups" not in text


def test_names_cannot_reach_the_terminal() -> None:
    text = drawn(overview(replace(kitchen(), group_id="\x1b]0;pwned\x07[red]x")))
    assert "\\x1b]0;pwned\\x07[red]x" in text


def test_a_cluster_without_groups_says_how_to_get_one() -> None:
    assert "headrace consume TOPIC --group NAME" in drawn(overview())


def test_a_sparkline_is_as_high_as_its_highest_value() -> None:
    assert sparkline([0, 50, 100]) == "▁▄█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
