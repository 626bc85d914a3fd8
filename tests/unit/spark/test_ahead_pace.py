"""How much a query accepts ahead where no option says it: by its pace, and only where the window bounds it."""

import pytest

from headrace.spark.ahead import AHEAD_MAX, AHEAD_MIN, Ahead
from headrace.spark.options import SourceOptions
from headrace.spark.settle import Ledger

WINDOW = 4_000


def ahead(**options: object) -> Ahead:
    given = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "kafka.group.id": "g",
        "acknowledge": "handoff",
        "checkpointLocation": "/c",
        **{name: str(value) for name, value in options.items()},
    }
    parsed = SourceOptions.parse(given)
    return Ahead(parsed, Ledger(parsed.acknowledge))


def test_it_begins_with_what_is_processed_in_five_seconds() -> None:
    one = ahead()
    assert not one.is_due
    one.ran(4_000, took_ms=200, between_ms=250, window=WINDOW)
    assert one.is_due
    assert one.limit == 100_000


@pytest.mark.parametrize(
    ("count", "took_ms", "between_ms"),
    [
        pytest.param(1_999, 100, 100, id="the window does not bound it"),
        pytest.param(4_000, 2_501, 2_600, id="it is slow"),
        pytest.param(4_000, 40_000, 60_000, id="it is busy for most of the time between two triggers"),
    ],
)
def test_it_does_not_begin_where_that_would_not_help(count: int, took_ms: int, between_ms: int) -> None:
    one = ahead()
    one.ran(count, took_ms=took_ms, between_ms=between_ms, window=WINDOW)
    assert not one.is_due


def test_between_two_triggers_far_apart_as_much_is_accepted_as_one_of_them_can_do() -> None:
    one = ahead()
    one.ran(4_000, took_ms=4_000, between_ms=60_000, window=WINDOW)
    assert one.limit == 60_000


def test_it_grows_with_the_pace_within_bounds_and_does_not_shrink() -> None:
    one = ahead()
    one.ran(2_000, took_ms=2_400, between_ms=2_400, window=WINDOW)
    assert one.limit == AHEAD_MIN
    one.ran(50_000, took_ms=500, between_ms=500, window=WINDOW)
    assert one.limit == 500_000
    one.ran(4_000, took_ms=2_000, between_ms=2_000, window=WINDOW)
    assert one.limit == 500_000
    one.ran(500_000, took_ms=500, between_ms=500, window=WINDOW)
    assert one.limit == AHEAD_MAX


def test_what_the_query_says_bounds_it() -> None:
    fast = {"count": 4_000, "took_ms": 200, "between_ms": 200, "window": WINDOW}
    one, other, set_to = (
        ahead(maxRecordsPerTrigger=4_000),
        ahead(maxRecordsHeld=300),
        ahead(maxRecordsAhead=7),
    )
    for each in (one, other, set_to):
        each.ran(**fast)
    assert (one.limit, other.limit, set_to.limit) == (8_000, 300, 7)


def test_it_does_not_begin_without_a_checkpoint_in_commit_or_when_it_is_switched_off() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.group.id": "g"}
    options = [
        SourceOptions.parse({**given, "checkpointLocation": "/c"}),
        SourceOptions.parse({**given, "acknowledge": "handoff"}),
        SourceOptions.parse(
            {**given, "acknowledge": "handoff", "checkpointLocation": "/c", "maxRecordsAhead": "0"}
        ),
    ]
    for each in options:
        one = Ahead(each, Ledger(each.acknowledge))
        one.ran(4_000, took_ms=200, between_ms=200, window=WINDOW)
        assert not one.is_due
