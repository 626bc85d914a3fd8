"""A frame of `top` shows groups with what is left to do and how it was before, and topics with what comes in."""

from collections import deque

from rich.console import Console

from headrace.cli.top import frame, sparkline
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


def drawn(shown: Overview, **lags: list[int]) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(frame(shown, {name: deque(values) for name, values in lags.items()}))
    console.file.close()
    return console.export_text()


def test_a_frame_shows_groups_and_topics() -> None:
    text = drawn(overview(kitchen()), kitchen=[0, 7, 12])
    assert "Cluster cluster: 1 broker, 1 group · 12 left to do in share groups · 2 in/s · 7 done/s" in text
    (line,) = [line for line in text.splitlines() if line.startswith("kitchen")]
    assert line.split() == ["kitchen", "Share", "Stable", "3", "12", "7.2", "▁▅█"]
    (line,) = [line for line in text.splitlines() if line.startswith("orders")]
    assert line.split() == ["orders", "2", "30", "2.5"]
    assert "__hidden" not in text


def test_what_went_wrong_is_shown_above_the_last_figures() -> None:
    text = drawn(overview(kitchen(None), error="the broker cannot be reached"))
    assert text.index("the broker cannot be reached") < text.index("kitchen")


def test_a_cluster_without_groups_says_how_to_get_one() -> None:
    assert "headrace consume TOPIC --group NAME" in drawn(overview())


def test_a_sparkline_is_as_high_as_its_highest_value() -> None:
    assert sparkline([0, 50, 100]) == "▁▄█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
