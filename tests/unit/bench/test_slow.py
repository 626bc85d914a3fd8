"""The picture of the slow work: one line a broker and kind, and none that leaves the frame."""

import re
from xml.etree import ElementTree

from bench.contest import Contest
from bench.slow import CEILING, GROUP_CONSUMERS, HEIGHT, RATE, REFERENCE, SHARE_CONSUMERS, TOP, draw


def perfect() -> Contest:
    contest = Contest("slow", reference=REFERENCE)
    for broker in ("headrace", "apache"):
        for kind, sizes in (("share", SHARE_CONSUMERS), ("group", GROUP_CONSUMERS)):
            for size in sizes:
                rate = CEILING * (size if kind == "share" else 2)
                contest.add(RATE, broker, f"{kind}, {size} consumer{'s' if size > 1 else ''}", rate)
    return contest


def test_every_series_is_drawn_inside_the_frame() -> None:
    root = ElementTree.fromstring(draw(perfect()))
    lines = root.findall("{*}polyline")
    assert len(lines) == 5
    for line in lines:
        for y in re.findall(r",([-0-9.]+)", line.attrib["points"]):
            assert TOP <= float(y) <= TOP + HEIGHT


def test_a_rate_that_grows_with_the_consumers_lies_on_the_ideal_line() -> None:
    ideal, share, *_ = [
        line.attrib["points"] for line in ElementTree.fromstring(draw(perfect())).findall("{*}polyline")
    ]
    assert share == ideal
