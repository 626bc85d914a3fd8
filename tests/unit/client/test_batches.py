"""Rows of Arrow: what is handed out, answered by mask, raised, lost, and left for the next poll."""

import sys
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import columns
from headrace.client.batches import DeliveryBatch, require_arrow, without_lost
from headrace.client.core.ranges import RangeState
from headrace.client.decoding import Rows
from headrace.client.delivery import AcknowledgeType
from headrace.client.errors import CorruptRecordError, IllegalStateError
from headrace.client.sync import ShareConsumer
from headrace.wire.batches import HEADER_SIZE, read_header, with_header
from headrace.wire.messages.share_fetch_response import AcquiredRecords, PartitionData
from headrace.wire.records import NewRecord, build_batch, keep_records
from tests.unit.client.test_consumption import App

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def take(app: App, *, is_seen: bool = True) -> DeliveryBatch | None:
    """A poll for rows that does not wait; `is_seen`: and that returns."""
    found = app.consumption.take_unseen_batch(now_ms=0)
    if not found:
        app.consumption.begin()
        found = app.consumption.take_batch(now_ms=0)
    if not found:
        return None
    (batch,) = found
    if is_seen:
        app.consumption.batch_seen = batch
    return batch


def taken(app: App) -> DeliveryBatch:
    batch = take(app)
    assert batch is not None
    return batch


def offsets(batch: DeliveryBatch | None) -> list[int]:
    return [] if batch is None else batch.records["offset"].to_pylist()


def explicit(*values: str, **options: Any) -> tuple[App, DeliveryBatch]:
    app = App(is_explicit=True, **options)
    app.fill(*values)
    return app, taken(app)


def records(*values: str, base: int = 0, is_damaged: bool = False) -> bytes:
    data = bytearray(
        build_batch([NewRecord(None, value.encode(), (), 0) for value in values], base_offset=base)
    )
    data[-1] ^= is_damaged
    return bytes(data)


def deliver(app: App, data: bytes, *ranges: tuple[int, int, int]) -> None:
    """What one response brings: ranges of (first, last, delivery count)."""
    acquired = [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in ranges
    ]
    app.driver.answer(1, PartitionData(partition_index=0, acquired_records=acquired, records=data))


class Stream:
    """As a Series of Polars is."""

    def __init__(self, *values: bool) -> None:
        self._values = pa.chunked_array([pa.array(values[:1]), pa.array(values[1:])])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._values.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "mask",
    [
        [True, False, True],
        (True, None, True),
        pa.array([True, False, True]),
        pa.array([True, None, True]),
        pa.chunked_array([[True], [False, True]]),
        Stream(True, False, True),
    ],
    ids=["list", "tuple with None", "array", "array with null", "chunked", "stream"],
)
def test_a_mask_may_be_any_of_these(mask: Any) -> None:
    app, batch = explicit("a", "b", "c")
    batch.accept(mask)
    batch.reject()
    assert app.sweep() == [(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, ACCEPT)]


@pytest.mark.needs_spark  # which brings them
def test_numpy_and_pandas_masks() -> None:
    import numpy
    import pandas

    for mask in (numpy.array([True, False]), pandas.Series([True, False]), pandas.Series([True, None])):
        app, batch = explicit("a", "b")
        batch.accept(mask)
        batch.release()
        assert app.sweep() == [(0, 0, ACCEPT), (1, 1, RELEASE)]


def test_a_mask_that_does_not_fit_is_refused() -> None:
    app, batch = explicit("a", "b")
    with pytest.raises(ValueError, match="the mask must have one value for each of the 2 rows, got 1"):
        batch.accept([True])
    with pytest.raises(TypeError, match="the mask must be booleans, one for each row, got True"):
        batch.accept(True)
    with pytest.raises(TypeError, match="the mask must be booleans, one for each row, got type int64"):
        batch.accept([1, 0])
    assert app.sweep() == []


def test_a_mask_of_one_answer_for_all_costs_no_byte_for_each_offset() -> None:
    app, batch = explicit("a", "b")
    batch.accept()
    (rows,) = batch._rows
    assert rows.acquired.is_all(RangeState.ACCEPT)
    assert app.sweep() == [(0, 1, ACCEPT)]


def test_rows_of_several_ranges_with_gaps_are_answered_by_their_offsets() -> None:
    app = App(is_explicit=True)
    whole = build_batch([NewRecord(None, b"%d" % number, (), 0) for number in range(10)])
    kept = keep_records(whole, lambda record: record.offset not in (1, 6, 7))
    deliver(app, kept, (0, 3, 1), (5, 9, 2))
    batch = taken(app)
    assert offsets(batch) == [0, 2, 3, 5, 8, 9]
    assert batch.records["deliveryCount"].to_pylist() == [1, 1, 1, 2, 2, 2]
    batch.reject([False, True, False, False, True, False])
    batch.accept()
    gap = RangeState.GAP
    assert sorted(app.sweep()) == [
        (0, 0, ACCEPT),
        (1, 1, gap),
        (2, 2, REJECT),
        (3, 3, ACCEPT),
        (5, 5, ACCEPT),
        (6, 7, gap),
        (8, 8, REJECT),
        (9, 9, ACCEPT),
    ]


def test_a_time_beyond_arrows_reach_does_not_stop_the_rows() -> None:
    """As of a producer that gives nanoseconds where milliseconds are meant."""
    app = App()
    times = (1_700_000_000_000_000_000, -(2**62), 1_700_000_000_000)
    deliver(app, build_batch([NewRecord(None, b"", (), time) for time in times]), (0, 2, 1))
    micros = taken(app).records["timestamp"].view(pa.int64()).to_pylist()
    last = (2**63 - 1) // 1000 * 1000
    assert micros == [last, -last, 1_700_000_000_000_000]


def test_a_damaged_batch_is_raised_after_the_rows_around_it() -> None:
    app = App(is_explicit=True)
    data = records("a", "b") + records("c", base=2, is_damaged=True) + records("d", base=3)
    deliver(app, data, (0, 3, 1))
    batch = taken(app)
    assert offsets(batch) == [0, 1, 3]
    batch.accept()
    with pytest.raises(CorruptRecordError, match="offsets 2 to 2"):
        take(app)
    assert take(app) is None
    assert (2, 2, REJECT) in app.sweep()


@pytest.mark.parametrize("has_numpy", [True, False])
def test_many_rows_around_a_damaged_batch_with_and_without_numpy(
    has_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_numpy:
        monkeypatch.setattr(columns, "load_numpy", lambda: None)
    app = App(is_explicit=True)
    many = [str(number) for number in range(400)]
    whole = build_batch([NewRecord(b"k", b"v", (), 0)] * 400, base_offset=401)
    kept = keep_records(whole, lambda record: record.offset % 2 == 0)
    data = records(*many) + records("c", base=400, is_damaged=True) + kept + records(*many, base=801)
    deliver(app, data, (0, 1_000, 1), (1_001, 1_200, 2))
    batch = taken(app)
    expected = [*range(400), *range(402, 801, 2), *range(801, 1_201)]
    assert offsets(batch) == expected
    assert batch.records["deliveryCount"].to_pylist() == [1 if offset <= 1_000 else 2 for offset in expected]
    assert batch.records["value"].to_pylist()[-400:] == [value.encode() for value in many]
    batch.reject([offset == 5 for offset in expected])
    batch.accept()
    gaps = [(offset, offset, RangeState.GAP) for offset in range(401, 801, 2)]
    answered = sorted(app.sweep())
    assert [each for each in answered if each[2] == RangeState.GAP] == gaps
    assert [each for each in answered if each[2] == REJECT] == [(5, 5, REJECT)]
    with pytest.raises(CorruptRecordError, match="offsets 400 to 400"):
        take(app)


def test_a_batch_whose_records_are_not_what_its_header_says_is_released_among_many_rows() -> None:
    """Its checksum is right, so that only reading it tells."""
    app = App(is_explicit=True)
    plain = build_batch([NewRecord(None, b"v", (), 0)] * 400)
    wrong = with_header(read_header(plain)._replace(base_offset=400), plain[HEADER_SIZE:-1])
    deliver(app, plain + wrong, (0, 799, 1))
    batch = taken(app)
    assert offsets(batch) == list(range(400))
    batch.accept()
    with pytest.raises(CorruptRecordError, match="offsets 400 to 799"):
        take(app)
    assert take(app) is None
    assert sorted(app.sweep()) == [(0, 399, ACCEPT), (400, 799, RELEASE)]


def test_rows_that_are_lost_before_they_are_seen_are_left_out() -> None:
    app = App(is_explicit=True)
    deliver(app, records("a", "b"), (0, 0, 1), (1, 1, 2))
    batch = take(app, is_seen=False)
    assert offsets(batch) == [0, 1]
    app.driver.poll(0)
    app.fill("a", delivery_count=2)  # the broker delivers it again: the lock had ended
    again = take(app)
    assert offsets(again) == [1]


def test_lost_rows_are_told_by_the_batch_and_an_answer_to_them_comes_too_late() -> None:
    app, batch = explicit("a", "b")
    batch.accept([True, False])
    app.expire()
    assert batch.lost.to_pylist() == [True, True]
    batch.accept()
    assert app.sweep() == []
    app.consumption.begin()


def test_a_poll_for_deliveries_gives_back_the_rows_of_one_that_was_interrupted() -> None:
    app = App()
    app.fill("a")
    take(app, is_seen=False)
    app.driver.poll(0)
    app.fill("b", base=1)
    assert [one.offset for one in app.take()] == [1]
    assert app.sweep() == [(0, 0, RELEASE)]


@pytest.mark.parametrize("is_explicit", [False, True], ids=["implicit", "explicit"])
def test_a_poll_for_rows_may_be_interrupted_at_every_line(is_explicit: bool) -> None:
    """As by a signal handler that raises: each row is seen once all the same, and accepted only if it was seen."""

    class Alarm(Exception):
        pass

    def interrupted(action: Any, line: int) -> Any:
        left = [line]

        def trace(frame: Any, event: str, _: Any) -> Any:
            if "headrace/client" not in frame.f_code.co_filename:
                return None
            if event == "line":
                left[0] -= 1
                if left[0] < 0:
                    sys.settrace(None)
                    raise Alarm
            return trace

        sys.settrace(trace)
        try:
            return action()
        finally:
            sys.settrace(None)

    for line in range(10_000):
        app = App(is_explicit=is_explicit)
        app.fill("a", "b", "c")
        was_interrupted = False
        try:
            batch = interrupted(lambda app=app: take(app), line)
        except Alarm:
            was_interrupted, batch = True, None
        app.consumption.accept_seen()
        assert app.sweep() == ([] if was_interrupted or is_explicit else [(0, 2, ACCEPT)]), f"at line {line}"
        if was_interrupted:
            batch = take(app)
        assert offsets(batch) == [0, 1, 2], f"at line {line}"
        if is_explicit:
            batch.accept()
        assert take(app) is None
        assert app.sweep() == [(0, 2, ACCEPT)], f"at line {line}"
        if not was_interrupted:
            assert line > 50
            return
    raise AssertionError("it never ended")


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'headrace\[arrow\]'"):
        require_arrow()
    consumer = ShareConsumer(bootstrap_servers="localhost:1", group_id="g")
    with consumer, pytest.raises(ImportError, match=r"pip install 'headrace\[arrow\]'"):
        consumer.batches()


def test_a_consumer_with_deserializers_gives_no_batches() -> None:
    consumer = ShareConsumer(bootstrap_servers="localhost:1", group_id="g", value_deserializer=str)
    with consumer, pytest.raises(IllegalStateError, match="calls no deserializer"):
        consumer.batches()


def test_what_is_lost_while_lost_rows_are_left_out_stays_in_rows_and_records_alike() -> None:
    """The member's thread may lose more at any moment."""
    _, batch = explicit("a", "b", "c")

    class Losing:
        """Loses the second record after the first look at it."""

        looks = 0

        def state_of(self, offset: int) -> RangeState:
            self.looks += offset == 1
            is_lost = offset == 0 or (offset == 1 and self.looks > 1)
            return RangeState.LOST if is_lost else RangeState.HANDED

    losing: Any = Losing()
    left = without_lost(DeliveryBatch(batch.records, [Rows(losing, [0, 1, 2])], batch._answer))
    assert offsets(left) == [1, 2]
    assert [rows.offsets for rows in left._rows] == [[1, 2]]


def test_a_mask_of_nothing_but_nulls_means_no_row() -> None:
    _, batch = explicit("a", "b")
    for mask in ([None, None], pa.nulls(2), pa.nulls(2, pa.bool_())):
        batch.reject(mask)
    batch.accept()
    assert [acquired.state_of(offset) for acquired, own in batch._rows for offset in own] == [ACCEPT, ACCEPT]
